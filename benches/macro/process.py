"""Processor time and memory of a process as the kernel accounts them, and servers started for a figure."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int | str = "self") -> float:
    """User and system seconds that all threads of the process have used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def peak_memory_bytes(pid: int) -> int:
    """Largest resident set so far (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmHWM for process {pid}")


@dataclass(frozen=True)
class Running:
    """A server process that accepts, and when it was started (``time.perf_counter``)."""

    pid: int
    name_server: str
    store: Path
    started_at: float


BINARY = Path("target/release/rocketpy-server")
COMMAND = Path(sys.executable).with_name("rocketpy")


@contextmanager
def launched(
    program: Path, store: Path, ready: Path, *options: str, preexec: Callable[[], None] | None = None
) -> Iterator[Running]:
    """Starts ``program server`` on a folder and free ports; stops it at the end."""
    command = [str(program), "server", str(store), "--port", "0", "--name-server-port", "0"]
    started_at = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--ready-file", str(ready), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=preexec,
    )
    try:
        while not ready.exists():
            if process.poll() is not None:
                raise RuntimeError(f"{program} server ended with {process.returncode}")
            time.sleep(0.0005)
        yield Running(process.pid, json.loads(ready.read_text())["name_server"], store, started_at)
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextmanager
def server(program: Path, *options: str) -> Iterator[Running]:
    """Starts ``program server`` on an empty folder."""
    with (
        tempfile.TemporaryDirectory(prefix="rocketpy-bench-") as folder,
        launched(program, Path(folder, "store"), Path(folder, "ready.json"), *options) as running,
    ):
        yield running

"""Processor time and memory of a process as the kernel accounts them, and servers started for a figure."""

import json
import os
import signal
import socket
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
    user, system = user_and_system_seconds(Path(f"/proc/{pid}"))
    return user + system


def user_and_system_seconds(folder: Path) -> tuple[float, float]:
    """Of a process or a thread, by its folder in ``/proc``."""
    fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) / TICKS_PER_SECOND, int(fields[12]) / TICKS_PER_SECOND


def status(folder: Path, key: str) -> int:
    """A number of a process's or thread's ``status``, in its unit there."""
    for line in (folder / "status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1])
    raise RuntimeError(f"no {key} in {folder}")


def peak_memory_bytes(pid: int | str = "self") -> int:
    """Largest resident set so far (VmHWM)."""
    return status(Path(f"/proc/{pid}"), "VmHWM") * 1024


def anonymous_memory_bytes(pid: int) -> int:
    """Resident memory that is no page of a file."""
    return status(Path(f"/proc/{pid}"), "RssAnon") * 1024


@dataclass(frozen=True)
class Usage:
    """What processes have used so far."""

    user_s: float
    system_s: float
    threads_s: dict[str, float]
    """By the threads' names without their numbers; of threads that run."""
    switches: int
    """Context switches of the threads that run."""


def usage(*pids: int) -> Usage:
    """Of processes together."""
    threads_s: dict[str, float] = {}
    switches = 0
    folders = [Path(f"/proc/{pid}") for pid in pids]
    for thread in (thread for folder in folders for thread in (folder / "task").iterdir()):
        try:
            name = (thread / "comm").read_text().strip().rstrip("0123456789-_#")
            seconds = sum(user_and_system_seconds(thread))
            switched = status(thread, "voluntary_ctxt_switches") + status(thread, "nonvoluntary_ctxt_switches")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended
        threads_s[name] = threads_s.get(name, 0) + seconds
        switches += switched
    user_s, system_s = map(sum, zip(*map(user_and_system_seconds, folders), strict=True))
    return Usage(user_s, system_s, threads_s, switches)


@contextmanager
def system_calls(*pids: int) -> Iterator[list[int]]:
    """Counts the system calls of processes with ``perf``; the list has their number at the end."""
    command = ["perf", "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", ",".join(map(str, pids))]
    counter = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    counted: list[int] = []
    try:
        yield counted
    finally:
        counter.send_signal(signal.SIGINT)
        _, text = counter.communicate()
    first = text.partition(",")[0]
    if not first.isdigit():
        raise RuntimeError(f"perf counts no system calls (it needs root): {text.strip()}")
    counted.append(int(first))


@dataclass(frozen=True)
class Running:
    """A server process that accepts, and when it was started (``time.perf_counter``)."""

    pid: int
    name_server: str
    store: Path
    started_at: float


if "--save" in sys.argv:
    from rocketpy._rocketpy import __profile__

    if __profile__ != "release":
        sys.exit("error: saved figures must come from the release wheel\nhint: make wheel")

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path("target/release/rocketpy-server")
COMMAND = Path(sys.executable).with_name("rocketpy")


def built_server(given: Path | None) -> Path:
    """The server that was named, or else the release, which this builds."""
    if given is None:
        subprocess.run(["cargo", "build", "--release", "--locked", "-p", "rocketpy-server"], cwd=ROOT, check=True)
    return (given or ROOT / BINARY).absolute()


@contextmanager
def launched(
    program: Path,
    store: Path,
    ready: Path,
    *options: str,
    preexec: Callable[[], None] | None = None,
    name_server: str | None = None,
) -> Iterator[Running]:
    """Starts ``program server`` on a folder and free ports, or a broker alone of a name server; stops it at the end."""
    part = ["server", "--name-server-port", "0"] if name_server is None else ["broker", "--name-server", name_server]
    command = [str(program), part[0], str(store), "--port", "0", *part[1:]]
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
                raise RuntimeError(f"{program} {part[0]} ended with {process.returncode}")
            time.sleep(0.0005)
        address = name_server or json.loads(ready.read_text())["name_server"]
        yield Running(process.pid, address, store, started_at)
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def started(command: list[str], address: str, folder: str) -> Iterator[Running]:
    """Another system's server process, from when it listens; ended in order."""
    started_at = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        host, port = address.split(":")
        while True:
            try:
                socket.create_connection((host, int(port))).close()
                break
            except ConnectionRefusedError:
                if process.poll() is not None:
                    raise RuntimeError(f"{command[0]} ended with {process.returncode}") from None
                time.sleep(0.01)
        yield Running(process.pid, address, Path(folder), started_at)
    finally:
        process.terminate()
        process.wait(timeout=60)

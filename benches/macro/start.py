"""From nothing to the first acknowledged message: the binary, the command, and a fresh environment."""

import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import rocketpy
from process import BINARY, COMMAND, peak_memory_bytes, server

FIRST_MESSAGE = """
import rocketpy, sys
with rocketpy.Server(sys.argv[1]) as server, server.producer("first") as producer:
    print(producer.send(rocketpy.Message("first", b"hello")).msg_id)
"""


def first_acknowledged(program: Path) -> float:
    """Seconds from the start of the process to the first acknowledged message on an empty folder."""
    with server(program) as running, rocketpy.Producer("first", name_servers=[running.name_server]) as producer:
        producer.send(rocketpy.Message("first", b"hello"))
        return time.perf_counter() - running.started_at


def empty_peak_memory(program: Path) -> int:
    """Peak memory in bytes of a server that has served one message."""
    with server(program) as running, rocketpy.Producer("first", name_servers=[running.name_server]) as producer:
        producer.send(rocketpy.Message("first", b"hello"))
        return peak_memory_bytes(running.pid)


def fresh_environment(wheel: Path) -> float:
    """Seconds for: make an environment, install the wheel with what it needs, send one message."""
    with tempfile.TemporaryDirectory(prefix="rocketpy-bench-") as folder:
        started_at = time.perf_counter()
        venv.create(Path(folder, "env"), with_pip=True)
        python = Path(folder, "env", "bin", "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True)
        subprocess.run([python, "-c", FIRST_MESSAGE, str(Path(folder, "store"))], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - started_at


def figures() -> dict[str, dict[str, float | str]]:
    """Every figure of this page, by name."""
    wheel = max(Path("target/wheels").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    binary = [first_acknowledged(BINARY) for _ in range(11)]
    command = [first_acknowledged(COMMAND) for _ in range(7)]
    return {
        "wheel size": {"value": wheel.stat().st_size / 1e6, "unit": "MB", "target": "<= 15"},
        "fresh environment to first acknowledged message": {
            "value": fresh_environment(wheel),
            "unit": "s",
            "target": "<= 10",
        },
        "binary: start to first acknowledged message": {
            "value": statistics.median(binary) * 1e3,
            "unit": "ms",
            "target": "<= 50",
        },
        "`rocketpy server`: start to first acknowledged message": {
            "value": statistics.median(command) * 1e3,
            "unit": "ms",
            "target": "<= 300",
        },
        "binary: peak memory, empty": {"value": empty_peak_memory(BINARY) / 1e6, "unit": "MB", "target": "<= 15"},
        "`rocketpy server`: peak memory, empty": {
            "value": empty_peak_memory(COMMAND) / 1e6,
            "unit": "MB",
            "target": "",
        },
    }


if __name__ == "__main__":
    for name, figure in figures().items():
        print(f"{name}: {figure['value']:.1f} {figure['unit']}", file=sys.stderr)

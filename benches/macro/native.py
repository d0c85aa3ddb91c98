"""The native load of RocketPy, `rocketpy bench send`, and what a load says."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from messages import BODY_BYTES, QUEUES, TOPIC
from process import COMMAND, Running

Figures = dict[str, float]
"""What a load says: ``messages`` and, where it measured them itself, ``seconds`` and ``call_p99_us``."""
Load = Callable[[Running], Figures]


def native(connections: int, window: int, count: int) -> Load:
    """`rocketpy bench send`."""

    def run(running: Running) -> Figures:
        sizes = {"connections": connections, "window": window, "messages": count, "size": BODY_BYTES, "queues": QUEUES}
        options = [text for name, number in sizes.items() for text in (f"--{name}", str(number))]
        send = [COMMAND, "bench", "send", "--json", "--name-server", running.name_server, "--topic", TOPIC, *options]
        figures = json.loads(output_of(send))
        p99 = {"call_p99_us": figures["latency_p99_us"]} if window == 1 else {}
        return {"messages": figures["messages"], "seconds": figures["seconds"], **p99}

    return run


def output_of(command: list[str | Path]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{Path(command[0]).name} ended with {ended.returncode}: {ended.stderr[-1000:]}")
    return ended.stdout

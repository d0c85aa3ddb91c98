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


def native(connections: int, window: int, count: int, rate: float | None = None, batch: int = 1) -> Load:
    """`rocketpy bench send`, at a rate of messages a second or as fast as it goes."""

    def run(running: Running) -> Figures:
        sizes: dict[str, float] = {
            "connections": connections,
            "window": window,
            "batch": batch,
            "messages": count,
            "size": BODY_BYTES,
            "queues": QUEUES,
        }
        if rate is not None:
            sizes["rate"] = rate
        options = [text for name, number in sizes.items() for text in (f"--{name}", str(number))]
        send = [COMMAND, "bench", "send", "--json", "--name-server", running.name_server, "--topic", TOPIC, *options]
        figures = json.loads(output_of(send))
        latencies = {f"call_{name}_us": figures[f"latency_{name}_us"] for name in ("p50", "p99") if window == 1}
        return {"messages": figures["messages"], "seconds": figures["seconds"], **latencies}

    return run


def output_of(command: list[str | Path]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{Path(command[0]).name} ended with {ended.returncode}: {ended.stderr[-1000:]}")
    return ended.stdout

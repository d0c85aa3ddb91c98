"""Times of a reading of the metrics with many groups, and of `/readyz` and `/livez` under full load.

    python benches/macro/monitor.py

Groups have offsets in a topic of four queues, and no members. The load is `rocketpy bench send`, as fast as it goes.
All of it runs on this machine: times of an answer have the way of the client in them.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

import rocketpy
from messages import QUEUES, TOPIC
from native import native
from process import ROOT, Running, built_server, free_port, launched

READ_TOPIC = "read"
READ_QUEUES = 4
PATHS = ("/readyz", "/livez")


def get(url: str) -> tuple[float, bytes]:
    """Seconds until the whole answer is there, and its body."""
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=30) as answer:
        body = answer.read()
    return time.perf_counter() - began, body


def fill(running: Running) -> None:
    """Messages for the groups to be behind of."""
    with rocketpy.Admin(name_servers=[running.name_server]) as admin:
        admin.create_topic(READ_TOPIC, queues=READ_QUEUES)
        admin.create_topic(TOPIC, queues=QUEUES)
    with rocketpy.Producer("fill", name_servers=[running.name_server]) as producer:
        for number in range(1000):
            producer.send(rocketpy.Message(READ_TOPIC, str(number).encode()))


def add_groups(store: Path, count: int) -> None:
    """Writes offsets of groups into the files of a stopped broker: each is at another message."""
    offsets = {str(queue): 0 for queue in range(READ_QUEUES)}
    table = {f"{READ_TOPIC}@group-{number}": dict.fromkeys(offsets, number % 100) for number in range(count)}
    path = store / "config" / "consumerOffset.json"
    content = json.loads(path.read_text()) if path.exists() else {}
    content["offsetTable"] = {**content.get("offsetTable", {}), **table}
    path.write_text(json.dumps(content))


def read_metrics(url: str, groups: int, readings: int) -> dict[str, float]:
    get(url)  # which looks up the ages of the first messages
    times, body = [], b""
    for _ in range(readings):
        seconds, body = get(url)
        times.append(seconds * 1e3)
    found = body.count(b"rocketmq_consumer_lag_messages{")
    if found < groups:
        sys.exit(f"error: the metrics show {found} of {groups} groups")
    return {
        "groups": groups,
        "bytes": len(body),
        "min_ms": min(times),
        "p50_ms": statistics.median(times),
        "max_ms": max(times),
    }


def health_under_load(running: Running, address: str, load: Callable[[Running], object]) -> dict[str, dict[str, float]]:
    """Times of each path while the load runs, in milliseconds."""
    times: dict[str, list[float]] = {path: [] for path in PATHS}
    loading = threading.Thread(target=load, args=(running,))
    loading.start()
    while loading.is_alive():
        for path, found in times.items():
            found.append(get(f"{address}{path}")[0] * 1e3)
        time.sleep(0.01)
    loading.join()
    return {
        path: {
            "answers": len(found),
            "p50_ms": statistics.median(found),
            "p99_ms": statistics.quantiles(found, n=100)[98],
            "max_ms": max(found),
        }
        for path, found in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--readings", type=int, default=20, help="readings of the metrics")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages of the load")
    parser.add_argument("--connections", type=int, default=64, help="connections of the load")
    parser.add_argument("--server", type=Path, help="`rocketpy-server`; default: builds the release")
    options = parser.parse_args()
    program = built_server(options.server)
    console = Console(width=None if sys.stdout.isatty() else 160)

    def show(what: str, figures: dict[str, float]) -> None:
        console.print(f"{what}: " + ", ".join(f"{name} {number:,.4g}" for name, number in figures.items()))

    with tempfile.TemporaryDirectory(prefix="rocketpy-bench-", dir=ROOT / "target") as folder:
        store, port = Path(folder, "store"), free_port()
        with launched(program, store, Path(folder, "first.json")) as running:
            fill(running)
        add_groups(store, options.groups)
        exporter = ("--set", "metricsExporterType=PROM", "--set", f"metricsPromExporterPort={port}")
        with launched(program, store, Path(folder, "ready.json"), *exporter) as running:
            address = f"http://127.0.0.1:{port}"
            show("/metrics", read_metrics(f"{address}/metrics", options.groups, options.readings))
            load = native(options.connections, 1, options.messages)
            for path, figures in health_under_load(running, address, load).items():
                show(path, figures)


if __name__ == "__main__":
    main()

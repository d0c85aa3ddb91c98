"""RocketPy beside Kafka 4.1, Redis streams and NATS JetStream, in turns: rate, latency, processor time of both ends.

    python benches/macro/others.py --rows single batches --rounds 3
    python benches/macro/others.py --save    # all rows, saved for this release

Kafka needs Maven, which brings its jars, and a JDK 17; Redis `redis-server` and `redis-benchmark`; NATS `nats-server`
and Go, which builds its load program. A system whose programs are missing is left out, and named. All messages have
128 bytes. Every system has one server on loopback and a folder on the same disk; each row says what it acknowledges
after. The first round of a row warms up and does not count.

Each system gets the load program that its users would measure with: Kafka's `ProducerPerformance` and
`ConsumerPerformance`, `redis-benchmark`, a Go program with NATS's own client, and `rocketpy bench send`. Its batches
are of 100 messages, about as many as fit into one of Kafka's 16 KiB. So the client's figures compare clients; the
server's are the processor time of the server alone. Python clients are compared by `clients.py`.
"""

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import rocketpy
from kafka_broker import java, kafka
from messages import BODY_BYTES, QUEUES, TOPIC
from native import Figures, Load, native, output_of
from process import BINARY, Running, cpu_seconds, free_port, peak_memory_bytes, server, started
from turns import Rounds, report, take_turns

NATS_LOAD = Path("target/nats-load")
HERE = Path(__file__).parent
BODY = b"x" * BODY_BYTES

Server = Callable[[], AbstractContextManager[Running]]


@contextmanager
def rocketpy_server(*settings: str) -> Iterator[Running]:
    with server(BINARY, *(part for setting in settings for part in ("--set", setting))) as running:
        with rocketpy.Admin(name_servers=[running.name_server]) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        yield running


def flushed() -> AbstractContextManager[Running]:
    return rocketpy_server("flushDiskType=SYNC_FLUSH")


def producer_performance(running: Running) -> Figures:
    count = 3_000_000
    options = f"--topic {TOPIC} --num-records {count} --record-size {BODY_BYTES} --throughput -1".split()
    properties = [f"bootstrap.servers={running.name_server}", "acks=all", "linger.ms=5"]
    command = java("512m", "org.apache.kafka.tools.ProducerPerformance", *options, "--producer-props", *properties)
    last = output_of(command).strip().splitlines()[-1]
    return {"messages": count, "seconds": count / float(last.split(",")[1].split()[0])}


def consumer_performance(running: Running) -> Figures:
    """Reads what the producer of the same server has stored."""
    group = f"bench-{time.monotonic_ns()}"
    options = f"--topic {TOPIC} --messages {BACKLOG} --group {group} --bootstrap-server {running.name_server}".split()
    output = output_of(java("512m", "org.apache.kafka.tools.ConsumerPerformance", *options)).splitlines()
    names, values = ([cell.strip() for cell in row] for row in csv.reader(output[-2:]))
    row = dict(zip(names, values, strict=True))
    return {"messages": float(row["data.consumed.in.nMsg"]), "seconds": float(row["fetch.time.ms"]) / 1e3}


@contextmanager
def redis(fsync: str) -> Iterator[Running]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="redis-bench-") as folder:
        options = f"--port {port} --bind 127.0.0.1 --dir {folder} --appendonly yes --appendfsync {fsync}".split()
        with started(["redis-server", *options, "--save", ""], f"127.0.0.1:{port}", folder) as running:
            yield running


def redis_load(connections: int, window: int, count: int) -> Load:
    """`redis-benchmark` with XADD."""

    def run(running: Running) -> Figures:
        port = running.name_server.split(":")[1]
        options = f"-p {port} -n {count} -c {connections} -P {window} --csv XADD bench *".split()
        lines = output_of(["redis-benchmark", *options, "body", BODY.decode()]).splitlines()
        row = next(csv.DictReader([lines[0], lines[-1]]))
        p99 = {"call_p99_us": float(row["p99_latency_ms"]) * 1e3} if window == 1 else {}
        return {"messages": count, "seconds": count / float(row["rps"]), **p99}

    return run


@contextmanager
def nats() -> Iterator[Running]:
    build = ["go", "build", "-o", NATS_LOAD.resolve(), "."]
    subprocess.run(build, cwd=HERE / "nats", check=True)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="nats-bench-") as folder:
        command = ["nats-server", "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", folder]
        with started(command, f"127.0.0.1:{port}", folder) as running:
            yield running


def nats_load(connections: int, window: int, count: int) -> Load:
    def run(running: Running) -> Figures:
        numbers = [str(number) for number in (connections, window, count, BODY_BYTES)]
        return json.loads(output_of([NATS_LOAD.resolve(), f"nats://{running.name_server}", *numbers]))

    return run


BACKLOG = 2_000_000


def with_backlog(opened: Server, fill: Load) -> Server:
    """A server that holds [`BACKLOG`] messages at least."""

    @contextmanager
    def filled() -> Iterator[Running]:
        with opened() as running:
            stored = 0.0
            while stored < BACKLOG:
                stored += fill(running)["messages"]
            yield running

    return filled


def reading(read_on: Callable[[rocketpy.Consumer], int]) -> Load:
    def run(running: Running) -> Figures:
        group = f"bench-{time.monotonic_ns()}"
        read, began = 0, 0.0
        with rocketpy.Consumer(
            group, TOPIC, name_servers=[running.name_server], start=rocketpy.Start.EARLIEST
        ) as consumer:
            while read < BACKLOG:
                came = read_on(consumer)
                if not came:
                    raise RuntimeError(f"only {read} of {BACKLOG} messages came")
                began = began or time.perf_counter()
                read += came
            seconds = time.perf_counter() - began
        return {"messages": read, "seconds": seconds}

    return run


def fetch_arrow(consumer: rocketpy.Consumer) -> int:
    return consumer.fetch_arrow(max_rows=100_000, timeout=20).num_rows


@dataclass(frozen=True)
class Row:
    """The same work, or as near as the systems' own tools come to it."""

    title: str
    acknowledged: str
    """After what a server says that it has a message."""
    systems: dict[str, tuple[Server, Load]]


MEMORY, DISK = "in the page cache", "flushed"
ROWS = {
    "single": Row(
        "one by one, 64 connections",
        MEMORY,
        {
            "RocketPy": (rocketpy_server, native(64, 1, 1_000_000)),
            "Redis": (lambda: redis("everysec"), redis_load(64, 1, 500_000)),
            "NATS": (nats, nats_load(64, 1, 200_000)),
        },
    ),
    "single-flushed": Row(
        "one by one, 64 connections",
        DISK,
        {
            "RocketPy": (flushed, native(64, 1, 500_000)),
            "Redis": (lambda: redis("always"), redis_load(64, 1, 300_000)),
        },
    ),
    "batches": Row(
        "many in flight, in batches of the client's making",
        MEMORY,
        {
            "RocketPy": (rocketpy_server, native(16, 4, 6_000_000, batch=100)),
            "Kafka": (kafka, producer_performance),
        },
    ),
    "pipelined": Row(
        "many in flight, each message a request",
        MEMORY,
        {
            "RocketPy": (rocketpy_server, native(16, 256, 4_000_000)),
            "Redis": (lambda: redis("everysec"), redis_load(8, 100, 2_000_000)),
            "NATS": (nats, nats_load(4, 4096, 500_000)),
        },
    ),
    "read": Row(
        "a backlog, by the fastest reader",
        "-",
        {
            "RocketPy": (with_backlog(rocketpy_server, native(16, 256, BACKLOG)), reading(fetch_arrow)),
            "Kafka": (with_backlog(kafka, producer_performance), consumer_performance),
        },
    ),
}
NEEDED = {
    "RocketPy": (),
    "Kafka": ("java", "mvn"),
    "Redis": ("redis-server", "redis-benchmark"),
    "NATS": ("nats-server", "go"),
}
"""The programs of each system."""
FIGURES = {
    "messages_per_s": ("messages/s", ",.0f"),
    "call_p99_us": ("p99 of a call, us", ",.0f"),
    "client_cpu_s_per_million": ("client CPU-s/M", ".2f"),
    "server_cpu_s_per_million": ("server CPU-s/M", ".2f"),
    "peak_memory_mb": ("server peak, MB", ",.0f"),
}


def used_here() -> float:
    """Processor seconds of this process and of the load programs that it has waited for."""
    times = os.times()
    return cpu_seconds() + times.children_user + times.children_system


def measured(running: Running, load: Load) -> Figures:
    client, broker, began = used_here(), cpu_seconds(running.pid), time.perf_counter()
    figures = load(running)
    seconds = figures.get("seconds", time.perf_counter() - began)
    client, broker = used_here() - client, cpu_seconds(running.pid) - broker
    return {
        "messages_per_s": figures["messages"] / seconds,
        "client_cpu_s_per_million": client / figures["messages"] * 1e6,
        "server_cpu_s_per_million": broker / figures["messages"] * 1e6,
        "peak_memory_mb": peak_memory_bytes(running.pid) / 1e6,
        **({"call_p99_us": figures["call_p99_us"]} if "call_p99_us" in figures else {}),
    }


def rounds_of(row: Row, rounds: int, console: Console) -> tuple[Rounds, list[str]]:
    """The figures of the systems, and what failed."""
    with ExitStack() as servers:
        running = {}
        for name, (opened, _) in row.systems.items():
            missing = [program for program in NEEDED[name] if shutil.which(program) is None]
            if missing:
                console.print(f"{row.title}: without {name}, which needs {' and '.join(missing)}")
                continue
            running[name] = servers.enter_context(opened())
        title = f"{row.title}, {row.acknowledged}"
        return take_turns(console, title, running, rounds, lambda name: measured(running[name], row.systems[name][1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count; default: 3")
    parser.add_argument("--save", action="store_true", help="saves the rows for this release, where others stay")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which stops the servers too
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "rocketpy-server"], check=True)
    console = Console(width=None if sys.stdout.isatty() else 200)
    taken: dict[str, Rounds] = {}
    failures: list[str] = []
    for name in options.rows:
        taken[name], failed = rounds_of(ROWS[name], options.rounds, console)
        failures += failed
    heads = {name: {"title": ROWS[name].title, "acknowledged": ROWS[name].acknowledged} for name in taken}
    return report(console, heads, taken, FIGURES, program="others" if options.save else None, failures=failures)


if __name__ == "__main__":
    sys.exit(main())

"""Many connections, and a reader of cold pages beside senders: memory, rate and latency, in turns.

    python benches/macro/connections.py --rounds 3
    python benches/macro/connections.py --save    # saved for this release

`idle`: 10,000 connections that have asked once and ask no more; the anonymous memory of the server beside that without
them. `busy`: `rocketpy bench send`, one send at a time over each of 1,000 connections, beside 64. `cold`: 5,000 sends
a second over 16 connections, alone and beside a consumer that reads a backlog from the disk: the server is started anew
for each turn, and the pages of its store are dropped from memory before. The consumer has the lowest priority: it would
run on another machine, and what it takes from the server's processors here is not what the row asks about.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import results
import rocketpy
from messages import QUEUES, TOPIC
from native import Figures, native, output_of
from process import BINARY, COMMAND, Running, anonymous_memory_bytes, launched, server

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

IDLE = 10_000
COLD_MESSAGES, COLD_BODY_BYTES, COLD_READERS = 2_000_000, 1024, 1
RATE, SECONDS = 5_000, 5
SPAWN = multiprocessing.get_context("spawn")


def broker_address(running: Running) -> tuple[str, int]:
    with rocketpy.Admin(name_servers=[running.name_server]) as admin:
        broker = admin.describe_topic(TOPIC).brokers[0]
    host, port = broker.addresses[0].split(":")
    return host, int(port)


def ask(connection: socket.socket) -> None:
    """The last offset of a queue: a request that every client makes."""
    fields = {"topic": TOPIC, "queueId": "0"}
    header = json.dumps({"code": 30, "language": "PYTHON", "version": 453, "opaque": 1, "flag": 0, "extFields": fields})
    connection.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header.encode())
    length = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    if json.loads(connection.recv(length, socket.MSG_WAITALL)[4:])["code"] != 0:
        raise RuntimeError("the broker does not answer")


@contextmanager
def with_topic(program: Path = BINARY) -> Iterator[Running]:
    with server(program) as running:
        make_topic(running)
        yield running


def make_topic(running: Running) -> None:
    with rocketpy.Admin(name_servers=[running.name_server]) as admin:
        admin.create_topic(TOPIC, queues=QUEUES)


def idle(program: Path = BINARY) -> Figures:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most < IDLE + 1000:
        raise RuntimeError(f"{IDLE} connections need `ulimit -n {IDLE + 1000}`, the limit is {most}")
    with with_topic(program) as running, contextlib.ExitStack() as connections:
        address = broker_address(running)
        before = anonymous_memory_bytes(running.pid)
        for _ in range(IDLE):
            ask(connections.enter_context(socket.create_connection(address)))
        after = anonymous_memory_bytes(running.pid)
    return {"anonymous_memory_mb": after / 1e6, "bytes_a_connection": (after - before) / IDLE}


def busy() -> Figures:
    with with_topic() as running:
        rates = {}
        for connections in (64, 1000):
            figures = native(connections, 1, 400_000)(running)
            rates[connections] = figures["messages"] / figures["seconds"]
            p99 = figures["call_p99_us"]
    return {"messages_per_s": rates[1000], "of_64": rates[1000] / rates[64], "call_p99_us": p99}


def drop_pages(store: Path) -> None:
    """Drops what the page cache holds of a store that no process has open."""
    os.sync()
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def paced_sends(running: Running) -> float:
    numbers = {"connections": 16, "messages": RATE * SECONDS, "rate": RATE, "size": 128, "queues": QUEUES}
    options = [text for name, number in numbers.items() for text in (f"--{name}", str(number))]
    send = [COMMAND, "bench", "send", "--json", "--name-server", running.name_server, "--topic", "paced", *options]
    return json.loads(output_of(send))["latency_p99_us"]


def read_on(name_server: str, read: "Synchronized[int]") -> None:
    """Reads until the process is ended."""
    os.nice(19)
    group = f"cold-{os.getpid()}"
    with rocketpy.Consumer(group, TOPIC, name_servers=[name_server], start=rocketpy.Start.EARLIEST) as consumer:
        while True:
            rows = consumer.fetch_arrow(max_rows=10_000, timeout=1).num_rows
            with read:
                read.value += rows


def cold(store: Path, ready: Path) -> Figures:
    """The store has a backlog."""
    figures: Figures = {}
    for name, readers in (("alone", 0), ("beside", COLD_READERS)):
        drop_pages(store)
        ready.unlink(missing_ok=True)
        with launched(BINARY, store, ready) as running:
            read = SPAWN.Value("q", 0)
            processes = [SPAWN.Process(target=read_on, args=(running.name_server, read)) for _ in range(readers)]
            for process in processes:
                process.start()
            try:
                while processes and not read.value:
                    time.sleep(0.01)
                before = read.value
                figures[f"{name}_p99_us"] = paced_sends(running)
                figures["read_per_s"] = (read.value - before) / SECONDS
            finally:
                for process in processes:
                    process.kill()
                    process.join()
    figures["p99_ratio"] = figures["beside_p99_us"] / figures["alone_p99_us"]
    return figures


def colds(rounds: int) -> Iterator[Figures]:
    with tempfile.TemporaryDirectory(prefix="rocketpy-bench-", dir="target") as folder:
        store, ready = Path(folder, "store"), Path(folder, "ready.json")
        with launched(BINARY, store, ready) as running:
            make_topic(running)
            body = os.urandom(COLD_BODY_BYTES)
            with rocketpy.Producer("bench", name_servers=[running.name_server]) as producer:
                for _ in range(COLD_MESSAGES // 20_000):
                    producer.send_many([rocketpy.Message(TOPIC, body) for _ in range(20_000)])
        for _ in range(rounds):
            yield cold(store, ready)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="writes the rows to the file of this release")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which stops the servers too
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "rocketpy-server"], check=True)
    taken = {
        "idle": [idle() for _ in range(options.rounds)],
        "busy": [busy() for _ in range(options.rounds)],
        "cold": list(colds(options.rounds)),
    }
    table = Table("row", "figure", "median (least to most)")
    for row, rounds in taken.items():
        for name in rounds[0]:
            values = [figures[name] for figures in rounds]
            table.add_row(row, name, f"{statistics.median(values):,.2f} ({min(values):,.2f} to {max(values):,.2f})")
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    if options.save:
        results.save("connections", taken)


if __name__ == "__main__":
    main()

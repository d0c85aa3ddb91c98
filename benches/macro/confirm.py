"""How late a consumer has a message of a SYNC_MASTER that shows what its slave has, beside one that shows all.

    python benches/macro/confirm.py --rounds 5

Both masters have a slave, and take turns. One producer sends at a fixed rate, one consumer pulls; both are threads of
this process, so the way of both clients is in each figure. Without the wait `haMaxTimeSlaveNotCatchup` is 0.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

import rocketpy
from catch_up import PAIR, SLAVE, end_of_log
from process import ROOT, built_server, launched

MASTER = (*PAIR, "--set", "brokerRole=SYNC_MASTER", "--set", "haListenPort=0")
TOPIC = "load"
KINDS = {"shows all": 0, "shows what the slave has": 15000}


@contextmanager
def pair(program: Path, home: Path, patience_ms: int) -> Iterator[str]:
    """The name server of a master and its slave."""
    setting = ("--set", f"haMaxTimeSlaveNotCatchup={patience_ms}")
    with (
        launched(program, home / "store", home / "ready.json", *MASTER, *setting) as master,
        launched(program, home / "slave", home / "slave.json", *SLAVE, name_server=master.name_server),
    ):
        with rocketpy.Admin(name_servers=[master.name_server]) as admin:
            admin.create_topic(TOPIC, queues=1)
        while end_of_log(master.name_server)[1] is None:
            pass  # each question waits for its answer
        yield master.name_server


def latencies_ms(name_server: str, count: int, rate: float) -> list[float]:
    """Milliseconds from the call of each send to the message at its consumer."""
    found: list[float] = []
    group = f"group-{time.monotonic_ns()}"
    with (
        rocketpy.Producer("load", name_servers=[name_server]) as producer,
        rocketpy.Consumer(group, TOPIC, name_servers=[name_server], start="latest") as consumer,
    ):

        def read() -> None:
            while len(found) < count:
                for message in consumer.poll(timeout=30):
                    found.append((time.perf_counter_ns() - int(message.body)) / 1e6)

        reader = threading.Thread(target=read)
        reader.start()
        began = time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            producer.submit(rocketpy.Message(TOPIC, str(time.perf_counter_ns()).encode()))
        reader.join()
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=5_000, help="messages of a turn")
    parser.add_argument("--rate", type=float, default=1_000, help="messages per second")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--server", type=Path, help="`rocketpy-server`; default: builds the release")
    options = parser.parse_args()
    program = built_server(options.server)
    console = Console(width=None if sys.stdout.isatty() else 160)
    figures: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="rocketpy-bench-", dir=ROOT / "target") as folder:
        for number in range(options.rounds):
            for kind, patience_ms in KINDS.items():
                home = Path(folder, f"{number}-{patience_ms}")
                home.mkdir()
                with pair(program, home, patience_ms) as name_server:
                    taken = latencies_ms(name_server, options.messages, options.rate)
                figures[kind].append((taken[len(taken) // 2], taken[len(taken) * 99 // 100]))
                p50, p99 = figures[kind][-1]
                console.print(f"round {number + 1}, {kind}: p50 {p50:.3g} ms, p99 {p99:.3g} ms")
    for kind, rounds in figures.items():
        p50, p99 = (statistics.median(column) for column in zip(*rounds, strict=True))
        console.print(f"{kind}: p50 {p50:.3g} ms, p99 {p99:.3g} ms (medians of the rounds)")


if __name__ == "__main__":
    main()

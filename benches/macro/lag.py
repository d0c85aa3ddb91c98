"""How late a slave has a message, at half of the rate that master and slave can do.

    python benches/macro/lag.py --rounds 3 --save

A SYNC_MASTER answers a send once its slave has the message. The latency of a send, from when it was to be sent to its
answer, is therefore more than the lag of the slave: it has the way of the client in it, and the answer's.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console

import results
import rocketpy
from catch_up import PAIR, SLAVE, end_of_log
from messages import QUEUES, TOPIC
from native import native
from process import ROOT, Running, built_server, launched

CONNECTIONS = 64
MASTER = (*PAIR, "--set", "brokerRole=SYNC_MASTER", "--set", "haListenPort=0")


def take_turn(master: Running, count: int) -> dict[str, float]:
    """The rate that both can do, and latencies at half of it."""
    most = native(CONNECTIONS, 1, count)(master)
    rate = most["messages"] / most["seconds"] / 2
    half = native(CONNECTIONS, 1, count // 2, rate)(master)
    return {"messages_per_s": rate, "p50_ms": half["call_p50_us"] / 1e3, "p99_ms": half["call_p99_us"] / 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=400_000, help="sends of a turn at the full rate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="writes the rounds to the file of this release")
    parser.add_argument("--server", type=Path, help="`rocketpy-server`; default: builds the release")
    options = parser.parse_args()
    program = built_server(options.server)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with (
        tempfile.TemporaryDirectory(prefix="rocketpy-bench-", dir=ROOT / "target") as folder,
        launched(program, Path(folder, "store"), Path(folder, "ready.json"), *MASTER) as master,
        launched(program, Path(folder, "slave"), Path(folder, "slave.json"), *SLAVE, name_server=master.name_server),
    ):
        with rocketpy.Admin(name_servers=[master.name_server]) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        while end_of_log(master.name_server)[1] is None:
            pass  # each question waits for its answer
        rounds = []
        for number in range(options.rounds):
            rounds.append(take_turn(master, options.messages))
            console.print(f"round {number + 1}: " + ", ".join(f"{k} {v:,.3g}" for k, v in rounds[-1].items()))
    console.print(f"p99 {statistics.median(taken['p99_ms'] for taken in rounds):.3g} ms (median of the rounds)")
    if options.save:
        results.save("lag", {"rounds": rounds})


if __name__ == "__main__":
    main()

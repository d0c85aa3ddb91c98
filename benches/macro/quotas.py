"""What a client at ten times its quota costs the others: their latency without it and beside it, in turns.

    python benches/macro/quotas.py --rounds 5

The others send at a fixed rate, one at a time over each connection. The noisy client sends one-way, which no answer
slows down. Exit code 1 if the median of the rounds' ratios of p99 is above 2. The cost of the code without a quota is
that of a change: `wheels.py` compares the wheels before and after it.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

import results
import rocketpy
from messages import QUEUES, TOPIC
from native import native
from process import Running, built_server, server

NOISY = "noisy"
LIMIT = 200
"""Messages per second of the noisy client's topic."""
TIMES = 10
"""How many times its quota the noisy client sends."""
WORST = 2.0
SLICE_S = 0.01


def make_noise(name_server: str) -> None:
    """Sends at ten times the quota until it is killed."""
    message = rocketpy.Message(NOISY, b"x" * 128)
    with rocketpy.Producer("noisy", name_servers=name_server) as producer:
        due = time.perf_counter()
        while True:
            for _ in range(int(LIMIT * TIMES * SLICE_S)):
                producer.send_oneway(message)
            due = max(due + SLICE_S, time.perf_counter() - SLICE_S)
            time.sleep(max(0.0, due - time.perf_counter()))


@contextmanager
def noise(running: Running) -> Iterator[None]:
    """Runs the noisy client beside, once its quota holds it."""
    process = subprocess.Popen([sys.executable, __file__, "--noise", running.name_server])
    try:
        with rocketpy.Admin(running.name_server) as admin:
            address = admin.brokers()[0].addresses[0]
            before = admin.quotas(address)[0].rejected
            while admin.quotas(address)[0].rejected == before:
                time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=5000, help="sends of the others in a turn")
    parser.add_argument("--rate", type=float, default=1000, help="sends of the others per second")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="writes the rounds to the file of this release")
    parser.add_argument("--server", type=Path, help="`rocketpy-server`; default: builds the release")
    parser.add_argument("--noise", metavar="NAME_SERVER", help="only makes the noise")
    options = parser.parse_args()
    if options.noise:
        make_noise(options.noise)
    load = native(4, 1, options.messages, options.rate)
    console = Console(width=None if sys.stdout.isatty() else 160)
    rounds = []
    with server(built_server(options.server)) as running:
        with rocketpy.Admin(running.name_server) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
            admin.create_topic(NOISY, queues=QUEUES)
            address = admin.brokers()[0].addresses[0]
            admin.set_quota(address, rocketpy.Quota("topic", NOISY, send_messages=LIMIT))
        load(running)  # a warm-up
        for number in range(options.rounds):
            alone = load(running)["call_p99_us"]
            with noise(running):
                beside = load(running)["call_p99_us"]
            rounds.append({"alone_p99_us": alone, "beside_p99_us": beside, "ratio": beside / alone})
            console.print(
                f"round {number + 1}: " + ", ".join(f"{name} {value:,.3g}" for name, value in rounds[-1].items())
            )
    ratio = statistics.median(one["ratio"] for one in rounds)
    console.print(f"p99 beside the noisy client: {ratio:.2f} times that without it (median of the rounds)")
    if options.save:
        results.save("quotas", {"rounds": rounds})
    return int(ratio > WORST)


if __name__ == "__main__":
    sys.exit(main())

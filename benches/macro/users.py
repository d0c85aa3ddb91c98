"""Cost of users and policies: sends to a server with users on beside those to one with users off, in turns.

    python benches/macro/users.py --rounds 5

The sender is a user that is not a super user, with one policy for its topic: each request has its signature, its proof
and its policy checked. The table shows rates, and processor time of client and broker; `--save` writes the rounds to
the file of this release.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console

import rocketpy
from messages import BODY_BYTES, QUEUES, TOPIC, measured
from process import COMMAND, Running, server
from turns import Rounds, report, take_turns

ADMIN = rocketpy.Credentials("admin", "secret of admin")
SENDER = rocketpy.Credentials("sender", "secret of sender")
SERVERS = {
    "ROCKETPY_INIT_AUTHENTICATION_USER": json.dumps({"username": "admin", "password": "secret of admin"}),
    "ROCKETPY_INNER_CLIENT_AUTHENTICATION_CREDENTIALS": json.dumps({"accessKey": "servers", "secretKey": "of servers"}),
}
SECURE = ("--set", "authenticationEnabled=true", "--set", "authorizationEnabled=true")
ONE = "a message a request"
MANY = "send_many"
COUNTS = {ONE: 200_000, MANY: 2_000_000}
CHUNK = 20_000
FIGURES = {
    "messages_per_s": ("messages/s", ",.0f"),
    "client_cpu_s_per_million": ("client CPU s/M", ".2f"),
    "broker_cpu_s_per_million": ("broker CPU s/M", ".2f"),
}


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Gives the processes that start meanwhile these variables."""
    before = os.environ.copy()
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def with_topic(system: str) -> Iterator[tuple[Running, rocketpy.Credentials | None]]:
    """A server with a topic, and the user of its sender."""
    if system == "users off":
        with server(COMMAND) as running:
            with rocketpy.Admin(running.name_server) as admin:
                admin.create_topic(TOPIC, queues=QUEUES)
            yield running, None
        return
    with environment(SERVERS), server(COMMAND, *SECURE) as running:
        with rocketpy.Admin(running.name_server, credentials=ADMIN) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
            admin.create_user(SENDER.access_key, SENDER.secret_key)
            admin.grant(SENDER.access_key, f"Topic:{TOPIC}", ["Pub"])
        yield running, SENDER


def send(name: str, count: int, producer: rocketpy.Producer) -> int:
    """Sends so many messages, each in a request of its own or as many in one as fit."""
    body = b"x" * BODY_BYTES
    if name == ONE:
        for _ in range(count):
            producer.submit(rocketpy.Message(TOPIC, body))
        producer.flush(timeout=60)
        return count
    chunk = min(CHUNK, count)
    sent = 0
    for _ in range(count // chunk):
        sent += len(producer.send_many([rocketpy.Message(TOPIC, body) for _ in range(chunk)]))
    return sent


def turn(name: str, count: int, system: str) -> dict[str, float]:
    """Rate and processor time of a load."""
    with (
        with_topic(system) as (running, user),
        rocketpy.Producer("bench", name_servers=running.name_server, credentials=user) as producer,
    ):
        producer.send(rocketpy.Message(TOPIC, b"the connection and the route"))
        return measured(running, partial(send, name, count, producer))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each server; default: 5")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the messages; default: 1")
    parser.add_argument("--save", action="store_true", help="writes the rounds to the file of this release")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    heads: dict[str, dict[str, str]] = {}
    taken: dict[str, Rounds] = {}
    failures: list[str] = []
    for name, count in COUNTS.items():
        heads[name] = {"send": name}
        one_turn = partial(turn, name, int(count * options.scale))
        taken[name], failed = take_turns(console, name, ("users off", "users on"), options.rounds, one_turn)
        failures += failed
    program = "users" if options.save else None
    return report(console, heads, taken, FIGURES, program=program, failures=failures)


if __name__ == "__main__":
    sys.exit(main())

"""One turn of a client: what it is to do, when the clock runs, and what it says at the end.

Runs in the environment of each client, so it needs nothing but Python. A load program names its ways of working and
calls `main`. The first tenth of what is sent warms up and does not count. A reader's clock runs from the first message
on: how long it takes to join a group is another figure.
"""

import argparse
import asyncio
import itertools
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from process import cpu_seconds, peak_memory_bytes

IN_FLIGHT = 1000
PATIENCE_S = 60
"""Seconds without a message or an answer after which a turn fails."""


class Turn:
    """What one process of a client does."""

    def __init__(self, address: str, topic: str, count: int, body_bytes: int, servers: list[int]) -> None:
        self.address, self.topic, self.count, self.servers = address, topic, count, servers
        self.body = b"x" * body_bytes
        self.group = f"bench-{time.monotonic_ns()}"
        self.figures: dict[str, float] = {}
        self.handled = threading.Event()

    def at_most(self, messages: int) -> int:
        """The size of a batch: several make up even a short turn."""
        return min(messages, max(1, self.count // 10))

    def begin(self) -> None:
        self.server_s = sum(map(cpu_seconds, self.servers))
        self.client_s, self.began = time.process_time(), time.perf_counter()

    def end(self, messages: int) -> None:
        seconds, client_s = time.perf_counter() - self.began, time.process_time() - self.client_s
        server_s = sum(map(cpu_seconds, self.servers)) - self.server_s
        self.figures |= {
            "messages_per_s": messages / seconds,
            "client_cpu_s_per_million": client_s / messages * 1e6,
            "server_cpu_s_per_million": server_s / messages * 1e6,
        }

    def parts(self) -> Iterator[int]:
        """How many messages to send, first to warm up and then for the figures."""
        for count in (max(self.count // 10, 1), self.count):
            self.begin()
            yield count
            self.end(count)

    def check_stored(self, stored: int, count: int) -> None:
        if stored != count:
            raise RuntimeError(f"{stored} of {count} messages were stored")

    def send(self, send: Callable[[int], int]) -> None:
        """``send(count)`` returns how many messages the server has acknowledged."""
        for count in self.parts():
            self.check_stored(send(count), count)

    def call(self, send_one: Callable[[], object]) -> None:
        """Sends one message after the other, each as soon as the one before is acknowledged."""
        took: list[int] = []

        def send(count: int) -> int:
            took.clear()
            for _ in range(count):
                before = time.perf_counter_ns()
                send_one()
                took.append(time.perf_counter_ns() - before)
            return count

        self.send(send)
        took.sort()
        self.figures |= {f"call_p{part}_us": took[len(took) * part // 100] / 1e3 for part in (50, 99)}

    async def send_in_tasks(self, send_one: Callable[[], Awaitable[bool]]) -> None:
        """Has `IN_FLIGHT` tasks, each of which sends one message after the other."""

        async def sender(turns: Iterator[None]) -> int:
            return sum([await send_one() for _ in turns])

        for count in self.parts():
            turns = itertools.repeat(None, count)  # each task takes from what is left
            stored = sum(await asyncio.gather(*(sender(turns) for _ in range(IN_FLIGHT))))
            self.check_stored(stored, count)

    def read(self, lengths: Iterable[int]) -> None:
        """Takes the length of each body, one message after the other."""
        several = iter(lengths)
        self.check(1, next(several))
        self.begin()
        left = self.count - 1
        self.check(left, sum(itertools.islice(several, left)))
        self.end(left)

    def read_batches(self, batches: Iterable[tuple[int, int]]) -> None:
        """Takes the number of messages of each batch and the bytes of their bodies. The first batch does not count."""
        read = length = first = 0
        for messages, size in batches:
            if not messages:
                raise RuntimeError(f"only {read} of {self.count} messages came")
            read, length = read + messages, length + size
            if not first:
                first = read
                self.begin()
            elif read >= self.count:
                break
        self.check(read, length)
        self.end(read - first)

    def check(self, messages: int, length: int) -> None:
        if length != messages * len(self.body):
            raise RuntimeError(f"{length} bytes in {messages} messages")

    def handle(self) -> Callable[[bytes], None]:
        """What a handler does with a body. Then `wait_for_handlers` waits for all."""
        numbers, length, has_begun = itertools.count(), len(self.body), threading.Event()

        def handle(body: bytes) -> None:
            if len(body) != length:
                raise RuntimeError(f"a body of {len(body)} bytes")
            number = next(numbers)
            if number == 0:
                self.begin()
                has_begun.set()
            elif number == self.count:
                has_begun.wait(PATIENCE_S)  # the thread of the first message may be late
                self.end(self.count)
                self.handled.set()

        return handle

    def wait_for_handlers(self) -> None:
        if not self.handled.wait(PATIENCE_S):
            raise RuntimeError(f"{self.count} messages did not come within {PATIENCE_S} s")


Way = Callable[[Turn], None]


def some(lengths: list[int]) -> tuple[int, int]:
    """The lengths of bodies as `Turn.read_batches` wants them."""
    return len(lengths), sum(lengths)


def forever(take: Callable[[], tuple[int, int]]) -> Iterator[tuple[int, int]]:
    while True:
        yield take()


def main(ways: dict[str, Way]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=ways)
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("count", type=int)
    parser.add_argument("body_bytes", type=int)
    parser.add_argument("servers", type=int, nargs="*", help="process ids, whose processor time counts")
    given = vars(parser.parse_args())
    way = given.pop("way")
    turn = Turn(**given)
    ways[way](turn)
    print(json.dumps(turn.figures | {"peak_memory_mb": peak_memory_bytes() / 1e6}))

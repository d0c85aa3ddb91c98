"""Ledger of an endurance run: which messages were acknowledged, and who received them.

Its arrays are allocated and touched at the start, so that the client process has a constant size unless a client leaks.
"""

import itertools
import threading
from collections import Counter
from dataclasses import dataclass

import numpy as np

from rocketpy import ReceivedMessage

ACKNOWLEDGED, FORBIDDEN = 1, 2
"""States of a message: each reader must receive it; no reader may (rolled back, recalled). 0: unknown, or not sent."""
MAX_COUNT = 255


class Stream:
    """Numbered messages of one kind of sender."""

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.states = np.full(capacity, 0, dtype=np.uint8)
        self.sent = 0
        self._numbers = itertools.count()

    def next(self) -> int:
        """Number of the next message."""
        number = next(self._numbers)
        self.sent = number + 1
        return number

    def body(self, number: int, size_bytes: int) -> bytes:
        return f"{self.name}:{number}:".encode().ljust(size_bytes, b"x")

    def acknowledge(self, number: int) -> None:
        self.states[number] = ACKNOWLEDGED

    def forbid(self, number: int) -> None:
        self.states[number] = FORBIDDEN


def parsed(received: ReceivedMessage) -> tuple[str, int]:
    """Stream and number of a message."""
    name, number, _ = bytes(received.body_view[:40]).split(b":", 2)
    return name.decode(), int(number)


@dataclass(frozen=True)
class Count:
    """Messages of one stream at one reader."""

    reader: str
    stream: str
    acknowledged: int
    missing: int
    """Acknowledged messages that the reader did not receive."""
    forbidden: int
    """Messages that were received although they were rolled back or recalled."""
    repeats: int


class Reader:
    """Group, or member of a broadcasting group, that must receive every message of its streams."""

    def __init__(self, name: str, streams: list[Stream]) -> None:
        self.name = name
        self.streams = {stream.name: stream for stream in streams}
        self.counts = {stream.name: np.full(len(stream.states), 0, dtype=np.uint8) for stream in streams}
        self.strangers = 0
        """Messages of no known stream."""

    def receive(self, stream: str, number: int) -> None:
        """Counts a message."""
        counts = self.counts.get(stream)
        if counts is None:
            self.strangers += 1
        elif counts[number] < MAX_COUNT:
            counts[number] += 1

    def count(self, stream: Stream) -> Count:
        sent = stream.sent
        states, counts = stream.states[:sent], self.counts[stream.name][:sent]
        return Count(
            self.name,
            stream.name,
            int(np.count_nonzero(states == ACKNOWLEDGED)),
            int(np.count_nonzero((states == ACKNOWLEDGED) & (counts == 0))),
            int(np.count_nonzero((states == FORBIDDEN) & (counts > 0))),
            int(counts.sum(dtype=np.int64)) - int(np.count_nonzero(counts)),
        )

    def first_missing(self, stream: Stream, limit: int = 5) -> list[int]:
        sent = stream.sent
        missing = (stream.states[:sent] == ACKNOWLEDGED) & (self.counts[stream.name][:sent] == 0)
        return [int(number) for number in np.flatnonzero(missing)[:limit]]


class Ledger:
    """All streams and readers, and the errors of the clients."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.readers: list[Reader] = []
        self.events: Counter[str] = Counter()
        """Things that happened, and errors of clients by type, which may happen."""
        self.failures: list[str] = []
        """Findings that fail the run."""
        self._lock = threading.Lock()

    def stream(self, name: str, capacity: int) -> Stream:
        self.streams[name] = Stream(name, capacity)
        return self.streams[name]

    def reader(self, name: str, *streams: Stream) -> Reader:
        self.readers.append(Reader(name, list(streams)))
        return self.readers[-1]

    def happened(self, event: str, times: int = 1) -> None:
        with self._lock:
            self.events[event] += times

    def fail(self, finding: str) -> None:
        with self._lock:
            if len(self.failures) < 50:
                self.failures.append(finding[:500])

    def counts(self) -> list[Count]:
        return [reader.count(stream) for reader in self.readers for stream in reader.streams.values()]

    def missing(self) -> int:
        return sum(count.missing for count in self.counts())

    def findings(self) -> list[str]:
        """Lost and forbidden messages, and other failures."""
        found = list(self.failures)
        for reader in self.readers:
            for stream in reader.streams.values():
                count = reader.count(stream)
                if count.missing:
                    numbers = ", ".join(map(str, reader.first_missing(stream)))
                    found.append(f"{reader.name} did not receive {count.missing} of {stream.name}: {numbers}")
                if count.forbidden:
                    found.append(f"{reader.name} received {count.forbidden} rolled back or recalled of {stream.name}")
            if reader.strangers:
                found.append(f"{reader.name} received {reader.strangers} messages of other streams")
        return found

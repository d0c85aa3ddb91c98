"""Live tails: new messages of a topic, at most 20 rows a second, with a count of those left out. No group is made."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketpy.base.clock import monotonic
from rocketpy.console.reading import Limits, Span, read_messages
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from rocketpy.aio.admin import AsyncAdmin
    from rocketpy.console.rows import Choice, MessageRow
    from rocketpy.message import MessageQueue

__all__ = ["Batch", "Tail", "TailError", "Tails", "batches"]

MAX_TAILS = 8
"""Maximum number of tails of the console."""
MAX_PER_USER = 2
TICK_SECONDS = 0.25
ROWS_A_TICK = 5
"""20 rows a second."""
BYTES_A_SECOND = 1 << 20
MESSAGES_A_TICK = 250
"""Maximum number of messages that a filter tests in a tick."""
MAX_SECONDS = 1800.0
"""A tail ends after half an hour: a forgotten one costs the broker requests."""
RATE_TICKS = 4
MAX_FAILURES = 8
REPEATED = "Another tail of this browser has begun."
TOO_MANY_OF_USER = "A newer tail of your user has begun: a user has at most 2."


class TailError(Exception):
    """No further tail may begin."""


@dataclass(slots=True)
class Tail:
    """One live tail."""

    session: str
    """Session, or the address of a visitor without one."""
    user: str
    name: str
    """Name of the page that shows it: a connection that is made again continues it."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = ""
    """Why it has ended."""

    def end(self, reason: str) -> None:
        """Ends the tail."""
        self.reason = reason
        self.over.set()


class Tails:
    """Tails of one console: one a session, two a user, eight in all."""

    def __init__(self) -> None:
        self._open: list[Tail] = []
        self._ended: deque[str] = deque(maxlen=64)
        """Names of pages whose tail was ended by another one; a connection that is made again stays ended."""

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, session: str, user: str, name: str) -> Tail:
        """Begins a tail; ends the one of the same session, and the oldest of the user beyond its limit.

        Args:
            session: Session, or the address of a visitor without one.
            user: Name of the user, or the address.
            name: Random name of the page.

        Raises:
            TailError: The console has its maximum of tails, or the page's tail was ended by another one.
        """
        if name in self._ended:
            raise TailError(REPEATED)
        for one in [one for one in self._open if one.session == session]:
            self._replace(one, REPEATED, name)
        same = [one for one in self._open if one.user == user]
        while len(same) >= MAX_PER_USER:
            self._replace(same.pop(0), TOO_MANY_OF_USER, name)
        if len(self._open) >= MAX_TAILS:
            raise TailError(f"This console has {MAX_TAILS} tails already. Try again later.")
        tail = Tail(session, user, name)
        self._open.append(tail)
        return tail

    def _replace(self, tail: Tail, reason: str, name: str) -> None:
        if tail.name != name:
            self._ended.append(tail.name)
        self._open.remove(tail)
        tail.end(reason)

    def finish(self, tail: Tail) -> None:
        """Forgets a tail whose connection has closed."""
        if tail in self._open:
            self._open.remove(tail)

    async def close(self) -> None:
        """Ends all tails."""
        for one in self._open:
            one.end("The console stops.")
        self._open.clear()


@dataclass(frozen=True, slots=True)
class Batch:
    """What arrived in one tick."""

    rows: tuple[MessageRow, ...]
    """The newest first."""
    shown: int
    """Rows in the last second."""
    arrived: int
    """Messages that arrived in the last second."""
    skipped: int
    """Messages that were not read since the tail began."""
    problem: str = ""


class _Follower:
    """Positions of a tail."""

    def __init__(self, admin: AsyncAdmin, topic: str, choice: Choice) -> None:
        self._admin, self._topic, self._choice = admin, topic, choice
        self._ends: dict[MessageQueue, int] = {}
        self._last: deque[tuple[int, int]] = deque(maxlen=RATE_TICKS)
        self._skipped = 0
        self.size = 0
        """Bytes that the last tick read."""

    async def start(self) -> None:
        """Begins at the present ends of all queues."""
        info = await self._admin.describe_topic(self._topic, partial=True)
        self._ends = {one.queue: one.max_offset for one in info.queues}

    async def tick(self) -> Batch:
        """Reads the newest of the messages that arrived since the last tick."""
        info = await self._admin.describe_topic(self._topic, partial=True)
        spans: list[Span] = []
        for one in info.queues:
            start = max(one.min_offset, min(self._ends.get(one.queue, one.min_offset), one.max_offset))
            bound = round(one.last_stored_at.timestamp() * 1000) if one.last_stored_at else 0
            spans.append(Span(one.queue, start, one.max_offset, bound))
            self._ends[one.queue] = one.max_offset
        arrived = sum(span.end - span.start for span in spans)
        limits = Limits(ROWS_A_TICK, MESSAGES_A_TICK, int(BYTES_A_SECOND * TICK_SECONDS), seconds=1.0)
        reach = await read_messages(self._admin, spans, self._choice, limits, is_newest_first=True)
        self.size = reach.size
        self._skipped += arrived - reach.read
        self._last.append((len(reach.rows), arrived))
        missing = [f"{one.broker_name} does not answer" for one in info.missing]
        return Batch(
            tuple(reach.rows),
            sum(rows for rows, _ in self._last),
            sum(count for _, count in self._last),
            self._skipped,
            "; ".join([*missing, *reach.problems[:1]]),
        )


async def batches(admin: AsyncAdmin, topic: str, choice: Choice, tail: Tail) -> AsyncGenerator[Batch]:
    """Batches of a tail until it ends. A batch without rows comes at the start and once a second, for the counts.

    Args:
        admin: The client of the visitor.
        topic: The topic.
        choice: Which messages get a row.
        tail: The tail, whose end ends the batches.

    Raises:
        RocketPyError: The topic cannot be read for some seconds.
    """
    follower = _Follower(admin, topic, choice)
    await follower.start()
    yield Batch((), 0, 0, 0)
    begun, quiet, failures = monotonic(), 0, 0
    while monotonic() - begun < MAX_SECONDS:
        wait = max(TICK_SECONDS, follower.size / BYTES_A_SECOND)
        try:
            async with asyncio.timeout(wait):
                await tail.over.wait()
            return
        except TimeoutError:
            pass
        try:
            batch = await follower.tick()
            failures = 0
        except RocketPyError as error:
            failures += 1
            if failures >= MAX_FAILURES:
                raise
            batch = Batch((), 0, 0, 0, str(error))
        quiet = 0 if batch.rows or batch.problem else quiet + 1
        if quiet % RATE_TICKS == 0:
            yield batch
    tail.end("The tail has ended after half an hour.")

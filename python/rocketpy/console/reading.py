"""Reading of messages across the queues of a topic, by time of storage, within limits of time and bytes.

Each queue has a lane. A heap orders the lanes by the time of their next message; a lane is read when its turn comes, so
that a page of the newest messages reads little more than it shows. Reads use no group and store nothing at the broker.
"""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketpy.base.clock import monotonic
from rocketpy.console.rows import Choice, MessageRow, Seen, seen_of, size_of
from rocketpy.errors import OffsetError, RocketPyError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.aio.admin import AsyncAdmin
    from rocketpy.message import MessageQueue

__all__ = ["Limits", "Reach", "Span", "one_answer", "read_messages"]

PULL_WAIT = 0.02
"""Seconds for which a read of existing messages waits. A read that waits returns at most one answer of the broker."""
PULL_MESSAGES = 1024
"""Maximum number of messages of one answer; the client and the broker limit its bytes."""
FIRST_MESSAGES = 8
"""Number of messages of the first read: their size is unknown, and may be 4 MiB each."""
STEP_BYTES = 2 << 20
"""Size of one step of a lane, by the mean size of the messages read so far."""
MAX_STEP = 1024
LANES_AT_ONCE = 8
WITHOUT_PROGRESS = 4
"""Factor of the limit of bytes before the first message is merged, so that a continued read advances."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request."""

    rows: int = 50
    messages: int = 100_000
    size: int = 64 << 20
    """Maximum size of the bodies that are read, in bytes. The last answers of the brokers may exceed it."""
    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Span:
    """Part of a queue to read."""

    queue: MessageQueue
    start: int
    end: int
    bound_ms: int = 0
    """Time of the newest message, or the time from which the queue is read: the first place of its lane."""


@dataclass(slots=True)
class Reach:
    """Result of a read, and how far it got."""

    rows: list[MessageRow] = field(default_factory=list[MessageRow])
    read: int = 0
    """Number of messages up to which the queues were compared."""
    total: int = 0
    """Number of messages in all spans."""
    size: int = 0
    """Bytes of the bodies that were read, also of those beyond `read`."""
    last_ms: int | None = None
    """Time of storage of the last message, in milliseconds since 1970."""
    stopped: Literal["rows", "messages", "bytes", "time", "end"] = "end"
    rest: tuple[Span, ...] = ()
    """Remaining parts of the queues, to continue."""
    problems: list[str] = field(default_factory=list[str])
    """Queues that cannot be read, with the reason."""


class _LimitError(Exception):
    """A limit of the request is reached."""

    def __init__(self, kind: Literal["bytes", "time"]) -> None:
        super().__init__(kind)
        self.kind: Literal["bytes", "time"] = kind


async def one_answer(
    admin: AsyncAdmin, queue: MessageQueue, start: int, end: int, wait: float = PULL_WAIT
) -> list[ReceivedMessage]:
    """First messages of a part of a queue, as many as the broker puts into one answer.

    Args:
        admin: The client.
        queue: The queue.
        start: Offset of the first message.
        end: Offset after the last message.
        wait: Seconds to wait for the first message.
    """
    return await admin.read(queue, start, end, max_messages=min(end - start, PULL_MESSAGES), wait=wait)


class _Lane:
    """Messages of one queue in the order of the read."""

    def __init__(self, span: Span, *, is_newest_first: bool) -> None:
        self.span = span
        self.is_newest_first = is_newest_first
        self.start, self.end = span.start, span.end
        """Part that is not read yet."""
        self.seen: list[Seen] = []
        """Messages that are read and not merged yet, the next one last."""
        self.bound_ms = span.bound_ms
        self.is_failed = False

    @property
    def is_over(self) -> bool:
        return self.is_failed or (not self.seen and self.start >= self.end)

    @property
    def place(self) -> tuple[int, bool]:
        """Place in the heap: at one time, messages that are read come before lanes that are not."""
        at_ms = self.seen[-1].stored_ms if self.seen else self.bound_ms
        return (-at_ms if self.is_newest_first else at_ms), not self.seen

    @property
    def rest(self) -> Span:
        """Part that is not merged yet."""
        start, end = self.start, self.end
        if self.seen and self.is_newest_first:
            end = self.seen[-1].offset + 1
        elif self.seen:
            start = self.seen[-1].offset
        return Span(self.span.queue, start, end, self.bound_ms)

    def take(self) -> Seen:
        one = self.seen.pop()
        self.bound_ms = one.stored_ms
        return one

    def fill(self, found: list[Seen], start: int, end: int) -> None:
        """Adds the messages of a part at the begin or the end of the rest."""
        if self.is_newest_first:
            self.seen, self.end = found, start
        else:
            self.seen, self.start = found[::-1], end


class _Reading:
    def __init__(self, admin: AsyncAdmin, choice: Choice, limits: Limits, *, is_newest_first: bool) -> None:
        self.admin, self.choice, self.limits = admin, choice, limits
        self.is_newest_first = is_newest_first
        self.deadline = monotonic() + limits.seconds
        self.reach = Reach()
        self.fetched = 0
        """Number of messages that were read, also those that are not merged."""
        self.lanes: list[_Lane] = []

    def step(self) -> int:
        """Number of messages of the next read of a lane."""
        if not self.fetched:
            return FIRST_MESSAGES
        mean = max(1, self.reach.size // self.fetched)
        wanted = MAX_STEP if self.choice.tested or self.choice.tag else 2 * self.limits.rows // len(self.lanes) + 1
        return max(1, min(wanted, STEP_BYTES // mean))

    async def run(self, spans: Iterable[Span]) -> Reach:
        """Merges the lanes until a limit is reached."""
        self.lanes = [_Lane(span, is_newest_first=self.is_newest_first) for span in spans if span.start < span.end]
        self.reach.total = sum(lane.end - lane.start for lane in self.lanes)
        heap = [(*lane.place, number) for number, lane in enumerate(self.lanes)]
        heapq.heapify(heap)
        try:
            async with asyncio.timeout(max(0.0, self.deadline - monotonic())):
                await self._merge(heap)
        except TimeoutError:
            self.reach.stopped = "time"
        except _LimitError as error:
            self.reach.stopped = error.kind
        self.reach.rest = tuple(lane.rest for lane in self.lanes if lane.is_failed or not lane.is_over)
        return self.reach

    async def _merge(self, heap: list[tuple[int, bool, int]]) -> None:
        reach = self.reach
        while heap:
            if len(reach.rows) >= self.limits.rows or reach.read >= self.limits.messages:
                reach.stopped = "rows" if len(reach.rows) >= self.limits.rows else "messages"
                return
            lane = self.lanes[heap[0][2]]
            if not lane.seen:
                await self._fill_next(heap)
                continue
            one = lane.take()
            reach.read, reach.last_ms = reach.read + 1, one.stored_ms
            if one.row is not None:
                reach.rows.append(one.row)
            if lane.is_over:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (*lane.place, heap[0][2]))

    async def _fill_next(self, heap: list[tuple[int, bool, int]]) -> None:
        """Reads the lane whose turn it is, and others whose turn comes soon."""
        count = LANES_AT_ONCE if self.fetched else 1
        waiting = [number for _, is_unread, number in heapq.nsmallest(2 * count, heap) if is_unread][:count]
        step = self.step()
        ends = await asyncio.gather(*(self._fill(self.lanes[one], step) for one in waiting), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        chosen = set(waiting)
        heap[:] = [place for place in heap if place[2] not in chosen]
        heap += [(*self.lanes[number].place, number) for number in waiting if not self.lanes[number].is_over]
        heapq.heapify(heap)

    async def _fill(self, lane: _Lane, step: int) -> None:
        try:
            if self.is_newest_first:
                await self._fill_backwards(lane, max(lane.start, lane.end - step), lane.end)
            else:
                await self._fill_forwards(lane, lane.start, min(lane.end, lane.start + step))
        except RocketPyError as error:
            self._give_up(lane, str(error))

    def _give_up(self, lane: _Lane, reason: str) -> None:
        queue = lane.span.queue
        self.reach.problems.append(f"cannot read queue {queue.queue_id} of {queue.broker_name}: {reason}")
        lane.is_failed = True

    async def _fill_backwards(self, lane: _Lane, start: int, end: int) -> None:
        """The whole part is needed before its newest message can be merged."""
        found: list[Seen] = []
        at = start
        while at < end:
            try:
                part, after = await self._part(lane, at, end)
            except OffsetError:
                lane.start = max(await self.admin.min_offset(lane.span.queue), at + 1)
                at = lane.start
                continue
            if after == at:
                break
            found, at = found + part, after
        lane.fill(found, max(start, lane.start), end)

    async def _fill_forwards(self, lane: _Lane, start: int, end: int) -> None:
        try:
            part, after = await self._part(lane, start, end)
        except OffsetError:  # expired since the offsets were read
            lane.start = min(lane.end, max(await self.admin.min_offset(lane.span.queue), start + 1))
            return
        if after == start:
            self._give_up(lane, f"no message at offset {start}")
            return
        lane.fill(part, start, after)

    async def _part(self, lane: _Lane, start: int, end: int) -> tuple[list[Seen], int]:
        """One answer of the broker, tested in a thread, and the offset after it."""
        if self.reach.size >= self.limits.size * (1 if self.reach.read else WITHOUT_PROGRESS):
            raise _LimitError("bytes")
        messages = await one_answer(self.admin, lane.span.queue, start, end)
        self.fetched += len(messages)
        self.reach.size += sum(size_of(one) for one in messages)
        if not messages:
            return [], start
        try:
            return await asyncio.to_thread(seen_of, messages, self.choice, self.deadline), messages[-1].queue_offset + 1
        except TimeoutError:
            raise _LimitError("time") from None


async def read_messages(
    admin: AsyncAdmin, spans: Iterable[Span], choice: Choice, limits: Limits, *, is_newest_first: bool
) -> Reach:
    """Reads messages of several queues in the order of their storage.

    Args:
        admin: The client of the visitor.
        spans: Parts of queues.
        choice: Which messages get a row.
        limits: Limits of the request.
        is_newest_first: Whether the newest messages come first.
    """
    return await _Reading(admin, choice, limits, is_newest_first=is_newest_first).run(spans)

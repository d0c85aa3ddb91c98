"""Calls of `Admin` and `AsyncAdmin` about messages that wait, read from system topics of RocketPy and of Apache."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from rocketpy.admin.answers import Answers
from rocketpy.admin.inventory_calls import InventoryCalls
from rocketpy.admin.status_calls import MAX_BYTES, REAL_TOPIC, body_size, count_of, merged
from rocketpy.admin.waiting import OpenTransaction, OpenTransactions, WaitingMessage, WaitingMessages
from rocketpy.base.instant import datetime_of, now_ms
from rocketpy.base.signature import shown_as
from rocketpy.errors import TopicNotFoundError

if TYPE_CHECKING:
    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.cluster import QueueInfo
    from rocketpy.admin.status_calls import Delayed

__all__ = ["WaitingCalls"]

TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Topic of timer messages, with one queue for each broker."""
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Topic of half messages, with one queue for each broker."""
MARK_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Topic of the marks of ended half messages."""
MARK_TAG = "d"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""Group whose offsets are the progress of transactions."""
DUE = "TIMER_OUT_MS"
RECALLED = "TIMER_DEL_UNIQKEY"
"""Property of a recall: the id of the message, at older brokers of Apache after the name of its topic and `+`."""
PRODUCER_GROUP = "PGROUP"
FIRST_COPY = "TRAN_PREPARED_QUEUE_OFFSET"
"""Property of a copy of a half message, which Apache's brokers store before they ask: the offset of the first one."""
CHECKS = "TRANSACTION_CHECK_TIMES"
SPANS_MS = (60_000, 3_600_000, 86_400_000)
"""Minute, hour and day."""
CHUNK = 256
"""Number of messages of one read backwards."""


class Waiting(NamedTuple):
    """Waiting messages of one source, by the time in milliseconds at which they are due."""

    found: list[tuple[int, WaitingMessage]]
    total: int | None
    counts: tuple[int | None, ...]
    """Number of those due within each of `SPANS_MS`."""
    is_complete: bool


class Open(NamedTuple):
    """Open transactions of one broker."""

    found: list[OpenTransaction]
    total: int | None
    is_complete: bool


def whole(text: str | None) -> int | None:
    """Reads a number of a property.

    Examples:
        >>> whole("12"), whole("-1"), whole("x"), whole(None)
        (12, None, None, None)
    """
    return int(text) if text is not None and text.isdecimal() else None


def sum_of(numbers: list[int | None]) -> int | None:
    """Sum of numbers; None if one is unknown.

    Examples:
        >>> sum_of([1, 2]), sum_of([1, None]), sum_of([])
        (3, None, 0)
    """
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def marked(mark: ReceivedMessage) -> set[int]:
    """Offsets of the half messages that a mark ends."""
    if mark.tag != MARK_TAG:
        return set()
    numbers = bytes(mark.body_view).decode("ascii", "replace").split(",")
    return {offset for number in numbers if (offset := whole(number.strip())) is not None}


def waiting_message(message: ReceivedMessage, due_ms: int, kind: str) -> WaitingMessage:
    """Returns the known facts of a waiting message."""
    topic = message.properties.get(REAL_TOPIC, "")
    size, stored_at = body_size(message), message.stored_at
    return WaitingMessage(topic, datetime_of(due_ms), kind, size, stored_at, message.msg_id, message.broker_name)


def open_transaction(half: ReceivedMessage, at_ms: int) -> OpenTransaction:
    """Returns the known facts of a half message."""
    properties = half.properties
    return OpenTransaction(
        topic=properties.get(REAL_TOPIC, ""),
        producer_group=properties.get(PRODUCER_GROUP, ""),
        sent_at=half.born_at,
        age_seconds=max(0, at_ms - half.born_at_ms) / 1000,
        checks=whole(properties.get(CHECKS)) or 0,
        size=body_size(half),
        msg_id=half.msg_id,
        broker_name=half.broker_name,
    )


@shown_as("AsyncAdmin")
class WaitingCalls(InventoryCalls):
    """Calls about messages that wait, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

    async def waiting_messages(self, *, max_messages: int = 100, max_read: int = 10_000) -> WaitingMessages:
        """Messages that wait for their delivery time, of delay levels and timers, the first due first.

        Reads the timers of each broker from the newest backwards, with their bodies, up to 16 MiB. Brokers that do not
        answer are named in `missing`. Recalled messages are left out.

        Args:
            max_messages: Maximum number of messages to return.
            max_read: Maximum number of timers to read at each broker.

        Raises:
            RequestTimeoutError: No broker answers.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin, server.producer("waiting-doc") as producer:
            ...     _ = producer.send(rocketpy.Message("waiting-doc", b"text", delay=30))
            ...     while not (found := [x for x in admin.waiting_messages().messages if x.topic == "waiting-doc"]):
            ...         pass  # readable shortly after the acknowledgement
            ...     [(one.kind, one.size) for one in found]
            [('timer', 4)]
        """
        at_ms = now_ms()
        parts = await self._delayed()

        async def delayed(part: Delayed) -> Waiting:
            return await self._waiting_delays(part, at_ms, max_messages)

        async def timed(info: QueueInfo) -> Waiting:
            return await self._waiting_timers(info, at_ms, max_read)

        timers = await self._queues_of(TIMER_TOPIC)
        sources = [*await self._each(delayed, parts), *await self._each(timed, timers)]
        found = sorted((one for source in sources for one in source.found), key=lambda one: one[0])
        in_minute, in_hour, in_day = (sum_of([one.counts[index] for one in sources]) for index in range(3))
        return WaitingMessages(
            total=sum_of([one.total for one in sources]),
            in_minute=in_minute,
            in_hour=in_hour,
            in_day=in_day,
            messages=tuple(message for _, message in found[:max_messages]),
            is_complete=all(one.is_complete for one in sources),
            missing=merged(parts.missing, timers.missing),
        )

    async def open_transactions(self, *, max_messages: int = 100, max_read: int = 10_000) -> OpenTransactions:
        """Transactions without an end, the oldest first.

        Reads the half messages and marks of each broker from its stored progress on, with their bodies, up to 16 MiB.
        Brokers that do not answer are named in `missing`.

        Args:
            max_messages: Maximum number of transactions to return.
            max_read: Maximum number of half messages to read at each broker, and of marks.

        Raises:
            RequestTimeoutError: No broker answers.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.open_transactions().is_complete
            True
        """
        at_ms = now_ms()
        halves = await self._queues_of(HALF_TOPIC)
        marks = await self._queues_of(MARK_TOPIC)
        of_broker = {info.queue.broker_name: info for info in marks}

        async def opened(info: QueueInfo) -> Open:
            return await self._open_at(info, of_broker.get(info.queue.broker_name), at_ms, max_read)

        sources = await self._each(opened, halves)
        found = sorted((one for source in sources for one in source.found), key=attrgetter("age_seconds"), reverse=True)
        return OpenTransactions(
            total=sum_of([one.total for one in sources]),
            transactions=tuple(found[:max_messages]),
            is_complete=all(one.is_complete for one in sources),
            missing=merged(halves.missing, marks.missing),
        )

    async def _queues_of(self, topic: str) -> Answers[QueueInfo]:
        """Queues of a system topic that have messages."""
        try:
            found = await self.describe_topic(topic, partial=True)
        except TopicNotFoundError:
            return Answers()
        return Answers([info for info in found.queues if info.max_offset > info.min_offset], found.missing)

    async def _waiting_delays(self, part: Delayed, at_ms: int, max_messages: int) -> Waiting:
        """Messages of a delay level: they are due in their order."""

        async def due_within(span_ms: int) -> int:
            if part.delay_ms <= span_ms:
                return part.end - part.start
            cut = await self.search_offset(part.queue, (at_ms + span_ms - part.delay_ms) / 1000)
            return max(0, min(cut, part.end) - part.start)

        found: list[tuple[int, WaitingMessage]] = []
        size = 0
        async for message in self._range(part.queue, part.start, min(part.end, part.start + max_messages)):
            due_ms = message.stored_at_ms + part.delay_ms
            found.append((due_ms, one := waiting_message(message, due_ms, "delay")))
            size += one.size
            if size > MAX_BYTES:
                break
        counts = tuple([await due_within(span_ms) for span_ms in SPANS_MS])
        return Waiting(found, part.end - part.start, counts, len(found) >= min(part.end - part.start, max_messages))

    async def _waiting_timers(self, info: QueueInfo, at_ms: int, max_read: int) -> Waiting:
        """Timers of a broker, from the newest backwards until all that it counts are found."""
        figures = await self.broker_figures(info.queue.broker_name)
        total = count_of(figures.get("timerCongestNum"))
        wanted = None if total is None else total + (count_of(figures.get("timerOffsetBehind")) or 0)
        found: dict[str, tuple[int, WaitingMessage]] = {}
        recalled: set[str] = set()
        end, size = info.max_offset, 0
        least = max(info.min_offset, info.max_offset - max_read)
        while end > least and size <= MAX_BYTES and (wanted is None or len(found) < wanted):
            start = max(least, end - CHUNK)
            for message in reversed([message async for message in self._range(info.queue, start, end)]):
                due_ms = whole(message.properties.get(DUE))
                if due_ms is None or due_ms <= at_ms:
                    continue
                if (of := message.properties.get(RECALLED)) is not None:
                    recalled.add(of.rpartition("+")[2])
                elif message.msg_id not in recalled and message.msg_id not in found:
                    found[message.msg_id] = due_ms, (one := waiting_message(message, due_ms, "timer"))
                    size += one.size
            end = start
        messages = list(found.values())
        if end > info.min_offset and (wanted is None or len(found) < wanted):
            return Waiting(messages, total, (None,) * len(SPANS_MS), False)
        counts = tuple(sum(due_ms <= at_ms + span_ms for due_ms, _ in messages) for span_ms in SPANS_MS)
        return Waiting(messages, len(messages), counts, True)

    async def _open_at(self, info: QueueInfo, marks: QueueInfo | None, at_ms: int, max_read: int) -> Open:
        """Open transactions of a broker: half messages behind its progress without a mark."""
        over: set[int] = set()
        is_complete = True
        if marks is not None:
            first = await self._progress(marks)
            last = min(marks.max_offset, first + max_read)
            is_complete = last == marks.max_offset
            async for mark in self._range(marks.queue, first, last):
                over |= marked(mark)
        first = await self._progress(info)
        last = min(info.max_offset, first + max_read)
        found: dict[str, OpenTransaction] = {}
        size, after = 0, first
        async for half in self._range(info.queue, first, last):
            after = half.queue_offset + 1
            if half.queue_offset in over or whole(half.properties.get(FIRST_COPY)) in over:
                continue
            found[half.msg_id] = one = open_transaction(half, at_ms)
            size += one.size
            if size > MAX_BYTES:
                break
        is_complete = is_complete and after >= info.max_offset
        if is_complete:
            return Open(list(found.values()), len(found), True)
        figures = await self.broker_figures(info.queue.broker_name)
        return Open(list(found.values()), count_of(figures.get("halfMessagesWaiting")), False)

    async def _progress(self, info: QueueInfo) -> int:
        """Stored progress of transactions in a queue."""
        stored = await self._ask(self._native_admin().committed_offset, TRANSACTION_GROUP, info.queue)
        return max(info.min_offset, min(stored or 0, info.max_offset))

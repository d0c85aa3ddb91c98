"""Status calls of `Admin` and `AsyncAdmin`."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rocketpy.admin.answers import Answers
from rocketpy.admin.cluster import MASTER_ID, message_count
from rocketpy.admin.dead_letter_calls import DeadLetterCalls
from rocketpy.admin.status import BrokerStatus, ClusterStatus, GroupStatus, TopicStatus, WaitingRetries
from rocketpy.base.instant import UNITS_MS, datetime_of, now_ms
from rocketpy.base.names import RETRY_PREFIX
from rocketpy.base.signature import shown_as
from rocketpy.errors import UNKNOWN, UNREADABLE_BODY, RocketPyError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.answers import BrokerFigures, GroupProgress, MissingBroker, TopicTotals
    from rocketpy.admin.cluster import BrokerInfo, GroupInfo, QueueInfo, QueueLag
    from rocketpy.config import Duration, Instant
    from rocketpy.message import MessageQueue

__all__ = ["StatusCalls"]

T = TypeVar("T")
Item = TypeVar("Item")

CONCURRENT_CALLS = 8
"""Maximum number of requests of one status call at a time."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Topic of delayed messages; queue N holds delay level N + 1."""
REAL_TOPIC = "REAL_TOPIC"
"""Property of a delayed message: the topic of its delivery."""
LEVEL = re.compile(r"(\d+)([smhd])")
RATE_MS = 60_000
"""Span of the rate of a topic."""
MAX_BYTES = 16 << 20
"""Maximum size of the bodies that `waiting_retries` reads."""


class Delayed(NamedTuple):
    """Part of a delay level whose messages still wait."""

    queue: MessageQueue
    start: int
    end: int
    delay_ms: int


def delays_ms(levels: str) -> list[int]:
    """Reads `messageDelayLevel` of a broker.

    Examples:
        >>> delays_ms("1s 5m 2h")
        [1000, 300000, 7200000]
    """
    return [int(number) * UNITS_MS[unit] for number, unit in LEVEL.findall(levels)]


def rate_of(figure: str | float | None) -> float | None:
    """Reads the first number of a figure. Brokers report three rates: over 10 s, 1 min and 10 min.

    Examples:
        >>> rate_of("12.5 3.0 0.0"), rate_of(""), rate_of(None), rate_of("n/a"), rate_of("NaN")
        (12.5, None, None, None, None)
    """
    try:
        rate = float(str("" if figure is None else figure).split()[0])
    except (IndexError, ValueError):
        return None
    return rate if math.isfinite(rate) else None


def count_of(figure: str | float | None) -> int | None:
    """Reads a count.

    Examples:
        >>> count_of("12"), count_of(None), count_of("n/a")
        (12, None, None)
    """
    try:
        return int("" if figure is None else figure)
    except ValueError:
        return None


def problems_of(figures: Mapping[str, str | float]) -> tuple[str, ...]:
    """Returns the failing checks of a broker. Apache's brokers report only whether clients may write.

    Examples:
        >>> problems_of({"ready": "false", "notReady": "draining: x", "brokerActive": "false"})
        ('draining: x',)
        >>> problems_of({"brokerActive": "false"}), problems_of({"brokerActive": True}), problems_of({})
        (('draining: clients cannot write',), (), ())
    """
    found = [text for key in ("notReady", "notAlive") for text in str(figures.get(key, "")).splitlines()]
    is_closed = not found and "ready" not in figures and str(figures.get("brokerActive", True)).lower() == "false"
    return ("draining: clients cannot write",) if is_closed else tuple(found)


def broker_row(found: BrokerFigures) -> BrokerStatus:
    """Returns the status of a broker from its own figures."""
    broker, figures = found.broker, found.figures
    disk = rate_of(figures.get("commitLogDiskRatio"))
    return BrokerStatus(
        cluster=broker.cluster,
        broker_name=broker.broker_name,
        broker_id=found.broker_id,
        address=broker.addresses[found.broker_id],
        version=figures.get("brokerVersionDesc"),
        disk_used=None if disk is None or disk < 0 else disk,  # Apache's brokers report -1 for an unknown disk
        in_per_second=rate_of(figures.get("putTps")),
        out_per_second=rate_of(figures.get("getTransferredTps") or figures.get("getTransferedTps")),
        messages_in=count_of(figures.get("msgPutTotalTodayNow")),
        timers=count_of(figures.get("timersWaiting")),
        error=found.error,
        answered_at=found.answered_at,
        rocketpy_version=figures.get("rocketpyVersion"),
        problems=problems_of(figures),
    )


def group_row(group: GroupProgress, missing: tuple[str, ...]) -> GroupStatus:
    """Returns the status of a group from the answers of brokers."""
    members = len(group.members)
    if group.error is not None:
        return GroupStatus(group.name, members, None, None, None, None, group.error, missing)
    return GroupStatus(
        name=group.name,
        members=members,
        topics=group.topics,
        lag=group.lag,
        retries=group.retries,
        dead_letters=group.dead_letters,
        missing=missing,
    )


def merged(*parts: Iterable[MissingBroker]) -> tuple[MissingBroker, ...]:
    """Returns each broker that did not answer once, sorted by name."""
    found = {one.address: one for part in parts for one in part}
    return tuple(sorted(found.values(), key=lambda one: (one.broker_name, one.address)))


def body_size(message: ReceivedMessage) -> int:
    """Returns the size of a body in bytes; 0 for one that does not decompress."""
    try:
        return len(message.body_view)
    except UNREADABLE_BODY:
        return 0


@shown_as("AsyncAdmin")
class StatusCalls(DeadLetterCalls):
    """Status calls, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

    @abstractmethod
    async def brokers(self) -> list[BrokerInfo]:
        """Brokers of the cluster."""

    @abstractmethod
    async def groups(self, *, partial: bool = False) -> Answers[GroupInfo]:
        """Consumer groups."""

    @abstractmethod
    async def group_lag(self, group: str, topic: str | None = None, *, partial: bool = False) -> Answers[QueueLag]:
        """Progress of a group."""

    @abstractmethod
    async def broker_figures(self, address: str) -> dict[str, str | float]:
        """Figures of one broker."""

    @abstractmethod
    async def broker_config(self, address: str) -> dict[str, str]:
        """Settings of one broker."""

    @abstractmethod
    async def max_offset(self, queue: MessageQueue) -> int:
        """Offset after the newest readable message of a queue."""

    @abstractmethod
    async def search_offset(self, queue: MessageQueue, instant: Instant) -> int:
        """First offset stored at or after a point in time."""

    async def status(self) -> ClusterStatus:
        """Brokers, groups and waiting messages of the cluster, as `rocketpy status` shows them.

        All brokers are asked at the same time. `missing` names those that do not answer; `errors` names unknown parts.

        Raises:
            ConnectionFailedError: No name server can be reached.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     found = admin.status()
            ...     [broker.error for broker in found.brokers], found.missing, found.errors
            ([None], (), ())
        """

        async def outcome(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
            try:
                return await call()
            except UNKNOWN as error:
                return error

        calls = [self.broker_status, self.topics, self._delayed, self.group_status]
        brokers, topics, delayed, groups = await self._each(outcome, calls)
        if isinstance(brokers, RocketPyError):
            raise brokers
        parts = {"topics": topics, "delayed messages": delayed, "groups": groups}
        errors = [f"{name} unknown: {part}" for name, part in parts.items() if isinstance(part, RocketPyError)]
        found = {name: part for name, part in parts.items() if not isinstance(part, RocketPyError)}
        known = found.get("groups", ())
        return ClusterStatus(
            brokers=tuple(brokers),
            topics=len(topics) if "topics" in found else None,
            groups=tuple(groups) if "groups" in found else None,
            delayed=sum(part.end - part.start for part in delayed) if "delayed messages" in found else None,
            errors=(*errors, *(f"group {one.name} unknown: {one.error}" for one in known if one.error is not None)),
            missing=merged(*(getattr(part, "missing", ()) for part in found.values())),
        )

    async def broker_status(self) -> list[BrokerStatus]:
        """Figures of every broker, sorted by name and id. A broker that does not answer has an `error`.

        Raises:
            ConnectionFailedError: No name server can be reached.
        """
        return [broker_row(one) for one in await self._ask(self._native_admin().all_figures)]

    async def group_status(self) -> Answers[GroupStatus]:
        """Progress of every consumer group, sorted by name. A group whose progress is unknown has an `error`.

        The progress is that of the brokers that answer; `missing` names the others.

        Raises:
            ConnectionFailedError: No name server can be reached.
            RequestTimeoutError: No broker answers, so that the groups are unknown.
        """
        groups = await self._ask(self._native_admin().group_progress)
        names = tuple(one.broker_name for one in groups.missing)
        return Answers([group_row(group, names) for group in groups], groups.missing)

    async def topic_status(self, topics: Iterable[str] | None = None) -> Answers[TopicStatus]:
        """Messages, rate and consumer groups of topics, sorted by name. A topic that does not exist is left out.

        A topic whose figures are unknown has an `error`. The figures are those of the brokers that answer; `missing`
        names the others.

        Args:
            topics: Names of topics; default: all topics, including system topics.

        Raises:
            ConnectionFailedError: No name server can be reached.
            RequestTimeoutError: No broker answers.
        """
        names = sorted(await self.topics() if topics is None else set(topics))
        if not names:
            return Answers()

        async def run(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
            return await call()

        async def totals() -> Answers[TopicTotals]:
            return await self._ask(self._native_admin().topic_totals, names, True)

        (found, (groups, problem)) = await self._each(run, [totals, self._readers])
        missing = merged(found.missing, groups.missing)
        away = tuple(one.broker_name for one in missing)
        rates = await self._each(self._rate, found)

        def row(one: TopicTotals, rate: float) -> TopicStatus:
            readers = tuple(group.name for group in groups if one.name in (group.topics or ()))
            is_known = one.error is None
            return TopicStatus(
                name=one.name,
                messages=message_count(one.queues) if is_known else None,
                per_second=rate if is_known else None,
                groups=None if problem and not groups else readers,
                error=one.error or problem,
                missing=away,
            )

        return Answers([row(one, rate) for one, rate in zip(found, rates, strict=True)], missing)

    async def _readers(self) -> tuple[Answers[GroupStatus], str | None]:
        """Groups with their topics; and the reason why groups are unknown."""
        try:
            groups = await self.group_status()
        except UNKNOWN as error:
            return Answers(), f"groups unknown: {error}"
        problems = [f"group {group.name} unknown: {group.error}" for group in groups if group.error is not None]
        return groups, "; ".join(problems) or None

    async def _rate(self, topic: TopicTotals) -> float:
        """Messages per second of a topic, over the last minute. Offsets replace a missing report."""
        if topic.put_rate > 0 or topic.error is not None:
            return topic.put_rate
        return sum([await self._stored_since(one, RATE_MS) for one in topic.queues]) * 1000 / RATE_MS

    async def read(
        self,
        queue: MessageQueue,
        start: int,
        end: int | None = None,
        *,
        max_messages: int = 64,
        wait: Duration = 0,
    ) -> list[ReceivedMessage]:
        """Messages of a queue, the oldest first, without a consumer group: nothing is stored at the broker.

        Args:
            queue: The queue.
            start: Offset of the first message, from `min_offset`.
            end: Offset after the last message; default: the end of the queue.
            max_messages: Maximum number of messages, from 1.
            wait: Maximum time to wait for the first message, as in `Consumer.poll`. To follow a queue, continue at the
                offset after the last message. A waiting read returns the messages of one request, which may be fewer
                than requested; an empty list without messages.

        Raises:
            OffsetError: Messages of the range have expired, or, with `wait`, the queue ends before `start`.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin, server.producer("read-doc") as producer:
            ...     admin.create_topic("read-doc", queues=1)
            ...     _ = producer.send_many([rocketpy.Message("read-doc", text) for text in (b"a", b"b", b"c")])
            ...     (queue,) = admin.queues("read-doc")
            ...     while admin.max_offset(queue) < 3:  # readable shortly after the acknowledgement
            ...         pass
            ...     [message.body for message in admin.read(queue, 1, max_messages=1)]
            [b'b']
        """
        if wait:
            end = start + max_messages if end is None else min(end, start + max_messages)
            return (await self._ask(self._native_admin().read_within, queue, start, end, wait))[0]
        last = await self.max_offset(queue)
        last = min(start + max_messages, last if end is None else min(end, last))
        found: list[ReceivedMessage] = []
        while start < last:
            messages, start = await self._ask(self._native_admin().read, queue, start, last)
            found += messages
        return found

    async def waiting_retries(
        self, group: str, *, max_messages: int = 10_000, max_bytes: int = MAX_BYTES
    ) -> WaitingRetries:
        """Messages of a group that wait for the delay before their next delivery.

        Reads the delayed messages of all groups, with their bodies. `missing` names brokers that do not answer.
        A message whose delay has ended is in the retry topic of the group, and `group_lag` counts it.

        Args:
            group: Name of the group.
            max_messages: Maximum number of delayed messages to read.
            max_bytes: Size of their bodies in bytes after which the read ends; default 16 MiB.

        Raises:
            RequestTimeoutError: No broker answers.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.waiting_retries("mailer").messages
            0
        """
        times: list[int] = []
        messages_left, bytes_left = max_messages, max_bytes
        parts = await self._delayed()
        for part in sorted(parts, key=lambda part: part.delay_ms):
            start = part.start
            while start < part.end and messages_left > 0 and bytes_left > 0:
                end = min(part.end, start + messages_left)
                messages, after = await self._ask(self._native_admin().read, part.queue, start, end)
                messages_left, start = messages_left - (after - start), after
                for message in messages:
                    bytes_left -= body_size(message)
                    if message.properties.get(REAL_TOPIC) == RETRY_PREFIX + group and message.stored_at is not None:
                        times.append(round(message.stored_at.timestamp() * 1000) + part.delay_ms)
            if start < part.end:
                return WaitingRetries(len(times), datetime_of(min(times, default=None)), False)
        return WaitingRetries(len(times), datetime_of(min(times, default=None)), not parts.missing, parts.missing)

    async def _stored_since(self, info: QueueInfo, ago_ms: int) -> int:
        """Number of messages that a queue stored within a span until now."""
        since = now_ms() - ago_ms
        if info.last_stored_at is None or info.last_stored_at.timestamp() * 1000 < since:
            return 0
        start = await self.search_offset(info.queue, since / 1000)
        return max(0, info.max_offset - max(start, info.min_offset))

    async def _delayed(self) -> Answers[Delayed]:
        """Parts of the delay levels that are not delivered yet.

        Brokers report the next delivery of each level. Without that report the clock of this machine decides.
        """
        masters = {
            one.broker_name: one.addresses[MASTER_ID] for one in await self.brokers() if MASTER_ID in one.addresses
        }
        try:
            topic = await self.describe_topic(SCHEDULE_TOPIC, partial=True)
        except TopicNotFoundError:
            return Answers()
        queues = [info for info in topic.queues if info.last_stored_at]
        names = sorted({info.queue.broker_name for info in queues} & masters.keys())
        configs = await self._each(self.broker_config, [masters[name] for name in names])
        figures = dict(
            zip(names, await self._each(self.broker_figures, [masters[name] for name in names]), strict=True)
        )
        levels = {
            name: delays_ms(config.get("messageDelayLevel", "")) for name, config in zip(names, configs, strict=True)
        }

        async def part(info: QueueInfo) -> Delayed | None:
            delays = levels.get(info.queue.broker_name, [])
            if info.queue.queue_id >= len(delays):
                return None
            delay_ms = delays[info.queue.queue_id]
            next_offset = str(
                figures[info.queue.broker_name].get(f"scheduleMessageOffset_{info.queue.queue_id + 1}", "")
            )
            if (first := next_offset.partition(",")[0]).isdigit():
                waiting = max(0, info.max_offset - max(int(first), info.min_offset))
            else:
                waiting = await self._stored_since(info, delay_ms)
            return Delayed(info.queue, info.max_offset - waiting, info.max_offset, delay_ms) if waiting else None

        return Answers([one for one in await self._each(part, queues) if one is not None], topic.missing)

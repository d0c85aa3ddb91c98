"""Status calls of `Admin` and `AsyncAdmin`."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rocketpy.admin.cluster import MASTER_ID, message_count
from rocketpy.admin.dead_letter_calls import DeadLetterCalls
from rocketpy.admin.dead_letters import PREFIX as DEAD_PREFIX
from rocketpy.admin.status import BrokerStatus, ClusterStatus, GroupStatus, TopicStatus, WaitingRetries
from rocketpy.base.instant import UNITS_MS, datetime_of, now_ms
from rocketpy.base.names import RETRY_PREFIX
from rocketpy.base.signature import shown_as
from rocketpy.errors import (
    UNKNOWN,
    UNREADABLE_BODY,
    ConnectionFailedError,
    ConnectionLostError,
    GroupNotFoundError,
    InvalidArgumentError,
    RequestTimeoutError,
    RocketPyError,
    TopicNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from collections.abc import Set as AbstractSet

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.cluster import BrokerInfo, GroupInfo, QueueInfo, QueueLag
    from rocketpy.config import Instant
    from rocketpy.message import MessageQueue

__all__ = ["StatusCalls"]

T = TypeVar("T")
Item = TypeVar("Item")

CONCURRENT_CALLS = 8
"""Maximum number of requests of one status call at a time."""
AWAY = (ConnectionFailedError, ConnectionLostError, RequestTimeoutError)
"""Errors of a broker that is away."""
MOST_AWAY = 8
"""Number of such errors after which the other groups or topics are not requested."""
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


def broker_row(broker: BrokerInfo, broker_id: int, figures: dict[str, str | float], error: str | None) -> BrokerStatus:
    """Returns the status of a broker from its own figures."""
    disk = rate_of(figures.get("commitLogDiskRatio"))
    return BrokerStatus(
        cluster=broker.cluster,
        broker_name=broker.broker_name,
        broker_id=broker_id,
        address=broker.addresses[broker_id],
        version=None if (version := figures.get("brokerVersionDesc")) is None else str(version),
        disk_used=None if disk is None or disk < 0 else disk,  # Apache's brokers report -1 for an unknown disk
        in_per_second=rate_of(figures.get("putTps")),
        out_per_second=rate_of(figures.get("getTransferredTps") or figures.get("getTransferedTps")),
        messages_in=count_of(figures.get("msgPutTotalTodayNow")),
        timers=count_of(figures.get("timersWaiting")),
        error=error,
    )


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
    async def _each(self, call: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]) -> list[T]:
        """Results of a call for each item, in their order; at most `CONCURRENT_CALLS` run at a time."""

    @abstractmethod
    async def brokers(self) -> list[BrokerInfo]:
        """Brokers of the cluster."""

    @abstractmethod
    async def groups(self) -> list[GroupInfo]:
        """Consumer groups."""

    @abstractmethod
    async def group_lag(self, group: str, topic: str | None = None) -> list[QueueLag]:
        """Progress of a group."""

    @abstractmethod
    async def broker_figures(self, address: str) -> dict[str, str | float]:
        """Figures of one broker."""

    @abstractmethod
    async def broker_config(self, address: str) -> dict[str, str]:
        """Settings of one broker."""

    @abstractmethod
    async def search_offset(self, queue: MessageQueue, instant: Instant) -> int:
        """First offset stored at or after a point in time."""

    async def status(self) -> ClusterStatus:
        """Brokers, groups and waiting messages of the cluster, as `rocketpy status` shows them.

        A part that is unknown, such as the lag while a broker does not answer, is named in `errors`.

        Raises:
            ConnectionFailedError: No name server can be reached.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     found = admin.status()
            ...     [broker.error for broker in found.brokers], found.errors
            ([None], ())
        """
        errors: list[str] = []
        brokers = await self.broker_status()
        topics, delayed, groups = None, None, None
        try:
            topics = len(await self.topics())
        except UNKNOWN as error:
            errors.append(f"topics unknown: {error}")
        try:
            delayed = sum(part.end - part.start for part in await self._delayed())
        except UNKNOWN as error:
            errors.append(f"delayed messages unknown: {error}")
        try:
            groups = tuple(await self.group_status())
        except UNKNOWN as error:
            errors.append(f"groups unknown: {error}")
        errors += [f"group {one.name} unknown: {one.error}" for one in groups or () if one.error is not None]
        return ClusterStatus(tuple(brokers), topics, groups, delayed, tuple(errors))

    async def broker_status(self) -> list[BrokerStatus]:
        """Figures of every broker, sorted by name and id. A broker that does not answer has an `error`.

        Raises:
            ConnectionFailedError: No name server can be reached.
        """

        async def row(place: tuple[BrokerInfo, int]) -> BrokerStatus:
            broker, broker_id = place
            try:
                return broker_row(broker, broker_id, await self.broker_figures(broker.addresses[broker_id]), None)
            except UNKNOWN as error:
                return broker_row(broker, broker_id, {}, str(error))

        places = [(broker, broker_id) for broker in await self.brokers() for broker_id in sorted(broker.addresses)]
        return await self._each(row, places)

    async def group_status(self) -> list[GroupStatus]:
        """Progress of every consumer group, sorted by name. A group whose progress is unknown has an `error`.

        Raises:
            ConnectionFailedError: No name server can be reached.
            RequestTimeoutError: A broker does not answer, so that the groups are unknown.
        """
        topics = set(await self.topics())

        async def row(group: GroupInfo) -> GroupStatus:
            return await self._group_status(group, topics)

        found: list[GroupStatus] = []
        groups = await self.groups()
        for group, outcome in zip(groups, await self._outcomes(row, groups), strict=True):
            if isinstance(outcome, GroupStatus):
                found.append(outcome)
            elif not isinstance(outcome, GroupNotFoundError):  # deleted meanwhile
                found.append(GroupStatus(group.name, len(group.members), None, None, None, None, str(outcome)))
        return found

    async def _outcomes(
        self, call: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]
    ) -> list[T | RocketPyError]:
        """Result or error of a call for each item. After some timeouts the other items are not requested."""
        away: list[RocketPyError] = []

        async def outcome(item: Item) -> T | RocketPyError:
            if len(away) >= MOST_AWAY:
                return away[0]
            try:
                return await call(item)
            except AWAY as error:
                away.append(error)
                return error
            except (*UNKNOWN, GroupNotFoundError, InvalidArgumentError) as error:  # other clients store invalid names
                return error

        return await self._each(outcome, items)

    async def _group_status(self, group: GroupInfo, topics: AbstractSet[str]) -> GroupStatus:
        """Progress of one group. The topics are those of the cluster."""
        rows = await self.group_lag(group.name)
        retry, dead = RETRY_PREFIX + group.name, DEAD_PREFIX + group.name
        if retry in topics and not any(row.queue.topic == retry for row in rows):
            rows += await self.group_lag(group.name, retry)  # its members ended before they committed there
        return GroupStatus(
            name=group.name,
            members=len(group.members),
            topics=tuple(sorted({row.queue.topic for row in rows} - {retry})),
            lag=sum(row.lag for row in rows if row.queue.topic != retry),
            retries=sum(row.lag for row in rows if row.queue.topic == retry),
            dead_letters=await self._stored(dead) if dead in topics else 0,
        )

    async def topic_status(self, topics: Iterable[str] | None = None) -> list[TopicStatus]:
        """Messages, rate and consumer groups of topics, sorted by name. A topic that does not exist is left out.

        A topic whose figures are unknown has an `error`.

        Args:
            topics: Names of topics; default: all topics, including system topics.

        Raises:
            ConnectionFailedError: No name server can be reached.
        """
        names = sorted(await self.topics() if topics is None else set(topics))
        readers, problem = await self._readers() if names else ([], None)
        found: list[TopicStatus] = []
        for name, outcome in zip(names, await self._outcomes(self._topic_figures, names), strict=True):
            groups = None if readers is None else tuple(group for group, consumed in readers if name in consumed)
            if isinstance(outcome, tuple):
                found.append(TopicStatus(name, *outcome, groups, problem))
            elif not isinstance(outcome, TopicNotFoundError):
                found.append(TopicStatus(name, None, None, groups, str(outcome)))
        return found

    async def _readers(self) -> tuple[list[tuple[str, tuple[str, ...]]] | None, str | None]:
        """Groups with their topics, None if all are unknown; and the reason why groups are unknown."""
        try:
            groups = await self.group_status()
        except UNKNOWN as error:
            return None, f"groups unknown: {error}"
        problems = [f"group {group.name} unknown: {group.error}" for group in groups if group.error is not None]
        return [(group.name, group.topics or ()) for group in groups], "; ".join(problems) or None

    async def _topic_figures(self, topic: str) -> tuple[int, float]:
        """Number of messages of a topic, and messages per second."""
        queues = (await self.describe_topic(topic)).queues
        rate = sum([await self._stored_since(one, RATE_MS) for one in queues]) * 1000 / RATE_MS
        return message_count(queues), rate

    async def waiting_retries(
        self, group: str, *, max_messages: int = 10_000, max_bytes: int = MAX_BYTES
    ) -> WaitingRetries:
        """Messages of a group that wait for the delay before their next delivery.

        Reads the delayed messages of all groups, with their bodies. A message whose delay has ended is in the retry
        topic of the group, and `group_lag` counts it.

        Args:
            group: Name of the group.
            max_messages: Maximum number of delayed messages to read.
            max_bytes: Size of their bodies in bytes after which the read ends; default 16 MiB.

        Raises:
            RequestTimeoutError: A broker does not answer.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.waiting_retries("mailer").messages
            0
        """
        times: list[int] = []
        messages_left, bytes_left = max_messages, max_bytes
        for part in sorted(await self._delayed(), key=lambda part: part.delay_ms):
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
        return WaitingRetries(len(times), datetime_of(min(times, default=None)), True)

    async def _stored(self, topic: str) -> int:
        """Number of messages that a topic holds."""
        try:
            queues = (await self.describe_topic(topic)).queues
        except TopicNotFoundError:
            return 0
        return message_count(queues)

    async def _stored_since(self, info: QueueInfo, ago_ms: int) -> int:
        """Number of messages that a queue stored within a span until now."""
        since = now_ms() - ago_ms
        if info.last_stored_at is None or info.last_stored_at.timestamp() * 1000 < since:
            return 0
        start = await self.search_offset(info.queue, since / 1000)
        return max(0, info.max_offset - max(start, info.min_offset))

    async def _delayed(self) -> list[Delayed]:
        """Parts of the delay levels whose delay has not ended, by the clock of this machine."""
        brokers = await self.brokers()
        masters = {one.broker_name: one.addresses[MASTER_ID] for one in brokers if MASTER_ID in one.addresses}
        try:
            queues = [info for info in (await self.describe_topic(SCHEDULE_TOPIC)).queues if info.last_stored_at]
        except TopicNotFoundError:
            return []
        levels = {
            name: delays_ms((await self.broker_config(masters[name])).get("messageDelayLevel", ""))
            for name in {info.queue.broker_name for info in queues} & masters.keys()
        }
        found: list[Delayed] = []
        for info in queues:
            delays = levels.get(info.queue.broker_name, [])
            if info.queue.queue_id < len(delays):
                delay_ms = delays[info.queue.queue_id]
                if waiting := await self._stored_since(info, delay_ms):
                    found.append(Delayed(info.queue, info.max_offset - waiting, info.max_offset, delay_ms))
        return found

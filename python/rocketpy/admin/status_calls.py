"""Status calls of `Admin` and `AsyncAdmin`."""

from __future__ import annotations

import re
from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from rocketpy.admin.dead_letter_calls import DeadLetterCalls
from rocketpy.admin.dead_letters import PREFIX as DEAD_PREFIX
from rocketpy.admin.status import BrokerStatus, ClusterStatus, GroupStatus, TopicStatus, WaitingRetries
from rocketpy.base.instant import UNITS_MS, datetime_of, now_ms
from rocketpy.base.names import RETRY_PREFIX
from rocketpy.base.signature import shown_as
from rocketpy.errors import (
    BrokerNotFoundError,
    ConnectionFailedError,
    ConnectionLostError,
    GroupNotFoundError,
    ProtocolError,
    RefusedError,
    RequestTimeoutError,
    TopicNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from rocketpy.admin.cluster import BrokerInfo, GroupInfo, QueueInfo, QueueLag
    from rocketpy.config import Instant
    from rocketpy.message import MessageQueue

__all__ = ["UNKNOWN", "StatusCalls"]

UNKNOWN = (
    BrokerNotFoundError,
    ConnectionFailedError,
    ConnectionLostError,
    ProtocolError,
    RefusedError,
    RequestTimeoutError,
    TopicNotFoundError,
)
"""Errors that leave a part of a status unknown. Misuse, such as a closed client, is raised."""
MASTER = 0
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Topic of delayed messages; queue N holds delay level N + 1."""
REAL_TOPIC = "REAL_TOPIC"
"""Property of a delayed message: the topic of its delivery."""
LEVEL = re.compile(r"(\d+)([smhd])")
RATE_MS = 60_000
"""Span of the rate of a topic."""


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


def number(text: str | None) -> float | None:
    """Reads the first number of a figure. Brokers report three rates: over 10 s, 1 min and 10 min.

    Examples:
        >>> number("12.5 3.0 0.0"), number(""), number(None)
        (12.5, None, None)
    """
    return float(text.split()[0]) if text and text.strip() else None


def whole(text: str | None) -> int | None:
    """Reads a count.

    Examples:
        >>> whole("12"), whole(None)
        (12, None)
    """
    return int(text) if text else None


def broker_row(broker: BrokerInfo, broker_id: int, told: dict[str, str], error: str | None) -> BrokerStatus:
    """Returns the status of a broker from its own figures."""
    disk = number(told.get("commitLogDiskRatio"))
    return BrokerStatus(
        cluster=broker.cluster,
        broker_name=broker.broker_name,
        broker_id=broker_id,
        address=broker.addresses[broker_id],
        version=told.get("brokerVersionDesc"),
        disk_used=None if disk is None or disk < 0 else disk,  # Apache's brokers report -1 for an unknown disk
        in_per_second=number(told.get("putTps")),
        out_per_second=number(told.get("getTransferredTps") or told.get("getTransferedTps")),
        messages_in=whole(told.get("msgPutTotalTodayNow")),
        timers=whole(told.get("timersWaiting")),
        error=error,
    )


@shown_as("AsyncAdmin")
class StatusCalls(DeadLetterCalls):
    """Status calls, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

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
    async def broker_figures(self, address: str) -> dict[str, str]:
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
        topics, delayed, groups = None, None, list[GroupStatus]()
        try:
            topics = len(await self.topics())
        except UNKNOWN as error:
            errors.append(f"topics unknown: {error}")
        try:
            delayed = sum(part.end - part.start for part in await self._delayed())
        except UNKNOWN as error:
            errors.append(f"delayed messages unknown: {error}")
        try:
            groups = await self.group_status()
        except UNKNOWN as error:
            errors.append(f"groups unknown: {error}")
        return ClusterStatus(tuple(brokers), topics, tuple(groups), delayed, tuple(errors))

    async def broker_status(self) -> list[BrokerStatus]:
        """Figures of every broker, sorted by name and id. A broker that does not answer has an `error`."""
        found: list[BrokerStatus] = []
        for broker in await self.brokers():
            for broker_id, address in sorted(broker.addresses.items()):
                try:
                    found.append(broker_row(broker, broker_id, await self.broker_figures(address), None))
                except UNKNOWN as error:
                    found.append(broker_row(broker, broker_id, {}, str(error)))
        return found

    async def group_status(self) -> list[GroupStatus]:
        """Progress of every consumer group, sorted by name."""
        topics = set(await self.topics())
        found: list[GroupStatus] = []
        for group in await self.groups():
            with suppress(GroupNotFoundError):  # deleted meanwhile
                found.append(await self._group_status(group, topics))
        return found

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

        Args:
            topics: Names of topics; default: all topics, including system topics.
        """
        names = sorted(await self.topics() if topics is None else set(topics))
        readers = [(group.name, group.topics) for group in await self.group_status()] if names else []
        found: list[TopicStatus] = []
        for name in names:
            try:
                queues = (await self.describe_topic(name)).queues
            except TopicNotFoundError:
                continue
            found.append(
                TopicStatus(
                    name=name,
                    messages=sum(one.max_offset - one.min_offset for one in queues),
                    per_second=sum([await self._stored_since(one, RATE_MS) for one in queues]) * 1000 / RATE_MS,
                    groups=tuple(group for group, consumed in readers if name in consumed),
                )
            )
        return found

    async def waiting_retries(self, group: str, *, max_messages: int = 10_000) -> WaitingRetries:
        """Messages of a group that wait for the delay before their next delivery.

        Reads the delayed messages of all groups, with their bodies. A message whose delay has ended is in the retry
        topic of the group, and `group_lag` counts it.

        Args:
            group: Name of the group.
            max_messages: Maximum number of delayed messages to read.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.waiting_retries("mailer").messages
            0
        """
        times: list[int] = []
        left = max_messages
        for part in sorted(await self._delayed(), key=lambda part: part.delay_ms):
            end = min(part.end, part.start + left)
            left -= part.end - part.start
            async for message in self._range(part.queue, part.start, end):
                if message.properties.get(REAL_TOPIC) == RETRY_PREFIX + group and message.stored_at is not None:
                    times.append(round(message.stored_at.timestamp() * 1000) + part.delay_ms)
        return WaitingRetries(len(times), datetime_of(min(times, default=None)), left >= 0)

    async def _stored(self, topic: str) -> int:
        """Number of messages that a topic holds."""
        try:
            queues = (await self.describe_topic(topic)).queues
        except TopicNotFoundError:
            return 0
        return sum(one.max_offset - one.min_offset for one in queues)

    async def _stored_since(self, info: QueueInfo, ago_ms: int) -> int:
        """Number of messages that a queue stored within a span until now."""
        since = now_ms() - ago_ms
        if info.last_stored_at is None or info.last_stored_at.timestamp() * 1000 < since:
            return 0
        start = await self.search_offset(info.queue, since / 1000)
        return max(0, info.max_offset - max(start, info.min_offset))

    async def _delayed(self) -> list[Delayed]:
        """Parts of the delay levels whose delay has not ended, by the clock of this machine."""
        masters = {one.broker_name: one.addresses[MASTER] for one in await self.brokers() if MASTER in one.addresses}
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

"""Progress of one group as tables show it: topics with their queues, and the trend of the lag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from rocketpy import MessageQueue
    from rocketpy.admin.answers import ConsumerRunningInfo
    from rocketpy.admin.cluster import GroupMember, QueueLag

__all__ = ["MemberRow", "QueueRow", "TopicRow", "Trend", "member_rows", "topic_rows", "trend_of"]

STEADY_SHARE = 0.01
"""Change of the lag within a minute, as a part of it, below which the lag is steady."""
TREND_SECONDS = 300
"""Span of the trend."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """Progress of a group in one queue."""

    queue: MessageQueue
    owners: tuple[str, ...] | None
    """Client ids of the members that read the queue; None if they are unknown."""
    committed: int | None
    max_offset: int
    lag: int
    held: int
    behind: float | None
    """Age of the next message to consume in seconds; None if it is unknown."""
    last_consumed_at: datetime | None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """Progress of a group in one topic."""

    topic: str
    queues: tuple[QueueRow, ...]
    lag: int
    held: int
    behind: float | None
    never: int
    """Number of queues without a commit."""
    last_consumed_at: datetime | None


def topic_rows(
    lags: Iterable[QueueLag],
    behind: Mapping[MessageQueue, float],
    owners: Mapping[MessageQueue, tuple[str, ...]] | None,
) -> list[TopicRow]:
    """Groups queues by topic, sorted by name.

    Args:
        lags: Progress by queue.
        behind: Age of the next message in seconds, where it is known.
        owners: Client ids by queue; None if the members were not asked or did not answer.
    """
    by_topic: dict[str, list[QueueRow]] = {}
    for lag in sorted(lags, key=lambda one: (one.queue.topic, one.queue.broker_name, one.queue.queue_id)):
        age = behind.get(lag.queue)
        row = QueueRow(
            queue=lag.queue,
            owners=None if owners is None else owners.get(lag.queue, ()),
            committed=lag.committed_offset,
            max_offset=lag.max_offset,
            lag=lag.lag,
            held=lag.held,
            behind=0.0 if lag.lag == 0 else age,
            last_consumed_at=lag.last_consumed_at,
        )
        by_topic.setdefault(lag.queue.topic, []).append(row)
    return [
        TopicRow(
            topic=topic,
            queues=tuple(rows),
            lag=sum(row.lag for row in rows),
            held=sum(row.held for row in rows),
            behind=max((row.behind for row in rows if row.behind is not None), default=None),
            never=sum(row.committed is None for row in rows),
            last_consumed_at=max((row.last_consumed_at for row in rows if row.last_consumed_at), default=None),
        )
        for topic, rows in by_topic.items()
    ]


@dataclass(frozen=True, slots=True)
class Trend:
    """Direction of a lag."""

    direction: Literal["falling", "rising", "steady"]
    per_second: float
    """Change of the lag per second."""
    empty_in: float | None
    """Seconds until the lag is 0 at this rate; None unless it falls."""


def trend_of(values: Sequence[float | None], step: float) -> Trend | None:
    """Trend of the last 5 minutes; None with fewer than three known values.

    Args:
        values: Lags at equal steps, the oldest first; None for a gap.
        step: Seconds between two values.

    Examples:
        >>> trend_of([300, 200, 100], 10)
        Trend(direction='falling', per_second=-10.0, empty_in=10.0)
        >>> trend_of([100, None, 100, 100], 10).direction, trend_of([0, 50, 100], 10).direction, trend_of([5], 10)
        ('steady', 'rising', None)
    """
    recent = values[-max(3, round(TREND_SECONDS / step)) :]
    known = [(at * step, value) for at, value in enumerate(recent) if value is not None]
    if len(known) < 3:
        return None
    (first_at, first), (last_at, last) = known[0], known[-1]
    rate = (last - first) / (last_at - first_at)
    if abs(rate) * 60 <= STEADY_SHARE * max(first, last):
        return Trend("steady", rate, None)
    if rate < 0:
        return Trend("falling", rate, last / -rate)
    return Trend("rising", rate, None)


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A live member, with its own report where it was requested."""

    member: GroupMember
    version: str
    subscriptions: dict[str, str] | None
    """Tags by topic; None if neither broker nor member reports them."""
    info: ConsumerRunningInfo | None

    @property
    def differs(self) -> bool:
        """Whether the subscription differs from those of the majority."""
        return self.member.differs


def member_rows(
    members: Iterable[GroupMember], infos: Iterable[ConsumerRunningInfo], retry_prefix: str
) -> list[MemberRow]:
    """Joins members with their own reports.

    Args:
        members: Live members by the brokers.
        infos: Their own reports.
        retry_prefix: Prefix of retry topics, which members add to their subscriptions.
    """
    by_id = {one.client_id: one for one in infos}
    found: list[MemberRow] = []
    for member in members:
        info = by_id.get(member.client_id)
        wanted = member.subscriptions
        if wanted is None and info is not None:  # Apache's brokers do not report them
            own = {topic: tags for topic, tags in info.subscriptions.items() if not topic.startswith(retry_prefix)}
            wanted = own or None
        version = (info and info.client_version) or str(member.version)
        found.append(MemberRow(member, version, wanted, info))
    return found

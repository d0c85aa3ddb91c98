"""Snapshot of a cluster: all that list pages show, with the time of each figure. Reading it never calls a broker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketpy.admin.cluster import QueueLag, TopicInfo
    from rocketpy.admin.replication import HaStatus
    from rocketpy.admin.status import BrokerStatus, GroupStatus

__all__ = ["BrokerRow", "Gap", "GroupRow", "Snapshot", "TopicLag", "TopicRow", "group_row", "topic_row"]

MASTER = 0
"""Broker id of a master."""


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker process: its last figures, and since when it does not answer."""

    status: BrokerStatus
    """Its last answer; without figures if it never answered."""
    read_at: float | None
    """Time of these figures, in seconds since 1970; None without an answer."""
    failed_at: float | None = None
    """Time of the first failed request after the last answer; None while it answers."""
    error: str | None = None
    """Reason of the last failure."""
    ha: HaStatus | None = None
    """Its slaves, as the master reports them; None if unknown."""

    @property
    def name(self) -> str:
        """Name of the broker."""
        return self.status.broker_name

    @property
    def is_master(self) -> bool:
        """Whether it is the master of its name."""
        return self.status.broker_id == MASTER

    @property
    def is_down(self) -> bool:
        """Whether the last request failed."""
        return self.failed_at is not None


@dataclass(frozen=True, slots=True)
class TopicLag:
    """Progress of a group on one topic."""

    lag: int
    """Number of messages after the stored commits."""
    queues_behind: int
    """Number of queues with lag."""
    queues: int
    """Number of queues with offsets of the group."""
    behind: float | None
    """Seconds between the newest consumed message and now, of the worst queue with lag; None without lag."""
    committed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Committed offsets by `broker:queue`, for rates; queues without a commit are left out."""
    out: float | None = None
    """Messages per second that the group commits, from the queues of both samples; None before the second one."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic. Figures are None before the first sample."""

    name: str
    is_system: bool = False
    kind: str = ""
    """Type: `normal`, `delay`, `fifo`, `transaction`; empty if unknown."""
    messages: int | None = None
    max_offsets: int | None = None
    """Sum of the max offsets of all queues; None if a broker did not answer."""
    queues: int | None = None
    in_rate: float | None = None
    out_rate: float | None = None
    groups: tuple[str, ...] = ()
    lag: int | None = None
    last_stored: float | None = None
    """Time of the newest message, in seconds since 1970."""
    read_at: float | None = None
    """Time of these figures, in seconds since 1970."""
    error: str | None = None
    """Reason why the last sample failed; the figures are older then."""
    tried_at: float | None = None
    """Time of the last sample that failed; None after a successful one."""
    still: int = 0
    """Number of samples in a row whose offsets did not move."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One consumer group. Figures are None if they are unknown."""

    name: str
    members: int | None = None
    topics: tuple[str, ...] = ()
    lag: int | None = None
    retries: int | None = None
    dead_letters: int | None = None
    behind: float | None = None
    """Seconds that its worst queue is behind; None without lag, or before the first sample."""
    out_rate: float | None = None
    by_topic: Mapping[str, TopicLag] = field(default_factory=dict[str, TopicLag])
    """Progress by topic, without the retry topic."""
    read_at: float | None = None
    """Time of lag, retries and members, in seconds since 1970."""
    differs: bool | None = None
    """Whether members have different subscriptions; None before the first sample, or if they are not reported."""
    tried_at: float | None = None
    """Time of the last sample that failed; None after a successful one."""
    sampled_at: float | None = None
    """Time of `by_topic`, in seconds since 1970."""
    error: str | None = None
    """Reason why figures are unknown; None if they are known."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of the cluster that cannot be read now."""

    part: str
    """`brokers`, `topics` or `groups`."""
    error: str
    """Reason."""
    since: float
    """Time of the first failure, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is known of a cluster at one moment."""

    version: int = 0
    """Grows with each change."""
    made_at: float = 0.0
    """Time in seconds since 1970."""
    cluster: str = ""
    """Name of the cluster; empty before the first answer."""
    brokers: tuple[BrokerRow, ...] = ()
    """Sorted by name and id."""
    topics: Mapping[str, TopicRow] = field(default_factory=dict[str, TopicRow])
    groups: Mapping[str, GroupRow] = field(default_factory=dict[str, GroupRow])
    gaps: tuple[Gap, ...] = ()
    brokers_at: float | None = None
    """Time of the last answer of a name server about brokers."""
    topics_at: float | None = None
    """Time of the list of topics."""
    groups_at: float | None = None
    """Time of the figures of groups."""
    round_seconds: float = 15.0
    """Time in which the figures of every topic and group are read once."""
    slowed: bool = False
    """Whether sampling is slowed because a broker answers slowly."""

    @property
    def is_first(self) -> bool:
        """Whether nothing has been read yet."""
        return self.brokers_at is None and self.topics_at is None

    @property
    def sampled(self) -> int:
        """Number of topics with figures."""
        return sum(row.read_at is not None and not row.is_system for row in self.topics.values())

    @property
    def application_topics(self) -> int:
        """Number of topics of applications."""
        return sum(not row.is_system for row in self.topics.values())

    @property
    def masters(self) -> tuple[BrokerRow, ...]:
        """Masters only."""
        return tuple(row for row in self.brokers if row.is_master)

    @property
    def down(self) -> tuple[BrokerRow, ...]:
        """Brokers that do not answer."""
        return tuple(row for row in self.brokers if row.is_down)

    @property
    def in_rate(self) -> float | None:
        """Messages per second into all masters that answer."""
        return total(row.status.in_per_second for row in self.masters if not row.is_down)

    @property
    def out_rate(self) -> float | None:
        """Messages per second out of all brokers that answer."""
        return total(row.status.out_per_second for row in self.brokers if not row.is_down)

    @property
    def lag(self) -> int | None:
        """Sum of the lag of all groups."""
        return None if self.groups_at is None else sum(row.lag or 0 for row in self.groups.values())

    @property
    def dead_letters(self) -> int | None:
        """Sum of the dead letters of all groups."""
        return None if self.groups_at is None else sum(row.dead_letters or 0 for row in self.groups.values())

    @property
    def disk(self) -> float | None:
        """Used share of the fullest disk, from 0 to 1."""
        return max((row.status.disk_used for row in self.brokers if row.status.disk_used is not None), default=None)

    def ages(self) -> list[float]:
        """Seconds since the figures of each topic were read."""
        return [self.made_at - row.read_at for row in self.topics.values() if row.read_at is not None]


def total(rates: Iterable[float | None]) -> float | None:
    """Sum of the known rates; None if none is known."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def topic_row(before: TopicRow, info: TopicInfo, now: float) -> TopicRow:
    """Row of a topic after a sample.

    Args:
        before: Row of the sample before.
        info: The answer of the brokers.
        now: Time in seconds since 1970.
    """
    ends = None if info.missing else sum(one.max_offset for one in info.queues)
    messages = sum(one.max_offset - one.min_offset for one in info.queues)
    stored = max((one.last_stored_at.timestamp() for one in info.queues if one.last_stored_at), default=None)
    rate: float | None = info.put_rate or None
    if ends is not None and before.max_offsets is not None and before.read_at is not None and now > before.read_at:
        rate = max(0, ends - before.max_offsets) / (now - before.read_at)
    return replace(
        before,
        messages=messages,
        max_offsets=ends,
        queues=len(info.queues),
        in_rate=0.0 if rate is None and ends == 0 else rate,
        last_stored=stored,
        read_at=now,
        error="; ".join(f"{one.broker_name} does not answer" for one in info.missing) or None,
        tried_at=None,
        still=before.still + 1 if ends is not None and before.max_offsets == ends else 0,
    )


def group_row(before: GroupRow, status: GroupStatus, now: float) -> GroupRow:
    """Row of a group after the status of all groups was read."""
    if status.error is not None:
        return replace(before, members=status.members, error=status.error)
    return replace(
        before,
        members=status.members,
        topics=status.topics or (),
        lag=status.lag,
        behind=before.behind if status.lag else None,
        retries=status.retries,
        dead_letters=status.dead_letters,
        read_at=now,
        error=None,
    )


def sampled_group(before: GroupRow, lags: list[QueueLag], now: float, retry_topic: str) -> GroupRow:
    """Row of a group after its queues were read.

    Args:
        before: Row of the sample before.
        lags: Progress in each queue.
        now: Time in seconds since 1970.
        retry_topic: Name of its retry topic, which counts as retries.
    """
    by_topic: dict[str, list[QueueLag]] = {}
    for one in lags:
        if one.queue.topic != retry_topic:
            by_topic.setdefault(one.queue.topic, []).append(one)
    seconds = 0.0 if before.sampled_at is None else now - before.sampled_at
    progress: dict[str, TopicLag] = {}
    for topic, queues in by_topic.items():
        committed = {
            f"{one.queue.broker_name}:{one.queue.queue_id}": one.committed_offset
            for one in queues
            if one.committed_offset is not None
        }
        behind = [now - one.last_consumed_at.timestamp() for one in queues if one.lag and one.last_consumed_at]
        earlier: Mapping[str, int] = before.by_topic[topic].committed if topic in before.by_topic else {}
        moved = [committed[queue] - earlier[queue] for queue in committed.keys() & earlier.keys()]
        progress[topic] = TopicLag(
            lag=sum(one.lag for one in queues),
            queues_behind=sum(one.lag > 0 for one in queues),
            queues=len(queues),
            behind=max(behind, default=None),
            committed=committed,
            out=max(0, sum(moved)) / seconds if moved and seconds > 0 else None,
        )
    worst = max((one.behind for one in progress.values() if one.behind is not None), default=None)
    rate = total(one.out for one in progress.values())
    lag = sum(one.lag for one in progress.values())
    return replace(before, by_topic=progress, lag=lag, behind=worst, out_rate=rate, sampled_at=now, tried_at=None)

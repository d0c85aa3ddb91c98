"""Answers of several brokers, some of which may not answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from rocketpy.admin.cluster import BrokerInfo, QueueInfo
    from rocketpy.message import MessageQueue

__all__ = ["Answers", "ConsumerRunningInfo", "MemberQueue", "MissingBroker"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MissingBroker:
    """A broker that did not answer."""

    broker_name: str
    address: str
    """`host:port` of the broker."""
    error: str
    """Reason why it did not answer."""
    answered_at: datetime | None
    """Time of its last answer to this client; None without one."""


class Answers(list[T]):
    """List of the rows that brokers returned. `missing` has the brokers that did not answer.

    Args:
        rows: Rows of the brokers that answered.
        missing: The other brokers.
    """

    __slots__ = ("missing",)

    def __init__(self, rows: Iterable[T] = (), missing: Iterable[MissingBroker] = ()) -> None:
        super().__init__(rows)
        self.missing = tuple(missing)
        """Brokers that did not answer; empty if the rows are complete."""


@dataclass(frozen=True, slots=True)
class MemberQueue:
    """A queue that a live member of a group reads."""

    queue: MessageQueue
    next_offset: int
    """Next offset that the member commits."""
    lag: int | None
    """Number of messages from there to the end of the queue; None without a stored commit of the group."""
    waiting: int
    """Number of messages that the member has fetched and not finished."""
    last_consumed_at: datetime | None
    """Time at which the member last finished a message; None before the first."""
    last_pulled_at: datetime | None
    """Time of the last pull; None before the first."""


@dataclass(frozen=True, slots=True)
class ConsumerRunningInfo:
    """State of a live member of a consumer group, as the member itself reports it."""

    client_id: str
    address: str
    """`host:port` of the client end of the connection."""
    language: str
    """Language of the client."""
    version: int
    """Version of the client, by Apache's numbers: 479 is 5.3.3."""
    client_version: str | None
    """Name and version by the client itself, of RocketPy's clients too; None if the member did not answer."""
    started_at: datetime | None
    """Time at which the consumer started; None if it is unknown."""
    subscriptions: dict[str, str]
    """Tags by topic, including the retry topic of the group."""
    queues: tuple[MemberQueue, ...]
    """Queues that the member reads, sorted."""
    properties: dict[str, str]
    """Further facts, by the names of Apache's clients."""
    jstack: str | None
    """Stacks of all threads of the member's process, if they were requested."""
    error: str | None
    """Reason why the member reported nothing; None if it answered."""


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """Figures of one broker, as text by Apache's names."""

    broker: BrokerInfo
    broker_id: int
    figures: dict[str, str]
    error: str | None
    answered_at: datetime | None


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """Progress of a group at the brokers that answered."""

    name: str
    members: tuple[str, ...]
    topics: tuple[str, ...]
    lag: int
    retries: int
    dead_letters: int
    error: str | None


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """Queues of a topic at the brokers that answered."""

    name: str
    queues: tuple[QueueInfo, ...]
    put_rate: float
    error: str | None

"""Values of calls about all topics, groups and producers, and about those who read a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from rocketpy.admin.answers import MissingBroker
    from rocketpy.admin.cluster import GroupBroker, ProducerConnection, TopicBroker
    from rocketpy.message import MessageQueue

__all__ = [
    "CountRate",
    "GroupConfig",
    "MessageConsumer",
    "ProducerGroup",
    "QueueDelay",
    "TopicConfig",
    "TrafficRate",
]

MESSAGE_TYPE = "message.type"
"""Attribute of a topic: the type of its messages."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Configuration of a topic at the brokers that have it."""

    name: str
    brokers: tuple[TopicBroker, ...]
    """Sorted by broker name."""
    is_system: bool
    """Whether the topic belongs to the system, as topics of retries and dead letters do too."""

    @property
    def read_queues(self) -> int:
        """Number of read queues of all brokers."""
        return sum(one.read_queues for one in self.brokers)

    @property
    def write_queues(self) -> int:
        """Number of write queues of all brokers."""
        return sum(one.write_queues for one in self.brokers)

    @property
    def readable(self) -> bool:
        """Whether consumers may read it at a broker."""
        return any(one.readable for one in self.brokers)

    @property
    def writable(self) -> bool:
        """Whether producers may send to it at a broker."""
        return any(one.writable for one in self.brokers)

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of all brokers; the last broker wins where they differ."""
        return {name: value for one in self.brokers for name, value in one.attributes.items()}

    @property
    def message_type(self) -> str:
        """Type of its messages, such as `FIFO`; empty if it is not restricted."""
        return self.attributes.get(MESSAGE_TYPE, "")


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of a consumer group at the brokers that have it."""

    name: str
    brokers: tuple[GroupBroker, ...]
    """Sorted by broker name."""


@dataclass(frozen=True, slots=True)
class ProducerGroup:
    """A producer group with live members."""

    name: str
    members: tuple[ProducerConnection, ...]
    """Sorted by client id."""


@dataclass(frozen=True, slots=True)
class MessageConsumer:
    """Position of a consumer group relative to one message."""

    group: str
    committed_offset: int | None
    """Next offset to read in the queue of the message, as stored by the broker; None without a commit."""
    is_past: bool
    """Whether that offset is after the message. A group that filters by tags may have skipped the message."""


@dataclass(frozen=True, slots=True)
class QueueDelay:
    """Delay of a consumer group in one queue."""

    queue: MessageQueue
    behind_seconds: float
    """Age of the next message to consume, by the clock of the broker; 0.0 if nothing is left."""
    last_consumed_at: datetime | None
    """Time at which the last consumed message was stored; None without one."""
    newest_at: datetime | None
    """Time at which the newest message was stored; None without messages."""


@dataclass(frozen=True, slots=True)
class CountRate:
    """Counts of a broker in windows that end now."""

    per_second: float
    """Over the last minute."""
    last_minute: int
    last_hour: int
    last_day: int


@dataclass(frozen=True, slots=True)
class TrafficRate:
    """Messages and bytes that brokers stored or delivered. Minimums if `missing` has brokers."""

    messages: CountRate
    bytes: CountRate
    missing: tuple[MissingBroker, ...] = ()
    """Brokers that did not answer."""

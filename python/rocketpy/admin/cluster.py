"""What administration tells of topics, groups and brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from rocketpy.message import MessageQueue

__all__ = [
    "BrokerInfo",
    "GroupInfo",
    "GroupMember",
    "ProducerConnection",
    "QueueInfo",
    "QueueLag",
    "TopicBroker",
    "TopicInfo",
]


@dataclass(frozen=True, slots=True)
class TopicBroker:
    """A topic's part at one broker."""

    broker_name: str
    cluster: str
    addresses: dict[int, str]
    """`host:port` by broker id; 0 is the master."""
    read_queues: int
    write_queues: int
    readable: bool
    writable: bool
    attributes: dict[str, str]
    """Attributes of the topic by name; empty where the broker cannot be asked (Apache's before 5.0)."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """What one queue holds."""

    queue: MessageQueue
    min_offset: int
    """Offset of the oldest message."""
    max_offset: int
    """Offset after the newest message."""
    last_stored_at: datetime | None
    """When the newest message was stored; None without messages."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic with its brokers and queues."""

    name: str
    brokers: tuple[TopicBroker, ...]
    queues: tuple[QueueInfo, ...]
    """Sorted."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group."""

    name: str
    members: tuple[str, ...]
    """Client ids of the members that are there now, sorted."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A live member of a consumer group."""

    client_id: str
    address: str
    """`host:port` of its end of the connection."""
    language: str
    """The language of its client."""
    subscriptions: dict[str, str] | None
    """Tags by topic; None where the broker does not tell it (Apache's)."""
    differs: bool
    """Whether it subscribes to something else than most members. Without a majority every member differs.

    Members share the queues of a topic: where they want different things, each misses messages.
    """
    version: int
    """The version that its client announces, by Apache's numbers: 479 is 5.3.3."""


@dataclass(frozen=True, slots=True)
class ProducerConnection:
    """A live member of a producer group."""

    client_id: str
    address: str
    """`host:port` of its end of the connection."""
    language: str
    """The language of its client."""
    version: int
    """The version that its client announces, by Apache's numbers: 479 is 5.3.3."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far a group is in one queue."""

    queue: MessageQueue
    committed_offset: int | None
    """Next offset to read, as the broker has it stored; None when the group committed nothing."""
    max_offset: int
    """Offset after the newest message."""
    lag: int
    """Messages after the stored commit."""
    last_consumed_at: datetime | None
    """When the last consumed message was stored; None when there is none."""
    held: int
    """Of `lag`, the messages that live members have fetched and not committed."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker of the cluster."""

    broker_name: str
    cluster: str
    addresses: dict[int, str]
    """`host:port` by broker id; 0 is the master."""

"""Values of administration calls: topics, groups and brokers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from rocketpy.admin.answers import MissingBroker
    from rocketpy.message import MessageQueue

__all__ = [
    "BrokerHealth",
    "BrokerInfo",
    "GroupBroker",
    "GroupInfo",
    "GroupMember",
    "ProducerConnection",
    "QueueInfo",
    "QueueLag",
    "TopicBroker",
    "TopicInfo",
]

MASTER_ID = 0
"""Broker id of a master."""


@dataclass(frozen=True, slots=True)
class TopicBroker:
    """Queues and permissions of a topic at one broker."""

    broker_name: str
    cluster: str
    addresses: dict[int, str]
    """`host:port` by broker id; 0 is the master."""
    read_queues: int
    write_queues: int
    readable: bool
    writable: bool
    attributes: dict[str, str]
    """Attributes of the topic by name; empty if the broker does not report them (Apache's before 5.0)."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """Offsets of one queue."""

    queue: MessageQueue
    min_offset: int
    """Offset of the oldest message."""
    max_offset: int
    """Offset after the newest message."""
    last_stored_at: datetime | None
    """Time at which the newest message was stored; None without messages."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic with its brokers and queues."""

    name: str
    brokers: tuple[TopicBroker, ...]
    queues: tuple[QueueInfo, ...]
    """Sorted."""
    put_rate: float = field(default=0.0, compare=False)
    """Messages stored per second over the last minute, as the brokers report it; 0 where they do not."""
    missing: tuple[MissingBroker, ...] = ()
    """Brokers that did not answer, whose queues are left out; see `partial` of `Admin.describe_topic`."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group."""

    name: str
    members: tuple[str, ...]
    """Client ids of the live members, sorted."""


@dataclass(frozen=True, slots=True)
class GroupBroker:
    """Settings of a consumer group at one broker, by the names of `Admin.update_group`."""

    broker_name: str
    address: str
    """`host:port` of the master."""
    enabled: bool
    """Whether the group may read."""
    broadcast: bool
    """Whether members may broadcast: each reads all messages."""
    retries: int
    """Number of retries before a message becomes a dead letter; -1: the number of the client."""
    retry_queues: int
    """Number of queues of the retry topic when it is created; 0: failed messages are dropped."""
    notify_members: bool
    """Whether brokers notify members at once when one joins or leaves."""
    ordered: bool
    """Label of groups that read in order. RocketPy's brokers only store it."""
    timeout_minutes: int
    """Minutes for one message. RocketPy's brokers only store it."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A live member of a consumer group."""

    client_id: str
    address: str
    """`host:port` of the client end of the connection."""
    language: str
    """Language of the client."""
    subscriptions: dict[str, str] | None
    """Tags by topic; None if the broker does not report them (Apache's)."""
    differs: bool
    """Whether the subscriptions differ from those of the majority. Without a majority every member differs.

    Members share the queues of a topic: with different subscriptions, each misses messages.
    """
    version: int
    """Version of the client, by Apache's numbers: 479 is 5.3.3."""


@dataclass(frozen=True, slots=True)
class ProducerConnection:
    """A live member of a producer group."""

    client_id: str
    address: str
    """`host:port` of the client end of the connection."""
    language: str
    """Language of the client."""
    version: int
    """Version of the client, by Apache's numbers: 479 is 5.3.3."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """Progress of a group in one queue."""

    queue: MessageQueue
    committed_offset: int | None
    """Next offset to read, as stored by the broker; None without a commit."""
    max_offset: int
    """Offset after the newest message."""
    lag: int
    """Number of messages after the stored commit."""
    last_consumed_at: datetime | None
    """Time at which the last consumed message was stored; None without one."""
    held: int
    """Number of messages in `lag` that live members have fetched and not committed."""


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """Health of a broker, as it reports it."""

    ready: bool
    """Whether clients should use the broker now."""
    alive: bool
    """Whether the broker makes progress; otherwise a restart may help."""
    problems: tuple[str, ...]
    """Failing checks, each with its cause, such as `draining: brokerPermission is 4`."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker of the cluster."""

    broker_name: str
    cluster: str
    addresses: dict[int, str]
    """`host:port` by broker id; 0 is the master."""


def message_count(queues: Iterable[QueueInfo]) -> int:
    """Number of messages that queues hold.

    Args:
        queues: Queues of a topic, from `TopicInfo.queues`.
    """
    return sum(one.max_offset - one.min_offset for one in queues)

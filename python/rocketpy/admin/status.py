"""Values of status calls: brokers, groups and topics at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from rocketpy.admin.answers import MissingBroker

__all__ = ["BrokerStatus", "ClusterStatus", "GroupStatus", "TopicStatus", "WaitingRetries"]


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """Figures of one broker. Each figure is None if the broker did not answer or does not report it."""

    cluster: str
    broker_name: str
    broker_id: int
    """0 is the master."""
    address: str
    version: str | None
    """Version of the protocol, by Apache's names: `V5_3_3`."""
    disk_used: float | None
    """Used part of the disk of the commit log, from 0 to 1."""
    in_per_second: float | None
    """Messages stored per second, over the last 10 s."""
    out_per_second: float | None
    """Messages given to consumers per second, over the last 10 s."""
    messages_in: int | None
    """Number of messages stored since the start of the broker."""
    timers: int | None
    """Number of messages that wait for their delivery time; Apache's brokers do not report it."""
    error: str | None
    """Reason why the broker reported nothing; None if it answered."""
    answered_at: datetime | None = None
    """Time of its last answer to this client; None without one."""
    rocketpy_version: str | None = None
    """Version of RocketPy; None for a broker of Apache, or one that does not report it."""
    problems: tuple[str, ...] = ()
    """Failing checks, each with its cause, such as `draining: brokerPermission is 4`, as in `Admin.ping`."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Progress of a consumer group. Each figure is None if it is unknown, and `error` has the reason.

    Figures are minimums if `missing` has brokers: those may have further queues of the group.
    """

    name: str
    members: int
    """Number of live members."""
    topics: tuple[str, ...] | None
    """Topics with offsets of the group, sorted."""
    lag: int | None
    """Number of messages after the stored commits, without the retry topic."""
    retries: int | None
    """Number of messages in the retry topic that are due again and not committed."""
    dead_letters: int | None
    """Number of stored dead letters."""
    error: str | None = None
    """Reason why the figures are unknown; None if they are known."""
    missing: tuple[str, ...] = ()
    """Names of the brokers that did not answer."""


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """Messages and readers of a topic. Figures are minimums if `missing` has brokers."""

    name: str
    messages: int | None
    """Number of messages that can be read, whether consumed or not; None if it is unknown."""
    per_second: float | None
    """Messages stored per second, over the last minute; None if it is unknown."""
    groups: tuple[str, ...] | None
    """Known consumer groups with offsets in the topic, sorted; None if all are unknown."""
    error: str | None = None
    """Reason why figures or groups are unknown; None if they are known."""
    missing: tuple[str, ...] = ()
    """Names of the brokers that did not answer."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Brokers, groups and waiting messages of a cluster."""

    brokers: tuple[BrokerStatus, ...]
    """Sorted by name and id."""
    topics: int | None
    """Number of topics, including system topics; None if it is unknown."""
    groups: tuple[GroupStatus, ...] | None
    """Sorted by name; None if they are unknown."""
    delayed: int | None
    """Number of messages, including retries, whose delay level has not ended; None if it is unknown."""
    errors: tuple[str, ...]
    """Reasons why a part or a group is unknown, without those of `brokers` and `missing`."""
    missing: tuple[MissingBroker, ...] = ()
    """Brokers that did not answer: groups and delayed messages are those of the others. Sorted by name."""


@dataclass(frozen=True, slots=True)
class WaitingRetries:
    """Messages of a group that wait for the delay before their next delivery."""

    messages: int
    """Number of messages."""
    next_at: datetime | None
    """Earliest time of a next delivery; None without messages."""
    is_complete: bool
    """Whether all delayed messages were read; if not, `messages` is a minimum."""
    missing: tuple[MissingBroker, ...] = ()
    """Brokers that did not answer."""

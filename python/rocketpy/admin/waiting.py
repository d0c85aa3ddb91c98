"""Values of calls about messages that wait: for their delivery time, or for the end of their transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from rocketpy.admin.answers import MissingBroker

__all__ = ["OpenTransaction", "OpenTransactions", "WaitingMessage", "WaitingMessages"]


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that waits for its delivery time."""

    topic: str
    """Topic of the delivery; the retry topic of a group for a failed message."""
    due_at: datetime | None
    """Delivery time; None for one outside of the range of a datetime."""
    kind: str
    """`delay` for a delay level, `timer` for a time of its own."""
    size: int
    """Size of the body in bytes; 0 for a body that does not decompress."""
    stored_at: datetime | None
    """Time at which the message was stored."""
    msg_id: str
    broker_name: str


@dataclass(frozen=True, slots=True)
class WaitingMessages:
    """Messages that wait for their delivery time. Numbers are minimums if `missing` has brokers."""

    total: int | None
    """Number of messages; None if it is unknown."""
    in_minute: int | None
    """Number of messages due within a minute; None if it is unknown, as where not all timers were read."""
    in_hour: int | None
    """Number of messages due within an hour."""
    in_day: int | None
    """Number of messages due within a day."""
    messages: tuple[WaitingMessage, ...]
    """First messages by delivery time."""
    is_complete: bool
    """Whether all timers were read; if not, further messages may be due before those of `messages`."""
    missing: tuple[MissingBroker, ...] = ()
    """Brokers that did not answer."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without an end: its half message waits for the producer."""

    topic: str
    """Topic of the message after the commit."""
    producer_group: str
    """Group whose members decide; empty if the message does not name it."""
    sent_at: datetime | None
    """Time at which the producer sent it, by the clock of the producer."""
    age_seconds: float
    """Age since then, by the clock of this machine; never below 0."""
    checks: int
    """Number of times that the broker asked the producer; 0 for a broker that does not store it."""
    size: int
    """Size of the body in bytes; 0 for a body that does not decompress."""
    msg_id: str
    broker_name: str


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Transactions without an end."""

    total: int | None
    """Number of transactions; None if it is unknown. A minimum if `missing` has brokers."""
    transactions: tuple[OpenTransaction, ...]
    """Oldest transactions, the oldest first."""
    is_complete: bool
    """Whether all half messages were read; if not, further transactions may be open."""
    missing: tuple[MissingBroker, ...] = ()
    """Brokers that did not answer."""

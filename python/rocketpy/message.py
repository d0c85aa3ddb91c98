"""Messages, queues and receipts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy._rocketpy import Message, ReceivedMessage
from rocketpy.base.misuse import explained_attribute

if TYPE_CHECKING:
    from rocketpy.config import SendStatus

__all__ = ["Message", "MessageQueue", "Receipt", "ReceivedMessage"]
__test__ = {"Message": Message.__doc__}
"""Examples of classes that are not written in Python, for doctest."""


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """Queue of a topic at one broker. Sorted as in Apache's clients: by topic, broker name and number.

    Examples:
        >>> str(MessageQueue("flights", "broker-a", 3))
        'flights@broker-a#3'
    """

    topic: str
    """Topic of the queue."""
    broker_name: str
    """Name of its broker."""
    queue_id: int
    """Number of the queue, from 0."""

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}#{self.queue_id}"


class _Unread:
    """Unread receipt: its values are created at the first access."""

    __slots__ = ("_outcome",)

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> object:
            if name != "_outcome" and (outcome := getattr(self, "_outcome", None)) is not None:
                outcome.fill(self)
            return explained_attribute(self, name, ("queue.queue_id", "queue.topic"))


@dataclass(frozen=True, slots=True)
class Receipt(_Unread):
    """The broker's acknowledgement of one message."""

    status: SendStatus
    """Durability of the message; `SendStatus.SEND_OK` unless the broker reports another status."""
    msg_id: str
    """Unique key of the message, set by the producer: `ReceivedMessage.msg_id` of the same message."""
    offset_msg_id: str
    """Offset message id: store host and physical offset, in hexadecimal."""
    queue: MessageQueue
    """Target queue of the message."""
    queue_offset: int
    """Queue offset of the message, from 0.

    For a message that waits for its delivery time or the end of its transaction, the offset in the broker's internal
    queue. The message gets an offset in `queue` when it is delivered.
    """
    recall_handle: str | None = None
    """Handle for `Producer.recall` of a message that waits for its delivery time (`delay=` or `deliver_at=`).

    None for a message with a `delay_level`, and if the delivery time had passed when the message was stored.
    """

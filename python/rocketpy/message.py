"""Messages, queues and receipts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy._rocketpy import Message, ReceivedMessage

if TYPE_CHECKING:
    from rocketpy.config import SendStatus

__all__ = ["Message", "MessageQueue", "Receipt", "ReceivedMessage"]
__test__ = {"Message": Message.__doc__}
"""Examples of classes that are not written in Python, for doctest."""


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic at one broker. Sorts as Apache's clients sort: topic, broker name, number.

    Examples:
        >>> str(MessageQueue("flights", "broker-a", 3))
        'flights@broker-a#3'
    """

    topic: str
    """Topic of the queue."""
    broker_name: str
    """Broker that holds it."""
    queue_id: int
    """Its number, from 0."""

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}#{self.queue_id}"


class _Unread:
    """A receipt that nobody has looked at has no more than a status: the rest is made when first asked for."""

    __slots__ = ("_outcome",)

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> object:
            if name != "_outcome" and (outcome := getattr(self, "_outcome", None)) is not None:
                outcome.fill(self)
            return object.__getattribute__(self, name)


@dataclass(frozen=True, slots=True)
class Receipt(_Unread):
    """The broker's acknowledgement of one message."""

    status: SendStatus
    """How far the message got; `SendStatus.SEND_OK` unless the broker says otherwise."""
    msg_id: str
    """Unique key of the message, made by the producer: `ReceivedMessage.msg_id` of the same message."""
    offset_msg_id: str
    """Id by place: store host and physical offset, in hexadecimal."""
    queue: MessageQueue
    """The queue that the message is for."""
    queue_offset: int
    """The message's entry in the queue, from 0.

    Of one that waits (for its time, for the end of its transaction), its entry in the broker's queue of such messages:
    in `queue` it gets another when it is delivered.
    """
    recall_handle: str | None = None
    """Of a message that waits for its time (`delay=` or `deliver_at=`): what `Producer.recall` takes it back by.

    None for one with a `delay_level`, and for one whose time was over when it was stored.
    """

"""Rows of messages: what a list shows of a message, made in a thread because bodies are decoded and filtered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketpy.base.clock import monotonic
from rocketpy.console.bodies import HIDDEN, preview
from rocketpy.console.filters import Candidate
from rocketpy.console.masking import Mask
from rocketpy.errors import DamagedDataError, MessageTooLargeError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.console.filters import Filter

__all__ = ["Choice", "MessageRow", "Seen", "row_of", "seen_of", "size_of"]

UNREADABLE = (DamagedDataError, MessageTooLargeError)
KEYS, TAGS = "KEYS", "TAGS"


@dataclass(frozen=True, slots=True)
class MessageRow:
    """Row of a list of messages."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int
    """Queue offset."""
    stored_at: datetime | None
    keys: tuple[str, ...]
    tag: str | None
    msg_id: str
    size: int
    """Length of the body as stored, in bytes."""
    preview: str | None
    """First 200 characters of the body; None where bodies are hidden."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages a list shows, and how."""

    tested: Filter | None = None
    tag: str | None = None
    mask: Mask = field(default_factory=Mask)
    has_bodies: bool = True
    """Whether rows have the begin of the body."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Message that was read."""

    offset: int
    stored_ms: int
    row: MessageRow | None
    """None for a message that the choice leaves out."""


def size_of(message: ReceivedMessage) -> int:
    """Length of the body in bytes, decompressed; 0 for an unreadable one."""
    try:
        return len(message.body_view)
    except UNREADABLE:
        return 0


def row_of(message: ReceivedMessage, choice: Choice) -> MessageRow:
    """Row of a message, whether or not it matches."""
    mask = choice.mask
    try:
        body = message.body_view
        size = len(body)
        shown = preview(body, mask) if choice.has_bodies else None
    except UNREADABLE as error:
        size, shown = 0, f"cannot decode the body: {type(error).__name__}"
    return MessageRow(
        topic=message.topic,
        broker_name=message.broker_name,
        queue_id=message.queue_id,
        offset=message.queue_offset,
        stored_at=message.stored_at,
        keys=tuple(HIDDEN for _ in message.keys[:1]) if KEYS in mask.names else message.keys,
        tag=message.tag if message.tag is None or TAGS not in mask.names else HIDDEN,
        msg_id=message.msg_id,
        size=size,
        preview=shown,
    )


def matches(message: ReceivedMessage, choice: Choice) -> bool:
    """Whether a message passes the tag and the filter. A body that cannot be decoded has no fields."""
    if choice.tag is not None and message.tag != choice.tag:
        return False
    if choice.tested is None:
        return True

    def body() -> bytes:
        try:
            return message.body
        except UNREADABLE:
            return b""

    return choice.tested.matches(Candidate(message.tag, message.keys, message.properties, body))


def seen_of(messages: Sequence[ReceivedMessage], choice: Choice, deadline: float) -> list[Seen]:
    """Tests messages and makes their rows. Runs in a thread.

    Args:
        messages: Messages of one queue.
        choice: Which messages get a row.
        deadline: Time of the monotonic clock at which it ends.

    Raises:
        TimeoutError: The deadline has passed.
    """
    found: list[Seen] = []
    for message in messages:
        if monotonic() > deadline:  # before each: a body of 4 MiB takes its time
            raise TimeoutError
        try:
            row = row_of(message, choice) if matches(message, choice) else None
            found.append(Seen(message.queue_offset, message.stored_at_ms, row))
        except DamagedDataError:  # the record itself: nothing of it can be shown
            continue
    return found

"""Copies of stored messages, as a resend, a replay or an import sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy import _rocketpy
from rocketpy.errors import MessageTooLargeError, RocketPyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketpy._rocketpy import Message
    from rocketpy.config import ProducerOptions

__all__ = ["COPY_LIMITS", "copy_of", "is_rejected"]

COPY_LIMITS: ProducerOptions = {"max_message_size": 1 << 30}
"""Options of producers of copies: the broker alone decides whether it accepts a stored size."""

KEPT = ("TAGS", "KEYS", "__SHARDINGKEY")
"""Reserved properties that a copy keeps: tag, keys and order key."""
MESSAGE_ILLEGAL = 13
"""Response code of a broker for a message that it can never accept."""


def copy_of(
    topic: str,
    body: bytes,
    flag: int,
    stored: Mapping[str, str],
    *,
    defaults: Mapping[str, str],
    marks: Mapping[str, str] | None = None,
) -> Message:
    """Creates a copy of a stored message: tag, keys, order key and own properties as stored.

    Rules of new messages do not apply: a foreign producer may have stored a tag or a property that `Message` rejects.

    Args:
        topic: Target topic.
        body: Body of the message.
        flag: Flag of the message.
        stored: All properties of the message.
        defaults: Properties to add if the message does not have them.
        marks: Properties to set.

    Raises:
        InvalidArgumentError: The topic is not a valid name.
    """
    own = {name: value for name, value in stored.items() if name in KEPT or not _rocketpy.is_reserved_property(name)}
    return _rocketpy.message_copy(topic, body, flag, list({**defaults, **own, **(marks or {})}.items()))


def is_rejected(error: Exception) -> bool:
    """Whether an error says that the broker can never accept the message, for its size or its form.

    Args:
        error: Error of a send.
    """
    return isinstance(error, MessageTooLargeError) or (
        isinstance(error, RocketPyError) and error.code == MESSAGE_ILLEGAL
    )

"""Dead letters: messages that a group failed to process too often, and their resend."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketpy.admin.cluster import message_count
from rocketpy.base.clock import monotonic
from rocketpy.base.instant import instant_ms
from rocketpy.base.names import check_type
from rocketpy.errors import InvalidArgumentError, RocketPyError
from rocketpy.producing.copies import copy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from rocketpy._rocketpy import Message, ReceivedMessage
    from rocketpy.admin.answers import TopicTotals
    from rocketpy.config import Instant
    from rocketpy.message import Receipt

__all__ = ["DeadLetter", "DeadLetterFilter", "DeadLetterGroup", "Resent"]

PREFIX = "%DLQ%"
SHORT_ERROR = 100
"""Number of characters of an error in the text of a dead letter."""
RESENDER = "rocketpy-dead-letters"
"""Producer group that resends."""
RESENT_FROM, ORIGIN_TOPIC, ORIGIN_ID = "rocketpyResentFrom", "rocketpyOriginTopic", "rocketpyOriginMsgId"
"""Properties of a resent message: the topic of dead letters, the topic of origin, and the `msg_id` there."""


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """A consumer group that has dead letters."""

    group: str
    count: int
    oldest_at: datetime | None
    """Time at which the oldest dead letter was stored; None if unknown."""
    newest_at: datetime | None
    """Time at which the newest dead letter was stored."""
    newest_error: str | None = None
    """Error of the newest dead letter; None if unknown."""
    resent: int | None = None
    """Number of dead letters whose original topic has the resent copy; None if unknown."""
    resent_error: str | None = None
    """Error of the look-up of resent copies; None if it did not fail."""


@dataclass(frozen=True, slots=True, repr=False)
class DeadLetter:
    """A message that its group gave up on."""

    group: str
    message: ReceivedMessage
    """The message in the dead-letter topic. `stored_at` is the time of the move, `msg_id` the id of the original
    send."""

    @property
    def topic(self) -> str | None:
        """Original topic of the message; None if unknown."""
        properties = self.message.properties
        return properties.get("DLQ_ORIGIN_TOPIC") or properties.get("RETRY_TOPIC") or None

    @property
    def reason(self) -> str | None:
        """`RETRIES_EXHAUSTED`, or `GIVEN_UP` if its consumer requested no retry; None if unknown.

        Apache's brokers do not record it. It is also unknown if the client itself sent the message to the retry topic.
        """
        return self.message.properties.get("DLQ_REASON")

    @property
    def error(self) -> str | None:
        """Type and text of the last exception of the handler, or of `Reject`; None if unknown.

        Push consumers of RocketPy report it, unless `dead_letter_error` is False. Apache's brokers do not store it.
        """
        return self.message.properties.get("DLQ_ERROR")

    def __repr__(self) -> str:
        error = self.error
        if error is not None and len(error) > SHORT_ERROR:
            error = f"{error[:SHORT_ERROR]}..."
        return f"DeadLetter(group={self.group!r}, reason={self.reason!r}, error={error!r}, message={self.message!r})"

    @property
    def resent_id(self) -> str:
        """The `msg_id` of this dead letter when it is resent: the same each time, so that the copy is found again."""
        place = f"{self.message.queue}\n{self.message.queue_offset}\n{self.message.msg_id}"
        return hashlib.sha256(place.encode()).hexdigest()[:32].upper()

    def again(self, topic: str) -> Message:
        """Message for the resend, with body, tag, keys, order key and own properties as stored.

        The origin properties name the first send, even if the message has died before.

        Raises:
            DamagedDataError: The body does not decompress.
            MessageTooLargeError: The decompressed body exceeds its maximum size.
        """
        message = self.message
        return copy_of(
            topic,
            message.body,
            message.flag,
            message.properties,
            defaults={ORIGIN_TOPIC: self.topic or topic, ORIGIN_ID: message.msg_id},
            marks={RESENT_FROM: message.topic},
        )


@dataclass(frozen=True, slots=True)
class Resent:
    """Outcome of the resend of a dead letter."""

    letter: DeadLetter
    topic: str | None
    """Target topic; None if the original topic is unknown, so the dead letter was not sent."""
    receipt: Receipt | None
    """Receipt of the send; None if it was not sent: its copy exists, `topic` is None, or it was rejected."""
    rejected: RocketPyError | None = None
    """Reason why the copy can never be sent, such as its size, a deleted original topic, or a body that does not
    decompress; None if it was not rejected."""


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Filter of dead letters; all given conditions must hold."""

    topic: str | None = None
    """Original topic."""
    since: Instant | None = None
    """Dead letters stored at or after this time."""
    until: Instant | None = None
    """Dead letters stored before this time."""
    key: str | None = None
    """Key of the message."""
    msg_id: str | None = None
    """Id of the message."""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    """Properties of the message, by name."""

    def matcher(self) -> Callable[[DeadLetter], bool]:
        """Builds a predicate for this filter. Relative times count from this call.

        Raises:
            InvalidArgumentError: A time is invalid.
        """
        since = None if self.since is None else instant_ms(self.since)
        until = None if self.until is None else instant_ms(self.until)

        def is_meant(letter: DeadLetter) -> bool:
            message = letter.message
            return (
                (self.topic is None or letter.topic == self.topic)
                and (since is None or message.stored_at_ms >= since)
                and (until is None or message.stored_at_ms < until)
                and (self.key is None or self.key in message.keys)
                and (self.msg_id is None or message.msg_id == self.msg_id)
                and all(message.properties.get(name) == value for name, value in self.properties.items())
            )

        return is_meant


def topic_of(group: str) -> str:
    """Dead-letter topic of a group."""
    return PREFIX + group


class Pace:
    """Limits a rate of messages per second.

    Raises:
        TypeError: The rate is not a number.
        InvalidArgumentError: The rate is not above 0.
    """

    def __init__(self, rate: float | None) -> None:
        check_type("rate", rate, float | int | None, "a number of messages per second")
        if rate is not None and not rate > 0:
            raise InvalidArgumentError(f"rate must be more than 0 messages per second, not {rate}")
        self._pause = 0.0 if rate is None else 1 / rate
        self._next_at = 0.0

    def next(self) -> float:
        """Seconds until the next message may be sent."""
        now = monotonic()
        at = max(now, self._next_at)
        self._next_at = at + self._pause
        return at - now


def group_of(topic: TopicTotals, firsts: list[ReceivedMessage], lasts: list[ReceivedMessage]) -> DeadLetterGroup:
    """Group and counts of a dead-letter topic.

    Args:
        topic: The topic.
        firsts: The oldest message of each of its queues.
        lasts: The newest message of each of its queues.
    """
    group = topic.name.removeprefix(PREFIX)
    newest = max(lasts, key=lambda message: message.stored_at_ms, default=None)
    return DeadLetterGroup(
        group,
        message_count(topic.queues),
        min((message.stored_at for message in firsts if message.stored_at), default=None),
        max((info.last_stored_at for info in topic.queues if info.last_stored_at), default=None),
        None if newest is None else DeadLetter(group, newest).error,
    )


def matcher_of(group: str, which: DeadLetterFilter | None) -> Callable[[DeadLetter], bool]:
    """Builds a predicate for dead letters of a group."""
    check_type("group", group, str, "text")
    check_type("which", which, DeadLetterFilter | None, "a DeadLetterFilter")
    return (which or DeadLetterFilter()).matcher()

"""Handlers of push consumers, and their exceptions."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any

from rocketpy.base.failure import loggable, safe_text, text_of
from rocketpy.base.names import check_type
from rocketpy.base.text import printable
from rocketpy.config import duration_seconds
from rocketpy.errors import DecodeError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketpy._rocketpy import ReceivedMessage, Work
    from rocketpy.config import Duration, Tags

logger = logging.getLogger("rocketpy.client")

THREADS, TASKS = 0, 1
"""Lanes of handlers: called in threads, or run as tasks."""


class Retry(Exception):  # a handler's choice, no error
    """Raised by a handler: its message is redelivered, as after any other exception, but after a chosen delay.

    Logged as information, unless it was raised from another exception or the message becomes a dead letter.

    Args:
        reason: Reason, for the log.
        after: Delay in seconds, or a timedelta. Brokers support the delays 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min,
            30 min, 1 h and 2 h; the shortest of them that is not shorter than `after` applies. With `ordered` the delay
            is exact. Default None: the delay after any other exception.
        delay_level: Delay level of the broker, from 1, in place of `after`: for brokers with other delays.

    Examples:
        >>> import rocketpy
        >>> raise rocketpy.Retry("the bank sleeps", after=60)
        Traceback (most recent call last):
        rocketpy.consuming.handlers.Retry: the bank sleeps
    """

    def __init__(self, reason: str = "", *, after: Duration | None = None, delay_level: int | None = None) -> None:
        super().__init__(reason)
        check_type("delay_level", delay_level, int | None, "an int")
        if delay_level is not None and (isinstance(delay_level, bool) or delay_level < 1):
            raise InvalidArgumentError(f"delay_level must be 1 or more, not {delay_level!r}")
        self.after = None if after is None else duration_seconds("after", after)
        self.delay_level = delay_level


class Reject(Exception):
    """Raised by a handler: its message is moved to the dead letters of the group, and is not redelivered.

    The dead letter carries the text: `rocketpy dlq show` prints it.

    Examples:
        >>> import rocketpy
        >>> raise rocketpy.Reject("no such order: A-17")
        Traceback (most recent call last):
        rocketpy.consuming.handlers.Reject: no such order: A-17
    """


class Handler:
    """Handler of a topic with its subscription."""

    __slots__ = ("batch", "decode", "function", "is_async", "sql", "tags")

    def __init__(
        self,
        function: Callable[..., Any],
        tags: Tags,
        sql: str | None,
        batch: int | None,
        decode: Callable[[ReceivedMessage], Any] | None,
    ) -> None:
        self.function = function
        self.tags, self.sql = tags, sql
        self.batch = batch
        self.decode = decode
        self.is_async = is_async(function)

    @property
    def lane(self) -> int:
        """Lane of the handler."""
        return TASKS if self.is_async else THREADS


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function, or an object that can be called, is an `async def`."""
    call = getattr(function, "__call__", None)  # noqa: B004  # of an object that can be called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def refuse_awaitable(result: object, name: str = "the handler") -> None:
    """Refuses the result of a handler or callback that looks like a plain function but has not run."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(f"{name} returned a generator, which is not run: write it without `yield`")
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"{name} returned an awaitable, which is not awaited: write it as `async def`")


def reason_of(error: BaseException, messages: list[ReceivedMessage]) -> str:
    """Type and text of an error for the log and for dead letters: one line, without the bodies of the messages."""
    text = safe_text(text_of(error), messages)
    if isinstance(error, Retry) and error.__cause__ is not None:
        text = f"{text} (from {safe_text(text_of(error.__cause__), messages)})"
    return text


def failed(work: Work, messages: list[ReceivedMessage], error: BaseException) -> None:
    """Decides the outcome of messages whose handler raised, and logs the reason, with a traceback for the last try."""
    others = f" and {len(messages) - 1} others" if len(messages) > 1 else ""
    reason, is_wanted = reason_of(error, messages), False
    if isinstance(error, Reject):
        did, outcome = "rejected", work.fail(reject=True, reason=reason)
    elif isinstance(error, DecodeError) and [error.message] == messages:
        did, outcome = "cannot decode", work.fail(reject=True, reason=reason)  # nor can any retry
    elif isinstance(error, Retry):
        did, outcome = "put off", work.fail(error.after, error.delay_level, reason=reason, chosen=True)
        is_wanted = error.__cause__ is None
    else:
        did, outcome = "failed for", work.fail(reason=reason)
    fate, is_redelivered = outcome or ("was withdrawn before, because the handler did not return in time", True)
    if is_wanted and outcome is not None and is_redelivered:
        text = "handler of topic %s wants message %s later, which %s: %.512s"
        logger.info(text, work.topic, f"{printable(messages[0].msg_id)}{others}", fate, reason)
        return
    text = "handler of topic %s %s message %s, which %s: %.512s"
    which = (work.topic, did, f"{printable(messages[0].msg_id)}{others}", fate, reason)
    logger.warning(text, *which, exc_info=None if is_redelivered else loggable(error, messages))

"""Handlers of push consumers, and their exceptions."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any

from rocketpy.base.names import check_type
from rocketpy.config import duration_seconds
from rocketpy.console.terminal import printable
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

    Not logged as an error, unless it was raised from another exception.

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


def text_of(error: BaseException) -> str:
    """Text of an error, even if its own conversion raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def failed(work: Work, messages: list[ReceivedMessage], error: BaseException) -> None:
    """Decides the outcome of messages whose handler raised, and logs the reason."""
    others = f" and {len(messages) - 1} others" if len(messages) > 1 else ""
    which, reason = (work.topic, f"{printable(messages[0].msg_id)}{others}"), text_of(error)
    if isinstance(error, Reject):
        level, did, fate = logging.WARNING, "rejected", work.fail(reject=True, reason=reason)
    elif isinstance(error, DecodeError) and [error.message] == messages:
        fate = work.fail(reject=True, reason=reason)  # nor can any retry
        level, did = logging.ERROR, "cannot decode"
    elif isinstance(error, Retry):
        fate = work.fail(error.after, error.delay_level)
        if fate is not None and error.__cause__ is None:
            logger.info("handler of topic %s wants message %s later, which %s: %s", *which, fate, error)
            return
        level, did = logging.WARNING, "put off"
    else:
        level, did, fate = logging.ERROR, "failed for", work.fail(reason=reason)
    text = "handler of topic %s %s message %s, which %s"
    fate = fate or "was taken from it before, because it did not return in time"
    logger.log(level, text, which[0], did, which[1], fate, exc_info=error)

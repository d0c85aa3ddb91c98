"""Handlers of push consumers, and their exceptions."""

from __future__ import annotations

import inspect
import logging
import types
from typing import TYPE_CHECKING, Any

from rocketpy.base.clock import monotonic
from rocketpy.base.failure import loggable, safe_text, text_of
from rocketpy.base.names import check_type
from rocketpy.base.text import printable
from rocketpy.config import duration_seconds
from rocketpy.errors import DecodeError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rocketpy._rocketpy import ReceivedMessage, Work
    from rocketpy.config import Duration, Tags

logger = logging.getLogger("rocketpy.client")

THREADS, TASKS = 0, 1
"""Lanes of handlers: called in threads, or run as tasks."""
BLOCK_SECONDS = 0.1
"""Time without an `await` from which an async handler is reported: that of slow callbacks in asyncio's debug mode."""


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

    __slots__ = ("batch", "decode", "function", "has_blocked", "has_returned_a_value", "is_async", "sql", "tags")

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
        self.has_blocked = self.has_returned_a_value = False

    def check_result(self, result: object, topic: str) -> None:
        """Refuses the result of a call that has not run. Warns of the first value other than None, which is ignored.

        Args:
            result: Value that a plain handler returned.
            topic: Topic of the handler, for the log.

        Raises:
            TypeError: The result is an awaitable or a generator.
        """
        refuse_awaitable(result)
        if result is not None:
            self._note_value(result, topic)

    @types.coroutine
    def run(self, given: ReceivedMessage | list[ReceivedMessage], topic: str) -> Generator[Any, Any, None]:
        """Awaits an async handler. Warns of its first value other than None, and of the first time it blocks its loop.

        The time from one `await` of the handler to the next is that for which it blocks.

        Args:
            given: The message, or the batch.
            topic: Topic of the handler, for the log.

        Raises:
            RuntimeError: The handler raised GeneratorExit, which otherwise tells that its loop dropped the task.
            BaseException: The handler raised it.
        """
        coroutine, error = self.function(given), None
        while True:
            began = monotonic()
            try:
                awaited = coroutine.send(None) if error is None else coroutine.throw(error)
            except StopIteration as end:
                if end.value is not None:
                    self._note_value(end.value, topic)
                return
            except GeneratorExit as raised:
                raise RuntimeError("the handler raised GeneratorExit") from raised
            finally:
                error = None  # its traceback has this frame
                if (took := monotonic() - began) >= BLOCK_SECONDS:
                    self._note_block(took, topic)
            try:
                yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:  # such as CancelledError
                error = thrown

    def _note_value(self, result: object, topic: str) -> None:
        if self.has_returned_a_value:
            return
        self.has_returned_a_value = True
        text = (
            "handler of topic %s returned a value of type %s, which is ignored: its message counts as consumed. "
            "Raise rocketpy.Retry for a redelivery, rocketpy.Reject for a dead letter; otherwise return None"
        )
        logger.warning(text, topic, printable(type(result).__name__))

    def _note_block(self, seconds: float, topic: str) -> None:
        if self.has_blocked:
            return
        self.has_blocked = True
        text = (
            "handler of topic %s blocked its event loop for %.2f s: no other task of the loop could run. "
            "Call blocking functions by `await asyncio.to_thread(function, ...)`"
        )
        logger.warning(text, topic, seconds)

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

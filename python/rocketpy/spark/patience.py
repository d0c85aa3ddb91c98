"""How long errors that may pass are waited out: the same for the reader, the sink and the archive.

The time counts from the first failure after the last success. Pauses between tries double, up to a limit.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two tries."""
DEFAULT_RETRY_SECONDS = 180.0
"""Longer than a name server keeps a dead broker in its routes, 2 minutes. After that a stream reads from the others."""

T = TypeVar("T")

logger = logging.getLogger("rocketpy.spark")


def may_pass(error: Exception) -> bool:
    """Whether an error may be over after a while: it says so, or its outcome is not known."""
    return isinstance(error, RocketPyError) and (error.retryable or error.may_have_been_applied)


def log_retry(error: RocketPyError, seconds: float) -> None:
    """Logs that a call failed and is tried again.

    Args:
        error: Why it failed.
        seconds: How long it is tried again.
    """
    logger.warning("trying again for %g s: %s%s", seconds, error, f" ({error.hint})" if error.hint else "")


class Patience:
    """Counts the time in which every try failed, and says how long to wait before the next one.

    Args:
        seconds: How long to go on trying; 0 for not at all.
        first_pause: Pause after the first failure, seconds.
        told: Called with the error and `seconds` when tries begin to fail.
    """

    def __init__(
        self,
        seconds: float,
        *,
        first_pause: float = FIRST_PAUSE,
        told: Callable[[RocketPyError, float], object] = log_retry,
    ) -> None:
        self._seconds = seconds
        self._first_pause = first_pause
        self._told = told
        self.progressed()

    def progressed(self) -> None:
        """Notes a success: the time starts anew at the next failure."""
        self._failing_since: float | None = None
        self._pause = self._first_pause

    @property
    def is_failing(self) -> bool:
        """Whether the last try failed."""
        return self._failing_since is not None

    def next_pause(self) -> float | None:
        """Notes a failure.

        Returns:
            Seconds to wait before the next try; None when the time is over.

        Examples:
            >>> patience = Patience(60)
            >>> [patience.next_pause() for _ in range(6)]
            [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
        """
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= self._seconds:
            return None
        pause = min(self._pause, self._seconds)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return pause

    def pause_after(self, error: RocketPyError, *, passes: bool) -> float:
        """Notes a failure with its error.

        Args:
            error: Of the last try.
            passes: Whether another try can help.

        Returns:
            Seconds to wait before the next try.

        Raises:
            RocketPyError: The same error, when another try cannot help or the time is over.
        """
        is_first = not self.is_failing
        pause = self.next_pause() if passes else None
        if pause is None:
            raise error
        if is_first:
            self._told(error, self._seconds)
        return pause


def again(
    call: Callable[[], T],
    seconds: float,
    *,
    unsure: bool = False,
    told: Callable[[RocketPyError, float], object] = log_retry,
) -> T:
    """Calls until it succeeds.

    Args:
        call: What to do; it may be done several times.
        seconds: How long errors that may pass are waited out.
        unsure: Whether it is done again after an error that leaves its outcome unknown, too.
        told: Called with the error and `seconds` when it fails first.

    Returns:
        What the call returned.

    Raises:
        RocketPyError: The last error.

    Examples:
        >>> left = [RocketPyError("away", retryable=True)]
        >>> def call():
        ...     if left:
        ...         raise left.pop()
        ...     return "there"
        >>> again(call, 60, told=print)
        away 60
        'there'
    """
    patience = Patience(seconds, told=told)
    while True:
        try:
            return call()
        except RocketPyError as error:
            pause = patience.pause_after(error, passes=may_pass(error) if unsure else error.retryable)
        time.sleep(pause)

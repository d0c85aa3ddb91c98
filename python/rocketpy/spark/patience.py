"""Retries after temporary errors: the same for the reader, the sink and the archive.

The time counts from the first failure after the last success. Pauses between tries double, up to a limit.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from rocketpy.base.clock import monotonic
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts."""
DEFAULT_RETRY_SECONDS = 180.0
"""Exceeds the 2 minutes for which a name server keeps a dead broker in its routes. Streams then read from others."""

T = TypeVar("T")

logger = logging.getLogger("rocketpy.spark")


def may_pass(error: Exception) -> bool:
    """Checks whether an error may be temporary: it is retryable, or its outcome is unknown."""
    return isinstance(error, RocketPyError) and (error.retryable or error.may_have_been_applied)


def log_retry(error: RocketPyError, seconds: float) -> None:
    """Logs that a call failed and is retried.

    Args:
        error: Cause of the failure.
        seconds: Time for which the call is retried.
    """
    logger.warning("retrying for %g s: %s%s", seconds, error, f" ({error.hint})" if error.hint else "")


class Patience:
    """Measures the time in which every attempt failed, and returns the pause before the next one.

    Args:
        seconds: Time for which to retry; 0 for no retry.
        first_pause: Pause after the first failure, seconds.
        told: Callback that receives the error and `seconds` when attempts begin to fail.
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
        """Records a success: the next failure restarts the time."""
        self._failing_since: float | None = None
        self._pause = self._first_pause

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failing_since is not None

    def next_pause(self) -> float | None:
        """Records a failure.

        Returns:
            Seconds to wait before the next attempt; None when the time is over.

        Examples:
            >>> patience = Patience(60)
            >>> [patience.next_pause() for _ in range(6)]
            [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
        """
        now = monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= self._seconds:
            return None
        pause = min(self._pause, self._seconds)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return pause

    def pause_after(self, error: RocketPyError, *, passes: bool) -> float:
        """Records a failure with its error.

        Args:
            error: Error of the last attempt.
            passes: Whether another attempt can help.

        Returns:
            Seconds to wait before the next attempt.

        Raises:
            RocketPyError: The same error, when another attempt cannot help or the time is over.
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
    """Repeats a call until it succeeds.

    Args:
        call: Function to call, possibly several times.
        seconds: Time for which temporary errors are retried.
        unsure: Whether to repeat the call also after an error that leaves its outcome unknown.
        told: Callback that receives the error and `seconds` at the first failure.

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

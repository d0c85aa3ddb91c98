"""What the sink and the archive share: offsets by queue, and patience with brokers that are away for a while."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from rocketpy.errors import RocketPyError
from rocketpy.message import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_SECONDS = 0.5
"""Pause before something that failed is tried again. Brokers have dropped by then what waited to be stored."""

Ends: TypeAlias = dict[MessageQueue, int]
"""Queue offsets by queue."""
Found = TypeVar("Found")


def may_pass(error: Exception) -> bool:
    """Whether an error may be over after a while: it says so, or its outcome is not known."""
    return isinstance(error, RocketPyError) and (error.retryable or error.may_have_been_applied)


def again(call: Callable[[], Found], seconds: float, told: Callable[[RocketPyError], object] | None = None) -> Found:
    """Calls until it succeeds.

    Args:
        call: What to do; it may be done several times.
        seconds: How long errors that may pass are waited out.
        told: Called with each of these errors.

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
        away
        'there'
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except RocketPyError as error:
            if not may_pass(error) or time.monotonic() >= deadline:
                raise
            if told is not None:
                told(error)
        time.sleep(PAUSE_SECONDS)

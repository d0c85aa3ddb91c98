"""Parser of points in time, shared by clients, stores, Spark and the command line."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from rocketpy.errors import InvalidArgumentError

__all__ = ["Instant", "datetime_of", "instant_ms", "now_ms"]

Instant: TypeAlias = float | datetime | str
"""A point in time: seconds since 1970 UTC, a datetime, or text.

Text is ISO 8601 (`2026-01-31T12:00:00`), an age (`-10m`; units ms, s, m, h, d), or seconds since 1970. A datetime or
text without a time zone is local time.
"""

MAX_SECONDS = 1e11
"""Maximum number of seconds: greater numbers, after the year 5000, count milliseconds."""
MAX_MS = 1e15
"""Maximum age in milliseconds; it reaches beyond 1970."""
LEAST_SECONDS = 1e8
"""Minimum number of seconds: smaller numbers, before 1973, are durations or offsets by mistake. 0 is allowed."""
FORMS = "write 2026-01-31T12:00:00 (local time), seconds since 1970, or -10m for ten minutes ago"
"""Hint of errors."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CALENDAR_MS = range(253_402_214_400_000)
"""Times in milliseconds since 1970 UTC that every reader can represent: to the last day of the year 9999.

The last day is left out, because it ends later in time zones behind UTC. The native module has the same range.
"""
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def now_ms() -> int:
    """Current time in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000  # noqa: TID251  # a point in time, which tests may freeze


def datetime_of(at_ms: int | None) -> datetime | None:
    """Converts a time from disk or from a server to a datetime.

    Args:
        at_ms: Milliseconds since 1970 UTC: any number, because producers and brokers write any number.

    Returns:
        The time in UTC; None for None, and for a number before 1970 or after the year 9999.

    Examples:
        >>> datetime_of(1357016400000).isoformat(), datetime_of(2**63 - 1), datetime_of(-1)
        ('2013-01-01T05:00:00+00:00', None, None)
    """
    return None if at_ms is None or at_ms not in CALENDAR_MS else EPOCH + timedelta(milliseconds=at_ms)


def nearest_datetime(at_ms: int) -> datetime:
    """As `datetime_of`, with the first or the last time of the range for a number outside it."""
    return EPOCH + timedelta(milliseconds=min(max(at_ms, CALENDAR_MS[0]), CALENDAR_MS[-1]))


def instant_ms(instant: Instant, *, now: int | None = None) -> int:
    """Converts a point in time to milliseconds since 1970 UTC.

    Args:
        instant: The point in time.
        now: Reference time of `-10m`, in milliseconds since 1970 UTC; default: the clock.

    Raises:
        TypeError: The value is not a number, datetime or text.
        InvalidArgumentError: The text is not a point in time, the datetime is out of the clock's range, or the number
            counts milliseconds or is a duration.

    Examples:
        >>> instant_ms("2013-01-01T05:00:00Z"), instant_ms("-2h", now=10_000_000), instant_ms(1357016400)
        (1357016400000, 2800000, 1357016400000)
    """
    if isinstance(instant, str):
        return _of_text(instant, now)
    if isinstance(instant, datetime):
        return _of_datetime(instant)
    # Not every caller has a type checker.
    if isinstance(instant, bool) or not isinstance(instant, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            "a point in time must be a datetime, seconds since 1970 or text such as '-10m', "
            f"not {type(instant).__name__}"
        )
    return _of_seconds(instant)


def _of_seconds(seconds: float) -> int:
    if not abs(seconds) <= MAX_SECONDS:  # also true of nan
        raise InvalidArgumentError(
            f"a point in time must be in seconds since 1970, not {seconds}",
            hint="divide by 1000 if it counts milliseconds",
        )
    if seconds != 0 and seconds < LEAST_SECONDS:
        raise InvalidArgumentError(
            f"a point in time must be in seconds since 1970: {seconds} is before 1973",
            hint="add a duration to time.time(), or write -10m for ten minutes ago",
        )
    return round(seconds * 1000)


def _of_text(text: str, now: int | None) -> int:
    text = text.strip()
    ago = re.fullmatch(r"-(\d+)(ms|s|m|h|d)", text)
    if ago:
        ms = min(float(ago[1]) * UNITS_MS[ago[2]], MAX_MS)  # float reads thousands of digits, int refuses them
        return max(0, (now_ms() if now is None else now) - round(ms))
    if re.fullmatch(r"\d+(\.\d+)?", text) and not re.fullmatch(r"\d{8}", text):  # eight digits are an ISO 8601 date
        return _of_seconds(float(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgumentError(f"not a point in time: {text}", hint=FORMS) from None
    return _of_datetime(moment)


def _of_datetime(moment: datetime) -> int:
    try:
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgumentError(f"not a point in time: {moment}", hint=FORMS) from None

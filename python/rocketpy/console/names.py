"""Names in URLs, hostile names as visible text, and the forms of times and numbers."""

from __future__ import annotations

import hashlib
import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING
from urllib.parse import quote

from rocketpy.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "UNKNOWN",
    "age_text",
    "byte_text",
    "count_text",
    "from_path",
    "percent_text",
    "rate_text",
    "row_id",
    "shown",
    "span_text",
    "time_text",
    "to_path",
    "zone_of",
]

UNKNOWN = "\u2013"
"""Text of an unknown figure; 0 is a known zero."""
MAX_NAME = 255
"""Maximum number of characters of a name in lists."""
RESERVED = frozenset({"api", "health", "login", "logout", "metrics", "static", "favicon.svg", "favicon.ico", "test"})
"""First parts of paths that are not clusters."""
ESCAPED = re.compile(r"~([0-9a-f]{2})")
JOINERS = re.compile("[\u200b-\u200f\u061c\ufeff]")
"""Invisible characters and marks of direction that `printable` leaves."""


def to_path(name: str, *, is_cluster: bool = False) -> str:
    """Name as one part of a path.

    `/` and a leading dot would change the path, and servers decode `%2F` before they route: both get an escape `~2f`.

    Args:
        name: Name of a topic, group, broker or cluster.
        is_cluster: Whether the name is the first part of the path, which must not be a reserved word.

    Examples:
        >>> to_path("%RETRY%g"), to_path("a/b~"), to_path(".."), to_path("api", is_cluster=True)
        ('%25RETRY%25g', 'a~2fb~7e', '~2e.', '~61pi')
    """
    text = name.replace("~", "~7e").replace("/", "~2f").replace("\\", "~5c")
    if text.startswith(".") or (is_cluster and text in RESERVED):
        text = f"~{ord(text[0]):02x}{text[1:]}"
    return quote(text, safe="~", errors="surrogatepass")


def from_path(part: str) -> str:
    """Name of a decoded part of a path: the inverse of `to_path`, after the server removed the percent escapes.

    Examples:
        >>> from urllib.parse import unquote
        >>> [from_path(unquote(to_path(name))) for name in ("%RETRY%g", "a/b~", "..", "~2f")]
        ['%RETRY%g', 'a/b~', '..', '~2f']
    """
    return ESCAPED.sub(lambda found: chr(int(found[1], 16)), part)


def shown(name: object, limit: int = MAX_NAME) -> str:
    r"""Name as visible text: control characters and marks of direction become escapes, long names are cut.

    Examples:
        >>> shown("red \x1b[31m"), shown("a\u200fb"), shown("x" * 300, 4)
        ('red \\x1b[31m', 'a\\u200fb', 'xxxx…')
    """
    text = JOINERS.sub(lambda found: f"\\u{ord(found[0]):04x}", printable(str(name)))
    return text if len(text) <= limit else f"{text[:limit]}…"


def row_id(*names: str) -> str:
    """Id of a table row: a hash, because names are hostile.

    Examples:
        >>> row_id("orders")
        'r-1c168adb00d2'
    """
    return "r-" + hashlib.sha256("\0".join(names).encode(errors="surrogatepass")).hexdigest()[:12]


def zone_of(cookie: str | None) -> timezone:
    """Zone of the times of a page: UTC, or the offset in minutes that the browser stored.

    Examples:
        >>> zone_of(None), zone_of("120"), zone_of("9999")
        (datetime.timezone.utc, datetime.timezone(datetime.timedelta(seconds=7200)), datetime.timezone.utc)
    """
    if cookie is None or not re.fullmatch(r"-?\d{1,4}", cookie) or abs(int(cookie)) > 14 * 60 or int(cookie) == 0:
        return UTC
    return timezone(timedelta(minutes=int(cookie)))


def time_text(at: datetime | float | None, zone: timezone = UTC) -> str:
    """Point in time to the millisecond.

    Args:
        at: A datetime, or seconds since 1970.
        zone: Zone of the page.

    Examples:
        >>> time_text(1357016400.5), time_text(None) == UNKNOWN
        ('2013-01-01 05:00:00.500', True)
    """
    if at is None:
        return UNKNOWN
    moment = at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    return moment.astimezone(zone).isoformat(sep=" ", timespec="milliseconds")[:23]


def span_text(seconds: float | None) -> str:
    """Duration in one or two units.

    Examples:
        >>> span_text(0.2), span_text(12), span_text(750), span_text(7_260), span_text(2e5), span_text(None) == UNKNOWN
        ('0 s', '12 s', '12 min', '2 h 1 min', '2 d 7 h', True)
    """
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"


def age_text(ages: Iterable[float]) -> str:
    """Ages of figures as one text.

    Examples:
        >>> age_text([4.2, 52.9]), age_text([4.2, 4.9]), age_text([]) == UNKNOWN
        ('4 to 52 s', '4 s', True)
    """
    found = [max(0, int(age)) for age in ages]
    if not found:
        return UNKNOWN
    low, high = min(found), max(found)
    if low == high or high >= 120:
        return span_text(high)
    return f"{low} to {high} s"


def count_text(number: int | None) -> str:
    """Count with separators.

    Examples:
        >>> count_text(1204311), count_text(0), count_text(None) == UNKNOWN
        ('1,204,311', '0', True)
    """
    return UNKNOWN if number is None else f"{number:,}"


def rate_text(rate: float | None) -> str:
    """Rate per second: one digit below 1,000.

    Examples:
        >>> rate_text(412), rate_text(4812.4), rate_text(0.0), rate_text(0.02), rate_text(None) == UNKNOWN
        ('412.0', '4,812', '0', '<0.1', True)
    """
    if rate is None or not math.isfinite(rate):
        return UNKNOWN
    if rate == 0:
        return "0"
    if rate < 0.05:
        return "<0.1"
    return f"{rate:,.1f}" if rate < 1000 else f"{rate:,.0f}"


def percent_text(share: float | None) -> str:
    """Share from 0 to 1 in percent.

    Examples:
        >>> percent_text(0.614), percent_text(None) == UNKNOWN
        ('61 %', True)
    """
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def byte_text(size: float | None) -> str:
    """Size in binary units.

    Examples:
        >>> byte_text(12), byte_text(1228), byte_text(4 << 20), byte_text(None) == UNKNOWN
        ('12 B', '1.2 KiB', '4.0 MiB', True)
    """
    if size is None:
        return UNKNOWN
    unit = 0
    while size >= 1024 and unit < 5:
        size, unit = size / 1024, unit + 1
    return f"{size:,.1f} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[unit]}" if unit else f"{size:,.0f} B"

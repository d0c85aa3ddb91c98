"""Amounts with units, as forms show and read them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rocketpy.base.text import printable
from rocketpy.console.alerts.records import spelled
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from rocketpy.console.alerts.rules import Unit

PART = re.compile(r"\s*(\d[\d,]*(?:\.\d+)?)\s*([a-z%]*)", re.ASCII)
UNITS: dict[str, dict[str, float]] = {
    "seconds": {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400},
    "bytes": {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40},
    "percent": {"": 1, "%": 1},
    "messages": {"": 1, "message": 1, "messages": 1},
    "": {"": 1},
}
EXAMPLES = {"seconds": "5 min or 1 h 30 min", "bytes": "64 MiB", "percent": "85 %", "messages": "100,000", "": "0"}
MAX_LENGTH = 40
"""Maximum length of an amount, in characters."""


def parsed_amount(name: str, text: str, unit: Unit) -> float:
    """Reads an amount.

    Args:
        name: Name of the field, for errors.
        text: The amount; a duration may have several parts.
        unit: Its unit.

    Raises:
        InvalidArgumentError: The text is not an amount of the unit.

    Examples:
        >>> parsed_amount("for", "1 h 30 min", "seconds"), parsed_amount("limit", "100,000", "messages")
        (5400.0, 100000.0)
    """
    given, at, total = text.strip().lower(), 0, 0.0
    parts = 0
    while at < len(given) and len(given) <= MAX_LENGTH:
        found = PART.match(given, at)
        if found is None or found[2] not in UNITS[unit]:
            break
        total += float(found[1].replace(",", "")) * UNITS[unit][found[2]]
        at, parts = found.end(), parts + 1
    if not parts or at < len(given) or (parts > 1 and unit != "seconds"):
        shown = printable(text)[:MAX_LENGTH]
        raise InvalidArgumentError(f"{name} is not an amount: {shown}", hint=f"write {EXAMPLES[unit]}")
    return total


def amount_text(value: float, unit: Unit) -> str:
    """Amount as a form shows it: exact when it is read again.

    Examples:
        >>> amount_text(300, "seconds"), amount_text(90_061, "seconds"), amount_text(64 << 20, "bytes")
        ('5 min', '90061', '64 MiB')
    """
    text = spelled(value, unit) if unit else f"{value:g}"
    try:
        is_exact = parsed_amount("", text, unit) == value
    except InvalidArgumentError:
        is_exact = False
    return text if is_exact else f"{value:.0f}" if value == int(value) else repr(value)

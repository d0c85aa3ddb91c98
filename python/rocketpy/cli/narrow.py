"""Tables of queues and topics for terminals of 80 columns: fewer columns, short names, local times in seconds."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

NAMES = {
    "broker_name": "broker",
    "queue_id": "queue",
    "min_offset": "min",
    "committed_offset": "committed",
    "max_offset": "max",
    "last_consumed_at": "last consumed",
    "last_stored_at": "last stored",
}
"""Short names of columns."""
Rows = Sequence[Mapping[str, Any]]


def narrowed(rows: Rows, *columns: str) -> list[dict[str, Any]]:
    """Returns some columns of rows with short names.

    Examples:
        >>> narrowed([{"queue_id": 3, "min_offset": 0, "messages": 7}], "queue_id", "min_offset")
        [{'queue': '3', 'min': 0}]
    """
    return [{NAMES.get(name, name): short(name, row[name]) for name in columns} for row in rows]


def by_topic(rows: Rows, *columns: str) -> dict[str, list[dict[str, Any]]]:
    """Returns some columns of rows, in a table for each topic."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["topic"], []).append(row)
    return {topic: narrowed(of_topic, *columns) for topic, of_topic in found.items()}


def short(name: str, value: Any) -> Any:
    """Returns a time without zone and milliseconds, and an id as text: it is not a quantity."""
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
    return str(value) if name.endswith("_id") else value

"""Order in which the collector samples topics and groups: rows on screens first, then the oldest figures."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rocketpy.console.snapshot import GroupRow, TopicRow

__all__ = [
    "GROUPS_A_SECOND",
    "SLOWED_FACTOR",
    "STILL_FACTOR",
    "TOPICS_A_SECOND",
    "Queue",
    "due_groups",
    "due_topics",
    "round_seconds",
]

TOPICS_A_SECOND = 100
"""Maximum number of topics to sample per second."""
GROUPS_A_SECOND = 30
"""Maximum number of groups to sample per second; the list of groups is read no faster."""
STILL_SAMPLES = 3
"""Number of samples without movement after which a topic is read in every fourth round."""
STILL_FACTOR = 4
SLOWED_FACTOR = 4
"""Factor of a round while brokers answer slowly."""


def round_seconds(count: int, a_second: int, period: float, *, is_slowed: bool = False) -> float:
    """Time in which `count` rows are read once.

    Args:
        count: Number of rows.
        a_second: Maximum number per second at the period of 5 s.
        period: Seconds between two reads of the brokers.
        is_slowed: Whether brokers answer slowly.
    """
    found = max(3 * period, count / a_second * period / 5)
    return found * SLOWED_FACTOR if is_slowed else found


def due_topics(
    rows: Iterable[TopicRow], watched: Mapping[tuple[str, str], float], now: float, period: float, whole_round: float
) -> list[str]:
    """Names of topics whose figures are to be read, the oldest first. System topics are read on screens only.

    Args:
        rows: All topics.
        watched: Rows on screens.
        now: Time in seconds since 1970.
        period: Seconds between two reads of a row on a screen.
        whole_round: Seconds of one round.
    """
    found: list[tuple[bool, float, str]] = []
    for row in rows:
        is_watched = ("topic", row.name) in watched
        wait = whole_round if row.still < STILL_SAMPLES else whole_round * STILL_FACTOR
        if row.is_system and not is_watched:
            continue
        due = due_at(row.read_at, row.tried_at, period if is_watched else wait, period if is_watched else whole_round)
        if due <= now:
            found.append((not is_watched, due, row.name))
    found.sort()
    return [name for _, _, name in found]


def due_at(read_at: float | None, tried_at: float | None, wait: float, retry: float) -> float:
    """Time of the next sample: after the last one, or after a failure."""
    if tried_at is not None:
        return tried_at + retry
    return 0.0 if read_at is None else read_at + wait


def due_groups(
    rows: Iterable[GroupRow], watched: Mapping[tuple[str, str], float], now: float, period: float, whole_round: float
) -> list[str]:
    """Names of groups whose queues are to be read, the oldest first. Groups without offsets are read once."""
    found: list[tuple[bool, float, str]] = []
    for row in rows:
        is_watched = ("group", row.name) in watched
        if row.sampled_at is not None and not row.topics and not is_watched:
            continue
        wait = period if is_watched else whole_round
        due = due_at(row.sampled_at, row.tried_at, wait, wait)
        if due <= now:
            found.append((not is_watched, due, row.name))
    found.sort()
    return [name for _, _, name in found]


class Queue:
    """Names that wait for their sample. The order is computed once a period, and taken in small parts."""

    def __init__(self) -> None:
        self._names: deque[str] = deque()
        self.made_at = float("-inf")
        """Time at which the order was computed, by the monotonic clock."""

    def fill(self, names: Iterable[str], now: float) -> None:
        """Replaces the order."""
        self._names, self.made_at = deque(names), now

    def __len__(self) -> int:
        return len(self._names)

    def take(self, limit: int) -> list[str]:
        """Next names."""
        return [self._names.popleft() for _ in range(min(limit, len(self._names)))]

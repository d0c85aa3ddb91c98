"""History of figures: rings of three steps, kept in memory under a limit."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field

__all__ = ["SPANS", "History", "Points"]

TIERS = ((10, 360), (60, 360), (300, 288))
"""Step in seconds and number of points: 1 h, 6 h, 24 h."""
SPANS = {"1h": 0, "6h": 1, "24h": 2}
"""Tier by the name of a span in URLs."""
NAN = math.nan
POINT_BYTES = 4
SERIES_BYTES = 1000
"""Memory of a series in addition to its points."""


@dataclass(frozen=True, slots=True)
class Points:
    """Values of a series at equal steps, the oldest first; None for a gap."""

    start: int
    """Time of the first value, in seconds since 1970."""
    step: int
    """Seconds between two values."""
    values: tuple[float | None, ...]

    @property
    def times(self) -> list[int]:
        """Time of each value, in seconds since 1970."""
        return [self.start + self.step * at for at in range(len(self.values))]


@dataclass(slots=True)
class Ring:
    """Means of a series over equal steps of time."""

    step: int
    size: int
    values: array[float] = field(default_factory=lambda: array("f"))
    slot: int = -1
    """Number of the newest step since 1970."""
    total: float = 0.0
    count: int = 0

    def add(self, value: float, now: float) -> None:
        """Adds a value to the step of a time. Earlier steps are closed; missing ones are gaps."""
        slot = int(now // self.step)
        if not self.values:
            self.values = array("f", [NAN]) * self.size
            self.slot = slot
        if slot > self.slot:
            for gap in range(self.slot + 1, min(slot, self.slot + self.size) + 1):
                self.values[gap % self.size] = NAN
            if slot - self.slot > self.size:
                self.values = array("f", [NAN]) * self.size
            self.slot, self.total, self.count = slot, 0.0, 0
        if slot == self.slot:  # a clock that was set back adds nothing
            self.total, self.count = self.total + value, self.count + 1
            self.values[slot % self.size] = self.total / self.count

    def points(self, now: float) -> Points:
        """Values until a time."""
        last = int(now // self.step)
        first = last - self.size + 1
        oldest = self.slot - self.size + 1

        def at(slot: int) -> float | None:
            if not self.values or not oldest <= slot <= self.slot:
                return None
            value = self.values[slot % self.size]
            return None if math.isnan(value) else round(value, 3)

        return Points(first * self.step, self.step, tuple(at(slot) for slot in range(first, last + 1)))


@dataclass(slots=True)
class Series:
    """Rings of one figure."""

    rings: list[Ring]
    moved_at: float
    """Time of the last value that is not zero, in seconds since 1970."""


class History:
    """Series by name. At the limit the quietest series are dropped first.

    Args:
        max_bytes: Maximum memory in bytes.
    """

    def __init__(self, max_bytes: int = 32 << 20) -> None:
        self._max_bytes = max_bytes
        self._series: dict[tuple[str, ...], Series] = {}
        self._bytes = 0
        self.dropped = 0
        """Number of series that were dropped at the limit."""

    def add(self, key: tuple[str, ...], value: float | None, now: float, *, tiers: int = 3) -> None:
        """Adds a value of a series. The series begins with the first value that is not zero.

        Args:
            key: Name of the series, such as `("topic", "orders", "in")`.
            value: The value; None is a gap.
            now: Time in seconds since 1970.
            tiers: Number of rings of a new series: 3 for 24 h, 1 for 6 h in steps of 60 s.
        """
        if value is None or not math.isfinite(value):
            return
        found = self._series.get(key)
        if found is None:
            if value == 0 and tiers == 1:
                return
            found = self._new(key, tiers, now)
        if value:
            found.moved_at = now
        for ring in found.rings:
            ring.add(value, now)

    def read(self, key: tuple[str, ...], span: str, now: float) -> Points:
        """Values of a series over a span; gaps for an unknown one.

        Args:
            key: Name of the series.
            span: `1h`, `6h` or `24h`.
            now: Time in seconds since 1970.
        """
        step, size = TIERS[SPANS.get(span, 0)]
        found = self._series.get(key)
        ring = next((one for one in found.rings if one.step == step), None) if found else None
        if ring is None and found is not None:
            ring = found.rings[0]
        return (ring or Ring(step, size)).points(now)

    def forget(self, key: tuple[str, ...]) -> None:
        """Drops the series whose names begin with `key`, as of a deleted topic."""
        for name in [name for name in self._series if name[: len(key)] == key]:
            self._drop(name)

    @property
    def bytes(self) -> int:
        """Memory of all series in bytes, by computation."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._series)

    def _new(self, key: tuple[str, ...], tiers: int, now: float) -> Series:
        chosen = TIERS if tiers == len(TIERS) else TIERS[1:2]
        made = Series([Ring(step, size) for step, size in chosen], now)
        self._series[key] = made
        self._bytes += self._size(made)
        while self._bytes > self._max_bytes and len(self._series) > 1:
            quietest = min((name for name in self._series if name != key), key=lambda name: self._series[name].moved_at)
            self._drop(quietest)
            self.dropped += 1
        return made

    def _drop(self, key: tuple[str, ...]) -> None:
        self._bytes -= self._size(self._series.pop(key))

    @staticmethod
    def _size(series: Series) -> int:
        return SERIES_BYTES + sum(ring.size * POINT_BYTES for ring in series.rings)

"""Times of a schedule: a cron text in a time zone, or an interval."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from rocketpy.base.arrow import import_optional
from rocketpy.base.instant import now_ms
from rocketpy.config import duration_seconds
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketpy.config import Duration

NOTHING = timedelta(0)
SECOND_MS = 1000
FIELDS = 5
"""Fields of a cron text. The parser also accepts a sixth one for seconds, with other rules at changes of the clock."""
CRON_HINT = "five fields: minute, hour, day of month, month, day of week, such as `0 3 * * MON-FRI`"
MAX_EVERY_SECONDS = 10 * 366 * 86_400


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a schedule, in milliseconds since 1970 UTC."""

    cron: str | None
    """Cron text of five fields; None with an interval."""
    every_seconds: int | None
    """Interval, counted from the previous time; None with a cron text."""
    timezone: str
    """Name of the time zone of the cron text."""

    def after(self, at_ms: int) -> int | None:
        """First time after `at_ms`; None if the cron text has none within 50 years.

        Examples:
            >>> Times(None, 90, "UTC").after(10_500)
            101000
        """
        if self.every_seconds is not None:
            return -(-at_ms // SECOND_MS) * SECOND_MS + self.every_seconds * SECOND_MS
        if self._follows_elapsed_time():
            return self._elapsed_after(at_ms)
        for found in self._iterate(at_ms):
            found_ms = int(found.timestamp()) * SECOND_MS
            # The parser starts again at the first of two equal local times when the clock is set back.
            if found_ms > at_ms:
                return found_ms
        return None

    def latest(self, first_ms: int, until_ms: int) -> int:
        """Latest time up to `until_ms`, or `first_ms` if there is none later.

        Args:
            first_ms: A time of the schedule.
            until_ms: Time to end with.

        Examples:
            >>> Times(None, 90, "UTC").latest(1_000, 200_000)
            181000
        """
        if until_ms <= first_ms:
            return first_ms
        if self.every_seconds is not None:
            step = self.every_seconds * SECOND_MS
            return first_ms + (until_ms - first_ms) // step * step
        latest_ms = first_ms
        for found in self._iterate(until_ms, reverse=True):
            instants = instants_of(found) if self._follows_elapsed_time() else [int(found.timestamp()) * SECOND_MS]
            if passed := [at_ms for at_ms in instants if at_ms <= until_ms]:
                latest_ms = max(first_ms, *passed)
                break
        # Backwards some times of an hour that the clock repeats are skipped.
        while (follows := self.after(latest_ms)) is not None and follows <= until_ms:
            latest_ms = follows
        return latest_ms

    def _follows_elapsed_time(self) -> bool:
        return any(field.startswith("*") for field in (self.cron or "").split()[:2])

    def _elapsed_after(self, at_ms: int) -> int | None:
        """First instant after `at_ms` whose local time the cron text has."""
        start = datetime.fromtimestamp(at_ms // SECOND_MS, zone_of(self.timezone))
        repeated = (start.replace(fold=0).utcoffset() or NOTHING) - (start.replace(fold=1).utcoffset() or NOTHING)
        local, instants = start.replace(tzinfo=None), list[int]()
        for found in self._iterate(at_ms, repeated):
            instants += [one for one in instants_of(found) if one > at_ms]
            if instants and found.replace(tzinfo=None) > local:
                break
        return min(instants, default=None)

    def _iterate(self, at_ms: int, before: timedelta = NOTHING, *, reverse: bool = False) -> Iterator[datetime]:
        """Local times of the cron text, from `before` ahead of `at_ms`."""
        zone = zone_of(self.timezone)
        start = datetime.fromtimestamp(at_ms // SECOND_MS, zone)
        if self._follows_elapsed_time():
            # With a zone the parser loses times on the day of a change at midnight or by half an hour.
            start = start.replace(tzinfo=None, fold=0) - before
        for found in _cronsim().CronSim(self.cron, start, reverse):
            yield found.replace(tzinfo=zone)

    def __str__(self) -> str:
        if self.cron is not None:
            return f"cron {self.cron!r} in {self.timezone}"
        return f"every {timedelta(seconds=self.every_seconds or 0)}"


def instants_of(local: datetime) -> list[int]:
    """Instants of a local time, in milliseconds since 1970 UTC: none in a gap, two if the clock repeats it.

    Examples:
        >>> instants_of(datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")))
        [1792888200000, 1792891800000]
        >>> instants_of(datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")))
        []
    """
    first, second = (int(local.replace(fold=fold).timestamp()) * SECOND_MS for fold in (0, 1))
    if first > second:  # in a gap, the offset before it gives the later instant
        return []
    return [first] if first == second else [first, second]


def times_of(cron: str | None, every: Duration | None, timezone: str) -> Times:
    """Checks a cron text or an interval.

    Raises:
        InvalidArgumentError: There is neither or both, the text or the zone is invalid, or the text has no time.
        RocketPyError: The package cronsim is not installed, which cron texts require.
    """
    if (cron is None) == (every is None):
        raise InvalidArgumentError("a schedule has either cron= or every=", hint=f"cron= has {CRON_HINT}; every=3600")
    if every is not None:
        seconds = duration_seconds("every", every)
        if not 1 <= seconds <= MAX_EVERY_SECONDS or seconds != int(seconds):
            raise InvalidArgumentError(f"every must be whole seconds from 1 to {MAX_EVERY_SECONDS}, not {every!r}")
        if timezone != "UTC":
            raise InvalidArgumentError("timezone is for cron texts only: an interval has none")
        return Times(None, int(seconds), "UTC")
    if not isinstance(cron, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"cron must be a text, not {cron!r}")
    text = " ".join(cron.split())
    times = Times(text, None, timezone)
    zone_of(timezone)
    if len(text.split()) != FIELDS:
        raise InvalidArgumentError(f"cron text must have five fields: {cron!r}", hint=CRON_HINT)
    try:
        first = times.after(now_ms())
    except _cronsim().CronSimError as error:
        raise InvalidArgumentError(f"invalid cron text {cron!r}: {error}", hint=CRON_HINT) from None
    if first is None:
        raise InvalidArgumentError(f"cron text has no time within 50 years: {cron!r}", hint=CRON_HINT)
    return times


def zone_of(name: str) -> ZoneInfo:
    """Time zone by name.

    Raises:
        InvalidArgumentError: This machine has no zone of that name.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):  # ZoneInfoNotFoundError is a KeyError; a folder is an OSError
        hint = 'use a name such as Europe/Berlin; without a system database: pip install "rocketpy-mq[schedule]"'
        raise InvalidArgumentError(f"unknown time zone: {name!r}", hint=hint) from None


def require_cron() -> None:
    """Checks that cron texts can be read.

    Raises:
        RocketPyError: The package cronsim is not installed.
    """
    _cronsim()


def _cronsim() -> Any:
    return import_optional("cronsim", "schedule")


def iso(at_ms: int) -> str:
    """A time as in the ids of firings.

    Examples:
        >>> iso(1_800_000_000_000)
        '2027-01-15T08:00:00Z'
    """
    return datetime.fromtimestamp(at_ms // SECOND_MS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

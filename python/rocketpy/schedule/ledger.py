"""State of all schedules, computed from the records of the topic `rocketpy_schedules` in their order.

Every process computes the same state from the same records; nothing else is stored. A record is one of these:

| tag | says |
|---|---|
| `add` | a definition under a name, with an id of its own; with `replace` it takes the place of another one |
| `remove` | the definition with this id is removed |
| `tick` | a timer message: its `due` time has come. If `at` is later, it waits once more, else `at` fires |
| `fire` | `at` is decided: the first such record of a definition and time counts, and names the half message to end |
| `clock` | the time at the broker: lost ticks are armed again, and schedules go on after the clock was set back |
| `error` | the reason why a tick cannot be armed |

A tick carries the whole definition, so that the older records may expire.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rocketpy.base.instant import CALENDAR_MS
from rocketpy.config import SendStatus
from rocketpy.errors import InvalidArgumentError, RocketPyError
from rocketpy.message import Message, MessageQueue, Receipt
from rocketpy.schedule.times import Times, iso, times_of

if TYPE_CHECKING:
    from rocketpy.message import ReceivedMessage

logger = logging.getLogger("rocketpy.schedule")

ADD, REMOVE, TICK, FIRE, CLOCK, ERROR = "add", "remove", "tick", "fire", "clock", "error"
ONCE, NEVER = "once", "never"
NAME_PROPERTY, TIME_PROPERTY, ID_PROPERTY = "rocketpySchedule", "rocketpyScheduledAt", "rocketpyScheduleId"
"""Properties of a message of a schedule: name, time in milliseconds, id of the definition."""
MISSED_MS = 60_000
"""Lateness from which a time counts as missed."""
OVERDUE_MS = 120_000
"""Lateness from which an armed tick counts as lost."""
SET_BACK_MS = 5_000
"""Distance of a time that was reached already and is ahead again, from which the clock counts as set back."""
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Definition:
    """Definition of a schedule, as its user gave it."""

    times: Times
    topic: str
    body: bytes
    tag: str | None
    missed: str

    def to_json(self) -> dict[str, Any]:
        """Value for a record."""
        return {**asdict(self), "body": b64encode(self.body).decode()}

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Definition:
        """Reads the value of a record, which any program may have written.

        Raises:
            InvalidArgumentError: A value is invalid, or this machine lacks the time zone.
            TypeError, KeyError, ValueError: It is no definition.
        """
        times = times_of(given["times"]["cron"], given["times"]["every_seconds"], given["times"]["timezone"])
        checked = Message(given["topic"], b64decode(given["body"]), tag=given["tag"])
        if given["missed"] not in (ONCE, NEVER):
            raise InvalidArgumentError(f"missed must be {ONCE!r} or {NEVER!r}, not {given['missed']!r}")
        return cls(times, checked.topic, checked.body, checked.tag, given["missed"])

    def __str__(self) -> str:
        tag = "" if self.tag is None else f", tag {self.tag}"
        return f"{self.times}, topic {self.topic}{tag}, body {self.body[:60]!r}, missed {self.missed}"


@dataclass(slots=True)
class Entry:
    """A schedule and its state."""

    name: str
    definition: Definition
    id: str
    """Id of this definition: another definition under the same name has another one."""
    due_ms: int = 0
    """Due time of the latest tick. A tick that is not later is a duplicate."""
    decided_ms: int = 0
    """Latest time that was decided."""
    next_ms: int | None = None
    """Time that is decided next; None if there is none."""
    fired_ms: int | None = None
    """Latest time that fired."""
    winner: str | None = None
    """Id of the half message that the latest decision commits."""
    error: str | None = None
    """Error of the latest attempt to fire."""
    pending: Tick | None = None
    """Tick that is armed next."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Timer message that is due at `due_ms` for the time `at_ms`."""

    at_ms: int
    due_ms: int
    is_late: bool = False
    """Whether `at_ms` fires although it, or a later one, is over."""
    error: str | None = None
    """Reason of a further attempt."""


@dataclass(frozen=True, slots=True)
class Arm:
    """Effect: send the pending tick of a schedule."""

    entry: Entry
    warning: str | None = None
    """Text to log."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Effect: send the half message of a time, then its record `fire`."""

    entry: Entry
    tick: Tick
    came_ms: int
    """Time at which the tick was stored, by the clock of the broker."""


@dataclass(frozen=True, slots=True)
class End:
    """Effect: end a half message."""

    half: Receipt
    commits: bool


Effect = Arm | Prepare | End


def firing_id(name: str, at_ms: int) -> str:
    """Id of a firing, which is the key of its message.

    Examples:
        >>> firing_id("report", 1_800_000_000_000)
        'report@2027-01-15T08:00:00Z'
    """
    return f"{name}@{iso(at_ms)}"


class Ledger:
    """All schedules after the records so far.

    Args:
        hop_ms: Maximum delay of a tick. A later time is reached by several ticks.
    """

    def __init__(self, hop_ms: int = DAY_MS) -> None:
        self.entries: dict[str, Entry] = {}
        self._over: set[str] = set()
        self._unreadable: set[str] = set()
        self._hop_ms = hop_ms

    def apply(self, message: ReceivedMessage) -> list[Effect]:
        """Applies a record.

        Args:
            message: The next record of the topic.

        Returns:
            Effects of the record, for the process that owns the queue. A repetition of each is harmless.
        """
        try:
            return self._apply(message.tag, json.loads(message.body), message.stored_at_ms)
        except (InvalidArgumentError, AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
            reason = str(error) if isinstance(error, RocketPyError) else type(error).__name__
            logger.warning("record %s skipped, not readable: %s", message.queue_offset, reason)
            return []

    def _apply(self, tag: str | None, record: dict[str, Any], now_ms: int) -> list[Effect]:
        if tag == CLOCK:
            return [effect for entry in self.entries.values() for effect in self._clock(entry, now_ms)]
        if tag not in (ADD, REMOVE, TICK, FIRE, ERROR):
            return []
        if tag == ADD:
            return self._add(record, now_ms)
        tick = tick_of(record) if tag in (TICK, FIRE) else None
        entry = self._entry(record, tag)
        if tag == FIRE and tick is not None:
            half = half_of(record["half"]) if record["half"] else None
            if entry is None and half is not None and record["id"] not in self._unreadable:
                return [End(half, commits=False)]
            return [] if entry is None else self._fire(entry, tick, half, record["error"], now_ms)
        if entry is None:
            return []
        if tick is not None:
            return self._tick(entry, tick, now_ms)
        if tag == ERROR:
            entry.error = str(record["error"])
            return []
        del self.entries[entry.name]
        self._over.add(entry.id)
        return []

    def _entry(self, record: dict[str, Any], tag: str) -> Entry | None:
        """Schedule of a record, if its definition still counts. A tick restores one whose older records expired."""
        name, known = record["name"], self.entries.get(record["name"])
        if known is None and tag == TICK and record["id"] not in self._over:
            fired_ms = None if record["fired"] is None else time_of(record["fired"])
            known = Entry(name, self._definition(record), record["id"], decided_ms=time_of(record["decided"]))
            known.fired_ms = fired_ms
            self.entries[name] = known
        return known if known is not None and known.id == record["id"] else None

    def _definition(self, record: dict[str, Any]) -> Definition:
        try:
            Message("checked", b"{}", keys=[record["name"]], properties={ID_PROPERTY: record["id"]})
            return Definition.from_json(record["definition"])
        except Exception:
            self._unreadable.add(record["id"])  # another machine may have the time zone: its decisions stay
            raise

    def _add(self, record: dict[str, Any], now_ms: int) -> list[Effect]:
        name, definition = record["name"], self._definition(record)
        known = self.entries.get(name)
        if record["id"] in self._over or (
            known is not None and (not record["replace"] or known.definition == definition or known.id == record["id"])
        ):
            return []
        if known is not None:
            self._over.add(known.id)
        entry = self.entries[name] = Entry(name, definition, record["id"], due_ms=now_ms, decided_ms=now_ms)
        return self._arm(entry, definition.times.after(now_ms), now_ms)

    def _tick(self, entry: Entry, tick: Tick, now_ms: int) -> list[Effect]:
        if tick.due_ms <= entry.due_ms or entry.next_ms not in (None, tick.at_ms):
            return []
        entry.due_ms, entry.error = tick.due_ms, tick.error
        if tick.due_ms < tick.at_ms:
            return self._arm(entry, tick.at_ms, now_ms)
        entry.pending = None
        return [Prepare(entry, tick, now_ms)]

    def _fire(self, entry: Entry, tick: Tick, half: Receipt | None, error: str | None, now_ms: int) -> list[Effect]:
        times, missed = entry.definition.times, entry.definition.missed
        if tick.at_ms <= entry.decided_ms or entry.next_ms not in (None, tick.at_ms):
            return [] if half is None else [End(half, commits=False)]
        latest = tick.at_ms if tick.is_late else times.latest(tick.at_ms, now_ms)
        fires_late = missed == ONCE or now_ms - latest <= MISSED_MS
        fires_now = half is not None and latest == tick.at_ms and (fires_late or tick.is_late)
        entry.decided_ms, entry.error = tick.at_ms, error
        entry.winner = half.msg_id if half is not None and fires_now else None
        effects: list[Effect] = [] if half is None else [End(half, commits=fires_now)]
        if fires_now:
            entry.fired_ms = tick.at_ms
        if latest > tick.at_ms and fires_late:
            return effects + self._arm(entry, latest, now_ms, is_late=True)
        # An interval keeps its rhythm: the next time is counted from the latest one.
        follows = times.after(latest)
        while follows is not None and follows <= now_ms:
            follows = times.after(times.latest(follows, now_ms))
        return effects + self._arm(entry, follows, now_ms)

    def _clock(self, entry: Entry, now_ms: int) -> list[Effect]:
        """Continues from the clock of the broker after it was set back, and arms a lost tick again."""
        if max(entry.due_ms, entry.decided_ms) <= now_ms + SET_BACK_MS:
            is_lost = entry.pending is not None and entry.pending.due_ms + OVERDUE_MS < now_ms
            return [Arm(entry)] if is_lost else []
        times = entry.definition.times
        # A time of a cron text that fired does not fire again. An interval counts from now.
        begin_ms = now_ms if times.cron is None else max(now_ms, entry.fired_ms or 0)
        entry.due_ms, entry.decided_ms = now_ms, begin_ms
        effects = self._arm(entry, times.after(begin_ms), now_ms)
        follows = "has no further time" if entry.next_ms is None else f"continues at {iso(entry.next_ms)}"
        warning = f"clock of the broker was set back: schedule {entry.name} {follows}"
        return [Arm(entry, warning)] if effects else []

    def _arm(self, entry: Entry, at_ms: int | None, now_ms: int, *, is_late: bool = False) -> list[Effect]:
        entry.next_ms, entry.pending = at_ms, None
        if at_ms is None:
            return []
        begin_ms = max(now_ms, entry.due_ms + 1)
        due_ms = begin_ms if is_late else min(max(at_ms, begin_ms), begin_ms + self._hop_ms)
        entry.pending = Tick(at_ms, due_ms, is_late)
        return [Arm(entry)]

    def is_committed(self, message: ReceivedMessage) -> bool | None:
        """Outcome of a half message, for a check-back; None if it is not decided in the records so far."""
        named = message.properties
        name, at_ms = named.get(NAME_PROPERTY, ""), int(named.get(TIME_PROPERTY, 0))
        entry = self.entries.get(name)
        if entry is None or entry.id != named.get(ID_PROPERTY):
            return False if named.get(ID_PROPERTY) in self._over else None
        if at_ms > entry.decided_ms:
            return None
        # The owner ends the half message of a decision before the next record: later check-backs are of the others.
        return at_ms == entry.decided_ms and message.msg_id == entry.winner


def add_record(topic: str, name: str, new_id: str, definition: Definition, *, replace: bool) -> Message:
    """Record of a definition."""
    record = {"name": name, "id": new_id, "definition": definition.to_json(), "replace": replace}
    return _message(topic, ADD, record)


def remove_record(topic: str, entry: Entry) -> Message:
    """Record of a removal."""
    return _message(topic, REMOVE, {"name": entry.name, "id": entry.id})


def tick_record(topic: str, entry: Entry, tick: Tick) -> Message:
    """Timer message of a tick."""
    known = {"definition": entry.definition.to_json(), "decided": entry.decided_ms, "fired": entry.fired_ms}
    record = {"name": entry.name, "id": entry.id, **asdict(tick), **known}
    return _message(topic, TICK, record, deliver_at=tick.due_ms / 1000)


def clock_record(topic: str) -> Message:
    """Record of the broker's time, which the broker itself adds as the store time."""
    return Message(topic, b"{}", tag=CLOCK)


def error_record(topic: str, entry: Entry, error: str) -> Message:
    """Record of the reason why a tick cannot be armed."""
    return _message(topic, ERROR, {"name": entry.name, "id": entry.id, "error": error})


def fire_record(topic: str, entry: Entry, tick: Tick, half: Receipt | None, error: str | None) -> Message:
    """Record of a decision."""
    place = None
    if half is not None:
        queue = half.queue
        place = [half.msg_id, half.offset_msg_id, queue.topic, queue.broker_name, queue.queue_id, half.queue_offset]
    record = {"name": entry.name, "id": entry.id, **asdict(tick), "half": place, "error": error}
    return _message(topic, FIRE, record)


def firing_message(entry: Entry, at_ms: int) -> Message:
    """Message that a schedule delivers at a time."""
    properties = {NAME_PROPERTY: entry.name, TIME_PROPERTY: str(at_ms), ID_PROPERTY: entry.id}
    keys, wanted = [firing_id(entry.name, at_ms)], entry.definition
    return Message(wanted.topic, wanted.body, tag=wanted.tag, keys=keys, properties=properties)


def half_of(place: list[Any]) -> Receipt:
    """Receipt of a half message, as a record has it."""
    msg_id, offset_msg_id, topic, broker_name, queue_id, queue_offset = place
    texts, numbers = (msg_id, topic, broker_name), (queue_id, queue_offset)
    if not all(isinstance(one, str) for one in texts) or not all(isinstance(one, int) for one in numbers):
        raise TypeError("not the place of a half message")
    queue = MessageQueue(topic, broker_name, queue_id)
    return Receipt(SendStatus.SEND_OK, msg_id, offset_msg_id, queue, queue_offset)


def tick_of(record: dict[str, Any]) -> Tick:
    """Tick of a record."""
    return Tick(time_of(record["at_ms"]), time_of(record["due_ms"]), bool(record["is_late"]), record["error"])


def time_of(given: Any) -> int:
    """A time of a record, in milliseconds since 1970 UTC."""
    if type(given) is not int or given not in CALENDAR_MS:
        raise ValueError("not a time")
    return given


def _message(topic: str, tag: str, record: dict[str, Any], deliver_at: float | None = None) -> Message:
    return Message(topic, json.dumps(record).encode(), tag=tag, keys=[record["name"]], deliver_at=deliver_at)

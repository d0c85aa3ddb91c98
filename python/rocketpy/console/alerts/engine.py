"""Engine of the rules: a state machine over readings. It reads no clock and sends nothing.

An alert is `pending` while its condition holds for less than the rule's `for`, then it fires. It is resolved after its
condition has not held for the same time. Unknown values change nothing. A silenced alert changes its state without a
notification; when the silence ends and the alert still fires, the notification follows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from rocketpy.console.alerts.records import Alert, Entry, Notice, alert_text, resolved_text, shown
from rocketpy.console.alerts.rules import ALL, NONE, new_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rocketpy.console.alerts.readings import Readings
    from rocketpy.console.alerts.records import EntryKind, NoticeKind, Silence
    from rocketpy.console.alerts.rules import Rule

MAX_ALERTS = 1000
"""Maximum number of alerts that are pending or firing; more subjects are counted, not tracked."""
GAP_MS = 120_000
"""Maximum time between two readings of a condition that count as one period."""
GROWTH_MS = 600_000
"""Time over which new dead letters are counted."""
MAX_STEPS = 32
"""Maximum number of remembered changes of one count."""
MAX_COUNTS = 20_000
"""Maximum number of groups whose counts are remembered."""
SEEN_STEP_MS = 30_000
"""Time after which a reading that changes nothing else is stored."""
Change = Literal["none", "fired", "resolved"]
AlertKey = tuple[str, str]
"""Id of the rule, and subject."""
Count = tuple[tuple[int, float], ...]
"""Changes of a count: since when, and its value; oldest first."""
BEGAN = ""
"""Group of a count that reports that all groups of dead letters have been read once."""
UNREAD: Count = ((0, 1e300),)
"""Count of a group that could not be read so far: its first reading is not growth."""


@dataclass(slots=True)
class Step:
    """Outcome of a step: what a store has to write in one transaction."""

    alerts: dict[AlertKey, Alert | None] = field(default_factory=dict[AlertKey, "Alert | None"])
    """Alerts that changed; None for those that ended."""
    counts: dict[str, Count | None] = field(default_factory=dict[str, "Count | None"])
    """Counts of dead letters that changed, by group; None for groups that no longer exist."""
    brokers: dict[str, bool] = field(default_factory=dict[str, bool])
    """Brokers that became known (true) or are forgotten (false)."""
    entries: list[Entry] = field(default_factory=list[Entry])
    notices: list[Notice] = field(default_factory=list[Notice])

    def __bool__(self) -> bool:
        return bool(self.alerts or self.counts or self.brokers or self.entries or self.notices)


def advanced(
    alert: Alert | None, key: AlertKey, rule: Rule, value: float | None, now: int
) -> tuple[Alert | None, Change]:
    """Next state of an alert.

    Args:
        alert: State so far; None if the condition did not hold.
        key: Key of the alert.
        rule: Its rule.
        value: Value of the subject, or None if it is unknown now.
        now: Time of the reading in milliseconds since 1970 UTC.
    """
    if value is None:
        return alert, "none"
    if value >= rule.threshold and (rule.condition != "broker_gone" or value > 0):
        return held(alert, key, rule, value, now)
    if alert is None or alert.phase == "pending":
        return None, "none"
    cleared = min(now if alert.cleared_ms is None else alert.cleared_ms, now)
    if now - cleared >= rule.for_seconds * 1000:
        return None, "resolved"
    return replace(alert, cleared_ms=cleared), "none"


def held(alert: Alert | None, key: AlertKey, rule: Rule, value: float, now: int) -> tuple[Alert, Change]:
    """Next state of an alert whose condition holds."""
    if alert is None or (alert.phase == "pending" and not 0 <= now - alert.seen_ms <= GAP_MS):
        alert = Alert(*key, "pending", now, now, value)
    alert = replace(alert, seen_ms=now, value=value, cleared_ms=None)
    if alert.phase == "pending" and now - alert.since_ms >= rule.for_seconds * 1000:
        return replace(alert, phase="firing", fired_ms=now), "fired"
    return alert, "none"


@dataclass(frozen=True, slots=True)
class Moment:
    """What a step is applied with."""

    now: int
    """Time in milliseconds since 1970 UTC."""
    silences: Sequence[Silence]
    channels: Sequence[str]
    """Names of all channels."""

    def is_silenced(self, rule_id: str, subject: str) -> bool:
        """Whether an alert is silenced now."""
        return any(one.covers(rule_id, subject, self.now) for one in self.silences)

    def entry(self, kind: EntryKind, rule: Rule, subject: str, text: str) -> Entry:
        """Line of the history."""
        return Entry(self.now, kind, rule.name, subject, text, self.is_silenced(rule.id, subject))

    def notices(self, kind: NoticeKind, alert: Alert, rule: Rule, text: str) -> list[Notice]:
        """One notice for each channel of a rule."""
        names = [] if rule.channel == NONE else [name for name in self.channels if rule.channel in {ALL, name}]
        subject, value = alert.subject, alert.value
        kept = (rule.id, rule.name, rule.condition, subject, value, rule.threshold, alert.since_ms, text)
        return [Notice(new_id(), self.now, kind, name, *kept) for name in names]


class Engine:
    """State of all alerts of one cluster.

    Args:
        alerts: Alerts at the start.
        counts: Counts of dead letters at the start, by group.
        brokers: Brokers known at the start: one that is missing later is gone.
    """

    def __init__(
        self,
        alerts: Iterable[Alert] = (),
        counts: Mapping[str, Count] | None = None,
        brokers: Iterable[str] = (),
    ) -> None:
        self._alerts: dict[AlertKey, Alert] = {(one.rule_id, one.subject): one for one in alerts}
        self._counts: dict[str, Count] = dict(counts or {})
        self._brokers = set(brokers)
        self.not_tracked = 0
        """Number of subjects whose condition held at the last step, and that exceeded the maximum."""

    @property
    def alerts(self) -> list[Alert]:
        """Alerts that are pending or firing."""
        return list(self._alerts.values())

    def forget_broker(self, name: str) -> Step:
        """Forgets a broker that was removed on purpose: the next step resolves its alert."""
        step = Step()
        if name in self._brokers:
            self._brokers.discard(name)
            step.brokers[name] = False
        return step

    def end_rule(self, rule: Rule, moment: Moment) -> Step:
        """Ends all alerts of a rule that is deleted or changed."""
        step = Step()
        for key in [key for key in self._alerts if key[0] == rule.id]:
            self._end(key, rule, moment, step)
        return step

    def step(self, readings: Readings, rules: Sequence[Rule], moment: Moment) -> Step:
        """Applies the rules to readings."""
        step = Step()
        self.not_tracked = 0
        values = self._prepared(readings, moment.now, step)
        by_id = {rule.id: rule for rule in rules}
        for key in list(self._alerts):
            rule = by_id.get(key[0])
            if rule is None or not rule.is_enabled or not rule.applies_to(key[1]):
                self._end(key, rule, moment, step)
        for rule in rules:
            if not rule.is_enabled:
                continue
            is_minimum = rule.condition in readings.minimums
            for subject, read in self._subjects(rule, values.get(rule.condition, {}), readings):
                value = None if is_minimum and read is not None and read < rule.threshold else read
                self._advance(rule, subject, value, moment, step)
        return step

    def _subjects(
        self, rule: Rule, values: Mapping[str, float | None], readings: Readings
    ) -> Iterator[tuple[str, float | None]]:
        for subject, value in values.items():
            if rule.applies_to(subject):
                yield subject, value
        if rule.condition in readings.complete:
            for rule_id, subject in list(self._alerts):
                if rule_id == rule.id and subject not in values:
                    yield subject, -1.0  # the subject no longer exists, so its condition does not hold

    def _prepared(self, readings: Readings, now: int, step: Step) -> dict[str, Mapping[str, float | None]]:
        values = dict(readings.values)
        if "dead_letters" in values:
            values["dead_letters"] = self._growth(readings, now, step)
        found = dict(readings.of("broker_gone"))
        for name in found.keys() - self._brokers:
            self._brokers.add(name)
            step.brokers[name] = True
        if "broker_gone" in readings.complete:
            values["broker_gone"] = found | dict.fromkeys(self._brokers - found.keys(), 1.0)
        return values

    def _growth(self, readings: Readings, now: int, step: Step) -> dict[str, float | None]:
        grown = dict[str, float | None]()
        totals = readings.of("dead_letters")
        is_complete = "dead_letters" in readings.complete
        is_first = BEGAN not in self._counts
        if is_first and is_complete:
            self._counts[BEGAN] = step.counts[BEGAN] = ((now, 0),)
        for group, total in totals.items():
            known = self._counts.get(group)
            if known is None and len(self._counts) >= MAX_COUNTS:
                continue
            if total is None:
                if known is None:
                    self._counts[group] = step.counts[group] = UNREAD
                grown[group] = None
                continue
            # A group that appears later had no dead letters: its first one makes it appear.
            count = counted(known or (((now, total),) if is_first else ((now, 0),)), total, now)
            if count != known:
                self._counts[group] = step.counts[group] = count
            grown[group] = max(0.0, total - count[0][1])
        if is_complete:
            for group in self._counts.keys() - totals.keys() - {BEGAN}:
                del self._counts[group]
                step.counts[group] = None
        return grown

    def _advance(self, rule: Rule, subject: str, value: float | None, moment: Moment, step: Step) -> None:
        key = (rule.id, subject)
        before = self._alerts.get(key)
        after, change = advanced(before, key, rule, value, moment.now)
        if before is None and after is None:
            return
        if before is None and len(self._alerts) >= MAX_ALERTS:
            self.not_tracked += 1
            return
        if after is None:
            if change == "resolved" and before is not None:
                seconds = max(0, moment.now - (before.fired_ms or moment.now)) / 1000
                close(before, rule, "resolved", resolved_text(rule, subject, seconds), moment, step)
            self._alerts.pop(key, None)
        else:
            if change == "fired":
                step.entries.append(moment.entry("firing", rule, subject, alert_text(rule, subject, after.value)))
            if value is not None:
                after = notified(after, rule, moment, step)
            self._alerts[key] = after
        if stored_form(before) != stored_form(after):
            step.alerts[key] = after

    def _end(self, key: AlertKey, rule: Rule | None, moment: Moment, step: Step) -> None:
        alert = self._alerts.pop(key)
        step.alerts[key] = None
        if alert.phase == "firing" and rule is not None:
            text = f"Ended: rule {rule.name} was changed or removed while {shown(alert.subject)} fired."
            close(alert, rule, "removed", text, moment, step)


def close(alert: Alert, rule: Rule, kind: EntryKind, text: str, moment: Moment, step: Step) -> None:
    """Writes the end of a firing alert into the history, and notifies who was notified of its start.

    A silence does not hold back that notification: the receiver would keep its incident open.
    """
    step.entries.append(moment.entry(kind, rule, alert.subject, text))
    if alert.notified_ms is not None:
        step.notices += moment.notices("resolved", alert, rule, text)


def notified(alert: Alert, rule: Rule, moment: Moment, step: Step) -> Alert:
    """Queues the first or the next notification of an alert, if it is due."""
    if alert.phase != "firing" or alert.cleared_ms is not None or moment.is_silenced(rule.id, alert.subject):
        return alert
    last = alert.notified_ms
    if last is not None and (not rule.repeat_seconds or 0 <= moment.now - last < rule.repeat_seconds * 1000):
        return alert
    kind: NoticeKind = "firing" if last is None else "repeat"
    notices = moment.notices(kind, alert, rule, alert_text(rule, alert.subject, alert.value))
    step.notices += notices
    return replace(alert, notified_ms=moment.now) if notices else alert


def counted(known: Count, total: float, now: int) -> Count:
    """Changes of a count with a new reading: one before `GROWTH_MS` ago, and those since."""
    newest_at, newest = known[-1]
    if total < newest or now < newest_at:
        return ((now, total),)  # deleted letters, or a clock that was set back
    steps = list(known) if total == newest else [*known, (now, total)]
    while len(steps) > 1 and steps[1][0] <= now - GROWTH_MS:
        del steps[0]
    if len(steps) > MAX_STEPS:
        del steps[1]
    return tuple(steps)


def stored_form(alert: Alert | None) -> Alert | None:
    """An alert as the store needs it: the time of each reading is not worth a write."""
    return None if alert is None else replace(alert, seen_ms=alert.seen_ms // SEEN_STEP_MS, value=0)

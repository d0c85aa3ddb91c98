"""Records of alerts: what is firing, what is silenced, what happened, what is to be sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocketpy.base.text import printable
from rocketpy.console.alerts.rules import CONDITIONS, MAX_NAME, Rule, checked_name, matches
from rocketpy.errors import InvalidArgumentError

Phase = Literal["pending", "firing"]
NoticeKind = Literal["firing", "repeat", "resolved", "test"]
EntryKind = Literal["firing", "resolved", "removed"]
MAX_SILENCE_MS = 90 * 24 * 3600 * 1000
"""Maximum length of a silence in milliseconds."""
MAX_REASON = 1000
"""Maximum length of the reason of a silence, in characters."""


@dataclass(frozen=True, slots=True)
class Alert:
    """State of one rule for one subject. Times are milliseconds since 1970 UTC."""

    rule_id: str
    subject: str
    phase: Phase
    since_ms: int
    """Since when the condition holds."""
    seen_ms: int
    """When the condition was last read to hold."""
    value: float
    """Value at `seen_ms`, in the unit of the condition."""
    fired_ms: int | None = None
    cleared_ms: int | None = None
    """Since when the condition no longer holds; None while it holds."""
    notified_ms: int | None = None
    """When the last notification was queued."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Time without notifications of some alerts.

    Raises:
        InvalidArgumentError: A value is out of its range.
    """

    id: str
    rule_id: str
    """Id of a rule; empty for every rule."""
    subject: str
    """Name, or beginning and `*`, as in rules."""
    from_ms: int
    until_ms: int
    by: str
    """User who created it."""
    reason: str

    def __post_init__(self) -> None:
        checked_name("subject", self.subject)
        if not 0 < self.until_ms - self.from_ms <= MAX_SILENCE_MS:
            raise InvalidArgumentError("end of the silence must be within 90 days after its start")
        if len(self.reason) > MAX_REASON:
            raise InvalidArgumentError(f"reason exceeds {MAX_REASON} characters: {len(self.reason)}")

    def covers(self, rule_id: str, subject: str, now_ms: int) -> bool:
        """Whether an alert is silenced at a time."""
        is_now = self.from_ms <= now_ms < self.until_ms
        return is_now and self.rule_id in {"", rule_id} and matches(self.subject, subject)


@dataclass(frozen=True, slots=True)
class Entry:
    """Line of the history."""

    at_ms: int
    kind: EntryKind
    rule_name: str
    subject: str
    text: str
    is_silenced: bool


@dataclass(frozen=True, slots=True)
class Notice:
    """Notification that waits for its delivery. A receiver may get it twice, and recognises it by `id`."""

    id: str
    at_ms: int
    kind: NoticeKind
    channel: str
    rule_id: str
    rule_name: str
    condition: str
    subject: str
    value: float
    threshold: float
    since_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Channel:
    """Receiver of notifications.

    Raises:
        InvalidArgumentError: The name is reserved or not a name.
    """

    name: str
    kind: Literal["webhook", "mail"]
    target: str
    """URL of the webhook, or addresses of the mail with commas between them."""

    def __post_init__(self) -> None:
        checked_name("name of the channel", self.name)
        if self.name in {"all", "none"}:
            raise InvalidArgumentError(f"name of the channel is reserved: {self.name}")


def shown(name: str) -> str:
    """Name in a text: without control characters, cut at the maximum length of names."""
    text = printable(name)
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…"


def spelled(value: float, unit: str) -> str:
    """Value with its unit.

    Examples:
        >>> spelled(18204, "messages"), spelled(720, "seconds"), spelled(91.26, "percent"), spelled(84e6, "bytes")
        ('18,204 messages', '12 min', '91.3 %', '80.1 MiB')
    """
    if unit == "messages":
        return "1 message" if value == 1 else f"{value:,.0f} messages"
    if unit == "percent":
        return f"{value:.1f} %".replace(".0 %", " %")
    if unit == "seconds":
        return duration_text(value)
    if unit == "bytes":
        for step, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= step:
                return f"{value / step:,.1f} {name}".replace(f".0 {name}", f" {name}")
        return f"{value:,.0f} B"
    return f"{value:g}"


def duration_text(seconds: float) -> str:
    """Duration in its two greatest units.

    Examples:
        >>> duration_text(45), duration_text(750), duration_text(7200), duration_text(90000)
        ('45 s', '12 min 30 s', '2 h', '1 d 1 h')
    """
    rest, parts = round(seconds), list[str]()
    for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count:,} {name}" if count else "")
    return " ".join(part for part in parts[:2] if part) or "0 s"


def alert_text(rule: Rule, subject: str, value: float) -> str:
    """Sentence of an alert whose condition holds."""
    name, limit = shown(subject), spelled(rule.threshold, rule.unit)
    amount = spelled(value, rule.unit)
    return {
        "lag": f"Group {name} has {amount} of lag (limit {limit}).",
        "behind": f"Group {name} is {amount} behind (limit {limit}).",
        "no_members": f"Group {name} has no members and {amount} of lag.",
        "dead_letters": f"Group {name} has {value:,.0f} new dead letter{'' if value == 1 else 's'} within 10 min.",
        "broker_gone": f"Broker {name} does not answer.",
        "disk": f"Disk of broker {name} is {amount} full (limit {limit}).",
        "replication_bytes": f"Slowest slave of broker {name} is {amount} behind (limit {limit}).",
        "replication_seconds": f"Slowest slave of broker {name} is {amount} behind (limit {limit}).",
    }[rule.condition]


def resolved_text(rule: Rule, subject: str, fired_seconds: float) -> str:
    """Sentence of an alert that is resolved."""
    noun = CONDITIONS[rule.condition].noun
    return f"Resolved: {rule.name} of {noun} {shown(subject)}, after {duration_text(fired_seconds)}."

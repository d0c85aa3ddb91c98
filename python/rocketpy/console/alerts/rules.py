"""Alert rules: conditions, subjects, and the rules that are on at the first start."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Literal

from rocketpy.base.text import CONTROL, printable
from rocketpy.errors import InvalidArgumentError

ALL, NONE = "all", "none"
"""Channels of rules in addition to the names of channels: every channel, and no channel."""
MAX_NAME = 255
"""Maximum length of the name of a rule, a subject, a channel, in characters."""
MAX_RULES = 200
MAX_SECONDS = 30 * 24 * 3600
"""Maximum of `for` and of the repeat, in seconds."""
Unit = Literal["messages", "seconds", "percent", "bytes", ""]


@dataclass(frozen=True, slots=True)
class Condition:
    """Kind of condition of a rule."""

    key: str
    noun: Literal["group", "broker"]
    """Kind of the subjects."""
    label: str
    """Words of forms, with the threshold after them."""
    unit: Unit
    """Unit of the threshold; empty for a condition without one."""


CONDITIONS: dict[str, Condition] = {
    one.key: one
    for one in (
        Condition("lag", "group", "lag is at least", "messages"),
        Condition("behind", "group", "time behind is at least", "seconds"),
        Condition("no_members", "group", "no members, and lag is at least", "messages"),
        Condition("dead_letters", "group", "new dead letters within 10 min are at least", "messages"),
        Condition("broker_gone", "broker", "broker does not answer", ""),
        Condition("disk", "broker", "used disk is at least", "percent"),
        Condition("replication_bytes", "broker", "slowest slave is behind by at least", "bytes"),
        Condition("replication_seconds", "broker", "slowest slave is behind by at least", "seconds"),
    )
}
"""Conditions by key."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition to watch, and who is notified.

    Raises:
        InvalidArgumentError: A value is out of its range.
    """

    id: str
    name: str
    condition: str
    """Key of `CONDITIONS`."""
    subject: str
    """Name of a group or broker; `mail*` for all with this beginning, `*` for all."""
    threshold: float
    """Value from which the condition holds, in the unit of the condition."""
    for_seconds: int
    """Time the condition must hold before the alert fires, and must not hold before the alert is resolved."""
    repeat_seconds: int
    """Time between notifications while the alert fires; 0 notifies once."""
    channel: str = ALL
    """Name of a channel, `all` or `none`."""
    is_enabled: bool = True

    def __post_init__(self) -> None:
        checked_name("name of the rule", self.name)
        checked_name("subject", self.subject)
        checked_name("channel", self.channel)
        if self.condition not in CONDITIONS:
            raise InvalidArgumentError(f"unknown condition: {printable(self.condition)[:MAX_NAME]}")
        if not math.isfinite(self.threshold) or not 0 <= self.threshold <= 1e18:
            raise InvalidArgumentError(f"threshold must be 0 to 10^18: {self.threshold}")
        if self.unit == "percent" and self.threshold > 100:
            raise InvalidArgumentError(f"threshold must be 0 to 100 percent: {self.threshold:g}")
        if self.unit and self.threshold == 0:
            raise InvalidArgumentError("threshold must be greater than 0", hint="delete or disable the rule instead")
        for noun, seconds in (("`for`", self.for_seconds), ("repeat", self.repeat_seconds)):
            if not 0 <= seconds <= MAX_SECONDS:
                raise InvalidArgumentError(f"{noun} must be 0 to {MAX_SECONDS} s: {seconds}")
        if 0 < self.repeat_seconds < 60:
            raise InvalidArgumentError(f"repeat must be 0 or at least 60 s: {self.repeat_seconds}")

    @property
    def unit(self) -> Unit:
        """Unit of the threshold."""
        return CONDITIONS[self.condition].unit

    @property
    def noun(self) -> Literal["group", "broker"]:
        """Kind of the subjects: group or broker."""
        return CONDITIONS[self.condition].noun

    def applies_to(self, subject: str) -> bool:
        """Whether a group or broker of this name is a subject."""
        return matches(self.subject, subject)


def matches(pattern: str, name: str) -> bool:
    """Whether a name is the pattern, or has its beginning before a `*`.

    Examples:
        >>> matches("mail*", "mailer"), matches("mail", "mailer"), matches("*", "mailer")
        (True, False, True)
    """
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def checked_name(noun: str, given: str) -> str:
    """Checks a name that a person typed.

    Raises:
        InvalidArgumentError: It is empty, too long, or has control characters.
    """
    if not given.strip():
        raise InvalidArgumentError(f"{noun} must not be empty")
    if len(given) > MAX_NAME:
        raise InvalidArgumentError(f"{noun} exceeds {MAX_NAME} characters: {len(given)}")
    if CONTROL.search(given):
        raise InvalidArgumentError(f"{noun} must not contain control characters: {printable(given)}")
    return given


def new_id() -> str:
    """A new id of a rule, a silence or a notice."""
    return secrets.token_hex(8)


def built_in_rules() -> list[Rule]:
    """Rules of the first start; every one may be changed or deleted."""
    minute, hour = 60, 3600
    return [
        Rule("broker-gone", "Broker gone", "broker_gone", "*", 0, minute, hour),
        Rule("disk", "Disk nearly full", "disk", "*", 85, minute, 4 * hour),
        Rule("dead-letters", "Dead letters grow", "dead_letters", "*", 1, 0, 4 * hour),
        Rule("behind", "Group far behind in time", "behind", "*", 300, 5 * minute, 4 * hour),
        Rule("lag", "Group far behind in messages", "lag", "*", 100_000, 3 * minute, 4 * hour),
        Rule("no-members", "Group without members", "no_members", "*", 1000, 10 * minute, 24 * hour),
        Rule("replication-bytes", "Replication behind", "replication_bytes", "*", 64 << 20, minute, hour),
        Rule("replication-seconds", "Replication behind in time", "replication_seconds", "*", 60, 2 * minute, hour),
    ]

"""Plans of offset resets: what each queue has now and would get, and a mark that tells whether the commits moved."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from rocketpy.base.instant import datetime_of, instant_ms
from rocketpy.config import Start
from rocketpy.console.commands import command_line
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rocketpy import MessageQueue, OffsetChange
    from rocketpy.admin.cluster import QueueInfo
    from rocketpy.aio.admin import AsyncAdmin

__all__ = ["KINDS", "QueuePlan", "ResetPlan", "Target", "plan_of", "queue_name", "queue_of", "target_of"]

Kind: TypeAlias = Literal["time", "earliest", "latest", "queue"]

KINDS: dict[str, str] = {
    "earliest": "earliest: all stored messages again",
    "time": "time",
    "latest": "latest: skip to the end",
    "queue": "one queue to one offset",
}
"""Targets of a reset by their names in URLs."""
MAX_OFFSET = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a reset."""

    kind: str
    at_ms: int | None = None
    """Time of the target `time`, in milliseconds since 1970."""
    queue: str | None = None
    """`broker:queue` of the target `queue`."""
    offset: int | None = None

    @property
    def start(self) -> Start:
        """The target for the SDK; not for one queue."""
        if self.kind == "time":
            return Start.at(datetime_of(self.at_ms) or datetime.now(UTC))
        return Start.EARLIEST if self.kind == "earliest" else Start.LATEST

    @property
    def where(self) -> str:
        """The target for `--to` of the command line."""
        if self.kind == "time":
            at = datetime_of(self.at_ms)
            return "" if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return str(self.offset) if self.kind == "queue" else self.kind


def target_of(form: Mapping[str, str]) -> Target:
    """Reads a target from the fields `to`, `at`, `queue` and `offset`.

    Raises:
        InvalidArgumentError: A field is missing or invalid.
    """
    kind = form.get("to", "")
    if kind not in KINDS:
        raise InvalidArgumentError(f"target must be one of {', '.join(KINDS)}: {kind or 'none is given'}")
    if kind == "time":
        at_ms = instant_ms(utc(form.get("at", "").strip()))
        if datetime_of(at_ms) is None:
            raise InvalidArgumentError(f"time is out of range: {form.get('at')}")
        return Target(kind, at_ms=at_ms)
    if kind == "queue":
        text = form.get("offset", "").strip().replace(",", "")
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_OFFSET):
            raise InvalidArgumentError(f"offset must be a whole number from 0: {text or 'none is given'}")
        if not form.get("queue"):
            raise InvalidArgumentError("queue is not given")
        return Target(kind, queue=form["queue"], offset=int(text))
    return Target(kind)


def utc(text: str) -> str:
    """Adds the zone UTC to a time that has none: the server's own zone would surprise its visitors.

    Examples:
        >>> utc("2026-11-28 13:00:00.000 UTC"), utc("2026-11-28T13:00:00+01:00"), utc("-10m"), utc("2026-11-28")
        ('2026-11-28 13:00:00.000Z', '2026-11-28T13:00:00+01:00', '-10m', '2026-11-28T00:00:00Z')
    """
    text = text.removesuffix("UTC").strip() + "Z" if text.endswith("UTC") else text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if moment.tzinfo is not None:
        return text
    return f"{text}Z" if len(text) > len("2026-11-28") else f"{moment.date().isoformat()}T00:00:00Z"


def queue_name(queue: MessageQueue) -> str:
    """`broker:queue` of a queue."""
    return f"{queue.broker_name}:{queue.queue_id}"


def queue_of(queues: Iterable[MessageQueue], name: str) -> MessageQueue:
    """The queue of this name.

    Raises:
        InvalidArgumentError: No queue has the name.
    """
    found = next((one for one in queues if queue_name(one) == name), None)
    if found is None:
        raise InvalidArgumentError(f"topic has no queue {name}")
    return found


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """Change of one queue."""

    queue: MessageQueue
    before: int | None
    """Stored offset; None without a commit."""
    after: int
    low: int
    """Offset of the oldest message."""
    high: int
    """Offset after the newest message."""

    @property
    def change(self) -> int | None:
        """Difference of the offsets; None without a commit."""
        return None if self.before is None else self.after - self.before

    @property
    def again(self) -> int:
        """Number of stored messages that are delivered again."""
        return 0 if self.before is None else max(0, min(self.before, self.high) - max(self.after, self.low))

    @property
    def skipped(self) -> int:
        """Number of stored messages that are not delivered."""
        return max(0, min(self.after, self.high) - max(self.before or 0, self.low))


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """Changes of all queues of a reset."""

    group: str
    topic: str
    target: Target
    queues: tuple[QueuePlan, ...]

    @property
    def again(self) -> int:
        """Number of messages that are delivered again."""
        return sum(one.again for one in self.queues)

    @property
    def skipped(self) -> int:
        """Number of messages that are not delivered."""
        return sum(one.skipped for one in self.queues)

    @property
    def mark(self) -> str:
        """Hash of the stored offsets: another one means that they moved since the preview."""
        lines = [f"{queue_name(one.queue)}={one.before}" for one in self.queues]
        return hashlib.sha256("\n".join([self.group, self.topic, *lines]).encode(errors="replace")).hexdigest()[:32]

    def command(self, name_servers: str, *, force: bool = False) -> str:
        """The equivalent command line."""
        options: dict[str, str | bool] = {"topic": self.topic}
        words = ["group", "reset"]
        if self.target.kind == "queue":
            (one,) = self.queues
            words = ["offset", "set"]
            options |= {"broker": one.queue.broker_name, "queue": str(one.queue.queue_id)}
        options |= {"to": self.target.where, "force": force}
        return command_line(words, [self.group], options, name_servers)

    def summary(self, *, after: Sequence[OffsetChange | QueuePlan] | None = None) -> str:
        """Stored or new offsets as one line of the audit; at most 100 queues."""
        rows = self.queues if after is None else after
        parts = [f"{queue_name(one.queue)} {one.before if after is None else one.after}" for one in rows[:100]]
        rest = len(rows) - 100
        return ", ".join(parts) + (f" and {rest:,} more queues" if rest > 0 else "")


async def plan_of(admin: AsyncAdmin, group: str, topic: str, target: Target) -> ResetPlan:
    """Computes a reset, also while the group has live members. Nothing is changed.

    Raises:
        GroupNotFoundError: The group does not exist.
        TopicNotFoundError: No name server knows the topic.
        OffsetError: The offset is outside of the queue.
        InvalidArgumentError: The topic does not have the queue.
    """
    infos: dict[MessageQueue, QueueInfo] = {one.queue: one for one in (await admin.describe_topic(topic)).queues}
    if target.kind == "queue":
        queue = queue_of(infos, target.queue or "")
        changes = [await admin.set_offset(group, queue, target.offset or 0, force=True, dry_run=True)]
    else:
        changes = await admin.plan_reset(group, topic, target.start, force=True)
    found: list[QueuePlan] = []
    for one in sorted(changes, key=lambda one: (one.queue.broker_name, one.queue.queue_id)):
        info = infos.get(one.queue)
        low, high = (one.after, one.after) if info is None else (info.min_offset, info.max_offset)
        found.append(QueuePlan(one.queue, one.before, one.after, low, high))
    return ResetPlan(group, topic, target, tuple(found))

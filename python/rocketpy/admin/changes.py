"""Values of changes: settings, offsets, single messages, leftovers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.message import MessageQueue, Receipt

__all__ = ["CleanedPart", "DirectResult", "OffsetChange", "ResentMessage", "SettingChange"]


@dataclass(frozen=True, slots=True)
class SettingChange:
    """Change of one setting at one broker."""

    broker_name: str
    setting: str
    before: str | int | bool | None
    """Value before; None without one."""
    after: str | int | bool | None
    """Requested value; None for an attribute to remove."""
    error: str | None = None
    """Error of a broker that did not change the setting; None if it did, or would do so."""
    code: int | None = None
    """Response code of the error; None without one."""


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """Change of the stored offset of a group in one queue."""

    queue: MessageQueue
    before: int | None
    """Stored offset before; None without one."""
    after: int
    """Offset that the group reads next."""


@dataclass(frozen=True, slots=True)
class ResentMessage:
    """Outcome of the resend of one message."""

    message: ReceivedMessage
    """Message that was found."""
    topic: str
    """Target topic; the retry topic of a group if only that group receives the copy."""
    sent_before: bool
    """Whether the target topic has a copy of an earlier resend."""
    receipt: Receipt | None
    """Receipt of the copy; None if nothing was sent."""


@dataclass(frozen=True, slots=True)
class DirectResult:
    """Outcome of a message that a member of a group handled at once."""

    client_id: str
    """Member that handled the message."""
    result: str
    """`success`, `later` (the handler requests a retry) or `failed`."""
    error: str | None
    """Error of the handler; None if it did not fail."""
    milliseconds: int
    """Duration of the handler."""


@dataclass(frozen=True, slots=True)
class CleanedPart:
    """Leftovers of one kind at one broker."""

    broker_name: str
    kind: str
    """`files`, `topics` or `offsets`."""
    found: str
    """Description of the leftovers."""
    is_removed: bool
    """Whether the broker removed them, or will do so at once."""
    error: str | None = None
    """Error of a broker that did not remove them."""


class GroupSettings(TypedDict, total=False):
    """Settings of a consumer group. An absent setting stays unchanged."""

    enabled: bool
    """Whether the group may read. False suspends it; its offsets stay."""
    broadcast: bool
    """Whether members may broadcast: each reads all messages."""
    retries: int
    """Number of retries before a message becomes a dead letter, where the client does not say, from 0."""
    retry_queues: int
    """Number of queues of the retry topic when it is created, from 0. 0: failed messages are dropped."""
    notify_members: bool
    """Whether brokers notify members at once when one joins or leaves."""
    ordered: bool
    """Label of groups that read in order. RocketPy's brokers only store it."""
    timeout_minutes: int
    """Minutes for one message, from 1. RocketPy's brokers only store it."""


GROUP_KEYS = {
    "enabled": "consumeEnable",
    "broadcast": "consumeBroadcastEnable",
    "retries": "retryMaxTimes",
    "retry_queues": "retryQueueNums",
    "notify_members": "notifyConsumerIdsChangedEnable",
    "ordered": "consumeMessageOrderly",
    "timeout_minutes": "consumeTimeoutMinute",
}
"""Names of the settings of a group in the protocol."""
GROUP_LIMITS = {"retries": (-1, 1 << 20), "retry_queues": (0, 16_384), "timeout_minutes": (1, 1 << 20)}
"""Bounds of numbers: -1 retries means those of the client."""


def group_changes(broker_name: str, stored: Mapping[str, Any], wanted: Mapping[str, object]) -> list[SettingChange]:
    """Settings of a group that differ from the requested ones at one broker."""
    changes = [
        SettingChange(broker_name, name, stored.get(GROUP_KEYS[name]), value)  # type: ignore[arg-type]
        for name, value in wanted.items()
    ]
    return [one for one in changes if one.before != one.after]


TOPIC_KEYS = {"read_queues": "readQueueNums", "write_queues": "writeQueueNums"}
"""Names of the numbers of queues in the protocol."""
READ, WRITE = 4, 2
"""Bits of a permission."""


def topic_changes(
    broker_name: str, stored: Mapping[str, Any], wanted: Mapping[str, int | bool], attributes: Mapping[str, str | None]
) -> list[SettingChange]:
    """Settings of a topic that differ from the requested ones at one broker."""
    now: dict[str, int | bool] = {name: stored[key] for name, key in TOPIC_KEYS.items()}
    now |= {"readable": bool(stored["perm"] & READ), "writable": bool(stored["perm"] & WRITE)}
    changes = [SettingChange(broker_name, name, now[name], value) for name, value in wanted.items()]
    known: Mapping[str, str] = stored.get("attributes") or {}
    changes += [SettingChange(broker_name, name, known.get(name), value) for name, value in attributes.items()]
    return [one for one in changes if one.before != one.after]

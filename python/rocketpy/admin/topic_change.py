"""Implementation of `create_topic`: a new topic, or a change of an existing one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from rocketpy.base.names import check_type
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing import Unpack

    from rocketpy.admin.cluster import QueueInfo, TopicBroker, TopicInfo

    NativeTopic = tuple[str, int, int, int, str | None, str | None, dict[str, str | None]]

DEFAULT_QUEUES = 8
"""Number of queues of a new topic at each broker."""


def first_given(*values: int | None) -> int:
    """The first value that is not None. One must be."""
    return next(value for value in values if value is not None)


def check_held(topic: str, queues: int | None, held: int) -> None:
    """Refuses a smaller number of queues if the removed queues hold messages.

    Args:
        topic: Name of the topic.
        queues: New number of queues.
        held: Number of messages in the queues to remove, including messages that cannot be read yet.
    """
    if held:
        noun = "message" if held == 1 else "messages"
        raise InvalidArgumentError(
            f"cannot reduce topic {topic} to {queues} queues: the removed queues hold {held:,} {noun}",
            hint="consume them first, or add force=True (--force); the old number of queues restores them",
        )


class TopicChanges(TypedDict, total=False):
    """Options of `create_topic` in addition to name and queues."""

    write_queues: int | None
    readable: bool | None
    writable: bool | None
    cluster: str | None
    broker: str | None
    attributes: Mapping[str, str | None] | None
    force: bool


class TopicChange:
    """Arguments of `create_topic`; attributes that are not named stay unchanged."""

    def __init__(self, topic: str, queues: int | None, **changes: Unpack[TopicChanges]) -> None:
        self.topic, self.queues = topic, queues
        self.write_queues = changes.get("write_queues")
        self.readable, self.writable = changes.get("readable"), changes.get("writable")
        self.cluster, self.broker = changes.get("cluster"), changes.get("broker")
        self.attributes, self.force = changes.get("attributes"), changes.get("force", False)
        check_type("queues", queues, int | None, "a whole number")
        check_type("write_queues", self.write_queues, int | None, "a whole number")
        check_type("readable", self.readable, bool | None, "a bool")
        check_type("writable", self.writable, bool | None, "a bool")
        check_type("attributes", self.attributes, Mapping | None, "a dict by name")

        for value in (self.attributes or {}).values():
            check_type("a value of attributes", value, str | None, "a str or None")

    def dropped(self, known: TopicInfo | None) -> list[QueueInfo]:
        """Queues that would be removed, and must not hold messages."""
        if known is None or not known.brokers or self.queues is None or self.force:
            return []
        return [one for one in known.queues if one.queue.queue_id >= self.queues]

    def calls(self, known: TopicInfo | None, held: int) -> list[NativeTopic]:
        """The arguments of the native calls.

        Args:
            known: Current state of the topic.
            held: Number of messages in the queues to remove, including messages that cannot be read yet.
        """
        check_held(self.topic, self.queues, held)
        chosen = [
            one
            for one in (known.brokers if known else ())
            if self.cluster in (None, one.cluster) and self.broker in (None, one.broker_name)
        ]
        shapes = {(one.read_queues, one.write_queues, one.readable, one.writable) for one in chosen}
        if len(shapes) <= 1:
            return [self._call(chosen[0] if chosen else None, self.broker)]  # also at brokers that do not have it yet
        return [self._call(one, one.broker_name) for one in chosen]

    def _call(self, now: TopicBroker | None, at: str | None) -> NativeTopic:
        read = first_given(self.queues, now.read_queues if now else None, DEFAULT_QUEUES)
        write = first_given(self.write_queues, self.queues, now.write_queues if now else None, DEFAULT_QUEUES)
        may_read = first_given(self.readable, now.readable if now else None, True)
        may_write = first_given(self.writable, now.writable if now else None, True)
        perm = 4 * may_read + 2 * may_write
        return self.topic, read, write, perm, self.cluster, at, dict(self.attributes or {})

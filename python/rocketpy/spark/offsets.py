"""Progress of a stream in Spark's checkpoint.

An offset of Spark is a JSON object: `{"v": 1, "offsets": {topic: {broker: {queue: offset}}}, "from": {...}}`. `offsets`
is where the batch ends, `from` where it begins. Spark keeps no start of a stream's first batch, and asks for it again
when it repeats that batch: without `from`, messages in between would be lost. `offsets` can be used as
`starting_offsets`. In a stream of a folder the broker is an empty text, and `store` tells that store from another.
`previous` has the shape of `offsets` and tells the message before each of them from another: `[stored_at_ms,
born_at_ms]`. Queues whose message before is not known are not in it, nor is any in checkpoints of older versions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rocketpy.errors import OffsetError
from rocketpy.message import MessageQueue
from rocketpy.spark.fingerprint import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1

Value = TypeVar("Value")

Offsets: TypeAlias = "dict[MessageQueue, int]"
"""Offset of the next message to read, by queue."""


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """Begin and end of a batch of a stream, by queue."""

    end: Offsets
    begin: Offsets
    marks: Mapping[str, bytes] = field(default_factory=dict)
    """Marks of a store from `rocketpy.spark.identity.store_marks`; empty in a stream of a cluster."""
    previous: Mapping[MessageQueue, Fingerprint] = field(default_factory=dict)
    """The last message before `end`, by queue, where it is known."""

    def to_json(self) -> dict[str, Any]:
        """Converts to the text in Spark's checkpoint."""
        store = {"store": {name: mark.hex() for name, mark in self.marks.items()}} if self.marks else {}
        times = {queue: list(fingerprint) for queue, fingerprint in self.previous.items()}
        previous = {"previous": tree_of(times)} if times else {}
        return {"v": VERSION, "offsets": tree_of(self.end), "from": tree_of(self.begin), **store, **previous}

    @classmethod
    def of_json(cls, value: Any) -> BatchOffsets:
        """Reads the text of Spark's checkpoint.

        Raises:
            OffsetError: The text is from another data source or a newer version. A retry fails again.

        Examples:
            >>> start = BatchOffsets({MessageQueue("flights", "broker-a", 0): 7}, {})
            >>> start.to_json()
            {'v': 1, 'offsets': {'flights': {'broker-a': {'0': 7}}}, 'from': {}}
            >>> BatchOffsets.of_json(start.to_json()) == start
            True
        """
        if not isinstance(value, dict) or value.get("v") != VERSION:
            raise OffsetError(
                f"the checkpoint holds no offsets of format rocketpy, version {VERSION}: {value}",
                hint="start the query with the version that wrote it, or with another checkpointLocation",
            )
        marks = {name: bytes.fromhex(mark) for name, mark in value.get("store", {}).items()}
        previous = {queue: Fingerprint(*times) for queue, times in _flat(value.get("previous", {})).items()}
        return cls(_flat(value["offsets"]), _flat(value["from"]), marks, previous)

    @classmethod
    def of_text(cls, text: str | None) -> BatchOffsets | None:
        """Reads the progress of a query; returns None for another source.

        Args:
            text: JSON, as in `query.lastProgress.sources`.
        """
        try:
            return cls.of_json(json.loads(text or "null"))
        except (OffsetError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def tree_of(values: Mapping[MessageQueue, Value]) -> dict[str, dict[str, dict[str, Value]]]:
    """Offsets by topic, broker and queue, as JSON has them in a checkpoint and in `starting_offsets`.

    Args:
        values: Offsets, or other values, by queue.
    """
    tree: dict[str, dict[str, dict[str, Value]]] = {}
    for queue in sorted(values):
        tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = values[queue]
    return tree


def _flat(tree: Mapping[str, Mapping[str, Mapping[str, Value]]]) -> dict[MessageQueue, Value]:
    return {
        MessageQueue(topic, broker_name, int(queue_id)): value
        for topic, brokers in tree.items()
        for broker_name, queues in brokers.items()
        for queue_id, value in queues.items()
    }

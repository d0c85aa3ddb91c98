"""Fingerprints that distinguish the message before an offset from another one that replaced it.

A topic that is deleted and created again numbers its messages from 0, and a log whose end a power cut took gives
offsets out once more. So an offset alone does not say that a queue is still the one that was read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rocketpy.base.instant import datetime_of
from rocketpy.errors import DamagedDataError, OffsetError, RocketPyError
from rocketpy.spark.connection import client_options, shared_admin
from rocketpy.spark.pull import UNREADABLE
from rocketpy.spark.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rocketpy._rocketpy import ArrowBatch
    from rocketpy.message import MessageQueue
    from rocketpy.spark.offsets import Offsets
    from rocketpy.spark.options import ReadOptions

COLUMNS = ("topic", "queue_id", "stored_at_ms", "born_at_ms")
PULLS_AT_ONCE = 8


class Fingerprint(NamedTuple):
    """Both times of a message, by two clocks. Every copy of it has them: a slave's, and one in tiered storage."""

    stored_at_ms: int
    """Time by the broker's clock, milliseconds since 1970."""
    born_at_ms: int
    """Time by the producer's clock."""

    def __str__(self) -> str:
        return f"stored at {_text(self.stored_at_ms)}, born at {_text(self.born_at_ms)}"


def _text(at_ms: int) -> str:
    """A time; a producer may have sent any number as one."""
    at = datetime_of(at_ms)
    return f"{at_ms} ms" if at is None else at.isoformat(timespec="milliseconds")


def fingerprints(options: ReadOptions, offsets: Offsets) -> dict[MessageQueue, Fingerprint]:
    """Reads the message directly before an offset of each queue: with one pull, or with one read by path.

    Args:
        options: Read options with the source of the queues.
        offsets: Offsets by queue.

    Returns:
        Fingerprints by queue, without queues whose message is missing or damaged.

    Raises:
        RocketPyError: A broker did not answer.
    """
    wanted = {queue: offset for queue, offset in offsets.items() if offset > 0}
    if not wanted:
        return {}
    return dict(_of_cluster(options, wanted) if options.path is None else _of_folder(options, wanted))


def differences(
    expected: Mapping[MessageQueue, Fingerprint], found: Mapping[MessageQueue, Fingerprint], offsets: Offsets
) -> dict[MessageQueue, str]:
    """Compares messages before offsets with those read there earlier.

    Args:
        expected: Fingerprints of the messages that were read.
        found: Fingerprints of the current messages. Other queues cannot be compared.
        offsets: Offsets by queue.

    Returns:
        Differences by queue; empty without findings.

    Examples:
        >>> from rocketpy.message import MessageQueue
        >>> queue = MessageQueue("flights", "broker-a", 0)
        >>> was, now = Fingerprint(1_000, 999), Fingerprint(2_000, 1_999)
        >>> differences({queue: was}, {queue: was}, {queue: 7})
        {}
        >>> print(differences({queue: was}, {queue: now}, {queue: 7})[queue])
        flights@broker-a#0 has another message before offset 7 than the one that was read: \
found one stored at 1970-01-01T00:00:02.000+00:00, born at 1970-01-01T00:00:01.999+00:00, \
expected one stored at 1970-01-01T00:00:01.000+00:00, born at 1970-01-01T00:00:00.999+00:00
    """
    return {
        queue: f"{queue} has another message before offset {offsets[queue]} than the one that was read: "
        f"found one {there}, expected one {expected[queue]}"
        for queue, there in found.items()
        if queue in expected and there != expected[queue]
    }


def _of_cluster(options: ReadOptions, offsets: Offsets) -> Iterator[tuple[MessageQueue, Fingerprint]]:
    shared_admin(options)  # keeps the connection when a reader is closed
    with ThreadPoolExecutor(PULLS_AT_ONCE) as threads:
        for found in threads.map(partial(_pull, options), offsets, offsets.values()):
            yield from found


def _pull(options: ReadOptions, queue: MessageQueue, offset: int) -> list[tuple[MessageQueue, Fingerprint]]:
    from rocketpy.consuming.reader import RangeReader

    with RangeReader(
        queue, offset - 1, offset, columns=COLUMNS, name_servers=options.name_servers, **client_options(options)
    ) as reader:
        try:
            return [row for batch in reader for row in _rows(batch, {(queue.topic, queue.queue_id): queue})]
        except RocketPyError as error:
            if isinstance(error, OffsetError | DamagedDataError) or UNREADABLE.search(str(error)):
                return []
            raise


def _of_folder(options: ReadOptions, offsets: Offsets) -> Iterator[tuple[MessageQueue, Fingerprint]]:
    from rocketpy.store import QueueRange, StoreRange

    queues = {(queue.topic, queue.queue_id): queue for queue in offsets}
    ranges = [StoreRange((QueueRange(*key, offsets[queue] - 1, offsets[queue], 0),)) for key, queue in queues.items()]
    for batch in open_store(options).scan(ranges, columns=COLUMNS, fail_on_data_loss=False):
        yield from _rows(batch, queues)


def _rows(
    batch: ArrowBatch, queues: Mapping[tuple[str, int], MessageQueue]
) -> Iterator[tuple[MessageQueue, Fingerprint]]:
    from rocketpy.base.arrow import pyarrow_batch

    columns = (column.to_pylist() for column in pyarrow_batch(batch).columns)
    for topic, queue_id, stored_at_ms, born_at_ms in zip(*columns, strict=True):
        yield queues[topic, queue_id], Fingerprint(stored_at_ms, born_at_ms)

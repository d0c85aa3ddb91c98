"""Reads a store folder: plans on the driver, scans in the workers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rocketpy.base.instant import nearest_datetime
from rocketpy.base.names import application_topics
from rocketpy.spark.identity import check_store
from rocketpy.spark.options import DEFAULT_PARTITION_BYTES, OptionError
from rocketpy.spark.part import share_out, wanted_partitions
from rocketpy.spark.pull import log_loss, log_null_bodies, null_bodies

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from rocketpy.config import Instant
    from rocketpy.spark.options import QueueKey, ReadOptions
    from rocketpy.spark.part import Groupings
    from rocketpy.store import StoredTopic, StoreRange, StoreReader

WHOLE = 1 << 60
"""Size above that of any store: a range of this size is not cut."""


def scan_ranges(
    path: str,
    topic: str,
    *,
    commit_log: str | None = None,
    starting_time: Instant | None = None,
    ending_time: Instant | None = None,
    starting_offsets: Mapping[int, int] | None = None,
    ending_offsets: Mapping[int, int] | None = None,
    min_partitions: int = 1,
    max_partition_bytes: int = DEFAULT_PARTITION_BYTES,
    fail_on_data_loss: bool = True,
) -> list[StoreRange]:
    """Cuts a topic of a store folder into ranges for `mapPartitions`.

    Each range is small, travels to a worker, and is read there with `rocketpy.StoreReader(path).scan(range)`. The
    folder must be reachable under the same path by every worker.

    Args:
        path: Store folder, live or a copy.
        topic: The topic.
        commit_log: Folder of the commit log, if the broker sets `storePathCommitLog`.
        starting_time: Only messages stored at or after this: a datetime, seconds since 1970, or text such as "-10m".
            Without a time zone it is local time.
        ending_time: Only messages stored before this.
        starting_offsets: First queue offset, by queue; a queue that is not named starts at its oldest message.
        ending_offsets: Queue offset to stop before, by queue; one that is not named ends where it ends now.
        min_partitions: Minimum number of ranges, as far as each still has 1 MiB.
        max_partition_bytes: Target size of a range, bytes in the log.
        fail_on_data_loss: Whether an offset outside its queue is an error, or is moved to the queue's bounds.

    Returns:
        The ranges, in the order of the log.

    Raises:
        TopicNotFoundError: The store does not have the topic. A topic without messages gives no ranges.
        OffsetError: An offset names a missing queue, or is outside its queue.

    Examples:
        On the driver, with the context `sc`::

            def rows(ranges):
                reader = rocketpy.StoreReader("data")
                for one in ranges:
                    for batch in reader.scan(one, columns=["tag", "body"]):
                        yield batch.num_rows

            ranges = scan_ranges("data", "flights", min_partitions=4)
            sc.parallelize(ranges, len(ranges)).mapPartitions(rows).sum()
    """
    from rocketpy.store import StoreReader

    return StoreReader(path, commit_log=commit_log).ranges(
        topic,
        starts=starting_offsets,
        ends=ending_offsets,
        stored_from=starting_time,
        stored_before=ending_time,
        part_bytes=max_partition_bytes,
        min_parts=min_partitions,
        fail_on_data_loss=fail_on_data_loss,
    )


def plan_store(options: ReadOptions) -> list[tuple[StoreRange, ...]]:
    """Plans the reads of the workers.

    Args:
        options: Read options with a path.

    Returns:
        Ranges for each worker; empty when there is nothing to read.
    """
    reader = open_store(options)
    topics = options.topics
    if options.topic_pattern is not None:
        topics = matching(options.topic_pattern, reader.topics())

    def cut(topic: str, part_bytes: int, min_parts: int) -> list[StoreRange]:
        return reader.ranges(
            topic,
            queues=assigned_of(topic, options),
            starts=offsets_of(options.starting_offsets, topic, options),
            ends=offsets_of(options.ending_offsets, topic, options),
            stored_from=utc(options.starting_time_ms),
            stored_before=utc(options.ending_time_ms),
            part_bytes=part_bytes,
            min_parts=min_parts,
            fail_on_data_loss=options.fail_on_data_loss,
        )

    sizes = {topic: sum(whole.estimated_bytes for whole in cut(topic, WHOLE, 1)) for topic in topics}
    total = max(1, sum(sizes.values()))
    count = wanted_partitions(options, total)
    pieces: list[StoreRange] = []
    for topic, size in sizes.items():
        pieces += cut(topic, options.max_partition_bytes, max(1, round(count * size / total)))
    return share_out(pieces, count)


def read_store(
    options: ReadOptions,
    columns: Sequence[str],
    ranges: Sequence[StoreRange],
    marks: Mapping[str, bytes],
    *,
    groupings: Groupings = (),
) -> Iterator[pa.RecordBatch]:
    """Reads the ranges of one worker.

    Args:
        options: Read options with a path.
        columns: Checked column names.
        ranges: Result of `plan_store`.
        marks: Marks of the store of the plan, from `rocketpy.spark.identity.store_marks`.
        groupings: Groups to aggregate by, instead of columns.

    Yields:
        Record batches of about 1 MiB, or sums.

    Raises:
        NotAStoreError: The path points to no store here, or to another one than on the driver.
    """
    from rocketpy.base.arrow import pyarrow_batch

    check_store(options, marks)
    scan = open_store(options).scan(
        ranges,
        columns=columns,
        groupings=groupings,
        tags=options.tags,
        broker_name=options.broker_name,
        fail_on_data_loss=options.fail_on_data_loss,
        verify=options.verify,
        max_body_bytes=options.max_body_bytes,
        null_unreadable_bodies=options.null_unreadable_bodies,
    )
    unreadable = 0
    for native in scan:
        batch = pyarrow_batch(native)
        unreadable += null_bodies(batch)
        yield batch
    log_null_bodies(options.path or "", unreadable)
    for lost in scan.lost:
        log_loss(f"{lost.topic}#{lost.queue_id}", lost.start, lost.end, lost.reason)


def open_store(options: ReadOptions) -> StoreReader:
    """Opens the store.

    Args:
        options: Read options with a path.
    """
    from rocketpy.store import StoreReader

    if options.path is None:
        raise OptionError("no path")
    return StoreReader(options.path, commit_log=options.commit_log_path)


def matching(pattern: str, topics: Iterable[StoredTopic]) -> tuple[str, ...]:
    """Returns the names of non-system topics that match a pattern.

    Args:
        pattern: Regular expression for whole names.
        topics: All topics of a store.
    """
    names = application_topics([topic.name for topic in topics], [])
    return tuple(name for name in names if re.fullmatch(pattern, name))


def assigned_of(topic: str, options: ReadOptions) -> list[int] | None:
    """Returns the queues of a topic to read; None for all.

    Args:
        topic: The topic.
        options: Read options with a path.

    Raises:
        OptionError: The options name a broker, and the store is not known to be of this broker.
    """
    if options.assigned is None:
        return None
    of_topic = [(broker, queue_id) for name, broker, queue_id in options.assigned if name == topic]
    for broker, _ in of_topic:
        _check_broker(broker, options)
    return sorted({queue_id for _, queue_id in of_topic})


def _check_broker(broker: str, options: ReadOptions) -> None:
    if broker and broker != options.broker_name:
        raise OptionError(f"a store does not contain the name of its broker, omit it from the options: {broker}")


def utc(at_ms: int | None) -> datetime | None:
    """The point in time of milliseconds since 1970; the nearest one that readers can represent."""
    return None if at_ms is None else nearest_datetime(at_ms)


def offsets_of(offsets: Mapping[QueueKey, int], topic: str, options: ReadOptions) -> dict[int, int]:
    """The offsets of a topic, by queue.

    Args:
        offsets: Offsets of the options.
        topic: The topic.
        options: Read options with a path.

    Raises:
        OptionError: The options name a broker, and the store is not known to be of this broker.
    """
    found = {}
    for (name, broker, queue_id), offset in offsets.items():
        _check_broker(broker, options)
        if name == topic:
            found[queue_id] = offset
    return found

"""Reads from the brokers of a cluster: plans on the driver, pulls in the workers. No group is joined or changed."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from rocketpy.base.instant import instant_ms, nearest_datetime
from rocketpy.base.names import application_topics
from rocketpy.errors import OffsetError, RocketPyError, TopicNotFoundError
from rocketpy.spark.connection import client_options, shared_admin
from rocketpy.spark.options import EARLIEST, LATEST, OptionError
from rocketpy.spark.part import QueuePart, share_out, wanted_partitions
from rocketpy.spark.pull import read_part

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    import pyarrow as pa

    from rocketpy.admin.admin import Admin
    from rocketpy.admin.cluster import QueueInfo
    from rocketpy.message import MessageQueue
    from rocketpy.spark.options import QueueKey, ReadOptions
    from rocketpy.spark.part import Groupings

N = TypeVar("N")

SAMPLE_MESSAGES = 16
MOST_SAMPLED = 64
"""Queues that are sampled before a read: each costs two pulls."""


def plan_cluster(options: ReadOptions) -> list[tuple[QueuePart, ...]]:
    """Plans the reads of the workers.

    Args:
        options: Read options with name servers.

    Returns:
        Parts of queues for each worker; empty when there is nothing to read.

    Raises:
        OptionError: Offsets name a queue that does not exist, or end before they start.
        OffsetError: Offsets are outside their queue, and data loss is an error.
        TopicNotFoundError: A topic has no route.
    """
    admin = shared_admin(options)
    bounds: list[tuple[MessageQueue, int, int]] = []
    for info in queues_to_read(admin, options, check=True):
        bounds.append((info.queue, *_bounds(admin, info, options)))
    parts = [part for part in bounds if part[1] < part[2]]
    sizes = sample_sizes(options, parts)
    sized = [QueuePart(queue, start, end, (end - start) * sizes[queue]) for queue, start, end in parts]
    return share_parts(sized, options)


def queues_to_read(admin: Admin, options: ReadOptions, *, check: bool = False) -> list[QueueInfo]:
    """Returns the current queues that the options select.

    Args:
        admin: Administration client of the cluster.
        options: Read options with name servers.
        check: Whether options with a missing queue are an error.

    Raises:
        OptionError: An option names a missing queue, or no topic matches the pattern.
        TopicNotFoundError: A topic has no route, or, with `check`, no queues.
    """
    topics = options.topics
    if options.topic_pattern is not None:
        found = application_topics(admin.topics(), admin.brokers())
        topics = tuple(topic for topic in found if re.fullmatch(options.topic_pattern, topic))
        if check and not topics:
            raise OptionError(f"no topic matches topic_pattern: {options.topic_pattern}")
    queues: list[QueueInfo] = []
    for topic in topics:
        infos = admin.describe_topic(topic).queues
        if check and not infos and options.topic_pattern is None:
            raise TopicNotFoundError(f"topic has no queue at any broker: {topic}", retryable=True)
        if check:
            check_named([info.queue for info in infos], topic, options)
        queues += [info for info in infos if options.assigned is None or _key_in(options.assigned, info.queue)]
    return queues


def _key_in(keys: Container[QueueKey], queue: MessageQueue) -> bool:
    return any((queue.topic, broker, queue.queue_id) in keys for broker in ("", queue.broker_name))


def share_parts(parts: Sequence[QueuePart], options: ReadOptions) -> list[tuple[QueuePart, ...]]:
    """Cuts parts of queues into pieces and distributes them among the workers.

    Args:
        parts: Parts of queues with their sizes.
        options: Read options, with the number of partitions.

    Returns:
        Pieces for each worker; empty when there is nothing to read.
    """
    total = sum(part.estimated_bytes for part in parts)
    count = wanted_partitions(options, total)
    largest = max(1, -(-total // count))
    pieces = [piece for part in parts for piece in _pieces(part, largest, options.max_records_per_partition)]
    if options.max_records_per_partition is None:
        return share_out(pieces, count)
    return [(piece,) for piece in pieces]


def read_cluster(
    options: ReadOptions, columns: Sequence[str], parts: Sequence[QueuePart], *, groupings: Groupings = ()
) -> Iterator[pa.RecordBatch]:
    """Pulls the parts of one worker.

    Args:
        options: Read options with name servers.
        columns: Checked column names.
        parts: Result of `plan_cluster`.
        groupings: Groups to aggregate by, instead of columns.

    Yields:
        Record batches of about 1 MiB, or sums.

    Raises:
        OffsetError: Messages are gone, and data loss is an error.
        DamagedDataError: The same for damage.
        RocketPyError: No broker answered for `retry_timeout`.
    """
    for part in parts:
        yield from read_part(options, columns, part, groupings=groupings)


def _bounds(admin: Admin, info: QueueInfo, options: ReadOptions) -> tuple[int, int]:
    """Start and end of the requested part of a queue."""
    end = info.max_offset
    ending_ms = named_offset(options.ending_times_ms, info.queue, options.ending_time_ms)
    if ending_ms is not None:
        end = at_time(admin, info, ending_ms)
    default_start = start_of(admin, info, options, named=False)
    asked_start, asked_end = start_of(admin, info, options), named_offset(options.ending_offsets, info.queue, end)
    if asked_start > asked_end and (asked_start, asked_end) != (default_start, end):
        raise OptionError(f"queue {info.queue} ends at {asked_end}, before its start: {asked_start}")
    if options.fail_on_data_loss:
        gone = max(0, min(info.min_offset, asked_end) - asked_start)
        ahead = max(0, asked_end - max(info.max_offset, asked_start))
        if gone or ahead:
            raise OffsetError(
                f"{gone + ahead} messages of {info.queue} are missing: it holds {info.min_offset} to "
                f"{info.max_offset}, requested: {asked_start} to {asked_end}",
                hint="fail_on_data_loss=false reads the remaining messages",
            )
    return max(asked_start, info.min_offset), min(asked_end, info.max_offset)


def start_of(admin: Admin, info: QueueInfo, options: ReadOptions, *, named: bool = True) -> int:
    """Returns the offset at which a read of a queue starts by the options. The queue may not hold this offset.

    The commit of a starting group wins over a start that the options name.

    Args:
        admin: Administration client of the cluster.
        info: The queue.
        options: Read options with a start.
        named: Whether to use offsets by queue from the options.
    """
    if options.starting_group is not None:
        committed = admin.committed_offset(options.starting_group, info.queue)
        if committed is not None:
            return committed
    starting_ms = named_offset(options.starting_times_ms, info.queue, options.starting_time_ms)
    if starting_ms is not None:
        start = at_time(admin, info, starting_ms)
        if start == info.max_offset and options.must_find_time:
            raise OptionError(f"queue {info.queue} has no message stored at or after its starting time")
    else:
        start = info.min_offset if options.default_start == EARLIEST else info.max_offset
    if not named:
        return start
    asked = named_offset(options.starting_offsets, info.queue, start)
    return info.max_offset if asked == LATEST else asked


def at_time(admin: Admin, info: QueueInfo, at_ms: int) -> int:
    """Returns the first offset stored at or after a time.

    Args:
        admin: Administration client of the cluster.
        info: The queue.
        at_ms: The time, milliseconds since 1970.
    """
    if info.min_offset == info.max_offset:
        return info.max_offset
    if info.last_stored_at is not None and instant_ms(info.last_stored_at) < at_ms:
        return info.max_offset
    return max(info.min_offset, admin.search_offset(info.queue, nearest_datetime(at_ms)))


def named_offset(offsets: Mapping[QueueKey, int], queue: MessageQueue, default: N) -> int | N:
    """Returns the offset, or time, of a queue in the options.

    Args:
        offsets: Offsets by topic, broker name or "", and queue id.
        queue: The queue.
        default: Result for other queues.
    """
    of_any_broker = offsets.get((queue.topic, "", queue.queue_id), default)
    return offsets.get((queue.topic, queue.broker_name, queue.queue_id), of_any_broker)


def check_named(queues: Sequence[MessageQueue], topic: str, options: ReadOptions) -> None:
    """Rejects offsets of queues that a topic does not have.

    Args:
        queues: Queues of the topic.
        topic: The topic.
        options: Read options with offsets.

    Raises:
        OptionError: The offsets name another queue.
    """
    known = {(queue.topic, queue.broker_name, queue.queue_id) for queue in queues}
    known |= {(queue.topic, "", queue.queue_id) for queue in queues}
    named = (options.starting_offsets, options.ending_offsets, options.starting_times_ms, options.ending_times_ms)
    for name, broker, queue_id in [key for keys in (*named, options.assigned or ()) for key in keys]:
        if name == topic and (name, broker, queue_id) not in known:
            raise OptionError(f"topic {topic} has no queue: {f'{broker}#' if broker else ''}{queue_id}")


def sample_sizes(options: ReadOptions, parts: Sequence[tuple[MessageQueue, int, int]]) -> dict[MessageQueue, int]:
    """Estimates the mean size of the records of each queue from a few at both ends of its part.

    Where there are very many queues, only the longest parts are sampled, and stand for the others.

    Args:
        options: Read options with name servers.
        parts: Queue, start and end of each part; not empty.

    Returns:
        Bytes of a record, by queue.
    """
    longest = sorted(parts, key=lambda part: part[1] - part[2])[:MOST_SAMPLED]
    sampled: dict[MessageQueue, list[int]] = {}
    for queue, start, end in longest:
        sizes = _sample(options, queue, start, end)
        if end - start > 2 * SAMPLE_MESSAGES:
            sizes += _sample(options, queue, end - SAMPLE_MESSAGES, end)
        sampled[queue] = sizes
    of_all = [size for sizes in sampled.values() for size in sizes]
    mean = sum(of_all) // len(of_all) if of_all else 1
    means = {queue: sum(sizes) // len(sizes) for queue, sizes in sampled.items() if sizes}
    return {queue: means.get(queue, mean) for queue, _, _ in parts}


def _sample(options: ReadOptions, queue: MessageQueue, start: int, end: int) -> list[int]:
    """Sizes of some records from `start` on: of what one pull brings."""
    from rocketpy.base.arrow import pyarrow_batch
    from rocketpy.consuming.reader import RangeReader

    shared_admin(options)
    end = min(end, start + SAMPLE_MESSAGES)
    with RangeReader(
        queue, start, end, columns=["size_bytes"], name_servers=options.name_servers, **client_options(options)
    ) as reader:
        try:
            batch = next(reader, None)
        except RocketPyError:
            return []  # the worker that reads the queue says what is wrong, or passes over it
        return [] if batch is None else pyarrow_batch(batch).column(0).to_pylist()


def _pieces(part: QueuePart, largest_bytes: int, most: int | None) -> Iterator[QueuePart]:
    """Cuts a part into pieces of about the wanted size, and of at most as many messages."""
    messages = part.end - part.start
    count = max(1, min(messages, round(part.estimated_bytes / largest_bytes)), -(-messages // (most or messages)))
    edges = [part.start + messages * index // count for index in range(count + 1)]
    for start, end in pairwise(edges):
        yield QueuePart(part.queue, start, end, part.estimated_bytes * (end - start) // messages)

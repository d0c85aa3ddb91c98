"""Reads from the brokers of a cluster: plans on the driver, pulls in the workers. No group is joined or changed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from rocketpy.errors import OffsetError
from rocketpy.spark.options import OptionError
from rocketpy.spark.part import QueuePart, share_out, wanted_partitions
from rocketpy.spark.store import log_loss

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from rocketpy.admin import Admin
    from rocketpy.cluster import QueueInfo
    from rocketpy.message import MessageQueue
    from rocketpy.spark.options import ReadOptions

_SAMPLE_MESSAGES = 64


def plan_cluster(options: ReadOptions) -> list[tuple[QueuePart, ...]]:
    """Plans what each worker reads.

    Args:
        options: With name servers.

    Returns:
        Parts of queues for each worker; empty when there is nothing to read.

    Raises:
        OptionError: Offsets name a queue that is not there, or end before they start.
        OffsetError: Offsets are outside their queue, and data loss is an error.
        TopicNotFoundError: A topic has no route.
    """
    from rocketpy.admin import Admin

    parts: list[QueuePart] = []
    with Admin(name_servers=options.name_servers) as admin:
        for topic in options.topics:
            infos = admin.describe_topic(topic).queues
            _check_named([info.queue for info in infos], topic, options)
            bounds = [(info.queue, *_bounds(admin, info, options)) for info in infos]
            parts += _sized([(queue, start, end) for queue, start, end in bounds if start < end], options)
    total = sum(part.estimated_bytes for part in parts)
    count = wanted_partitions(options, total)
    largest = max(1, -(-total // count))
    return share_out([piece for part in parts for piece in _pieces(part, largest)], count)


def read_cluster(options: ReadOptions, columns: Sequence[str], parts: Sequence[QueuePart]) -> Iterator[pa.RecordBatch]:
    """Pulls the parts of one worker.

    Args:
        options: With name servers.
        columns: Checked names.
        parts: From `plan_cluster`.

    Yields:
        Record batches of about 1 MiB.

    Raises:
        OffsetError: Messages are gone, and data loss is an error.
    """
    read = _read_strictly if options.fail_on_data_loss else _read_what_is_left
    for part in parts:
        yield from read(options, columns, part)


def _read_strictly(options: ReadOptions, columns: Sequence[str], part: QueuePart) -> Iterator[pa.RecordBatch]:
    from rocketpy.arrow import pyarrow_batch
    from rocketpy.reader import RangeReader

    with RangeReader(
        part.queue,
        part.start,
        part.end,
        tags=options.tags,
        columns=columns,
        max_body_bytes=options.max_body_bytes,
        name_servers=options.name_servers,
    ) as reader:
        for batch in reader:
            yield pyarrow_batch(batch)


def _read_what_is_left(options: ReadOptions, columns: Sequence[str], part: QueuePart) -> Iterator[pa.RecordBatch]:
    """Skips messages that are gone, and logs how many."""
    from rocketpy.admin import Admin

    with_place = [*columns, *({"queue_offset"} - set(columns))]
    at = part.start
    while at < part.end:
        with Admin(name_servers=options.name_servers) as admin:
            first, behind = admin.min_offset(part.queue), admin.max_offset(part.queue)
        log_gap(part.queue, at, min(first, part.end), "removed by retention")
        log_gap(part.queue, max(at, behind), part.end, "after the end of the queue")
        at, end = max(at, first), min(part.end, behind)
        if at >= end:
            return
        try:
            for batch in _read_strictly(options, with_place, QueuePart(part.queue, at, end, 0)):
                at = batch.column("queue_offset")[-1].as_py() + 1
                yield batch.select(list(columns))
            return
        except OffsetError:
            continue  # retention removed messages after the bounds were read: read them again


def log_gap(queue: MessageQueue, start: int, end: int, reason: str) -> None:
    """Logs that messages were left out, if any were.

    Args:
        queue: The queue.
        start: First queue offset.
        end: Queue offset after the last.
        reason: Why.
    """
    if start < end:
        log_loss(str(queue), start, end, reason)


def _bounds(admin: Admin, info: QueueInfo, options: ReadOptions) -> tuple[int, int]:
    """Start and end of the requested part of a queue."""
    start, end = info.min_offset, info.max_offset
    if options.starting_time_ms is not None:
        start = _at_time(admin, info, options.starting_time_ms)
    if options.ending_time_ms is not None:
        end = _at_time(admin, info, options.ending_time_ms)
    asked_start = _named(options.starting_offsets, info.queue, start)
    asked_end = _named(options.ending_offsets, info.queue, end)
    if asked_start > asked_end and (asked_start, asked_end) != (start, end):
        raise OptionError(f"queue {info.queue} ends at {asked_end}, before its start: {asked_start}")
    if options.fail_on_data_loss:
        gone = max(0, min(info.min_offset, asked_end) - asked_start)
        ahead = max(0, asked_end - max(info.max_offset, asked_start))
        if gone or ahead:
            raise OffsetError(
                f"{gone + ahead} messages of {info.queue} are not there: it holds {info.min_offset} to "
                f"{info.max_offset}, asked for: {asked_start} to {asked_end}",
                hint="fail_on_data_loss=false reads what is there",
            )
    return max(asked_start, info.min_offset), min(asked_end, info.max_offset)


def _at_time(admin: Admin, info: QueueInfo, at_ms: int) -> int:
    """First offset stored at or after a time."""
    if info.min_offset == info.max_offset or info.last_stored_at is None:
        return info.max_offset
    if round(info.last_stored_at.timestamp() * 1000) < at_ms:
        return info.max_offset
    return max(info.min_offset, admin.search_offset(info.queue, at_ms / 1000))


def _named(offsets: Mapping[tuple[str, str, int], int], queue: MessageQueue, default: int) -> int:
    of_any_broker = offsets.get((queue.topic, "", queue.queue_id), default)
    return offsets.get((queue.topic, queue.broker_name, queue.queue_id), of_any_broker)


def _check_named(queues: Sequence[MessageQueue], topic: str, options: ReadOptions) -> None:
    known = {(queue.topic, queue.broker_name, queue.queue_id) for queue in queues}
    known |= {(queue.topic, "", queue.queue_id) for queue in queues}
    for name, broker, queue_id in [*options.starting_offsets, *options.ending_offsets]:
        if name == topic and (name, broker, queue_id) not in known:
            raise OptionError(f"topic {topic} has no queue: {f'{broker}#' if broker else ''}{queue_id}")


def _sized(parts: Sequence[tuple[MessageQueue, int, int]], options: ReadOptions) -> list[QueuePart]:
    """Estimates sizes from the first messages of the longest part."""
    from rocketpy.reader import RangeReader

    if not parts:
        return []
    queue, start, end = max(parts, key=lambda part: part[2] - part[1])
    sizes: list[int] = []
    with RangeReader(
        queue,
        start,
        min(end, start + _SAMPLE_MESSAGES),
        columns=["size_bytes"],
        name_servers=options.name_servers,
    ) as reader:
        from rocketpy.arrow import pyarrow_batch

        for batch in reader:
            sizes += pyarrow_batch(batch).column(0).to_pylist()
    mean = sum(sizes) // len(sizes) if sizes else 0
    return [QueuePart(queue, start, end, (end - start) * mean) for queue, start, end in parts]


def _pieces(part: QueuePart, largest_bytes: int) -> Iterator[QueuePart]:
    """Cuts a part into pieces of about the wanted size."""
    messages = part.end - part.start
    count = max(1, min(messages, round(part.estimated_bytes / largest_bytes)))
    edges = [part.start + messages * index // count for index in range(count + 1)]
    for start, end in pairwise(edges):
        yield QueuePart(part.queue, start, end, part.estimated_bytes * (end - start) // messages)

"""Sources of a stream: the brokers of a cluster, or the folder of a store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import InputPartition

from rocketpy.admin.cluster import QueueInfo
from rocketpy.errors import NotAStoreError, OffsetError, TopicNotFoundError
from rocketpy.message import MessageQueue
from rocketpy.spark.cluster import at_time, queues_to_read, read_cluster, sample_sizes, share_parts, start_of
from rocketpy.spark.connection import shared_admin
from rocketpy.spark.fingerprint import fingerprints
from rocketpy.spark.identity import check_store, store_marks
from rocketpy.spark.options import EARLIEST, LATEST, OptionError
from rocketpy.spark.part import QueuePart
from rocketpy.spark.progress import commit_offsets
from rocketpy.spark.pull import log_loss
from rocketpy.spark.source import StorePartition
from rocketpy.spark.store import WHOLE, assigned_of, matching, offsets_of, open_store, plan_store, read_store, utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from rocketpy.spark.fingerprint import Fingerprint
    from rocketpy.spark.offsets import BatchOffsets, Offsets
    from rocketpy.spark.options import ReadOptions
    from rocketpy.store import QueueRange, StoreRange, StoreReader

UNKNOWN_SIZE = 1024
"""Bytes of a message in a batch that another process planned: only the cut into partitions depends on it."""
OTHER_CHECKPOINT = "start the query with another checkpointLocation"


class StreamSource(Protocol):
    """Source of a stream, which is sent to the workers."""

    def starts(self) -> list[tuple[QueueInfo, int]]:
        """The queues that the options name, and where each is to start, which may be outside of what it holds.

        Raises:
            OptionError: The options name a missing queue.
            TopicNotFoundError: The options name a missing topic.
        """
        ...

    def queues(self) -> list[QueueInfo]:
        """The queues that the options name, as they are now."""
        ...

    def sizes(self, parts: Sequence[tuple[MessageQueue, int, int]]) -> dict[MessageQueue, int]:
        """Estimates the mean size of the records of parts of queues; none of them is empty."""
        ...

    def fingerprints(self, offsets: Offsets) -> dict[MessageQueue, Fingerprint]:
        """Reads fingerprints of the messages directly before offsets, as `rocketpy.spark.fingerprint.fingerprints`."""
        ...

    def first_at(self, info: QueueInfo, at_ms: int) -> int:
        """Returns the offset of a queue's first message stored at a time or later; its end without such a message."""
        ...

    def marks(self) -> dict[str, bytes]:
        """Returns the identity of a store; call it after `queues`."""
        ...

    def check(self, batch: BatchOffsets) -> None:
        """Rejects a checkpoint of another source.

        Raises:
            OffsetError: A stream of a folder wrote it, and this one reads a cluster, or the other way around.
            NotAStoreError: The checkpoint is of another store, or the store is missing.
        """
        ...

    def partitions(self, batch: BatchOffsets, sizes: Mapping[MessageQueue, int]) -> Sequence[InputPartition]:
        """Distributes a batch among the workers."""
        ...

    def read(self, columns: Sequence[str], partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one of the partitions."""
        ...

    def commit(self, offsets: Offsets) -> None:
        """Mirrors progress to a consumer group, if the options name one."""
        ...


def source_of(options: ReadOptions) -> StreamSource:
    """Returns the source that the options select."""
    return ClusterSource(options) if options.path is None else FolderSource(options)


class ClusterSource:
    """The brokers of a cluster."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def starts(self) -> list[tuple[QueueInfo, int]]:
        """See `StreamSource`."""
        admin = shared_admin(self._options)
        queues = queues_to_read(admin, self._options, check=True)
        return [(info, start_of(admin, info, self._options)) for info in queues]

    def queues(self) -> list[QueueInfo]:
        """See `StreamSource`."""
        return queues_to_read(shared_admin(self._options), self._options)

    def sizes(self, parts: Sequence[tuple[MessageQueue, int, int]]) -> dict[MessageQueue, int]:
        """See `StreamSource`."""
        return sample_sizes(self._options, parts)

    def fingerprints(self, offsets: Offsets) -> dict[MessageQueue, Fingerprint]:
        """See `StreamSource`."""
        return fingerprints(self._options, offsets)

    def first_at(self, info: QueueInfo, at_ms: int) -> int:
        """See `StreamSource`."""
        return at_time(shared_admin(self._options), info, at_ms)

    def marks(self) -> dict[str, bytes]:
        """Returns no marks: queues of a cluster contain their broker."""
        return {}

    def check(self, batch: BatchOffsets) -> None:
        """See `StreamSource`."""
        if any(not queue.broker_name for queue in batch.end):
            raise OffsetError("the checkpoint is of a stream that reads a path, not a cluster", hint=OTHER_CHECKPOINT)

    def partitions(self, batch: BatchOffsets, sizes: Mapping[MessageQueue, int]) -> Sequence[InputPartition]:
        """See `StreamSource`."""
        parts = [
            QueuePart(queue, start, end, (end - start) * sizes.get(queue, UNKNOWN_SIZE))
            for queue, start, end in parts_of(batch)
        ]
        return [InputPartition(share) for share in share_parts(parts, self._options)]

    def read(self, columns: Sequence[str], partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `StreamSource`."""
        return read_cluster(self._options, columns, partition.value)

    def commit(self, offsets: Offsets) -> None:
        """See `StreamSource`."""
        if self._options.progress_group is not None:
            commit_offsets(self._options.progress_group, offsets, self._options.name_servers, self._options.client)


class FolderSource:
    """Folder of a store, with or without a running broker. Its queues point to the messages that a broker serves.

    Its queues have no broker name: a store does not know it, and the option `broker_name` may change.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def starts(self) -> list[tuple[QueueInfo, int]]:
        """See `StreamSource`."""
        options = self._options
        reader = open_store(options)
        for topic in options.topics:
            reader.ranges(topic, queues=[], fail_on_data_loss=False)  # raises where it is not there
        infos = self.queues()
        if not infos and options.topic_pattern is not None:
            raise OptionError(f"no topic matches topic_pattern: {options.topic_pattern}")
        topics = options.topics or sorted({info.queue.topic for info in infos})
        named = {topic: offsets_of(options.starting_offsets, topic, options) for topic in topics}
        known = {info.queue for info in infos}
        for topic, offsets in named.items():
            for queue_id, offset in offsets.items():
                if offset > 0 and MessageQueue(topic, "", queue_id) not in known:  # one without messages has no files
                    raise OptionError(f"topic {topic} has no queue: {queue_id}")
        first_at: dict[MessageQueue, int] = {}
        if options.starting_time_ms is not None:
            for topic in {info.queue.topic for info in infos}:
                first_at |= _first_at(reader, topic, options.starting_time_ms)
        found: list[tuple[QueueInfo, int]] = []
        for info in infos:
            start = info.min_offset if options.default_start == EARLIEST else info.max_offset
            if options.starting_time_ms is not None:
                start = first_at.get(info.queue, info.max_offset)
            asked = named[info.queue.topic].get(info.queue.queue_id, start)
            found.append((info, info.max_offset if asked == LATEST else asked))
        return found

    def queues(self) -> list[QueueInfo]:
        """See `StreamSource`."""
        options = self._options
        reader = open_store(options)
        topics = options.topics
        if options.topic_pattern is not None:
            topics = matching(options.topic_pattern, reader.topics())
        found: list[QueueInfo] = []
        for topic in topics:
            try:
                queues = reader.topic(topic).queues
                # Raises where files of queues are missing: without them a queue would only look shorter.
                reader.ranges(topic, queues=[], fail_on_data_loss=options.fail_on_data_loss)
            except TopicNotFoundError:
                continue  # it was deleted
            wanted = assigned_of(topic, options)
            found += [
                QueueInfo(MessageQueue(topic, "", one.queue_id), one.min_offset, one.max_offset, None)
                for one in queues
                if wanted is None or one.queue_id in wanted
            ]
        return found

    def sizes(self, parts: Sequence[tuple[MessageQueue, int, int]]) -> dict[MessageQueue, int]:
        """See `StreamSource`."""
        reader = open_store(self._options)
        sizes = {queue: UNKNOWN_SIZE for queue, _, _ in parts}
        for topic in {queue.topic for queue, _, _ in parts}:
            mine = [(queue.queue_id, start, end) for queue, start, end in parts if queue.topic == topic]
            ranges = reader.ranges(
                topic,
                queues=[queue_id for queue_id, _, _ in mine],
                starts={queue_id: start for queue_id, start, _ in mine},
                ends={queue_id: end for queue_id, _, end in mine},
                part_bytes=WHOLE,
                fail_on_data_loss=False,
            )
            sizes |= {queue: max(1, part.estimated_bytes // (part.end - part.start)) for queue, part in _parts(ranges)}
        return sizes

    def fingerprints(self, offsets: Offsets) -> dict[MessageQueue, Fingerprint]:
        """See `StreamSource`."""
        return fingerprints(self._options, offsets)

    def first_at(self, info: QueueInfo, at_ms: int) -> int:
        """See `StreamSource`."""
        found = _first_at(open_store(self._options), info.queue.topic, at_ms)
        return found.get(info.queue, info.max_offset)

    def marks(self) -> dict[str, bytes]:
        """See `StreamSource`."""
        return store_marks(self._options)

    def check(self, batch: BatchOffsets) -> None:
        """See `StreamSource`."""
        if any(queue.broker_name for queue in batch.end):
            raise OffsetError("the checkpoint is of a stream that reads a cluster, not a path", hint=OTHER_CHECKPOINT)
        try:
            check_store(self._options, batch.marks)
        except NotAStoreError:
            open_store(self._options)  # raises where there is none at all
            raise NotAStoreError(
                f"the checkpoint is of another store than that of {self._options.path}",
                hint=f"{OTHER_CHECKPOINT}; "
                "fail_on_data_loss=false reads the messages that this store got since the checkpoint",
            ) from None

    def partitions(self, batch: BatchOffsets, sizes: Mapping[MessageQueue, int]) -> Sequence[InputPartition]:
        """See `StreamSource`. Planned as a batch by path is."""
        options = self._options
        wanted = list(parts_of(batch))
        there = wanted
        if not options.fail_on_data_loss:
            known = {info.queue for info in self.queues()}
            there = [part for part in wanted if part[0] in known]
        shares = plan_store(
            replace(
                options,
                topics=tuple(sorted({queue.topic for queue, _, _ in there})),
                topic_pattern=None,
                assigned=frozenset((queue.topic, "", queue.queue_id) for queue, _, _ in there),
                starting_time_ms=None,
                starting_offsets={(queue.topic, "", queue.queue_id): start for queue, start, _ in there},
                ending_offsets={(queue.topic, "", queue.queue_id): end for queue, _, end in there},
            )
        )
        planned = list(_parts(one for share in shares for one in share))
        for queue, start, end in wanted:
            mine = [part for other, part in planned if other == queue]
            first = min((part.start for part in mine), default=end)
            if first > start:
                log_loss(str(queue), start, first, "no longer there when the batch was planned")
        marks = self.marks()
        return [StorePartition(share, marks) for share in shares]

    def read(self, columns: Sequence[str], partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `StreamSource`."""
        assert isinstance(partition, StorePartition)
        return read_store(self._options, columns, partition.value, partition.marks)

    def commit(self, offsets: Offsets) -> None:
        """A group is of a broker: `progress_group` is refused."""


def parts_of(batch: BatchOffsets) -> Iterator[tuple[MessageQueue, int, int]]:
    """The parts of queues that a batch holds: queue, start and end; none of them is empty."""
    for queue, end in batch.end.items():
        start = batch.begin.get(queue, end)
        if start < end:
            yield queue, start, end


def _first_at(reader: StoreReader, topic: str, at_ms: int) -> Offsets:
    """First offset stored at or after a time, of the queues that have such a message."""
    later = reader.ranges(topic, stored_from=utc(at_ms), part_bytes=WHOLE, fail_on_data_loss=False)
    return {queue: part.start for queue, part in _parts(later)}


def _parts(ranges: Iterable[StoreRange]) -> Iterator[tuple[MessageQueue, QueueRange]]:
    """The parts of queues that ranges of a store have."""
    for one in ranges:
        for part in one.parts:
            yield MessageQueue(part.topic, "", part.queue_id), part

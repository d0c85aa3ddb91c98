"""The stream reader: which messages go into the next batch, and where a batch begins when it is repeated."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_rocketpy import without_traceback
from rocketpy.errors import NotAStoreError, OffsetError, RocketPyError
from rocketpy.spark.budget import messages_to_take
from rocketpy.spark.columns import chosen_columns
from rocketpy.spark.offsets import BatchOffsets
from rocketpy.spark.options import ReadOptions, parse_options
from rocketpy.spark.patience import Patience, again, logger
from rocketpy.spark.pull import log_loss
from rocketpy.spark.stream_source import StreamSource, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rocketpy.cluster import QueueInfo
    from rocketpy.message import MessageQueue
    from rocketpy.spark.offsets import Offsets

ENDS_KEPT_SECONDS = 0.1
"""How long the ends of the queues are used again: Spark asks an idle query every 10 ms."""
LOSS_HINT = "fail_on_data_loss=false skips them and logs which they were"


class RocketPyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, in one process for the whole query; reads in the workers.

    Args:
        options: As Spark hands them over. What is wrong with them is raised by the methods: Spark hides an error of
            `streamReader`.
        schema: That of the rows.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._given = options
        self._schema = schema
        self._start: dict[str, Any] | None = None
        self._target: Offsets | None = None
        """Where a query that reads what is available now ends."""
        self._ends: dict[MessageQueue, QueueInfo] = {}
        self._ask_again_at = float("-inf")
        self._sizes: dict[MessageQueue, int] = {}
        self._batches = 0
        self._last_batch_at = time.monotonic()
        self._short_since: dict[MessageQueue, float] = {}
        """Since when a queue ends before the offset that was read already."""
        self._told: set[object] = set()
        """Warnings that are not repeated at every look."""

    @cached_property
    def read_options(self) -> ReadOptions:
        """The checked options. Relative times count from the first access."""
        return parse_options(self._given, kind="stream")

    @cached_property
    def _patience(self) -> Patience:
        """With brokers that do not answer."""
        return Patience(self.read_options.retry_timeout)

    @cached_property
    def _source(self) -> StreamSource:
        return source_of(self.read_options)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of a batch. Spark takes one only; `latestOffset` holds to the others."""
        with without_traceback():
            options = self.read_options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        return ReadMaxBytes(options.max_bytes_per_trigger)

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint starts. The same each time that this process is asked."""
        if self._start is None:
            with without_traceback():
                chosen_columns(self.read_options, self._schema)
                start = self._find_start()
                self._start = BatchOffsets(start, start, self._source.marks()).to_json()
        return self._start

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; `start` itself when there is nothing to read yet.

        Args:
            start: Where it begins.
            limit: From `getDefaultReadLimit`, or `ReadAllAvailable` for a query that runs once.
        """
        with without_traceback():
            here = BatchOffsets.of_json(start)
            self._check(here)
            ends_soon = self._target is not None or isinstance(limit, ReadAllAvailable)
            begin, ends = self._bounds(here.end, self._look() if ends_soon else self._glance())
            backlog = {queue: end - begin[queue] for queue, end in ends.items() if end > begin[queue]}
            has_moved = any(begin[queue] != offset for queue, offset in here.end.items())
            if not has_moved and (not backlog or self._waits(sum(backlog.values()), limit)):
                return start
            taken = backlog if isinstance(limit, ReadAllAvailable) else self._limited(backlog, begin, ends)
            self._last_batch_at = time.monotonic()
            self._batches += 1
            end = {queue: offset + taken.get(queue, 0) for queue, offset in begin.items()}
            return BatchOffsets(end, begin, self._source.marks()).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the queues, for the progress of the query."""
        if not self._ends:
            return None
        ends = {queue: info.max_offset for queue, info in self._ends.items()}
        return BatchOffsets(ends, {}).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes where the query ends: at the current ends of the queues."""
        with without_traceback():
            self._target = {queue: info.max_offset for queue, info in self._look().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Parts of queues for the workers.

        Args:
            start: Not used: for a first batch that is repeated, it is where the query would start today.
            end: Says where the batch begins, too.
        """
        with without_traceback():
            batch = BatchOffsets.of_json(end)
            self._check(batch)
            return list(self._source.partitions(batch, self._sizes))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one partition.

        Args:
            partition: One of `partitions`.
        """
        if partition.value is None:
            return iter(())
        return self._source.read(chosen_columns(self.read_options, self._schema), partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Mirrors the progress to a consumer group, if the options name one. The checkpoint alone decides what is read.

        Args:
            end: Where a batch ended that is done.
        """
        try:
            self._source.commit(BatchOffsets.of_json(end).end)
        except RocketPyError as error:
            logger.warning("the progress of group %s was not stored: %s", self.read_options.progress_group, error)

    def stop(self) -> None:
        """Does nothing: Spark does not call it at the end of every query."""

    def _check(self, batch: BatchOffsets) -> None:
        """Refuses a checkpoint of another source. That of another store is a loss of data."""
        try:
            self._source.check(batch)
        except NotAStoreError as error:
            if self.read_options.fail_on_data_loss:
                raise
            if self._is_news("another store"):
                logger.warning("%s; going on from the same offsets", error)

    def _find_start(self) -> Offsets:
        found: Offsets = {}
        for info, asked in self._source.starts():
            found[info.queue] = start = min(max(asked, info.min_offset), info.max_offset)
            if start > asked:
                self._lose(info.queue, asked, start, "removed by retention before the query started")
            elif start < asked:
                self._lose(info.queue, start, asked, "not there yet")
        return found

    def _look(self) -> dict[MessageQueue, QueueInfo]:
        """The queues as they are now. Waits while no broker answers."""
        return self._seen(again(self._source.queues, self.read_options.retry_timeout))

    def _glance(self) -> dict[MessageQueue, QueueInfo]:
        """The queues, asked for at most every `ENDS_KEPT_SECONDS`; none while no broker answers.

        It does not wait for brokers, so that the query can be stopped.
        """
        now = time.monotonic()
        if now < self._ask_again_at:
            return {} if self._patience.is_failing else self._ends
        try:
            queues = self._source.queues()
        except RocketPyError as error:
            self._ask_again_at = now + self._patience.pause_after(error, passes=error.retryable)
            return {}
        return self._seen(queues)

    def _seen(self, queues: list[QueueInfo]) -> dict[MessageQueue, QueueInfo]:
        self._patience.progressed()
        self._ends = {info.queue: info for info in queues}
        self._ask_again_at = time.monotonic() + ENDS_KEPT_SECONDS
        return self._ends

    def _bounds(self, here: Offsets, infos: dict[MessageQueue, QueueInfo]) -> tuple[Offsets, Offsets]:
        """Where the next batch begins, and where it can end at most. Both know every queue that was ever seen."""
        begin, ends = dict(here), dict(here)
        for queue, info in infos.items():
            if queue not in here:
                self._begin_new(queue, info)
                begin[queue] = info.min_offset
            elif here[queue] < info.min_offset:
                self._lose(queue, here[queue], info.min_offset, "removed by retention")
                begin[queue] = info.min_offset
            elif here[queue] > info.max_offset:
                begin[queue] = self._behind_end(queue, here[queue], info.max_offset)
            else:
                self._short_since.pop(queue, None)
            ends[queue] = max(begin[queue], info.max_offset)
            if self._target is not None:
                ends[queue] = max(begin[queue], min(info.max_offset, self._target.get(queue, 0)))
        self._warn_of_absent(
            [queue for queue in here if queue not in infos and queue.topic in self.read_options.topics]
        )
        return begin, ends

    def _begin_new(self, queue: MessageQueue, info: QueueInfo) -> None:
        if self._is_news((queue, "new")):
            logger.info("new queue %s, read from offset %d", queue, info.min_offset)
            if info.min_offset > 0:
                log_loss(str(queue), 0, info.min_offset, "removed by retention before the query saw the queue")

    def _behind_end(self, queue: MessageQueue, here: int, end: int) -> int:
        """What was read is not there: the topic was made anew, the broker lost its end, or a slave is still behind."""
        since = self._short_since.setdefault(queue, time.monotonic())
        if self._target is None and time.monotonic() - since < self.read_options.retry_timeout:
            return here
        self._lose(queue, end, here, "no longer there: the topic was made anew, or its broker lost them")
        del self._short_since[queue]
        return end

    def _lose(self, queue: MessageQueue, start: int, end: int, reason: str) -> None:
        if self.read_options.fail_on_data_loss:
            raise OffsetError(
                f"{end - start} messages of {queue} are not there, offsets {start} to {end}: {reason}", hint=LOSS_HINT
            )
        if self._is_news((queue, start, end)):
            log_loss(str(queue), start, end, reason)

    def _warn_of_absent(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            if self._is_news((queue, "absent")):
                logger.warning("%s is not there now; the stream leaves it out until it is", queue)

    def _is_news(self, what: object) -> bool:
        is_news = what not in self._told
        self._told.add(what)
        return is_news

    def _waits(self, messages: int, limit: ReadLimit) -> bool:
        """Whether more messages are waited for."""
        options = self.read_options
        fewest = options.min_offsets_per_trigger
        if fewest is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        return messages < fewest and time.monotonic() - self._last_batch_at < options.max_trigger_delay

    def _limited(self, backlog: dict[MessageQueue, int], begin: Offsets, ends: Offsets) -> dict[MessageQueue, int]:
        """As much of the backlog as the limits allow."""
        options = self.read_options
        known = sum(count * self._sizes.get(queue, 0) for queue, count in backlog.items())
        if known > options.max_bytes_per_trigger // 2 or any(queue not in self._sizes for queue in backlog):
            sampled = self._source.sizes([(queue, begin[queue], ends[queue]) for queue in backlog])
            for queue, size in sampled.items():
                self._sizes[queue] = (self._sizes.get(queue, size) + size) // 2
        return messages_to_take(
            backlog,
            self._sizes,
            max_messages=options.max_offsets_per_trigger,
            max_bytes=options.max_bytes_per_trigger,
            turn=self._batches,
        )

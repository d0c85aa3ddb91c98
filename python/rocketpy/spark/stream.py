"""The stream reader: selects the messages of the next batch, and finds the begin of a repeated batch."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
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
from rocketpy.base.clock import monotonic
from rocketpy.errors import NotAStoreError, OffsetError, RocketPyError
from rocketpy.spark.budget import messages_to_take
from rocketpy.spark.columns import chosen_columns
from rocketpy.spark.fingerprint import differences
from rocketpy.spark.offsets import BatchOffsets
from rocketpy.spark.options import ReadOptions, parse_options
from rocketpy.spark.patience import Patience, T, again, logger
from rocketpy.spark.pull import log_loss
from rocketpy.spark.stream_source import StreamSource, parts_of, source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rocketpy.admin.cluster import QueueInfo
    from rocketpy.message import MessageQueue
    from rocketpy.spark.fingerprint import Fingerprint
    from rocketpy.spark.offsets import Offsets

ENDS_KEPT_SECONDS = 0.1
"""Time for which the ends of the queues are cached: Spark polls an idle query every 10 ms."""
LOSS_HINT = "fail_on_data_loss=false skips them and logs which they were"
RENEWED_HINT = (
    "the topic was deleted and created again, or its broker lost the end of its log: fail_on_data_loss=false goes on "
    "with what was stored since, another checkpointLocation starts as the options say"
)


class RocketPyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, in one process for the whole query; reads in the workers.

    Args:
        options: Options from Spark. The methods raise their errors, because Spark hides an error of `streamReader`.
        schema: Schema of the rows.
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
        self._compared: dict[MessageQueue, tuple[int, QueueInfo]] = {}
        """The offset whose message before was found to be the one that was read, and the queue as it was then."""
        self._planned: BatchOffsets | None = None
        """The last batch that `latestOffset` planned."""
        self._batches = 0
        self._last_batch_at = monotonic()
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
        """Patience with brokers that do not answer."""
        return Patience(self.read_options.retry_timeout)

    @cached_property
    def _source(self) -> StreamSource:
        return source_of(self.read_options)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns the limit of a batch. Spark accepts only one; `latestOffset` applies the others."""
        with without_traceback():
            options = self.read_options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        return ReadMaxBytes(options.max_bytes_per_trigger)

    def initialOffset(self) -> dict[str, Any]:
        """Returns the start of a query without a checkpoint, the same at each call in this process."""
        if self._start is None:
            with without_traceback():
                chosen_columns(self.read_options, self._schema)
                self._start = self._find_start().to_json()
        return self._start

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Returns the end of the next batch; `start` itself if there are no new messages.

        Args:
            start: Begin of the batch.
            limit: Limit from `getDefaultReadLimit`, or `ReadAllAvailable` for a query that runs once.
        """
        with without_traceback():
            here = BatchOffsets.of_json(start)
            self._check(here)
            if self._target is not None or isinstance(limit, ReadAllAvailable):  # "nothing to read" would end the query
                batch = self._patiently(partial(self._plan, here, limit, asks_again=True))
            else:
                batch = self._once(partial(self._plan, here, limit, asks_again=False))
            if batch is None:
                return start
            self._planned = batch
            return batch.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Returns the ends of the queues, for the progress of the query."""
        if not self._ends:
            return None
        ends = {queue: info.max_offset for queue, info in self._ends.items()}
        return BatchOffsets(ends, {}).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Sets the current ends of the queues as the end of the query."""
        with without_traceback():
            infos = self._patiently(partial(self._look, asks_again=True))
            self._target = {queue: info.max_offset for queue, info in infos.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Parts of queues for the workers.

        Args:
            start: Not used: a repeated first batch has the offset of a new query instead of its own.
            end: End of the batch, with its begin.
        """
        with without_traceback():
            batch = BatchOffsets.of_json(end)
            self._check(batch)
            if batch != self._planned:
                batch = self._without_renewed(batch)
            return list(self._source.partitions(batch, self._sizes))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one partition.

        Args:
            partition: Entry of `partitions`.
        """
        if partition.value is None:
            return iter(())
        return self._source.read(chosen_columns(self.read_options, self._schema), partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Mirrors the progress to a consumer group, if the options name one. Only the checkpoint decides what to read.

        Args:
            end: End of the completed batch.
        """
        try:
            self._source.commit(BatchOffsets.of_json(end).end)
        except RocketPyError as error:
            logger.warning("progress not committed for group %s: %s", self.read_options.progress_group, error)

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
                logger.warning("%s; reading anyway", error)

    def _find_start(self) -> BatchOffsets:
        found: Offsets = {}
        with_previous: Offsets = {}
        for info, asked in self._source.starts():
            found[info.queue] = start = min(max(asked, info.min_offset), info.max_offset)
            if start > info.min_offset:
                with_previous[info.queue] = start
            if start > asked:
                self._lose(info.queue, asked, start, "removed by retention before the query started")
            elif start < asked:
                self._lose(info.queue, start, asked, "not there yet")
        return BatchOffsets(found, found, self._source.marks(), self._source.fingerprints(with_previous))

    def _patiently(self, call: Callable[[], T]) -> T:
        """Waits while no broker answers."""
        return again(call, self.read_options.retry_timeout)

    def _once(self, call: Callable[[], T]) -> T | None:
        """None while no broker answers. It does not wait for brokers, so that the query can be stopped."""
        now = monotonic()
        if self._patience.is_failing and now < self._ask_again_at:
            return None
        try:
            answer = call()
        except RocketPyError as error:
            self._ask_again_at = now + self._patience.pause_after(error, passes=error.retryable)
            return None
        self._patience.progressed()
        return answer

    def _look(self, *, asks_again: bool) -> dict[MessageQueue, QueueInfo]:
        """The queues; unless `asks_again`, asked for at most every `ENDS_KEPT_SECONDS`."""
        if asks_again or monotonic() >= self._ask_again_at:
            self._ends = {info.queue: info for info in self._source.queues()}
            self._ask_again_at = monotonic() + ENDS_KEPT_SECONDS
        return self._ends

    def _plan(self, here: BatchOffsets, limit: ReadLimit, *, asks_again: bool) -> BatchOffsets | None:
        """The next batch; None when there is nothing to read yet."""
        infos = self._look(asks_again=asks_again)
        begin = self._begin(here, infos)
        backlog = self._backlog(begin, infos)
        if backlog and not _has_moved(here, begin) and self._waits(sum(backlog.values()), limit):
            return None
        begin |= self._renewed(here, infos)
        backlog = self._backlog(begin, infos)
        if not backlog and not _has_moved(here, begin):
            return None
        taken = backlog if isinstance(limit, ReadAllAvailable) else self._limited(backlog, begin)
        end = {queue: offset + taken.get(queue, 0) for queue, offset in begin.items()}
        previous = self._previous(here, begin, end, infos)
        self._last_batch_at = monotonic()
        self._batches += 1
        return BatchOffsets(end, begin, self._source.marks(), previous)

    def _begin(self, here: BatchOffsets, infos: dict[MessageQueue, QueueInfo]) -> Offsets:
        """Where the next batch begins, as far as offsets tell. It has every queue that was ever seen."""
        begin = dict(here.end)
        for queue, info in infos.items():
            offset = here.end.get(queue)
            if offset is None:
                self._begin_new(queue, info)
                begin[queue] = info.min_offset
            elif offset < info.min_offset:
                self._lose(queue, offset, info.min_offset, "removed by retention")
                begin[queue] = info.min_offset
            elif offset > info.max_offset:
                begin[queue] = self._behind_end(info, offset, here.previous.get(queue))
            else:
                self._short_since.pop(queue, None)
        self._warn_of_absent(
            [queue for queue in here.end if queue not in infos and queue.topic in self.read_options.topics]
        )
        return begin

    def _backlog(self, begin: Offsets, infos: dict[MessageQueue, QueueInfo]) -> dict[MessageQueue, int]:
        """How much there is to read, of the queues that have something."""
        backlog: dict[MessageQueue, int] = {}
        for queue, info in infos.items():
            end = info.max_offset
            if self._target is not None:
                end = min(end, self._target.get(queue, 0))
            if end > begin[queue]:
                backlog[queue] = end - begin[queue]
        return backlog

    def _renewed(self, here: BatchOffsets, infos: dict[MessageQueue, QueueInfo]) -> Offsets:
        """Where queues are read from that are no longer those that were read: another message is before the offset."""
        at = {
            queue: offset
            for queue, offset in here.end.items()
            if queue in infos
            and queue in here.previous
            and infos[queue].min_offset < offset <= infos[queue].max_offset
            and self._compared.get(queue) != (offset, infos[queue])
        }
        found = self._source.fingerprints(at)
        wrong = differences(here.previous, found, at)
        self._compared |= {queue: (offset, infos[queue]) for queue, offset in at.items() if queue not in wrong}
        begin: Offsets = {}
        for queue, text in wrong.items():
            self._refuse_renewed(text)
            begin[queue] = infos[queue].min_offset
            if found[queue].stored_at_ms > here.previous[queue].stored_at_ms:  # or a clock was set back
                begin[queue] = self._source.first_at(infos[queue], here.previous[queue].stored_at_ms + 1)
            self._tell_renewed(infos[queue], begin[queue], text)
        return begin

    def _without_renewed(self, batch: BatchOffsets) -> BatchOffsets:
        """A batch that another process planned, without what is there in place of its messages."""
        return replace(batch, end={**batch.end, **self._patiently(partial(self._ends_of_same, batch))})

    def _ends_of_same(self, batch: BatchOffsets) -> Offsets:
        """Where the messages end of which a batch was planned, of the queues that have others behind them."""
        infos = self._look(asks_again=True)
        parts = {
            queue: (start, end) for queue, start, end in parts_of(batch) if queue in infos and queue in batch.previous
        }
        at = {queue: end for queue, (_, end) in parts.items() if end <= infos[queue].max_offset}
        found = self._source.fingerprints(at)
        wrong = differences(batch.previous, found, at)
        for text in wrong.values():
            self._refuse_renewed(text)
        if not self.read_options.fail_on_data_loss:  # else it waits for the rest, and fails
            wrong |= {queue: "no longer there" for queue, (_, end) in parts.items() if end > infos[queue].max_offset}
        ends: Offsets = {}
        for queue, text in wrong.items():
            (start, end), last_ms = parts[queue], batch.previous[queue].stored_at_ms
            ends[queue] = start
            if queue not in found or found[queue].stored_at_ms > last_ms:  # or a clock was set back
                ends[queue] = max(start, min(end, self._source.first_at(infos[queue], last_ms + 1)))
            log_loss(str(queue), ends[queue], end, text)
        return ends

    def _previous(
        self, here: BatchOffsets, begin: Offsets, end: Offsets, infos: dict[MessageQueue, QueueInfo]
    ) -> dict[MessageQueue, Fingerprint]:
        """The last message before the end of a batch, by queue: asked for where a queue moved or it was not known."""
        stayed = {queue for queue, offset in end.items() if here.end.get(queue) == begin[queue] == offset}
        known = {queue: here.previous[queue] for queue in stayed if queue in here.previous}
        at = {
            queue: offset
            for queue, offset in end.items()
            if queue not in known and queue in infos and infos[queue].min_offset < offset <= infos[queue].max_offset
        }
        found = self._source.fingerprints(at)
        self._compared |= {queue: (end[queue], infos[queue]) for queue in found}
        return known | found

    def _begin_new(self, queue: MessageQueue, info: QueueInfo) -> None:
        if self._is_news((queue, "new")):
            logger.info("new queue %s, read from offset %d", queue, info.min_offset)
            if info.min_offset > 0:
                log_loss(str(queue), 0, info.min_offset, "removed by retention before the query saw the queue")

    def _behind_end(self, info: QueueInfo, here: int, previous: Fingerprint | None) -> int:
        """What was read is not there: the topic was made anew, the broker lost its end, or a slave is still behind."""
        queue, end = info.queue, info.max_offset
        since = self._short_since.setdefault(queue, monotonic())
        if self._target is None and monotonic() - since < self.read_options.retry_timeout:
            return here
        text = "no longer there: the topic was made anew, or its broker lost them"
        self._lose(queue, end, here, text)
        begin = end if previous is None else self._source.first_at(info, previous.stored_at_ms + 1)
        self._tell_renewed(info, begin, text)
        return begin

    def _refuse_renewed(self, text: str) -> None:
        if self.read_options.fail_on_data_loss:
            raise OffsetError(text, hint=RENEWED_HINT)

    def _tell_renewed(self, info: QueueInfo, begin: int, text: str) -> None:
        if begin < info.max_offset and self._is_news((info.queue, "renewed", begin, text)):
            logger.warning(
                "messages of %s may be lost; reading offsets %d to %d, stored since then: %s",
                info.queue,
                begin,
                info.max_offset,
                text,
            )

    def _lose(self, queue: MessageQueue, start: int, end: int, reason: str) -> None:
        if self.read_options.fail_on_data_loss:
            raise OffsetError(
                f"{end - start} messages of {queue} are missing, offsets {start} to {end}: {reason}", hint=LOSS_HINT
            )
        if self._is_news((queue, start, end)):
            log_loss(str(queue), start, end, reason)

    def _warn_of_absent(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            if self._is_news((queue, "absent")):
                logger.warning("%s is missing; the stream skips the queue until it returns", queue)

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
        return messages < fewest and monotonic() - self._last_batch_at < options.max_trigger_delay

    def _limited(self, backlog: dict[MessageQueue, int], begin: Offsets) -> dict[MessageQueue, int]:
        """As much of the backlog as the limits allow."""
        options = self.read_options
        known = sum(count * self._sizes.get(queue, 0) for queue, count in backlog.items())
        if known > options.max_bytes_per_trigger // 2 or any(queue not in self._sizes for queue in backlog):
            parts = [(queue, begin[queue], begin[queue] + count) for queue, count in backlog.items()]
            sampled = self._source.sizes(parts)
            for queue, size in sampled.items():
                self._sizes[queue] = (self._sizes.get(queue, size) + size) // 2
        return messages_to_take(
            backlog,
            self._sizes,
            max_messages=options.max_offsets_per_trigger,
            max_bytes=options.max_bytes_per_trigger,
            turn=self._batches,
        )


def _has_moved(here: BatchOffsets, begin: Offsets) -> bool:
    """Whether a batch does not begin where the one before it ended."""
    return any(begin[queue] != offset for queue, offset in here.end.items())

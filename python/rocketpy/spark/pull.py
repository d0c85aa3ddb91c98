"""Pulls a part of a queue in a worker: through restarts of its broker, and past messages that are gone or damaged."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, TypedDict

from rocketpy.errors import UNREADABLE_BODY, DamagedDataError, OffsetError, RocketPyError
from rocketpy.spark.connection import client_options, shared_admin
from rocketpy.spark.patience import Patience, again, logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from rocketpy.spark.options import ReadOptions
    from rocketpy.spark.part import Groupings, QueuePart

FIRST_WINDOW, LARGEST_WINDOW = 64, 4096
"""Messages per request near damage. After the damage, windows grow until the rest is read in one request."""
SUMMED_MESSAGES = 1 << 18
"""Number of messages that are added up before their sums are returned."""
UNREADABLE = re.compile("does not (?:point|lead) to its record")
"""Refusal of a RocketPy broker for an unreadable record, also of earlier versions. Apache's brokers skip the record."""


def read_part(
    options: ReadOptions, columns: Sequence[str], part: QueuePart, *, groupings: Groupings = ()
) -> Iterator[pa.RecordBatch]:
    """Reads a part of a queue, each message once.

    Args:
        options: Read options with name servers.
        columns: Checked column names.
        part: Part of a queue to read.
        groupings: Groups to aggregate by, instead of columns.

    Yields:
        Record batches of about 1 MiB, or sums.

    Raises:
        OffsetError: Messages are gone, and data loss is an error.
        DamagedDataError: The same for damage.
        MessageTooLargeError: The same for a body above its maximum size.
        RocketPyError: No broker answered for `retry_timeout`.
    """
    output: _Output = {"groupings": groupings, "batch_rows": SUMMED_MESSAGES} if groupings else {"columns": columns}
    place = _Place(options, output, part)
    while place.at < part.end:
        if options.fail_on_data_loss:
            yield from place.read_to(part.end)
        elif place.window >= LARGEST_WINDOW:
            yield from place.read_past_loss(part.end)
        else:
            yield from place.read_past_loss(min(part.end, place.at + place.window))
    place.tell_loss()


class _Output(TypedDict, total=False):
    """Output form of a `RangeReader`."""

    columns: Sequence[str]
    groupings: Groupings
    batch_rows: int


def log_loss(queue: str, start: int, end: int, reason: str) -> None:
    """Logs the number of skipped messages.

    Args:
        queue: Name of the queue.
        start: First queue offset.
        end: Queue offset after the last.
        reason: Cause of the loss.
    """
    logger.warning("%d messages of %s left out, offsets %d to %d: %s", end - start, queue, start, end, reason)


def null_bodies(batch: pa.RecordBatch) -> int:
    """Number of messages in a batch whose body does not decompress."""
    place = batch.schema.get_field_index("body")
    return 0 if place < 0 else batch.column(place).null_count


def log_null_bodies(source: str, count: int) -> None:
    """Logs the number of bodies that are null.

    Args:
        source: Name of the queue or of the store.
        count: Number of bodies; nothing is logged for 0.
    """
    if count:
        logger.warning("%d bodies of %s do not decompress and are null", count, source)


class _Place:
    """Progress of a part."""

    def __init__(self, options: ReadOptions, output: _Output, part: QueuePart) -> None:
        self.at = part.start
        self.window = LARGEST_WINDOW
        self._options = options
        self._output = output
        self._queue = part.queue
        self._end = part.end
        self._patience = Patience(options.retry_timeout)
        self._lost: tuple[int, int, str] | None = None
        """Messages that were left out and not told of yet, and why the first of them was."""
        self._unreadable = 0

    def read_to(self, end: int) -> Iterator[pa.RecordBatch]:
        """Continues reading up to `end`, with retries after connection failures.

        Raises:
            RocketPyError: The range is incomplete, or no broker answers.
        """
        while self.at < end:
            try:
                for batch in self._batches(end):
                    self._patience.progressed()
                    yield batch
                if self.at < end:
                    self._check_whole(self.at, end)
                    self.at = end
            except RocketPyError as error:
                if UNREADABLE.search(str(error)):
                    raise DamagedDataError(str(error), hint=error.hint) from error
                time.sleep(self._patience.pause_after(error, passes=error.retryable))

    def read_past_loss(self, end: int) -> Iterator[pa.RecordBatch]:
        """Continues reading up to `end`, or narrows the window around unreadable messages, and skips a single one.

        Each call passes a message or narrows the window, so the calls end.
        """
        try:
            yield from self.read_to(end)
            self.window = min(2 * self.window, LARGEST_WINDOW)
        except (OffsetError, *UNREADABLE_BODY) as error:
            if isinstance(error, OffsetError) and self._go_to_bounds():
                return
            if self.window > 1:
                self.window = min(FIRST_WINDOW, self.window // 2)
            else:
                self._leave_out(self.at + 1, str(error))

    def tell_loss(self) -> None:
        """Logs the messages skipped since the last call, and the number of null bodies."""
        if self._lost is not None:
            log_loss(str(self._queue), *self._lost)
            self._lost = None
        log_null_bodies(str(self._queue), self._unreadable)
        self._unreadable = 0

    def _batches(self, end: int) -> Iterator[pa.RecordBatch]:
        from rocketpy.base.arrow import pyarrow_batch
        from rocketpy.consuming.reader import RangeReader

        shared_admin(self._options)  # keeps the connection when this reader is closed
        with RangeReader(
            self._queue,
            self.at,
            end,
            tags=self._options.tags,
            max_body_bytes=self._options.max_body_bytes,
            null_unreadable_bodies=self._options.null_unreadable_bodies,
            name_servers=self._options.name_servers,
            **self._output,
            **client_options(self._options),
        ) as reader:
            for native in reader:
                for start, end_of_gap in reader.gaps:
                    self._check_whole(start, end_of_gap)
                self.at = reader.next_offset
                batch = pyarrow_batch(native)
                self._unreadable += null_bodies(batch)
                yield batch

    def _check_whole(self, start: int, end: int) -> None:
        """Messages that the broker passed over without a filter are gone."""
        if start == end or self._options.tags != "*":
            return
        if self._options.fail_on_data_loss:
            raise OffsetError(
                f"{end - start} messages of {self._queue} are missing, offsets {start} to {end}",
                hint="fail_on_data_loss=false reads the remaining messages",
            )
        self._lose(start, end, "the broker passed over them")

    def _go_to_bounds(self) -> bool:
        """Goes to what the queue holds now, or narrows the window to it. False where the part lies within."""
        first = again(lambda: shared_admin(self._options).min_offset(self._queue), self._options.retry_timeout)
        behind = again(lambda: shared_admin(self._options).max_offset(self._queue), self._options.retry_timeout)
        if self.at < min(first, self._end):
            self._leave_out(min(first, self._end), "removed by retention")
        elif behind <= self.at:
            self._leave_out(self._end, "after the end of the queue")
        elif behind < self.at + self.window:
            self.window = behind - self.at
        else:
            return False
        return True

    def _leave_out(self, to: int, reason: str) -> None:
        self._lose(self.at, to, reason)
        self.at = to

    def _lose(self, start: int, end: int, reason: str) -> None:
        if self._lost is not None and self._lost[1] == start:
            start, reason = self._lost[0], self._lost[2]
        else:
            self.tell_loss()
        self._lost = (start, end, reason)

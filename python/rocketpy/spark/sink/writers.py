"""The sink of the data source: writes rows as messages, in batches and in streams."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rocketpy.errors import (
    AccessDeniedError,
    InvalidArgumentError,
    NotSupportedError,
    PartlySentError,
    RocketPyError,
    TopicNotFoundError,
)
from rocketpy.spark.offsets import Offsets
from rocketpy.spark.patience import Patience, T, again, logger, may_pass
from rocketpy.spark.sink.client import SinkClient, sink_client
from rocketpy.spark.sink.commit import Written, finish, give_up
from rocketpy.spark.sink.halves import HALF_MESSAGE_THREADS, roll_back_halves
from rocketpy.spark.sink.options import SinkOptions, check_schema, later_column, parse_sink_options
from rocketpy.spark.sink.progress import Earlier, Progress, as_begun, ends_of, stored_rows
from rocketpy.spark.sink.rows import Place, Row, RowMaker, WriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rocketpy.message import MessageQueue, Receipt

SETTLE_SECONDS = 0.5
"""Pause before the sink reads stored rows. By then brokers have dropped the requests that waited."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> RocketPyWriter:
    """Creates the writer of a batch.

    Args:
        options: Texts from Spark.
        schema: Schema of the rows.
        overwrite: Whether the mode is overwrite.

    Raises:
        OptionError: An option or a column is wrong.
        NotSupportedError: The mode is overwrite.
        TopicNotFoundError: The topic of all rows does not exist, and brokers create none.
        ConnectionFailedError: No name server can be reached; a retry is safe.
    """
    sink = _checked(options, schema, overwrite)
    if sink.exactly_once and sink.write_id is None:
        raise InvalidArgumentError("exactly_once of a batch write needs a write_id, so that the write can be repeated")
    return RocketPyWriter(sink)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> RocketPyStreamWriter:
    """Creates the writer of a stream.

    Args:
        options: Texts from Spark.
        schema: Schema of the rows.
        overwrite: Whether the output mode is complete.

    Raises:
        OptionError: An option or a column is wrong.
        NotSupportedError: The output mode is complete.
    """
    sink = _checked(options, schema, overwrite)
    if sink.write_id is not None:
        raise InvalidArgumentError("write_id is for batch writes: a stream has the id of its query")
    return RocketPyStreamWriter(sink)


def _checked(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    if overwrite:
        raise NotSupportedError(
            "format rocketpy cannot overwrite: a topic only grows",
            hint='.mode("append"), or in a stream .outputMode("append")',
        )
    sink = parse_sink_options(options)
    check_schema(schema, sink)
    return sink


class RocketPyWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write = options.write_id or uuid.uuid4().hex
        self._since: Offsets = {}
        client = SinkClient(options)
        try:
            if "topic" in options.fixed:
                client.producer.queues(options.fixed["topic"])
            if options.exactly_once:
                Progress(client).queues()
            elif options.progress_topic is not None and options.write_id is None:
                self._since = Progress(client).ends()
        finally:
            client.close()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Sends a partition and waits for every acknowledgement."""
        task = _task()
        place = Place(self._write, 0, task.partitionId())
        return TaskSink(self._options, place, task.attemptNumber(), self._since).write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Records that the write is done, if it has an id of the user's."""
        if self._options.write_id is not None:
            finish(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Logs the number of stored rows of a failed write."""
        give_up(self._options, messages)


class RocketPyStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Sends a partition of a batch, without what an earlier attempt sent, and waits for every acknowledgement."""
        task = _task()
        query, batch = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise RocketPyError("Spark did not pass the ids of the query and the batch")
        place = Place(query, int(batch), task.partitionId())
        return TaskSink(self._options, place, task.attemptNumber(), {}).write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Records that a batch is done."""
        finish(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Logs the number of stored rows of a failed batch."""
        give_up(self._options, messages)


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise RocketPyError("not in a task of Spark")
    return task


class TaskSink:
    """Sends one partition.

    With a progress topic the client never sends again by itself. After a failure whose outcome is not known the sink
    waits for the broker, reads which rows are stored, and sends the others.

    With `exactly_once` it sends half messages. Once its batch is decided it leaves them to the driver, and once some of
    them are known to be lost, it sends those rows.
    """

    def __init__(self, options: SinkOptions, place: Place, attempt: int, since: Mapping[MessageQueue, int]) -> None:
        self._given = options
        self._place = place
        self._attempt = attempt
        self._since = since
        self._use(options)
        self._begun: dict[str, Offsets] = {}
        """Topics that this attempt sends to, and where they ended before."""
        self._prepares = options.exactly_once
        """Whether rows are sent as half messages."""
        self._makes_good = False
        """Whether rows are sent whose half messages were lost."""
        self._halves: dict[int, Receipt] = {}
        """Half messages by number of the row."""

    def _use(self, options: SinkOptions) -> None:
        self._options = options
        self._client = sink_client(options)
        self._progress = None if options.progress_topic is None else Progress(self._client)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Sends the rows.

        Args:
            batches: All rows of the partition.

        Returns:
            Once every row is acknowledged.

        Raises:
            WriteError: A row was refused, or its outcome is not known after all tries. Rows before it may be stored.
        """
        try:
            return self._write(batches)
        except Exception:
            roll_back_halves(self._client, self._halves.values())
            raise

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        maker = RowMaker(
            self._place,
            self._options.fixed,
            with_ids=self._progress is not None,
            drops_reserved=self._options.drops_reserved,
        )
        earlier, stored = None, set[str]()
        sent = skipped = 0
        for batch in batches:
            rows = maker.rows(batch)
            if not rows:
                continue
            if earlier is None:
                earlier, stored = self._patiently(self._look_up)
                self._check_times(batch.schema.names)
            is_settled = earlier.is_done or (earlier.is_decided and not earlier.is_lossy)
            left = [] if is_settled else [row for row in rows if row.row_id not in stored]
            skipped += len(rows) - len(left)
            self._begin({row.message.topic for row in left} - self._begun.keys())
            self._send(left)
            sent += len(left)
        begun_with = None if self._options == self._given else self._options
        if self._progress is None or not self._halves:
            return Written(self._place, sent, skipped, made_good=self._makes_good, begun_with=begun_with)
        halves = [self._halves[number] for number in sorted(self._halves)]
        attempt = uuid.uuid4().hex
        self._patiently(partial(self._progress.note_halves, self._place, attempt, halves))
        return Written(self._place, sent, skipped, attempt, len(halves), begun_with=begun_with)

    def _patiently(self, call: Callable[[], T]) -> T:
        return again(call, self._options.retry_seconds, unsure=True)

    def _look_up(self) -> tuple[Earlier, set[str]]:
        if self._progress is None:
            return Earlier(), set()
        options, earlier = as_begun(self._client, self._place, self._since)
        if options != self._options:
            logger.info("batch %d was begun with exactly_once=%s", self._place.batch, options.exactly_once)
            self._use(options)
        self._prepares = options.exactly_once and not earlier.is_decided
        self._makes_good = earlier.is_lossy
        if earlier.is_done or (self._options.exactly_once and not earlier.is_lossy):
            return earlier, set()
        return earlier, stored_rows(self._client, earlier.ends, self._place.prefix)

    def _check_times(self, columns: Sequence[str]) -> None:
        """Refuses rows that wait for their time in a batch that was begun with `exactly_once`."""
        later = later_column(columns, self._options)
        if later is not None and self._options.exactly_once:
            raise WriteError(
                f"batch {self._place.batch} of write {self._place.write} was begun with exactly_once, "
                f"which does not support {later}",
                hint=f"start the query without {later} until the batch is done",
            )

    def _begin(self, topics: set[str]) -> None:
        """Records the ends of topics before the first row goes there."""
        if not topics or self._progress is None:
            return
        progress, ends = self._progress, dict[str, Offsets]()
        for topic in sorted(topics):
            ends[topic] = self._patiently(partial(ends_of, self._client, topic))
            if self._prepares and not self._patiently(partial(self._client.transactions.ends_once, topic)):
                raise NotSupportedError(
                    f"exactly_once does not work with Apache's brokers, and topic {topic} is at one",
                    hint="omit exactly_once: a restarted stream writes no row twice without it either. Apache's "
                    "brokers store a half message again before each check-back, and deliver each copy",
                )
        self._patiently(partial(progress.begin, self._place, self._attempt, ends))
        self._begun |= ends

    def _send(self, rows: list[Row]) -> None:
        patience = Patience(self._options.retry_seconds, first_pause=SETTLE_SECONDS)
        attempt = self._prepare if self._prepares else self._try
        while failures := attempt(rows):
            row, error = next(((row, error) for row, error in failures if not self._may_pass(row, error)), failures[0])
            passes = self._progress is not None and self._may_pass(row, error)
            pause = patience.next_pause() if passes else None
            if pause is None:
                raise WriteError(
                    f"{self._place.row(row.number)}, topic {row.message.topic}: {error}", retryable=may_pass(error)
                ) from error
            logger.info("%d rows not acknowledged, reading stored rows: %s", len(failures), error)
            time.sleep(pause)
            rows = [row for row, _ in failures]
            if not self._prepares and any(_is_open(error) for _, error in failures):
                ends = {topic: self._begun[topic] for topic in {row.message.topic for row in rows}}
                # A broker that stood still first stores what waits in its sockets: the pause counts from then.
                for topic in ends:
                    self._patiently(partial(ends_of, self._client, topic))
                time.sleep(SETTLE_SECONDS)
                stored = self._patiently(partial(stored_rows, self._client, ends, self._place.prefix))
                rows = [row for row in rows if row.row_id not in stored]

    def _may_pass(self, row: Row, error: Exception) -> bool:
        if isinstance(error, TopicNotFoundError):
            return row.message.topic in self._client.known_topics
        return may_pass(error)

    def _prepare(self, rows: Sequence[Row]) -> list[tuple[Row, Exception]]:
        """Sends half messages once. One whose outcome is not known is not decided on, and so never delivered."""

        def prepare(row: Row) -> Exception | None:
            topic = row.message.topic
            queue = None if row.queue is None else self._queue(topic, row.queue[0] or "", row.queue[1], rows)
            try:
                transaction = self._client.transactions.transaction(row.message, queue=queue)
            except AccessDeniedError as error:
                raise NotSupportedError(f"exactly_once needs a broker with transactions: {error}") from error
            except RocketPyError as error:
                return error
            self._halves[row.number] = transaction.receipt
            self._client.known_topics.add(topic)
            return None

        with ThreadPoolExecutor(HALF_MESSAGE_THREADS) as pool:
            return [(row, error) for row, error in zip(rows, pool.map(prepare, rows), strict=True) if error]

    def _try(self, rows: Sequence[Row]) -> list[tuple[Row, Exception]]:
        """Sends rows once. Returns those without an acknowledgement, in their order."""
        failures: list[tuple[Row, Exception]] = []

        def target(row: Row) -> tuple[str, str, int]:
            return ("", "", -1) if row.queue is None else (row.message.topic, row.queue[0] or "", row.queue[1])

        for (topic, broker_name, queue_id), group in groupby(sorted(rows, key=target), target):
            queue = None if queue_id < 0 and not topic else self._queue(topic, broker_name, queue_id, rows)
            failures += self._try_group(list(group), queue)
        failed = {row.message.topic for row, _ in failures}
        self._client.known_topics |= {row.message.topic for row in rows} - failed
        return sorted(failures, key=lambda failure: failure[0].number)

    def _try_group(self, rows: list[Row], queue: MessageQueue | None) -> list[tuple[Row, Exception]]:
        try:
            self._client.producer.send_many([row.message for row in rows], queue=queue)
        except PartlySentError as error:
            if error.receipts is None:
                raise
            return [(rows[index], cause) for index, cause in error.receipts.failures()]
        except RocketPyError as error:  # nothing was sent
            if len(rows) == 1 or may_pass(error):
                return [(row, error) for row in rows]
            half = len(rows) // 2  # one of them is refused: send those before it, and find out which it is
            failures = self._try_group(rows[:half], queue)
            if not failures:
                return self._try_group(rows[half:], queue)
            return failures + [(row, failures[0][1]) for row in rows[half:]]
        return []

    def _queue(self, topic: str, broker_name: str, queue_id: int, rows: Sequence[Row]) -> MessageQueue:
        queues = self._patiently(partial(self._client.producer.queues, topic))
        named = [one for one in queues if one.queue_id == queue_id and broker_name in ("", one.broker_name)]
        if len(named) == 1:
            return named[0]
        text = (
            f"topic {topic} has no queue {broker_name or ''}#{queue_id}"
            if not named
            else (f"topic {topic} has a queue {queue_id} at several brokers: give broker_name")
        )
        index = next(row.number for row in rows if row.queue == (broker_name or None, queue_id))
        raise WriteError(f"{self._place.row(index)}: {text}")


def _is_open(error: Exception) -> bool:
    """Whether a message with this error may be stored."""
    return isinstance(error, RocketPyError) and error.may_have_been_applied

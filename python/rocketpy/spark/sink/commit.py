"""Finishes a write in the driver, or gives it up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from rocketpy.errors import RocketPyError
from rocketpy.spark.patience import again, logger
from rocketpy.spark.sink.client import sink_client
from rocketpy.spark.sink.halves import commit_halves, roll_back_halves
from rocketpy.spark.sink.progress import Progress, as_begun
from rocketpy.spark.sink.rows import Place, WriteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketpy.spark.sink.client import SinkClient
    from rocketpy.spark.sink.options import SinkOptions


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """Report of a task to the driver: every row of its partition is acknowledged."""

    place: Place
    sent: int
    skipped: int
    """Number of rows stored by an earlier attempt."""
    attempt: str = ""
    """Id of the attempt, with `exactly_once`."""
    halves: int = 0
    """Number of half messages that wait for the driver's decision. Their positions are in the progress topic."""
    made_good: bool = False
    """Whether the rows of lost half messages are sent."""
    begun_with: SinkOptions | None = None
    """Options with which the batch was begun, if those are not the given ones."""


def finish(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Records that a batch is written, unless it had no rows.

    Args:
        options: Options of the sink.
        messages: Reports of all tasks.
    """
    tasks = [one for one in messages if isinstance(one, Written)]
    written = [one for one in tasks if one.sent + one.skipped]
    skipped = sum(one.skipped for one in written)
    if skipped:
        logger.info("batch %d repeated, %d rows were stored before", written[0].place.batch, skipped)
    if options.progress_topic is None or not tasks:
        return
    place = tasks[0].place
    client = sink_client(_options_of_batch(options, place, written))
    progress = Progress(client)
    decided_at = decide(client, progress, place, written) if client.options.exactly_once else None
    if not written and decided_at is None:
        return
    finished = partial(progress.finish, place.write, place.batch, decided_at)
    again(finished, options.retry_seconds, unsure=True)


def _options_of_batch(options: SinkOptions, place: Place, written: Sequence[Written]) -> SinkOptions:
    """The options with which a batch was begun."""
    if not written:  # it may repeat one with rows that is decided
        return again(partial(as_begun, sink_client(options), place, {}), options.retry_seconds)[0]
    begun_with = [one.begun_with or options for one in written]
    if any(one != begun_with[0] for one in begun_with):
        raise WriteError(
            f"two runs began batch {place.batch} of write {place.write} at the same time, one with exactly_once",
            hint="end the other run, and start the query again",
            retryable=True,
        )
    return begun_with[0]


def decide(client: SinkClient, progress: Progress, place: Place, written: Sequence[Written]) -> int | None:
    """Records that a batch is to be delivered, unless an earlier run of the query did, and has it delivered.

    Args:
        client: Client of this process.
        progress: Records with the decisions.
        place: Any place of the batch.
        written: Reports of all tasks.

    Returns:
        Offset of the decision.

    Raises:
        WriteError: Another run of the query decided otherwise, or brokers gave half messages up. The query has to be
            started again.
    """
    seconds = client.options.retry_seconds
    attempts = {one.attempt: one.halves for one in written if one.halves}
    if attempts:
        again(partial(progress.decide, place.write, place.batch, attempts), seconds, unsure=True)
    fate = again(partial(progress.fate, place.write, place.batch), seconds, unsure=True)
    if attempts and fate.attempts != attempts:
        raise WriteError(f"batch {place.batch} of write {place.write} was decided by another run of the query")
    if fate.is_lossy and not all(one.made_good for one in written):
        raise WriteError(f"batch {place.batch} of write {place.write} lost rows meanwhile", retryable=True)
    if fate.attempts is None or fate.is_lossy:
        return fate.decided_at
    lost = sum(fate.attempts.values())
    for halves in progress.halves(place.write, place.batch, fate, fate.attempts):
        lost += commit_halves(client, halves) - len(halves)
    if lost:
        again(partial(progress.note_loss, place.write, place.batch, lost), seconds)
        raise WriteError(
            f"brokers gave {lost} rows of batch {place.batch} of write {place.write} up before it was decided",
            hint="start the query again to resend them. A broker sends at most transactionCheckMax check-backs",
            retryable=True,
        )
    return fate.decided_at


def give_up(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Logs what a write that failed has stored, and rolls it back unless it is decided or may become so.

    Args:
        options: Options of the sink.
        messages: Reports of the tasks that succeeded; None for each other task.
    """
    written = [one for one in messages if isinstance(one, Written)]
    prepared = [one for one in written if one.halves]
    if options.progress_topic is None or not prepared:
        sent = sum(one.sent for one in written)
        logger.warning("write failed; %d rows of finished tasks are stored, and possibly rows of other tasks", sent)
        return
    client, place = sink_client(prepared[0].begun_with or options), prepared[0].place
    progress = Progress(client)
    try:
        fate = progress.fate(place.write, place.batch)
        if fate.attempts is None and None not in messages:
            return  # the commit failed: a broker may still store its decision, which counts then
        failed = {one.attempt for one in prepared} - (fate.attempts or {}).keys()
        for halves in progress.halves(place.write, place.batch, fate, failed):
            roll_back_halves(client, halves)
    except RocketPyError as error:
        logger.warning("write failed; cannot read the decision on batch %d: %s", place.batch, error)

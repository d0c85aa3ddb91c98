"""The job `replay`: sends stored messages again, to another topic or another cluster.

`spark-submit spark/replay.py --path data --topic flights --to-topic again --to-name-server 127.0.0.1:9876` runs it by
itself.
"""

import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketpy import Message, Producer
from rocketpy.admin.dead_letters import ORIGIN_ID, ORIGIN_TOPIC, Pace
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.config import PATIENT_SENDS, ProducerOptions
from rocketpy.errors import DamagedDataError, InvalidArgumentError, MessageTooLargeError, PartlySentError, RocketPyError
from rocketpy.producing.copies import COPY_LIMITS, copy_of, is_rejected
from rocketpy.spark import job
from rocketpy.spark.batches import batch_of, ddl_of, scan
from rocketpy.spark.picture import Bar, draw_bars, drawn
from rocketpy.spark.session import context_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from rocketpy.message import Receipt

QUEUE = ("topic", "broker_name", "queue_id")
COLUMNS = (*QUEUE, "queue_offset", "tag", "keys", "body", "properties", "msg_id", "flag", "stored_at", "born_at")
RECEIPTS = {
    "topic": "string",
    "broker_name": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "msg_id": "string",
    "body_bytes": "bigint",
    "origin_topic": "string",
    "origin_broker_name": "string",
    "origin_queue_id": "int",
    "origin_queue_offset": "bigint",
    "origin_msg_id": "string",
    "rejected": "string",
}
"""Columns of a replay's receipts: new and old position of each message. `audit --journal` reads them.

A message that the broker can never accept, or whose body does not decompress, has no new position, and the reason in
`rejected`.
"""

UNREADABLE = "the body does not decompress within 64 MiB, and above 16 MiB within 100 times its stored size"
"""Reason why a message without a readable body is rejected."""

MESSAGES_AT_ONCE = 1000
"""Messages per call of `send_many`, which makes about one request per queue."""

ToTopic = Annotated[
    str | None,
    typer.Option(
        "--to-topic", metavar="TOPIC", help="Target topic of all messages; default: each message's own topic."
    ),
]
ToServer = Annotated[
    str,
    typer.Option("--to-name-server", metavar="HOST:PORT[,HOST:PORT]", help="Name servers of the target cluster."),
]
Tags = Annotated[str | None, typer.Option("--tags", metavar="'A || B'", help="Only messages with one of these tags.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="Only messages that satisfy this SQL condition over topic, queue_id, queue_offset, tag, keys, body, "
        "properties, msg_id, stored_at, born_at: \"properties['region'] = 'eu'\".",
    ),
]
AnyOrder = Annotated[
    bool,
    typer.Option("--any-order", help="Do not keep the order of each queue: more tasks, and no shuffle of the bodies."),
]
OutFolder = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="Folder for receipts (Parquet) and a picture; must not exist."),
]


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a replay.

    Attributes:
        name_server: Name server of the cluster.
        topic: Target topic; None: each message's topic of origin.
        rate: Maximum number of messages per second of one task; None for no limit.
    """

    name_server: str
    topic: str | None
    rate: float | None = None


def run(
    spark: "SparkSession",
    source: dict[str, object],
    target: Target,
    *,
    where: str | None = None,
    in_order: bool = True,
    out: Path | None = None,
) -> dict[str, Any]:
    """Sends messages again. Each task waits for the acknowledgement of every message.

    At least once: a task that Spark tries again, or a replay that is repeated, sends its messages again. Each copy has
    the id of its first life in `rocketpyOriginMsgId`, by which `rocketpy.dedup` and the job `audit` know it.

    Args:
        spark: The session.
        source: Options of the data source.
        target: Target of the messages. Its rate is that of all tasks together.
        where: SQL condition over the columns that selects messages.
        in_order: Whether each queue is sent by one task, in its order.
        out: Folder for the receipts.

    Returns:
        Messages and bytes (of bodies) that were acknowledged; and `rejected`, the number of messages that the broker
        can never accept or whose body does not decompress, with the first of them by name in `rejections`.

    Raises:
        PythonException: A task could not send. Messages acknowledged before are stored.
    """
    messages = scan(spark, columns=COLUMNS, null_unreadable_bodies=True, **source)
    if where is not None:
        messages = messages.where(where)
    if in_order:
        queues = max(1, len(job.plan_rows(source)))
        messages = messages.repartition(queues, *QUEUE).sortWithinPartitions(*QUEUE, "queue_offset")
    cores = context_of(spark).defaultParallelism
    at_once = min(cores, max(1, messages.rdd.getNumPartitions()))
    of_task = Target(target.name_server, target.topic, None if target.rate is None else target.rate / at_once)
    receipts = messages.mapInArrow(_send_by_task(of_task), ddl_of(RECEIPTS))
    with job.progress(spark, "replay"):
        if out is not None:
            job.save(receipts, out, "receipts")
            receipts = spark.read.parquet(str(out / "receipts.parquet"))
            drawn(lambda: draw_receipts(receipts, out / "replay.png"))
        return _sums(receipts)


def draw_receipts(receipts: "DataFrame", path: Path) -> None:
    """Draws the source and target queues of messages, as PNG.

    Args:
        receipts: Receipts of the messages.
        path: File to write.
    """

    def bars(*queue: str) -> list[Bar]:
        rows = receipts.groupBy(*queue).count().orderBy(*queue).collect()
        return [Bar("#".join(str(part) for part in row[:-1] if part is not None), row["count"]) for row in rows]

    receipts = receipts.where("rejected is null")
    came, went = bars(*(f"origin_{name}" for name in QUEUE)), bars(*QUEUE)
    if went:
        draw_bars(f"{sum(bar.value for bar in went):,} messages", {"came from": came, "went to": went}, path)


def _sums(receipts: "DataFrame") -> dict[str, Any]:
    from pyspark.sql import functions as sql

    queue = sql.concat_ws("#", "origin_topic", "origin_broker_name", "origin_queue_id")
    place = sql.concat(queue, sql.lit(" offset "), sql.col("origin_queue_offset").cast("string"))
    name = sql.when(sql.col("rejected").isNotNull(), sql.concat_ws(": ", "origin_msg_id", place, "rejected"))
    # One action: a second one would send the messages again.
    sums = receipts.agg(
        sql.count("msg_id").alias("messages"),
        sql.sum("body_bytes").alias("bytes"),
        sql.count("rejected").alias("rejected"),
        sql.slice(sql.sort_array(sql.collect_list(name)), 1, output.REJECTIONS_SHOWN).alias("rejections"),
    )
    return {name: value or 0 if name != "rejections" else list(value) for name, value in job.rows_of(sums)[0].items()}


def _send_by_task(target: Target) -> Any:
    def send_batches(batches):  # type: ignore[no-untyped-def]  # a nested function travels to the workers by value
        from rocketpy.spark.replay import send_all

        return send_all(target, batches)

    return send_batches


def send_all(target: Target, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Sends the messages of a task, in a worker.

    Args:
        target: Target of the messages, and rate of this task.
        batches: Batches with `COLUMNS`.

    Yields:
        A batch of receipts for each call of `send_many`; all of its messages are acknowledged.

    Raises:
        PartlySentError: Some messages were not acknowledged.
    """
    size = MESSAGES_AT_ONCE if target.rate is None else max(1, min(MESSAGES_AT_ONCE, int(target.rate)))
    pace = Pace(None if target.rate is None else target.rate / size)
    producer = None
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, size):
                rows = batch.slice(start, size).to_pylist()
                time.sleep(pace.next())
                if producer is None:  # a task without messages needs no cluster
                    options: ProducerOptions = {**PATIENT_SENDS, **COPY_LIMITS}
                    producer = Producer("rocketpy-replay", name_servers=target.name_server, **options)
                yield _sent(producer, rows, target.topic)
    finally:
        if producer is not None:
            producer.close()


def _sent(producer: Producer, rows: list[dict[str, Any]], topic: str | None) -> "pa.RecordBatch":
    noted = []
    for row, receipt in zip(rows, _outcomes(producer, rows, topic), strict=True):
        facts = dict.fromkeys(RECEIPTS) | {f"origin_{name}": row[name] for name in (*QUEUE, "queue_offset", "msg_id")}
        if isinstance(receipt, RocketPyError):
            facts["rejected"] = str(receipt)
        else:
            facts |= {
                "topic": receipt.queue.topic,
                "broker_name": receipt.queue.broker_name,
                "queue_id": receipt.queue.queue_id,
                "queue_offset": receipt.queue_offset,
                "msg_id": receipt.msg_id,
                "body_bytes": len(row["body"]),
            }
        noted.append(facts)
    return batch_of(noted, RECEIPTS)


def _outcomes(producer: Producer, rows: list[dict[str, Any]], topic: str | None) -> "Sequence[Receipt | RocketPyError]":
    """Receipt of each message, or the reason why it can never be sent.

    Raises:
        PartlySentError: Other messages were not acknowledged.
    """
    readable = [row for row in rows if row["body"] is not None]
    if len(readable) < len(rows):
        sent = iter(_outcomes(producer, readable, topic) if readable else ())
        return [DamagedDataError(UNREADABLE) if row["body"] is None else next(sent) for row in rows]
    messages = [message_of(row, topic or row["topic"]) for row in rows]
    try:
        return producer.send_many(messages)
    except MessageTooLargeError:  # nothing was sent
        return [_outcome(producer, message) for message in messages]
    except PartlySentError as error:
        receipts = error.receipts
        if receipts is None:
            raise
        failed = dict(receipts.failures())
        if not all(is_rejected(failure) for failure in failed.values()):
            raise
        # A request of several messages is rejected as one: each of them is tried alone.
        return [
            _outcome(producer, message) if index in failed else receipts[index]
            for index, message in enumerate(messages)
        ]


def _outcome(producer: Producer, message: Message) -> "Receipt | RocketPyError":
    try:
        return producer.send(message)
    except RocketPyError as error:
        if not is_rejected(error):
            raise
        return error


def message_of(row: dict[str, Any], topic: str) -> Message:
    """Creates the message to send again: body, tag, keys, order key, flag and its own properties as stored.

    The message has no delay, because the time of an original delay is over. The origin properties name its original.

    Args:
        row: Row with `COLUMNS`; properties as pairs or as a mapping.
        topic: Target topic.
    """
    return copy_of(
        topic,
        row["body"],
        row["flag"],
        dict(row["properties"] or {}),  # of two pairs with one name the last counts
        defaults={ORIGIN_TOPIC: row["topic"], ORIGIN_ID: row["msg_id"]},
    )


def replay(
    to_name_server: ToServer,
    topics: job.Topics = [],  # noqa: B006  # typer reads it
    path: job.StorePath = None,
    name_server: job.NameServer = None,
    since: job.Since = None,
    until: job.Until = None,
    tags: Tags = None,
    where: Where = None,
    to_topic: ToTopic = None,
    rate: job.Rate = None,
    any_order: AnyOrder = False,
    out: OutFolder = None,
    dry_run: job.DryRun = False,
    as_json: job.Json = False,
) -> None:
    """Send stored messages again, to another topic or another cluster: at least once, each acknowledged.

    A task that fails is tried again where Spark does so, and a replay may be repeated: consumers may then get a
    message twice. Its property rocketpyOriginMsgId is the same both times.
    """
    source = job.source_of(path, name_server, topics, since, until, tags=tags)
    if name_server == to_name_server and to_topic in (None, *topics):
        raise CommandError("the target topic is the source topic", ExitCode.USAGE, "give --to-topic")
    folder = job.new_folder(out)
    check_topics(to_name_server, [to_topic] if to_topic else topics)
    if dry_run:
        limit = "" if rate is None else f", at most {rate:g} a second"
        narrowed = "" if where is None else f", of these those where {where}"
        would = f"send to {to_topic or 'their own topics'} at {to_name_server}{limit}{narrowed}"
        job.show_plan(would, source, as_json=as_json)
        return
    target = Target(to_name_server, to_topic, rate)
    with job.session("replay") as spark:
        facts = run(spark, source, target, where=where, in_order=not any_order, out=folder)
    rejections = facts["rejections"] if as_json else facts.pop("rejections")
    output.show_one(facts, as_json=as_json)
    output.check_rejected("message", rejections, facts["rejected"])


def check_topics(name_server: str, topics: Sequence[str]) -> None:
    """Checks that topics exist: a send would create a misspelt topic.

    Raises:
        TopicNotFoundError: A topic does not exist.
        InvalidArgumentError: A topic is not writable.
    """
    from rocketpy import Admin
    from rocketpy.config import PATIENT

    with Admin(name_servers=name_server, **PATIENT) as admin:
        for topic in topics:
            if not any(broker.writable for broker in admin.describe_topic(topic).brokers):
                raise InvalidArgumentError(
                    f"topic {topic} is not writable at any broker",
                    hint=f"`rocketpy topic describe {shlex.quote(topic)}` shows its queues",
                )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job from a command line.

    Args:
        arguments: Command line; default: that of the process.

    Returns:
        The exit code.
    """
    return job.run_command("replay", replay, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

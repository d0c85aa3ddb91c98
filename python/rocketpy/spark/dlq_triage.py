"""The job `dlq_triage`: reasons, times and samples of dead letters; sends dead letters again.

`spark-submit spark/dlq_triage.py --name-server 127.0.0.1:9876` runs it by itself.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketpy import Admin, DeadLetter, DeadLetterFilter, RangeReader
from rocketpy.admin.dead_letters import PREFIX, topic_of
from rocketpy.base.instant import instant_ms
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.commandline.selection import Property, Since, Until, dead_letters, filter_of
from rocketpy.config import PATIENT
from rocketpy.spark import job
from rocketpy.spark.batches import batch_of, ddl_of, parts_of, reader_of, scan
from rocketpy.spark.columns import keys_of
from rocketpy.spark.picture import Bar, draw_bars, drawn
from rocketpy.spark.session import context_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from rocketpy.spark.batches import Share

COLUMNS = ("topic", "tag", "keys", "body", "properties", "msg_id", "stored_at", "reconsume_times")
BODY_SHOWN = 200
"""Bytes of a body in a sample."""
COUNTS: tuple[str, ...] = ("sent", "sent_before", "without_origin", "rejected")
"""Outcomes of a dead letter that is selected for sending again."""
RESENT = {
    "group": "string",
    "queue_offset": "bigint",
    "msg_id": "string",
    "origin_topic": "string",
    "sent": "boolean",
    "to_topic": "string",
    "to_broker_name": "string",
    "to_queue_id": "int",
    "to_queue_offset": "bigint",
    "resent_id": "string",
    "rejected": "string",
}
"""Columns of the report on each dead letter selected for sending again."""

NameServer = Annotated[
    str,
    typer.Option(
        "--name-server",
        "-n",
        envvar="NAMESRV_ADDR",
        metavar="HOST:PORT[,HOST:PORT]",
        help="Name servers of the cluster.",
    ),
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", "-g", help="Only this group; may be repeated. Default: all.")
]
Origin = Annotated[str | None, typer.Option("--topic", "-t", help="Only dead letters with this topic of origin.")]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Only dead letters with this key.")]
Sample = Annotated[
    int, typer.Option("--sample", min=0, max=100, help="Number of messages to show of each kind, the newest.")
]
Resend = Annotated[bool, typer.Option("--resend", help="Send the selected dead letters again.")]
To = Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="Target instead of the topic of origin.")]
Again = Annotated[bool, typer.Option("--again", help="Also send dead letters that were resent before.")]


def letters_of(spark: "SparkSession", source: dict[str, object], which: DeadLetterFilter) -> "DataFrame":
    """Selects dead letters.

    Args:
        spark: The session.
        source: Options of the data source.
        which: Filter of dead letters.

    Returns:
        Columns group, origin_topic, reason, error_type, error, tag, keys, tries, died_at, age_hours, msg_id, properties
        and body, which is null if it does not decompress.
    """
    from pyspark.sql import functions as sql

    properties = sql.col("properties")
    letters = scan(spark, columns=COLUMNS, null_unreadable_bodies=True, **source).select(
        sql.substring("topic", len(PREFIX) + 1, 1 << 16).alias("group"),
        sql.coalesce(properties["DLQ_ORIGIN_TOPIC"], properties["RETRY_TOPIC"]).alias("origin_topic"),
        properties["DLQ_REASON"].alias("reason"),
        sql.regexp_extract(properties["DLQ_ERROR"], ERROR_TYPE, 1).alias("error_type"),
        properties["DLQ_ERROR"].alias("error"),
        "tag",
        "keys",
        sql.col("reconsume_times").alias("tries"),
        sql.col("stored_at").alias("died_at"),
        ((sql.unix_timestamp(sql.current_timestamp()) - sql.unix_timestamp("stored_at")) / 3600).alias("age_hours"),
        "msg_id",
        "properties",
        "body",
    )
    if which.topic is not None:
        letters = letters.where(sql.col("origin_topic") == which.topic)
    if which.key is not None:
        letters = letters.where(sql.array_contains(keys_of("keys"), which.key))
    for name, value in which.properties.items():
        letters = letters.where(properties[name] == value)
    return letters


KIND = ("group", "origin_topic", "reason", "error_type", "tag")
ERROR_TYPE = "^([^:]*)"
"""The type of an error, which its text follows."""
AGES = {"last_hour": 1, "last_6_hours": 6, "last_day": 24, "last_3_days": 72}
"""Hours of each column of ages; brokers keep dead letters three days by default."""


def triage(
    spark: "SparkSession", letters: "DataFrame", *, sample: int, out: Any = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Counts dead letters by group, topic of origin, reason, type of error and tag, and by age.

    Args:
        spark: The session.
        letters: Result of `letters_of`.
        sample: Number of dead letters to show of each kind, the newest.
        out: Folder for the dead letters as Parquet.

    Returns:
        Rows of the kinds, the largest first; rows of the sample.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    known = letters.cache()
    ages = [sql.count_if(sql.col("age_hours") < hours).alias(name) for name, hours in AGES.items()]
    kinds = (
        known.groupBy(*KIND)
        .agg(
            sql.count("*").alias("messages"),
            sql.min("died_at").alias("oldest_at"),
            sql.max("died_at").alias("newest_at"),
            sql.max("tries").alias("most_tries"),
            sql.max_by("error", "died_at").alias("newest_error"),
            sql.count_if(sql.isnull("body")).alias("unreadable_bodies"),
            *ages,
        )
        .orderBy(sql.desc("messages"), *KIND)
    )
    newest = sql.row_number().over(Window.partitionBy(*KIND).orderBy(sql.desc("died_at"), "msg_id"))
    shown = known.withColumn("rank", newest).where(f"rank <= {sample}").orderBy(*KIND, "rank").drop("rank", "age_hours")
    with job.progress(spark, "dead letters"):
        rows = job.rows_of(kinds)
        samples = job.rows_of(shown) if sample else []
        job.save(known.drop("age_hours"), out, "dead_letters")
    known.unpersist()
    for row in samples:
        row["body"] = None if row["body"] is None else bytes(row["body"])[:BODY_SHOWN]
    return rows, samples


def draw_kinds(kinds: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws dead letters by kind and by age, as PNG.

    Args:
        kinds: Result of `triage`.
        path: File to write.
    """
    by_kind = [
        Bar(", ".join(str(row[part]) for part in KIND if row[part] is not None), row["messages"]) for row in kinds
    ]
    younger = [0, *(sum(row[name] for row in kinds) for name in AGES), sum(row["messages"] for row in kinds)]
    names = [*(f"up to {hours} h" for hours in AGES.values()), "older"]
    by_age = [Bar(name, end - start) for name, (start, end) in zip(names, pairwise(younger), strict=True)]
    kind = ", ".join(KIND).replace("_", " ")
    draw_bars(f"{younger[-1]:,} dead letters", {f"by {kind}": by_kind, "by age": by_age}, path)


def no_counts() -> dict[str, Any]:
    """Result of `resend` without dead letters."""
    return {**dict.fromkeys(COUNTS, 0), "rejections": []}


def resend(
    spark: "SparkSession",
    source: dict[str, object],
    which: DeadLetterFilter,
    *,
    to: str | None = None,
    rate: float | None = None,
    again: bool = False,
    out: Any = None,
) -> dict[str, Any]:
    """Sends dead letters again in the workers, by `Admin.resend_dead_letters`: none is sent twice by a repeated run.

    Args:
        spark: The session.
        source: Options of the data source, with a name server.
        which: Filter of dead letters; its times are in `source`.
        to: Target instead of the topic of origin.
        rate: Maximum number of messages per second of all tasks together.
        again: Whether to send dead letters that were resent before.
        out: Folder for a row of each dead letter as Parquet.

    Returns:
        Numbers of dead letters sent, sent before, without a topic of origin, and rejected. `rejections` lists the first
        rejected ones by name.

    Raises:
        PythonException: A task could not send. Another run sends the rest.
    """
    from pyspark.sql import functions as sql

    reader = reader_of(source, min_partitions=context_of(spark).defaultParallelism)
    parts = [part.value for part in reader.partitions()]
    counts = no_counts()
    if not parts:
        return counts
    at_once = min(len(parts), context_of(spark).defaultParallelism)
    of_task = None if rate is None else rate / at_once
    name_server = str(source["name_server"])

    def resend_parts(numbers):  # type: ignore[no-untyped-def]  # a nested function travels to the workers by value
        from rocketpy.spark.dlq_triage import resend_share

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from resend_share(name_server, parts[number], which, to=to, rate=of_task, again=again)

    noted = spark.range(0, len(parts), 1, len(parts)).mapInArrow(resend_parts, ddl_of(RESENT))
    with job.progress(spark, "resend"):
        if out is not None:
            job.save(noted, out, "resent")
            noted = spark.read.parquet(str(out / "resent.parquet"))
        is_lost, is_rejected = sql.isnull("to_topic").alias("is_lost"), sql.isnotnull("rejected").alias("is_rejected")
        name = sql.when(is_rejected, sql.concat_ws(": ", "group", "msg_id", "rejected"))
        for row in (
            noted.groupBy("sent", is_lost, is_rejected)
            .agg(
                sql.count("*").alias("letters"),
                sql.slice(sql.sort_array(sql.collect_list(name)), 1, output.REJECTIONS_SHOWN).alias("rejections"),
            )
            .collect()
        ):
            outcome = "without_origin" if row["is_lost"] else "sent_before"
            outcome = "sent" if row["sent"] else "rejected" if row["is_rejected"] else outcome
            counts[outcome] += row["letters"]
            counts["rejections"] += row["rejections"]
    return counts


def resend_share(
    name_server: str, share: "Share", which: DeadLetterFilter, *, to: str | None, rate: float | None, again: bool
) -> "Iterator[pa.RecordBatch]":
    """Sends the dead letters of some parts of queues again, in a worker.

    Args:
        name_server: Name server of the cluster.
        share: Parts of queues to read.
        which: Filter of dead letters.
        to: Target instead of the topic of origin.
        rate: Maximum number of messages per second.
        again: Whether to send dead letters that were resent before.

    Yields:
        Batches of `RESENT`.
    """
    with Admin(name_servers=name_server, **PATIENT) as admin:
        rows = []
        for resent in admin.resend_dead_letters(_letters(name_server, share, which), to=to, rate=rate, again=again):
            message, receipt = resent.letter.message, resent.receipt
            rows.append(
                {
                    "group": resent.letter.group,
                    "queue_offset": message.queue_offset,
                    "msg_id": message.msg_id,
                    "origin_topic": resent.letter.topic,
                    "sent": receipt is not None,
                    "to_topic": resent.topic,
                    "to_broker_name": receipt and receipt.queue.broker_name,
                    "to_queue_id": receipt and receipt.queue.queue_id,
                    "to_queue_offset": receipt and receipt.queue_offset,
                    "resent_id": receipt and receipt.msg_id,
                    "rejected": None if resent.rejected is None else str(resent.rejected),
                }
            )
        yield batch_of(rows, RESENT)


def _letters(name_server: str, share: "Share", which: DeadLetterFilter) -> Iterator[DeadLetter]:
    is_meant = which.matcher()
    for part in parts_of(share):
        queue = part.queue  # type: ignore[union-attr]  # of a cluster
        with RangeReader(queue, part.start, part.end, name_servers=name_server, **PATIENT) as reader:
            for messages in reader.messages():
                for message in messages:
                    letter = DeadLetter(queue.topic.removeprefix(PREFIX), message)
                    if is_meant(letter):
                        yield letter


def dlq_triage(
    name_server: NameServer,
    groups: Groups = None,
    topic: Origin = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    properties: Property = None,
    sample: Sample = 1,
    resend_them: Resend = False,
    to: To = None,
    rate: job.Rate = None,
    again: Again = False,
    out: job.Out = None,
    dry_run: job.DryRun = False,
    as_json: job.Json = False,
) -> None:
    """Count dead letters by group, topic of origin, reason, error, tag and age; show some; with --resend, send them.

    Dead letters are kept. Those that were sent again before are not sent twice.
    """
    for name, given in (("--to", to), ("--rate", rate), ("--again", again or None)):
        if given is not None and not resend_them:
            raise CommandError(f"{name} is valid only with --resend", ExitCode.USAGE)
    which = filter_of(topic, since, until, key, None, properties)
    folder = job.new_folder(out)
    with Admin(name_servers=name_server, **PATIENT) as admin:
        known = [one.group for one in admin.dead_letter_groups()]
        if to is not None:
            admin.describe_topic(to)
        for group in set(groups or ()).difference(known):
            dead_letters(admin, group, which)  # refuses a group that is not there
    chosen = [group for group in groups or known if group in known]
    if not chosen:
        which_groups = f"dead letters of {', '.join(groups)}" if groups else "group has dead letters"
        empty = f"no {which_groups} at {name_server}"
        if dry_run:
            output.show([], as_json=as_json, empty=empty)
        else:
            show_report([], [], no_counts() if resend_them else None, as_json=as_json, empty=empty)
        return
    times = [None if time is None else str(instant_ms(time) / 1000) for time in (which.since, which.until)]
    source = job.source_of(None, name_server, [topic_of(group) for group in chosen], *times)
    if dry_run:
        would = (
            "count and show them" if not resend_them else f"send those that are chosen to {to or 'their own topics'}"
        )
        job.show_plan(would, source, as_json=as_json)
        return
    with job.session("dlq triage") as spark:
        kinds, samples = triage(spark, letters_of(spark, source, which), sample=sample, out=folder)
        if folder is not None and kinds:
            drawn(lambda: draw_kinds(kinds, folder / "dead_letters.png"))
        counts = resend(spark, source, which, to=to, rate=rate, again=again, out=folder) if resend_them else None
    show_report(kinds, samples, counts, as_json=as_json, empty=f"no such dead letters at {name_server}")
    job.warn_unreadable(sum(row["unreadable_bodies"] for row in kinds), "null; `rocketpy dlq show` shows each error")
    if counts is not None:
        output.check_rejected("dead letter", counts["rejections"], counts["rejected"])


def show_report(
    kinds: list[dict[str, Any]],
    samples: list[dict[str, Any]],
    counts: dict[str, Any] | None,
    *,
    as_json: bool,
    empty: str,
) -> None:
    """Prints the results.

    Args:
        kinds: Result of `triage`.
        samples: Result of `triage`.
        counts: Result of `resend`; None if nothing was to be sent.
        as_json: Whether to print JSON instead of tables.
        empty: Text instead of an empty table.
    """
    if as_json:
        output.show_one({"kinds": kinds, "sample": samples, "resent": counts}, as_json=True)
        return
    output.show(kinds, as_json=False, empty=empty)
    for one in samples:
        print()
        output.show_one(one, as_json=False)
    if counts is not None:
        print()
        output.show_one({name: counts[name] for name in COUNTS}, as_json=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job from a command line.

    Args:
        arguments: Command line; default: that of the process.

    Returns:
        The exit code.
    """
    return job.run_command("dlq_triage", dlq_triage, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

"""The job `trace_latency`: times for storing, delivering and processing messages.

`spark-submit spark/trace_latency.py --name-server 127.0.0.1:9876 --topic flights --out latency` runs it by itself.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from rocketpy import TopicNotFoundError, _rocketpy
from rocketpy.admin.trace import TRACE_TOPIC, explained
from rocketpy.base.instant import CALENDAR_MS
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.spark import job
from rocketpy.spark.batches import batch_of, ddl_of, map_batches
from rocketpy.spark.picture import draw_latencies, drawn

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

QUANTILES = (*(number / 100 for number in range(100)), 0.999, 1.0)
"""Quantiles in a picture; a table has a few of them."""
SHOWN = {"median_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
RECORDS = {
    "step": "string",
    "msg_id": "string",
    "at_ms": "bigint",
    "group": "string",
    "topic": "string",
    "cost_ms": "bigint",
    "success": "boolean",
    "request_id": "string",
    "retries": "int",
}
"""Columns read from each trace record: see `rocketpy.admin.trace`."""
UNREADABLE = "unreadable"
"""Step of a row that counts trace messages whose body does not decompress."""
TIMES = "measure, topic, `group`, ms, is_failed, is_repeated"

TopicsOrNone = Annotated[
    list[str],
    typer.Option("--topic", "-t", help="Also read messages of this topic, and only its traces; may be repeated."),
]
TraceTopic = Annotated[str, typer.Option("--trace-topic", help="Topic of the traces.")]


def stored_times(spark: "SparkSession", source: dict[str, object]) -> "DataFrame":
    """Computes the time of each message from its producer to the log, by the clocks of producer and broker.

    Args:
        spark: The session.
        source: Options of the data source.

    Returns:
        Columns of `TIMES`; the measure is `stored`.
    """

    def times(batch):  # type: ignore[no-untyped-def]
        import pyarrow as pa
        import pyarrow.compute as pc

        stored, born = (batch.column(name).cast(pa.int64()) for name in ("stored_at", "born_at"))
        ms = pc.divide(pc.subtract(stored, born), pa.scalar(1000, pa.int64()))
        return pa.record_batch({"topic": batch.column("topic"), "ms": ms})

    frame = map_batches(spark, times, "topic string, ms bigint", columns=["topic", "born_at", "stored_at"], **source)
    return frame.selectExpr(
        "'stored' as measure", "topic", "string(null) as `group`", "ms", "false as is_failed", "false as is_repeated"
    )


def trace_records(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Reads trace messages, in a worker.

    Args:
        batch: Batch with a column `body`, null where it does not decompress.

    Returns:
        The columns of `RECORDS`. A row with the step `UNREADABLE` counts the null bodies in `cost_ms`.
    """
    bodies = batch.column("body")
    records = [record for body in bodies.drop_null().to_pylist() for record in _rocketpy.trace_records(body)]
    # Any client writes traces: a number that is not a time is unknown, and no difference overflows.
    times = [record["at_ms"] if record["at_ms"] in CALENDAR_MS else None for record in records]
    rows = [{**record, "at_ms": at_ms} for record, at_ms in zip(records, times, strict=True)]
    if bodies.null_count:  # the id keeps equal counts of two batches apart
        rows.append(dict.fromkeys(RECORDS) | {"step": UNREADABLE, "msg_id": uuid4().hex, "cost_ms": bodies.null_count})
    return batch_of(rows, RECORDS)


def traced_times(
    spark: "SparkSession",
    source: dict[str, object],
    topics: Sequence[str],
    keep: job.Keep,
) -> "DataFrame":
    """Computes the times of sends, deliveries and processing from traces. Duplicate records count once.

    Args:
        spark: The session.
        source: Options of the data source, for the topic of the traces.
        topics: Topics of the messages; empty for all.
        keep: Caches a table.

    Returns:
        Columns of `TIMES`; the measures are `sent` (request to acknowledgement), `delivered` (begin of the send to the
        consumer) and `worked` (the consumer's work, on average of the messages that it got together).
    """
    from pyspark.sql import functions as sql

    records = keep(
        map_batches(
            spark, trace_records, ddl_of(RECORDS), columns=["body"], null_unreadable_bodies=True, **source
        ).distinct()
    )
    unreadable = records.where(sql.col("step") == UNREADABLE).agg(sql.sum("cost_ms")).collect()[0][0]
    job.warn_unreadable(unreadable or 0, "these traces are left out")
    sends = records.where("step = 'sent'").select(
        "msg_id", "topic", "group", sql.col("at_ms").alias("sent_at_ms"), "cost_ms", "success"
    )
    if topics:
        sends = sends.where(sql.col("topic").isin(list(topics)))
    # A message that was sent again under its id is measured from its first send.
    origins = sends.groupBy("msg_id").agg(sql.min("sent_at_ms").alias("sent_at_ms"), sql.first("topic").alias("topic"))
    began = records.where("step = 'began'").select("msg_id", "request_id", "group", "at_ms", "retries")
    ended = records.where("step = 'ended'").select(
        "msg_id", "request_id", sql.col("group").alias("ending_group"), "cost_ms", "success"
    )
    deliveries = began.join(origins, "msg_id")
    work = ended.join(began, ["msg_id", "request_id"], "left").join(origins, "msg_id")
    is_failed = ~sql.coalesce("success", sql.lit(True))
    is_repeated = sql.coalesce("retries", sql.lit(0)) > 0
    never = sql.lit(False)
    took = sql.col("at_ms") - sql.col("sent_at_ms")
    return (
        _times("sent", sends, "group", "cost_ms", is_failed, never)
        .unionByName(_times("delivered", deliveries, "group", took, never, is_repeated))
        .unionByName(_times("worked", work, sql.coalesce("group", "ending_group"), "cost_ms", is_failed, is_repeated))
    )


def _times(
    measure: str,
    frame: "DataFrame",
    group: "Column | str",
    ms: "Column | str",
    is_failed: "Column",
    is_repeated: "Column",
) -> "DataFrame":
    """The columns of `TIMES`."""
    from pyspark.sql import functions as sql

    def column(of: "Column | str") -> "Column":
        return sql.col(of) if isinstance(of, str) else of

    return frame.select(
        sql.lit(measure).alias("measure"),
        "topic",
        column(group).alias("group"),
        column(ms).alias("ms"),
        is_failed.alias("is_failed"),
        is_repeated.alias("is_repeated"),
    )


def latencies(times: "DataFrame") -> "DataFrame":
    """Computes the distribution of each measure by topic and group.

    Args:
        times: Table with the columns of `TIMES`.

    Returns:
        Columns measure, topic, group, count, mean_ms, failed, repeated and quantiles_ms (by `QUANTILES`), sorted.
    """
    from pyspark.sql import functions as sql

    return (
        times.groupBy("measure", "topic", "group")
        .agg(
            sql.count("ms").alias("count"),
            sql.avg("ms").alias("mean_ms"),
            sql.count_if("is_failed").alias("failed"),
            sql.count_if("is_repeated").alias("repeated"),
            sql.percentile("ms", list(QUANTILES)).alias("quantiles_ms"),
        )
        .orderBy("measure", "topic", "group")
    )


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the row of a report.

    Args:
        row: Row of `latencies`.
    """
    quantiles = dict(zip(QUANTILES, row["quantiles_ms"] or [None] * len(QUANTILES), strict=True))
    facts = {name: row[name] for name in ("measure", "topic", "group", "count", "failed", "repeated", "mean_ms")}
    return facts | {name: quantiles[share] for name, share in SHOWN.items()}


def run(
    spark: "SparkSession", stored: dict[str, object] | None, traced: dict[str, object] | None, topics: Sequence[str],
    out: "Path | None" = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measures the latencies that messages and traces show.

    Args:
        spark: The session.
        stored: Options of the data source for messages; None without a topic.
        traced: The same for traces; None without traces.
        topics: Topics of the traces; empty for all.
        out: Folder for the distributions as Parquet, and a picture of them as PNG.

    Returns:
        Rows of `latencies`.
    """
    with job.caches() as keep:
        parts = [] if stored is None else [stored_times(spark, stored)]
        if traced is not None:
            parts.append(traced_times(spark, traced, topics, keep))
        times = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        with job.progress(spark, "latencies"):
            found = keep(latencies(times))
            rows = job.rows_of(found)
            job.save(found.coalesce(1), out, "latencies")
    if out is not None and rows:
        drawn(lambda: draw_latencies(rows, QUANTILES, out / "latencies.png"))
    return rows


def trace_latency(
    topics: TopicsOrNone = [],  # noqa: B006  # typer reads it
    path: job.StorePath = None,
    name_server: job.NameServer = None,
    since: job.Since = None,
    until: job.Until = None,
    trace_topic: TraceTopic = TRACE_TOPIC,
    out: job.OutWithPicture = None,
    dry_run: job.DryRun = False,
    as_json: job.Json = False,
) -> None:
    """Measure the times of messages: storing, and with traces, sending, delivery and processing.

    Traces are best effort, and only written by tracing clients.
    """
    traced: dict[str, object] | None = job.source_of(path, name_server, [trace_topic], since, until)
    stored = job.source_of(path, name_server, topics, since, until) if topics else None
    where = f"in {path}" if path is not None else f"at {name_server}"
    folder = job.new_folder(out)
    try:
        with explained(trace_topic):
            traces = job.plan_rows(traced or {})
    except TopicNotFoundError as error:
        if stored is None:
            raise CommandError(str(error), ExitCode.NOT_FOUND, error.hint) from error
        output.STDERR.print(f"{error}: only the way into the log is measured", markup=False)
        traced, traces = None, []
    if dry_run:
        rows = traces + (job.plan_rows(stored) if stored else [])
        output.show(rows, as_json=as_json, title="dry run: measure latencies", empty=f"nothing to read {where}")
        return
    with job.session("trace latency") as spark:
        rows = run(spark, stored, traced, topics, folder)
    output.show([shown(row) for row in rows], as_json=as_json, empty=f"no messages and no traces {where}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job from a command line.

    Args:
        arguments: Command line; default: that of the process.

    Returns:
        The exit code.
    """
    return job.run_command("trace_latency", trace_latency, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

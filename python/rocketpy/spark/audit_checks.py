"""The checks of the job `audit`, each a query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from rocketpy.admin.dead_letters import ORIGIN_ID
from rocketpy.errors import InvalidArgumentError
from rocketpy.spark.batches import batch_of, ddl_of, map_shares, parts_of, place_of, scan
from rocketpy.spark.columns import keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from rocketpy.spark.batches import Share
    from rocketpy.spark.job import Keep

Place: TypeAlias = tuple[str, str | None, int]
"""Topic, broker name (None in a store folder) and number of a queue."""

PLACE_COLUMNS = ("topic", "broker_name", "queue_id", "queue_offset")
KEYS = ("id", "msg_id", "keys", "order_key", "body", "place")
"""Identities of a message, in addition to `property:NAME`."""
ID_HELP = (
    f"id ({ORIGIN_ID} of a message that was sent again, else msg_id), msg_id, keys, order_key, body, place or "
    "property:NAME"
)
PLACE = ("topic", "queue_id", "queue_offset")
"""Columns of a journal that say where a message is."""
NULLS = ("", "nan", "NaN", "None", "null", "NULL", "<NA>", "NA")
"""Texts by which programs write a missing value. A topic or an id with one of these names counts as not known."""
QUEUE_FACTS = {
    "kind": "string",
    "topic": "string",
    "broker_name": "string",
    "queue_id": "int",
    "first_offset": "bigint",
    "end_offset": "bigint",
}


@dataclass(frozen=True, slots=True)
class Check:
    """Result of a check.

    Attributes:
        name: Name of the check.
        looked_at: Number of compared messages or lines.
        found: Number of findings.
        is_fault: Whether a finding is a fault; else findings are normal in a system that delivers at least once.
        rows: All findings; None without a table.
        example: A finding.
    """

    name: str
    looked_at: int
    found: int
    is_fault: bool
    rows: DataFrame | None = field(default=None, repr=False)
    example: str | None = None

    @property
    def verdict(self) -> str:
        """`ok`, `noted` or `fault`."""
        if not self.found:
            return "ok"
        return "fault" if self.is_fault else "noted"


def check_queues(spark: SparkSession, options: Mapping[str, object], keep: Keep) -> list[Check]:
    """Looks for offsets without a message, and for messages with an earlier store time than their predecessor.

    Args:
        spark: The session.
        options: Options of the data source, with `fail_on_data_loss` false.
        keep: Caches a table.

    Returns:
        Gaps (missing or damaged messages), and backward steps of the broker's clock: times then find wrong offsets.
    """
    from pyspark.sql import functions as sql

    columns = [*PLACE_COLUMNS, "stored_at_ms"]
    facts = keep(map_shares(spark, queue_facts, ddl_of(QUEUE_FACTS), columns, options))
    size = sql.col("end_offset") - sql.col("first_offset")
    sums = {row.kind: row.messages for row in facts.groupBy("kind").agg(sql.sum(size).alias("messages")).collect()}
    checks = []
    for kind, name, is_fault in (("gap", "gaps", True), ("back", "clock steps back", False)):
        rows = (
            facts.where(sql.col("kind") == kind)
            .drop("kind")
            .orderBy("topic", "broker_name", "queue_id", "first_offset")
        )
        looked_at = sums.get("read", 0) + (sums.get("gap", 0) if kind == "gap" else 0)
        found = sums.get(kind, 0)
        checks.append(Check(name, looked_at, found, is_fault, rows, _example(rows, found)))
    return checks


def queue_facts(share: Share, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compares the messages that a worker read with its plan.

    Args:
        share: Plan for the worker.
        batches: Batches with the columns of places and `stored_at_ms`.

    Yields:
        One batch: ranges read, ranges missing, and backward steps of the clock.
    """
    import numpy as np

    runs: dict[Place, list[tuple[int, int]]] = {}
    last: dict[Place, tuple[int, int]] = {}
    rows: list[tuple[object, ...]] = []
    for batch in batches:
        for place, offsets, times in _by_queue(batch):
            if place in last and last[place][0] + 1 == offsets[0]:  # the run goes on from the batch before
                offsets, times = np.append(last[place][0], offsets), np.append(last[place][1], times)
            steps = np.diff(offsets)
            for run in np.split(offsets, np.flatnonzero(steps != 1) + 1):
                _add_run(runs.setdefault(place, []), int(run[0]), int(run[-1]) + 1)
            # Compared, not subtracted: any number may be stored as a time, and a difference could overflow.
            backward = offsets[1:][(steps == 1) & (times[1:] < times[:-1])]
            rows += [("back", *place, offset, offset + 1) for offset in backward.tolist()]
            last[place] = (int(offsets[-1]), int(times[-1]))
    for place, of_queue in runs.items():
        rows += [("read", *place, start, end) for start, end in of_queue]
    for part in parts_of(share):
        place = place_of(part)
        found = [run for of_place, of_queue in runs.items() if _is_place(of_place, place) for run in of_queue]
        rows += [("gap", *place, start, end) for start, end in missing(part.start, part.end, found)]
    yield batch_of([dict(zip(QUEUE_FACTS, row, strict=True)) for row in rows], QUEUE_FACTS)


def _is_place(found: Place, planned: Place) -> bool:
    """Whether a message is of a planned queue; a store's plan knows no broker, its messages may show a given name."""
    return found[0] == planned[0] and found[2] == planned[2] and planned[1] in (None, found[1])


def _by_queue(batch: pa.RecordBatch) -> Iterator[tuple[Place, Any, Any]]:
    """Offsets and times (milliseconds) of each queue in a batch as arrays, in the order in which they come."""
    import numpy as np
    import pyarrow as pa

    columns: dict[str, Any] = {name: batch.column(name) for name in (*PLACE_COLUMNS, "stored_at_ms")}
    table = pa.table(columns).group_by(["topic", "broker_name", "queue_id"], use_threads=False)
    grouped = table.aggregate([("queue_offset", "list"), ("stored_at_ms", "list")])
    for row in range(grouped.num_rows):
        topic, broker_name, queue_id = (grouped[name][row].as_py() for name in ("topic", "broker_name", "queue_id"))
        offsets, times = (np.asarray(grouped[f"{name}_list"][row].values) for name in ("queue_offset", "stored_at_ms"))
        yield (topic, broker_name, queue_id), offsets, times


def _add_run(runs: list[tuple[int, int]], start: int, end: int) -> None:
    """Adds a run of offsets without a gap, joined with the last run if they touch."""
    if runs and runs[-1][0] <= start <= runs[-1][1]:
        start, end = runs[-1][0], max(end, runs.pop()[1])
    runs.append((start, end))


def missing(start: int, end: int, runs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yields the ranges of a planned part that are in no run.

    Args:
        start: First offset of the part.
        end: Offset after the last of the part.
        runs: Ranges that were read: first offsets and offsets after the last, in any order.

    Yields:
        First offset, and offset after the last, of each missing range.

    Examples:
        >>> list(missing(0, 10, [(7, 9), (2, 4)]))
        [(0, 2), (4, 7), (9, 10)]
    """
    at = start
    for first, behind in sorted(runs):
        if behind <= at or first >= end:
            continue
        if first > at:
            yield at, first
        at = behind
    if at < end:
        yield at, end


def check_duplicates(spark: SparkSession, options: Mapping[str, object], key: str, keep: Keep) -> Check:
    """Looks for messages of one key that are stored more than once.

    Args:
        spark: The session.
        options: Options of the data source.
        key: Identity of a message: an entry of `KEYS`, or `property:NAME`.
        keep: Caches a table.
    """
    from pyspark.sql import functions as sql

    each = keep(_identified(spark, options, key))
    rows = (
        each.groupBy("topic", "id")
        .agg(
            sql.count("*").alias("copies"), sql.min("place").alias("first_place"), sql.max("place").alias("last_place")
        )
        .where("copies > 1")
        .orderBy(sql.desc("copies"), "id")
    )
    found = rows.agg(sql.sum(sql.col("copies") - 1)).collect()[0][0] or 0
    return Check(f"duplicates by {key}", each.count(), found, False, rows, _example(rows, found))


def check_order(spark: SparkSession, options: Mapping[str, object], keep: Keep) -> list[Check]:
    """Checks messages with an order key: each key in one queue, in the order in which one host created them.

    Args:
        spark: The session.
        options: Options of the data source.
        keep: Caches a table.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    key = sql.col("properties")["__SHARDINGKEY"]
    each = keep(
        scan(spark, columns=[*PLACE_COLUMNS, "properties", "born_at", "born_host"], **options)
        .withColumn("order_key", key)
        .where("order_key is not null")
        .withColumn("host", sql.substring_index("born_host", ":", 1))
        .select(*PLACE_COLUMNS, "order_key", "host", "born_at")
    )
    queue = ("topic", "broker_name", "queue_id")
    spread = (
        each.groupBy("topic", "order_key")
        .agg(sql.sort_array(sql.collect_set(sql.concat_ws("#", "broker_name", "queue_id"))).alias("queues"))
        .where("size(queues) > 1")
        .orderBy("topic", "order_key")
    )
    earlier = (
        Window.partitionBy(*queue, "order_key", "host")
        .orderBy("queue_offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    behind = (
        each.withColumn("after", sql.max("born_at").over(earlier))
        .where("born_at < after")
        .orderBy(*queue, "queue_offset")
    )
    count = each.count()
    in_two, out_of_order = spread.count(), behind.count()
    return [
        Check("order keys in several queues", count, in_two, False, spread, _example(spread, in_two)),
        Check("order within an order key", count, out_of_order, True, behind, _example(behind, out_of_order)),
    ]


def check_against(
    spark: SparkSession, options: Mapping[str, object], other: Mapping[str, object], key: str, keep: Keep
) -> list[Check]:
    """Compares two stores, message by message.

    Args:
        spark: The session.
        options: Options of the first store.
        other: Options of the second store, which should have all messages of the first.
        key: Identity of a message, as for `check_duplicates`.
        keep: Caches a table.

    Returns:
        Messages missing in the second store, messages only there, and messages with another body there.
    """
    from pyspark.sql import functions as sql

    def side(of: Mapping[str, object], name: str) -> DataFrame:
        return (
            _identified(spark, of, key, with_hash=True)
            .groupBy("id")
            .agg(
                sql.sort_array(sql.collect_set("hash")).alias(f"{name}_hashes"),
                sql.count("*").alias(f"{name}_copies"),
                sql.min("place").alias(f"{name}_place"),
            )
        )

    both = keep(side(options, "first").join(side(other, "second"), "id", "full_outer"))
    compared = both.where("first_copies is not null").count()
    checks = []
    for name, condition, is_fault in (
        ("missing in the other store", "second_copies is null", True),
        ("another body in the other store", "first_hashes != second_hashes", True),
        ("only in the other store", "first_copies is null", False),
    ):
        rows = (
            both.where(condition)
            .select("id", "first_place", "second_place", "first_copies", "second_copies")
            .orderBy("id")
        )
        found = rows.count()
        checks.append(Check(name, compared, found, is_fault, rows, _example(rows, found)))
    return checks


def check_journal(spark: SparkSession, options: Mapping[str, object], journal: Path, keep: Keep) -> list[Check]:
    """Compares the recorded receipts of a producer with the store.

    Args:
        spark: The session.
        options: Options of the data source.
        journal: File or folder: CSV with a header, Parquet, or JSON lines by any other name. With a column `msg_id`,
            and if known `topic`, `queue_id` and `queue_offset`; null if not known.
        keep: Caches a table.

    Returns:
        Acknowledged messages that are missing, those that are elsewhere, messages that the journal does not list, and
        lines without an id, such as those of failed sends.

    Raises:
        InvalidArgumentError: The journal has no `msg_id`, or a queue or an offset that is not a whole number.
    """
    from pyspark.sql import functions as sql

    lines, names = read_journal(spark, journal, keep)
    listed = lines.where("msg_id is not null")
    without_id = lines.where("msg_id is null")
    stored = scan(spark, columns=[*PLACE_COLUMNS, "msg_id"], **options)
    facing = stored.select(*(sql.col(name).alias(f"stored_{name}") for name in ("msg_id", *PLACE)))
    is_there = _agree([name for name in PLACE[1:] if name in names], "", "stored_")
    met = keep(
        listed.join(facing, _same_message(names, "", "stored_"), "left")
        .withColumn("is_there", sql.coalesce(is_there, sql.lit(False)))
        .groupBy(*names)
        .agg(
            sql.count("stored_queue_id").alias("copies"),
            sql.max("is_there").alias("is_there"),
            sql.min("stored_queue_id").alias("stored_queue_id"),
            sql.min("stored_queue_offset").alias("stored_queue_offset"),
        )
    )
    acknowledged, messages = met.count(), stored.count()
    lost = met.where("copies = 0").select(*names).orderBy("msg_id")
    moved = met.where("copies > 0 and not is_there").drop("is_there").orderBy("msg_id")
    renamed = listed.select(*(sql.col(name).alias(f"listed_{name}") for name in names))
    unlisted = stored.join(renamed, _same_message(names, "listed_", ""), "left_anti").orderBy(*PLACE_COLUMNS)
    return [
        Check(name, looked_at, (found := rows.count()), is_fault, rows, _example(rows, found))
        for name, looked_at, is_fault, rows in (
            ("acknowledged and missing", acknowledged, True, lost),
            ("acknowledged and elsewhere", acknowledged, True, moved),
            ("stored and not in the journal", messages, False, unlisted),
            ("journal lines without an id", lines.count(), False, without_id),
        )
    ]


def read_journal(spark: SparkSession, journal: Path, keep: Keep) -> tuple[DataFrame, list[str]]:
    """Reads the recorded receipts of a producer, once: all counts are of the same lines while a producer adds more.

    Empty values, and the texts by which programs write them, are null. Whole numbers may have a fraction of zero, as
    pandas writes a column in which some are missing.

    Args:
        spark: The session.
        journal: File or folder, as for `check_journal`.
        keep: Caches a table.

    Returns:
        The lines, and their columns: `msg_id`, and of topic, queue_id and queue_offset those that the file has.

    Raises:
        InvalidArgumentError: The journal has no `msg_id`, or a queue or an offset that is not a whole number.
    """
    from pyspark.sql import functions as sql

    form = {".csv": "csv", ".parquet": "parquet"}.get(journal.suffix, "json")
    reader = spark.read.option("header", "true") if form == "csv" else spark.read
    read = reader.format(form).load(str(journal.absolute()))
    written = {name.strip("\ufeff "): name for name in read.columns}
    names = [name for name in ("msg_id", *PLACE) if name in written]
    if "msg_id" not in names:
        raise InvalidArgumentError(
            f"the journal has no column msg_id: {journal}", hint=f"its columns: {', '.join(read.columns)}"
        )
    texts = {name: sql.trim(sql.col(f"`{written[name]}`").cast("string")) for name in names}
    known = keep(read.select(*(sql.when(~text.isin(*NULLS), text).alias(name) for name, text in texts.items())))
    numbers = {
        name: sql.coalesce(sql.col(name).try_cast("bigint"), sql.col(name).try_cast("double").try_cast("bigint"))
        for name in names
        if name in PLACE[1:]
    }
    for name, number in numbers.items():
        text = sql.col(name)
        is_whole = sql.coalesce(number.cast("double") == text.try_cast("double"), sql.lit(False))
        wrong = known.where(text.isNotNull() & ~is_whole).first()
        if wrong is not None:
            raise InvalidArgumentError(
                f"{name} in the journal is not a whole number: {wrong[name]} (msg_id {wrong['msg_id']}): {journal}"
            )
    return known.select(*(numbers.get(name, sql.col(name)).alias(name) for name in names)), names


def _same_message(names: Sequence[str], listed: str, stored: str) -> Column:
    """Whether a journal line and a message have the same id and, where the line has one, the same topic.

    Args:
        names: Columns of the journal.
        listed: Prefix of the names of its columns.
        stored: Prefix of the names of the message's columns.
    """
    from pyspark.sql import functions as sql

    is_same = sql.col(f"{listed}msg_id") == sql.col(f"{stored}msg_id")
    return is_same & _agree([name for name in names if name == "topic"], listed, stored)


def _agree(names: Sequence[str], listed: str, stored: str) -> Column:
    """Whether a message has what a journal line says of it. Null says nothing."""
    from pyspark.sql import functions as sql

    agree = sql.lit(True)
    for name in names:
        there = sql.col(f"{listed}{name}")
        agree &= there.isNull() | (there == sql.col(f"{stored}{name}"))
    return agree


def _identified(spark: SparkSession, options: Mapping[str, object], key: str, *, with_hash: bool = False) -> DataFrame:
    """Columns topic, id, place and, with `with_hash`, hash (of the body); a message for each of its keys.

    A body that does not decompress is compared as stored, by its checksum.
    """
    from pyspark.sql import functions as sql

    needed = {"id": ["properties", "msg_id"], "msg_id": ["msg_id"], "keys": ["keys"], "body": ["body"], "place": []}
    columns = [*PLACE_COLUMNS, *needed.get(key, ["properties"])]
    if with_hash and "body" not in columns:
        columns.append("body")
    if with_hash:
        columns.append("body_crc")
    identity = identity_of(key)
    hash_of_body = sql.when(sql.isnull("body"), sql.xxhash64("body_crc")).otherwise(sql.xxhash64("body"))
    hashed = [hash_of_body.alias("hash")] if with_hash else []
    place = sql.concat_ws(
        ":",
        sql.concat_ws("#", sql.concat_ws("@", "topic", "broker_name"), sql.col("queue_id")),
        sql.col("queue_offset"),
    )
    return (
        scan(spark, columns=columns, **options)
        .select("topic", identity.alias("id"), place.alias("place"), *hashed)
        .where("id is not null and id != ''")
    )


def check_key(key: str) -> None:
    """Checks the identity to compare messages by.

    Args:
        key: Identity: an entry of `KEYS`, or `property:NAME`.

    Raises:
        InvalidArgumentError: The key is neither.
    """
    kind, _, name = key.partition(":")
    if key not in KEYS and not (kind == "property" and name):
        raise InvalidArgumentError(f"messages cannot be compared by {key}", hint=f"write {ID_HELP}")


def identity_of(key: str) -> Column:
    """Returns the column that identifies a message.

    Args:
        key: Identity: an entry of `KEYS`, or `property:NAME`.
    """
    from pyspark.sql import functions as sql

    match key:
        case "id":
            return sql.coalesce(sql.col("properties")[ORIGIN_ID], "msg_id")
        case "order_key":
            return sql.col("properties")["__SHARDINGKEY"]
        case "keys":
            return sql.explode(keys_of("keys"))
        case "body":
            return sql.sha2("body", 256)
        case "place":
            return sql.concat_ws(":", sql.col("queue_id"), sql.col("queue_offset"))
        case "msg_id":
            return sql.col("msg_id")
        case _:
            return sql.col("properties")[key.partition(":")[2]]


def _example(rows: DataFrame, found: int) -> str | None:
    """The first row as text."""
    if not found:
        return None
    facts = rows.take(1)[0].asDict()
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)

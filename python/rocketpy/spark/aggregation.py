"""Counts and sizes of messages by topic, queue, tag, key or hour, added up in the workers that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.dead_letters import ORIGIN_TOPIC
from rocketpy.spark.batches import arrow_type, ddl_of, map_shares
from rocketpy.spark.options import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from rocketpy.spark.batches import Share

MICROSECONDS = {"minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
GROUP_TYPES = {
    "topic": "string",
    "broker_name": "string",
    "queue_id": "int",
    "tag": "string",
    "key": "string",
    "order_key": "string",
    "origin_topic": "string",
    "born_host": "string",
    "store_host": "string",
    "reconsume_times": "int",
    "size": "bigint",
    **dict.fromkeys(MICROSECONDS, "timestamp"),
}
"""What messages can be grouped by, and the type of its column."""

_READ = {"key": "keys", "order_key": "properties", "origin_topic": "properties", "size": "size_bytes"}
"""The column that a group is made of, where it has another name."""
MEASURES = {
    "messages": "sum",
    "bytes": "sum",
    "largest_bytes": "max",
    "first_stored_at": "min",
    "last_stored_at": "max",
}
"""The sums of each group, and how two of them are added up."""
_TYPES = {
    "messages": "bigint",
    "bytes": "bigint",
    "largest_bytes": "bigint",
    "first_stored_at": "timestamp",
    "last_stored_at": "timestamp",
}

MOST_PENDING = 1 << 16
"""Groups that a worker holds before it hands them to Spark: a topic may have as many keys as messages."""


def aggregate(spark: SparkSession, by: Sequence[str] = ("topic",), **options: object) -> DataFrame:
    """Counts messages and adds up their sizes by group. Bodies are not read; only sums leave the workers.

    It adds whole columns up with pyarrow. As for `map_batches`, pandas has to be installed.

    Args:
        spark: The session.
        by: One or more of `topic`, `broker_name`, `queue_id`, `tag`, `key` (a message counts for each of its keys),
            `order_key`, `origin_topic` (of a message that was sent again), `born_host`, `store_host`,
            `reconsume_times`, `minute`, `hour` and `day` (when it was stored, UTC), `size` (bytes of its record,
            rounded up to a power of two).
        options: Those of the data source, as for `map_batches`.

    Returns:
        The groups, then `messages`, `bytes` (of their records in the log, with properties and as compressed as they
        were sent), `largest_bytes`, `first_stored_at` and `last_stored_at`. No order.

    Raises:
        OptionError: A group or an option is unknown or malformed.
        RocketPyError: There is no such topic, store or cluster.

    Examples:
        In a Spark session::

            aggregate(spark, ["tag", "hour"], path="data", topic="flights").orderBy("hour", "tag").show()
    """
    return aggregate_all(spark, [tuple(by)], options).drop("grouping")


def aggregate_all(spark: SparkSession, groupings: Sequence[tuple[str, ...]], options: dict[str, object]) -> DataFrame:
    """Aggregates by several choices of groups in one pass over the messages.

    Args:
        spark: The session.
        groupings: What to group by, each as `by` of `aggregate`.
        options: As for `map_batches`.

    Returns:
        `grouping` (the place in `groupings`), every group that one of them has (null in the others), the measures.

    Raises:
        OptionError: As for `aggregate`.
    """
    from pyspark.sql import functions as sql

    names = list(dict.fromkeys(name for grouping in groupings for name in grouping))
    for name in names:
        if name not in GROUP_TYPES:
            raise OptionError(f"messages cannot be grouped by {name}{nearest(name, GROUP_TYPES)}")
    if not names or len(set(groupings)) != len(groupings) or any(len(set(one)) != len(one) for one in groupings):
        raise OptionError("name what to group by, each once")
    columns = list(dict.fromkeys(["size_bytes", "stored_at", *(_column_of(name) for name in names)]))
    kinds = {"grouping": "int"} | {name: GROUP_TYPES[name] for name in names} | _TYPES

    def add_up(_share: Share, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from rocketpy.spark.aggregation import partial_sums

        return partial_sums(batches, groupings, names)

    parts = map_shares(spark, add_up, ddl_of(kinds), columns, options)
    measures = [getattr(sql, how)(name).alias(name) for name, how in MEASURES.items()]
    return parts.groupBy("grouping", *names).agg(*measures)


def partial_sums(
    batches: Iterable[pa.RecordBatch], groupings: Sequence[tuple[str, ...]], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Adds the messages of some batches up, in a worker.

    Args:
        batches: With the columns that the groups are made of.
        groupings: What to group by.
        names: All groups.

    Yields:
        Batches of the schema that `aggregate_all` promises. A group may come in several of them.
    """
    pending: list[pa.Table] = []
    for batch in batches:
        pending += [_by_one(batch, number, grouping, names) for number, grouping in enumerate(groupings)]
        if sum(table.num_rows for table in pending) > MOST_PENDING:
            total = _combined(pending, names)
            pending = [total]
            if total.num_rows > MOST_PENDING // 2:
                yield from total.to_batches()
                pending = []
    if pending:
        yield from _combined(pending, names).to_batches()


def _by_one(batch: pa.RecordBatch, number: int, grouping: tuple[str, ...], names: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    table = pa.table(
        {
            "messages": pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows),
            "bytes": batch.column("size_bytes").cast(pa.int64()),
            "largest_bytes": batch.column("size_bytes").cast(pa.int64()),
            "first_stored_at": batch.column("stored_at"),
            "last_stored_at": batch.column("stored_at"),
        }
    )
    if "key" in grouping:
        rows, keys = _each_key(batch.column("keys"))
        batch, table = batch.take(rows), table.take(rows).append_column("key", keys)
    for name in grouping:
        if name != "key":
            table = table.append_column(name, _GROUPS.get(name, _as_it_is)(batch, name))
    table = table.append_column("grouping", pa.repeat(pa.scalar(number, pa.int32()), table.num_rows))
    for name in names:
        if name not in grouping:
            table = table.append_column(name, pa.nulls(table.num_rows, arrow_type(GROUP_TYPES[name])))
    return _combined([table], names)


def _combined(tables: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    groups = ["grouping", *names]
    whole = pa.concat_tables([table.select([*groups, *MEASURES]) for table in tables])
    sums = whole.group_by(groups, use_threads=False).aggregate(list(MEASURES.items()))
    return sums.rename_columns(
        [name if name in groups else name.rpartition("_")[0] for name in sums.column_names]
    ).combine_chunks()


def _each_key(keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Row and text of every key; a message without keys has one that is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(keys.fill_null("")))
    flat = pc.list_flatten(lists)
    return pc.list_parent_indices(lists), pc.if_else(pc.equal(flat, ""), pa.scalar(None, pa.string()), flat)


def _column_of(name: str) -> str:
    return "stored_at" if name in MICROSECONDS else _READ.get(name, name)


def _as_it_is(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(name)


def _floor(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The start of the minute, hour or day; by arithmetic, which needs no database of time zones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    stored_at = batch.column("stored_at")
    length = pa.scalar(MICROSECONDS[name], pa.int64())
    return pc.multiply(pc.divide(stored_at.cast(pa.int64()), length), length).cast(stored_at.type)


def _power_of_two(batch: pa.RecordBatch, _name: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.power(2.0, pc.ceil(pc.log2(batch.column("size_bytes").cast(pa.float64())))).cast(pa.int64())


def _property(batch: pa.RecordBatch, name: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    key = {"order_key": "__SHARDINGKEY", "origin_topic": ORIGIN_TOPIC}[name]
    return pc.map_lookup(batch.column("properties"), pa.scalar(key), "first")


_GROUPS: dict[str, Callable[[pa.RecordBatch, str], pa.Array]] = {
    **dict.fromkeys(MICROSECONDS, _floor),
    "size": _power_of_two,
    "order_key": _property,
    "origin_topic": _property,
}
"""How groups are made that are not columns."""

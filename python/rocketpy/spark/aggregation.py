"""Counts and sizes of messages by topic, queue, tag, key or hour, added up in the workers that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.spark.batches import ddl_of, map_shares
from rocketpy.spark.options import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from rocketpy.spark.batches import Share

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
    "minute": "timestamp",
    "hour": "timestamp",
    "day": "timestamp",
}
"""Possible groups of messages, and the types of their columns."""

MEASURES = {
    "messages": "sum",
    "bytes": "sum",
    "largest_bytes": "max",
    "first_stored_at": "min",
    "last_stored_at": "max",
}
"""Sums of each group, and the function that combines two of them."""
_TYPES = {
    "messages": "bigint",
    "bytes": "bigint",
    "largest_bytes": "bigint",
    "first_stored_at": "timestamp",
    "last_stored_at": "timestamp",
}


def aggregate(spark: SparkSession, by: Sequence[str] = ("topic",), **options: object) -> DataFrame:
    """Counts messages and adds up their sizes by group, while they are scanned. Only sums leave the workers.

    Messages are not converted to columns, and bodies are not decompressed. As for `map_batches`, pandas must be
    installed.

    Args:
        spark: The session.
        by: Groups: one or more of `topic`, `broker_name`, `queue_id`, `tag`, `key` (a message counts for each of its
            keys), `order_key`, `origin_topic` (of a message that was sent again), `born_host`, `store_host`,
            `reconsume_times`, `minute`, `hour` and `day` (of its store time, UTC), `size` (bytes of its record,
            rounded up to a power of two).
        options: Options of the data source, as for `map_batches`.

    Returns:
        The groups, then `messages`, `bytes` (of their records in the log, with properties and as compressed as they
        were sent), `largest_bytes`, `first_stored_at` and `last_stored_at`. No order.

    Raises:
        OptionError: A group or an option is unknown or malformed.
        RocketPyError: The topic, store or cluster does not exist.

    Examples:
        In a Spark session::

            aggregate(spark, ["tag", "hour"], path="data", topic="flights").orderBy("hour", "tag").show()
    """
    return aggregate_all(spark, [tuple(by)], options).drop("grouping")


def aggregate_all(spark: SparkSession, groupings: Sequence[tuple[str, ...]], options: dict[str, object]) -> DataFrame:
    """Aggregates by several choices of groups in one pass over the messages.

    Args:
        spark: The session.
        groupings: Groups to aggregate by, each as `by` of `aggregate`.
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
        raise OptionError("name at least one group, and each only once")
    kinds = {"grouping": "int"} | {name: GROUP_TYPES[name] for name in names} | _TYPES

    def sums(_share: Share, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    parts = map_shares(spark, sums, ddl_of(kinds), (), options, groupings=groupings)
    measures = [getattr(sql, how)(name).alias(name) for name, how in MEASURES.items()]
    return parts.groupBy("grouping", *names).agg(*measures)

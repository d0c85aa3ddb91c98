"""Arrow UDFs of tags and message ids: hashes and parts, made in Rust for a whole column at once."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from rocketpy.spark.options import OptionError
from rocketpy.spark.udf import arrow_udf

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import Column

    from rocketpy._rocketpy import ArrowBatch

FIRST_YEAR = 1970
LAST_YEAR = 2100
"""Range of years for the time of a unique key."""


def tag_hash() -> Callable[..., Column]:
    """Returns a UDF from a tag to its hash, which consume queues contain and brokers filter by.

    It is Java's `String.hashCode`. Tags with the same hash pass the same filter in a broker; clients compare the tags
    themselves.

    Returns:
        The UDF, from string to int. A null is null; the entry of a message without a tag has a 0.

    Raises:
        RocketPyError: PySpark 4.1 or newer is not installed.

    Examples:
        In a Spark session::

            messages.select("tag", tag_hash()("tag").alias("tag_hash")).distinct()
    """

    def tag_hash(tags):  # type: ignore[no-untyped-def]
        from rocketpy.spark.ids import tag_hashes

        return tag_hashes(tags)

    return arrow_udf(tag_hash, "int")


def offset_msg_id_parts() -> Callable[..., Column]:
    """Returns a UDF from the id that a broker assigned to a message, as in the column `offset_msg_id`, to its parts.

    Returns:
        The UDF, from string to a struct of `host` (address of the broker, string), `port` (int) and `physical_offset`
        (first byte of the record in the commit log, bigint). A null, and a text that is not an id, is null. The two
        kinds of id cannot be distinguished: many a `msg_id` has such parts as well.

    Raises:
        RocketPyError: PySpark 4.1 or newer is not installed.

    Examples:
        In a Spark session::

            messages.select(offset_msg_id_parts()("offset_msg_id").alias("place")).select("place.*")
    """

    def offset_msg_id_parts(ids):  # type: ignore[no-untyped-def]
        from rocketpy.spark.ids import parts_of_offset_msg_ids

        return parts_of_offset_msg_ids(ids)

    return arrow_udf(offset_msg_id_parts, {"host": "string", "port": "int", "physical_offset": "bigint"})


def msg_id_parts(time_zone: str = "UTC") -> Callable[..., Column]:
    """Returns a UDF from the id that a client assigned to a message, as in the column `msg_id`, to its parts.

    An id contains the time since the start of a month, at the client's midnight, but not the month. So the UDF
    takes a second column, of times less than half a month away, such as `born_at`.

    Args:
        time_zone: Time zone of the clients that created the ids, such as "Asia/Shanghai".

    Returns:
        The UDF, from string and timestamp to a struct of `host` (address of the client, string), `process_id` (its low
        16 bits, int), `process_hash` (a random number of the client, bigint), `made_at` (timestamp) and
        `counter` (number of the id in its process, modulo 65,536, int). A null, and a text that is not an id, is null.
        `made_at` is null if the time is null or outside the years 1970 to 2100, or if no month is that long.

    Raises:
        OptionError: The time zone is unknown.
        RocketPyError: PySpark 4.1 or newer is not installed.

    Examples:
        In a Spark session::

            parts = msg_id_parts("Asia/Shanghai")
            messages.select(parts("msg_id", "born_at").alias("made")).groupBy("made.host", "made.process_id").count()
    """
    try:
        ZoneInfo(time_zone)
    except (KeyError, ValueError, OSError) as unknown:
        raise OptionError(f"unknown time zone: {time_zone}", hint='a name such as "Asia/Shanghai"') from unknown

    def msg_id_parts(ids, near):  # type: ignore[no-untyped-def]
        from rocketpy.spark.ids import parts_of_msg_ids

        return parts_of_msg_ids(ids, near, time_zone)

    parts = {
        "host": "string",
        "process_id": "int",
        "process_hash": "bigint",
        "made_at": "timestamp",
        "counter": "int",
    }
    return arrow_udf(msg_id_parts, parts)


def tag_hashes(tags: pa.Array) -> pa.Array:
    """Computes the hashes of `tag_hash`.

    Args:
        tags: Array of string.

    Returns:
        Array of int32, of the same length.

    Examples:
        >>> import pyarrow
        >>> tag_hashes(pyarrow.array(["TagA", "", None])).to_pylist()
        [2598919, 0, None]
    """
    import pyarrow as pa

    from rocketpy._rocketpy import tag_hashes as hashes

    return _values(hashes(tags.cast(pa.string())))


def parts_of_offset_msg_ids(ids: pa.Array) -> pa.Array:
    """Computes the parts of `offset_msg_id_parts`.

    Args:
        ids: Array of string.

    Returns:
        Array of the struct, of the same length.

    Examples:
        >>> import pyarrow
        >>> parts_of_offset_msg_ids(pyarrow.array(["0A00000500002A9F000000000012D687", "no id"])).to_pylist()
        [{'host': '10.0.0.5', 'port': 10911, 'physical_offset': 1234567}, None]
    """
    import pyarrow as pa

    from rocketpy._rocketpy import offset_message_id_parts

    return _values(offset_message_id_parts(ids.cast(pa.string())))


def parts_of_msg_ids(ids: pa.Array, near: pa.Array, time_zone: str = "UTC") -> pa.Array:
    """Computes the parts of `msg_id_parts`.

    Args:
        ids: Array of string.
        near: Array of timestamps, of the same length.
        time_zone: As for `msg_id_parts`.

    Returns:
        Array of the struct, of the same length.

    Examples:
        >>> from datetime import datetime, UTC
        >>> import pyarrow
        >>> ids, near = ["C0A80102303918B4AAC2104ECE050007"], [datetime(2024, 5, 4, 5, tzinfo=UTC)]
        >>> parts = parts_of_msg_ids(pyarrow.array(ids), pyarrow.array(near))[0].as_py()
        >>> parts["host"], parts["process_id"], parts["counter"], str(parts["made_at"])
        ('192.168.1.2', 12345, 7, '2024-05-04 04:00:00.005000+00:00')
    """
    import pyarrow as pa

    from rocketpy._rocketpy import unique_key_parts

    near = near.cast(pa.timestamp("us", "UTC"))
    return _values(unique_key_parts(ids.cast(pa.string()), near, _month_starts(time_zone)))


@cache
def _month_starts(time_zone: str) -> list[int]:
    """In microseconds since 1970, with a year before the first and a year behind the last."""
    zone = ZoneInfo(time_zone)
    years = range(FIRST_YEAR - 1, LAST_YEAR + 2)
    starts = [datetime(year, month, 1, tzinfo=zone) for year in years for month in range(1, 13)]
    return [int(start.timestamp()) * 1_000_000 for start in starts]


def _values(batch: ArrowBatch) -> pa.Array:
    from rocketpy.base.arrow import pyarrow_batch

    return pyarrow_batch(batch).column("value")

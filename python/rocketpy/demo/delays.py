"""Part 6: Spark computes the table of delays three ways, and pandas computes it from the original data."""

import contextlib
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpy.demo.departures import Mismatch
from rocketpy.demo.flights import Flights
from rocketpy.demo.journal import Journal
from rocketpy.servers.process import ServerProcess
from rocketpy.spark import flight_delays as job
from rocketpy.spark.session import local_session

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import pandas
    from pyspark.sql import SparkSession

CORES = "2"
SPARK_LOG = "spark.log"


@contextlib.contextmanager
def standard_error_in(path: Path) -> "Generator[None, None, None]":
    """Redirects the standard error of processes started inside, such as Spark, to a file."""
    mine = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(mine, 2)
        os.close(mine)


@contextlib.contextmanager
def spark_session(folder: Path) -> "Generator[SparkSession, None, None]":
    """Starts Spark and stops it. Its output goes to a file; the handler of Ctrl-C stays the same.

    Args:
        folder: Folder for the file.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it logs it raises too
    on_interrupt = signal.getsignal(signal.SIGINT)
    with standard_error_in(folder / SPARK_LOG):
        spark = local_session("rocketpy demo", cores=CORES)
    signal.signal(signal.SIGINT, on_interrupt)  # Spark has put its own in place
    try:
        yield spark
    finally:
        spark.stop()


def expected(flights: Flights) -> "pandas.DataFrame":
    """Computes the table from the original data, without RocketPy or Spark.

    Args:
        flights: The original data.

    Returns:
        Columns carrier, hour, flights, mean_departure_delay (minutes) and cancelled_share (0 to 1), sorted.
    """
    import pandas

    groups = flights.frame.assign(cancelled=flights.frame["dep_time"].isna()).groupby(["carrier", "hour"])
    table = pandas.DataFrame(
        {
            "flights": groups.size(),
            "mean_departure_delay": groups["dep_delay"].mean(),
            "cancelled_share": groups["cancelled"].mean(),
        }
    )
    return table.reset_index()


def check(way: str, table: "pandas.DataFrame", wanted: "pandas.DataFrame") -> None:
    """Checks that a table equals the one from pandas: the same rows and, to the last bit, the same numbers.

    Raises:
        Mismatch: The tables differ.
    """
    import pandas

    try:
        pandas.testing.assert_frame_equal(table, wanted, check_dtype=False, check_exact=True)
    except AssertionError as difference:
        raise Mismatch(f"Spark {way} and pandas differ: {difference}") from difference


def compute(
    journal: Journal, flights: Flights, server: ServerProcess, spark: "SparkSession", topic: str, folder: Path
) -> None:
    """Computes the table every way, compares each with pandas, writes Parquet and a chart.

    Args:
        journal: Receives the steps.
        flights: The original data.
        server: Server on the store.
        spark: Session from `spark_session`.
        topic: Topic of the flights.
        folder: Folder for the files.

    Raises:
        Mismatch: A table differs from the one from pandas.
    """
    with journal.step("compute with pandas") as step:
        wanted = expected(flights)
        step.rows = len(flights)
        step.note = f"{len(wanted)} pairs of carrier and hour"
    store = str(server.store)
    ways: dict[str, Callable[[], pandas.DataFrame]] = {
        job.NETWORK: lambda: job.delays_over_network(spark, server.name_server, topic),
        job.FOLDER: lambda: job.delays_from_folder(spark, store, topic),
        job.RANGES: lambda: job.delays_by_ranges(spark, store, topic),
    }
    for way, table_of in ways.items():
        with journal.step(f"Spark {way}") as step:
            check(way, table_of(), wanted)
            step.rows = len(flights)
            step.note = "equal to pandas" if way != job.NETWORK else "equal to pandas; Spark's first query, it warms up"
    with journal.step("write Parquet and chart") as step:
        job.write(spark, wanted, str(folder), flights.airlines)
        step.note = f"{job.PARQUET}, {job.CHART}"
        check("in Parquet", spark.read.parquet(str(folder / job.PARQUET)).toPandas(), wanted)

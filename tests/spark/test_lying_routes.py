"""A name server that lies (tests/sdk/lying.py): Spark's readers return the stored messages or raise an error.

The readers are asked directly, as Spark does on the driver and in workers.
"""

import pytest
from lying import BODIES, LIES, filled_topic, lying_name_server
from pyspark.sql.types import StructType

import rocketpy
from rocketpy.spark.archive.job import ArchiveOptions, plan_rows
from rocketpy.spark.batches import reader_of
from rocketpy.spark.job import plan_rows as plan_of_job
from rocketpy.spark.stream import RocketPyStreamReader

SCHEMA = StructType().add("body", "binary")


def rows_of(reader, partitions):
    return [row["body"] for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]


def batch(options, _):
    reader = reader_of(options, ["body"])
    return rows_of(reader, reader.partitions())


def stream(options, _):
    reader = RocketPyStreamReader(options, SCHEMA)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    return rows_of(reader, reader.partitions({}, end))


def archive_plan(options, tmp_path):
    return [
        sum(
            row["messages"]
            for row in plan_rows(
                ArchiveOptions(str(tmp_path / "out"), (options["topic"],), name_server=options["name_server"])
            )
        )
    ]


def job_plan(options, _):
    return [sum(row["messages"] for row in plan_of_job(options))]


READERS = {"batch": batch, "stream": stream, "archive_plan": archive_plan, "job_plan": job_plan}
READ = {
    "broker_without_the_topic": {"archive_plan", "job_plan"},
    "more_queues": READERS.keys(),
    "broker_without_queues": READERS.keys(),
}
"""Readers that get everything in spite of a lie."""
EITHER = "changing"
"""The lie whose outcome depends on the number of route queries."""


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("lie", LIES)
def test_readers_for_spark_read_everything_or_raise_an_error(rocketpy_server, tmp_path, lie, name):
    topic = filled_topic(rocketpy_server)
    with lying_name_server(lie, rocketpy_server) as address:
        options = {"name_server": address, "topic": topic, "client.api_timeout": "60s", "retry_timeout": "0s"}
        try:
            found = READERS[name](options, tmp_path)
        except rocketpy.RocketPyError as error:
            found = error
    is_error = isinstance(found, rocketpy.RocketPyError)
    assert lie == EITHER or is_error != (name in READ.get(lie, ())), found
    if is_error:
        assert str(found).isprintable()
    else:
        assert found in (BODIES, [len(BODIES)])

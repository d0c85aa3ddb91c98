"""The UDF that decodes bodies, and ranges for `mapPartitions`, on a real session."""

import datetime

import pytest
from pyspark.errors import PythonException

import rocketpy
from rocketpy.spark import decode, scan_ranges


@pytest.fixture
def events(topic, send, rocketpy_server, spark):
    send(
        topic,
        [
            b'{"name": "a", "count": 1, "at": "2013-01-01T05:00:00Z", "parts": [1, 2], "inner": {"x": 1.5}}',
            b'{"name": "b", "extra": true}',
            b"not json",
        ],
    )
    return spark.read.format("rocketpy").options(path=str(rocketpy_server.path), topic=topic).load()


def test_json_bodies_become_structs(events):
    schema = "name string, count bigint, at timestamp, parts array<int>, inner struct<x: double>"
    rows = events.select(decode(schema)("body").alias("e")).collect()
    first, second, third = sorted((row.e for row in rows), key=lambda event: (event is None, event))
    assert (first.name, first["count"], first.parts, first.inner.x) == ("a", 1, [1, 2], 1.5)
    assert first.at.astimezone(datetime.UTC) == datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    assert (second.name, second["count"], second.parts) == ("b", None, None)
    assert third is None


def test_a_schema_can_be_a_struct_and_errors_can_end_the_job(events):
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField("name", StringType())])
    names = [row.e and row.e.name for row in events.select(decode(schema)("body").alias("e")).collect()]
    assert sorted(names, key=str) == [None, "a", "b"]
    with pytest.raises(PythonException, match="not JSON of the given schema"):
        events.select(decode(schema, on_error="fail")("body")).collect()


def test_an_error_column_says_what_is_wrong(events):
    decoded = events.select(decode("name string not null, count tinyint", error_column="wrong")("body").alias("e"))
    rows = {row.name: (row["count"], row.wrong) for row in decoded.select("e.*").collect()}
    assert rows == {"a": (1, None), "b": (None, None), None: (None, "not JSON: expected ident, at byte 1")}
    assert all(field.nullable for field in decoded.schema["e"].dataType.fields)


def test_objects_become_maps_and_errors_name_types_of_spark(spark):
    decoded = decode("m map<string,struct<n:int,price:decimal(5,2)>>, day date", error_column="wrong")
    bodies = [
        b'{"m": {"a": {"n": 1, "price": 2.5}, "b": null}, "day": "9999-12-31"}',
        b'{"m": {"a": {"n": 1, "price": 2.505}}}',
        b'{"m": {"a": 1}}',
        b'{"m": [], "day": "2024-01-02"}',
        b'{"m": {}, "day": "0000-12-31"}',
    ]
    frame = spark.createDataFrame([(bytearray(body),) for body in bodies], "body binary")
    rows = frame.select(decoded("body").alias("e")).select("e.*").collect()
    first = rows[0]
    assert (first.m["a"].n, str(first.m["a"].price), first.m["b"]) == (1, "2.50", None)
    assert (str(first.day), first.wrong) == ("9999-12-31", None)
    assert [row.wrong for row in rows[1:]] == [
        "m.a.price: not of type decimal(5,2): 2.505",
        "m.a: expected struct<n:int,price:decimal(5,2)>, found a number",
        "m: expected map<string,struct<n:int,price:decimal(5,2)>>, found a list",
        "day: not of type date: 0000-12-31",
    ]


def test_text_bodies_become_strings(events):
    texts = {row.text for row in events.select(decode()("body").alias("text")).collect()}
    assert "not json" in texts
    assert len(texts) == 3


def test_ranges_are_read_in_workers_by_map_partitions(spark, topic, send, rocketpy_server):
    send(topic, [b"%d" % number for number in range(500)])
    path = str(rocketpy_server.path)
    ranges = scan_ranges(path, topic, max_partition_bytes=8 << 10)
    assert len(ranges) > 3

    def numbers(part):
        for one in part:
            for batch in rocketpy.StoreReader(path).scan(one, columns=["body"], tags="odd"):
                import pyarrow as pa

                yield from (int(body) for body in pa.record_batch(batch).column(0).to_pylist())

    found = spark.sparkContext.parallelize(ranges, len(ranges)).mapPartitions(numbers).collect()
    assert sorted(found) == list(range(1, 500, 2))


def test_ranges_take_times_and_offsets_as_the_source_does(topic, send, rocketpy_server):
    send(topic, [b"%d" % number for number in range(30)])
    path = str(rocketpy_server.path)

    def count(**bounds):
        return sum(part.end - part.start for one in scan_ranges(path, topic, **bounds) for part in one.parts)

    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    assert (count(), count(starting_time="-1h"), count(starting_time=tomorrow), count(ending_time="-1h")) == (
        30,
        30,
        0,
        0,
    )
    assert count(starting_offsets={0: 1}, ending_offsets={1: 0, 2: 0}) == count(ending_offsets={1: 0, 2: 0}) - 1

"""`format("rocketpy")` on a real session: by path and over the network, the same rows."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as sql
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import rocketpy
from rocketpy.spark import cores, scan, scan_ranges
from rocketpy.spark.columns import DEFAULT, TYPES, names_of_schema
from rocketpy.spark.source import RocketPyReader
from rocketpy.testing import fresh_name
from waiting import wait_for_files

BODIES = [b"message %d" % number for number in range(300)]


def load(spark, topic, **options):
    return spark.read.format("rocketpy").options(topic=topic, **options).load()


def bodies(frame):
    return sorted((bytes(row.body) for row in frame.select("body").collect()), key=lambda body: int(body.split()[1]))


@pytest.fixture
def filled(topic, send):
    return topic, send(topic, BODIES)


def test_every_message_comes_once_with_what_was_sent(spark, filled, door):
    topic, receipts = filled
    rows = load(spark, topic, **door).collect()
    assert len(rows) == 300
    assert rows[0].__fields__ == list(DEFAULT)
    by_id = {row.msg_id: row for row in rows}
    for number, receipt in enumerate(receipts):
        row = by_id[receipt.msg_id]
        assert (row.topic, row.queue_id, row.queue_offset) == (topic, receipt.queue.queue_id, receipt.queue_offset)
        assert (bytes(row.body), row.tag, row["keys"]) == (
            BODIES[number],
            ("even", "odd")[number % 2],
            f"k{number} all",
        )
        assert row.properties["UNIQ_KEY"] == row.msg_id
        assert row.properties["TAGS"] == row.tag
        assert row.born_at <= row.stored_at
        assert row.reconsume_times == 0


def test_times_without_a_zone_as_the_default_of_a_session_change_nothing(spark, filled, door):
    topic, _ = filled
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        for frame in (load(spark, topic, **door), scan(spark, topic=topic, **door)):
            assert frame.schema["stored_at"].dataType.simpleString() == "timestamp"
            assert frame.where("stored_at >= born_at").count() == 300
        stream = spark.readStream.format("rocketpy").options(topic=topic, **door).load()
        assert names_of_schema(stream.schema) == DEFAULT  # what the workers of a stream check
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_the_broker_name_is_known_over_the_network_and_can_be_given_for_a_folder(spark, filled, rocketpy_server):
    topic, receipts = filled
    broker = receipts[0].queue.broker_name

    def names(**options):
        return {row.broker_name for row in load(spark, topic, **options).select("broker_name").collect()}

    assert names(name_server=rocketpy_server.name_server) == {broker}
    assert names(path=str(rocketpy_server.path)) == {None}
    assert names(path=str(rocketpy_server.path), broker_name=broker) == {broker}


def test_a_log_that_lies_elsewhere_is_an_option(spark, tmp_path, rocketpy_server_factory):
    topic = fresh_name("elsewhere")
    server = rocketpy_server_factory(tmp_path / "store", settings={"storePathCommitLog": str(tmp_path / "log")})
    with server.producer("ingest") as producer:
        producer.send_many([rocketpy.Message(topic, body) for body in BODIES])
    server.stop()
    with pytest.raises(AnalysisException, match="commitLogPath"):
        load(spark, topic, path=str(tmp_path / "store")).collect()
    assert bodies(load(spark, topic, path=str(tmp_path / "store"), commitLogPath=str(tmp_path / "log"))) == BODIES
    ranges = scan_ranges(str(tmp_path / "store"), topic, commit_log=str(tmp_path / "log"))
    assert sum(part.end - part.start for one in ranges for part in one.parts) == len(BODIES)


def test_the_arrow_schema_is_the_one_that_spark_asks_for(spark, filled, rocketpy_server):
    topic, _ = filled
    ddl = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    expected = to_arrow_schema(StructType.fromDDL(ddl), timezone="UTC")
    scan = rocketpy.StoreReader(rocketpy_server.path).scan(topic, columns=list(TYPES))
    assert pa.RecordBatchReader.from_stream(scan).schema.equals(expected)
    spark.read.format("rocketpy").schema(ddl).load(path=str(rocketpy_server.path), topic=topic).collect()


def test_columns_are_chosen_by_option_or_by_schema(spark, filled, door):
    topic, _ = filled
    by_option = load(spark, topic, columns="queue_offset,physical_offset,tag", **door)
    assert by_option.columns == ["queue_offset", "physical_offset", "tag"]
    schema = "tag string, size_bytes int"
    by_schema = spark.read.format("rocketpy").schema(schema).options(topic=topic, **door).load()
    rows = by_schema.collect()
    assert len(rows) == 300
    assert all(row.size_bytes > 91 for row in rows)
    assert {row.tag for row in rows} == {"even", "odd"}


def test_tags_are_filtered_where_the_messages_lie(spark, filled, door):
    topic, _ = filled
    even = load(spark, topic, tags="even || other", **door)
    assert bodies(even) == BODIES[::2]
    assert bodies(load(spark, topic, tags="nothing", **door)) == []


def test_times_bound_what_is_read(spark, topic, send, door):
    early = send(topic, BODIES[:50])
    times = [row.stored_at for row in load(spark, topic, **door).select("stored_at").collect()]
    assert len(times) == len(early)
    newest_ms = round(max(times).timestamp() * 1000)
    after = f"{(newest_ms + 1) / 1000:.3f}"
    while True:  # the broker's clock moves on before the second half
        receipts = send(topic, [b"tick 0"])
        offsets = load(spark, topic, starting_time=after, **door)
        if offsets.count() > 0:
            break
    assert receipts
    ticks = load(spark, topic, startingTime=after, **door)
    assert {bytes(row.body) for row in ticks.collect()} == {b"tick 0"}
    before = load(spark, topic, endingTime=str(after), **door).select("body").collect()
    assert BODIES[:50] == sorted({bytes(row.body) for row in before} - {b"tick 0"}, key=BODIES.index)


def test_offsets_bound_what_is_read_queue_by_queue(spark, filled, door):
    topic, receipts = filled
    starts = json.dumps({topic: {"0": 10, "1": -2}})
    ends = json.dumps({topic: {"0": 12, "2": 0}})
    rows = load(spark, topic, starting_offsets=starts, ending_offsets=ends, **door).collect()
    queue_1 = sum(receipt.queue.queue_id == 1 for receipt in receipts)
    got = sorted((row.queue_id, row.queue_offset) for row in rows)
    assert got == [(0, 10), (0, 11), *((1, offset) for offset in range(queue_1))]


def test_partitions_have_fixed_bounds_and_cover_everything_once(spark, filled, send, door):
    topic, _ = filled
    frame = load(spark, topic, max_partition_bytes="4k", **door)
    partitions = frame.rdd.getNumPartitions()
    assert partitions > 5
    assert bodies(frame) == BODIES
    send(topic, [b"later 300"])
    assert frame.count() == 300, "a DataFrame is a snapshot"
    assert load(spark, topic, **door).count() == 301


def test_within_a_partition_each_queue_is_in_order(spark, filled, door):
    topic, _ = filled
    frame = load(spark, topic, columns="queue_id,queue_offset", max_partition_bytes="16k", **door)
    for rows in frame.rdd.mapPartitions(lambda rows: [[(row.queue_id, row.queue_offset) for row in rows]]).collect():
        for queue_id in range(3):
            offsets = [offset for queue, offset in rows if queue == queue_id]
            assert offsets == sorted(offsets)


def test_several_topics_are_one_table(spark, rocketpy_server, send, door):
    names = [fresh_name("many") for _ in range(3)]
    with rocketpy_server.admin() as admin:
        for name in names:
            admin.create_topic(name, queues=3)
    for name in names:
        send(name, [b"%s 1" % name.encode(), b"%s 2" % name.encode()])
    frame = spark.read.format("rocketpy").options(topics=",".join(names), **door).load()
    counts = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counts == dict.fromkeys(names, 2)


def test_a_topic_without_messages_is_an_empty_table(spark, topic, door):
    assert load(spark, topic, **door).count() == 0


def test_partition_of_an_empty_table_may_be_missing():
    # Spark 4.1 passes None, 4.2 and later an empty partition.
    reader = RocketPyReader(None, ())
    assert [*reader.read(None), *reader.read(InputPartition(None))] == []


def test_large_and_compressed_bodies_come_back_as_they_were_sent(spark, topic, rocketpy_server, door):
    sent = [bytes([number]) * (100_000 * number + 1) for number in range(1, 12)]
    with rocketpy_server.producer(fresh_name()) as producer:
        receipts = [producer.send(rocketpy.Message(topic, body)) for body in sent]
    for receipt in receipts:
        wait_for_files(rocketpy_server.path, receipt.queue, receipt.queue_offset + 1)
    rows = load(spark, topic, columns="body,sys_flag", **door).collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(sent)
    assert any(row.sys_flag & 1 for row in rows), "some went compressed"


def test_sql_reads_it_too(spark, filled, door):
    topic, _ = filled
    options = ", ".join(f"{name} '{value}'" for name, value in {**door, "topic": topic}.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING rocketpy OPTIONS ({options})")
    rows = spark.sql("SELECT tag, count(*) AS n FROM messages GROUP BY tag ORDER BY tag").collect()
    assert [(row.tag, row.n) for row in rows] == [("even", 150), ("odd", 150)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tag": "UA"}, "did you mean tags"),
        ({"columns": "boddy"}, "did you mean body"),
        ({"starting_time": "soon"}, "starting_time: not a point in time"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(spark, filled, door, options, said):
    topic, _ = filled
    with pytest.raises(AnalysisException, match=said):
        load(spark, topic, **door, **options).collect()


def test_a_schema_with_another_type_is_refused(spark, filled, door):
    topic, _ = filled
    with pytest.raises(AnalysisException, match="column body is of type binary, not string"):
        spark.read.format("rocketpy").schema("body string").options(topic=topic, **door).load().collect()


def test_a_topic_or_folder_or_cluster_that_is_not_there_is_named(spark, tmp_path, door, topic):
    with pytest.raises(AnalysisException, match="nowhere"):
        load(spark, "nowhere", **door).collect()
    with pytest.raises(AnalysisException, match="not a store folder"):
        load(spark, topic, path=str(tmp_path)).collect()
    with pytest.raises(AnalysisException, match=r"127\.0\.0\.1:1"):
        load(spark, topic, name_server="127.0.0.1:1").collect()


def test_offsets_outside_the_queue_are_loss_with_a_count(spark, filled, door):
    topic, receipts = filled
    size = sum(receipt.queue.queue_id == 0 for receipt in receipts)
    ends = json.dumps({topic: {"0": size + 7}})
    with pytest.raises(AnalysisException, match=r"not there|are missing"):
        load(spark, topic, ending_offsets=ends, **door).collect()
    lenient = load(spark, topic, ending_offsets=ends, fail_on_data_loss="false", **door)
    assert lenient.count() == 300
    inverted = json.dumps({topic: {"0": size}})
    with pytest.raises(AnalysisException, match="before its start"):
        load(spark, topic, starting_offsets=inverted, ending_offsets=json.dumps({topic: {"0": 1}}), **door).collect()


def test_a_copy_of_a_store_that_lost_messages_fails_or_goes_on_behind_them(spark, rocketpy_server_factory, tmp_path):
    topic = fresh_name("loss")
    server = rocketpy_server_factory(tmp_path / "lossy", settings={"mappedFileSizeCommitLog": 1 << 20})
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)
    with server.producer(fresh_name()) as producer:
        producer.send_many([rocketpy.Message(topic, b"message %d" % number + b"x" * 1000) for number in range(3000)])
    server.stop()
    frame = load(spark, topic, path=str(server.path))
    lenient = load(spark, topic, path=str(server.path), failOnDataLoss="false")
    for planned in (frame, lenient):
        assert planned.count() == 3000
    min(Path(server.path, "commitlog").iterdir()).unlink()
    with pytest.raises(PythonException, match=r"are missing|are not there|broken record"):
        frame.select("queue_offset").collect()
    left = [row.queue_offset for row in lenient.select("queue_offset").orderBy("queue_offset").collect()]
    assert 0 < left[0] == 3000 - len(left)


def test_a_damaged_body_ends_the_job_unless_told_not_to_look(spark, rocketpy_server_factory, tmp_path):
    topic = fresh_name("damage")
    server = rocketpy_server_factory(tmp_path / "damaged", settings={"mappedFileSizeCommitLog": 1 << 20})
    with server.producer(fresh_name()) as producer:
        producer.send(rocketpy.Message(topic, b"damaged"))
    server.stop()
    (log,) = Path(server.path, "commitlog").iterdir()
    log.write_bytes(log.read_bytes().replace(b"damaged", b"Damaged", 1))
    with pytest.raises(PythonException, match="checksum"):
        load(spark, topic, path=str(server.path)).collect()
    (row,) = load(spark, topic, path=str(server.path), verify="false").collect()
    assert row.body == b"Damaged"


def test_a_topic_emptied_between_plan_and_read_fails_or_is_empty(spark, filled, rocketpy_server):
    topic, _ = filled
    strict = load(spark, topic, name_server=rocketpy_server.name_server)
    lenient = load(spark, topic, name_server=rocketpy_server.name_server, failOnDataLoss="false")
    assert strict.count() == lenient.count() == 300
    with rocketpy_server.admin() as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, queues=3)
    with pytest.raises(PythonException, match="OffsetError"):
        strict.collect()
    assert lenient.collect() == []


def test_a_store_is_read_while_its_server_writes(spark, topic, send, rocketpy_server):
    seen = []
    for start in range(0, 300, 100):
        send(topic, BODIES[start : start + 100])
        seen.append(load(spark, topic, path=str(rocketpy_server.path), columns="body").count())
    assert seen == [100, 200, 300]


def test_the_cores_of_the_cluster_are_known_where_the_session_is(spark):
    assert cores(spark) == 2


def test_a_scan_has_a_partition_for_each_of_them_unless_told_otherwise(spark, topic, send, rocketpy_server):
    send(topic, [bytes(10_000)] * 400)
    source = {"name_server": rocketpy_server.name_server, "topics": [topic], "ending_offsets": {topic: {"0": 100}}}
    frame = scan(spark, columns=["queue_id", "queue_offset"], **source)
    assert frame.columns == ["queue_id", "queue_offset"]
    assert frame.count() == 100 + 133 + 133
    assert frame.rdd.getNumPartitions() == 2
    assert scan(spark, min_partitions=3, **source).rdd.getNumPartitions() == 3


def test_columns_can_be_aggregated_by_spark(spark, filled, door):
    topic, _ = filled
    frame = load(spark, topic, **door)
    total = frame.agg(sql.sum(sql.length("body")).alias("bytes")).first().bytes
    assert total == sum(map(len, BODIES))

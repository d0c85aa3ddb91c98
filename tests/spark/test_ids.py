"""UDFs of tags and message ids: on real messages by a real session, and on the vectors of docs/reference."""

import datetime
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import rocketpy
from rocketpy.spark import msg_id_parts, offset_msg_id_parts, tag_hash
from rocketpy.spark.ids import parts_of_msg_ids, parts_of_offset_msg_ids, tag_hashes
from rocketpy.spark.options import OptionError
from spark_jobs import wait_for_receipts

TAGS = ["TagA", "order-created", "polygenelubricants", "\u6807\u7b7e", "\U0001f600", "hello-world-tag"]
UTC = datetime.UTC

SEND_ONE = """
import json, os, sys, time
import rocketpy

with rocketpy.Producer("ids", name_servers=sys.argv[1]) as producer:
    before = time.time()
    receipt = producer.send(rocketpy.Message(sys.argv[2], b"x"))
    print(json.dumps([before, time.time(), os.getpid(), receipt.msg_id]))
"""
"""A producer of one message, in a process and in a time zone of its own."""


@pytest.fixture
def messages(spark, topic, rocketpy_server):
    """A message for each tag, and one without."""
    with rocketpy_server.producer("ids") as producer:
        receipts = producer.send_many([rocketpy.Message(topic, b"x", tag=tag) for tag in [*TAGS, None]])
    wait_for_receipts(rocketpy_server, receipts)
    columns = "tag,queue_id,queue_offset,msg_id,offset_msg_id,physical_offset,store_host,born_at"
    options = {"path": str(rocketpy_server.path), "topic": topic, "columns": columns}
    return spark.read.format("rocketpy").options(**options).load()


def code_in_queue(folder: str, topic: str, queue_id: int, queue_offset: int) -> int:
    """What the queue's file has for a message: its tag's hash."""
    file = (Path(folder) / "consumequeue" / topic / str(queue_id) / f"{0:020}").read_bytes()
    return struct.unpack_from(">q", file, queue_offset * 20 + 12)[0]


def test_a_tag_hash_is_that_of_java_and_of_the_queue(spark, messages, topic, rocketpy_server):
    rows = messages.select("*", tag_hash()("tag").alias("tag_hash")).collect()
    assert {row.tag for row in rows} == {*TAGS, None}
    hash_code = spark.sparkContext._jvm.java.util.Objects.hashCode
    for row in rows:
        in_queue = code_in_queue(rocketpy_server.path, topic, row.queue_id, row.queue_offset)
        if row.tag is None:
            assert (row.tag_hash, in_queue) == (None, 0)
        else:
            assert row.tag_hash == in_queue == hash_code(row.tag), row.tag


def test_the_parts_of_an_offset_message_id_are_those_of_the_message(messages):
    frame = messages.select("*", offset_msg_id_parts()("offset_msg_id").alias("parts"))
    rows = frame.selectExpr("store_host", "physical_offset", "parts.*").toDF("at", "offset", "host", "port", "found")
    assert rows.count() == len(TAGS) + 1
    for row in rows.collect():
        assert (f"{row.host}:{row.port}", row.found) == (row["at"], row.offset)


def test_the_parts_of_a_message_id_are_those_of_its_producer(spark, topic, rocketpy_server):
    """The producer's month begins at another time than that of UTC."""
    command = [sys.executable, "-c", SEND_ONE, rocketpy_server.name_server, topic]
    environment = {**os.environ, "TZ": "Asia/Shanghai"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
    before, after, process_id, msg_id = json.loads(ended.stdout)

    rows = spark.read.format("rocketpy").options(name_server=rocketpy_server.name_server, topic=topic).load()
    spark.udf.register("msg_id_parts", msg_id_parts("Asia/Shanghai"))
    spark.udf.register("in_utc", msg_id_parts())
    rows.createOrReplaceTempView("messages")
    (row,) = spark.sql(
        "select msg_id, msg_id_parts(msg_id, born_at) p, in_utc(msg_id, born_at) u from messages"
    ).collect()
    assert row.msg_id == msg_id
    assert row.p.process_id == process_id & 0xFFFF
    assert (row.p.host, row.p.process_hash) == (row.u.host, row.u.process_hash)
    made_at = row.p.made_at.timestamp()
    assert int(before * 1000) / 1000 <= made_at <= after
    assert row.u.made_at - row.p.made_at == datetime.timedelta(hours=8)


def test_udfs_work_in_sql(spark, messages):
    spark.udf.register("tag_hash", tag_hash())
    spark.udf.register("offset_msg_id_parts", offset_msg_id_parts())
    messages.createOrReplaceTempView("messages")
    found = spark.sql("select count(*) from messages where tag_hash(tag) = 2598919").first()[0]
    wrong = spark.sql("select * from messages where offset_msg_id_parts(offset_msg_id).port = 1").count()
    no_id = spark.sql("select tag_hash(null), offset_msg_id_parts('x'), offset_msg_id_parts(null)").first()
    assert (found, wrong, tuple(no_id)) == (1, 0, (None, None, None))


def test_the_ids_of_the_reference():
    offset_ids = ["0A00000200002A9F000000000001E240", "20010DB800000000000000000000000200002A9F0000000102030405"]
    assert parts_of_offset_msg_ids(pa.array(offset_ids)).to_pylist() == [
        {"host": "10.0.0.2", "port": 10911, "physical_offset": 123456},
        {"host": "2001:db8::2", "port": 10911, "physical_offset": 0x1_0203_0405},
    ]
    near = datetime.datetime(2026, 3, 1, tzinfo=UTC)
    ids = ["0A000001123418B4AAC2000003E80001", "c0a80102303918b4aac2104ece050007"]  # Go writes small letters
    assert parts_of_msg_ids(pa.array(ids), pa.array([near, near])).to_pylist() == [
        {
            "host": "10.0.0.1",
            "process_id": 0x1234,
            "process_hash": 0x18B4AAC2,
            "made_at": near + datetime.timedelta(seconds=1),
            "counter": 1,
        },
        {
            "host": "192.168.1.2",
            "process_id": 12345,
            "process_hash": 0x18B4AAC2,
            "made_at": near + datetime.timedelta(days=3, hours=4, milliseconds=5),
            "counter": 7,
        },
    ]
    assert tag_hashes(pa.array(["TagA", "order-created", "topicA#\u4e2d\u6587"])).to_pylist() == [
        2598919,
        -392709271,
        388401707,
    ]


NO_IDS = ["", "no id", "0A00000200002A9F000000000001E24", "0A00000200002A9F000000000001E2400", "\u00e9" * 16, None]


@pytest.mark.parametrize("bad", NO_IDS)
def test_what_is_no_id_is_null_and_its_neighbours_are_not(bad):
    ids = pa.array(["0A00000200002A9F000000000001E240", bad, "0A00000200002A9F000000000001E241"])
    near = pa.array([datetime.datetime(2026, 3, 1, tzinfo=UTC)] * 3)
    for parts in (parts_of_offset_msg_ids(ids), parts_of_msg_ids(ids, near)):
        assert [part.is_valid for part in parts] == [True, False, True]


def test_slices_and_large_text_do_as_well():
    tags = pa.array(["x", "TagA", None, "TagB", "x"], pa.large_string())
    assert tag_hashes(tags[1:4]).to_pylist() == [2598919, None, 2598920]
    assert tag_hashes(tags[:0]).type == pa.int32()


@pytest.mark.parametrize("year", [1, 1968, 2103, 9999])
def test_no_time_is_made_up_for_times_out_of_range(year):
    near = pa.array([datetime.datetime(year, 3, 1, tzinfo=UTC)])
    (parts,) = parts_of_msg_ids(pa.array(["0A000001123418B4AAC2000003E80001"]), near).to_pylist()
    assert (parts["made_at"], parts["counter"]) == (None, 1)


def test_summer_time_begins_within_a_month():
    """Berlin: the first of April is two hours ahead of UTC, the first of March one."""
    near = [datetime.datetime(2026, month, 1, tzinfo=UTC) for month in (3, 4)]
    ids = pa.array(["0A000001123418B4AAC2000000000001"] * 2)
    made = [parts["made_at"] for parts in parts_of_msg_ids(ids, pa.array(near), "Europe/Berlin").to_pylist()]
    assert [near - made for near, made in zip(near, made, strict=True)] == [
        datetime.timedelta(hours=1),
        datetime.timedelta(hours=2),
    ]


@pytest.mark.parametrize("name", ["Asia/Shangai", "", "../x", "Asia"])
def test_an_unknown_time_zone_is_refused_at_once(name):
    with pytest.raises(OptionError, match="unknown time zone"):
        msg_id_parts(name)


def test_other_arrays_are_refused():
    ids = pa.array(["0A00000200002A9F000000000001E240"])
    with pytest.raises(rocketpy.InvalidArgumentError, match="1 message ids need as many times, given: 0"):
        parts_of_msg_ids(ids, pa.array([], pa.timestamp("us")))

"""What a batch read plans and reads, without a Spark session: its reader asked directly, real servers."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

import rocketpy
from rocketpy.errors import NotAStoreError
from rocketpy.spark import OptionError
from rocketpy.spark.columns import TYPES
from rocketpy.spark.identity import check_store, store_marks
from rocketpy.spark.options import parse_options
from rocketpy.spark.source import RocketPyDataSource
from rocketpy.testing import fresh_name
from waiting import moment_between

BODIES = [b"message %d" % number for number in range(300)]


def schema_of(*columns):
    types = {"int": "integer", "bigint": "long"}  # without a session, a struct takes the names of JSON
    schema = StructType()
    for column in columns:
        schema = schema.add(column, types.get(TYPES[column], TYPES[column]))
    return schema


def reader_of(options, *columns):
    return RocketPyDataSource(options).reader(schema_of(*columns))


def rows_of(reader):
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_topics_come_by_pattern_and_those_of_the_system_do_not(door, rocketpy_server, send):
    prefix = fresh_name("pattern")
    names = [f"{prefix}-a", f"{prefix}-b", f"{prefix}b"]
    with rocketpy_server.admin() as admin:
        for name in names:
            admin.create_topic(name, queues=3)
    for name in names:
        send(name, BODIES[:3])
    topics = {row["topic"] for row in rows_of(reader_of({**door, "subscribePattern": f"{prefix}-."}, "topic"))}
    assert topics == set(names[:2])
    everything = {row["topic"] for row in rows_of(reader_of({**door, "subscribePattern": ".*"}, "topic"))}
    assert set(names) <= everything
    assert not any(topic.startswith(("%", "rmq_sys_", "RMQ_SYS_")) for topic in everything)


@pytest.mark.parametrize(
    "starts", [{"startingOffsets": {"0": 40, "1": 5}}, {"startingOffsetsByTimestamp": {"0": 0, "1": 0, "2": 0}}]
)
def test_the_commit_of_a_starting_group_wins_over_a_named_start(rocketpy_server, topic, send, starts):
    send(topic, BODIES)
    group = fresh_name("group")
    with rocketpy_server.admin() as admin:
        admin.create_group(group)
        admin.commit_offset(group, rocketpy.MessageQueue(topic, "broker-a", 1), 60)
    options = {"name_server": rocketpy_server.name_server, "topic": topic, "starting_group": group}
    named = {name: json.dumps({topic: offsets}) for name, offsets in starts.items()}
    rows = rows_of(reader_of({**options, **named}, "queue_id", "queue_offset"))
    first = {queue: min(row["queue_offset"] for row in rows if row["queue_id"] == queue) for queue in range(3)}
    assert first == {0: starts.get("startingOffsets", {}).get("0", 0), 1: 60, 2: 0}


def test_queues_are_assigned(door, topic, send):
    send(topic, BODIES)
    rows = rows_of(reader_of({**door, "assign": json.dumps({topic: [0, 2]})}, "queue_id"))
    assert {row["queue_id"] for row in rows} == {0, 2}
    assert len(rows) == 200


def test_partitions_have_at_most_as_many_messages_as_asked(topic, send, rocketpy_server):
    send(topic, BODIES)
    options = {"name_server": rocketpy_server.name_server, "topic": topic, "maxRecordsPerPartition": "30"}
    reader = reader_of(options, "body")
    sizes = [sum(batch.num_rows for batch in reader.read(part)) for part in reader.partitions()]
    assert sum(sizes) == 300
    assert max(sizes) <= 30


def test_a_time_by_queue_and_what_happens_when_no_message_is_that_new(topic, send, rocketpy_server):
    send(topic, BODIES[:150])
    moment_ms = int(moment_between() * 1000)
    send(topic, BODIES[150:])
    base = {"name_server": rocketpy_server.name_server, "topic": topic}
    starts = {topic: {"0": moment_ms, "1": moment_ms}}
    by_queue = {"startingOffsetsByTimestamp": json.dumps(starts)}
    rows = rows_of(reader_of({**base, **by_queue}, "queue_id", "queue_offset"))
    assert [min(row["queue_offset"] for row in rows if row["queue_id"] == queue) for queue in range(3)] == [50, 50, 0]
    ends = {"endingOffsetsByTimestamp": json.dumps(starts)}
    rows = rows_of(reader_of({**base, **ends}, "queue_id", "queue_offset"))
    assert [max(row["queue_offset"] for row in rows if row["queue_id"] == queue) for queue in range(3)] == [49, 49, 99]
    late = {"startingTimestamp": "4102444800000", "startingOffsetsByTimestampStrategy": "error"}
    with pytest.raises(OptionError, match="has no message stored at or after"):
        reader_of({**base, **late}, "body").partitions()
    late["startingOffsetsByTimestampStrategy"] = "latest"
    assert reader_of({**base, **late}, "body").partitions() == []


def test_properties_are_left_out_of_the_default_columns(door, topic):
    assert "properties" in RocketPyDataSource({**door, "topic": topic}).schema()
    assert "properties" not in RocketPyDataSource({**door, "topic": topic, "includeHeaders": "false"}).schema()


def test_a_worker_without_the_folder_or_with_another_store_behind_it_says_so(tmp_path, rocketpy_server_factory):
    topic = fresh_name("identity")
    for name in ("store", "other"):
        server = rocketpy_server_factory(tmp_path / name)
        with server.producer(fresh_name()) as producer:
            producer.send_many([rocketpy.Message(topic, body) for body in BODIES])
        server.stop()
    options = {"path": str(tmp_path / "store"), "topic": topic}
    reader = reader_of(options, "body")
    (part,) = reader.partitions()

    def read():
        return sum(batch.num_rows for batch in reader.read(part))

    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    assert read() == 300
    shutil.move(tmp_path / "store", tmp_path / "gone")
    with pytest.raises(NotAStoreError, match="the store of the driver's plan is missing") as missing:
        read()
    assert "read by name_server" in missing.value.hint
    shutil.move(tmp_path / "other", tmp_path / "store")
    with pytest.raises(NotAStoreError, match="plan is for another store"):
        read()
    shutil.rmtree(tmp_path / "store")
    shutil.move(tmp_path / "copy", tmp_path / "store")
    assert read() == 300, "a copy is the same store"


def test_a_file_that_retention_removes_during_the_check_is_no_other_store(tmp_path, monkeypatch):
    log = tmp_path / "commitlog"
    log.mkdir()
    names = [f"{number * 1000:020}" for number in range(4)]
    for name in names:
        (log / name).write_bytes(b"record of " + name.encode() if name != names[3] else bytes(100))
    options = parse_options({"path": str(tmp_path), "topic": "t"})
    marks = store_marks(options)
    assert list(marks) == names[:2], "the oldest, and the newest full one: the last record is in the third"
    oldest, opened = min(log.iterdir()), Path.open

    def open_too_late(path, *mode):
        if path == oldest:
            path.unlink(missing_ok=True)
        return opened(path, *mode)

    monkeypatch.setattr(Path, "open", open_too_late)
    check_store(options, marks)
    assert not oldest.exists()
    with pytest.raises(NotAStoreError, match="plan is for another store"):
        check_store(options, {**marks, max(marks): b"another record"})


def test_partitions_are_as_many_as_the_cluster_has_cores(topic, rocketpy_server):
    with rocketpy_server.producer(fresh_name()) as producer:
        producer.send_many([rocketpy.Message(topic, bytes(100_000)) for _ in range(120)])
    base = {"name_server": rocketpy_server.name_server, "topic": topic}
    for cores in (3, 7):
        reader = reader_of({**base, "min_partitions": str(cores)}, "body")
        assert len(reader.partitions()) == cores

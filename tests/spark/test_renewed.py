"""Queues that are no longer those that were read: a topic made anew that is longer, a log whose end was lost.

Streams are asked of their readers directly, archives run in the session; the brokers are real. A log that is cut while
its server is stopped stands in for a power cut.
"""

import json
import logging
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

import rocketpy
from rocketpy.errors import OffsetError
from rocketpy.spark import stream
from rocketpy.spark.archive.delta import DeltaArchive
from rocketpy.spark.archive.job import ArchiveFormat, ArchiveJob, ArchiveOptions, check_queues, plan_rows
from rocketpy.spark.archive.manifest import ArchiveError, Manifest
from rocketpy.spark.fingerprint import Fingerprint
from rocketpy.spark.offsets import BatchOffsets
from rocketpy.spark.stream import RocketPyStreamReader
from rocketpy.store import cut
from rocketpy.testing import SMALL_FILES, fresh_name
from waiting import wait_for_files, wait_until

SCHEMA = StructType().add("queue_id", "integer").add("queue_offset", "long").add("body", "binary")
OLD = [b"old %d" % number for number in range(90)]
NEW = [b"new %d" % number for number in range(150)]
LATER = [b"later %d" % number for number in range(30)]
ANOTHER = r"@.*#\d has another message before offset 30 than the one that was read: found one stored .*, expected one"


@pytest.fixture(autouse=True)
def ends_are_asked_for_each_time(monkeypatch):
    """So that no test depends on how soon it looks."""
    monkeypatch.setattr(stream, "ENDS_KEPT_SECONDS", 0)


@pytest.fixture
def reader_by(door, topic):
    """Makes a stream reader, as a query that is started does."""

    def make(**options):
        return RocketPyStreamReader({**door, "topic": topic, "retry_timeout": "0s", **options}, SCHEMA)

    return make


@pytest.fixture
def make_anew(rocketpy_server, topic):
    """Deletes the topic and creates it again."""

    def delete_and_create():
        with rocketpy_server.admin() as admin:
            admin.delete_topic(topic)
            admin.create_topic(topic, queues=3)

    return delete_and_create


def as_kept(offsets):
    """What Spark hands back after a restart."""
    return json.loads(json.dumps(offsets))


def without_previous(offsets):
    """As an older version kept it."""
    return {name: value for name, value in as_kept(offsets).items() if name != "previous"}


def next_end(reader, at):
    return reader.latestOffset(at, reader.getDefaultReadLimit())


def rows_of(reader, end):
    batches = [batch for part in reader.partitions({}, end) for batch in reader.read(part)]
    return sorted(row["body"] for batch in batches for row in batch.to_pylist())


def read_all(reader, at=None):
    """All bodies from an offset on, and the last offset."""
    at, bodies = reader.initialOffset() if at is None else at, []
    while (end := next_end(reader, at)) != at:
        bodies += rows_of(reader, end)
        at = end
    return sorted(bodies), at


def test_a_topic_made_anew_that_is_longer_fails_a_stream(topic, send, reader_by, make_anew):
    send(topic, OLD)
    running = reader_by()
    bodies, end = read_all(running)
    assert bodies == sorted(OLD)
    assert read_all(reader_by(), as_kept(end)) == ([], as_kept(end)), "the same queues are no fault"
    make_anew()
    send(topic, NEW)
    for reader in (running, reader_by()):
        with pytest.raises(OffsetError, match=f"{topic}{ANOTHER}") as refused:
            next_end(reader, as_kept(end))
        assert "fail_on_data_loss=false" in refused.value.hint


def test_a_stream_without_failures_reads_the_new_topic_from_its_beginning_and_says_so(
    topic, send, reader_by, make_anew, caplog
):
    send(topic, OLD)
    running = reader_by(failOnDataLoss="false")
    _, end = read_all(running)
    make_anew()
    send(topic, NEW)
    for reader in (running, reader_by(failOnDataLoss="false", maxOffsetsPerTrigger="40")):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "rocketpy.spark"):
            bodies, last = read_all(reader, as_kept(end))
        assert bodies == sorted(NEW)
        told = [record.args[:3] for record in caplog.records if "may be lost" in record.msg]
        assert sorted(told) == [(queue, 0, 50) for queue in sorted({args[0] for args in told})]
        assert len(told) == 3
    send(topic, LATER)
    assert read_all(running, last)[0] == sorted(LATER)


def test_a_topic_made_anew_that_is_just_as_long_is_noticed_at_a_restart(topic, send, reader_by, make_anew):
    send(topic, OLD)
    _, end = read_all(reader_by())
    make_anew()
    send(topic, NEW[:90])
    with pytest.raises(OffsetError, match=ANOTHER):
        next_end(reader_by(), as_kept(end))
    bodies, last = read_all(reader_by(failOnDataLoss="false"), as_kept(end))
    assert bodies == sorted(NEW[:90])
    assert read_all(reader_by(), last)[0] == []


def test_a_query_that_began_at_the_end_of_a_queue_notices_it_too(topic, send, reader_by, make_anew):
    send(topic, OLD)
    start = reader_by(startingOffsets="latest").initialOffset()
    make_anew()
    send(topic, NEW)
    with pytest.raises(OffsetError, match=ANOTHER):
        next_end(reader_by(), as_kept(start))


def test_a_batch_that_is_repeated_leaves_out_queues_of_a_new_topic(topic, send, reader_by, make_anew, caplog):
    send(topic, OLD)
    end = next_end(first := reader_by(), first.initialOffset())
    make_anew()
    send(topic, NEW)
    with pytest.raises(OffsetError, match=ANOTHER):
        reader_by().partitions({}, as_kept(end))
    lenient = reader_by(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "rocketpy.spark"):
        assert rows_of(lenient, as_kept(end)) == []
    assert caplog.text.count("30 messages of") == 3
    assert read_all(lenient, as_kept(end))[0] == sorted(NEW)


def test_a_batch_that_is_repeated_reads_nothing_of_a_new_topic_that_is_shorter(topic, send, reader_by, make_anew):
    send(topic, OLD)
    end = next_end(first := reader_by(), first.initialOffset())
    make_anew()
    send(topic, NEW[:30])
    lenient = reader_by(failOnDataLoss="false")
    assert rows_of(lenient, as_kept(end)) == []
    assert read_all(lenient, as_kept(end))[0] == sorted(NEW[:30])


def test_a_time_that_no_clock_shows_is_told_as_a_number():
    assert str(Fingerprint(0, 1 << 55)) == "stored at 1970-01-01T00:00:00.000+00:00, born at 36028797018963968 ms"


def test_a_checkpoint_of_an_older_version_goes_on_as_before_and_is_complete_from_then_on(
    topic, send, reader_by, make_anew
):
    send(topic, OLD)
    _, end = read_all(reader_by())
    make_anew()
    send(topic, NEW)
    bodies, last = read_all(reader_by(), without_previous(end))
    assert bodies == sorted(NEW[90:])
    assert [len(queues) for queues in last["previous"][topic].values()] == [3]


def test_a_message_before_that_retention_removed_and_a_clock_that_was_set_back(topic, send, reader_by):
    send(topic, OLD)
    _, end = read_all(reader_by())
    here = BatchOffsets.of_json(end)

    def at(offset, times):
        previous = dict.fromkeys(here.end, times)
        return BatchOffsets(dict.fromkeys(here.end, offset), {}, here.marks, previous).to_json()

    assert len(read_all(reader_by(), at(0, Fingerprint(1, 1)))[0]) == 90, "nothing is before the oldest message"
    in_the_future = at(20, Fingerprint(1 << 41, 1))
    with pytest.raises(OffsetError, match="before offset 20"):
        next_end(reader_by(), in_the_future)
    assert read_all(reader_by(failOnDataLoss="false"), in_the_future)[0] == sorted(OLD)


@pytest.mark.parametrize("door_name", ["path", "name_server"])
def test_a_log_that_lost_its_end_and_has_grown_again(rocketpy_server_factory, tmp_path, door_name):
    """What was stored since is read, and nothing of what is left comes twice."""
    topic, store = fresh_name("cut"), tmp_path / "cut"
    server = rocketpy_server_factory(store)

    def send(bodies):
        with server.producer(fresh_name()) as producer:
            last = producer.send_many([rocketpy.Message(topic, body) for body in bodies])[-1]
        wait_for_files(store, last.queue, last.queue_offset + 1)

    with server.admin() as admin:
        admin.create_topic(topic, queues=1)
    send(OLD)

    def reader(**options):
        address = {"path": str(store)} if door_name == "path" else {"name_server": server.name_server}
        return RocketPyStreamReader({**address, "topic": topic, **options}, SCHEMA)

    bodies, end = read_all(reader())
    assert bodies == sorted(OLD)
    server.stop()
    batches = rocketpy.StoreReader(store).scan(topic, columns=["queue_offset", "physical_offset"])
    places = {row["queue_offset"]: row["physical_offset"] for batch in batches for row in rows(batch)}
    cut(store, places[60], apply=True)
    server.start()
    send(LATER[:10])
    send(LATER[10:])
    send(NEW)
    with pytest.raises(OffsetError, match="has another message before offset 90"):
        next_end(reader(), as_kept(end))
    assert read_all(reader(failOnDataLoss="false"), as_kept(end))[0] == sorted(LATER + NEW)
    repeated = rows_of(reader(failOnDataLoss="false"), as_kept(end))
    assert repeated == sorted(OLD[:60]), "what is left of the batch"


def create_and_send(server, topic, bodies):
    with server.admin() as admin, server.producer(fresh_name()) as producer:
        admin.create_topic(topic, queues=1)
        producer.send_many([rocketpy.Message(topic, body) for body in bodies])


@pytest.mark.parametrize("count", [30, 150], ids=["shorter", "longer"])
def test_a_lost_store_fails_a_stream_or_is_read_from_its_beginning(rocketpy_server_factory, tmp_path, caplog, count):
    """An empty store takes its place, at the same addresses."""
    topic, store = fresh_name("lost"), tmp_path / "lost"
    server = rocketpy_server_factory(store)

    def reader(**options):
        door = {"name_server": server.name_server, "retry_timeout": "0s"}
        return RocketPyStreamReader({**door, "topic": topic, **options}, SCHEMA)

    create_and_send(server, topic, OLD)
    running = reader(failOnDataLoss="false")
    bodies, end = read_all(running)
    assert bodies == sorted(OLD)
    server.stop()
    shutil.rmtree(store)
    server.start()
    create_and_send(server, topic, NEW[:count])
    said = (
        "has another message before offset 90"
        if count > len(OLD)
        else "60 messages of .* are missing, offsets 30 to 90"
    )
    with pytest.raises(OffsetError, match=said):
        next_end(reader(), as_kept(end))
    for lenient in (running, reader(failOnDataLoss="false")):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "rocketpy.spark"):
            assert read_all(lenient, as_kept(end))[0] == sorted(NEW[:count])
        assert "may be lost" in caplog.text


@pytest.mark.parametrize("count", [30, 150], ids=["shorter", "longer"])
def test_an_archive_of_a_lost_store_is_not_continued(spark, rocketpy_server_factory, tmp_path, count):
    topic, store = fresh_name("lost"), tmp_path / "lost"
    server = rocketpy_server_factory(store)

    create_and_send(server, topic, OLD)
    options = ArchiveOptions(str(tmp_path / "out"), (topic,), name_server=server.name_server)
    before = ArchiveJob(spark, options, quiet).run()
    server.stop()
    shutil.rmtree(store)
    server.start()
    create_and_send(server, topic, NEW[:count])
    for refused in (lambda: ArchiveJob(spark, options, quiet).run(), lambda: plan_rows(options)):
        with pytest.raises(OffsetError, match=rf"{topic}@.*#0 "):
            refused()
    assert options.archive().manifest(before.ends) == before


def rows(batch):
    from rocketpy.base.arrow import pyarrow_batch

    return pyarrow_batch(batch).to_pylist()


def quiet(_line):
    pass


@pytest.fixture(params=ArchiveFormat)
def options(request, topic, send, door, tmp_path):
    send(topic, OLD)
    return ArchiveOptions(str(tmp_path / "out"), (topic,), format=request.param, **door)


def archive_as_an_older_version(spark, options):
    """Without the last messages of the queues."""
    with pytest.MonkeyPatch.context() as patch:
        append = DeltaArchive.append
        patch.setattr(DeltaArchive, "append", lambda self, *given: append(self, *given[:3], {}))
        ArchiveJob(spark, options, quiet).run()
    for path in Path(options.out, "_rocketpy").glob("manifest-*.json"):
        path.write_text(json.dumps(without_previous(json.loads(path.read_text()))))


def test_an_archive_of_a_topic_made_anew_is_not_continued(spark, options, topic, send, make_anew):
    before = ArchiveJob(spark, options, quiet).run()
    assert before.previous.keys() == before.ends.keys()
    assert ArchiveJob(spark, options, quiet).run() == before
    make_anew()
    send(topic, NEW)
    for refused in (lambda: ArchiveJob(spark, options, quiet).run(), lambda: plan_rows(options)):
        with pytest.raises(OffsetError, match=ANOTHER) as error:
            refused()
        assert "archive it to another folder" in error.value.hint
    assert options.archive().manifest(before.ends) == before
    assert ArchiveJob(spark, replace(options, out=f"{options.out}-2"), quiet).run().rows == 150


def test_an_archive_of_an_older_version_is_continued_as_before_and_complete_from_then_on(
    spark, options, topic, send, make_anew
):
    archive_as_an_older_version(spark, options)
    make_anew()
    send(topic, NEW)
    manifest = ArchiveJob(spark, options, quiet).run()
    assert manifest.rows == 150, "90 of the former topic, and those behind them of the new one"
    assert manifest.previous.keys() == manifest.ends.keys()
    make_anew()
    send(topic, NEW * 2)
    with pytest.raises(OffsetError, match="has another message before offset 50"):
        ArchiveJob(spark, options, quiet).run()


@pytest.mark.parametrize("format", ArchiveFormat)
def test_an_archive_notices_that_a_queue_of_a_folder_is_gone(
    spark, topic, send, make_anew, rocketpy_server, tmp_path, format
):
    """Over the network the broker of a queue may just be away."""
    send(topic, OLD)
    options = ArchiveOptions(str(tmp_path / "out"), (topic,), path=rocketpy_server.path, format=format)
    archive_as_an_older_version(spark, options)
    make_anew()
    with rocketpy_server.producer(fresh_name()) as producer:
        for queue in producer.queues(topic)[:2]:
            producer.send_many([rocketpy.Message(topic, body) for body in NEW], queue=queue)
            wait_for_files(rocketpy_server.path, queue, len(NEW))
    for refused in (lambda: ArchiveJob(spark, options, quiet).run(), lambda: plan_rows(options)):
        with pytest.raises(OffsetError, match=r"#2 no longer exists, but the archive ends at 30"):
            refused()


def test_an_archive_waits_for_a_queue_that_is_away():
    queue = rocketpy.MessageQueue("t", "b", 0)
    with pytest.raises(ArchiveError, match="queues missing: t@b#0") as away:
        check_queues(ArchiveOptions("out", ("t",), name_server="127.0.0.1:1"), Manifest(), {}, {queue: 5})
    assert away.value.retryable


def test_a_promoted_slave_has_the_messages_that_were_read(tmp_path):
    """What a stream read of a master is the same in its slave: the stream goes on there, and repeats nothing."""
    topic = fresh_name("pair")
    settings = {**SMALL_FILES, "brokerName": "pair", "haListenPort": 0, "slaveTimeout": 60_000}
    with rocketpy.NameServer() as names, ExitStack() as running:

        def broker(folder, **more):
            return rocketpy.Broker(tmp_path / folder, name_servers=names.name_server, settings={**settings, **more})

        def reader():
            return RocketPyStreamReader({"name_server": names.name_server, "topic": topic}, SCHEMA)

        def send(bodies):
            waits = {"retries": 50, "send_timeout": 60, "api_timeout": 60}
            with rocketpy.Producer(fresh_name(), name_servers=names.name_server, **waits) as producer:
                return {one.status for one in producer.send_many([rocketpy.Message(topic, body) for body in bodies])}

        admin = running.enter_context(names.admin())
        with broker("master", brokerRole="SYNC_MASTER"):
            admin.create_topic(topic, queues=1)
            slave = running.enter_context(broker("slave", brokerRole="SLAVE", brokerId=1))
            wait_until(lambda: send([b"first"]) == {rocketpy.SendStatus.SEND_OK}, "the slave follows")
            assert send(OLD) == {rocketpy.SendStatus.SEND_OK}
            _, end = read_all(reader())
        admin.promote(slave.broker)
        wait_until(lambda: [list(one.addresses) for one in admin.brokers()] == [[0]], "the slave is the master")
        send(NEW)
        bodies, at = [], as_kept(end)

        def reads_on():
            nonlocal bodies, at
            more, at = read_all(reader(), at)
            bodies += more
            return len(bodies) >= len(NEW)

        wait_until(reads_on, "the new messages")
        assert sorted(bodies) == sorted(NEW)

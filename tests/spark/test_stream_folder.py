"""What a stream of a folder plans and reads, asked of its reader directly: no Spark session, real brokers beside it.

What it cannot show: a power cut (the reader sees the page cache), and a folder on a network file system.
"""

import json
import logging
import shutil
import threading
from collections import Counter
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql.types import StructType

import rocketpy
from rocketpy.errors import DamagedDataError, NotAStoreError, NotSupportedError, OffsetError
from rocketpy.servers.process import ServerProcess
from rocketpy.spark import OptionError, commit_group_offsets, stream
from rocketpy.spark.stream import RocketPyStreamReader
from rocketpy.testing import fresh_name
from waiting import wait_for_files

SCHEMA = StructType().add("queue_id", "integer").add("queue_offset", "long").add("body", "binary")
SMALL_LOG = {"mappedFileSizeCommitLog": 1 << 20}


@pytest.fixture(autouse=True)
def ends_are_asked_for_each_time(monkeypatch):
    """So that no test depends on how soon it looks."""
    monkeypatch.setattr(stream, "ENDS_KEPT_SECONDS", 0)


def reader_of(path, topic, **options):
    return RocketPyStreamReader({"path": str(path), "topic": topic, "retry_timeout": "0s", **options}, SCHEMA)


def next_batch(reader, at):
    """Its end, and the offsets of its rows, sorted: partitions are in no order."""
    end = reader.latestOffset(at, reader.getDefaultReadLimit())
    parts = [] if end == at else reader.partitions(at, end)
    batches = [batch for part in parts for batch in reader.read(part)]
    return end, sorted(row["queue_offset"] for batch in batches for row in batch.to_pylist())


def fill(server, topic, messages=3000, size=1000):
    """Sends to a topic of one queue and waits for the files."""
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)
    with server.producer(fresh_name()) as producer:
        bodies = [b"message %06d" % number + b"x" * size for number in range(messages)]
        last = producer.send_many([rocketpy.Message(topic, body) for body in bodies])[-1]
    wait_for_files(server.path, last.queue, last.queue_offset + 1)


def test_a_folder_with_another_store_in_it_is_refused_or_read(rocketpy_server_factory, tmp_path, caplog):
    topic = fresh_name("other")
    for name in ("one", "two"):
        fill(server := rocketpy_server_factory(tmp_path / name, settings=SMALL_LOG), topic)
        server.stop()
    folder = tmp_path / "mounted"
    folder.symlink_to(tmp_path / "one")
    reader = reader_of(folder, topic, max_offsets_per_trigger="1000")
    at, rows = next_batch(reader, reader.initialOffset())
    assert rows == list(range(1000))
    planned = reader.partitions({}, at)
    folder.unlink()
    folder.symlink_to(tmp_path / "two")
    with pytest.raises(NotAStoreError, match="plan is for another store"):
        list(reader.read(planned[0]))
    for again in (reader, reader_of(folder, topic)):
        with pytest.raises(NotAStoreError, match="checkpoint is of another store") as refused:
            next_batch(again, at)
        with pytest.raises(NotAStoreError, match="checkpoint is of another store"):
            again.partitions({}, at)
    assert "fail_on_data_loss=false" in refused.value.hint
    lenient = reader_of(folder, topic, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "rocketpy.spark"):
        assert next_batch(lenient, at)[1] == list(range(3000)), "all of it was stored since"
    assert caplog.text.count("checkpoint is of another store") == 1
    shutil.rmtree(tmp_path / "two" / "commitlog")
    with pytest.raises(NotAStoreError, match="the store has no commit log"):
        next_batch(reader, at)


def test_a_checkpoint_of_the_other_door_is_refused(topic, send, rocketpy_server):
    send(topic, [b"a"] * 30)
    over_network = RocketPyStreamReader({"name_server": rocketpy_server.name_server, "topic": topic}, SCHEMA)
    by_path = reader_of(rocketpy_server.path, topic)
    for reader, other in ((over_network, by_path), (by_path, over_network)):
        end, _ = next_batch(other, other.initialOffset())
        with pytest.raises(OffsetError, match="checkpoint is of a stream that reads a") as refused:
            next_batch(reader, end)
        assert "checkpointLocation" in refused.value.hint
    end, _ = next_batch(by_path, by_path.initialOffset())
    progress = SimpleNamespace(sources=[SimpleNamespace(endOffset=json.dumps(end))])
    query = SimpleNamespace(lastProgress=progress)
    with pytest.raises(NotSupportedError, match="its offsets do not contain a broker"):
        commit_group_offsets(query, fresh_name(), rocketpy_server.name_server)


def test_queues_and_options_of_a_folder(topic, send, rocketpy_server):
    """A queue without messages has no files, so it may be named at 0 and at the end, and comes in with its first."""
    empty = json.dumps({topic: {"0": -1, "1": 0, "2": 0}})
    reader = reader_of(rocketpy_server.path, topic, startingOffsets=empty)
    start = reader.initialOffset()
    assert start["offsets"] == {}
    send(topic, [b"a"] * 30)
    at, rows = next_batch(reader, start)
    assert Counter(rows) == dict.fromkeys(range(10), 3)
    assert at["offsets"] == {topic: {"": {"0": 10, "1": 10, "2": 10}}}
    goes_on = reader_of(rocketpy_server.path, topic, startingOffsets=json.dumps(at["offsets"]))
    assert next_batch(goes_on, goes_on.initialOffset())[1] == []
    for options, said in (
        ({"startingOffsets": json.dumps({topic: {"7": 5}})}, "has no queue: 7"),
        ({"startingOffsets": json.dumps({topic: {"b": {"0": 5}}})}, "does not contain the name of its broker"),
        ({"progressGroup": "g"}, "progress_group is valid only with the name_server"),
        ({"startingGroup": "g"}, "starting_group is valid only with the name_server"),
    ):
        with pytest.raises(OptionError, match=said):
            reader_of(rocketpy_server.path, topic, **options).initialOffset()
    with pytest.raises(OffsetError, match="not there yet"):
        reader_of(rocketpy_server.path, topic, startingOffsets=json.dumps({topic: {"0": 11}})).initialOffset()
    with pytest.raises(OptionError, match="no topic matches topic_pattern"):
        RocketPyStreamReader({"path": str(rocketpy_server.path), "topicPattern": "nowhere"}, SCHEMA).initialOffset()


def test_what_retention_removed_fails_or_is_told_of(rocketpy_server_factory, tmp_path, caplog):
    topic = fresh_name("gone")
    fill(server := rocketpy_server_factory(tmp_path / "gone", settings=SMALL_LOG), topic)
    server.stop()
    strict, lenient = (reader_of(server.path, topic, failOnDataLoss=fails) for fails in ("true", "false"))
    start = strict.initialOffset()
    end, rows = next_batch(strict, start)
    assert len(rows) == 3000
    min(Path(server.path, "commitlog").iterdir()).unlink()
    with pytest.raises(OffsetError, match="removed by retention"):
        next_batch(strict, start)
    with pytest.raises(OffsetError, match=r"are not there|are missing"):
        strict.partitions({}, end)
    with caplog.at_level(logging.WARNING, "rocketpy.spark"):
        _, left = next_batch(lenient, start)
        repeated = [batch for part in lenient.partitions({}, end) for batch in lenient.read(part)]
    assert 0 < left[0] == 3000 - len(left)
    assert sum(batch.num_rows for batch in repeated) == len(left)
    told = [record.args[0] for record in caplog.records if "left out" in record.msg]
    assert told == [left[0], left[0]]
    assert "no longer there when the batch was planned" in caplog.text


def test_damage_fails_or_is_told_of_and_lost_files_of_queues_are_named(rocketpy_server_factory, tmp_path, caplog):
    topic = fresh_name("damage")
    fill(server := rocketpy_server_factory(tmp_path / "damaged", settings=SMALL_LOG), topic, 100)
    server.stop()
    log = min(Path(server.path, "commitlog").iterdir())
    log.write_bytes(log.read_bytes().replace(b"message 000050", b"MESSAGE 000050"))
    strict, lenient = (reader_of(server.path, topic, failOnDataLoss=fails) for fails in ("true", "false"))
    start = strict.initialOffset()
    with pytest.raises(DamagedDataError, match="checksum"):
        next_batch(strict, start)
    with caplog.at_level(logging.WARNING, "rocketpy.spark"):
        assert next_batch(lenient, start)[1] == [*range(50), *range(51, 100)]
    assert [record.args[:4] for record in caplog.records] == [(1, caplog.records[0].args[1], 50, 51)]
    shutil.rmtree(next(Path(server.path, "consumequeue", topic).iterdir()))
    with pytest.raises(DamagedDataError, match="the store was closed with"):
        strict.latestOffset(start, strict.getDefaultReadLimit())


def test_a_stream_beside_its_broker_gets_each_message_once(rocketpy_server_factory, tmp_path):
    topic = fresh_name("beside")
    server = rocketpy_server_factory(tmp_path / "beside", settings={**SMALL_LOG, "flushDiskType": "SYNC_FLUSH"})
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)
        (queue,) = admin.queues(topic)
    over = threading.Event()
    sent = []

    def send() -> None:
        with server.producer(fresh_name()) as producer:
            for number in count():
                sent.extend(producer.send_many([rocketpy.Message(topic, b"x" * 5000 + b"%d" % number)] * 50))
                if over.is_set():
                    return

    sender = threading.Thread(target=send)
    sender.start()
    reader = reader_of(server.path, topic)
    at, seen = reader.initialOffset(), []
    while len(seen) < 3000 or sender.is_alive():
        at, rows = next_batch(reader, at)
        seen += rows
        if len(seen) >= 3000:
            over.set()
    wait_for_files(server.path, queue, len(sent))
    seen += next_batch(reader, at)[1]
    assert seen == list(range(len(sent)))
    assert len(list(Path(server.path, "commitlog").iterdir())) > 10, "the log rolled meanwhile"


def test_kills_and_restarts_of_the_broker_lose_and_repeat_nothing(tmp_path):
    topic = fresh_name("killed")
    seen, sent = [], 0
    with ServerProcess(tmp_path / "store", "mappedFileSizeCommitLog=1048576") as server:
        with rocketpy.Admin(server.name_server) as admin:
            admin.create_topic(topic, queues=1)
        reader, at = reader_of(server.store, topic, retry_timeout="1h"), None
        for _ in range(4):
            with rocketpy.Producer(fresh_name(), name_servers=server.name_server, retries=50) as producer:
                for _ in range(10):
                    sent += len(producer.send_many([rocketpy.Message(topic, b"x" * 3000)] * 20))
            server.kill()
            if at is None:
                at = reader.initialOffset()
            launched = threading.Thread(target=server.start)
            launched.start()
            while len(seen) < sent or launched.is_alive():
                at, rows = next_batch(reader, at)
                seen += rows
            launched.join()
    assert seen == list(range(sent))

"""What a stream plans, asked of its reader directly: no Spark session, a real broker."""

import json
import logging
import threading

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType
from wire import peer_that_passes_over

import rocketpy
from faulty_network import FaultyNetwork
from rocketpy.errors import DamagedDataError, OffsetError
from rocketpy.message import MessageQueue
from rocketpy.spark import OptionError, stream
from rocketpy.spark.budget import messages_to_take
from rocketpy.spark.offsets import BatchOffsets
from rocketpy.spark.options import parse_options
from rocketpy.spark.part import QueuePart
from rocketpy.spark.pull import read_part
from rocketpy.spark.stream import RocketPyStreamReader
from rocketpy.testing import fresh_name
from waiting import moment_between, wait_for_files, wait_until

SCHEMA = StructType().add("queue_id", "integer").add("queue_offset", "long").add("body", "binary")
BODIES = [b"message %d" % number for number in range(300)]


@pytest.fixture(autouse=True)
def ends_are_asked_for_each_time(monkeypatch):
    """So that no test depends on how soon it looks."""
    monkeypatch.setattr(stream, "ENDS_KEPT_SECONDS", 0)


@pytest.fixture
def reader_of(rocketpy_server):
    """Makes the stream reader of a topic."""

    def make(topic, server=rocketpy_server, **options):
        return RocketPyStreamReader({"name_server": server.name_server, "topic": topic, **options}, SCHEMA)

    return make


@pytest.fixture(params=["name_server", "path"])
def reader_by(request, rocketpy_server):
    """Makes the stream reader of a topic by one of the two doors."""

    def make(topic, **options):
        return RocketPyStreamReader({make.door: make.address, "topic": topic, **options}, SCHEMA)

    make.door, make.address = request.param, str(getattr(rocketpy_server, request.param))
    return make


def rows_of(reader, end):
    batches = (batch for part in reader.partitions({}, end) for batch in reader.read(part))
    return [(row["queue_id"], row["queue_offset"], row["body"]) for batch in batches for row in batch.to_pylist()]


def batches_from(reader, start=None):
    """The rows of each batch until there is nothing left, and the last offset."""
    at = reader.initialOffset() if start is None else start
    batches = []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        batches.append(rows_of(reader, end))
        at = end
    return batches, at


def bodies_of(batches):
    return sorted((body for rows in batches for _, _, body in rows), key=lambda body: int(body.split()[1]))


def test_a_batch_has_at_most_as_many_messages_as_asked_and_each_comes_once(topic, send, reader_by):
    send(topic, BODIES)
    reader = reader_by(topic, maxOffsetsPerTrigger="40")
    assert reader.getDefaultReadLimit() == ReadMaxRows(40)
    batches, end = batches_from(reader)
    assert [len(rows) for rows in batches] == [40] * 7 + [20]
    assert bodies_of(batches) == BODIES
    assert reader.reportLatestOffset()["offsets"] == end["offsets"]
    start = reader.initialOffset()
    assert len(rows_of(reader, reader.latestOffset(start, ReadAllAvailable()))) == 300, "a query that runs once"


def test_a_batch_has_about_as_many_bytes_as_asked(topic, rocketpy_server, reader_by):
    with rocketpy_server.producer(fresh_name()) as producer:
        small, large, _ = producer.queues(topic)
        producer.send_many([rocketpy.Message(topic, b"s" * 100) for _ in range(2000)], queue=small)
        producer.send_many([rocketpy.Message(topic, bytes(50_000)) for _ in range(40)], queue=large)
    wait_for_files(rocketpy_server.path, small, 2000)
    wait_for_files(rocketpy_server.path, large, 40)
    reader = reader_by(topic, maxBytesPerTrigger="256k")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(256 << 10)
    batches, _ = batches_from(reader)
    sizes = [sum(len(body) + 200 for _, _, body in rows) for rows in batches]
    assert sum(len(rows) for rows in batches) == 2040
    assert max(sizes) < 300 << 10
    assert len(batches) < 15


def test_limits_are_shared_out_and_a_single_message_larger_than_them_still_comes():
    queues = [MessageQueue("t", "b", number) for number in range(5)]
    sizes = dict.fromkeys(queues, 1000)
    one = messages_to_take(dict.fromkeys(queues, 10), sizes, max_messages=None, max_bytes=10)
    assert sum(one.values()) == 1
    two = [
        messages_to_take(dict.fromkeys(queues, 10), sizes, max_messages=2, max_bytes=1 << 30, turn=t) for t in (0, 2)
    ]
    assert [list(taken.values()) for taken in two] == [[1, 1], [1, 1]]
    assert two[0].keys() != two[1].keys(), "all queues have their turn"
    assert messages_to_take({queues[0]: 0}, {}, max_messages=1, max_bytes=1) == {}


def test_a_batch_waits_for_enough_messages_but_not_longer_than_the_delay(topic, send, reader_by):
    send(topic, BODIES[:10])
    patient = reader_by(topic, minOffsetsPerTrigger="11", maxTriggerDelay="1h")
    start = patient.initialOffset()
    assert patient.latestOffset(start, patient.getDefaultReadLimit()) is start
    hasty = reader_by(topic, minOffsetsPerTrigger="11", maxTriggerDelay="0s")
    assert len(rows_of(hasty, hasty.latestOffset(start, hasty.getDefaultReadLimit()))) == 10
    patient.prepareForTriggerAvailableNow()
    assert patient.latestOffset(start, patient.getDefaultReadLimit()) != start, "available now does not wait"
    waiting = reader_by(topic, minOffsetsPerTrigger="11", maxTriggerDelay="1h")
    send(topic, BODIES[:1])
    assert len(rows_of(waiting, waiting.latestOffset(start, waiting.getDefaultReadLimit()))) == 11


def test_available_now_ends_at_what_was_there(topic, send, reader_by, rocketpy_server):
    send(topic, BODIES[:100])
    reader = reader_by(topic, maxOffsetsPerTrigger="30")
    reader.prepareForTriggerAvailableNow()
    send(topic, BODIES[100:])
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=4)
    with rocketpy_server.producer(fresh_name()) as producer:
        last = MessageQueue(topic, "broker-a", 3)
        producer.send(rocketpy.Message(topic, b"message 300"), queue=last)
    wait_for_files(rocketpy_server.path, last, 1)
    batches, end = batches_from(reader)
    assert bodies_of(batches) == BODIES[:100]
    rest, _ = batches_from(reader_by(topic), end)
    assert bodies_of(rest) == [*BODIES[100:], b"message 300"]


def test_a_stream_waits_for_its_broker_without_holding_the_query_up(tmp_path, rocketpy_server_factory, reader_of):
    topic = fresh_name("away")
    server = rocketpy_server_factory(tmp_path / "away")
    with server.producer(fresh_name()) as producer:
        producer.send_many([rocketpy.Message(topic, body) for body in BODIES])
    available_now = reader_of(topic, server)
    start = available_now.initialOffset()
    available_now.prepareForTriggerAvailableNow()
    running, impatient = reader_of(topic, server), reader_of(topic, server, retryTimeout="0s")
    server.stop()
    limit = running.getDefaultReadLimit()
    assert running.latestOffset(start, limit) is start
    with pytest.raises(rocketpy.RocketPyError):
        impatient.latestOffset(start, limit)
    restart = threading.Timer(1, server.start)
    restart.start()
    end = available_now.latestOffset(start, limit)  # "nothing new" would end the query
    restart.join()
    assert bodies_of([rows_of(available_now, end)]) == BODIES
    wait_until(lambda: running.latestOffset(start, limit) != start)


def test_a_topic_that_is_not_there_is_an_error_at_once(reader_by):
    with pytest.raises(rocketpy.TopicNotFoundError, match="nowhere"):
        reader_by("nowhere").initialOffset()


def test_a_first_batch_that_is_repeated_begins_where_it_began(topic, send, reader_by):
    send(topic, BODIES[:100])
    reader = reader_by(topic, starting_offsets="latest")
    start = reader.initialOffset()
    send(topic, BODIES[100:200])
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    send(topic, BODIES[200:])
    again = reader_by(topic, starting_offsets="latest")
    assert again.initialOffset() != start, "Spark asks for it again, and gets another"
    replayed = [rows for part in again.partitions(again.initialOffset(), end) for rows in again.read(part)]
    assert sum(batch.num_rows for batch in replayed) == 100
    assert bodies_of([rows_of(again, end)]) == BODIES[100:200]


def test_a_stream_starts_at_a_time_or_at_offsets(topic, send, reader_by):
    send(topic, BODIES[:150])
    moment = moment_between()
    send(topic, BODIES[150:])
    assert bodies_of(batches_from(reader_by(topic, startingTime=str(moment)))[0]) == BODIES[150:]
    assert batches_from(reader_by(topic, startingTime="2100-01-01"))[0] == []
    offsets = json.dumps({topic: {"0": 40, "1": -1}})
    rows = [row for rows in batches_from(reader_by(topic, startingOffsets=offsets))[0] for row in rows]
    assert sorted({queue for queue, _, _ in rows}) == [0, 2]
    assert min(offset for queue, offset, _ in rows if queue == 0) == 40
    assigned = json.dumps({topic: [1]})
    reader = RocketPyStreamReader({reader_by.door: reader_by.address, "assign": assigned}, SCHEMA)
    assert {queue for rows in batches_from(reader)[0] for queue, _, _ in rows} == {1}


def test_a_stream_starts_where_a_group_is(topic, send, reader_of, rocketpy_server):
    send(topic, BODIES)
    group = fresh_name("group")
    queue = MessageQueue(topic, "broker-a", 1)
    with rocketpy_server.admin() as admin:
        admin.create_group(group)
    with rocketpy.Consumer.assign(group, [queue], name_servers=rocketpy_server.name_servers) as consumer:
        consumer.seek(queue, 60)
        consumer.commit_offsets({queue: 60})
    named = json.dumps({topic: {"0": 40, "1": 5, "2": -1}})  # the commit wins in its queue
    for default, others in (("latest", set()), ("earliest", {0, 2}), (named, {0})):
        reader = reader_of(topic, startingGroup=group, startingOffsets=default)
        rows = [row for rows in batches_from(reader)[0] for row in rows]
        assert {queue for queue, _, _ in rows} == others | {1}
        assert min(offset for queue, offset, _ in rows if queue == 1) == 60
        if default == named:
            assert min(offset for queue, offset, _ in rows if queue == 0) == 40


def test_new_queues_and_new_brokers_come_in_while_it_runs(tmp_path, reader_of):
    topic = fresh_name("growing")
    with (
        rocketpy.NameServer() as names,
        rocketpy.Broker(tmp_path / "a", name_servers=names.name_server, settings={"brokerName": "broker-a"}) as first,
        first.admin() as admin,
    ):
        admin.create_topic(topic, queues=1)
        reader = reader_of(topic, names)
        at = reader.initialOffset()
        sent = 0

        def batch_after_sending(queue):
            nonlocal at, sent
            with rocketpy.Producer(fresh_name(), name_servers=names.name_server) as producer:
                producer.send(rocketpy.Message(topic, b"message %d" % sent), queue=queue)
            sent += 1
            limit = reader.getDefaultReadLimit()
            wait_until(lambda: reader.latestOffset(at, limit) != at)
            at = reader.latestOffset(at, limit)
            return [body for _, _, body in rows_of(reader, at)]

        assert batch_after_sending(MessageQueue(topic, "broker-a", 0)) == [b"message 0"]
        admin.create_topic(topic, queues=2)
        assert batch_after_sending(MessageQueue(topic, "broker-a", 1)) == [b"message 1"]
        with rocketpy.Broker(tmp_path / "b", name_servers=names.name_server, settings={"brokerName": "broker-b"}):
            admin.create_topic(topic, queues=2, broker="broker-b")
            assert batch_after_sending(MessageQueue(topic, "broker-b", 0)) == [b"message 2"]


def test_new_topics_of_a_pattern_come_in_while_it_runs(rocketpy_server, send, reader_by):
    prefix = fresh_name("pattern")
    reader = RocketPyStreamReader({reader_by.door: reader_by.address, "topicPattern": f"{prefix}.*"}, SCHEMA)
    at = None
    for name in (f"{prefix}-a", f"{prefix}-b"):
        with rocketpy_server.admin() as admin:
            admin.create_topic(name, queues=3)
        send(name, BODIES[:10])
        start = at or reader.initialOffset()
        wait_until(lambda start=start: reader.latestOffset(start, reader.getDefaultReadLimit()) != start)
        batches, at = batches_from(reader, start)
        assert bodies_of(batches) == BODIES[:10]


def test_a_checkpoint_whose_messages_are_gone_fails_or_goes_on_with_what_was_stored_since(
    topic, send, reader_by, rocketpy_server, caplog
):
    send(topic, BODIES[:90])
    _, end = batches_from(reader_by(topic))
    with rocketpy_server.admin() as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, queues=3)
    send(topic, BODIES[:30])
    strict = reader_by(topic, retryTimeout="0s")
    with pytest.raises(OffsetError, match="the topic was made anew") as lost:
        strict.latestOffset(end, strict.getDefaultReadLimit())
    assert "fail_on_data_loss=false" in lost.value.hint
    patient = reader_by(topic, retryTimeout="1h")
    assert patient.latestOffset(end, patient.getDefaultReadLimit()) is end, "a slave may be behind its dead master"
    lenient = reader_by(topic, failOnDataLoss="false", retryTimeout="0s")
    with caplog.at_level(logging.WARNING, "rocketpy.spark"):
        moved = lenient.latestOffset(end, lenient.getDefaultReadLimit())
    assert bodies_of([rows_of(lenient, moved)]) == BODIES[:30]
    assert caplog.text.count("20 messages of") == 3
    assert caplog.text.count("reading offsets 0 to 10, stored since then") == 3
    send(topic, BODIES[30:60])
    assert bodies_of(batches_from(lenient, moved)[0]) == BODIES[30:60]


def test_progress_is_committed_to_a_group(topic, send, reader_of, rocketpy_server):
    send(topic, BODIES)
    group = fresh_name("progress")
    reader = reader_of(topic, progressGroup=group, maxOffsetsPerTrigger="150")
    start = reader.initialOffset()
    half = reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.commit(half)
    with rocketpy_server.admin() as admin:
        assert sum(queue.lag for queue in admin.group_lag(group)) == 150
        reader.commit(reader.latestOffset(half, reader.getDefaultReadLimit()))
        assert sum(queue.lag for queue in admin.group_lag(group)) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "ending_offsets is valid only with spark.read"),
        ({"endingTime": "-1m"}, "ending_time is valid only with spark.read"),
        ({"maxTriggerDelay": "soon"}, "must be a duration"),
        ({"client.timeout": "3s"}, "unknown option: client.timeout"),
        ({"columns": "body"}, "the schema and the option columns differ"),
        ({"startingOffsets": '{"TOPIC": {"9": 1}}'}, "has no queue: 9"),
    ],
)
def test_options_that_make_no_sense_for_a_stream_are_refused_when_it_starts(topic, reader_of, options, said):
    given = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(OptionError, match=said):
        reader_of(topic, **given).initialOffset()


def test_offsets_of_another_source_or_version_are_not_taken():
    with pytest.raises(OffsetError, match="checkpoint holds no offsets"):
        BatchOffsets.of_json({"v": 2, "offsets": {}, "from": {}})
    assert BatchOffsets.of_text('{"topic": {"0": 3}}') is None
    assert BatchOffsets.of_text(None) is None
    assert BatchOffsets.of_text("[" * 100_000) is None


def batch_options(server, topic, **options):
    return parse_options({"name_server": server.name_server, "topic": topic, **options})


def test_damage_over_the_network_is_passed_over_message_by_message_and_told_of(
    tmp_path, rocketpy_server_factory, caplog
):
    topic = fresh_name("damaged")
    server = rocketpy_server_factory(tmp_path / "damaged")
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)
    with server.producer(fresh_name()) as producer:
        producer.send_many([rocketpy.Message(topic, b"message %06d" % number + b"x" * 300) for number in range(3000)])
    queue = MessageQueue(topic, "broker-a", 0)
    wait_for_files(tmp_path / "damaged", queue, 3000)
    log = min((tmp_path / "damaged" / "commitlog").iterdir())
    content = log.read_bytes()
    damaged = [0, 700, *range(1500, 1520), 2999]
    with log.open("r+b") as file:
        for number in damaged:
            file.seek(content.index(b"message %06d" % number))
            file.write(b"MESSAGE")
        unreadable = 2000
        file.seek(content.rindex(b"\xda\xa3\x20\xa7", 0, content.index(b"message %06d" % unreadable)) - 4)
        file.write(bytes(12))
    part = QueuePart(queue, 0, 3000, 1 << 20)
    with pytest.raises(DamagedDataError):
        list(read_part(batch_options(server, topic), ["body"], part))
    reading = read_part(batch_options(server, topic), [], QueuePart(queue, 1, 1000, 1 << 20), groupings=[["topic"]])
    assert sum(next(reading).column("messages").to_pylist()) == 699, (
        "what was read before the damage comes before the error"
    )
    with pytest.raises(DamagedDataError):
        next(reading)
    lenient = batch_options(server, topic, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "rocketpy.spark"):
        batches = list(read_part(lenient, ["queue_offset"], part))
        sums = list(read_part(lenient, [], part, groupings=[["topic"]]))
    read = [offset for batch in batches for offset in batch.column(0).to_pylist()]
    assert read == sorted(set(range(3000)) - {*damaged, unreadable})
    assert sum(count for batch in sums for count in batch.column("messages").to_pylist()) == len(read)
    told = [record.args[:4] for record in caplog.records if "left out" in record.msg]
    name = str(queue)
    assert told == 2 * [
        (1, name, 0, 1),
        (1, name, 700, 701),
        (20, name, 1500, 1520),
        (1, name, 2000, 2001),
        (1, name, 2999, 3000),
    ]


def test_messages_that_a_broker_passes_over_fail_or_are_told_of(tmp_path, rocketpy_server_factory, caplog):
    server = rocketpy_server_factory(tmp_path / "store")
    with peer_that_passes_over(server, "gaps", {3, 4, 9}) as peer:
        queue = MessageQueue("gaps", "b", 0)

        def read(**options):
            given = parse_options({"name_server": peer.address, "topic": "gaps", **options})
            batches = read_part(given, ["queue_offset"], QueuePart(queue, 0, 10, 1 << 20))
            return [offset for batch in batches for offset in batch.column(0).to_pylist()]

        with pytest.raises(OffsetError, match=r"2 messages of .* are missing, offsets 3 to 5"):
            read()
        with caplog.at_level(logging.WARNING, "rocketpy.spark"):
            assert read(failOnDataLoss="false") == [0, 1, 2, 5, 6, 7, 8]
    told = [record.args for record in caplog.records if "left out" in record.msg]
    said = "the broker passed over them"
    assert told == [(2, str(queue), 3, 5, said), (1, str(queue), 9, 10, said)]


def test_what_lies_behind_the_end_of_a_queue_is_left_out_at_once(tmp_path, rocketpy_server_factory, caplog):
    topic = fresh_name("short")
    server = rocketpy_server_factory(tmp_path / "short")
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)
    with server.producer(fresh_name()) as producer:
        producer.send_many([rocketpy.Message(topic, b"message %06d" % number) for number in range(100)])
    queue = MessageQueue(topic, "broker-a", 0)
    lenient = batch_options(server, topic, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "rocketpy.spark"):
        batches = list(read_part(lenient, ["queue_offset"], QueuePart(queue, 0, 1_000_000, 1 << 20)))
    assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == list(range(100))
    told = [record.args for record in caplog.records if "left out" in record.msg]
    assert told == [(999_900, str(queue), 100, 1_000_000, "after the end of the queue")]


def test_a_read_outlasts_a_restart_of_its_broker(tmp_path, rocketpy_server_factory):
    topic = fresh_name("restarted")
    server = rocketpy_server_factory(tmp_path / "restarted")
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)
    with server.producer(fresh_name()) as producer:
        producer.send_many([rocketpy.Message(topic, b"message %d" % number + b"x" * 2000) for number in range(5000)])
    part = QueuePart(MessageQueue(topic, "broker-a", 0), 0, 5000, 10 << 20)
    reading = read_part(batch_options(server, topic, **{"client.api_timeout": "1s"}), ["queue_offset", "body"], part)
    read = next(reading).column(0).to_pylist()
    assert len(read) < 2000
    server.stop()
    restart = threading.Timer(3, server.start)  # while the reader tries
    restart.start()
    for batch in reading:
        read += batch.column(0).to_pylist()
    restart.join()
    assert read == list(range(5000))
    impatient = batch_options(server, topic, retry_timeout="0s")
    reading = read_part(impatient, ["queue_offset", "body"], part)
    next(reading)
    server.stop()
    with pytest.raises(rocketpy.RocketPyError):
        list(reading)


def test_all_readers_of_a_process_share_a_connection(tmp_path, rocketpy_server_factory):
    server = rocketpy_server_factory(tmp_path / "shared")
    topic = fresh_name("shared")
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)
    with server.producer(fresh_name()) as producer:
        producer.send_many([rocketpy.Message(topic, b"%d" % number) for number in range(100)])
    with FaultyNetwork(int(server.name_server.rpartition(":")[2])) as network:
        options = parse_options({"name_server": f"127.0.0.1:{network.port}", "topic": topic})
        for start in range(0, 40, 10):
            list(read_part(options, ["body"], QueuePart(MessageQueue(topic, "broker-a", 0), start, start + 10, 1)))
        assert network.connections == 1

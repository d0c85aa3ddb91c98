"""Messages as Arrow columns, from a consumer."""

import sys

import pyarrow
import pyarrow.compute
import pytest
from wire import OK, SEND, SEND_MESSAGE, Raw, request

import rocketpy
from rocketpy import Message, Start
from rocketpy.testing import fresh_name


@pytest.fixture
def filled(producer, rocketpy_topic):
    producer.send_many([Message(rocketpy_topic, b"%d" % n, tag="abc"[n % 3], keys=["k", str(n)]) for n in range(2000)])
    return rocketpy_topic


def fetch_all(consumer, count, **arguments):
    batches = []
    while sum(batch.num_rows for batch in batches) < count:
        batch = consumer.fetch_arrow(timeout=60, **arguments)
        assert batch.num_rows
        batches.append(batch)
    return pyarrow.Table.from_batches(batches)


def test_messages_come_as_columns(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        table = fetch_all(consumer, 2000)
        assert consumer.fetch_arrow(timeout=0.1).num_rows == 0
    assert sorted(int(body) for body in table["body"].to_pylist()) == list(range(2000))
    row = {name: table[name][0].as_py() for name in table.column_names}
    number = int(row["body"])
    assert (row["topic"], row["broker_name"], row["tag"], row["keys"]) == (
        filled,
        "broker-a",
        "abc"[number % 3],
        f"k {number}",
    )
    assert dict(row["properties"])["UNIQ_KEY"] == row["msg_id"]
    assert row["reconsume_times"] == 0
    for queue_id in range(4):
        mine = table.filter(pyarrow.compute.equal(table["queue_id"], queue_id))
        assert mine["queue_offset"].to_pylist() == list(range(len(mine)))


def test_columns_and_objects_are_the_same_messages(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        table = fetch_all(consumer, 2000)
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        messages = []
        while len(messages) < 2000:
            messages += consumer.poll(timeout=60)
    rows = {row["msg_id"]: row for row in table.to_pylist()}
    for message in messages:
        row = rows[message.msg_id]
        assert (row["queue_id"], row["queue_offset"]) == (message.queue_id, message.queue_offset)
        assert (row["body"], row["tag"], row["keys"].split(" ")) == (message.body, message.tag, list(message.keys))
        assert (row["born_at"], row["stored_at"]) == (message.born_at, message.stored_at)
        assert dict(row["properties"]) == message.properties


def test_rows_are_bounded_and_columns_chosen(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        batch = consumer.fetch_arrow(max_rows=7, timeout=60, columns=["body", "offset_msg_id", "tag"])
    assert 0 < batch.num_rows <= 7
    assert batch.schema.names == ["body", "offset_msg_id", "tag"]


def test_what_is_still_read_of_a_batch_is_not_written_over_by_later_ones(rocketpy_server, filled):
    kept, expected, read = [], [], 0
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        while read < 2000:
            batch = consumer.fetch_arrow(max_rows=100, timeout=60)
            read += batch.num_rows
            part = [batch, batch.column("body").slice(1), batch.column("properties"), None][len(kept) % 4]
            kept.append(part)
            expected.append(part and part.to_pylist())
            del batch, part
    assert [part and part.to_pylist() for part in kept] == expected


def test_a_commit_covers_what_was_fetched(rocketpy_server, filled):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as consumer:
        first = fetch_all(consumer, 500, max_rows=250).num_rows
        consumer.commit()
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as consumer:
        fetch_all(consumer, 2000 - first)
        assert consumer.fetch_arrow(timeout=0.2).num_rows == 0


def test_compressed_bodies_are_decompressed(rocketpy_server, rocketpy_topic):
    body = b"all work and no play " * 1000
    with rocketpy_server.producer("compress", compression="zstd") as producer:
        producer.send(Message(rocketpy_topic, body))
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic, start=Start.EARLIEST) as consumer:
        assert consumer.fetch_arrow(timeout=60)["body"].to_pylist() == [body]


def send_ten(producer, broker, topic):
    """Sends ten messages to one queue, the fourth of which says that it is compressed and is not."""
    queue = producer.queues(topic)[0]
    with Raw(broker) as raw:
        for n in range(10):
            if n == 3:
                fields = {**SEND, "topic": topic, "queueId": "0", "sysFlag": "1"}
                assert raw.answer(request(SEND_MESSAGE, fields, b"not compressed"))["code"] == OK
            else:
                producer.send(Message(topic, b"%d" % n), queue=queue)
    return queue


@pytest.fixture
def damaged(rocketpy_server, producer, rocketpy_topic):
    return send_ten(producer, rocketpy_server.broker, rocketpy_topic)


def test_a_body_that_does_not_decompress_loses_no_other_message(rocketpy_server, damaged):
    with rocketpy_server.consumer(fresh_name(), damaged.topic, start=Start.EARLIEST) as consumer:
        before = fetch_all(consumer, 3)
        assert before["queue_offset"].to_pylist() == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(rocketpy.DamagedDataError, match="the body of message 3 at") as error:
                consumer.fetch_arrow(timeout=60)
            assert damaged.topic in str(error.value)
            assert error.value.hint == "seek to 4 to skip it"
        assert fetch_all(consumer, 1, columns=["queue_offset"])["queue_offset"][0].as_py() == 3
        consumer.seek(damaged, 4)
        assert fetch_all(consumer, 6)["queue_offset"].to_pylist() == [4, 5, 6, 7, 8, 9]


def test_what_was_not_fetched_goes_back_without_asking_the_broker(stoppable):
    names, topic = {"name_servers": stoppable.name_server, "api_timeout": 30}, fresh_name()
    with rocketpy.Admin(**names) as admin, rocketpy.Producer(fresh_name(), send_timeout=60, **names) as producer:
        admin.create_topic(topic, queues=1)
        send_ten(producer, admin.brokers()[0].addresses[0], topic)
        with rocketpy.Consumer(fresh_name(), topic, start=Start.EARLIEST, **names) as consumer:
            assert consumer.fetch_arrow(max_rows=1, timeout=60)["queue_offset"].to_pylist() == [0]
            stoppable.freeze()
            assert consumer.fetch_arrow(timeout=60)["queue_offset"].to_pylist() == [1, 2]
            assert list(consumer.positions().values()) == [3]
            stoppable.thaw()
            with pytest.raises(rocketpy.DamagedDataError, match="does not decompress"):
                consumer.fetch_arrow(timeout=60)


def test_only_the_damaged_body_fails_among_objects(rocketpy_server, damaged):
    with rocketpy_server.consumer(fresh_name(), damaged.topic, start=Start.EARLIEST) as consumer:
        before = []
        while len(before) < 3:
            before += consumer.poll(timeout=60)
        for _ in range(2):
            with pytest.raises(rocketpy.DamagedDataError, match="does not decompress"):
                consumer.poll(timeout=60)
        consumer.seek(damaged, 4)
        behind = []
        while len(behind) < 6:
            behind += consumer.poll(timeout=60)
    assert [int(message.body) for message in before + behind] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"max_rows": 0}, rocketpy.InvalidArgumentError),
        ({"max_rows": "1"}, TypeError),
        ({"columns": ["nothing"]}, rocketpy.InvalidArgumentError),
        ({"timeout": -1}, rocketpy.InvalidArgumentError),
    ],
)
def test_bad_arguments_are_refused(rocketpy_server, filled, arguments, kind):
    with rocketpy_server.consumer(fresh_name(), filled) as consumer, pytest.raises(kind):
        consumer.fetch_arrow(**arguments)


def test_without_pyarrow_the_error_says_what_to_install(rocketpy_server, filled, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        with pytest.raises(rocketpy.RocketPyError, match="pyarrow") as missing:
            consumer.fetch_arrow(timeout=60)
        assert "rocketpy-mq[arrow]" in missing.value.hint
        assert consumer.positions() == {} or set(consumer.positions().values()) == {0}
        assert consumer.fetch_columns(timeout=60).num_rows > 0

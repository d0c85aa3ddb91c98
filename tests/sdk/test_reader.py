"""Reading a part of a queue from its broker, outside any group."""

import pyarrow
import pytest
from wire import peer_that_passes_over

import rocketpy
from rocketpy import Message, RangeReader
from waiting import wait_until


@pytest.fixture
def address(rocketpy_server):
    return rocketpy_server.name_server


@pytest.fixture
def queue(rocketpy_server, producer, rocketpy_topic):
    """A queue with 500 messages: tags a and b in turn."""
    queue = producer.queues(rocketpy_topic)[1]
    producer.send_many([Message(rocketpy_topic, b"%d" % n, tag="ab"[n % 2]) for n in range(500)], queue=queue)
    with rocketpy_server.admin() as admin:
        wait_until(lambda: admin.max_offset(queue) == 500)
    return queue


def read(queue, start, end, address, **options):
    with RangeReader(queue, start, end, name_servers=address, **options) as reader:
        return [pyarrow.record_batch(batch) for batch in reader]


def test_a_range_is_read_without_its_end(queue, address):
    table = pyarrow.Table.from_batches(read(queue, 10, 20, address))
    assert table["queue_offset"].to_pylist() == list(range(10, 20))
    assert [int(body) for body in table["body"].to_pylist()] == list(range(10, 20))
    assert set(table["broker_name"].to_pylist()) == {"broker-a"}


def test_a_message_can_be_read_as_soon_as_it_is_acknowledged(producer, rocketpy_topic, address):
    for n in range(30):
        receipt = producer.send(Message(rocketpy_topic, b"%d" % n))
        (batch,) = read(receipt.queue, receipt.queue_offset, receipt.queue_offset + 1, address)
        assert batch["body"].to_pylist() == [b"%d" % n]


def test_a_whole_queue_comes_in_batches_of_the_size_asked_for(queue, address):
    batches = read(queue, 0, 500, address, batch_rows=64)
    assert [batch.num_rows for batch in batches] == [64] * 7 + [52]


def test_tags_and_columns_choose(queue, address):
    (batch,) = read(queue, 0, 500, address, tags="b", columns=["tag", "queue_offset"])
    assert batch.schema.names == ["tag", "queue_offset"]
    assert set(batch["tag"].to_pylist()) == {"b"}
    assert batch["queue_offset"].to_pylist() == list(range(1, 500, 2))


def test_the_end_and_the_gaps_of_each_batch_are_told(queue, address):
    with RangeReader(queue, 10, 150, name_servers=address, batch_rows=100) as reader:
        assert (reader.next_offset, reader.gaps) == (10, [])
        ends = [(batch.num_rows, reader.next_offset, reader.gaps) for batch in reader]
    assert ends == [(100, 110, []), (40, 150, [])]
    with RangeReader(queue, 0, 500, name_servers=address, tags="b") as reader:
        assert [(batch.num_rows, reader.next_offset, reader.gaps) for batch in reader] == [(250, 500, [])]


def test_gaps_are_what_the_broker_passed_over(tmp_path, rocketpy_server_factory):
    server = rocketpy_server_factory(tmp_path / "store")
    with peer_that_passes_over(server, "gaps", {0, 3, 4, 7, 9}) as peer:
        queue = rocketpy.MessageQueue("gaps", "b", 0)
        with RangeReader(queue, 0, 10, name_servers=peer.address, batch_rows=3) as reader:
            told = [(batch.num_rows, reader.next_offset, reader.gaps) for batch in reader]
    assert told == [(3, 6, [(0, 1), (3, 5)]), (2, 9, [(7, 8)])]


def test_messages_are_added_up_in_place_of_rows(queue, address):
    batches = read(queue, 0, 500, address, groupings=[["tag"], ["queue_id"]], batch_rows=300)
    assert [batch.schema.names[:3] for batch in batches] == [["grouping", "tag", "queue_id"]] * 2
    rows = [row for batch in batches for row in batch.select(["grouping", "tag", "messages"]).to_pylist()]
    assert sorted(tuple(row.values()) for row in rows if row["grouping"] == 0) == [
        (0, "a", 100),
        (0, "a", 150),
        (0, "b", 100),
        (0, "b", 150),
    ]
    assert [row["messages"] for row in rows if row["grouping"] == 1] == [300, 200]
    (filtered,) = read(queue, 0, 500, address, groupings=[["tag", "tag"]], tags="b")
    assert filtered["messages"].to_pylist() == [250]


def test_a_group_that_is_not_there_is_named(queue, address):
    with pytest.raises(rocketpy.InvalidArgumentError, match="cannot group messages by tags"):
        read(queue, 0, 500, address, groupings=[["tags"]])
    with pytest.raises(TypeError, match="each of groupings must be a list of names, not: 'tag'"):
        read(queue, 0, 500, address, groupings=["tag"])


def test_an_empty_range_has_no_batch(queue, address):
    assert read(queue, 7, 7, address) == []
    assert read(queue, 0, 500, address, tags="none") == []


def test_reading_leaves_no_trace_in_groups(queue, address, rocketpy_server):
    with rocketpy_server.admin() as admin:
        before = admin.groups()
        read(queue, 0, 500, address)
        assert admin.groups() == before


def test_a_range_that_is_not_in_the_queue_is_refused(queue, address):
    for start, end in ((20, 10), (0, 10**6), (600, 700)):
        with pytest.raises(rocketpy.RocketPyError):
            read(queue, start, end, address)
    for start in (-1, "0", 1.0, True):
        with pytest.raises((rocketpy.InvalidArgumentError, TypeError)):
            read(queue, start, 10, address)


def test_a_queue_that_is_not_there_is_refused(rocketpy_topic, address):
    for queue in (
        rocketpy.MessageQueue(rocketpy_topic, "broker-a", 77),
        rocketpy.MessageQueue(rocketpy_topic, "elsewhere", 0),
        rocketpy.MessageQueue("missing", "broker-a", 0),
    ):
        with pytest.raises(rocketpy.RocketPyError):
            read(queue, 0, 1, address, api_timeout=2)


def test_a_closed_reader_has_no_more_batches(queue, address):
    reader = RangeReader(queue, 0, 500, name_servers=address)
    reader.close()
    assert list(reader) == []
    assert "closed" in repr(reader)

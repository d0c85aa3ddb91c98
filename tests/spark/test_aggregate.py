"""Functions and sums that run in the workers which read the messages."""

import collections
import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import rocketpy
from rocketpy.admin.dead_letters import ORIGIN_TOPIC
from rocketpy.spark import OptionError, aggregate, map_batches
from rocketpy.spark.aggregation import GROUP_TYPES
from rocketpy.spark.batches import conformed

BODIES = [b"%d" % number for number in range(300)]


@pytest.fixture
def filled(topic, send):
    send(topic, BODIES)
    return topic


def doubled(batch):
    """Twice each number of the tag `even`; batches without one give nothing."""
    numbers = [
        int(body)
        for body, tag in zip(batch["body"].to_pylist(), batch["tag"].to_pylist(), strict=True)
        if tag == "even"
    ]
    return (
        pa.record_batch({"twice": [2 * number for number in numbers], "name": [str(n) for n in numbers]})
        if numbers
        else None
    )


def test_a_function_runs_on_each_batch_in_the_workers(spark, filled, door):
    rows = map_batches(
        spark, doubled, "name string, twice int", columns=["tag", "body"], topic=filled, min_partitions=3, **door
    ).collect()
    assert sorted((row.twice, row.name) for row in rows) == [(2 * n, str(n)) for n in range(0, 300, 2)]


def test_options_of_python_values_are_those_of_the_data_source(spark, filled, rocketpy_server, monkeypatch):
    folder = Path(rocketpy_server.path)
    monkeypatch.chdir(folder.parent)  # workers run elsewhere
    found = map_batches(
        spark,
        lambda batch: pa.record_batch({"n": [batch.num_rows]}),
        "n bigint",
        columns=["queue_id"],
        path=Path(folder.name),
        topics=[filled],
        starting_time=datetime.datetime.now() - datetime.timedelta(hours=1),
        ending_offsets={filled: {0: 10, 1: 0, 2: 5}},
        fail_on_data_loss=True,
        tags=None,
    )
    assert sum(row.n for row in found.collect()) == 15
    with pytest.raises(OptionError, match="did you mean"):
        map_batches(spark, doubled, "a int", topc=filled, path=folder)


def test_a_topic_without_messages_gives_no_rows(spark, topic, door):
    assert map_batches(spark, doubled, "twice int, name string", topic=topic, **door).collect() == []
    assert aggregate(spark, ["tag"], topic=topic, **door).collect() == []


def test_what_is_no_batch_is_refused():
    with pytest.raises(TypeError, match=r"the function returns must be a pyarrow\.RecordBatch or None"):
        list(conformed([pa.table({"a": [1]})], pa.schema([("a", pa.int64())])))


def test_columns_that_the_schema_does_not_promise_are_named():
    batch = pa.record_batch({"a": [1], "b": [2]})
    (same,) = conformed([batch], pa.schema([("b", pa.int32()), ("a", pa.int64())]))
    assert same.schema.names == ["b", "a"]
    with pytest.raises(rocketpy.InvalidArgumentError, match="columns a, b"):
        list(conformed([batch], pa.schema([("a", pa.int64())])))


def test_sums_by_group_are_those_of_the_rows(spark, filled, door):
    by_tag = {
        (row.queue_id, row.tag): (row.messages, row.bytes)
        for row in aggregate(spark, ["queue_id", "tag"], topic=filled, **door).collect()
    }
    scan = (
        spark.read.format("rocketpy").options(topic=filled, columns="queue_id,tag,size_bytes,stored_at", **door).load()
    )
    expected = collections.defaultdict(lambda: (0, 0))
    rows = scan.collect()
    for row in rows:
        messages, size = expected[row.queue_id, row.tag]
        expected[row.queue_id, row.tag] = (messages + 1, size + row.size_bytes)
    assert by_tag == expected
    assert len(by_tag) == 6
    (hour,) = aggregate(spark, ["hour"], topic=filled, ending_offsets={filled: {0: 1, 1: 0, 2: 0}}, **door).collect()
    first = min(row.stored_at for row in rows if row.queue_id == 0)
    assert hour.first_stored_at == first
    assert hour.hour == first.replace(minute=0, second=0, microsecond=0)


def test_a_message_counts_for_each_of_its_keys(spark, filled, door):
    rows = {row.key: row.messages for row in aggregate(spark, ["key"], topic=filled, **door).collect()}
    assert rows == {"all": 300, **{f"k{number}": 1 for number in range(300)}}


def test_groups_that_are_not_there_are_named(spark, filled, rocketpy_server):
    with pytest.raises(OptionError, match=r"grouped by tags \(did you mean tag\?\)"):
        aggregate(spark, ["tags"], topic=filled, path=rocketpy_server.path)
    with pytest.raises(OptionError, match="each only once"):
        aggregate(spark, ["tag", "tag"], topic=filled, path=rocketpy_server.path)


def test_the_groups_are_those_of_the_scan(spark, filled, rocketpy_server):
    reader = rocketpy.StoreReader(rocketpy_server.path)
    (batch,) = reader.scan(filled, groupings=[GROUP_TYPES])
    rows = aggregate(spark, list(GROUP_TYPES), topic=filled, path=rocketpy_server.path)
    assert rows.columns == batch.column_names[1:]
    summed = rows.where("key = 'all'").agg({"messages": "sum"}).collect()
    assert [tuple(row) for row in summed] == [(300,)]


def test_order_keys_and_topics_of_origin_are_properties(spark, topic, rocketpy_server, door):
    from waiting import wait_for_files  # workers import this module, without that one

    message = rocketpy.Message(topic, b"again", order_key="o", properties={ORIGIN_TOPIC: "from"})
    with rocketpy_server.producer("again") as producer:
        receipt = producer.send(message)
    wait_for_files(rocketpy_server.path, receipt.queue, 1)
    (row,) = aggregate(spark, ["order_key", "origin_topic"], topic=topic, **door).collect()
    assert (row.order_key, row.origin_topic, row.messages) == ("o", "from", 1)

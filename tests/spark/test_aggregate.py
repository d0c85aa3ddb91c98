"""Functions and sums that run in the workers which read the messages."""

import collections
import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import rocketpy
from rocketpy.spark import OptionError, aggregate, map_batches
from rocketpy.spark.aggregation import MOST_PENDING, partial_sums
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
    with pytest.raises(OptionError, match="each once"):
        aggregate(spark, ["tag", "tag"], topic=filled, path=rocketpy_server.path)


def messages(number, keys):
    return pa.record_batch(
        {
            "keys": pa.array(keys, pa.string()),
            "size_bytes": pa.array([100] * len(keys), pa.int32()),
            "stored_at": pa.array([number] * len(keys), pa.timestamp("us", "UTC")),
            "properties": pa.array([{"__SHARDINGKEY": "a"}] * len(keys), pa.map_(pa.string(), pa.string())),
        }
    )


def test_a_worker_holds_no_more_groups_than_its_limit():
    size = 10_000
    batches = [messages(n, [f"{n}-{row}" for row in range(size)]) for n in range(2 * MOST_PENDING // size)]
    made = list(partial_sums(batches, [("key",), ("order_key",)], ["key", "order_key"]))
    assert max(batch.num_rows for batch in made) <= MOST_PENDING + size + 1
    table = pa.Table.from_batches(made)
    assert table.filter(pa.compute.field("grouping") == 0).num_rows == len(batches) * size
    by_order_key = table.filter(pa.compute.field("grouping") == 1)
    assert sum(by_order_key["messages"].to_pylist()) == len(batches) * size
    assert len(by_order_key) > 1, "the worker handed groups out before its end"


def test_keys_are_split_at_spaces_and_none_is_a_group_of_its_own():
    (made,) = partial_sums([messages(1, [None, "", " a  b ", "a"])], [("key",)], ["key"])
    assert dict(zip(made["key"].to_pylist(), made["messages"].to_pylist(), strict=True)) == {None: 2, "a": 2, "b": 1}


def test_sizes_are_rounded_up_to_powers_of_two():
    batch = (
        messages(1, ["a"] * 4)
        .drop_columns(["size_bytes"])
        .append_column("size_bytes", pa.array([1, 1024, 1025, 4_000_000], pa.int32()))
    )
    (made,) = partial_sums([batch], [("size",)], ["size"])
    assert sorted(made["size"].to_pylist()) == [1, 1024, 2048, 1 << 22]

"""Tasks of the Spark sink at both brokers: what an attempt that broke off has stored, the next one skips.

`exactly_once` is refused at Apache's, which delivers a half message again that it asked for.

Without Spark: tests/spark has whole queries, whose processes are killed.
"""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

import rocketpy
from rocketpy.spark.sink.commit import Written, finish
from rocketpy.spark.sink.options import SinkOptions, parse_sink_options
from rocketpy.spark.sink.rows import Place
from rocketpy.spark.sink.writers import TaskSink
from rocketpy.testing import drain, fresh_name

ROWS = 3000


def batches() -> Iterator[pa.RecordBatch]:
    """Rows in batches, with keys and equal rows among them."""
    for start in range(0, ROWS, 500):
        numbers = range(start, start + 500)
        bodies = pa.array([b"%d" % (number // 2) for number in numbers])
        keys = pa.array([None if number % 3 else str(number % 7) for number in numbers], pa.string())
        yield pa.record_batch([bodies, keys], names=["body", "order_key"])


def broken_off() -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches()):
        if number == 3:
            raise ConnectionAbortedError("the attempt ends")
        yield batch


def attempt(options: SinkOptions, place: Place, rows: Iterator[pa.RecordBatch]) -> Written:
    return TaskSink(options, place, 0, {}).write(rows)


@pytest.mark.parametrize("address", ["rocketpy_address", "apache_address"])
def test_a_repeated_task_sends_only_what_is_not_stored(address: str, request: pytest.FixtureRequest):
    server, topic = request.getfixturevalue(address), fresh_name("sink")
    with rocketpy.Admin(server, api_timeout=60) as admin:
        admin.create_topic(topic, queues=4)
    given = {"name_server": server, "topic": topic, "producer_group": fresh_name(), "client.api_timeout": "60"}
    options = parse_sink_options(given)
    query = fresh_name("query")
    for batch in range(2):
        place = Place(query, batch, 5)
        with pytest.raises(ConnectionAbortedError):
            attempt(options, place, broken_off())
        assert attempt(options, place, batches()) == Written(place, ROWS // 2, ROWS // 2)
        other = Place(query, batch, 6)
        assert attempt(options, other, batches()) == Written(other, ROWS, 0), "another partition has rows of its own"
        finish(options, [Written(place, ROWS, 0)])
        assert attempt(options, place, batches()) == Written(place, 0, ROWS), "the batch is recorded as done"
    with rocketpy.Consumer(fresh_name(), topic, name_servers=[server], api_timeout=60) as consumer:
        found = Counter(message.body for message in drain(consumer))
    assert found == {b"%d" % number: 2 * 2 * 2 for number in range(ROWS // 2)}


def test_exactly_once_is_refused_by_name_at_apache_before_anything_is_sent(apache_address: str):
    topic, decisions = fresh_name("once"), fresh_name("decisions")
    with rocketpy.Admin(apache_address, api_timeout=60) as admin:
        for name in (topic, decisions):
            admin.create_topic(name, queues=1)
        given = {"name_server": apache_address, "topic": topic, "progress_topic": decisions, "exactly_once": "true"}
        options = parse_sink_options({**given, "client.api_timeout": "60"})
        with pytest.raises(rocketpy.NotSupportedError, match="does not work with Apache's brokers"):
            attempt(options, Place(fresh_name("query"), 0, 0), batches())
        assert [admin.next_offset(queue) for queue in admin.queues(topic)] == [0]

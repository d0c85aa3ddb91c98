"""Foreign values (`foreign.py`) before every reader without Spark: all read the same, and nothing stops at one."""

import asyncio

import pytest
from aio_clients import consumer as aio_consumer
from receiving import drain

import rocketpy
import rocketpy.store
from foreign import (
    COLUMNS,
    KNOWN_TIMES,
    UNKNOWN_TIMES,
    assert_read,
    drawn_messages,
    expected,
    foreign_messages,
    foreign_server,
    of_message,
    of_row,
)
from rocketpy.base.arrow import pyarrow_batch
from rocketpy.testing import fresh_name
from waiting import wait_for_files, wait_until

TOPIC, GROUP = "foreign", "foreign-group"
MESSAGES = foreign_messages() + drawn_messages()
EXPECTED = {one.msg_id: expected(one) for one in MESSAGES}

pytestmark = pytest.mark.usefixtures("chance")  # prints the seed of the drawn messages


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with foreign_server(tmp_path_factory.mktemp("foreign") / "store", TOPIC, GROUP, MESSAGES) as server:
        with server.admin() as admin:
            wait_for_files(server.path, admin.queues(TOPIC)[0], len(MESSAGES))
            wait_for_files(server.path, admin.queues(f"%DLQ%{GROUP}")[0], len(MESSAGES))
        yield server


def by_id(messages):
    return {message.msg_id: of_message(message) for message in messages}


def by_consumer(server):
    with server.consumer(fresh_name(), TOPIC, start="earliest") as consumer:
        return by_id(drain(consumer, len(MESSAGES)))


def by_asyncio(server):
    async def read():
        messages = []
        async with aio_consumer(server, TOPIC, start="earliest") as consumer:
            while len(messages) < len(MESSAGES):
                messages += await consumer.poll(timeout=60)
        return by_id(messages)

    return asyncio.run(read())


def by_handler(server):
    """A push consumer; its handler gets each message once and commits it."""
    messages, consumer = [], server.push_consumer(fresh_name(), start="earliest")
    consumer.on(TOPIC)(messages.append)

    def committed():
        with server.admin() as admin:
            return sum(one.committed_offset or 0 for one in admin.group_lag(consumer.group, TOPIC))

    with consumer:
        wait_until(lambda: committed() == len(MESSAGES), "all messages are committed")
    assert len(messages) == len(MESSAGES)
    return by_id(messages)


def by_async_handler(server):
    """A push consumer whose handler is a coroutine."""
    messages, consumer = [], server.push_consumer(fresh_name(), start="earliest")

    @consumer.on(TOPIC)
    async def handle(message):
        messages.append(message)

    with consumer:
        wait_until(lambda: len(messages) == len(MESSAGES), "all messages are handled")
    return by_id(messages)


def by_fetch(name):
    def read(server):
        rows = []
        with server.consumer(fresh_name(), TOPIC, start="earliest") as consumer:
            while len(rows) < len(MESSAGES):
                rows += dicts(getattr(consumer, name)(timeout=60, columns=COLUMNS))
        return {row["msg_id"]: of_row(row) for row in rows}

    return read


def dicts(frame):
    """Rows of a batch of Arrow, or of a frame of Polars or pandas, whose null is NaT or NaN in some columns."""
    if hasattr(frame, "to_pylist"):
        return frame.to_pylist()
    if hasattr(frame, "to_dicts"):
        return frame.to_dicts()
    rows = frame.to_dict("records")
    return [{name: None if name.endswith("_at") and value != value else value for name, value in row.items()}
            for row in rows]  # fmt: skip


def by_asyncio_arrow(server):
    async def read():
        rows = []
        async with aio_consumer(server, TOPIC, start="earliest") as consumer:
            while len(rows) < len(MESSAGES):
                rows += (await consumer.fetch_arrow(timeout=60, columns=COLUMNS)).to_pylist()
        return {row["msg_id"]: of_row(row) for row in rows}

    return asyncio.run(read())


def by_range_reader(server):
    with server.admin() as admin:
        (queue,) = admin.queues(TOPIC)
    with rocketpy.RangeReader(queue, 0, len(MESSAGES), name_servers=server.name_server) as reader:
        return by_id(message for messages in reader.messages() for message in messages)


def by_store(server):
    batches = rocketpy.store.records(server.path, topics=[TOPIC], columns=COLUMNS)
    return {row["msg_id"]: of_row(row) for batch in batches for row in pyarrow_batch(batch).to_pylist()}


def by_dead_letters(server):
    with server.admin() as admin:
        return by_id(letter.message for letter in admin.dead_letters(GROUP))


READERS = {
    "consumer": by_consumer,
    "asyncio": by_asyncio,
    "push": by_handler,
    "push_async": by_async_handler,
    "fetch_arrow": by_fetch("fetch_arrow"),
    "fetch_pandas": by_fetch("fetch_pandas"),
    "fetch_polars": by_fetch("fetch_polars"),
    "asyncio_arrow": by_asyncio_arrow,
    "range_reader": by_range_reader,
    "store": by_store,
    "dead_letters": by_dead_letters,
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_reads_foreign_values_the_same(server, reader):
    assert_read(READERS[reader](server), EXPECTED)


def test_a_seed_draws_the_same_messages_again_and_another_seed_others():
    assert drawn_messages("7") == drawn_messages("7") != drawn_messages("8")
    names = {one.name for one in drawn_messages("7")}
    assert len(names) == len(drawn_messages("7"))
    assert all(name.endswith("_of_seed_7") for name in names), "a failure names the seed"


def test_the_range_of_times_is_that_of_the_native_module():
    """Both ends of the range, and the numbers beside them."""
    from rocketpy.base.instant import CALENDAR_MS, datetime_of

    assert all((at_ms in CALENDAR_MS) is (name in KNOWN_TIMES) for name, at_ms in (UNKNOWN_TIMES | KNOWN_TIMES).items())
    assert CALENDAR_MS[-1] == KNOWN_TIMES["year_9999"]
    assert (datetime_of(CALENDAR_MS[-1] + 1), datetime_of(-1)) == (None, None)

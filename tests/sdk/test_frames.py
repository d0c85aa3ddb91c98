"""Messages as data frames of pandas and Polars."""

import sys
import tomllib
from pathlib import Path

import pandas
import polars
import pytest
from test_interrupt import assert_wakes

import rocketpy
from rocketpy import Message
from rocketpy.base.arrow import OLDEST_POLARS
from rocketpy.testing import fresh_name

COUNT = 500
FETCHES = ["fetch_pandas", "fetch_polars"]
PACKAGES = {"fetch_pandas": ["pandas", "pyarrow"], "fetch_polars": ["polars"]}


@pytest.fixture
def filled(producer, rocketpy_topic):
    producer.send_many(
        Message(
            rocketpy_topic, b"%d" % n, tag="abc"[n % 3] if n % 4 else None, keys=["k", str(n)], properties={"x": "y"}
        )
        for n in range(COUNT)
    )
    return rocketpy_topic


@pytest.fixture
def consumer(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled) as consumer:
        yield consumer


@pytest.fixture
def messages(rocketpy_server, filled):
    """The same messages as objects, by id."""
    with rocketpy_server.consumer(fresh_name(), filled) as consumer:
        polled = []
        while len(polled) < COUNT:
            polled += consumer.poll(timeout=60)
    return {message.msg_id: message for message in polled}


def fetch_all(fetch, **arguments):
    frames = []
    while sum(map(len, frames)) < COUNT:
        frame = fetch(timeout=60, **arguments)
        assert len(frame)
        frames.append(frame)
    return frames


def rows(frame):
    return frame.to_dict("records") if isinstance(frame, pandas.DataFrame) else frame.to_dicts()


@pytest.mark.parametrize("fetch", FETCHES)
def test_rows_and_objects_are_the_same_messages(consumer, messages, fetch):
    found = [row for frame in fetch_all(getattr(consumer, fetch), max_rows=150) for row in rows(frame)]
    assert sorted(row["msg_id"] for row in found) == sorted(messages)
    for row in found:
        message = messages[row["msg_id"]]
        assert (row["topic"], row["queue_id"], row["queue_offset"], row["broker_name"]) == (
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.broker_name,
        )
        assert (row["body"], row["tag"], row["keys"].split(" ")) == (message.body, message.tag, list(message.keys))
        assert (row["born_at"], row["stored_at"]) == (message.born_at, message.stored_at)
        assert row["properties"] == message.properties
        assert row["reconsume_times"] == 0


@pytest.mark.parametrize("is_empty", [False, True])
def test_the_types_of_pandas(consumer, is_empty):
    frame = consumer.fetch_pandas(timeout=60)
    if is_empty:
        while len(frame):
            frame = consumer.fetch_pandas(timeout=0.1)
    types = {name: str(dtype) for name, dtype in frame.dtypes.items()}
    assert types == {
        **dict.fromkeys(["topic", "broker_name", "tag", "keys", "body", "properties", "msg_id"], "object"),
        **dict.fromkeys(["queue_id", "reconsume_times"], "int32"),
        "queue_offset": "int64",
        **dict.fromkeys(["born_at", "stored_at"], "datetime64[us, UTC]"),
    }


@pytest.mark.parametrize("is_empty", [False, True])
def test_the_types_of_polars(consumer, is_empty):
    frame = consumer.fetch_polars(timeout=60)
    if is_empty:
        while len(frame):
            frame = consumer.fetch_polars(timeout=0.1)
    time = polars.Datetime("us", "UTC")
    assert frame.schema == {
        "topic": polars.String,
        "queue_id": polars.Int32,
        "queue_offset": polars.Int64,
        "broker_name": polars.String,
        "tag": polars.String,
        "keys": polars.String,
        "body": polars.Binary,
        "properties": polars.Map(polars.String, polars.String),
        "born_at": time,
        "stored_at": time,
        "msg_id": polars.String,
        "reconsume_times": polars.Int32,
    }


@pytest.mark.parametrize("fetch", FETCHES)
def test_rows_are_bounded_and_columns_chosen(consumer, fetch):
    frame = getattr(consumer, fetch)(max_rows=7, timeout=60, columns=["body", "offset_msg_id", "tag"])
    assert 0 < len(frame) <= 7
    assert list(frame.columns) == ["body", "offset_msg_id", "tag"]


@pytest.mark.parametrize("fetch", FETCHES)
def test_earlier_frames_are_not_written_over_by_later_ones(consumer, fetch):
    kept, expected, count = [], [], 0
    while count < COUNT:
        frame = getattr(consumer, fetch)(max_rows=50, timeout=60)
        count += len(frame)
        kept.append(frame)
        expected.append(rows(frame))
    assert [rows(frame) for frame in kept] == expected


@pytest.mark.parametrize("fetch", FETCHES)
def test_a_commit_covers_what_was_fetched(rocketpy_server, filled, fetch):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled) as consumer:
        fetched = len(getattr(consumer, fetch)(max_rows=100, timeout=60))
        consumer.commit()
    with rocketpy_server.consumer(group, filled) as consumer:
        count = 0
        while count < COUNT - fetched:
            count += len(getattr(consumer, fetch)(timeout=60))
        assert len(getattr(consumer, fetch)(timeout=0.2)) == 0
    assert count == COUNT - fetched


MISSING = [(fetch, package) for fetch, packages in PACKAGES.items() for package in packages]


@pytest.mark.parametrize(("fetch", "package"), MISSING)
def test_without_a_package_the_error_says_what_to_install_and_nothing_is_taken(consumer, monkeypatch, fetch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(rocketpy.RocketPyError, match=f"{package} is not installed") as missing:
        getattr(consumer, fetch)(timeout=60)
    assert f"rocketpy-mq[{fetch.removeprefix('fetch_')}]" in missing.value.hint
    assert sum(map(len, fetch_all(consumer.fetch_columns))) == COUNT


def test_a_polars_that_cannot_hold_properties_is_refused_before_messages_are_taken(consumer, monkeypatch):
    monkeypatch.setattr(polars, "__version__", "1.20.0")
    with pytest.raises(
        rocketpy.RocketPyError, match=r"polars 1\.20\.0 cannot hold message properties: polars 1\.36"
    ) as old:
        consumer.fetch_polars(timeout=60)
    assert "rocketpy-mq[polars]" in old.value.hint
    monkeypatch.undo()
    assert sum(map(len, fetch_all(consumer.fetch_polars))) == COUNT


def test_the_extra_asks_for_the_polars_that_is_checked_for():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (wanted,) = project["optional-dependencies"]["polars"]
    assert wanted == "polars>=" + ".".join(map(str, OLDEST_POLARS))


@pytest.mark.parametrize("fetch", FETCHES)
def test_ctrl_c_ends_the_wait(rocketpy_server, rocketpy_topic, fetch):
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic) as consumer:
        call = getattr(consumer, fetch)
        call(timeout=0)  # imports what it needs
        assert_wakes(lambda: call(timeout=60))

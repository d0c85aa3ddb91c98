"""The job `replay`, on real flights."""

import collections
import json

import pyarrow as pa
import pytest

import rocketpy
import spark_jobs
from rocketpy.spark import audit
from rocketpy.spark.replay import Target, main, message_of, send_all
from rocketpy.testing import fresh_name

REPLAYED = 6_000
"""Flights: enough for two partitions, which have parts of the same queues."""
RATE = 20


@pytest.fixture(scope="module")
def flights(rocketpy_server):
    topic = fresh_name("replayed")
    return topic, spark_jobs.send_flights(rocketpy_server, topic, REPLAYED)


@pytest.fixture
def target(rocketpy_server):
    topic = fresh_name("again")
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=3)
    return topic


def received(server, topic):
    """All messages of a topic, queue by queue in order."""
    with server.admin() as admin:
        infos = admin.describe_topic(topic).queues
    found = []
    for info in infos:
        with rocketpy.RangeReader(
            info.queue, info.min_offset, info.max_offset, name_servers=server.name_server
        ) as reader:
            found += [message for messages in reader.messages() for message in messages]
    return found


def test_flights_are_sent_again_in_order_and_the_audit_agrees(
    spark, flights, target, rocketpy_server, tmp_path, capsys
):
    topic, receipts = flights
    sent = spark_jobs.flights(REPLAYED)
    source = ["--path", rocketpy_server.path]
    to = ["--to-name-server", rocketpy_server.name_server, "--to-topic", target]
    out = tmp_path / "replayed"
    code, facts = spark_jobs.run(main, capsys, "--topic", topic, *source, *to, "--out", out)
    assert (code, facts["messages"]) == (0, len(receipts))
    assert facts["bytes"] == sum(map(len, sent.bodies))
    assert (out / "replay.png").read_bytes().startswith(b"\x89PNG")
    messages = received(rocketpy_server, target)
    assert sorted(message.body for message in messages) == sorted(sent.bodies)
    by_id = {one.msg_id: row for one, row in zip(receipts, range(len(receipts)), strict=True)}
    departures = collections.defaultdict(list)
    for message in messages:
        row = by_id[message.properties["rocketpyOriginMsgId"]]
        assert message.properties["rocketpyOriginTopic"] == topic
        assert message.tag == sent.carriers[row]
        assert message.order_key == sent.aircraft[row]
        assert message.keys == tuple(dict.fromkeys((sent.aircraft[row], sent.numbers[row])))
        departures[message.order_key].append(row)
    assert all(rows == sorted(rows) for rows in departures.values()), "an aircraft's departures are out of order"
    against = ["--against-name-server", rocketpy_server.name_server, "--against-topic", target]
    code, report = spark_jobs.run(audit.main, capsys, "--topic", topic, *source, *against)
    assert code == 0
    assert {row["found"] for row in report} == {0}
    noted = ["--name-server", rocketpy_server.name_server, "--journal", out / "receipts.parquet", "--check", "gaps"]
    code, report = spark_jobs.run(audit.main, capsys, "--topic", target, *noted)
    assert (code, {row["found"] for row in report}) == (0, {0})


def test_a_filter_a_rate_and_any_order(spark, flights, target, rocketpy_server, capsys):
    topic, _ = flights
    sent = spark_jobs.flights(REPLAYED)
    chosen = [
        body
        for body, carrier in zip(sent.bodies, sent.carriers, strict=True)
        if carrier == "UA" and b'"month":1,' in body
    ][:25]
    given = ["--topic", topic, "--path", rocketpy_server.path, "--to-name-server", rocketpy_server.name_server]
    where = (
        f"get_json_object(string(body), '$.flight') in ({','.join(str(json.loads(body)['flight']) for body in chosen)})"
    )
    code, facts = spark_jobs.run(
        main, capsys, *given, "--to-topic", target, "--tags", "UA", "--where", where, "--rate", RATE, "--any-order"
    )
    assert code == 0
    messages = received(rocketpy_server, target)
    wanted = {json.loads(body)["flight"] for body in chosen}
    expected = [
        body
        for body, tag in zip(sent.bodies, sent.carriers, strict=True)
        if tag == "UA" and json.loads(body)["flight"] in wanted
    ]
    assert sorted(message.body for message in messages) == sorted(expected)
    assert facts["messages"] == len(expected)
    born = sorted(message.born_at_ms for message in messages)
    # The first call of each task goes at once; each other one waits for its second.
    assert len(expected) > 2 * RATE
    assert born[-1] - born[0] >= (len(expected) / RATE - 2) * 1000


def test_a_replay_into_itself_or_to_nowhere_is_refused_and_a_dry_run_sends_nothing(
    flights, target, rocketpy_server, capsys
):
    topic, receipts = flights
    here = rocketpy_server.name_server
    given = ["--topic", topic, "--to-name-server", here]
    code, text = spark_jobs.run(main, capsys, *given, "--name-server", here)
    assert (code, "target topic is the source topic" in text) == (2, True)
    code, text = spark_jobs.run(main, capsys, *given, "--path", rocketpy_server.path, "--to-topic", "nowhere")
    assert (code, "nowhere" in text) == (3, True)
    code, rows = spark_jobs.run(main, capsys, *given, "--name-server", here, "--to-topic", target, "--dry-run")
    assert (code, sum(row["messages"] for row in rows)) == (0, len(receipts))
    assert received(rocketpy_server, target) == []


def test_a_window_is_sent_and_a_broker_that_is_gone_fails_the_job(spark, flights, target, rocketpy_server, capsys):
    given = ["--topic", flights[0], "--path", rocketpy_server.path, "--to-topic", target]
    code, facts = spark_jobs.run(
        main, capsys, *given, "--to-name-server", rocketpy_server.name_server, "--until", "-1h"
    )
    assert (code, facts["messages"]) == (0, 0)
    code, text = spark_jobs.run(main, capsys, *given, "--to-name-server", "127.0.0.1:1")
    assert code == 4
    assert "127.0.0.1:1" in text


def test_a_body_above_the_default_size_of_producers_is_replayed(rocketpy_server_factory):
    server = rocketpy_server_factory(settings={"maxMessageSize": 16 << 20, "mappedFileSizeCommitLog": 64 << 20})
    topic, body = fresh_name("large"), bytes(5 << 20)
    row = {"topic": "first", "body": body, "flag": 0, "properties": [], "msg_id": "F1", "broker_name": "b"}
    rows = pa.RecordBatch.from_pylist([row | {"queue_id": 0, "queue_offset": 0}])
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)
    (receipts,) = send_all(Target(server.name_server, topic), iter([rows]))
    assert receipts["rejected"].to_pylist() == [None]
    assert receipts["body_bytes"].to_pylist() == [len(body)]


def test_a_copy_of_a_copy_names_its_first_life_and_has_no_delay():
    first = {
        "rocketpyOriginMsgId": "F1",
        "rocketpyOriginTopic": "first",
        "color": "red",
        "DELAY": "3",
        "UNIQ_KEY": "F2",
    }
    row = {
        "topic": "second",
        "body": b"x",
        "tag": None,
        "keys": None,
        "properties": list(first.items()),
        "msg_id": "F2",
        "flag": 7,
    }
    message = message_of(row, "third")
    assert message.properties == {"rocketpyOriginMsgId": "F1", "rocketpyOriginTopic": "first", "color": "red"}
    assert (message.topic, message.flag, message.delay_level, message.order_key) == ("third", 7, None, None)

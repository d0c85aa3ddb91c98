"""Transactions: what is committed comes, what is not does not, and the broker asks for what nobody ended."""

import logging
import threading

import pytest
from reading import read_all

import rocketpy
from rocketpy import Decision, Message
from rocketpy.testing import fresh_name

SOON = {"transactionTimeOut": 200, "transactionCheckInterval": 300}


def never(message):
    raise AssertionError(f"nobody should ask for {message.msg_id}")


@pytest.fixture
def group():
    return fresh_name("payers")


@pytest.fixture
def asking_server(rocketpy_server_factory):
    """A server that soon asks for what nobody ended."""
    return rocketpy_server_factory(settings=SOON)


def producer_of(server, group, check):
    return server.transaction_producer(group, check, send_timeout=60)


def test_what_is_committed_comes_and_what_is_rolled_back_does_not(rocketpy_server, rocketpy_topic, group):
    with producer_of(rocketpy_server, group, never) as producer:
        with producer.begin(Message(rocketpy_topic, b"committed", tag="UA", keys=["k"])) as transaction:
            pass
        with pytest.raises(ZeroDivisionError), producer.begin(Message(rocketpy_topic, b"rolled back")):
            _ = 1 / 0
        producer.begin(Message(rocketpy_topic, b"said"), msg_id="AN-ID").commit()
        with producer.begin(Message(rocketpy_topic, b"taken back")) as early:
            early.rollback()
        twice = producer.begin(Message(rocketpy_topic, b"twice"))
        twice.commit()
        twice.commit()
        producer.send(Message(rocketpy_topic, b"plain"))
    received = {one.body: one for one in read_all(rocketpy_server, rocketpy_topic, 4)}
    assert sorted(received) == [b"committed", b"plain", b"said", b"twice"]
    assert received[b"committed"].msg_id == transaction.receipt.msg_id
    assert (received[b"committed"].tag, received[b"committed"].keys) == ("UA", ("k",))
    assert received[b"said"].msg_id == "AN-ID"


def test_a_committed_message_may_wait_for_a_delay(rocketpy_server, rocketpy_topic, group):
    with producer_of(rocketpy_server, group, never) as producer:
        for later in ({"delay_level": 1}, {"delay": 0.3}):
            with producer.begin(Message(rocketpy_topic, b"later", **later)):
                pass
    assert len(read_all(rocketpy_server, rocketpy_topic, 2)) == 2


def test_the_broker_asks_for_what_nobody_ended(asking_server, group, caplog):
    topic, asked, second = fresh_name("asked"), [], threading.Event()

    def check(message):
        asked.append((message.topic, message.body))
        if asked.count((topic, b"unknown")) > 1:
            second.set()
        if message.body == b"broken" and asked.count((topic, b"broken")) == 1:
            raise ValueError("no such order")
        return {b"paid": "commit", b"not paid": Decision.ROLLBACK, b"broken": Decision.COMMIT}.get(
            message.body, Decision.UNKNOWN
        )

    bodies = [b"paid", b"not paid", b"broken", b"unknown"]
    with caplog.at_level(logging.ERROR, "rocketpy.client"), producer_of(asking_server, group, check) as producer:
        for body in bodies:
            producer.begin(Message(topic, body))
        received = read_all(asking_server, topic, 2)
        assert second.wait(60), "an unknown one is asked for again"
    assert sorted(message.body for message in received) == [b"broken", b"paid"]
    assert {body for _, body in asked} == set(bodies)
    assert {named for named, _ in asked} == {topic}
    assert any("no such order" in (record.exc_text or "") for record in caplog.records)


def test_another_member_answers_for_a_producer_that_died(asking_server, group, child):
    topic = fresh_name("died")
    ended = child(
        """
import os, sys, rocketpy
group, topic, name_server = sys.argv[1:]
producer = rocketpy.TransactionProducer(group, lambda message: "unknown", name_servers=name_server, send_timeout=60)
producer.begin(rocketpy.Message(topic, b"open"))
os._exit(9)
""",
        group,
        topic,
        asking_server.name_server,
    )
    assert ended.returncode == 9, ended.stderr
    with producer_of(asking_server, group, lambda message: Decision.COMMIT) as producer:
        producer.send(Message(fresh_name("known"), b"a heartbeat tells the broker of the producer"))
        assert [message.body for message in read_all(asking_server, topic, 1)] == [b"open"]


def test_what_no_transaction_can_be_is_refused(rocketpy_server, rocketpy_topic, group):
    with producer_of(rocketpy_server, group, never) as producer:
        with pytest.raises(rocketpy.InvalidArgumentError):
            producer.begin(Message("SCHEDULE_TOPIC_XXXX", b"x"))
        with pytest.raises(rocketpy.RefusedError, match="timerMaxDelaySec"):
            producer.begin(Message(rocketpy_topic, b"x", delay=9_999_999))
        open_one = producer.begin(Message(rocketpy_topic, b"x"))
    with pytest.raises(rocketpy.ClosedError):
        open_one.commit()
    with pytest.raises(rocketpy.ClosedError):
        producer.begin(Message(rocketpy_topic, b"x"))

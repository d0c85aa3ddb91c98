"""Transactions: what is committed comes, what is not does not, and the broker asks for what nobody ended."""

import dataclasses
import logging
import pickle
import threading
import time

import pytest
from reading import read_all

import rocketpy
from rocketpy import Decision, Message
from rocketpy.testing import fresh_name
from waiting import wait_until

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
        with producer.transaction(Message(rocketpy_topic, b"committed", tag="UA", keys=["k"])) as transaction:
            pass
        with pytest.raises(ZeroDivisionError), producer.transaction(Message(rocketpy_topic, b"left open")) as open_one:
            _ = 1 / 0
        assert "open" in repr(open_one)
        producer.transaction(Message(rocketpy_topic, b"said"), msg_id="AN-ID").commit()
        with producer.transaction(Message(rocketpy_topic, b"taken back")) as early:
            early.rollback()
        twice = producer.transaction(Message(rocketpy_topic, b"twice"))
        twice.commit()
        twice.commit()
        with pytest.raises(rocketpy.ClosedError, match="cannot rollback transaction"):
            twice.rollback()
        with pytest.raises(rocketpy.ClosedError, match="cannot commit transaction"):
            early.commit()
        producer.send(Message(rocketpy_topic, b"plain"))
    received = {one.body: one for one in read_all(rocketpy_server, rocketpy_topic, 4)}
    assert sorted(received) == [b"committed", b"plain", b"said", b"twice"]
    assert received[b"committed"].msg_id == transaction.receipt.msg_id
    assert (received[b"committed"].tag, received[b"committed"].keys) == ("UA", ("k",))
    assert received[b"said"].msg_id == "AN-ID"


def test_after_an_exception_the_check_decides(asking_server, group):
    """The work may be done although the block raised, as where only its answer was lost."""
    topic, done = fresh_name("raised"), set()

    def work(body):
        if body == b"done":
            done.add(body)
        raise TimeoutError

    def check(message):
        return Decision.COMMIT if message.body in done else Decision.ROLLBACK

    with producer_of(asking_server, group, check) as producer:
        for body in (b"done", b"not done"):
            with pytest.raises(TimeoutError), producer.transaction(Message(topic, body)):
                work(body)
        assert [message.body for message in read_all(asking_server, topic, 1)] == [b"done"]


def test_another_producer_of_the_group_ends_a_transaction_by_its_receipt(rocketpy_server, rocketpy_topic, group):
    with producer_of(rocketpy_server, group, never) as producer:
        begun = [producer.transaction(Message(rocketpy_topic, b"%d" % number)).receipt for number in range(2)]
        assert producer.ends_once(rocketpy_topic)
    kept, dropped = pickle.loads(pickle.dumps(begun))
    with producer_of(rocketpy_server, group, never) as producer:
        for _ in range(2):
            producer.resume(kept).commit()
            producer.resume(dropped).rollback()
        with pytest.raises(rocketpy.TransactionOverError, match="is over: it was committed"):
            producer.resume(kept).rollback()
        with pytest.raises(rocketpy.TransactionOverError, match="is over: it was rolled back"):
            producer.resume(dropped).commit()
        with pytest.raises(rocketpy.TransactionOverError, match="is not a half message"):
            producer.resume(producer.send(Message(rocketpy_topic, b"plain"))).commit()
        with pytest.raises(rocketpy.InvalidArgumentError):
            producer.resume(dataclasses.replace(kept, offset_msg_id="none")).commit()
    with producer_of(rocketpy_server, f"{group}-other", never) as producer:
        with pytest.raises(rocketpy.RefusedError, match="belongs to another group") as refused:
            producer.resume(kept).commit()
        assert not isinstance(refused.value, rocketpy.TransactionOverError), "its own group may still end it"
    assert sorted(one.body for one in read_all(rocketpy_server, rocketpy_topic, 2)) == [b"0", b"plain"]


def test_the_work_of_a_message_says_how_its_transaction_ends(asking_server, group):
    topic, answers = (
        fresh_name("local"),
        iter([Decision.COMMIT, "rollback", Decision.UNKNOWN, 1 / 3, ZeroDivisionError()]),
    )

    def work(message):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def check(message):
        return Decision.COMMIT if message.body in (b"2", b"4") else Decision.ROLLBACK

    with asking_server.transaction_producer(group, check, local=work, send_timeout=60) as producer:
        states = [repr(producer.send_in_transaction(Message(topic, b"%d" % number))) for number in range(3)]
        assert [state.rsplit(": ")[1] for state in states] == ["committed>", "rolled back>", "open>"]
        with pytest.raises(TypeError, match=r"returned 0\.33"):
            producer.send_in_transaction(Message(topic, b"3"))
        with pytest.raises(ZeroDivisionError):
            producer.send_in_transaction(Message(topic, b"4"))
        assert sorted(message.body for message in read_all(asking_server, topic, 3)) == [b"0", b"2", b"4"]
    with producer_of(asking_server, group, check) as producer:
        with pytest.raises(rocketpy.InvalidArgumentError, match="no function `local`"):
            producer.send_in_transaction(Message(topic, b"5"))


def test_a_committed_message_may_wait_for_a_delay(rocketpy_server, rocketpy_topic, group):
    with producer_of(rocketpy_server, group, never) as producer:
        for later in ({"delay_level": 1}, {"delay": 0.3}):
            with producer.transaction(Message(rocketpy_topic, b"later", **later)):
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
            producer.transaction(Message(topic, body))
        received = read_all(asking_server, topic, 2)
        assert second.wait(60), "an unknown one is asked for again"
    assert sorted(message.body for message in received) == [b"broken", b"paid"]
    assert {body for _, body in asked} == set(bodies)
    assert {named for named, _ in asked} == {topic}
    assert any("no such order" in (record.exc_text or "") for record in caplog.records)


def test_a_commit_after_the_check_said_rollback_is_refused(asking_server, group):
    topic, asked = fresh_name("slow"), threading.Event()

    def check(message):
        asked.set()
        return Decision.ROLLBACK

    with producer_of(asking_server, group, check) as producer:
        slow = producer.transaction(Message(topic, b"slow work"))
        assert asked.wait(60)
        # The answer is on its way: the same end again is no error, so it shows when it is there.
        figure = "transactionsRolledBack"
        with asking_server.admin() as admin:
            address = admin.brokers()[0].addresses[0]
            wait_until(lambda: admin.broker_figures(address)[figure] == 1)
        with pytest.raises(rocketpy.RefusedError, match="it was rolled back"):
            slow.commit()
        producer.transaction(Message(topic, b"next")).commit()
    assert [message.body for message in read_all(asking_server, topic, 1)] == [b"next"]


def test_the_end_that_was_tried_first_stays_the_one(rocketpy_server_factory, group):
    server = rocketpy_server_factory(settings=SOON)
    topic = fresh_name("tried")
    with server.transaction_producer(group, lambda message: Decision.UNKNOWN, send_timeout=2) as producer:
        tried, taken_back = (producer.transaction(Message(topic, body)) for body in (b"tried", b"taken back"))
        server.stop()
        with pytest.raises(rocketpy.RocketPyError), tried:
            tried.commit()
        with pytest.raises(rocketpy.RocketPyError):
            taken_back.rollback()
        with pytest.raises(ZeroDivisionError), taken_back:
            _ = 1 / 0
        with pytest.raises(rocketpy.RocketPyError), taken_back:
            pass  # no commit: that would be refused otherwise, or succeed
        assert taken_back._end is Decision.ROLLBACK


def test_a_check_that_ends_its_thread_or_says_nothing_is_an_unknown_one(asking_server, group, caplog):
    topic, asked = fresh_name("exits"), []

    def check(message):
        asked.append(message.body)
        if len(asked) == 1:
            raise SystemExit(3)
        return True if len(asked) == 2 else Decision.COMMIT

    with caplog.at_level(logging.ERROR, "rocketpy.client"), producer_of(asking_server, group, check) as producer:
        producer.transaction(Message(topic, b"asked again"))
        assert [message.body for message in read_all(asking_server, topic, 1)] == [b"asked again"]
    assert len(asked) == 3
    assert "must return a rocketpy.Decision, returned True" in caplog.text


def test_a_producer_without_a_check_is_refused(asking_server, group):
    for check in (None, "check"):
        with pytest.raises(TypeError, match="check must be a function"):
            producer_of(asking_server, group, check)


def test_another_member_answers_for_a_producer_that_died(asking_server, group, child):
    topic = fresh_name("died")
    ended = child(
        """
import os, sys, rocketpy
group, topic, name_server = sys.argv[1:]
producer = rocketpy.TransactionProducer(group, lambda message: "unknown", name_servers=name_server, send_timeout=60)
producer.transaction(rocketpy.Message(topic, b"open"))
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
            producer.transaction(Message("SCHEDULE_TOPIC_XXXX", b"x"))
        with pytest.raises(rocketpy.RefusedError, match="timerMaxDelaySec"):
            producer.transaction(Message(rocketpy_topic, b"x", delay=9_999_999))
        open_one = producer.transaction(Message(rocketpy_topic, b"x"))
    with pytest.raises(rocketpy.ClosedError):
        open_one.commit()
    with pytest.raises(rocketpy.ClosedError):
        producer.transaction(Message(rocketpy_topic, b"x"))


def test_a_slow_check_delays_no_other_and_its_message_is_asked_for_once(asking_server, group):
    topic, asked, go_on = fresh_name("side-by-side"), [], threading.Event()

    def check(message):
        asked.append(message.body)
        if message.body == b"slow":
            assert go_on.wait(60)
        return Decision.COMMIT

    with producer_of(asking_server, group, check) as producer:
        producer.transaction(Message(topic, b"slow"))
        wait_until(lambda: asked == [b"slow"])
        quick = [b"%d" % number for number in range(8)]
        for body in quick:
            producer.transaction(Message(topic, body))
        assert sorted(message.body for message in read_all(asking_server, topic, len(quick))) == quick
        time.sleep(1)  # the broker asks for the slow one three times more
        assert asked.count(b"slow") == 1, "its check still runs"
        go_on.set()
        read_all(asking_server, topic, len(quick) + 1)
        time.sleep(1)
    assert sorted(asked) == sorted([*quick, b"slow"]), "nothing is asked for after its commit"


def test_a_check_may_ask_not_to_run_beside_itself(asking_server, group):
    topic, running, most = fresh_name("alone"), [], []

    def check(message):
        running.append(message)
        most.append(len(running))
        time.sleep(0.1)
        running.pop()
        return Decision.COMMIT

    with asking_server.transaction_producer(group, check, check_threads=1, send_timeout=60) as producer:
        for number in range(4):
            producer.transaction(Message(topic, b"%d" % number))
        read_all(asking_server, topic, 4)
    assert set(most) == {1}
    for number in (0, 65):
        with pytest.raises(rocketpy.InvalidArgumentError, match="check_threads"):
            asking_server.transaction_producer(group, check, check_threads=number)


def test_reprs_tell_what_became_of_a_transaction(rocketpy_server, rocketpy_topic, group):
    with producer_of(rocketpy_server, group, never) as producer:
        assert repr(producer) == f"<TransactionProducer of group {group!r}>"
        one, other = (producer.transaction(Message(rocketpy_topic, b"x")) for _ in range(2))
        assert repr(one) == f"<Transaction of message {one.receipt.msg_id} to {rocketpy_topic!r}: open>"
        one.commit()
        other.rollback()
        assert repr(one).endswith(": committed>")
        assert repr(other).endswith(": rolled back>")
    assert "(closed)" in repr(producer)

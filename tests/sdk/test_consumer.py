"""Receiving: order, tags, commits, seeks, pauses, members that come and go."""

import logging
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from receiving import drain, numbers

import rocketpy
from rocketpy import Message, Start
from rocketpy.testing import fresh_name
from waiting import moment_between, wait_until


@pytest.fixture
def filled(producer, rocketpy_topic):
    """A topic of four queues with 1000 messages: tags a, b, c in turn."""
    producer.send_many([Message(rocketpy_topic, b"%d" % n, tag="abc"[n % 3], keys=[f"k{n}"]) for n in range(1000)])
    return rocketpy_topic


def test_every_message_comes_once_and_in_the_order_of_its_queue(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        messages = drain(consumer, 1000)
        assert consumer.poll(timeout=0.2) == []
    assert numbers(messages) == list(range(1000))
    next_offset: Counter[int] = Counter()
    for message in messages:
        assert message.queue_offset == next_offset[message.queue_id]
        next_offset[message.queue_id] += 1


def test_a_received_message_tells_all_about_itself(rocketpy_server, producer, rocketpy_topic):
    before = time.time()
    receipt = producer.send(
        Message(rocketpy_topic, b"text", tag="UA", keys=["a", "b"], order_key="o", properties={"p": "ü"}, flag=5)
    )
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic, start=Start.EARLIEST) as consumer:
        (message,) = drain(consumer, 1)
    assert (message.topic, message.body, bytes(message.body_view)) == (rocketpy_topic, b"text", b"text")
    assert (message.tag, message.keys, message.order_key, message.flag) == ("UA", ("a", "b"), "o", 5)
    assert message.properties["p"] == "ü"
    assert message.queue == receipt.queue
    assert message.queue is message.queue
    assert (message.queue_id, message.broker_name) == (receipt.queue.queue_id, receipt.queue.broker_name)
    assert message.reconsume_times == 0
    assert before - 1 < message.born_at.timestamp() <= message.stored_at.timestamp() + 1 < time.time() + 2
    assert message.born_at.timestamp() * 1000 == pytest.approx(message.born_at_ms, abs=0.5)
    assert message.stored_at.utcoffset().total_seconds() == 0
    assert message.born_host.startswith("127.0.0.1:")
    assert message.store_host == rocketpy_server.broker
    assert f"{message.physical_offset:016X}" == message.offset_msg_id[-16:]
    assert rocketpy_topic in repr(message)
    assert "UA" in repr(message)


def test_a_received_message_travels_between_processes(rocketpy_server, filled):
    import pickle

    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        message = drain(consumer, 1)[0]
    again = pickle.loads(pickle.dumps(message))
    for name in ("topic", "body", "tag", "keys", "properties", "queue", "queue_offset", "msg_id", "stored_at"):
        assert getattr(again, name) == getattr(message, name), name


def test_a_view_of_a_body_outlives_everything(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        views = [message.body_view for message in drain(consumer, 1000)]
    assert sorted(int(bytes(view)) for view in views) == list(range(1000))
    assert views[0].readonly


def test_a_group_goes_on_where_it_committed(rocketpy_server, filled):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as consumer:
        first = drain(consumer, 300)
        consumer.commit()
        positions = consumer.positions()
        assert {queue: consumer.committed(queue) or 0 for queue in positions} == positions
        drain(consumer, 100)  # handed out, never committed: to be handed out again
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as consumer:
        second = drain(consumer, 1000 - len(first))
        assert consumer.poll(timeout=0.2) == []
    assert numbers(first + second) == list(range(1000))


def test_iteration_commits_no_message_that_the_loop_has_not_seen(rocketpy_server, filled):
    group, seen = fresh_name(), []
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as consumer:
        for message in consumer:
            seen.append(message)
            consumer.commit()
            if len(seen) == 37:
                break
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as consumer:
        rest = drain(consumer, 963)
    assert numbers(seen + rest) == list(range(1000))


@pytest.mark.parametrize(
    "iterate",
    [iter, lambda consumer: consumer.batches(), lambda consumer: consumer.batches(idle_timeout=60)],
    ids=["messages", "batches", "batches until it is idle"],
)
def test_iteration_ends_when_the_consumer_is_closed_by_another_thread(
    rocketpy_server, producer, rocketpy_topic, iterate
):
    consumer = rocketpy_server.consumer(fresh_name(), rocketpy_topic, start=Start.EARLIEST)
    producer.send(Message(rocketpy_topic, b"first"))
    reading = threading.Event()
    outcome = []

    def read():
        try:
            for _ in iterate(consumer):
                reading.set()
            outcome.append("ended")
        except Exception as error:
            outcome.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert reading.wait(60)
    time.sleep(0.1)  # lets the reader begin to wait for a second message; the outcome is the same if it did not
    consumer.close()
    reader.join(60)
    assert outcome == ["ended"]


def test_iteration_ends_only_after_an_idle_timeout(rocketpy_server, filled):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as consumer:
        first = drain(consumer, 1)  # it takes a while until a new group has its queues
        batches = list(consumer.batches(max_messages=100, idle_timeout=1))
        assert all(0 < len(batch) <= 100 for batch in batches)
        assert sum(map(len, batches)) == 1000 - len(first)
        for queue in consumer.assignment():
            consumer.seek(queue, Start.EARLIEST)
        assert numbers(consumer.messages(idle_timeout=timedelta(seconds=1))) == list(range(1000))
        with pytest.raises(TypeError, match="duration"):
            next(consumer.messages(idle_timeout="1"))


@pytest.mark.parametrize("iterate", [iter, lambda consumer: consumer.batches()], ids=["messages", "batches"])
def test_iteration_waits_for_more_without_an_end(rocketpy_server, producer, rocketpy_topic, iterate):
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic, start=Start.EARLIEST) as consumer:
        messages = iterate(consumer)
        timer = threading.Timer(1.5, lambda: producer.send(Message(rocketpy_topic, b"late")))
        timer.start()
        first = next(messages)
        assert [message.body for message in (first if isinstance(first, list) else [first])] == [b"late"]
        timer.join()


def test_latest_skips_what_is_there(rocketpy_server, producer, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start="latest") as consumer:
        producer.send(Message(filled, b"new"))
        assert [message.body for message in drain(consumer, 1)] == [b"new"]
        assert consumer.poll(timeout=0.1) == []


def test_a_new_group_begins_with_the_oldest_message(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled) as consumer:
        assert numbers(drain(consumer, 1000)) == list(range(1000))


def test_what_arrives_between_two_members_is_read_by_the_second(rocketpy_server, producer, filled):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, start=Start.LATEST) as consumer:
        assert len(consumer.positions()) == 4
    producer.send_many([Message(filled, b"%d" % n) for n in range(20)])
    with rocketpy_server.consumer(group, filled, start=Start.LATEST) as consumer:
        assert numbers(drain(consumer, 20)) == list(range(20))


def test_a_time_starts_at_the_first_message_stored_then(rocketpy_server, producer, rocketpy_topic):
    producer.send_many([Message(rocketpy_topic, b"old") for _ in range(40)])
    moment = moment_between()
    producer.send_many([Message(rocketpy_topic, b"new") for _ in range(40)])
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic, start=Start.at(moment)) as consumer:
        assert {message.body for message in drain(consumer, 40)} == {b"new"}


def test_stored_is_an_error_for_a_new_group(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.STORED) as consumer:
        with pytest.raises(rocketpy.OffsetError, match="no stored offset") as missing:
            consumer.poll(timeout=60)
    assert missing.value.hint


def test_seek_goes_anywhere_in_an_assigned_queue(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        drain(consumer, 1000)
        queue = consumer.assignment()[0]
        assert consumer.seek(queue, 7) == 7
        assert drain(consumer, 1)[0].queue_offset == 7
        assert consumer.seek(queue, Start.EARLIEST) == 0
        assert drain(consumer, 1)[0].queue_offset == 0
        end = consumer.seek(queue, Start.LATEST)
        assert consumer.poll(timeout=0.2) == []
        assert consumer.positions()[queue] == end
        assert consumer.seek(queue, Start.at(0)) == 0


@pytest.mark.parametrize(
    ("to", "kind"),
    [
        (10**6, rocketpy.OffsetError),
        (-1, rocketpy.InvalidArgumentError),
        (2**63, rocketpy.InvalidArgumentError),
        (Start.STORED, rocketpy.InvalidArgumentError),
        ("0", rocketpy.InvalidArgumentError),
        (1.5, TypeError),
        (True, TypeError),
    ],
)
def test_a_seek_to_nowhere_is_refused(rocketpy_server, filled, to, kind):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        drain(consumer, 1)
        with pytest.raises(kind):
            consumer.seek(consumer.assignment()[0], to)


def test_a_queue_that_is_not_assigned_is_named(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        drain(consumer, 1)
        stranger = rocketpy.MessageQueue(filled, "broker-a", 99)
        for use in (lambda: consumer.seek(stranger, 0), lambda: consumer.pause(stranger)):
            with pytest.raises(rocketpy.OffsetError, match="#99"):
                use()
        with pytest.raises(TypeError, match="MessageQueue"):
            consumer.seek("queue", 0)


def test_a_paused_queue_is_silent_until_it_is_resumed(rocketpy_server, producer, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        drain(consumer, 1000)
        one, *others = consumer.assignment()
        consumer.pause(one)
        producer.send_many([Message(filled, b"5000")], queue=one)
        producer.send_many([Message(filled, b"6000")], queue=others[0])
        assert numbers(drain(consumer, 1)) == [6000]
        assert consumer.poll(timeout=0.3) == []
        consumer.resume(one)
        assert numbers(drain(consumer, 1)) == [5000]
        consumer.pause()
        producer.send_many([Message(filled, b"7000") for _ in range(8)])
        assert consumer.poll(timeout=0.3) == []
        consumer.resume()
        assert numbers(drain(consumer, 8)) == [7000] * 8


def test_a_queue_is_still_paused_when_it_comes_back_from_another_member(rocketpy_server, producer, filled):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as consumer:
        drain(consumer, 1000)
        consumer.commit()
        consumer.pause()
        with rocketpy_server.consumer(group, filled, start=Start.EARLIEST):
            wait_until(lambda: len(consumer.assignment()) == 2)
        wait_until(lambda: len(consumer.assignment()) == 4)
        for n, queue in enumerate(consumer.assignment()):
            producer.send_many([Message(filled, b"%d" % n)], queue=queue)
        assert consumer.poll(timeout=1) == []
        consumer.resume()
        assert numbers(drain(consumer, 4)) == list(range(4))


def test_offsets_can_be_committed_by_hand_but_not_ahead(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled, start=Start.EARLIEST) as consumer:
        drain(consumer, 1000)
        queue = consumer.assignment()[0]
        consumer.commit_offsets({queue: 5})
        assert consumer.committed(queue) == 5
        with pytest.raises(rocketpy.OffsetError):
            consumer.commit_offsets({queue: 10**6})
        with pytest.raises(rocketpy.InvalidArgumentError):
            consumer.commit_offsets({queue: -1})
        for wrong in ([1], None, [(queue, 5)]):
            with pytest.raises(TypeError, match=r"dict such as \{message.queue: message.queue_offset \+ 1\}"):
                consumer.commit_offsets(wrong)


def test_a_commit_in_the_background_covers_what_was_returned_before_it(rocketpy_server, filled):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled) as consumer:
        first = drain(consumer, 300)
        for _ in range(1000):
            consumer.commit(wait=False)
        positions = consumer.positions()
        wait_until(lambda: {queue: consumer.committed(queue) for queue in positions} == positions)
        [queue, *_] = {message.queue for message in first}
        consumer.commit_offsets({queue: 1}, wait=False)
        assert consumer.poll(100, timeout=60)
        with pytest.raises(rocketpy.OffsetError):
            consumer.commit_offsets({queue: 10**6}, wait=False)
    with rocketpy_server.admin() as admin:
        stored = {queue: admin.committed_offset(group, queue) for queue in positions}
    assert stored == positions | {queue: 1}


def test_auto_commit_covers_what_was_handed_out_before_the_latest_poll(rocketpy_server, filled):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST, auto_commit=0.05) as consumer:
        first = drain(consumer, 300)
        latest = consumer.poll(100, timeout=60)
        assert latest
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as consumer:
        rest = drain(consumer, 1000 - len(first))
        assert consumer.poll(timeout=0.2) == []
    assert numbers(first + rest) == list(range(1000))
    assert set(numbers(latest)) <= set(numbers(rest))


@pytest.mark.parametrize("switch", [False, None, True])
def test_automatic_commits_are_switched_off_by_false_and_on_by_true(rocketpy_server, filled, switch):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST, auto_commit=switch) as consumer:
        done = len(drain(consumer, 300))
        consumer.pause()
        assert consumer.poll(timeout=0) == []
    with rocketpy_server.admin() as admin:
        committed = sum(admin.committed_offset(group, queue) or 0 for queue in admin.queues(filled))
    assert committed == (done if switch else 0)


def test_two_members_share_the_queues_and_one_takes_over(rocketpy_server, filled):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as one:
        with rocketpy_server.consumer(group, filled, start=Start.EARLIEST) as other:
            wait_until(lambda: len(one.assignment()) == len(other.assignment()) == 2)
            assert set(one.assignment()) | set(other.assignment()) == set(one_queues(rocketpy_server, filled))
            messages = []
            wait_until(
                lambda: messages.extend(one.poll(timeout=0.05) + other.poll(timeout=0.05)) or len(messages) >= 1000
            )
            assert set(numbers(messages)) == set(range(1000))
            other.commit()
            one.commit()
        wait_until(lambda: len(one.assignment()) == 4)


def test_a_queue_goes_to_the_next_member_after_the_commit_of_the_messages_in_work(rocketpy_server, filled):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, handover_timeout=600) as one:
        drain(one, 1000)
        with rocketpy_server.consumer(group, filled, handover_timeout=600) as other:
            wait_until(lambda: len(one.assignment()) == len(other.assignment()) == 2)
            early = other.poll(timeout=1.0)  # the work; without the handover these messages come twice
            assert (early, other.positions()) == ([], {})
            one.commit()
            wait_until(lambda: len(other.positions()) == 2)
            assert set(other.lag().values()) == {0}, "nothing comes twice"


def test_the_lag_is_what_a_queue_holds_beyond_the_last_message_returned(rocketpy_server, filled):
    with rocketpy_server.consumer(fresh_name(), filled) as consumer:
        done = len(drain(consumer, 300))
        wait_until(lambda: len(consumer.positions()) == 4)
        assert sum(consumer.lag().values()) == 1000 - done
        assert set(consumer.lag()) == set(consumer.assignment())


def one_queues(server, topic):
    with server.admin() as admin:
        return admin.queues(topic)


def test_a_consumer_may_read_several_topics(rocketpy_server, producer):
    topics = [fresh_name("one"), fresh_name("two")]
    producer.send_many([Message(topics[n % 2], b"%d" % n) for n in range(20)])
    with rocketpy_server.consumer(fresh_name(), topics, start=Start.EARLIEST) as consumer:
        messages = drain(consumer, 20)
    assert Counter(message.topic for message in messages) == {topics[0]: 10, topics[1]: 10}


def test_a_topic_that_does_not_exist_is_an_error_that_says_how_to_make_it(rocketpy_server):
    topic = fresh_name("missing")
    with pytest.raises(rocketpy.TopicNotFoundError, match=topic) as missing:
        rocketpy_server.consumer(fresh_name(), topic)
    assert topic in missing.value.hint


def test_a_topic_may_come_later(rocketpy_server, producer):
    topic = fresh_name("later")
    options = {"start": Start.EARLIEST, "allow_missing_topic": True}
    with rocketpy_server.consumer(fresh_name(), topic, **options) as consumer:
        assert consumer.poll(timeout=0.1) == []
        producer.send(Message(topic, b"text"))
        assert len(drain(consumer, 1, timeout=60)) == 1


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"max_messages": 0}, rocketpy.InvalidArgumentError),
        ({"max_messages": -1}, rocketpy.InvalidArgumentError),
        ({"max_messages": 2**40}, rocketpy.InvalidArgumentError),
        ({"max_messages": "1"}, TypeError),
        ({"timeout": -1}, rocketpy.InvalidArgumentError),
        ({"timeout": "1"}, TypeError),
    ],
)
def test_bad_arguments_of_poll_are_refused(rocketpy_server, filled, arguments, kind):
    with rocketpy_server.consumer(fresh_name(), filled) as consumer, pytest.raises(kind):
        consumer.poll(**arguments)


@pytest.mark.parametrize("group", ["", "a/b", "x" * 121, "ü"])
def test_a_bad_group_name_is_refused(rocketpy_server, filled, group):
    with pytest.raises(rocketpy.InvalidArgumentError, match="group"):
        rocketpy_server.consumer(group, filled)


def test_a_consumer_without_topics_is_refused(rocketpy_server):
    with pytest.raises(rocketpy.InvalidArgumentError, match="topic"):
        rocketpy_server.consumer(fresh_name(), [])


def test_a_closed_consumer_says_so(rocketpy_server, filled):
    consumer = rocketpy_server.consumer(fresh_name(), filled)
    consumer.close()
    consumer.close()
    with pytest.raises(rocketpy.ClosedError):
        consumer.poll()
    with pytest.raises(rocketpy.ClosedError):
        consumer.commit()
    assert list(consumer) == []
    assert list(consumer.batches()) == []


def test_messages_that_come_while_a_poll_waits_wake_it(rocketpy_server, producer, rocketpy_topic):
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic, start=Start.EARLIEST) as consumer:
        assert consumer.poll(timeout=0) == []
        timer = threading.Timer(0.3, lambda: producer.send(Message(rocketpy_topic, b"text")))
        timer.start()
        assert [message.body for message in consumer.poll(timeout=60)] == [b"text"]
        timer.join()


MEMBER_WITH_OTHER_TAGS = """
import sys

import rocketpy

name_server, group, topic = sys.argv[1:]


def read(consumer, seconds):
    try:
        consumer.poll(timeout=seconds)
        return ""
    except rocketpy.GroupConflictError as error:
        return f"{error} {error.hint}"


with rocketpy.Consumer(group, topic, tags="b || c", name_servers=name_server) as consumer:
    print(read(consumer, 60))
    while read(consumer, 0):
        pass  # one of the first heartbeats told it again
"""


def test_a_member_of_another_process_that_subscribes_to_other_tags_is_told(rocketpy_server, filled, child):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, tags="a") as wants_a:
        told = child(MEMBER_WITH_OTHER_TAGS, rocketpy_server.name_server, group, filled)
        assert told.returncode == 0, told.stderr
    for part in (group, wants_a.client_id, f"{filled}: a", "allow_other_subscriptions"):
        assert part in told.stdout


def test_another_client_with_the_same_id_is_told(rocketpy_server, rocketpy_topic, caplog):
    """Clients of one process that name their name servers differently are as those of two processes."""
    group, same = fresh_name(), {"instance_name": fresh_name(), "client_ip": "host"}
    other_address = rocketpy_server.name_server.replace("127.0.0.1", "localhost")
    with (
        caplog.at_level(logging.WARNING, "rocketpy"),
        rocketpy_server.consumer(group, rocketpy_topic, **same) as first,
        rocketpy.Consumer(group, rocketpy_topic, name_servers=other_address, api_timeout=60, **same) as second,
    ):
        assert first.client_id == second.client_id
        wait_until(lambda: len(first.assignment()) == len(second.assignment()) > 0)
        with rocketpy_server.consumer(fresh_name(), rocketpy_topic, **same):  # the instance says at once what it is in
            wait_until(lambda: "another client of the group has the same client id" in caplog.text)
        first.poll(timeout=0)


def test_members_may_be_allowed_to_subscribe_to_different_tags(rocketpy_server, filled):
    group = fresh_name()
    options = {"start": Start.EARLIEST, "allow_other_subscriptions": True}
    with (
        rocketpy_server.consumer(group, filled, tags="a", **options) as first,
        rocketpy_server.consumer(group, filled, tags="b", **options) as second,
    ):
        second.poll(timeout=0)
        first.poll(timeout=0)


def test_a_consumer_whose_server_is_gone_says_so(rocketpy_server_factory, tmp_path):
    server = rocketpy_server_factory(tmp_path / "store")
    with server.producer("ingest") as producer:
        producer.send_many([Message("topic", b"%d" % n) for n in range(10)])
    options = {"name_servers": server.name_server, "unreachable_timeout": 0.2}
    with rocketpy.Consumer("group", "topic", **options) as consumer:
        assert numbers(drain(consumer, 10)) == list(range(10))
        state = consumer.state()
        assert state.reachable
        assert list(state.assigned) == consumer.assignment()
        server.stop()
        for read in (lambda: consumer.poll(timeout=60), lambda: next(consumer), lambda: next(consumer.batches())):
            with pytest.raises(rocketpy.ConnectionFailedError, match="no broker could be reached") as gone:
                read()
        assert gone.value.retryable
        assert gone.value.hint
        (broker,) = consumer.state().brokers
        assert not consumer.state().reachable
        assert broker.last_error
        assert broker.unreachable_since <= datetime.now(UTC)

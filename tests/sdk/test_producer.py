"""Sending: receipts, batches, futures, order, and what happens when the server does not answer."""

import gc
import pickle
import threading
from collections import Counter
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta

import pytest
from reading import read_all

import rocketpy
from rocketpy import Message, SendStatus
from rocketpy.store import tools as store_tools
from rocketpy.testing import fresh_name
from waiting import wait_for_files


def test_a_receipt_says_where_the_message_is(rocketpy_server, producer, rocketpy_topic):
    receipt = producer.send(Message(rocketpy_topic, b"text", tag="UA", keys=["k"], properties={"a": "1"}))
    assert receipt.status is SendStatus.SEND_OK
    assert receipt.queue.topic == rocketpy_topic
    assert receipt.queue_offset == 0
    (message,) = read_all(rocketpy_server, rocketpy_topic, 1)
    assert (message.body, message.tag, message.keys) == (b"text", "UA", ("k",))
    assert message.properties["a"] == "1"
    assert (message.msg_id, message.offset_msg_id) == (receipt.msg_id, receipt.offset_msg_id)
    assert (message.queue, message.queue_offset) == (receipt.queue, receipt.queue_offset)


def test_a_message_goes_to_the_queue_that_is_named(producer, rocketpy_topic):
    queues = producer.queues(rocketpy_topic)
    assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
    for queue in queues:
        assert producer.send(Message(rocketpy_topic, b"text"), queue=queue).queue == queue
    assert {receipt.queue for receipt in producer.send_many([Message(rocketpy_topic, b"x")] * 9, queue=queues[2])} == {
        queues[2]
    }


def test_a_queue_of_another_topic_is_refused(producer, rocketpy_topic):
    other = rocketpy.MessageQueue("other", "broker-a", 0)
    with pytest.raises(rocketpy.InvalidArgumentError, match="other"):
        producer.send(Message(rocketpy_topic, b"text"), queue=other)


def test_send_many_gives_one_receipt_a_message_in_order(rocketpy_server, producer, rocketpy_topic):
    messages = [Message(rocketpy_topic, b"%d" % n, tag="even" if n % 2 == 0 else "odd") for n in range(5000)]
    receipts = producer.send_many(messages)
    assert len(receipts) == receipts.acknowledged == 5000
    by_place = {(m.queue_id, m.queue_offset): m.body for m in read_all(rocketpy_server, rocketpy_topic, 5000)}
    for message, receipt in zip(messages, receipts, strict=True):
        assert by_place[receipt.queue.queue_id, receipt.queue_offset] == message.body
    assert len({receipt.msg_id for receipt in receipts}) == 5000


def test_receipts_are_a_sequence(producer, rocketpy_topic):
    receipts = producer.send_many(Message(rocketpy_topic, b"%d" % n) for n in range(10))
    assert receipts[-1] == receipts[9] == list(receipts)[9]
    assert receipts[2:4] == [receipts[2], receipts[3]]
    assert receipts.index(receipts[3]) == 3
    assert list(receipts.failures()) == []
    for index in (10, -11):
        with pytest.raises(IndexError):
            receipts[index]
    assert "10 of 10" in repr(receipts)


def test_sending_nothing_sends_nothing(producer):
    assert len(producer.send_many([])) == 0


def test_messages_of_one_order_key_stay_in_order(rocketpy_server, producer, rocketpy_topic):
    keys = [f"N{n:05}" for n in range(50)]
    for start in range(0, 2000, 500):
        producer.send_many(
            [Message(rocketpy_topic, b"%d" % n, order_key=keys[n % 50]) for n in range(start, start + 500)]
        )
    for n in range(2000, 2100):
        producer.send(Message(rocketpy_topic, b"%d" % n, order_key=keys[n % 50]))
    seen: dict[str, list[int]] = {}
    queues: dict[str, set[int]] = {}
    for message in read_all(rocketpy_server, rocketpy_topic, 2100):
        seen.setdefault(message.order_key, []).append(int(message.body))
        queues.setdefault(message.order_key, set()).add(message.queue_id)
    assert seen == {key: list(range(at, 2100, 50)) for at, key in enumerate(keys)}
    assert all(len(ids) == 1 for ids in queues.values())
    assert len({id for ids in queues.values() for id in ids}) > 1


def test_send_many_of_several_topics(rocketpy_server, producer):
    topics = [rocketpy.testing.fresh_name("several") for _ in range(3)]
    receipts = producer.send_many([Message(topics[n % 3], b"%d" % n) for n in range(30)])
    assert [receipt.queue.topic for receipt in receipts] == [topics[n % 3] for n in range(30)]
    assert {m.body for m in read_all(rocketpy_server, topics[1], 10)} == {b"%d" % n for n in range(1, 30, 3)}


def test_send_many_tells_which_messages_were_not_acknowledged(stoppable):
    options = {"retries": 0, "batch_messages": 10}
    with rocketpy.Producer("partly", name_servers=[stoppable.name_server], **options) as producer:
        producer.send(Message("partly", b"first"), timeout=60)
        stoppable.freeze()
        with pytest.raises(rocketpy.PartlySentError) as partly:
            producer.send_many([Message("partly", b"%d" % n) for n in range(25)], timeout=0.5)
        stoppable.thaw()
    receipts = partly.value.receipts
    assert len(receipts) == 25
    failures = list(receipts.failures())
    assert len(failures) == 25 - receipts.acknowledged > 0
    index, error = failures[0]
    assert isinstance(error, rocketpy.RequestTimeoutError)
    with pytest.raises(rocketpy.RequestTimeoutError):
        receipts[index]
    assert error.msg_id
    copy = pickle.loads(pickle.dumps(partly.value))
    assert (str(copy), copy.may_have_been_applied) == (str(partly.value), True)
    assert (len(copy.receipts), copy.receipts.acknowledged) == (25, receipts.acknowledged)
    assert [(at, failed.msg_id) for at, failed in copy.receipts.failures()] == [
        (at, failed.msg_id) for at, failed in failures
    ]


def test_receipts_travel_between_processes(producer, rocketpy_topic):
    receipts = producer.send_many([Message(rocketpy_topic, b"%d" % n) for n in range(3)])
    assert list(pickle.loads(pickle.dumps(receipts))) == list(receipts)


def test_consumers_see_both_copies_of_a_repeat_under_one_id(rocketpy_server, producer, rocketpy_topic):
    message = Message(rocketpy_topic, b"text")
    first = producer.send(message)
    assert producer.send(message, msg_id=first.msg_id).msg_id == first.msg_id
    assert producer.submit(message, msg_id=first.msg_id).result(60).msg_id == first.msg_id
    assert {one.msg_id for one in read_all(rocketpy_server, rocketpy_topic, 3)} == {first.msg_id}


@pytest.mark.parametrize("msg_id", ["", "a\x01b", "a\x02b", "x" * 40_000])
def test_an_id_that_no_property_can_hold_is_refused(producer, rocketpy_topic, msg_id):
    message = Message(rocketpy_topic, b"text")
    for use in (lambda: producer.send(message, msg_id=msg_id), lambda: producer.submit(message, msg_id=msg_id)):
        with pytest.raises(rocketpy.InvalidArgumentError) as refused:
            use()
        assert refused.value.msg_id == msg_id


def test_one_way_messages_arrive(rocketpy_server, producer, rocketpy_topic):
    for n in range(10):
        producer.send_oneway(Message(rocketpy_topic, b"%d" % n))
    assert {message.body for message in read_all(rocketpy_server, rocketpy_topic, 10)} == {b"%d" % n for n in range(10)}


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd", None])
def test_large_bodies_come_back_with_any_compression(rocketpy_server, rocketpy_topic, kind):
    body = b"all work and no play " * 50_000
    with rocketpy_server.producer("compression", compression=kind) as producer:
        receipt = producer.send(Message(rocketpy_topic, body))
    (message,) = read_all(rocketpy_server, rocketpy_topic, 1)
    assert message.body == body
    assert bytes(message.body_view) == body
    wait_for_files(rocketpy_server.path, receipt.queue, receipt.queue_offset + 1)
    reader = rocketpy.StoreReader(rocketpy_server.path)
    (batch,) = reader.scan(reader.ranges(rocketpy_topic), columns=["size_bytes"])
    assert (len(body) > rocketpy.base.arrow.pyarrow_batch(batch)["size_bytes"][0].as_py()) == (kind is not None)
    assert receipt.queue_offset == message.queue_offset


def test_a_body_over_the_limit_is_refused_before_it_is_sent(producer, rocketpy_topic):
    with pytest.raises(rocketpy.MessageTooLargeError, match=str((4 << 20) + 1)) as refused:
        producer.send(Message(rocketpy_topic, bytes((4 << 20) + 1)))
    assert refused.value.code == 13
    assert refused.value.hint
    assert producer.send(Message(rocketpy_topic, bytes(4 << 20))).status == SendStatus.SEND_OK


@pytest.mark.parametrize(
    "given", [b"text", "text", None, 3, ("topic", b"text")], ids=lambda given: type(given).__name__
)
def test_what_is_no_message_is_refused_with_the_way_to_make_one(producer, given):
    wanted = rf"must be a rocketpy\.Message, made by rocketpy\.Message\(topic, body\), not {type(given).__name__}\b"
    for send in (producer.send, producer.submit, producer.send_oneway):
        with pytest.raises(TypeError, match=f"^message {wanted}"):
            send(given)
    with pytest.raises(TypeError, match=f"^every item of messages {wanted}"):
        producer.send_many([Message("topic", b"text"), given])


@pytest.mark.parametrize(
    "given", [b"text", "text", 3, Message("topic", b"text")], ids=lambda given: type(given).__name__
)
def test_only_an_iterable_of_messages_can_be_sent_by_send_many(producer, given):
    wanted = r"iterable of rocketpy\.Message, each made by rocketpy\.Message\(topic, body\)"
    with pytest.raises(TypeError, match=rf"{wanted}, not {type(given).__name__}\b"):
        producer.send_many(given)


def test_an_error_of_the_iterable_comes_through(producer, rocketpy_topic):
    def messages():
        yield Message(rocketpy_topic, b"text")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        producer.send_many(messages())


def test_threads_share_a_producer(rocketpy_server, producer, rocketpy_topic):
    def send(number):
        for n in range(50):
            producer.send(Message(rocketpy_topic, b"%d-%d" % (number, n)))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bodies = Counter(message.body for message in read_all(rocketpy_server, rocketpy_topic, 400))
    assert bodies == Counter(b"%d-%d" % (number, n) for number in range(8) for n in range(50))


def test_other_threads_run_while_one_waits(stoppable):
    with rocketpy.Producer("detached", name_servers=[stoppable.name_server], retries=0) as producer:
        producer.send(Message("detached", b"first"), timeout=60)
        stoppable.freeze()
        steps = 0
        future = Future()
        threading.Thread(target=lambda: future.set_result(_failure(producer))).start()
        while not future.done():
            steps += 1
        stoppable.thaw()
    assert isinstance(future.result(), rocketpy.RequestTimeoutError)
    assert steps > 1000


def _failure(producer):
    try:
        producer.send(Message("detached", b"second"), timeout=0.5)
    except rocketpy.RocketPyError as error:
        return error
    return AssertionError("it was answered")


def test_a_closed_producer_says_so(rocketpy_server, rocketpy_topic):
    producer = rocketpy_server.producer("closed")
    producer.close()
    producer.close()
    assert producer.closed
    for use in (
        lambda: producer.send(Message(rocketpy_topic, b"text")),
        lambda: producer.send_many([Message(rocketpy_topic, b"text")]),
        lambda: producer.submit(Message(rocketpy_topic, b"text")),
        lambda: producer.send_oneway(Message(rocketpy_topic, b"text")),
    ):
        with pytest.raises(rocketpy.ClosedError):
            use()
    assert "closed" in repr(producer)


def test_messages_are_not_kept_after_they_were_sent(producer, rocketpy_topic):
    producer.send_many([Message(rocketpy_topic, b"text") for _ in range(10)])
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Message)]


def test_a_topic_is_made_by_the_first_message(rocketpy_server, producer):
    topic = rocketpy.testing.fresh_name("automatic")
    producer.send(Message(topic, b"text"))
    with rocketpy_server.admin() as admin:
        assert topic in admin.topics()


@pytest.mark.parametrize(
    ("name", "value", "feature"),
    [
        ("TRAN_MSG", "true", "transaction"),
        ("INNER_MULTI_DISPATCH", "%LMQ%a", "multi-queue"),
    ],
)
def test_a_message_that_asks_for_what_is_not_there_is_refused_by_name(
    rocketpy_server, producer, rocketpy_topic, name, value, feature
):
    plain = Message(rocketpy_topic, b"now")
    message = Message(rocketpy_topic, b"later", properties={name: value, "colour": "red"})
    for use in (
        lambda: producer.send(message),
        lambda: producer.send(message, queue=producer.queues(rocketpy_topic)[0]),
        lambda: producer.send_many([plain, message]),
        lambda: producer.submit(message).result(10),
        lambda: producer.send_oneway(message),
    ):
        with pytest.raises(rocketpy.NotSupportedError, match=f"{feature}.*{name}={value}") as refused:
            use()
        assert not refused.value.retryable
        assert not refused.value.may_have_been_applied
        assert f"without {name}" in refused.value.hint
    receipt = producer.send(plain)
    assert [one.msg_id for one in read_all(rocketpy_server, rocketpy_topic, 1)] == [receipt.msg_id], "none was sent"


def test_delayed_messages_come_after_their_level(rocketpy_server, producer, rocketpy_topic):
    later = Message(rocketpy_topic, b"later", delay_level=1)
    now = Message(rocketpy_topic, b"now")
    producer.send(later)
    producer.send_many([now, later, now])
    producer.submit(later).result(10)
    received = read_all(rocketpy_server, rocketpy_topic, 5)
    assert sorted(message.body for message in received) == [b"later"] * 3 + [b"now"] * 2
    assert all(one.stored_at_ms - one.born_at_ms >= 1000 for one in received if one.body == b"later")


def test_timed_messages_come_at_their_millisecond(rocketpy_server, producer, rocketpy_topic):
    at = datetime.now(UTC) + timedelta(milliseconds=1234)
    producer.send(Message(rocketpy_topic, b"at", deliver_at=at))
    producer.send_many([Message(rocketpy_topic, b"now"), Message(rocketpy_topic, b"after", delay=0.3)])
    producer.submit(Message(rocketpy_topic, b"after", delay=timedelta(seconds=0.7))).result(10)
    received = read_all(rocketpy_server, rocketpy_topic, 4)
    assert sorted(message.body for message in received) == [b"after"] * 2 + [b"at", b"now"]
    late = {message.body: message.stored_at_ms - message.born_at_ms for message in received}
    assert late[b"after"] >= 300
    assert [one.stored_at for one in received if one.body == b"at" and one.stored_at < at] == []


def test_a_recalled_message_does_not_come(rocketpy_server, producer, rocketpy_topic):
    later = Message(rocketpy_topic, b"later", delay=6)
    kept, recalled, by_handle = producer.send(later), producer.send(later), producer.submit(later).result(10)
    producer.recall(recalled)
    producer.recall(by_handle.recall_handle)
    producer.recall(pickle.loads(pickle.dumps(by_handle)))  # again
    producer.send(Message(rocketpy_topic, b"behind", delay=6.2))
    received = read_all(rocketpy_server, rocketpy_topic, 2)
    assert sorted((one.body, one.msg_id) for one in received)[1] == (b"later", kept.msg_id)
    with pytest.raises(rocketpy.RefusedError, match="its delivery time has passed") as late:
        producer.recall(kept)
    assert late.value.hint.startswith("only a message that still waits for its delivery time can be recalled")
    assert late.value.__notes__ == [f"hint: {late.value.hint}"]
    plain = producer.send(Message(rocketpy_topic, b"now"))
    assert plain.recall_handle is None
    by_level = producer.send(Message(rocketpy_topic, b"level", delay_level=1))
    due = producer.send(Message(rocketpy_topic, b"due", delay=0))
    past = producer.send(Message(rocketpy_topic, b"past", deliver_at=datetime(2000, 1, 1)))
    for receipt in (plain, by_level, due, past, "no handle"):
        with pytest.raises(rocketpy.InvalidArgumentError) as refused:
            producer.recall(receipt)
        assert refused.value.hint
    for wrong in (None, 5):
        with pytest.raises(TypeError, match="receipt must be a Receipt or its recall_handle, not"):
            producer.recall(wrong)


def test_system_topics_take_no_messages_of_clients(producer):
    for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"):
        with pytest.raises(rocketpy.InvalidArgumentError, match=topic):
            producer.send(Message(topic, b"text"))


def test_a_snapshot_knows_which_timers_were_delivered(rocketpy_server_factory, tmp_path):
    topic, copy = fresh_name("timed"), tmp_path / "copy"
    with rocketpy_server_factory() as server, server.producer("timers") as producer:
        producer.send(rocketpy.Message(topic, b"once", delay=0.1))
        assert [message.body for message in read_all(server, topic, 1)] == [b"once"]
    store_tools.snapshot(tmp_path / "store", copy)
    with rocketpy_server_factory(copy) as server, server.producer("timers") as producer:
        producer.send(rocketpy.Message(topic, b"after", delay=0.5))
        assert sorted(message.body for message in read_all(server, topic, 2)) == [b"after", b"once"]


def test_a_server_takes_other_delay_levels_once_nothing_waits_by_the_old_ones(rocketpy_server_factory, tmp_path):
    topic, store = fresh_name("levels"), tmp_path / "store"

    def start(levels: str) -> rocketpy.Server:
        return rocketpy_server_factory(store, settings={"messageDelayLevel": levels})

    with start("1h 1s") as server, server.producer("levels") as producer:
        producer.send(rocketpy.Message(topic, b"in an hour", delay_level=1))
    with pytest.raises(rocketpy.ConfigError, match="1 delayed messages were stored with other levels"):
        start("1s 1h")
    with start("1h 1s 2s") as server, server.producer("levels") as producer:
        producer.send(rocketpy.Message(topic, b"soon", delay_level=2))
        assert [message.body for message in read_all(server, topic, 1)] == [b"soon"]
    with pytest.raises(rocketpy.ConfigError, match="a level is a number and one of s, m, h, d"):
        start("1x")
    assert not store_tools.verify(store).problems

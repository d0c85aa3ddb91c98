"""Message traces: what clients write about messages when asked, and how `Admin.trace` reads it."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from wire import OK, SEND, SEND_MESSAGE, Raw, request

import rocketpy
from rocketpy.errors import InvalidArgumentError, TopicNotFoundError
from rocketpy.testing import fresh_name
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketpy import Consumer, MessageTrace, Server

    Factory = Callable[..., Server]

WAIT = 60


def trace(server: Server, msg_id: str, has: Callable[[MessageTrace], object], **where: str) -> MessageTrace:
    """The trace of a message, once it has what is waited for."""
    with server.admin() as admin:
        latest: list[MessageTrace] = []

        def is_there() -> bool:
            try:
                latest[:] = [admin.trace(msg_id, **where)]
            except TopicNotFoundError:
                return False
            return bool(has(latest[0]))

        wait_until(is_there, f"trace of {msg_id}")
        return latest[0]


def poll_all(consumer: Consumer, count: int) -> list[rocketpy.ReceivedMessage]:
    """Polls until `count` messages came."""
    messages: list[rocketpy.ReceivedMessage] = []
    while len(messages) < count:
        batch = consumer.poll(timeout=WAIT)
        assert batch, f"{len(messages)} of {count} messages"
        messages += batch
    return messages


def test_a_trace_says_where_a_message_is_stored_and_who_consumed_it(rocketpy_server: Server, rocketpy_topic: str):
    group, before = fresh_name("tracing"), datetime.now(UTC) - timedelta(milliseconds=1)
    message = rocketpy.Message(rocketpy_topic, b"a book", tag="paid", keys=["A-17", "A-18"])
    with rocketpy_server.producer(group, trace=True) as producer:
        receipt = producer.send(message)
        producer_id = producer.client_id
    with rocketpy_server.consumer(group, rocketpy_topic, trace=True) as consumer:
        poll_all(consumer, 1)
        consumer.commit()
    found = trace(rocketpy_server, receipt.msg_id, lambda found: found.deliveries)
    [sent], [delivery] = found.sends, found.deliveries
    assert (sent.group, sent.client, sent.topic) == (group, producer_id, rocketpy_topic)
    assert (sent.tag, sent.keys, sent.kind, sent.body_bytes) == ("paid", ("A-17", "A-18"), "normal", 6)
    assert (sent.success, sent.offset_msg_id) == (True, receipt.offset_msg_id)
    assert before <= sent.at <= datetime.now(UTC)
    assert 0 <= sent.cost_ms < WAIT * 1000
    with rocketpy_server.admin() as admin:
        assert sent.store_host in [broker.addresses[0] for broker in admin.brokers()]
        by_key = admin.query_messages("RMQ_SYS_TRACE_TOPIC", "A-18")
        assert by_key, "traces are found by the keys of messages too"
    assert (delivery.group, delivery.success, delivery.result, delivery.retries) == (group, True, "success", 0)
    assert delivery.began_at is not None
    assert delivery.ended_at is not None
    assert sent.at <= delivery.began_at <= delivery.ended_at
    assert (found.transactions, found.recalls) == ((), ())


def test_a_trace_message_that_does_not_decompress_hides_no_other_record(rocketpy_server: Server, rocketpy_topic: str):
    with rocketpy_server.producer(fresh_name("tracing"), trace=True) as producer:
        receipt = producer.send(rocketpy.Message(rocketpy_topic, b"a book"))
    trace(rocketpy_server, receipt.msg_id, lambda found: found.sends)
    with Raw(rocketpy_server.broker) as raw:
        fields = {**SEND, "topic": "RMQ_SYS_TRACE_TOPIC", "sysFlag": "1", "properties": f"KEYS\1{receipt.msg_id}\2"}
        assert raw.answer(request(SEND_MESSAGE, fields, b"not compressed"))["code"] == OK
    with rocketpy_server.admin() as admin:
        wait_until(lambda: len(admin.query_messages("RMQ_SYS_TRACE_TOPIC", receipt.msg_id)) == 2, "both are found")
        assert len(admin.trace(receipt.msg_id).sends) == 1


def test_every_message_has_a_record_of_its_own_however_it_is_sent(rocketpy_server: Server, rocketpy_topic: str):
    def messages(count: int) -> list[rocketpy.Message]:
        return [rocketpy.Message(rocketpy_topic, b"x" * (n + 1), tag=f"T{n}") for n in range(count)]

    with rocketpy_server.producer(fresh_name("all-ways"), trace=True) as producer:
        receipts = list(producer.send_many(messages(300)))[::100]
        futures = [producer.submit(message) for message in messages(300)]
        producer.flush(WAIT)
        receipts += [future.result() for future in futures][::100]
    for number, receipt in enumerate(receipts):
        [sent] = trace(rocketpy_server, receipt.msg_id, lambda found: found.sends).sends
        index = number % 3 * 100
        assert (sent.tag, sent.body_bytes) == (f"T{index}", index + 1)
        assert sent.offset_msg_id == receipt.offset_msg_id
    assert producer.closed


def test_handlers_are_traced_with_what_became_of_each_message(rocketpy_server: Server, rocketpy_topic: str):
    group, done = fresh_name("handlers"), threading.Semaphore(0)
    with rocketpy_server.producer(group) as producer:
        bodies = (b"good", b"bad", b"slow")
        ids = {body: producer.send(rocketpy.Message(rocketpy_topic, body)).msg_id for body in bodies}
    consumer = rocketpy_server.push_consumer(group, trace=True, handler_timeout=0.5)
    over = threading.Event()

    @consumer.on(rocketpy_topic)
    def handle(message: rocketpy.ReceivedMessage) -> None:
        done.release()
        if message.body == b"bad":
            raise rocketpy.Reject("no such customer")
        if message.body == b"slow":
            over.wait(WAIT)

    with consumer:
        for _ in range(3):
            assert done.acquire(timeout=WAIT)
        found = {
            name: trace(rocketpy_server, msg_id, lambda found: found.deliveries and found.deliveries[0].ended_at)
            for name, msg_id in ids.items()
        }
        over.set()
    first = {name: of.deliveries[0] for name, of in found.items()}
    assert [first[name].success for name in ids] == [True, False, False]
    assert [first[name].result for name in ids] == ["success", "failed", "timed out"]
    assert first[b"slow"].cost_ms >= 500


def test_a_message_that_nobody_committed_is_traced_as_begun(rocketpy_server: Server, rocketpy_topic: str):
    group = fresh_name("uncommitted")
    with rocketpy_server.producer(group) as producer:
        first = producer.send(rocketpy.Message(rocketpy_topic, b"1", order_key="k"))
        second = producer.send(rocketpy.Message(rocketpy_topic, b"2", order_key="k"))
    with rocketpy_server.consumer(group, rocketpy_topic, trace=True) as consumer:
        [message, _] = poll_all(consumer, 2)
        consumer.commit_offsets({message.queue: message.queue_offset + 1})
    [done] = trace(rocketpy_server, first.msg_id, lambda found: found.deliveries).deliveries
    [begun] = trace(rocketpy_server, second.msg_id, lambda found: found.deliveries).deliveries
    assert (done.success, done.result) == (True, "success")
    assert (begun.success, begun.result, begun.ended_at, begun.cost_ms) == (None, None, None, None)
    assert begun.began_at is not None


def test_nothing_is_traced_unless_it_is_asked_for(rocketpy_server_factory: Factory):
    server = rocketpy_server_factory()
    with server.producer("plain") as producer:
        receipt = producer.send(rocketpy.Message("plain", b"x"))
    with server.consumer("plain", "plain") as consumer:
        poll_all(consumer, 1)
        consumer.commit()
    with server.admin() as admin:
        assert "RMQ_SYS_TRACE_TOPIC" not in admin.topics()
        with pytest.raises(TopicNotFoundError, match="trace topic RMQ_SYS_TRACE_TOPIC does not exist") as caught:
            admin.trace(receipt.msg_id)
        assert caught.value.hint is not None
        assert "trace=True" in caught.value.hint
        admin.create_topic("traces", queues=1)
        assert not admin.trace(receipt.msg_id, trace_topic="traces")


@pytest.mark.parametrize("on", [True, False])
def test_a_broker_may_have_the_trace_topic_and_may_switch_traces_off(rocketpy_server_factory: Factory, on: bool):
    switches = {"traceTopicEnable": True, "autoCreateTopicEnable": False, "traceOn": on}
    server = rocketpy_server_factory(settings=switches)
    with server.admin() as admin:
        admin.create_topic("orders", queues=1)
        with server.producer("shop", trace=True) as producer:
            receipt = producer.send(rocketpy.Message("orders", b"x"))
        with server.consumer("billing", "orders", trace=True) as consumer:
            poll_all(consumer, 1)
            consumer.commit()
        found = admin.trace(receipt.msg_id)
    assert (len(found.sends), len(found.deliveries)) == ((1, 1) if on else (0, 0))


def test_traces_go_to_a_topic_of_ones_own_whose_messages_are_not_traced(rocketpy_server: Server, rocketpy_topic: str):
    topic = fresh_name("own-traces")
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=1)
    with rocketpy_server.producer(fresh_name("own"), trace_topic=topic) as producer:
        receipt = producer.send(rocketpy.Message(rocketpy_topic, b"x"))
        producer.send(rocketpy.Message(topic, b"no trace"))
    found = trace(rocketpy_server, receipt.msg_id, lambda found: found.sends, trace_topic=topic)
    assert len(found.sends) == 1
    with rocketpy_server.consumer(fresh_name("own"), topic, trace_topic=topic) as consumer:
        assert len(poll_all(consumer, 2)) == 2
        consumer.commit()
    with rocketpy_server.admin() as admin:
        [queue] = admin.describe_topic(topic).queues
        assert queue.max_offset == 2, "the trace and the message, and no trace of these"


def test_the_first_trace_makes_its_topic_without_a_warning(
    rocketpy_server_factory: Factory, caplog: pytest.LogCaptureFixture
):
    server = rocketpy_server_factory()
    with server.producer("shop", trace=True) as producer:
        receipt = producer.send(rocketpy.Message("orders", b"x"))
    trace(server, receipt.msg_id, lambda found: found.sends)
    wait_until(lambda: 'topic="orders"' in caplog.text, "the warning of the other topic")
    assert "RMQ_SYS_TRACE_TOPIC" not in caplog.text


def test_transactions_delays_and_recalls_are_traced(rocketpy_server: Server, rocketpy_topic: str):
    group = fresh_name("payers")
    message = rocketpy.Message(rocketpy_topic, b"17.50", keys=["A-17"])
    decide = rocketpy.Decision.UNKNOWN
    with rocketpy.TransactionProducer(
        group, lambda _: decide, name_servers=rocketpy_server.name_servers, trace=True
    ) as producer:
        with producer.transaction(message) as committed:
            pass
        rolled_back = producer.transaction(message)
        rolled_back.rollback()
        delayed = producer.send(rocketpy.Message(rocketpy_topic, b"later", delay=3600))
        producer.recall(delayed)
        level = producer.send(rocketpy.Message(rocketpy_topic, b"later", delay_level=18))
    for half, state in ((committed, "COMMIT_MESSAGE"), (rolled_back, "ROLLBACK_MESSAGE")):
        found = trace(rocketpy_server, half.receipt.msg_id, lambda found: found.transactions)
        [sent], [end] = found.sends, found.transactions
        assert (sent.kind, sent.keys) == ("half", ("A-17",))
        assert (end.state, end.from_check, end.group) == (state, False, group)
        assert (end.store_host, end.transaction_id) == (sent.store_host, half.receipt.msg_id)
    found = trace(rocketpy_server, delayed.msg_id, lambda found: found.recalls)
    assert [(one.group, one.success) for one in found.recalls] == [(group, True)]
    assert [one.kind for one in found.sends] == ["delay"]
    [sent] = trace(rocketpy_server, level.msg_id, lambda found: found.sends).sends
    assert sent.kind == "delay"


def test_the_answer_to_a_brokers_question_is_traced(rocketpy_server_factory: Factory):
    settings = {"transactionTimeOut": 100, "transactionCheckInterval": 100}
    server = rocketpy_server_factory(settings=settings)
    with server.admin() as admin:
        admin.create_topic("invoices", queues=1)
    with rocketpy.TransactionProducer(
        "payers", lambda _: rocketpy.Decision.COMMIT, name_servers=server.name_servers, trace=True
    ) as producer:
        half = producer.transaction(rocketpy.Message("invoices", b"17.50"))
        [end] = trace(server, half.receipt.msg_id, lambda found: found.transactions).transactions
    assert (end.state, end.from_check, end.group) == ("COMMIT_MESSAGE", True, "payers")


def test_traces_that_no_broker_takes_are_counted_and_hold_nothing_up(rocketpy_server_factory: Factory):
    server = rocketpy_server_factory(settings={"autoCreateTopicEnable": False})
    with server.admin() as admin:
        admin.create_topic("orders", queues=1)
    producer = server.producer("shop", trace=True)
    began = time.monotonic()
    assert len(producer.send_many([rocketpy.Message("orders", b"x")] * 100)) == 100
    wait_until(lambda: producer.dropped_traces == 100, "the traces are dropped")
    producer.close()
    assert time.monotonic() - began < WAIT


def test_messages_are_taken_while_the_trace_topic_is_closed_to_writers(rocketpy_server: Server, rocketpy_topic: str):
    topic = fresh_name("closed-traces")
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=1, writable=False)
    with rocketpy_server.producer(fresh_name("closed"), trace_topic=topic) as producer:
        receipts = [producer.send(rocketpy.Message(rocketpy_topic, b"x")) for _ in range(5)]
        wait_until(lambda: producer.dropped_traces == len(receipts), "the traces are dropped")
    assert all(receipt.status == rocketpy.SendStatus.SEND_OK for receipt in receipts)


@pytest.mark.parametrize("client", ["producer", "consumer"])
def test_options_of_traces_are_checked(rocketpy_server: Server, rocketpy_topic: str, client: str):
    def make(**options: object) -> None:
        arguments = [fresh_name("wrong")] + [rocketpy_topic] * (client == "consumer")
        getattr(rocketpy_server, client)(*arguments, **options)

    with pytest.raises(InvalidArgumentError, match="contradict each other"):
        make(trace=False, trace_topic="traces")
    with pytest.raises(InvalidArgumentError, match=r'topic name has an invalid character .*: "a b"'):
        make(trace_topic="a b")
    with pytest.raises(InvalidArgumentError, match="system topic: SCHEDULE_TOPIC_XXXX"):
        make(trace_topic="SCHEDULE_TOPIC_XXXX")
    with pytest.raises(TypeError, match="option trace"):
        make(trace="yes")


def test_asyncio_clients_trace_and_read_traces(rocketpy_server: Server, rocketpy_topic: str):
    group, names = fresh_name("aio-trace"), {"name_servers": rocketpy_server.name_servers}

    async def work() -> MessageTrace:
        async with rocketpy.AsyncProducer(group, trace=True, **names) as producer:
            receipt = await producer.send(rocketpy.Message(rocketpy_topic, b"x"))
        async with rocketpy.AsyncConsumer(group, rocketpy_topic, trace=True, **names) as consumer:
            async for message in consumer:
                assert message.msg_id == receipt.msg_id
                break
            await consumer.commit()
            assert consumer.dropped_traces == 0
        async with rocketpy.AsyncAdmin(**names) as admin:
            return await admin.trace(receipt.msg_id)

    found = asyncio.run(work())
    assert [one.group for one in found.sends] == [group]
    assert [(one.group, one.success) for one in found.deliveries] == [(group, True)]

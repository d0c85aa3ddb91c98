"""Namespaces: tenants of a cluster whose topics and groups have the same names."""

from __future__ import annotations

import asyncio
import pickle
import threading
from queue import Queue

import pytest

import rocketpy
from rocketpy.codec import JsonCodec
from rocketpy.testing import fresh_name
from waiting import wait_until

PATIENCE = 60


def first(consumer: rocketpy.Consumer) -> rocketpy.ReceivedMessage:
    """The next message."""
    (message,) = consumer.poll(max_messages=1, timeout=PATIENCE)
    return message


@pytest.fixture
def space(server: rocketpy.Server, topic: str) -> str:
    """A namespace that has the topic, too."""
    name = fresh_name("space")
    with server.admin() as admin:
        admin.create_topic(f"{name}%{topic}", queues=4)
    return name


def test_messages_stay_in_their_namespace_and_show_no_trace_of_it(
    server: rocketpy.Server, topic: str, group: str, space: str
):
    with (
        server.producer(group, namespace=space) as inside,
        server.producer(group) as outside,
        server.consumer(group, topic, namespace=space) as consumer,
    ):
        receipts = [inside.send(rocketpy.Message(topic, b"send"))]
        receipts += inside.send_many([rocketpy.Message(topic, b"many"), rocketpy.Message(topic, b"many")])
        receipts.append(inside.submit(rocketpy.Message(topic, b"submit")).result(PATIENCE))
        queue = inside.queues(topic)[3]
        receipts.append(inside.send(rocketpy.Message(topic, b"queue"), queue=queue))
        inside.send_oneway(rocketpy.Message(topic, b"oneway"))
        outside.send(rocketpy.Message(topic, b"outside"))
        assert {receipt.queue.topic for receipt in receipts} == {topic}
        assert receipts[-1].queue == queue
        messages: list[rocketpy.ReceivedMessage] = []
        while len(messages) < 6:
            batch = consumer.poll(timeout=PATIENCE)
            assert batch, messages
            messages += batch
        assert sorted(one.body for one in messages) == [b"many", b"many", b"oneway", b"queue", b"send", b"submit"]
        assert {one.topic for one in messages} == {one.queue.topic for one in messages} == {topic}
        assert {one.properties["INSTANCE_ID"] for one in messages} == {space}
        copy = pickle.loads(pickle.dumps(messages[0]))
        assert (copy.topic, copy.queue, repr(copy)) == (topic, messages[0].queue, repr(messages[0]))
        with server.admin() as admin:
            held = sum(info.max_offset for info in admin.describe_topic(f"{space}%{topic}").queues)
            assert (held, sum(info.max_offset for info in admin.describe_topic(topic).queues)) == (6, 1)
            assert admin.group_members(f"{space}%{group}") == [consumer.client_id]
            assert admin.group_members(group) == []
            wait_until(lambda: admin.producer_connections(f"{space}%{group}"))
            assert [one.client_id for one in admin.producer_connections(f"{space}%{group}")] == [inside.client_id]


def test_a_consumer_knows_its_queues_without_the_namespace(server: rocketpy.Server, topic: str, group: str, space: str):
    with (
        server.producer(group, namespace=space) as producer,
        server.consumer(group, topic, namespace=space, start="latest") as consumer,
    ):
        queues = producer.queues(topic)
        assert consumer.assignment() == queues
        assert list(consumer.state().assigned) == queues
        (receipt,) = producer.send_many([rocketpy.Message(topic, b"x")], queue=queues[2])
        assert first(consumer).queue == receipt.queue == queues[2]
        consumer.commit_offsets({queues[2]: 1})
        assert consumer.committed(queues[2]) == 1
        assert consumer.positions()[queues[2]] == 1
        assert consumer.lag()[queues[2]] == 0
        assert {one.queue for one in consumer.stats().queues} == set(queues)
        consumer.pause(queues[2])
        consumer.resume(queues[2])
        assert consumer.seek(queues[2], 0) == 0
        table = consumer.fetch_arrow(max_rows=10, timeout=PATIENCE)
        assert table.column("topic").to_pylist() == [topic]
        consumer.commit()


def test_a_function_that_balances_and_given_queues_know_no_namespace(
    server: rocketpy.Server, topic: str, group: str, space: str
):
    asked: list[tuple[str, set[str]]] = []

    def mine(group: str, client_id: str, queues: list[rocketpy.MessageQueue], members: list[str]):
        asked.append((group, {queue.topic for queue in queues}))
        return queues[:1] if client_id in members else []

    options = {"namespace": space, "start": "latest"}
    with server.consumer(group, topic, balance=mine, **options) as consumer:
        (queue,) = consumer.assignment()
        assert (asked[0], queue.topic) == ((group, {topic}), topic)
    names = server.name_servers
    with rocketpy.Consumer.assign(group, [queue], name_servers=names, **options) as consumer:
        assert consumer.assignment() == [queue]


def test_retries_and_dead_letters_stay_in_the_namespace(server: rocketpy.Server, topic: str, group: str, space: str):
    tries, done = [], threading.Event()
    consumer = server.push_consumer(group, namespace=space, max_retries=1)

    @consumer.on(topic)
    def refuse(message: rocketpy.ReceivedMessage) -> None:
        tries.append((message.topic, message.queue.topic, message.reconsume_times))
        if message.reconsume_times == 1:
            done.set()
        raise ValueError(message.body)

    with server.producer(group, namespace=space) as producer:
        producer.send(rocketpy.Message(topic, b"x"))
    with consumer:
        assert done.wait(PATIENCE)
        wait_until(lambda: consumer.stats().dead)
    assert tries == [(topic, topic, 0), (topic, f"%RETRY%{group}", 1)]
    with server.admin() as admin:
        (dead,) = admin.dead_letters(f"{space}%{group}")
        assert (dead.message.body, dead.message.topic) == (b"x", f"%DLQ%{space}%{group}")
        assert f"%DLQ%{group}" not in admin.topics()
    with server.consumer(group, f"%DLQ%{group}", namespace=space) as reader:
        assert first(reader).topic == f"%DLQ%{group}"


def test_a_name_that_has_the_namespace_already_is_that_of_the_same_topic(
    server: rocketpy.Server, topic: str, group: str, space: str
):
    values: Queue[object] = Queue()
    consumer = server.push_consumer(group, namespace=space)

    @consumer.on(f"{space}%{topic}", codec=JsonCodec())
    def take(message: rocketpy.ReceivedMessage) -> None:
        values.put((message.topic, message.value))

    with server.producer(group, namespace=space) as producer, consumer:
        receipt = producer.send(rocketpy.Message(f"{space}%{topic}", b'["x"]'))
        assert receipt.queue.topic == topic
        assert values.get(timeout=PATIENCE) == (topic, ["x"])


def test_asyncio_requests_and_transactions_know_no_namespace(
    server: rocketpy.Server, topic: str, group: str, space: str
):
    options = {"name_servers": server.name_servers, "namespace": space}

    async def main() -> rocketpy.ReceivedMessage:
        async with (
            rocketpy.AsyncProducer(group, **options) as producer,
            rocketpy.AsyncConsumer(group, topic, **options) as consumer,
        ):
            asked = asyncio.create_task(producer.request(rocketpy.Message(topic, b"tea?"), timeout=PATIENCE))
            (request,) = await consumer.poll(timeout=PATIENCE)
            assert (request.topic, request.queue.topic) == (topic, topic)
            await producer.reply(request, b"tea!")
            return await asked

    assert asyncio.run(main()).body == b"tea!"
    checked = []

    def check(message: rocketpy.ReceivedMessage) -> rocketpy.Decision:
        checked.append((message.topic, message.queue.topic))
        return rocketpy.Decision.COMMIT

    with rocketpy.TransactionProducer(group, check, **options) as producer:
        with producer.transaction(rocketpy.Message(topic, b"kept")) as kept:
            assert kept.receipt.queue.topic == topic
        later = producer.send(rocketpy.Message(topic, b"later", delay=3600))
        producer.recall(later)
    with rocketpy.Consumer(fresh_name("reader"), topic, **options) as consumer:
        bodies = set()
        while len(bodies) < 2:
            bodies |= {message.body for message in consumer.poll(timeout=PATIENCE)}
    assert bodies == {b"tea?", b"kept"}


def test_traces_name_group_and_topic_without_the_namespace(server: rocketpy.Server, topic: str, group: str, space: str):
    with server.producer(group, namespace=space, trace=True) as producer:
        msg_id = producer.send(rocketpy.Message(topic, b"x")).msg_id
    with server.admin() as admin:
        sends: list[rocketpy.TracedSend] = []
        wait_until(lambda: sends.extend(admin.trace(msg_id).sends) or sends)
    assert [(one.group, one.topic) for one in sends] == [(group, topic)]


@pytest.mark.parametrize("namespace", ["a%b", "a b", 5])
def test_what_is_no_namespace_is_refused(server: rocketpy.Server, namespace: object):
    with pytest.raises((rocketpy.InvalidArgumentError, TypeError), match="namespace"):
        server.producer("producer", namespace=namespace)
    with pytest.raises(TypeError, match='Admin has no option "namespace"'):
        server.admin(namespace=namespace)


def test_a_blank_namespace_is_none(server: rocketpy.Server, topic: str, group: str):
    with server.producer(group, namespace="") as producer:
        producer.send(rocketpy.Message(topic, b"x"))
    with server.consumer(group, topic) as consumer:
        assert first(consumer).body == b"x"

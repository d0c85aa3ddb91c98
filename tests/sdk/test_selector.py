"""Selectors: which queue a producer sends a message to."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import rocketpy
from rocketpy.testing import SMALL_FILES, fresh_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def by_body(queues: list[rocketpy.MessageQueue], message: rocketpy.Message) -> rocketpy.MessageQueue:
    """The queue whose number the body says."""
    return queues[int(message.body)]


def numbered(topic: str, *numbers: int, order_key: str | None = None) -> list[rocketpy.Message]:
    return [rocketpy.Message(topic, b"%d" % number, order_key=order_key) for number in numbers]


def test_a_function_chooses_the_queue_of_every_kind_of_send(rocketpy_server: rocketpy.Server, rocketpy_topic: str):
    asked: list[tuple[list[int], bytes]] = []

    def select(queues: list[rocketpy.MessageQueue], message: rocketpy.Message) -> rocketpy.MessageQueue:
        asked.append(([queue.queue_id for queue in queues], message.body))
        return by_body(queues, message)

    with rocketpy_server.producer(fresh_name("select"), selector=select) as producer:
        (one, *many) = numbered(rocketpy_topic, 3, 2, 0, 2, 1, order_key="all alike")
        assert producer.send(one).queue.queue_id == 3
        assert asked == [([0, 1, 2, 3], b"3")]
        assert [receipt.queue.queue_id for receipt in producer.send_many(many)] == [2, 0, 2, 1]
        assert [producer.submit(one).result(60).queue.queue_id for one in many] == [2, 0, 2, 1]
        producer.send_oneway(one)
        assert len(asked) == 10
        given = producer.queues(rocketpy_topic)[1]
        assert producer.send(one, queue=given).queue == given, "a queue that is given wins"
        assert {receipt.queue for receipt in producer.send_many(many, queue=given)} == {given}
        assert len(asked) == 10


def test_a_function_chooses_for_asyncio_and_for_transactions(rocketpy_server: rocketpy.Server, rocketpy_topic: str):
    messages = numbered(rocketpy_topic, 3, 1, 1, 0)

    async def main() -> list[int]:
        servers = rocketpy_server.name_servers
        async with rocketpy.AsyncProducer(fresh_name("select"), name_servers=servers, selector=by_body) as producer:
            alone = await producer.send(messages[0])
            return [receipt.queue.queue_id for receipt in (alone, *await producer.send_many(messages))]

    assert asyncio.run(main()) == [3, 3, 1, 1, 0]
    names = {"name_servers": rocketpy_server.name_servers, "selector": by_body}
    with (
        rocketpy.TransactionProducer(fresh_name("select"), lambda _: rocketpy.Decision.COMMIT, **names) as producer,
        producer.transaction(messages[1]) as transaction,
    ):
        assert transaction.receipt.queue.queue_id == 1


def test_what_a_function_returns_is_checked_and_what_it_raises_is_raised(
    rocketpy_server: rocketpy.Server, rocketpy_topic: str
):
    message = rocketpy.Message(rocketpy_topic, b"x")
    elsewhere = rocketpy.MessageQueue(rocketpy_topic, "nowhere", 0)
    for function, error, text in (
        (lambda *_: 0, TypeError, "must return one of the given queues"),
        (lambda *_: elsewhere, rocketpy.InvalidArgumentError, "is not writable"),
        (by_body, ValueError, "invalid literal"),
    ):
        with rocketpy_server.producer(fresh_name("select"), selector=function) as producer:
            for send in (producer.send, producer.submit, lambda one, producer=producer: producer.send_many([one])):
                with pytest.raises(error, match=text):
                    send(message)
            with pytest.raises(TypeError, match="message"):
                producer.send("no message")
    for given, error in (("fastest", rocketpy.InvalidArgumentError), (5, TypeError)):
        with pytest.raises(error, match="selector must be"):
            rocketpy_server.producer("select", selector=given)


def test_round_robin_takes_the_queues_in_turn_and_random_does_not(
    rocketpy_server: rocketpy.Server, rocketpy_topic: str
):
    def queues_of(selector: str) -> list[int]:
        with rocketpy_server.producer(fresh_name("select"), selector=selector) as producer:
            sent = (producer.send(rocketpy.Message(rocketpy_topic, b"x")) for _ in range(80))
            return [receipt.queue.queue_id for receipt in sent]

    for selector in ("round_robin", "least_latency"):
        queues = queues_of(selector)
        assert all((after - before) % 4 == 1 for before, after in itertools.pairwise(queues)), queues
    queues = queues_of("random")
    assert len(set(queues)) == 4
    assert any((after - before) % 4 != 1 for before, after in itertools.pairwise(queues)), queues


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[rocketpy.NameServer, list[rocketpy.Broker]]]:
    """A name server and two brokers."""
    with rocketpy.NameServer() as names:
        brokers = [
            rocketpy.Broker(
                tmp_path / name, name_servers=names.name_server, settings={**SMALL_FILES, "brokerName": name}
            ).start()
            for name in ("left", "right")
        ]
        yield names, brokers
        for broker in brokers:
            broker.stop()


@pytest.mark.parametrize("selector", ["round_robin", "random", "least_latency"])
def test_messages_go_to_the_broker_that_is_left_under_one_id(cluster, selector: str):
    names, brokers = cluster
    topic = fresh_name("left")
    with names.admin(api_timeout=60) as admin:
        admin.create_topic(topic, queues=2)
    options = {"name_servers": names.name_server, "selector": selector, "send_timeout": 60}
    with rocketpy.Producer(fresh_name("select"), **options) as producer:

        def send(count: int) -> list[rocketpy.Receipt]:
            alone = [producer.send(rocketpy.Message(topic, b"x")) for _ in range(count)]
            return alone + [producer.submit(rocketpy.Message(topic, b"x")).result(60) for _ in range(count)]

        before = Counter(receipt.queue.broker_name for receipt in send(20))
        assert set(before) == {"left", "right"}
        brokers[0].stop()
        after = send(20)
        assert {receipt.queue.broker_name for receipt in after} == {"right"}
        (lost, *_) = after
        with names.admin(api_timeout=60) as admin:
            assert admin.view_message(lost.offset_msg_id).msg_id == lost.msg_id

"""Warnings of mistakes that raise nothing: returned values, blocked event loops, idle members, misspelt topics."""

import asyncio
import functools
import logging
import time

import pytest
from pushing import Seen, committed, send

import rocketpy
from rocketpy.consuming import handlers
from rocketpy.consuming.handlers import Handler
from rocketpy.testing import fresh_name
from waiting import wait_until


def texts(caplog, part):
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


@pytest.mark.parametrize("kind", ["plain", "batch", "async"])
def test_a_value_that_a_handler_returns_is_warned_of_once(server, topic, group, caplog, kind):
    send(server, topic, 3)
    seen, consumer = Seen(), server.push_consumer(group)

    def handle(given):
        for message in given if kind == "batch" else [given]:
            seen.note(message)
        return "card 4111"

    async def handle_async(message):
        return handle(message)

    consumer.on(topic, batch=1 if kind == "batch" else None)(handle_async if kind == "async" else handle)
    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        seen.wait(3)
        wait_until(lambda: committed(server, group, topic) == 3, "the messages are consumed")
    (text,) = texts(caplog, "returned a value")
    assert text.startswith(f"handler of topic {topic} returned a value of type str, which is ignored")
    assert "rocketpy.Retry" in text
    assert "4111" not in caplog.text


def test_handlers_that_return_none_are_not_warned_of(server, topic, group, caplog):
    send(server, topic, 2)
    seen, consumer = Seen(), server.push_consumer(group)
    consumer.on(topic)(seen.note)
    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        seen.wait(2)
    assert not texts(caplog, "returned")


def test_a_handler_that_blocks_its_event_loop_is_warned_of_once(server, topic, group, caplog):
    send(server, topic, 2)
    seen, consumer = Seen(), server.push_consumer(group)

    @consumer.on(topic)
    async def handle(message):
        await asyncio.sleep(0)
        time.sleep(handlers.BLOCK_SECONDS)
        seen.note(message)

    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        seen.wait(2)
    (text,) = texts(caplog, "blocked its event loop")
    assert text.startswith(f"handler of topic {topic} blocked its event loop for 0.")
    assert "await asyncio.to_thread" in text


class Clock:
    """A clock that only the test moves."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(handlers, "monotonic", lambda: self.now)


def run(function, *others):
    """Runs a handler with other tasks of its loop."""

    async def main():
        handler = Handler(function, "*", None, None, None)

        async def call():
            await handler.run(None, "orders")

        return (await asyncio.gather(call(), *(other() for other in others), return_exceptions=True))[0]

    return asyncio.run(main())


def test_only_the_time_between_awaits_counts_as_blocked(monkeypatch, caplog):
    clock = Clock(monkeypatch)

    async def others():
        clock.now += 60  # while the handler awaits

    async def handle(message):
        clock.now += 0.09
        await asyncio.sleep(0)
        clock.now += 0.09

    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        assert run(handle, others) is None
    assert clock.now > 60
    assert not caplog.records


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_handler_that_blocks_and_raises_is_warned_of_and_raises(monkeypatch, caplog, where):
    clock = Clock(monkeypatch)

    async def handle(message):
        if where == "after":
            await asyncio.sleep(0)
        clock.now += 2.5
        raise ValueError("no such order")

    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        assert repr(run(handle)) == "ValueError('no such order')"
    assert [text.partition(":")[0] for text in caplog.messages] == [
        "handler of topic orders blocked its event loop for 2.50 s"
    ]


def test_a_cancelled_handler_may_clean_up():
    cleaned = []

    async def handle(message):
        try:
            async with asyncio.timeout(0):
                await asyncio.sleep(3600)
        except TimeoutError:
            cleaned.append("timeout")
        try:
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            cleaned.append("cancel")

    assert isinstance(run(handle), asyncio.CancelledError)
    assert cleaned == ["timeout", "cancel"]


def test_expected_standbys_are_reported_and_not_warned_of(server, group, caplog):
    topic = fresh_name("narrow")
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)
    caplog.set_level(logging.INFO, "rocketpy.client")
    with server.consumer(group, topic, allow_idle=True), server.consumer(group, topic, allow_idle=True):
        wait_until(lambda: texts(caplog, "member owns no queue: standby"))
    assert {record.levelname for record in caplog.records if "owns no queue" in record.getMessage()} == {"INFO"}


def test_a_topic_that_a_send_creates_is_warned_of_once_with_names_alike(rocketpy_server_factory, caplog):
    server = rocketpy_server_factory(settings={"autoCreateTopicEnable": True})
    with server.admin() as admin:
        admin.create_topic("card-orders", queues=1)
    with caplog.at_level(logging.WARNING, "rocketpy.client"), server.producer("shop") as producer:
        for topic in ("card-ordres", "card-orders", "card-ordres", "else"):
            producer.send(rocketpy.Message(topic, b"text"))
        asyncio.run(asyncio.to_thread(producer.send, rocketpy.Message("card-ordres", b"text")))
        wait_until(lambda: len(texts(caplog, "topic not found")) == 2)
    other, alike = sorted(texts(caplog, "topic not found"), key=lambda text: "card-ordres" in text)
    assert "brokers create it with the default number of queues" in alike
    assert "topic=card-ordres" in alike.replace('"', "")
    assert "did you mean card-orders? Create topics" in alike
    assert "`rocketpy topic create card-ordres --queues N`" in alike
    assert "autoCreateTopicEnable=false" in alike
    assert "topic=else" in other.replace('"', "")
    assert "did you mean" not in other


@pytest.mark.parametrize("kind", ["pull", "push"])
def test_members_without_a_queue_are_warned_of_once_until_they_own_one(server, group, caplog, kind):
    topic = fresh_name("narrow")
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)
    caplog.set_level(logging.INFO, "rocketpy.client")

    def join():
        if kind == "pull":
            return server.consumer(group, topic)
        consumer = server.push_consumer(group)
        consumer.on(topic)(lambda message: None)
        return consumer.start()

    def own(member):
        return [queue for queue in member.state().assigned if queue.topic == topic]

    idle = functools.partial(texts, caplog, "owns no queue")
    members = [join()]
    wait_until(lambda: own(members[0]))
    assert not idle()
    for count in (1, 2):
        members.append(join())
        wait_until(lambda count=count: len(idle()) == count, f"{count} members are idle")
    assert f"members outnumber queues group={group} topic={topic} queues=1 members=2" in idle()[0].replace('"', "")
    assert f"rocketpy topic create {topic} --queues N" in idle()[0]
    wait_until(lambda: sum(map(len, map(own, members))) == 1, "one member owns the queue")
    owner = next(filter(own, members))
    owner.close()
    members.remove(owner)
    wait_until(lambda: texts(caplog, "owns queues again"), "another member owns the queue")
    for member in members:
        member.close()
    assert len(idle()) == 2, "once for each member, whatever the number of rounds"
    assert isinstance(members[0], rocketpy.Consumer if kind == "pull" else rocketpy.PushConsumer)

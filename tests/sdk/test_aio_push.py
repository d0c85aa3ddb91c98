"""Handlers in the event loop of the application: `AsyncPushConsumer`."""

import asyncio
import contextvars
import logging
import threading
from collections import Counter

import pytest
import uvloop
from aio_clients import pusher, until
from pushing import Seen, committed, dead_letters, send

import rocketpy
from rocketpy.testing import fresh_name


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_handlers_run_in_the_loop_of_the_application_with_retries_and_dead_letters(server, topic, group, run):
    send(server, topic, 6)
    tenant = contextvars.ContextVar("tenant", default="none")
    seen, loops, tenants, leavers = Seen(), set(), set(), []

    async def main():
        tenant.set("acme")
        consumer, over = pusher(server, group), asyncio.Event()
        assert repr(consumer) == f"<AsyncPushConsumer (not started) of group {group!r}>"
        assert (consumer.client_id, consumer.group) == (None, group)

        @consumer.on(topic)
        async def handle(message):
            seen.note(message)
            loops.add(asyncio.get_running_loop())
            tenants.add(tenant.get())
            if len(seen.calls) == 8:
                over.set()
            await asyncio.sleep(0)
            if message.body == b"1" and message.reconsume_times == 0:
                raise ValueError("no such order")
            if message.body == b"2":
                raise rocketpy.Reject("no such customer")
            if message.body == b"3" and message.reconsume_times == 0:
                raise rocketpy.Retry(after=1)

        async with consumer as entered:
            assert entered is consumer
            await over.wait()  # an object of this loop
            await until(lambda: committed(server, group, topic) == 6, "a commit while it runs")
            assert {queue.topic for queue in consumer.state().assigned} == {topic, f"%RETRY%{group}"}
            with server.admin() as admin:
                leavers.extend(admin.group_members(group))
            assert leavers == [consumer.client_id]
        assert loops == {asyncio.get_running_loop()}
        stats = consumer.stats()
        assert (stats.consumed, stats.failed, stats.sent_back, stats.dead, stats.unfinished) == (5, 3, 2, 1, 0)
        assert (consumer.closed, repr(consumer)) == (True, f"<AsyncPushConsumer (closed) of group {group!r}>")
        with pytest.raises(rocketpy.RocketPyError, match="was already started"):
            await consumer.start()

    run(main())
    assert seen.counts() == Counter({0: 1, 1: 2, 2: 1, 3: 2, 4: 1, 5: 1})
    assert tenants == {"acme"}
    assert dead_letters(server, group) == [b"2"]
    with server.admin() as admin:
        assert admin.group_members(group) == []
    assert not [one for one in threading.enumerate() if one.name.startswith("rocketpy-push")]


def test_plain_functions_run_in_threads_and_batches_in_tasks(server, topic, group):
    other, where, batches = fresh_name("pushed"), {}, []
    with server.admin() as admin:
        admin.create_topic(other, queues=1)
    send(server, topic, 10)
    send(server, other, 20)

    async def main():
        consumer = pusher(server, group)

        @consumer.on(topic)
        def plain(message):
            where.setdefault(topic, set()).add(threading.current_thread() is threading.main_thread())

        @consumer.on(other, batch=8)
        async def several(messages):
            where.setdefault(other, set()).add(threading.current_thread() is threading.main_thread())
            batches.append(len(messages))

        async with consumer:
            await until(lambda: committed(server, group, topic) + committed(server, group, other) == 30)

    asyncio.run(main())
    assert where == {topic: {False}, other: {True}}
    assert (sum(batches), max(batches)) == (20, 8)


def test_at_most_as_many_tasks_as_the_concurrency_run(server, topic, group):
    send(server, topic, 12)
    running, most, seen = [], [], Seen()

    async def main():
        consumer = pusher(server, group, concurrency=3)
        three = asyncio.Event()

        @consumer.on(topic)
        async def handle(message):
            running.append(message)
            most.append(len(running))
            if len(running) == 3:
                three.set()
            await three.wait()
            running.remove(message)
            seen.note(message)

        async with consumer:
            await until(lambda: len(seen.calls) == 12)

    asyncio.run(main())
    assert max(most) == 3


def test_a_handler_that_waits_too_long_is_cancelled_and_its_message_comes_again(server, topic, group):
    send(server, topic, 3)
    seen, cancelled = Seen(), []

    async def main():
        consumer = pusher(server, group, concurrency=1, handler_timeout=0.3)

        @consumer.on(topic)
        async def handle(message):
            seen.note(message)
            if message.body == b"0" and message.reconsume_times == 0:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    cancelled.append(message.body)
                    raise

        async with consumer:
            await until(lambda: committed(server, group, topic) == 3 and len(seen.calls) == 4)
        assert (consumer.stats().timed_out, consumer.stats().consumed) == (1, 3)

    asyncio.run(main())
    assert cancelled == [b"0"]


def test_a_task_that_the_application_cancels_fails_and_the_others_go_on(server, topic, group):
    send(server, topic, 3)

    async def main():
        consumer = pusher(server, group, max_retries=0)

        @consumer.on(topic)
        async def handle(message):
            if message.body == b"1":
                asyncio.current_task().cancel()
                await asyncio.sleep(0)

        async with consumer:
            await until(lambda: committed(server, group, topic) == 3)
        assert (consumer.stats().dead, consumer.stats().consumed) == (1, 2)

    asyncio.run(main())
    assert dead_letters(server, group) == [b"1"]


def test_handlers_that_never_wait_leave_turns_to_other_tasks(server, group):
    topic = fresh_name("pushed")
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)  # hundreds of its messages are one piece of work, once handlers are quick
    with server.producer("push-senders") as producer:
        producer.send_many([rocketpy.Message(topic, b"%d" % number) for number in range(5400)])
    turns, between = [], []

    async def main():
        consumer, over = pusher(server, group, concurrency=1), asyncio.Event()

        @consumer.on(topic)
        async def handle(message):
            began = loop.time()
            while len(between) >= 5000 and loop.time() < began + 0.001:
                pass
            between.append(len(turns))
            if len(between) == 5400:
                over.set()

        async def turn():
            while True:
                turns.append(None)
                await asyncio.sleep(0)

        loop = asyncio.get_running_loop()
        turning = asyncio.create_task(turn())
        async with consumer:
            await over.wait()
        turning.cancel()

    asyncio.run(main())
    longest = max(Counter(between[5000:]).values())
    assert longest <= 30, f"{longest} messages of 1 ms without a turn of another task"


@pytest.mark.parametrize("is_async", [False, True])
def test_callbacks_run_in_the_loop_of_the_application(server, topic, group, is_async):
    send(server, topic, 1)
    calls = []

    def note(consumer, queues, name):
        mine = {queue.queue_id for queue in queues if queue.topic == topic}
        calls.append((name, type(consumer).__name__, mine, asyncio.get_running_loop()))

    def plain(name):
        return lambda consumer, queues: note(consumer, queues, name)

    def coroutine(name):
        async def call(consumer, queues):
            await asyncio.sleep(0)
            note(consumer, queues, name)

        return call

    make = coroutine if is_async else plain

    async def main():
        consumer = pusher(server, group, on_assigned=make("assigned"), on_revoked=make("revoked"))
        consumer.on(topic)(lambda message: None)
        async with consumer:
            await until(lambda: committed(server, group, topic) == 1)
        kind, loop = "AsyncPushConsumer", asyncio.get_running_loop()
        assert calls == [("assigned", kind, {0, 1, 2, 3}, loop), ("revoked", kind, {0, 1, 2, 3}, loop)]
        assert consumer.stats().failed_callbacks == 0

    asyncio.run(main())


def test_wrong_uses_are_refused_by_name(server, topic, group):
    async def main():
        with pytest.raises(TypeError, match="AsyncPushConsumer has no option tags: pass it to the decorator"):
            pusher(server, group, tags="paid")
        with pytest.raises(TypeError, match='PushConsumer has no option "concurrence"'):
            await started(concurrence=3)
        consumer = pusher(server, group)
        async with consumer:  # handlers may be registered in the block
            with pytest.raises(rocketpy.InvalidArgumentError, match="has no handler"):
                await consumer.start()
            consumer.on(missing)(print)
            with pytest.raises(rocketpy.TopicNotFoundError):
                await consumer.start()
            with server.admin() as admin:
                admin.create_topic(missing, queues=1)
            starting = asyncio.create_task(consumer.start())
            await asyncio.sleep(0)
            with pytest.raises(rocketpy.InvalidArgumentError, match="was already started"):
                consumer.on(topic)(print)
            await starting
        assert consumer.closed

    async def started(**options):
        consumer = pusher(server, group, **options)
        consumer.on(topic)(print)
        await consumer.start()

    missing = fresh_name("missing")
    asyncio.run(main())


def test_a_handler_that_raises_generator_exit_has_failed(server, topic, group):
    send(server, topic, 1)

    async def main():
        consumer = pusher(server, group)

        @consumer.on(topic)
        async def handle(message):
            await asyncio.sleep(0)
            raise GeneratorExit

        async with consumer:
            await until(lambda: (consumer.stats().failed, consumer.stats().sent_back) == (1, 1))

    asyncio.run(main())


def test_exits_that_a_handler_raises_leave_the_loop(server, topic, group, caplog):
    """As from any other task of the application; the message is redelivered."""
    send(server, topic, 1)
    consumers = []

    async def main():
        consumer = pusher(server, group)
        consumers.append(consumer)

        @consumer.on(topic)
        async def handle(message):
            raise SystemExit(3)

        async with consumer:
            await asyncio.Event().wait()

    with caplog.at_level(logging.WARNING, "rocketpy.client"), pytest.raises(SystemExit, match="3"):
        asyncio.run(main())
    assert consumers[0].closed
    stats = consumers[0].stats()
    assert (stats.consumed, stats.failed) == (0, 1)

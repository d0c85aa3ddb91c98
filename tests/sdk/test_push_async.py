"""Handlers of push consumers that are coroutines."""

import asyncio
import functools
import logging
import threading
import time
from collections import Counter

import pytest
from pushing import Seen, committed, dead_letters, send

import rocketpy
from rocketpy.testing import fresh_name
from waiting import wait_until


def test_coroutines_run_side_by_side_in_one_thread(server, topic, group):
    send(server, topic, 40)
    seen, threads, running, most = Seen(), set(), [], []
    consumer = server.push_consumer(group, concurrency=10)

    @consumer.on(topic)
    async def handle(message):
        threads.add(threading.get_ident())
        running.append(message)
        most.append(len(running))
        await asyncio.sleep(0.2)
        running.remove(message)
        seen.note(message)

    began = time.monotonic()
    with consumer:
        seen.wait(40)
        took = time.monotonic() - began
        wait_until(lambda: committed(server, group, topic) == 40)
    assert seen.counts() == Counter(range(40))
    assert (len(threads), max(most)) == (1, 10)
    assert took < 4, "8 s one after the other"


def test_a_coroutine_that_raises_gets_its_message_again(server, topic, group, caplog):
    send(server, topic, 4)
    seen, consumer = Seen(), server.push_consumer(group)

    @consumer.on(topic)
    async def handle(message):
        seen.note(message)
        await asyncio.sleep(0)
        if message.body == b"1" and message.reconsume_times == 0:
            raise ValueError("no such order")
        if message.body == b"2":
            raise rocketpy.Reject

    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        seen.wait(5)
        wait_until(lambda: committed(server, group, topic) == 4)
    assert seen.counts() == Counter({0: 1, 1: 2, 2: 1, 3: 1})
    assert dead_letters(server, group) == [b"2"]
    assert "no such order" in caplog.text


def test_threads_and_coroutines_in_one_consumer_and_batches(server, topic, group):
    """Also what comes from the retry topic goes to where its handler runs."""
    other, where, consumer = fresh_name("pushed"), {}, server.push_consumer(group)
    with server.admin() as admin:
        admin.create_topic(other, queues=1)
    send(server, topic, 20)
    send(server, other, 20)

    def note(messages):
        for message in messages:
            where.setdefault((message.topic, message.reconsume_times > 0), set()).add(threading.current_thread().name)
        if any(message.body == b"7" and message.reconsume_times == 0 for message in messages):
            raise rocketpy.Retry

    @consumer.on(topic)
    def plain(message):
        note([message])

    @consumer.on(other, batch=8)
    async def batches(messages):
        await asyncio.sleep(0.01)
        note(messages)

    with consumer:
        wait_until(lambda: committed(server, group, topic) == committed(server, group, other) == 20)
        wait_until(lambda: len(where) == 4)
    for again in (False, True):
        assert "rocketpy-push-loop" not in where[topic, again]
        assert where[other, again] == {"rocketpy-push-loop"}


def test_a_coroutine_that_waits_too_long_is_cancelled_and_its_message_comes_again(server, topic, group, caplog):
    send(server, topic, 3)
    seen, cancelled, consumer = Seen(), [], server.push_consumer(group, concurrency=1, handler_timeout=0.3)

    @consumer.on(topic)
    async def handle(message):
        seen.note(message)
        if message.body == b"0" and message.reconsume_times == 0:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append(message.body)
                raise

    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        seen.wait(4)
        wait_until(lambda: committed(server, group, topic) == 3)
    assert cancelled == [b"0"]
    assert (consumer.stats().timed_out, consumer.stats().consumed) == (1, 3)


def test_a_cancelled_error_that_no_stop_caused_is_a_failure_of_the_handler(server, topic, group):
    send(server, topic, 3)
    consumer = server.push_consumer(group, max_retries=0)

    @consumer.on(topic)
    async def handle(message):
        if message.body == b"1":
            inner = asyncio.ensure_future(asyncio.sleep(3600))
            inner.cancel()
            await inner

    with consumer:
        wait_until(lambda: committed(server, group, topic) == 3, "all messages are finished")
        assert (consumer.stats().dead, consumer.stats().consumed) == (1, 2)
    assert dead_letters(server, group) == [b"1"]


def test_the_timeout_applies_after_a_handler_that_returned_on_its_cancellation(server, group):
    topic = fresh_name("pushed")
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)  # the middle of its messages is one piece of work
    with server.producer("push-senders") as producer:
        producer.send_many([rocketpy.Message(topic, b"%d" % number) for number in range(2000)])
    cancelled, requests = [], []
    consumer = server.push_consumer(group, concurrency=1, handler_timeout=0.3, stop_timeout=1)

    @consumer.on(topic)
    async def handle(message):
        requests.append(asyncio.current_task().cancelling())
        if 1000 <= len(requests) < 1003:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append(message.body)

    with consumer:
        wait_until(lambda: len(cancelled) == 3, "the handlers are cancelled")
        wait_until(lambda: committed(server, group, topic) == 2000)
    assert set(requests) == {0}


def test_a_stop_waits_for_coroutines_and_cancels_what_runs_longer(server, topic, group):
    send(server, topic, 2)
    started, ends = threading.Semaphore(0), []
    consumer = server.push_consumer(group, stop_timeout=1)

    @consumer.on(topic)
    async def handle(message):
        started.release()
        try:
            await asyncio.sleep(0.3 if message.body == b"0" else 3600)
            ends.append("finished")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    with consumer:
        assert started.acquire(timeout=60)
        assert started.acquire(timeout=60)
    assert ends == ["finished", "cancelled"]
    assert committed(server, group, topic) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "rocketpy-push-loop"]


@pytest.mark.parametrize("end", ["stop", "exit"])
def test_a_handler_that_ends_the_loop_ends_no_other_handler(server, topic, group, caplog, end):
    send(server, topic, 4)
    seen, consumer = Seen(), server.push_consumer(group, concurrency=2)

    async def leave():
        raise SystemExit(3)

    @consumer.on(topic)
    async def handle(message):
        if message.body == b"0":
            loop = asyncio.get_running_loop()
            if end == "stop":
                loop.stop()
            else:
                left = loop.create_task(leave())  # of a task it leaves the loop
                await asyncio.wait([left])
                left.exception()
        await asyncio.sleep(0.01)
        seen.note(message)

    with caplog.at_level(logging.ERROR, "rocketpy.client"), consumer:
        seen.wait(4)
        wait_until(lambda: committed(server, group, topic) == 4)
    assert seen.counts() == Counter(range(4))
    assert "was stopped by a handler" in caplog.text
    assert not [thread for thread in threading.enumerate() if thread.name == "rocketpy-push-loop"]


def test_a_handler_that_raises_generator_exit_has_failed(server, topic, group):
    """Python raises it in the task of a dropped loop too, whose message has not failed."""
    send(server, topic, 2)
    consumer = server.push_consumer(group)

    @consumer.on(topic)
    async def handle(message):
        if message.body == b"0" and not message.reconsume_times:
            raise GeneratorExit("mine")

    with consumer:
        wait_until(lambda: consumer.stats().consumed)
        wait_until(lambda: (consumer.stats().failed, consumer.stats().sent_back) == (1, 1))


@pytest.mark.parametrize("kind", ["partial", "object"])
def test_what_is_called_may_be_a_coroutine_function_in_disguise(server, topic, group, kind):
    send(server, topic, 3)
    seen, consumer = Seen(), server.push_consumer(group)

    async def handle(note, message):
        await asyncio.sleep(0)
        note(message)

    class Object:
        async def __call__(self, message):
            await handle(seen.note, message)

    consumer.on(topic)(functools.partial(handle, seen.note) if kind == "partial" else Object())
    with consumer:
        seen.wait(3)


def test_a_plain_handler_whose_coroutine_nobody_awaits_is_told_so(server, topic, group, caplog):
    send(server, topic, 1)
    consumer = server.push_consumer(group, max_retries=0)

    async def handle(message):
        raise AssertionError("never runs")

    consumer.on(topic)(lambda message: handle(message))
    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        wait_until(lambda: consumer.stats().dead == 1)
    assert "write it as `async def`" in caplog.text

"""`stats()` of each client, against a real server."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest

import rocketpy
from rocketpy.testing import fresh_name
from waiting import wait_until


def bodies(topic: str, count: int) -> list[rocketpy.Message]:
    return [rocketpy.Message(topic, b"0123456789") for _ in range(count)]


def test_a_producer_counts_messages_bytes_and_times_by_outcome(producer, rocketpy_topic):
    before = producer.stats()
    assert (before.sent, before.latency.p50) == (rocketpy.Traffic(0, 0, 0), None)
    producer.send_many(bodies(rocketpy_topic, 500))
    futures = [producer.submit(message) for message in bodies(rocketpy_topic, 100)]
    producer.flush()
    assert all(future.done() for future in futures)
    producer.send_oneway(rocketpy.Message(rocketpy_topic, b"12"))
    with pytest.raises(rocketpy.InvalidArgumentError):
        producer.send(rocketpy.Message("no topic", b"x"))
    counted = producer.stats()
    assert (counted.sent.messages, counted.sent.bytes) == (600, 6000)
    assert 2 <= counted.sent.requests < 600
    assert counted.oneway == rocketpy.Traffic(1, 1, 2)
    assert counted.failed == counted.retried == counted.unknown == rocketpy.Traffic(0, 0, 0)
    times = counted.latency
    assert times.count == counted.sent.requests
    assert 0 < times.p50 <= times.p90 <= times.p99 <= times.p999 <= times.max <= times.total * 1.01
    assert (counted.in_flight_messages, counted.in_flight_bytes, counted.window_use) == (0, 0, 0)
    assert (counted.window_messages, counted.window_bytes) == (16384, 64 << 20)
    with pytest.raises(FrozenInstanceError):
        counted.sent = before.sent


def test_a_server_that_is_gone_makes_failed_and_retried_messages(rocketpy_server_factory):
    server = rocketpy_server_factory()
    with server.producer("gone", send_timeout=1.0, retries=1) as producer:
        producer.send(rocketpy.Message("gone", b"here"))
        server.stop()
        with pytest.raises(rocketpy.RocketPyError):
            producer.send(rocketpy.Message("gone", b"lost"))
        counted = producer.stats()
    assert counted.sent == rocketpy.Traffic(1, 1, 4)
    assert counted.failed == rocketpy.Traffic(1, 1, 4)
    assert counted.retried.messages == 1
    assert producer.stats() == counted, "after the close too"


def test_a_full_window_shows(stoppable):
    name_servers = [stoppable.name_server]
    with rocketpy.Producer("window", name_servers=name_servers, window_messages=4, send_timeout=60) as producer:
        producer.send(rocketpy.Message("window", b"first"))
        stoppable.freeze()
        futures = [producer.submit(rocketpy.Message("window", b"x" * 2000)) for _ in range(4)]
        held = producer.stats()
        stoppable.thaw()
        for future in futures:
            future.result(timeout=60)
    assert (held.in_flight_messages, held.in_flight_bytes, held.window_use) == (4, 4 * 2048, 1.0)


def test_a_consumer_counts_what_came_and_knows_its_lag_without_a_question(rocketpy_server, producer, rocketpy_topic):
    queue = producer.queues(rocketpy_topic)[0]
    producer.send_many(bodies(rocketpy_topic, 100), queue=queue)
    with rocketpy_server.consumer(fresh_name("lag"), rocketpy_topic) as consumer:
        messages = consumer.poll(30, timeout=60)
        assert len(messages) == 30
        wait_until(lambda: consumer.stats().prefetched_messages == 70)
        counted = consumer.stats()
        assert (counted.received.requests, counted.received.messages) == (1, 30)
        assert counted.pulled.messages == 100
        assert counted.received.bytes + counted.prefetched_bytes == counted.pulled.bytes > 100 * 10
        assert (counted.lag, consumer.lag()[queue]) == (70, 70)
        (read,) = [of for of in counted.queues if of.queue == queue]
        assert (read.position, read.end, read.lag, read.paused) == (30, 100, 70, False)
        consumer.pause(queue)
        assert [of.queue for of in consumer.stats().queues if of.paused] == [queue]
    assert consumer.stats().received == counted.received, "after the close too"


def test_async_clients_count_too_and_any_thread_may_ask(rocketpy_server, rocketpy_topic):
    async def main():
        servers = {"name_servers": rocketpy_server.name_servers, "api_timeout": 60}
        producer = rocketpy.AsyncProducer(fresh_name("aio"), send_timeout=60, **servers)
        with pytest.raises(rocketpy.ClosedError, match="was not started"):
            producer.stats()
        async with (
            producer,
            rocketpy.AsyncConsumer(fresh_name("aio"), rocketpy_topic, **servers) as consumer,
        ):
            await asyncio.gather(*(producer.send(message) for message in bodies(rocketpy_topic, 200)))
            count = 0
            while count < 200:
                count += len(await consumer.poll(timeout=60))
            with ThreadPoolExecutor(1) as other:
                return other.submit(lambda: (producer.stats(), consumer.stats())).result()

    sent, received = asyncio.run(main())
    assert (sent.sent.messages, sent.sent.bytes, received.received.messages) == (200, 2000, 200)


def test_a_push_consumer_counts_calls_and_knows_what_no_handler_has_finished(rocketpy_server, rocketpy_topic):
    with rocketpy_server.producer(fresh_name("push")) as producer:
        queue = producer.queues(rocketpy_topic)[0]
        producer.send_many(bodies(rocketpy_topic, 5), queue=queue)
    consumer, released = rocketpy_server.push_consumer(fresh_name("push"), concurrency=1), threading.Event()
    assert (consumer.stats().lag, consumer.stats().handling.count) == (0, 0)

    @consumer.on(rocketpy_topic)
    def handle(message):
        released.wait(60)
        if message.queue_offset == 3:
            raise rocketpy.Reject

    with consumer:
        wait_until(lambda: consumer.stats().lag == 5, "the lag counts messages of handlers")
        wait_until(lambda: consumer.stats().unfinished)
        (read,) = [of for of in consumer.stats().queues if of.queue == queue]
        assert (read.position, read.end, consumer.stats().handling.count) == (0, 5, 0)
        released.set()
        wait_until(lambda: consumer.stats().lag == 0)
        counted = consumer.stats()
    assert (counted.consumed, counted.failed, counted.dead) == (4, 1, 1)
    times = counted.handling
    assert (times.count, times.p50 <= times.p99 <= times.max <= times.total * 1.01) == (5, True)
    assert times.max > 0
    assert consumer.stats().handling == times, "after the stop too"


def test_a_producer_knows_since_when_all_its_sends_fail(rocketpy_server_factory):
    server = rocketpy_server_factory(settings={"maxMessageSize": 1024})
    with server.producer("failing", send_timeout=1.0, retries=0) as producer:
        producer.send(rocketpy.Message("failing", b"here"))
        with pytest.raises(rocketpy.RefusedError, match="MESSAGE_ILLEGAL"):
            producer.send(rocketpy.Message("failing", b"x" * 2000))
        assert producer.stats().failing_since is None, "the broker answers"
        server.stop()
        for topic in ("failing", "unknown"):
            with pytest.raises(rocketpy.RocketPyError):
                producer.send(rocketpy.Message(topic, b"lost"))
        since = producer.stats().failing_since
        assert since <= datetime.now(UTC)
        with pytest.raises(rocketpy.RocketPyError):
            producer.send(rocketpy.Message("failing", b"lost"))
        assert producer.stats().failing_since == since, "the first failure"
        server.start()
        producer.send(rocketpy.Message("failing", b"back"), timeout=60)
        assert producer.stats().failing_since is None


def test_a_forked_child_gets_an_error_instead_of_the_counts_of_its_parent(child, rocketpy_server, rocketpy_topic):
    ended = child(
        f"""
        import os, rocketpy
        with rocketpy.Producer("forked", name_servers={rocketpy_server.name_server!r}) as producer:
            pid = os.fork()
            if not pid:
                try:
                    producer.stats()
                except rocketpy.ForkedError:
                    os._exit(7)
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert ended.stdout == "7\n", ended.stderr


def test_counts_of_threads_add_up_while_others_read_them(producer, rocketpy_topic):
    def work(_):
        producer.send_many(bodies(rocketpy_topic, 200))
        futures = [producer.submit(message) for message in bodies(rocketpy_topic, 50)]
        producer.send(rocketpy.Message(rocketpy_topic, b"0123456789"))
        return [future.result(timeout=60) for future in futures]

    with ThreadPoolExecutor(4) as pool:
        done, seen = pool.map(work, range(4)), []
        while len(seen) < 100:
            seen.append(producer.stats().sent)
        assert len([*done]) == 4
    assert seen == sorted(seen, key=lambda sent: sent.messages), "no count goes back"
    assert all(sent.bytes == sent.messages * 10 for sent in seen)
    assert producer.stats().sent.messages == 4 * 251

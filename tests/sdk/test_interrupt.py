"""Ctrl-C: every call that waits ends with `KeyboardInterrupt` within 200 ms, and the object keeps working.

A try may be late on a busy machine, so one of ten in time is enough. None may take longer than ten seconds.
"""

import os
import signal
import socket
import threading
import time

import pytest

import rocketpy
from rocketpy import Message
from rocketpy.testing import fresh_name
from waiting import start_when_unlocked

LONG = 60


def interrupted(wait):
    """Calls a function that waits, sends SIGINT during the wait, and returns the seconds from signal to exception."""
    sent_at = [0.0]

    def interrupt():
        sent_at[0] = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.15, interrupt)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            wait()
        seconds = time.monotonic() - sent_at[0]
    finally:
        timer.cancel()
        timer.join()
    assert seconds < 10
    return seconds


def assert_wakes(wait):
    assert any(interrupted(wait) < 0.2 for _ in range(10))


@pytest.fixture
def consumer(rocketpy_server, rocketpy_topic):
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic) as consumer:
        yield consumer


def test_poll(consumer):
    assert_wakes(lambda: consumer.poll(timeout=LONG))


def test_iteration(consumer):
    assert_wakes(lambda: next(consumer))


def test_batches(consumer):
    assert_wakes(lambda: next(consumer.batches(idle_timeout=LONG)))


def test_fetch_arrow(consumer):
    consumer.fetch_arrow(timeout=0)  # imports what it needs
    assert_wakes(lambda: consumer.fetch_arrow(timeout=LONG))


def test_no_message_is_lost_by_an_interrupt(rocketpy_server, producer, consumer, rocketpy_topic):
    interrupted(lambda: consumer.poll(timeout=LONG))
    producer.send_many([Message(rocketpy_topic, b"%d" % n) for n in range(100)])
    bodies: list[bytes] = []
    while len(bodies) < 100:
        bodies += [message.body for message in consumer.poll(timeout=60)]
    assert sorted(map(int, bodies)) == list(range(100))


@pytest.fixture
def frozen(stoppable):
    """A producer, a consumer and an admin of a server that stopped answering."""
    options = {"name_servers": [stoppable.name_server], "api_timeout": LONG}
    with rocketpy.Producer("frozen", send_timeout=LONG, **options) as producer:
        producer.send(Message("frozen", b"text"))
        with rocketpy.Consumer("frozen", "frozen", start=rocketpy.Start.EARLIEST, **options) as consumer:
            assert consumer.poll(timeout=60)
            with rocketpy.Admin(**options) as admin:
                admin.topics()
                stoppable.freeze()
                yield producer, consumer, admin
                stoppable.thaw()


def test_send(frozen):
    assert_wakes(lambda: frozen[0].send(Message("frozen", b"text")))


def test_send_to_a_server_that_is_away(tmp_path):
    server = rocketpy.Server(tmp_path / "store").start()
    with rocketpy.Producer("away", name_servers=server.name_server) as producer:
        producer.send(Message("away", b"text"))
        server.stop()
        assert_wakes(lambda: producer.send(Message("away", b"text")))


def test_send_many(frozen):
    assert_wakes(lambda: frozen[0].send_many([Message("frozen", b"text")] * 10))


def test_flush(frozen):
    frozen[0].submit(Message("frozen", b"text"))
    assert_wakes(lambda: frozen[0].flush(LONG))


def test_submit_when_the_window_is_full(stoppable):
    with rocketpy.Producer(
        "full", name_servers=[stoppable.name_server], send_timeout=LONG, window_messages=1
    ) as producer:
        producer.send(Message("full", b"text"))
        stoppable.freeze()
        producer.submit(Message("full", b"text"))
        assert_wakes(lambda: producer.submit(Message("full", b"text"), wait=LONG))
        stoppable.thaw()


def test_begin_and_end_of_a_transaction(stoppable):
    options = {"name_servers": [stoppable.name_server], "api_timeout": LONG, "send_timeout": LONG}
    with rocketpy.TransactionProducer("payers", lambda _: rocketpy.Decision.UNKNOWN, **options) as producer:
        transaction = producer.transaction(Message("paid", b"text"))
        stoppable.freeze()
        assert_wakes(lambda: producer.transaction(Message("paid", b"text")))
        assert_wakes(transaction.commit)
        stoppable.thaw()
        transaction.commit()


def test_request(frozen):
    assert_wakes(lambda: frozen[0].request(Message("frozen", b"text"), timeout=LONG))


def test_commit(frozen):
    assert_wakes(frozen[1].commit)


def test_committed(frozen):
    assert_wakes(lambda: frozen[1].committed(rocketpy.MessageQueue("frozen", "broker-a", 0)))


def test_seek(frozen):
    assert_wakes(lambda: frozen[1].seek(frozen[1].assignment()[0], rocketpy.Start.EARLIEST))


def test_admin(frozen):
    admin = frozen[2]
    assert_wakes(admin.topics)
    assert_wakes(lambda: admin.create_topic("other"))
    assert_wakes(lambda: admin.describe_topic("frozen"))


def test_reading_a_range(stoppable):
    with rocketpy.Producer("range", name_servers=[stoppable.name_server]) as producer:
        queue = producer.send(Message("range", b"text")).queue
    with rocketpy.RangeReader(queue, 0, 1, name_servers=[stoppable.name_server]) as reader:
        stoppable.freeze()
        interrupted(lambda: next(reader))
        stoppable.thaw()


@pytest.fixture
def silence():
    """The address of a name server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_making_a_consumer(silence):
    assert_wakes(lambda: rocketpy.Consumer("silence", "topic", name_servers=[silence], api_timeout=LONG))


def test_starting_a_broker_whose_name_server_is_silent(silence, tmp_path):
    """It waits two seconds for the first registration; the start that was given up stops by itself."""
    settings = rocketpy.testing.SMALL_FILES
    assert (
        interrupted(lambda: rocketpy.Broker(tmp_path / "store", name_servers=[silence], settings=settings).start()) < 1
    )
    start_when_unlocked(rocketpy.Server(tmp_path / "store", settings=settings)).stop()


def test_the_stop_of_a_push_consumer(rocketpy_server, rocketpy_topic):
    with rocketpy_server.producer(fresh_name()) as producer:
        producer.send(Message(rocketpy_topic, b"blocks"))

    def seconds():
        begun, release = threading.Event(), threading.Event()
        consumer = rocketpy_server.push_consumer(fresh_name(), concurrency=1)

        @consumer.on(rocketpy_topic)
        def block(message):
            begun.set()
            release.wait(LONG)

        consumer.start()
        assert begun.wait(LONG)
        took = interrupted(consumer.stop)
        consumer.stop()  # what Ctrl-C left
        release.set()
        return took

    assert any(seconds() < 0.2 for _ in range(10))

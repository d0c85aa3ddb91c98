"""Submitting: futures, callbacks, the window, flush, and what stops behind a failure."""

import asyncio
import copy
import dataclasses
import functools
import gc
import itertools
import logging
import pickle
import re
import threading
import weakref
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, as_completed
from concurrent.futures import wait as wait_for
from datetime import timedelta

import pytest
from reading import read_all

import rocketpy
from rocketpy import Message
from rocketpy.producing.futures import SendFuture
from rocketpy.testing import fresh_name
from waiting import wait_until


def test_futures_get_their_receipts(rocketpy_server, producer, rocketpy_topic):
    futures = [producer.submit(Message(rocketpy_topic, b"%d" % n)) for n in range(500)]
    assert all(isinstance(future, Future) for future in futures)
    producer.flush(timeout=60)
    assert all(future.done() for future in futures)
    by_place = {(m.queue_id, m.queue_offset): m.body for m in read_all(rocketpy_server, rocketpy_topic, 500)}
    for n, future in enumerate(futures):
        receipt = future.result(timeout=0)
        assert by_place[receipt.queue.queue_id, receipt.queue_offset] == b"%d" % n
    assert not futures[0].cancel()


def pickled(one: object) -> object:
    return pickle.loads(pickle.dumps(one))


@pytest.mark.parametrize(
    "look",
    [repr, hash, dataclasses.asdict, dataclasses.replace, copy.copy, copy.deepcopy, pickled],
)
def test_a_receipt_that_nobody_has_looked_at_is_like_any_other(producer, rocketpy_topic, look):
    unread = producer.submit(Message(rocketpy_topic, b"text")).result(60)
    looked = look(unread)
    read = rocketpy.Receipt(*(getattr(unread, field.name) for field in dataclasses.fields(rocketpy.Receipt)))
    assert look(read) == looked
    assert read == unread
    assert read.status == rocketpy.SendStatus.SEND_OK
    for receipt in (read, producer.submit(Message(rocketpy_topic, b"text")).result(60)):
        with pytest.raises(AttributeError, match="'Receipt' object has no attribute 'nothing'"):
            getattr(receipt, "nothing")  # noqa: B009
        with pytest.raises(dataclasses.FrozenInstanceError):
            receipt.msg_id = "other"


def test_a_future_works_with_pythons_own_tools(producer, rocketpy_topic):
    called = threading.Event()
    future = producer.submit(Message(rocketpy_topic, b"text"))
    future.add_done_callback(lambda done: called.set())
    assert wait_for([future], timeout=60).done == {future}
    assert called.wait(60)


def test_a_callback_may_use_the_producer(producer, rocketpy_topic):
    results: list[object] = []
    second = threading.Event()

    def follow(done):
        try:
            results.append(producer.send(Message(rocketpy_topic, b"second")))
            producer.flush(timeout=60)
            results.append("flushed")
        finally:
            second.set()

    future = producer.submit(Message(rocketpy_topic, b"first"))
    future.add_done_callback(follow)
    assert second.wait(60)
    assert results[1:] == ["flushed"]


def test_every_way_to_wait_for_a_future_works_before_and_after_its_outcome(stoppable):
    async def awaited(future):
        return await asyncio.wrap_future(future)

    def called_back(future):
        done: Future[object] = Future()
        future.add_done_callback(lambda it: done.set_result(it.result()))
        return done.result(60)

    ways = [
        lambda future: future.result(60),
        lambda future: next(as_completed([future], timeout=60)).result(),
        lambda future: wait_for([future], timeout=60).done.pop().result(),
        called_back,
        lambda future: asyncio.run(awaited(future)),
        lambda future: future.exception(60) or future.result(),
    ]
    with rocketpy.Producer("ways", name_servers=[stoppable.name_server], send_timeout=60) as producer:
        producer.send(Message("ways", b"first"))
        stoppable.freeze()
        futures = [producer.submit(Message("ways", b"%d" % n)) for n in range(len(ways))]
        assert not any(future.done() for future in futures)
        assert all(future.running() and not future.cancel() for future in futures[::2])
        with ThreadPoolExecutor(len(ways)) as pool:
            early = [pool.submit(way, future) for way, future in zip(ways, futures, strict=True)]
            stoppable.thaw()
            receipts = [result.result(60) for result in early]
        assert [way(future) for way, future in zip(ways, futures, strict=True)] == receipts
        assert "finished" in repr(futures[0])
        assert not hasattr(futures[0], "anything")


def test_threads_that_look_at_futures_as_they_are_completed_miss_none(producer, rocketpy_topic):
    counted = itertools.count()

    def look(futures):
        for future in futures:
            future.add_done_callback(lambda _: next(counted))
            future.result(60)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            futures = [producer.submit(Message(rocketpy_topic, b"text")) for _ in range(100)]
            list(pool.map(look, [futures] * 4))
    producer.flush(60)
    assert next(counted) == 20 * 100 * 4


def test_callbacks_that_are_added_while_futures_are_completed_run_once(producer, rocketpy_topic):
    seen = []
    for n in range(20_000):
        producer.submit(Message(rocketpy_topic, b"text")).add_done_callback(lambda _, n=n: seen.append(n))
    producer.flush(60)
    assert sorted(seen) == list(range(20_000))


def test_the_future_knows_what_pythons_future_keeps():
    """A Python whose futures keep more, or under other names, needs another `SendFuture`."""
    plain: Future[object] = Future()
    plain.set_running_or_notify_cancel()
    own = {"_done_callbacks"}  # reached only by methods that ours has too
    assert vars(plain).keys() == own | {"_condition", "_waiters", "_state", "_result", "_exception"}
    future = SendFuture()
    for name in ("_state", "_result", "_exception"):
        assert getattr(future, name) == getattr(plain, name)
    for name in ("_condition", "_waiters"):
        assert type(getattr(future, name)) is type(getattr(plain, name))
        assert getattr(future, name) is getattr(future, name)
    for one in (plain, future):
        one.set_result(3)
        assert (one._state, one._result, one.result(), one.exception()) == ("FINISHED", 3, 3, None)
        with pytest.raises(InvalidStateError):
            one.set_exception(ValueError())


def test_a_cycle_through_a_callback_is_collected():
    future = SendFuture()
    future.add_done_callback(functools.partial(isinstance, future))
    gone = weakref.ref(future)
    del future
    gc.collect()
    assert gone() is None


def test_a_callback_that_raises_is_logged_and_the_next_one_runs(producer, rocketpy_topic, caplog):
    called = []
    future = producer.submit(Message(rocketpy_topic, b"text"))
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(called.append)
    producer.flush(60)
    assert called == [future]
    assert "ZeroDivisionError" in caplog.text


def test_a_future_gets_the_error(stoppable):
    with rocketpy.Producer("futures", name_servers=[stoppable.name_server], retries=0, send_timeout=0.3) as producer:
        producer.send(Message("futures", b"first"), timeout=60)
        stoppable.freeze()
        future = producer.submit(Message("futures", b"second"))
        error = future.exception(timeout=60)
        stoppable.thaw()
    assert isinstance(error, rocketpy.RequestTimeoutError)
    assert error.may_have_been_applied


def test_a_full_window_waits_then_times_out(stoppable):
    options = {"retries": 0, "send_timeout": 1.0, "window_messages": 2}
    with rocketpy.Producer("window", name_servers=[stoppable.name_server], **options) as producer:
        producer.send(Message("window", b"first"), timeout=60)
        stoppable.freeze()
        futures = [producer.submit(Message("window", b"%d" % n)) for n in range(2)]
        with pytest.raises(rocketpy.RequestTimeoutError, match="window"):
            producer.submit(Message("window", b"too many"), wait=0.2)
        stoppable.thaw()
        wait_for(futures, timeout=60)


def test_a_linger_gathers_messages_until_a_flush(rocketpy_server, rocketpy_topic):
    with rocketpy_server.producer(rocketpy.testing.fresh_name("linger"), linger=timedelta(minutes=5)) as producer:
        futures = [producer.submit(Message(rocketpy_topic, b"%d" % n)) for n in range(20)]
        producer.flush(60)
        assert [future.result(0).queue_offset for future in futures] == list(range(20)), "one request, one queue"


def test_messages_of_a_key_are_not_sent_behind_one_that_failed(stoppable):
    options = {"retries": 0, "batch_messages": 10}
    with rocketpy.Producer("behind", name_servers=[stoppable.name_server], **options) as producer:
        producer.send(Message("behind", b"first", order_key="k"), timeout=60)
        stoppable.freeze()
        futures = [producer.submit(Message("behind", b"%d" % n, order_key="k"), timeout=0.5) for n in range(50)]
        errors = [future.exception(60) for future in futures]
        stoppable.thaw()
    assert errors[0].may_have_been_applied
    assert errors[0].broker == "broker-a"
    assert "not sent" in str(errors[-1])
    assert not errors[-1].may_have_been_applied


def test_flush_times_out_with_what_is_left(stoppable):
    with rocketpy.Producer("flush", name_servers=[stoppable.name_server], send_timeout=2.0) as producer:
        producer.send(Message("flush", b"first"), timeout=60)
        stoppable.freeze()
        futures = [producer.submit(Message("flush", b"%d" % n)) for n in range(3)]
        with pytest.raises(rocketpy.RequestTimeoutError, match="3 messages"):
            producer.flush(timeout=0.2)
        stoppable.thaw()
        wait_for(futures, timeout=60)


def test_closing_sends_what_was_submitted(rocketpy_server, rocketpy_topic):
    with rocketpy_server.producer("closing") as producer:
        futures = [producer.submit(Message(rocketpy_topic, b"%d" % n)) for n in range(200)]
    assert all(future.done() for future in futures)
    assert len(read_all(rocketpy_server, rocketpy_topic, 200)) == 200


TOO_LATE = timedelta(days=400)
"""A delay that every broker rejects."""


def unnoticed(caplog):
    """Numbers of the warnings about failures that nobody read."""
    texts = [record.getMessage() for record in caplog.records if "failed sends unnoticed" in record.getMessage()]
    return [(int(re.search(r"\bmessages=(\d+)", text)[1]), int(re.search(r"\btotal=(\d+)", text)[1])) for text in texts]


def submit_late(producer, topic):
    return producer.submit(Message(topic, b"text", delay=TOO_LATE))


def test_failures_whose_futures_are_dropped_unread_are_logged_with_their_number(
    rocketpy_server, rocketpy_topic, caplog
):
    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        with rocketpy_server.producer(fresh_name("unread")) as producer:
            for _ in range(20):
                submit_late(producer, rocketpy_topic)
            producer.flush(60)
        wait_until(lambda: sum(messages for messages, _ in unnoticed(caplog)) == 20, "all failures are counted")
    assert unnoticed(caplog)[-1][1] == 20
    (first, *_) = [record for record in caplog.records if "failed sends unnoticed" in record.getMessage()]
    assert first.levelno == logging.WARNING
    assert "unread" in first.getMessage(), "the group"
    assert "timerMaxDelaySec" in first.getMessage(), "the error"


def test_failures_that_are_read_are_not_logged(rocketpy_server, rocketpy_topic, caplog):
    read = []
    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        with rocketpy_server.producer(fresh_name("read")) as producer:
            with pytest.raises(rocketpy.RocketPyError):
                submit_late(producer, rocketpy_topic).result(60)
            assert submit_late(producer, rocketpy_topic).exception(60)
            submit_late(producer, rocketpy_topic).add_done_callback(lambda done: read.append(done.exception()))
            with pytest.raises(rocketpy.RocketPyError):
                asyncio.run(awaited(submit_late(producer, rocketpy_topic)))
            producer.submit(Message(rocketpy_topic, b"stored"))  # a success needs no reader
            wait_for([submit_late(producer, rocketpy_topic)], timeout=60)  # waits, and reads nothing
            producer.flush(60)
        gc.collect()
        wait_until(lambda: unnoticed(caplog), "the failure that nobody read")
    assert len(read) == 1
    assert unnoticed(caplog) == [(1, 1)]


def cycle_by_attribute(producer, topic):
    future = producer.submit(Message(topic, b"x"))
    future.itself = future
    return future


def cycle_by_error(producer, topic, *, waits=True):
    future = submit_late(producer, topic)
    if not waits:
        producer.flush(60)
    try:
        future.result(60)
    except rocketpy.RocketPyError as error:
        future_of_frame, error_of_frame = future, error  # noqa: F841  # frame, error and future refer to each other
    return future


@pytest.mark.parametrize("make", [cycle_by_attribute, cycle_by_error, functools.partial(cycle_by_error, waits=False)])
def test_futures_in_cycles_are_collected(rocketpy_server, rocketpy_topic, make):
    with rocketpy_server.producer(fresh_name("cycles")) as producer:
        future = weakref.ref(make(producer, rocketpy_topic))
        producer.flush(60)
        gc.collect()
        assert future() is None


async def awaited(future):
    return await asyncio.wrap_future(future)


def test_failures_that_are_dropped_after_the_close_are_logged_too(rocketpy_server, rocketpy_topic, caplog):
    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        with rocketpy_server.producer(fresh_name("kept")) as producer:
            kept = [submit_late(producer, rocketpy_topic) for _ in range(5)]
        assert all(future.done() for future in kept)
        assert not unnoticed(caplog), "they may still be read"
        assert kept[0].exception()
        del producer, kept
        gc.collect()
        wait_until(lambda: sum(messages for messages, _ in unnoticed(caplog)) == 4, "all failures are counted")


def test_a_callback_that_would_wait_for_its_own_thread_is_told(rocketpy_server, rocketpy_topic):
    errors = []

    def wait_for_another(_):
        with pytest.raises(rocketpy.NotSupportedError, match="cannot wait for another future of its producer") as error:
            producer.submit(Message(rocketpy_topic, b"second")).result(60)
        errors.append(error.value.hint)

    with rocketpy_server.producer(fresh_name("waits")) as producer:
        producer.submit(Message(rocketpy_topic, b"first")).add_done_callback(wait_for_another)
        producer.flush(60)
        wait_until(lambda: errors, "the callback ends")
        assert producer.submit(Message(rocketpy_topic, b"third")).result(60)
    assert errors == ["wait in another thread, or add a callback to the other future"]

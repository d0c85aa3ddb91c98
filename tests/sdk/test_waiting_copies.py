"""Copies of a store in which messages wait: a server on the copy goes on with them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from reading import read_all

import rocketpy
from rocketpy import Decision, store
from rocketpy.testing import fresh_name
from waiting import wait_until


def snapshot(folder: Path, copy: Path, topic: str) -> None:
    store.snapshot(folder, copy)


def export_all(folder: Path, copy: Path, topic: str) -> None:
    report = store.export_messages(folder, copy)
    assert report.waiting == store.WaitingCounts(delayed=1, timers=2, half_messages=1)
    assert report.topics[topic] == 4


def export_topic(folder: Path, copy: Path, topic: str) -> None:
    report = store.export_messages(folder, copy, topics=topic)
    assert report.waiting == store.WaitingCounts(delayed=1, timers=1, half_messages=1)
    assert (dict(report.topics), report.passed_over) == ({topic: 4}, 0)


def import_all(folder: Path, copy: Path, topic: str) -> None:
    report = store.import_messages(folder, copy)
    assert report.waiting == store.WaitingCounts(delayed=1, timers=2, half_messages=1)
    assert report.topics[topic] == 4


@pytest.mark.parametrize("make_copy", [snapshot, export_all, export_topic, import_all])
def test_a_server_on_a_copy_delivers_what_waits_and_asks_for_what_is_open(
    make_copy: Callable[[Path, Path, str], None], rocketpy_server_factory, tmp_path
):
    topic, other, folder, copy = fresh_name("copied"), fresh_name("other"), tmp_path / "store", tmp_path / "copy"
    levels = {"messageDelayLevel": "1s 8s"}
    asks_soon = {"transactionTimeOut": "0", "transactionCheckInterval": "200"}
    with rocketpy_server_factory(folder, settings=levels) as server, server.producer("copies") as producer:
        producer.send(rocketpy.Message(topic, b"delayed, came", delay_level=1))
        producer.send(rocketpy.Message(topic, b"timer, came", delay=0.3))
        producer.send(rocketpy.Message(topic, b"plain"))
        read_all(server, topic, 3)
    # A stop writes how far that is.
    with rocketpy_server_factory(folder, settings=levels | {"transactionTimeOut": "600000"}) as server:
        with server.producer("copies") as producer:
            producer.send(rocketpy.Message(topic, b"delayed", delay_level=2))
            producer.send(rocketpy.Message(topic, b"timer", delay=8))
            producer.send(rocketpy.Message(other, b"of another topic", delay=3600))
        with server.transaction_producer("payers", lambda message: Decision.UNKNOWN) as payers:
            payers.transaction(rocketpy.Message(topic, b"over")).commit()
            payers.transaction(rocketpy.Message(topic, b"rolled back")).rollback()
            payers.transaction(rocketpy.Message(topic, b"open"))
            read_all(server, topic, 4)
            make_copy(folder, copy, topic)
    with (
        rocketpy_server_factory(copy, settings=levels | asks_soon) as server,
        server.transaction_producer("payers", lambda message: Decision.COMMIT),
    ):
        came = sorted(message.body for message in read_all(server, topic, 7))
    assert came == [b"delayed", b"delayed, came", b"open", b"over", b"plain", b"timer", b"timer, came"]


@pytest.mark.parametrize("make_copy", [store.snapshot, store.export_messages, store.import_messages])
def test_copies_that_are_made_while_messages_become_due_lose_none(make_copy, rocketpy_server_factory, tmp_path):
    """Each message is due at another moment, before, while or after the copies are made."""
    topic, folder = fresh_name("copied"), tmp_path / "store"
    copies = [tmp_path / f"copy{number}" for number in range(3)]
    levels = {"messageDelayLevel": "1s 2s"}
    timers = [rocketpy.Message(topic, b"timer %d" % number, delay=number * 0.01) for number in range(1, 200)]
    delayed = [rocketpy.Message(topic, b"delayed %d" % number, delay_level=number % 2 + 1) for number in range(100)]
    with rocketpy_server_factory(folder, settings=levels) as server:
        with server.producer("copies") as producer, server.transaction_producer("payers", commits) as payers:
            for message in timers + delayed:
                producer.send(message)
            begun = [payers.transaction(rocketpy.Message(topic, b"half %d" % number)) for number in range(60)]
            wait_until(lambda: any((folder / "consumequeue").rglob("0*")), "a file, whose size a copy takes")
            for copy in copies:
                for _ in range(10):
                    begun.pop().commit()
                make_copy(folder, copy)
                for _ in range(10):
                    begun.pop().commit()
    expected = {message.body for message in timers + delayed} | {b"half %d" % number for number in range(60)}
    for copy in copies:
        asks_soon = {"transactionTimeOut": "0", "transactionCheckInterval": "200"}
        with (
            rocketpy_server_factory(copy, settings=levels | asks_soon) as server,
            server.transaction_producer("payers", commits),
            server.consumer(fresh_name("reader"), topic, start=rocketpy.Start.EARLIEST) as consumer,
        ):
            came: set[bytes] = set()
            while came < expected:
                batch = consumer.poll(1000, timeout=60)
                assert batch, f"missing: {sorted(expected - came)}"
                came |= {message.body for message in batch}
        assert came == expected


def commits(message: rocketpy.ReceivedMessage) -> Decision:
    return Decision.COMMIT

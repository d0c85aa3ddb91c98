"""Messages that wait for their delivery time, and transactions without an end."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import rocketpy
from rocketpy import Message
from rocketpy.testing import fresh_name
from waiting import wait_until

LONGEST_DELAY = 18
"""Delay level of 2 hours."""


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketpy.Server]:
    """Server without waiting messages of other tests."""
    with rocketpy.Server(
        tmp_path_factory.mktemp("waiting"), settings={"transactionCheckInterval": 3_600_000}
    ) as server:
        yield server


@pytest.fixture
def admin(own_server: rocketpy.Server) -> Iterator[rocketpy.Admin]:
    with own_server.admin() as admin:
        yield admin


def test_waiting_messages_are_counted_by_time_and_listed_by_it(own_server, admin):
    assert admin.waiting_messages() == rocketpy.WaitingMessages(0, 0, 0, 0, (), True)
    topic = fresh_name("waiting")
    began = datetime.now(UTC)
    with own_server.producer("filler") as producer:
        producer.send(Message(topic, b"level", delay_level=LONGEST_DELAY))
        soon = producer.send(Message(topic, b"soon", delay=50))
        recalled = producer.send(Message(topic, b"recalled", delay=1800))
        producer.send(Message(topic, b"in half an hour", delay=1800))
        producer.send(Message(topic, b"tomorrow", delay=timedelta(hours=30)))
        producer.recall(recalled)
    seen: list[rocketpy.WaitingMessages] = []
    wait_until(lambda: seen.append(admin.waiting_messages()) or (len(seen[-1].messages) == 4 and seen[-1].total == 4))
    found = seen[-1]
    assert (found.in_minute, found.in_hour, found.in_day) == (1, 2, 3)
    assert (found.is_complete, found.missing) == (True, ())
    assert [(one.kind, one.size) for one in found.messages] == [("timer", 4), ("timer", 15), ("delay", 5), ("timer", 8)]
    assert {one.topic for one in found.messages} == {topic}
    first = found.messages[0]
    assert (first.msg_id, first.broker_name) == (soon.msg_id, "broker-a")
    assert began + timedelta(seconds=49) < first.due_at < began + timedelta(seconds=80)
    assert timedelta(hours=1.99) < found.messages[2].due_at - began < timedelta(hours=2.01)
    assert admin.waiting_messages(max_messages=2).messages == found.messages[:2]
    cut = admin.waiting_messages(max_read=1)
    assert (cut.is_complete, cut.in_minute, cut.in_day) == (False, None, None)
    assert cut.total is not None
    assert cut.total >= 4


def test_open_transactions_are_listed_until_they_end(own_server, admin):
    topic, group = fresh_name("paid"), fresh_name("payer")
    admin.create_topic(topic, queues=1)
    with own_server.transaction_producer(group, lambda _: rocketpy.Decision.UNKNOWN) as producer:
        first, second, third = [producer.transaction(Message(topic, body)) for body in (b"a", b"bb", b"ccc")]

        def found() -> list[rocketpy.OpenTransaction]:
            return list(admin.open_transactions().transactions)

        wait_until(lambda: len(found()) == 3)
        ids = [one.receipt.msg_id for one in (first, second, third)]
        assert [(one.msg_id, one.size) for one in found()] == list(zip(ids, (1, 2, 3), strict=True))
        oldest = found()[0]
        assert (oldest.topic, oldest.producer_group, oldest.broker_name) == (topic, group, "broker-a")
        assert 0 <= oldest.age_seconds < 60
        assert oldest.sent_at is not None
        assert [one.msg_id for one in admin.open_transactions(max_messages=1).transactions] == ids[:1]
        cut = admin.open_transactions(max_read=1)
        assert (cut.is_complete, cut.total) == (False, 3)
        second.commit()
        wait_until(lambda: [one.msg_id for one in found()] == [ids[0], ids[2]])
        first.rollback()
        third.commit()
        wait_until(lambda: admin.open_transactions() == rocketpy.OpenTransactions(0, (), True))


def test_an_event_loop_finds_the_same(own_server, admin):
    async def main() -> None:
        async with rocketpy.AsyncAdmin(own_server.name_server) as other:
            assert await other.waiting_messages() == admin.waiting_messages()
            assert (await other.open_transactions()).is_complete

    asyncio.run(main())

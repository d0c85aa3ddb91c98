"""Pages of waiting messages on a real server: delays, timers, retries, open transactions."""

import asyncio

import pytest
from group_pages import visiting

from rocketpy import Message
from rocketpy.console.pages.waiting import Kept
from rocketpy.testing import fresh_name
from waiting import wait_until


@pytest.fixture(scope="module")
def visitor(rocketpy_server):
    with visiting(rocketpy_server.name_server) as visitor:
        yield visitor


def test_delayed_messages_are_shown_by_due_time(visitor, rocketpy_server, rocketpy_topic):
    visitor.console.extras["waiting"] = Kept(keep_seconds=0)
    with rocketpy_server.producer("shop") as producer:
        producer.send(Message(rocketpy_topic, b"later", delay=1800))
        producer.send(Message(rocketpy_topic, b"soon", delay_level=14))  # 10 minutes

    def found():
        data = visitor.get("api", "waiting").json()
        return [one for one in data["messages"] if one["topic"] == rocketpy_topic]

    wait_until(lambda: len(found()) == 2, "both messages")
    assert [one["due_at"] for one in found()] == sorted(one["due_at"] for one in found())
    text = visitor.text("waiting")
    assert rocketpy_topic in text
    assert "Due in 1 h" in text
    assert "later" not in text, "the page shows no bodies"


def test_open_transactions_are_shown_by_age(visitor, rocketpy_server, rocketpy_topic):
    group = fresh_name("shop")
    visitor.console.extras["waiting"] = Kept(keep_seconds=0)
    with (
        rocketpy_server.transaction_producer(group, lambda _message: None) as producer,
        producer.transaction(Message(rocketpy_topic, b"half")),
    ):
        text = visitor.shows(group, "waiting", kind="transaction")
        assert rocketpy_topic in text
    wait_until(lambda: group not in visitor.text("waiting", kind="transaction"), "the end of it")


def test_retries_are_shown_by_group(visitor, rocketpy_server, rocketpy_topic):
    group = fresh_name("retrying")
    with rocketpy_server.producer("shop") as producer, rocketpy_server.admin() as admin:
        producer.send(Message(rocketpy_topic, b"x"))
        admin.create_group(group)
        retry = f"%RETRY%{group}"
        admin.create_topic(retry, queues=1)
        producer.send(Message(retry, b"again"))
        admin.reset_offsets(group, retry, "earliest")
    text = visitor.shows(f"{group} 1 ▲ 0 0", "waiting", kind="retry")
    assert "Due again" in text


def test_unknown_kind_is_not_found(visitor):
    visitor.get("waiting", kind="other", status=404)


def test_answer_is_kept_for_seconds_and_read_once_at_a_time():
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    async def main():
        clock, calls = Clock(), []
        kept = Kept(clock=clock)

        async def read():
            calls.append(clock.now)
            await asyncio.sleep(0)
            return len(calls)

        both = await asyncio.gather(kept.get(("a", "x"), read), kept.get(("a", "x"), read))
        assert (both, calls) == ([1, 1], [0.0])
        assert await kept.get(("b", "x"), read) == 2, "another user has an own answer"
        clock.now = 5.1
        assert await kept.get(("a", "x"), read) == 3

        async def failing():
            raise ValueError

        clock.now = 11
        with pytest.raises(ValueError):
            await kept.get(("a", "x"), failing)
        assert await kept.get(("a", "x"), read) == 4

    asyncio.run(main())

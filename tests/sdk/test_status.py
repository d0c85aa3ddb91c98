"""Status calls: brokers, groups, topics, and messages that wait."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rocketpy
from rocketpy import Message
from rocketpy.testing import fresh_name
from waiting import wait_until

LONGEST_DELAY = 18
"""Delay level of 2 hours."""


@pytest.fixture
def admin(rocketpy_server: rocketpy.Server):
    with rocketpy_server.admin() as admin:
        yield admin


@pytest.fixture
def group(admin: rocketpy.Admin) -> str:
    name = fresh_name("group")
    admin.create_group(name)
    return name


def of_group(admin: rocketpy.Admin, name: str) -> rocketpy.GroupStatus:
    return next(one for one in admin.group_status() if one.name == name)


def test_a_group_has_its_lag_due_retries_and_dead_letters(rocketpy_server, rocketpy_topic: str, admin, group: str):
    with rocketpy_server.producer("filler") as producer:
        producer.send_many([Message(rocketpy_topic, b"x")] * 3)
        admin.reset_offsets(group, rocketpy_topic, "earliest")
        found = of_group(admin, group)
        assert (found.topics, found.lag) == ((rocketpy_topic,), 3)
        assert (found.members, found.retries, found.dead_letters) == (0, 0, 0)
        for _ in range(2):
            producer.send(Message(f"%RETRY%{group}", b"x"))
        producer.send(Message(f"%DLQ%{group}", b"x"))
    wait_until(lambda: of_group(admin, group).dead_letters == 1)
    found = of_group(admin, group)
    assert (found.topics, found.lag, found.retries) == ((rocketpy_topic,), 3, 2), "never consumed there"
    assert found in admin.status().groups


def test_a_topic_has_its_messages_rate_and_groups(rocketpy_server, rocketpy_topic: str, admin):
    with rocketpy_server.producer("filler") as producer:
        producer.send_many([Message(rocketpy_topic, b"x")] * 6)
    admin.create_group(name := fresh_name("reader"))
    admin.reset_offsets(name, rocketpy_topic, "latest")
    (found,) = admin.topic_status([rocketpy_topic, "there-is-no-such-topic"])
    assert (found.name, found.messages, found.groups) == (rocketpy_topic, 6, (name,))
    assert found.per_second in (0.1, 0), "of the last minute; none on a machine that stood still"
    assert {one.name for one in admin.topic_status()} == set(admin.topics())


def test_delayed_messages_wait_until_their_delay_ends(rocketpy_server, rocketpy_topic: str, admin):
    before = admin.status().delayed
    with rocketpy_server.producer("filler") as producer:
        for level in (LONGEST_DELAY, LONGEST_DELAY - 1, 1):
            producer.send(Message(rocketpy_topic, b"x", delay_level=level))
    wait_until(lambda: admin.topic_status([rocketpy_topic])[0].messages == 1, "the short delay has ended")
    assert admin.status().delayed == before + 2


def test_a_failed_message_waits_for_its_retry(rocketpy_server, rocketpy_topic: str, admin):
    name, other = fresh_name("mailer"), fresh_name("other")
    with rocketpy_server.push_consumer(name) as mailer, rocketpy_server.producer("filler") as producer:

        @mailer.on(rocketpy_topic)
        def fail(_message: rocketpy.ReceivedMessage) -> None:
            raise ValueError

        mailer.start()
        began = datetime.now(UTC)
        producer.send(Message(rocketpy_topic, b"x"))
        producer.send(Message(rocketpy_topic, b"x", delay_level=LONGEST_DELAY))
        seen: list[rocketpy.WaitingRetries] = []
        wait_until(lambda: seen.append(admin.waiting_retries(name)) or seen[-1].messages)
    assert (seen[-1].messages, seen[-1].is_complete) == (1, True)
    assert seen[-1].next_at >= began + timedelta(seconds=10), "the delay of the first retry"
    assert admin.waiting_retries(other).messages == 0
    assert not admin.waiting_retries(name, max_messages=0).is_complete


def test_a_broker_that_is_away_leaves_the_rest_known(tmp_path: Path, rocketpy_settings):
    elsewhere = {**rocketpy_settings, "brokerName": "gone", "brokerIP1": "127.0.0.2"}  # it listens on 127.0.0.1
    with (
        rocketpy.Server(tmp_path / "a", settings=rocketpy_settings) as server,
        rocketpy.Broker(tmp_path / "b", name_servers=server.name_server, settings=elsewhere),
        server.admin() as admin,
    ):
        here, gone = admin.broker_status()
        assert (here.broker_name, here.broker_id, here.error) == ("broker-a", 0, None)
        assert here.version.startswith("V5")
        assert 0 < here.disk_used < 1
        assert (gone.broker_name, gone.disk_used, gone.timers, gone.version) == ("gone", None, None, None)
        assert gone.address in gone.error
        found = admin.status()
        assert [one.broker_name for one in found.brokers] == ["broker-a", "gone"]
        assert found.topics
        assert (found.groups, found.delayed) == ((), None)
        assert [text.partition(":")[0] for text in found.errors] == ["delayed messages unknown", "groups unknown"]
        assert all(gone.address in text for text in found.errors)


def test_asyncio_has_the_same_status(rocketpy_server, admin):
    async def status() -> rocketpy.ClusterStatus:
        async with rocketpy.AsyncAdmin(rocketpy_server.name_server) as twin:
            return await twin.status()

    assert [one.address for one in asyncio.run(status()).brokers] == [one.address for one in admin.status().brokers]


def test_a_closed_client_is_an_error_and_not_an_unknown_part(rocketpy_server):
    admin = rocketpy_server.admin()
    admin.close()
    with pytest.raises(rocketpy.ClosedError):
        admin.status()

"""Status calls: brokers, groups, topics, and messages that wait."""

import asyncio
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rocketpy
from rocketpy import Message
from rocketpy.admin.answers import BrokerFigures
from rocketpy.admin.cluster import BrokerInfo
from rocketpy.admin.status_calls import CONCURRENT_CALLS, broker_row
from rocketpy.base.at_once import finished
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
    with rocketpy_server.producer("filler") as producer:

        def rate() -> float:
            producer.send_many([Message(rocketpy_topic, b"x")] * 6)
            return admin.topic_status([rocketpy_topic])[0].per_second

        wait_until(lambda: rate() >= 0.1, "6 messages in a minute")
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
        assert (found.groups, found.delayed, found.errors) == ((), 0, ())
        assert [(one.address, one.answered_at) for one in found.missing] == [(gone.address, None)]
        assert gone.address in found.missing[0].error


def test_a_broker_of_rocketpy_reports_its_version_and_one_of_apache_none():
    broker = BrokerInfo("cluster", "broker", {0: "host:1"})
    for figures, version in (({"rocketpyVersion": "0.2.0"}, "0.2.0"), ({}, None)):
        assert broker_row(BrokerFigures(broker, 0, figures, None, None)).rocketpy_version == version


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


def test_a_figure_that_is_no_number_is_unknown():
    broker = BrokerInfo("cluster", "broker", {0: "host:1"})
    figures = {"putTps": "n/a", "commitLogDiskRatio": "", "msgPutTotalTodayNow": "many", "timersWaiting": "1.5"}
    row = broker_row(BrokerFigures(broker, 0, figures, None, None))
    assert (row.in_per_second, row.disk_used, row.messages_in, row.timers) == (None, None, None, None)


def test_a_member_reports_version_queues_and_stacks(rocketpy_server, rocketpy_topic: str, admin):
    group = fresh_name("reader")
    with (
        rocketpy_server.consumer(group, rocketpy_topic, start=rocketpy.Start.EARLIEST) as consumer,
        rocketpy_server.producer("filler") as producer,
    ):
        producer.send_many([Message(rocketpy_topic, b"x")] * 3)
        received: list[rocketpy.ReceivedMessage] = []
        wait_until(lambda: received.extend(consumer.poll(timeout=1)) or len(received) == 3)
        consumer.commit()
        producer.send_many([Message(rocketpy_topic, b"x")] * 2)
        found: list[rocketpy.ConsumerRunningInfo] = []
        wait_until(lambda: found.append(admin.consumer_running_info(group, consumer.client_id)) or lag_of(found[-1]))
        member = admin.consumer_running_info(group, consumer.client_id, jstack=True)
        assert (member.client_id, member.language, member.error) == (consumer.client_id, "PYTHON", None)
        assert member.client_version == f"rocketpy {rocketpy.__version__}"
        assert member.subscriptions == {rocketpy_topic: "*"}
        assert {one.queue for one in member.queues} == set(admin.queues(rocketpy_topic))
        assert "test_a_member_reports_version_queues_and_stacks" in member.jstack, "the main thread"
        assert found[-1].jstack is None
        assert [one.client_id for one in admin.running_members(group)] == [consumer.client_id]
        with pytest.raises(rocketpy.RefusedError, match="has no live member: nobody"):
            admin.consumer_running_info(group, "nobody")
    assert admin.running_members(group) == []
    with pytest.raises(rocketpy.GroupNotFoundError):
        admin.running_members(fresh_name("missing"))


def lag_of(member: rocketpy.ConsumerRunningInfo) -> int:
    """Lag of the queues that the group has committed in."""
    return sum(one.lag or 0 for one in member.queues)


def test_groups_are_requested_together_and_at_most_eight_at_a_time(rocketpy_server):
    """Each call waits until as many others have begun as the bound allows."""
    together = threading.Barrier(CONCURRENT_CALLS)
    running, most, lock = 0, 0, threading.Lock()

    async def call(item: int) -> int:
        nonlocal running, most
        with lock:
            running, most = running + 1, max(most, running + 1)
        together.wait(60)
        with lock:
            running -= 1
        return item

    with rocketpy_server.admin() as admin:
        items = range(2 * CONCURRENT_CALLS)
        assert finished(admin._calls._each(call, items)) == list(items)
    assert most == CONCURRENT_CALLS


def test_an_event_loop_requests_groups_together_too(rocketpy_server):
    async def main() -> list[int]:
        together = asyncio.Barrier(CONCURRENT_CALLS)
        running: set[int] = set()

        async def call(item: int) -> int:
            running.add(item)
            assert len(running) <= CONCURRENT_CALLS
            async with asyncio.timeout(60):
                await together.wait()
            running.discard(item)
            return item

        async with rocketpy.AsyncAdmin(rocketpy_server.name_server) as twin:
            return await twin._each(call, range(2 * CONCURRENT_CALLS))

    assert asyncio.run(main()) == list(range(2 * CONCURRENT_CALLS))


def test_the_bytes_that_a_search_for_retries_reads_are_bounded(rocketpy_server_factory):
    server = rocketpy_server_factory()
    with server.admin() as admin, server.producer("filler") as producer:
        admin.create_topic("orders", queues=1)
        admin.create_group("mailer")
        for _ in range(3):
            producer.send(Message("orders", os.urandom(1 << 20), delay_level=LONGEST_DELAY))
        wait_until(lambda: admin.status().delayed == 3)
        assert admin.waiting_retries("mailer").is_complete
        found = admin.waiting_retries("mailer", max_bytes=1 << 20)
        assert (found.messages, found.next_at, found.is_complete) == (0, None, False)

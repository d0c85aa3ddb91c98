"""All topics, groups and producers in one request a broker; readers of a topic; delays and rates; the live tail."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rocketpy
from rocketpy import Message
from rocketpy.testing import fresh_name
from waiting import wait_until


@pytest.fixture
def admin(rocketpy_server: rocketpy.Server):
    with rocketpy_server.admin() as admin:
        yield admin


@pytest.fixture
def group(admin: rocketpy.Admin) -> str:
    name = fresh_name("group")
    admin.create_group(name)
    return name


@pytest.fixture
def one_queue(admin: rocketpy.Admin) -> rocketpy.MessageQueue:
    name = fresh_name("topic")
    admin.create_topic(name, queues=1)
    return admin.queues(name)[0]


def fill(producer: rocketpy.Producer, admin: rocketpy.Admin, queue: rocketpy.MessageQueue, *bodies: bytes) -> None:
    before = admin.max_offset(queue)
    producer.send_many([Message(queue.topic, body) for body in bodies])
    wait_until(lambda: admin.max_offset(queue) == before + len(bodies))


def test_all_topics_have_queues_permission_and_attributes(rocketpy_server, admin):
    name = fresh_name("configured")
    attributes = {"message.type": "FIFO", "retention.hours": "5"}
    admin.create_topic(name, 3, write_queues=2, writable=False, attributes=attributes)
    found = {one.name: one for one in admin.topic_configs()}
    assert sorted(found) == admin.topics()
    topic = found[name]
    assert (topic.read_queues, topic.write_queues, topic.readable, topic.writable) == (3, 2, True, False)
    assert (topic.attributes, topic.message_type, topic.is_system) == (attributes, "FIFO", False)
    assert topic.brokers == admin.describe_topic(name).brokers
    assert found["TBW102"].is_system
    assert found["TBW102"].message_type == ""
    (broker,) = admin.brokers()
    assert {found[one].is_system for one in (broker.broker_name, broker.cluster) if one in found} <= {True}
    with rocketpy_server.producer("filler") as producer:
        producer.send(Message(f"%DLQ%{name}", b"x"))
    assert next(one for one in admin.topic_configs() if one.name == f"%DLQ%{name}").is_system


def test_all_groups_have_the_settings_of_each(admin, group: str):
    admin.update_group(group, retries=3, enabled=False)
    found = {one.name: one for one in admin.group_configs()}
    assert found[group].brokers == tuple(admin.group_settings(group))
    assert (found[group].brokers[0].retries, found[group].brokers[0].enabled) == (3, False)
    assert set(found) == {one.name for one in admin.groups()}
    assert "TOOLS_CONSUMER" not in found


def test_all_producer_groups_have_their_members(rocketpy_server, rocketpy_topic: str, admin):
    names = sorted(fresh_name("producers") for _ in range(2))

    def groups() -> dict[str, tuple[rocketpy.ProducerConnection, ...]]:
        return {one.name: one.members for one in admin.producers()}

    with rocketpy_server.producer(names[0]) as first, rocketpy_server.producer(names[1]) as second:
        for producer in (first, second):
            producer.send(Message(rocketpy_topic, b"x"))
        wait_until(lambda: set(names) <= set(groups()))
        found = groups()
        assert list(found) == sorted(found)
        assert [found[name] for name in names] == [tuple(admin.producer_connections(name)) for name in names]
    wait_until(lambda: not set(names) & set(groups()))


def test_groups_of_a_topic_and_their_positions_at_a_message(producer, admin, group: str, one_queue):
    other = fresh_name("other")
    admin.create_group(other)
    assert admin.topic_groups(one_queue.topic) == []
    fill(producer, admin, one_queue, b"a", b"b")
    admin.commit_offset(group, one_queue, 1)
    assert admin.topic_groups(one_queue.topic) == [group]
    admin.reset_offsets(other, one_queue.topic, "earliest")
    assert admin.topic_groups(one_queue.topic) == sorted([group, other])

    def positions(offset: int) -> dict[str, tuple[int | None, bool]]:
        return {one.group: (one.committed_offset, one.is_past) for one in admin.message_consumers(one_queue, offset)}

    assert positions(0) == {group: (1, True), other: (0, False)}
    assert positions(1) == {group: (1, False), other: (0, False)}
    with pytest.raises(rocketpy.TopicNotFoundError):
        admin.topic_groups(fresh_name("absent"))
    with pytest.raises(rocketpy.BrokerNotFoundError):
        admin.message_consumers(rocketpy.MessageQueue(one_queue.topic, "nobody", 0), 0)


def test_a_delay_is_the_age_of_the_next_message(producer, admin, group: str, one_queue):
    began = datetime.now(UTC) - timedelta(milliseconds=1)
    fill(producer, admin, one_queue, b"a", b"b")
    admin.reset_offsets(group, one_queue.topic, "earliest")
    wait_until(lambda: admin.queue_delays(group)[0].behind_seconds > 0.02)
    (row,) = admin.queue_delays(group, one_queue.topic)
    elapsed = (datetime.now(UTC) - began).total_seconds()
    assert row.queue == one_queue
    assert 0.02 < row.behind_seconds <= elapsed + 0.01
    assert row.last_consumed_at is None
    assert row.newest_at is not None
    assert row.newest_at >= began
    admin.commit_offset(group, one_queue, 2)
    (row,) = admin.queue_delays(group)
    assert (row.behind_seconds, row.last_consumed_at) == (0.0, row.newest_at)
    assert [one.queue for one in admin.group_lag(group)] == [row.queue]
    with pytest.raises(rocketpy.GroupNotFoundError):
        admin.queue_delays(fresh_name("absent"))


def test_a_queue_is_owned_by_the_member_that_reads_it(rocketpy_server, admin, group: str, one_queue):
    assert admin.queue_owners(group) == {}
    with rocketpy_server.consumer(group, one_queue.topic) as consumer:
        wait_until(lambda: consumer.poll(timeout=0.1) or admin.queue_owners(group))
        assert admin.queue_owners(group) == {one_queue: tuple(admin.group_members(group))}


def test_rates_count_what_was_stored_and_delivered(rocketpy_server, producer, admin, group: str, one_queue):
    assert admin.topic_rate(one_queue.topic).messages == rocketpy.CountRate(0.0, 0, 0, 0)
    fill(producer, admin, one_queue, b"x" * 100, b"x" * 100, b"x" * 100)
    stored = admin.topic_rate(one_queue.topic)
    assert (stored.messages.last_minute, stored.messages.last_hour, stored.messages.last_day) == (3, 3, 3)
    assert stored.messages.per_second > 0
    assert stored.bytes.last_minute >= 300
    assert stored.missing == ()
    assert admin.group_rate(group).messages.last_day == 0
    with rocketpy_server.consumer(group, one_queue.topic, start="earliest") as consumer:
        got = 0
        while got < 3:
            got += len(consumer.poll(timeout=5))
        consumer.commit()
    delivered = admin.group_rate(group, one_queue.topic)
    assert delivered.messages.last_minute == 3
    assert delivered.bytes.last_minute >= 300
    assert admin.group_rate(group).messages.last_minute == 3
    with pytest.raises(rocketpy.GroupNotFoundError):
        admin.group_rate(fresh_name("absent"))


def test_a_tail_waits_for_messages_and_leaves_no_group(producer, admin, one_queue):
    groups = [one.name for one in admin.groups()]
    fill(producer, admin, one_queue, b"a", b"b", b"c")
    read = admin.read(one_queue, 1, max_messages=1, wait=30)
    assert [(one.queue_offset, one.body) for one in read] == [(1, b"b")]
    assert [one.body for one in admin.read(one_queue, 0, 2, wait=30)] == [b"a", b"b"]
    began = time.monotonic()
    assert admin.read(one_queue, 3, wait=0.2) == []
    assert time.monotonic() - began >= 0.15
    late = threading.Timer(0.2, producer.send, [Message(one_queue.topic, b"d")])
    late.start()
    began = time.monotonic()
    assert [one.body for one in admin.read(one_queue, 3, wait=timedelta(seconds=30))] == [b"d"]
    assert time.monotonic() - began < 10
    late.join()
    with pytest.raises(rocketpy.OffsetError):
        admin.read(one_queue, 5, wait=0.1)
    assert [one.name for one in admin.groups()] == groups
    assert admin.topic_groups(one_queue.topic) == []


def test_an_event_loop_reads_the_same(rocketpy_server, producer, admin, group: str, one_queue):
    fill(producer, admin, one_queue, b"a")
    admin.commit_offset(group, one_queue, 1)

    async def main() -> None:
        async with rocketpy.AsyncAdmin(rocketpy_server.name_server) as other:
            tail = asyncio.create_task(other.read(one_queue, 1, wait=30))
            assert await other.topic_groups(one_queue.topic) == [group], "the tail holds up no other call"
            assert await other.message_consumers(one_queue, 0) == admin.message_consumers(one_queue, 0)
            assert (await other.topic_rate(one_queue.topic)).messages.last_hour == 1
            assert await other.queue_owners(group) == {}
            configs = {one.name: one for one in await other.topic_configs()}
            assert configs[one_queue.topic].read_queues == 1
            assert group in {one.name for one in await other.group_configs(partial=True)}
            await asyncio.to_thread(producer.send, Message(one_queue.topic, b"b"))
            assert [one.body for one in await tail] == [b"b"]

    asyncio.run(main())


def test_a_broker_that_is_away_is_named_and_the_others_answer(tmp_path: Path, rocketpy_settings):
    elsewhere = {**rocketpy_settings, "brokerName": "gone", "brokerIP1": "127.0.0.2"}  # it listens on 127.0.0.1
    with (
        rocketpy.Server(tmp_path / "a", settings=rocketpy_settings) as server,
        rocketpy.Broker(tmp_path / "b", name_servers=server.name_server, settings=elsewhere),
        server.admin() as admin,
    ):
        for call in (admin.topic_configs, admin.group_configs, admin.producers):
            assert [one.broker_name for one in call(partial=True).missing] == ["gone"]
            with pytest.raises(rocketpy.ConnectionFailedError):
                call()
        admin.create_topic("here", queues=1, broker=server.broker)
        assert admin.topic_rate("here").missing == ()
        assert [one.broker_name for one in admin.topic_rate("TBW102", partial=True).missing] == ["gone"]

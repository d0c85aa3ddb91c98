"""Consumers of given queues, which are no members of their group."""

import asyncio

import pytest

import rocketpy
from rocketpy import Consumer, Message, MessageQueue
from rocketpy.testing import fresh_name
from waiting import wait_until


@pytest.fixture
def group():
    return fresh_name("assigned")


@pytest.fixture
def queues(producer, rocketpy_topic):
    """Four queues with five messages each, whose bodies say queue and number."""
    queues = sorted(producer.queues(rocketpy_topic))
    for queue in queues:
        producer.send_many(
            [Message(queue.topic, b"%d-%d" % (queue.queue_id, number)) for number in range(5)], queue=queue
        )
    return queues


@pytest.fixture
def assign(rocketpy_server, group):
    """Makes consumers, and closes those that are left at the end."""
    consumers = []

    def assign(queues, group=group, **options):
        consumers.append(Consumer.assign(group, queues, name_servers=rocketpy_server.name_servers, **options))
        return consumers[-1]

    yield assign
    for consumer in consumers:
        consumer.close()


def read(consumer, count):
    bodies = []
    while len(bodies) < count:
        bodies += [message.body.decode() for message in consumer.poll(timeout=60)]
    return sorted(bodies)


def of(*numbers, start=0):
    return [f"{queue}-{number}" for queue in numbers for number in range(start, 5)]


def test_it_reads_its_queues_and_the_group_does_not_know_it(rocketpy_server, assign, queues, group):
    first, second = assign(queues[:1] + queues[2:3]), assign(queues[2:])
    assert first.assignment() == [queues[0], queues[2]]
    assert (read(first, 10), read(second, 10)) == (of(0, 2), of(2, 3))
    with rocketpy_server.admin() as admin, rocketpy_server.consumer(group, queues[0].topic) as member:
        wait_until(lambda: len(member.assignment()) == 4)
        assert admin.group_members(group) == [member.client_id]


def test_nothing_is_stored_before_a_commit_and_the_group_goes_on_from_there(rocketpy_server, assign, queues, group):
    with rocketpy_server.admin() as admin:
        for start in ("earliest", "latest", "-10m"):
            assign(queues, start=start).close()
            assert [admin.committed_offset(group, queue) for queue in queues] == [None] * 4, start
        consumer = assign(queues[1:2])
        assert read(consumer, 5) == of(1)
        consumer.commit_offsets({queues[1]: 3})
        consumer.close()
        assert admin.committed_offset(group, queues[1]) == 3
    assert read(assign(queues[:2]), 7) == of(0) + of(1, start=3)


def test_seeks_pauses_and_commits_are_those_of_every_consumer(assign, producer, queues):
    consumer = assign(queues[:2], auto_commit=0.05)
    assert consumer.seek(queues[0], 4) == 4
    consumer.pause(queues[1])
    assert read(consumer, 1) == ["0-4"]
    consumer.resume()
    assert read(consumer, 5) == of(1)
    assert consumer.lag() == {queues[0]: 0, queues[1]: 0}
    consumer.poll(timeout=0)
    wait_until(lambda: consumer.committed(queues[1]) == 5)
    with pytest.raises(rocketpy.OffsetError, match="not assigned"):
        consumer.seek(queues[2], 0)


def test_queues_of_several_topics_come_with_their_filters(assign, producer, queues, group):
    other = fresh_name("other")
    receipt = producer.send(Message(other, b"by sql", properties={"a": "5"}))
    producer.send(Message(other, b"not", properties={"a": "1"}), queue=receipt.queue)
    consumer = assign([*queues[:1], receipt.queue], sql={other: "a > 3"})
    assert read(consumer, 6) == sorted([*of(0), "by sql"])


def test_the_latest_is_what_comes_after_it_was_made(assign, producer, queues):
    consumer = assign(queues, start="latest")
    producer.send(Message(queues[3].topic, b"new"), queue=queues[3])
    assert read(consumer, 1) == ["new"]


def test_an_event_loop_reads_assigned_queues(rocketpy_server, queues, group):
    async def main():
        servers = rocketpy_server.name_servers
        async with rocketpy.AsyncConsumer.assign(group, queues[3:], name_servers=servers) as consumer:
            bodies = []
            while len(bodies) < 5:
                bodies += [message.body.decode() for message in await consumer.poll(timeout=60)]
            return sorted(bodies)

    assert asyncio.run(main()) == of(3)


def test_what_cannot_be_assigned_is_refused_by_name(assign, queues):
    missing = MessageQueue(queues[0].topic, queues[0].broker_name, 9)
    for wrong, options, error, said in [
        ([], {}, rocketpy.InvalidArgumentError, "queues must not be empty"),
        ([missing], {}, rocketpy.InvalidArgumentError, f"no such queue: {missing}"),
        ([MessageQueue("nowhere", "b", 0)], {}, rocketpy.TopicNotFoundError, "nowhere"),
        (queues, {"balance": "circle"}, rocketpy.InvalidArgumentError, "no option balance"),
        (queues, {"retry_topic": True}, rocketpy.InvalidArgumentError, "no option retry_topic"),
    ]:
        with pytest.raises(error, match=said):
            assign(wrong, **options)

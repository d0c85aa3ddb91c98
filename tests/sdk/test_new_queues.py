"""Members that begin at the end, and queues that appear after they joined."""

import asyncio

import rocketpy
from rocketpy.testing import fresh_name
from waiting import wait_until

LATE = {"start": "latest", "allow_missing_topic": True}
ALL = sorted(b"%d" % number for number in range(100))


def fill(server, topic):
    """Sends to a topic that the first send creates."""
    with server.producer(fresh_name("fill")) as producer:
        for body in ALL:
            producer.send(rocketpy.Message(topic, body))


def test_a_pull_member_misses_nothing_of_a_topic_that_its_first_send_creates(server):
    topic = fresh_name("made")
    with server.consumer(fresh_name("late"), topic, **LATE) as consumer:
        fill(server, topic)
        bodies: list[bytes] = []

        def has_all() -> bool:
            bodies.extend(message.body for message in consumer.poll(100, timeout=1))
            return len(bodies) >= len(ALL)

        wait_until(has_all)
    assert sorted(bodies) == ALL


def test_an_asyncio_member_misses_nothing_of_a_topic_that_its_first_send_creates(server):
    topic = fresh_name("made")

    async def read() -> list[bytes]:
        bodies: list[bytes] = []
        name_servers = server.name_servers
        async with rocketpy.AsyncConsumer(fresh_name("late"), topic, name_servers=name_servers, **LATE) as consumer:
            await asyncio.to_thread(fill, server, topic)
            async with asyncio.timeout(60):
                while len(bodies) < len(ALL):
                    bodies.extend(message.body for message in await consumer.poll(100, timeout=1))
        return bodies

    assert sorted(asyncio.run(read())) == ALL


def test_a_push_member_misses_nothing_of_a_topic_that_its_first_send_creates(server):
    topic = fresh_name("made")
    bodies: list[bytes] = []
    consumer = server.push_consumer(fresh_name("late"), **LATE)
    consumer.on(topic)(lambda message: bodies.append(message.body))
    with consumer:
        fill(server, topic)
        wait_until(lambda: len(bodies) >= len(ALL))
    assert sorted(bodies) == ALL

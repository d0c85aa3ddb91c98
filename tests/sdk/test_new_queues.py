"""Members that begin at the end, and queues that appear after they joined."""

import asyncio
import contextlib

import rocketpy
from rocketpy.testing import PATIENCE_SECONDS, SMALL_FILES, fresh_name
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


def test_live_members_miss_nothing_of_the_queues_of_a_grown_topic_and_of_a_broker_that_joined(tmp_path):
    topic, pulled, pushed = fresh_name("grown"), [], []
    with contextlib.ExitStack() as servers, contextlib.ExitStack() as clients:
        names = servers.enter_context(rocketpy.NameServer())
        admin = clients.enter_context(names.admin(api_timeout=PATIENCE_SECONDS))

        def start_broker(name: str) -> None:
            settings = {**SMALL_FILES, "brokerName": name}
            servers.enter_context(rocketpy.Broker(tmp_path / name, name_servers=names.name_server, settings=settings))

        def send(*bodies: bytes) -> set[rocketpy.MessageQueue]:
            with names.producer(fresh_name("fill"), send_timeout=PATIENCE_SECONDS) as producer:
                return {producer.send(rocketpy.Message(topic, body)).queue for body in bodies}

        def both_have(bodies: list[bytes]) -> bool:
            pulled.extend(message.body for message in pull.poll(timeout=0.1))
            return set(bodies) <= set(pulled) & set(pushed)

        start_broker("first")
        admin.create_topic(topic, queues=1)
        send(b"before the members joined")
        shared = {"start": "latest", "instance_name": fresh_name("members"), "api_timeout": PATIENCE_SECONDS}
        pull = clients.enter_context(names.consumer(fresh_name("pull"), topic, **shared))
        push = names.push_consumer(fresh_name("push"), **shared)
        push.on(topic)(lambda message: pushed.append(message.body))
        clients.enter_context(push)
        wait_until(lambda: send(b"joined") and both_have([b"joined"]), "both members have joined")

        admin.create_topic(topic, queues=4, broker="first")
        start_broker("second")
        admin.create_topic(topic, queues=4, broker="second")
        assert len(send(*ALL)) == 8
        pull.committed(rocketpy.MessageQueue(topic, "second", 0))  # fetches the members' route without the wait of 30 s
        wait_until(lambda: both_have(ALL), "both members have all messages", seconds=PATIENCE_SECONDS)
    for bodies in (pulled, pushed):
        assert sorted(body for body in bodies if body != b"joined") == ALL

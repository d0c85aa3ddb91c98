"""A name server that lies: readers, senders and commands get what is there, or say what is wrong.

Left out are members of a route without readable queues: they wait for one.
"""

import asyncio
import threading

import pytest
from lying import BODIES, LIES, WITHOUT_QUEUES, filled_topic, lying_name_server

import rocketpy
from rocketpy.cli import consume, main
from rocketpy.testing import PATIENCE_SECONDS, fresh_name
from waiting import wait_until

SOON = {"api_timeout": 1, "connect_timeout": 1}
JOINING = {**SOON, "start": "earliest", "unreachable_timeout": 0.5}


def polled(consumer):
    bodies = []
    wait_until(lambda: bodies.extend(one.body for one in consumer.poll(timeout=0.2)) or len(bodies) >= len(BODIES))
    return bodies


def pull(peer, topic):
    with rocketpy.Consumer(fresh_name("pull"), topic, name_servers=peer, **JOINING) as consumer:
        return polled(consumer)


def assign(peer, topic):
    queues = [rocketpy.MessageQueue(topic, "broker-a", 0)]
    with rocketpy.Consumer.assign(fresh_name("assign"), queues, name_servers=peer, **JOINING) as consumer:
        return polled(consumer)


def aio(peer, topic):
    async def read():
        async with rocketpy.AsyncConsumer(fresh_name("aio"), topic, name_servers=peer, **JOINING) as consumer:
            bodies = []
            while len(bodies) < len(BODIES):
                bodies += [message.body for message in await consumer.poll(timeout=0.2)]
            return bodies

    return asyncio.run(read())


def push(peer, topic):
    """Its state says that no broker can be reached."""
    bodies = []
    consumer = rocketpy.PushConsumer(fresh_name("push"), name_servers=peer, **JOINING)
    consumer.on(topic)(lambda message: bodies.append(message.body))
    with consumer:
        wait_until(lambda: len(bodies) >= len(BODIES) or not consumer.state().reachable)
        if not consumer.state().reachable:
            raise rocketpy.ConnectionFailedError(next(broker.last_error for broker in consumer.state().brokers))
    return bodies


def by_range(peer, topic):
    queue = rocketpy.MessageQueue(topic, "broker-a", 0)
    with rocketpy.RangeReader(queue, 0, len(BODIES), name_servers=peer, **SOON) as reader:
        return [message.body for messages in reader.messages() for message in messages]


def describe(peer, topic):
    """Returns the topic or raises: a description has no bodies."""
    with rocketpy.Admin(peer, **SOON) as admin:
        admin.queues(topic)
        admin.describe_topic(topic)
    return BODIES


def send(peer, topic):
    with rocketpy.Producer(fresh_name("send"), name_servers=peer, send_timeout=1, **SOON) as producer:
        producer.send(rocketpy.Message(topic, b"body 0"))
    return BODIES


MEMBERS = {"pull": pull, "assign": assign, "aio": aio, "push": push}
CLIENTS = {**MEMBERS, "range": by_range, "describe": describe, "send": send}
COMMANDS = {
    "consume": ("consume", "{topic}"),
    "consume_group": ("consume", "{topic}", "--group", "{topic}"),
    "topic_describe": ("topic", "describe", "{topic}"),
    "message_query": ("message", "query", "{topic}", "--key", "k"),
}


@pytest.mark.parametrize("lie", LIES)
def test_clients_read_everything_or_raise_an_error(rocketpy_server, lie):
    topic, ended = filled_topic(rocketpy_server), {}

    def run(name, address):
        try:
            ended[name] = CLIENTS[name](address, topic)
        except rocketpy.RocketPyError as error:
            ended[name] = error
        except BaseException as defect:
            ended[name] = repr(defect)

    names = [name for name in CLIENTS if not (lie in WITHOUT_QUEUES and name in MEMBERS)]
    with lying_name_server(lie, rocketpy_server) as address:
        threads = [threading.Thread(target=run, args=(name, address), daemon=True) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert ended.keys() == set(names), "all have ended"
    for name, end in ended.items():
        if isinstance(end, rocketpy.RocketPyError):
            assert str(end).isprintable(), name
        else:
            assert set(BODIES) <= set(end), (name, end)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_print_everything_or_end_with_an_error_and_a_hint(
    rocketpy_server, lie, name, monkeypatch, capsysbinary
):
    monkeypatch.setattr(consume, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(consume, "JOIN_SECONDS", 1)
    topic = filled_topic(rocketpy_server)
    arguments = [one.format(topic=topic) for one in COMMANDS[name]]
    with lying_name_server(lie, rocketpy_server) as address:
        code = main(["--timeout", "1", *arguments, "--name-server", address])
    out, err = capsysbinary.readouterr()
    if code:
        assert err.count(b"error: ") == err.count(b"hint: ") == 1, err
        assert b"Traceback" not in err
        assert b"defect" not in err
    elif b"no queue was assigned to this member" in err:
        assert (name, out) == ("consume_group", b"")
    elif name.startswith("consume"):
        assert out.splitlines() == BODIES, err
    else:
        assert b"broker-" in out

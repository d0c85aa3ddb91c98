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

SOON = {"api_timeout": 1, "connect_timeout": 1, "send_timeout": 1, "unreachable_timeout": 0.5}
"""Timeouts where only an error is expected: it comes sooner, but comes in any case."""
PATIENT = dict.fromkeys(SOON, PATIENCE_SECONDS)


def some(timeouts, *names):
    return {name: timeouts[name] for name in ("api_timeout", "connect_timeout", *names)}


def joining(timeouts):
    return {**some(timeouts, "unreachable_timeout"), "start": "earliest"}


def polled(consumer):
    bodies = []
    wait_until(lambda: bodies.extend(one.body for one in consumer.poll(timeout=0.2)) or len(bodies) >= len(BODIES))
    return bodies


def pull(peer, topic, timeouts):
    with rocketpy.Consumer(fresh_name("pull"), topic, name_servers=peer, **joining(timeouts)) as consumer:
        return polled(consumer)


def assign(peer, topic, timeouts):
    queues = [rocketpy.MessageQueue(topic, "broker-a", 0)]
    with rocketpy.Consumer.assign(fresh_name("assign"), queues, name_servers=peer, **joining(timeouts)) as consumer:
        return polled(consumer)


def aio(peer, topic, timeouts):
    async def read():
        async with rocketpy.AsyncConsumer(fresh_name("aio"), topic, name_servers=peer, **joining(timeouts)) as consumer:
            bodies = []
            while len(bodies) < len(BODIES):
                bodies += [message.body for message in await consumer.poll(timeout=0.2)]
            return bodies

    return asyncio.run(read())


def push(peer, topic, timeouts):
    """Its state says that no broker can be reached."""
    bodies = []
    consumer = rocketpy.PushConsumer(fresh_name("push"), name_servers=peer, **joining(timeouts))
    consumer.on(topic)(lambda message: bodies.append(message.body))
    with consumer:
        wait_until(lambda: len(bodies) >= len(BODIES) or not consumer.state().reachable)
        if not consumer.state().reachable:
            raise rocketpy.ConnectionFailedError(next(broker.last_error for broker in consumer.state().brokers))
    return bodies


def by_range(peer, topic, timeouts):
    queue = rocketpy.MessageQueue(topic, "broker-a", 0)
    with rocketpy.RangeReader(queue, 0, len(BODIES), name_servers=peer, **some(timeouts)) as reader:
        return [message.body for messages in reader.messages() for message in messages]


def describe(peer, topic, timeouts):
    """Returns the topic or raises: a description has no bodies."""
    with rocketpy.Admin(peer, **some(timeouts)) as admin:
        admin.queues(topic)
        admin.describe_topic(topic)
    return BODIES


def send(peer, topic, timeouts):
    with rocketpy.Producer(fresh_name("send"), name_servers=peer, **some(timeouts, "send_timeout")) as producer:
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


READ = {
    "broker_without_the_topic": {"pull", "aio", "push", "describe", "send", *COMMANDS},
    "more_queues": {"assign", "push", "range", "describe", "consume", "topic_describe", "message_query"},
    "queues_without_a_broker": {"describe"},
    "broker_without_queues": {"range", "describe", "topic_describe", "message_query"},
}
"""Clients and commands that get everything in spite of a lie."""
EITHER = {
    # The broker rejects sends and commits for a queue that it does not have; the client may choose that queue.
    "more_queues": {"pull", "aio", "send", "consume_group"},
    # The order of the route queries decides, and not every client queries again.
    "changing": {*CLIENTS, *COMMANDS},
}
"""Those that get everything or an error."""


def ends_of(lie, name):
    """Whether everything may be read under a lie, and whether an error may be raised."""
    may_read = name in READ.get(lie, ()) or name in EITHER.get(lie, ())
    return may_read, name not in READ.get(lie, ())


def timeouts_of(lie, name):
    """Patient ones where a timeout would be an error that is not expected."""
    return SOON if name not in READ.get(lie, ()) and lie != "more_queues" else PATIENT


@pytest.mark.parametrize("lie", LIES)
def test_clients_read_everything_or_raise_an_error(rocketpy_server, lie):
    topic, ended = filled_topic(rocketpy_server), {}

    def run(name, address):
        try:
            ended[name] = CLIENTS[name](address, topic, timeouts_of(lie, name))
        except rocketpy.RocketPyError as error:
            ended[name] = error
        except BaseException as defect:
            ended[name] = repr(defect)

    names = [name for name in CLIENTS if not (lie in WITHOUT_QUEUES and name in MEMBERS)]
    with lying_name_server(lie, rocketpy_server) as address:
        threads = [threading.Thread(target=run, args=(name, address), daemon=True) for name in names]
        for thread in threads:
            thread.start()
        wait_until(lambda: ended.keys() == set(names), "all have ended")
    for name, end in ended.items():
        may_read, may_raise = ends_of(lie, name)
        if isinstance(end, rocketpy.RocketPyError):
            assert may_raise, (name, end)
            assert str(end).isprintable(), name
        else:
            assert may_read, (name, end)
            assert set(BODIES) <= set(end), (name, end)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_print_everything_or_end_with_an_error_and_a_hint(
    rocketpy_server, lie, name, monkeypatch, capsysbinary
):
    (may_read, may_raise), timeouts = ends_of(lie, name), timeouts_of(lie, name)
    monkeypatch.setattr(consume, "SILENCE_SECONDS", timeouts["unreachable_timeout"])
    has_no_queue = (lie, name) == ("queues_without_a_broker", "consume_group")
    if has_no_queue:  # then it ends in any case
        monkeypatch.setattr(consume, "JOIN_SECONDS", 1)
    topic = filled_topic(rocketpy_server)
    arguments = [one.format(topic=topic) for one in COMMANDS[name]]
    with lying_name_server(lie, rocketpy_server) as address:
        code = main(["--timeout", str(timeouts["api_timeout"]), *arguments, "--name-server", address])
    out, err = capsysbinary.readouterr()
    if has_no_queue:
        assert (code, out) == (0, b"")
        assert b"no queue was assigned to this member" in err
    elif code:
        assert may_raise, err
        assert err.count(b"error: ") == err.count(b"hint: ") == 1, err
        assert b"Traceback" not in err
        assert b"defect" not in err
    else:
        assert may_read, (out, err)
        if name.startswith("consume"):
            assert out.splitlines() == BODIES, err
        else:
            assert b"broker-" in out

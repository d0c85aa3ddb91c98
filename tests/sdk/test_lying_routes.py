"""A name server that lies: readers, senders and commands get what is there, or say what is wrong.

Left out are members of a route without readable queues: they wait for one.
"""

import asyncio
import itertools
import json
import threading

import pytest
from wire import GET_ROUTE, ScriptedPeer

import rocketpy
from rocketpy.cli import consume, main
from rocketpy.testing import PATIENCE_SECONDS, fresh_name
from waiting import wait_until

BODIES = [b"body %d" % number for number in range(5)]
SOON = {"api_timeout": 1, "connect_timeout": 1}
JOINING = {**SOON, "start": "earliest", "unreachable_timeout": 0.5}


def broker_data(name, *addresses):
    numbers = {str(number): address for number, address in enumerate(addresses)}
    return {"cluster": "c", "brokerName": name, "brokerAddrs": numbers}


def queue_data(name, queues=1, write_queues=None):
    write_queues = queues if write_queues is None else write_queues
    return {
        "brokerName": name,
        "readQueueNums": queues,
        "writeQueueNums": write_queues,
        "perm": 6,
        "topicSysFlag": 0,
    }


def route_of(brokers, queues):
    return json.dumps({"brokerDatas": brokers, "queueDatas": queues, "filterServerTable": {}}).encode()


def one(address, queues=1):
    return route_of([broker_data("broker-a", address)], [queue_data("broker-a", queues)])


def changing(real, dead):
    routes = itertools.cycle([one(real, 3), one(dead), one(real), one(real, 2)])
    return lambda: next(routes)


LIES = {
    "dead_port": lambda real, dead: lambda: one(dead),
    "broker_without_the_topic": lambda real, dead: lambda: one(real).replace(b"broker-a", b"broker-z"),
    "more_queues": lambda real, dead: lambda: one(real, 9),
    "negative_queues": lambda real, dead: lambda: one(real, -1),
    "huge_queues": lambda real, dead: lambda: one(real, 2**31 - 1),
    "two_masters": lambda real, dead: (
        lambda: route_of(
            [broker_data("broker-a", dead), broker_data("broker-a", real)],
            [queue_data("broker-a"), queue_data("broker-a")],
        )
    ),
    "queues_without_a_broker": lambda real, dead: lambda: route_of([], [queue_data("broker-a")]),
    "broker_without_queues": lambda real, dead: lambda: route_of([broker_data("broker-a", real)], []),
    "not_an_address": lambda real, dead: lambda: one("no address\x1b"),
    "not_json": lambda real, dead: lambda: b"{",
    "changing": changing,
}


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
    """The topic or an error; there are no bodies."""
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
WAITS_FOR_QUEUES = ("queues_without_a_broker", "broker_without_queues")


@pytest.fixture
def topic(rocketpy_server):
    """A topic of one queue with messages."""
    name = fresh_name("lied")
    with rocketpy_server.admin() as admin, rocketpy_server.producer(fresh_name("fill")) as producer:
        admin.create_topic(name, queues=1)
        producer.send_many([rocketpy.Message(name, body, keys=["k"]) for body in BODIES])
    return name


@pytest.fixture
def liar(request, rocketpy_server, free_port):
    """Address of a name server with the routes of a lie."""
    told, lock = LIES[request.param](rocketpy_server.broker, f"127.0.0.1:{free_port}"), threading.Lock()

    def answer(_):
        with lock:
            return {}, told()

    with ScriptedPeer({GET_ROUTE: answer}, lambda _: None) as peer:
        yield peer.address


@pytest.mark.parametrize(("liar", "lie"), [(lie, lie) for lie in LIES], indirect=["liar"], ids=list(LIES))
def test_clients_read_everything_or_raise_an_error(liar, lie, topic):
    ended = {}

    def run(name):
        try:
            ended[name] = CLIENTS[name](liar, topic)
        except rocketpy.RocketPyError as error:
            ended[name] = error
        except BaseException as defect:
            ended[name] = repr(defect)

    names = [name for name in CLIENTS if not (lie in WAITS_FOR_QUEUES and name in MEMBERS)]
    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in names]
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


@pytest.mark.parametrize("liar", LIES, indirect=True)
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_print_everything_or_end_with_an_error_and_a_hint(liar, topic, name, monkeypatch, capsysbinary):
    monkeypatch.setattr(consume, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(consume, "JOIN_SECONDS", 1)
    arguments = [one.format(topic=topic) for one in COMMANDS[name]]
    code = main(["--timeout", "1", *arguments, "--name-server", liar])
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

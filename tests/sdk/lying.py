"""Routes that a name server should not give."""

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator

from wire import GET_ROUTE, ScriptedPeer

import ports
import rocketpy
from rocketpy.testing import fresh_name

BODIES = [b"body %d" % number for number in range(5)]


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


LIES: dict[str, Callable[[str, str], Callable[[], bytes]]] = {
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
"""For each lie, a function of the address of a broker and of a port where nobody listens: makes the answers."""

WITHOUT_QUEUES = ("queues_without_a_broker", "broker_without_queues")
"""Lies by which a topic has no queue that can be read."""


def filled_topic(server: rocketpy.Server) -> str:
    """Creates a topic of one queue with `BODIES`."""
    topic = fresh_name("lied")
    with server.admin() as admin, server.producer(fresh_name("fill")) as producer:
        admin.create_topic(topic, queues=1)
        producer.send_many([rocketpy.Message(topic, body, keys=["k"]) for body in BODIES])
    return topic


@contextlib.contextmanager
def lying_name_server(lie: str, server: rocketpy.Server) -> Iterator[str]:
    """Address of a name server that answers each route query by a lie about a server; to others it is silent."""
    told, lock = LIES[lie](server.broker, f"127.0.0.1:{ports.free_port()}"), threading.Lock()

    def answer(_: str) -> tuple[dict, bytes]:
        with lock:
            return {}, told()

    with ScriptedPeer({GET_ROUTE: answer}, lambda _: None) as peer:
        yield peer.address

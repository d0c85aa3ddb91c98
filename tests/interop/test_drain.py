"""The drain of a broker under load, with Apache's Java client and with RocketPy's clients, and its stop afterwards."""

import itertools
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import rocketpy
from commands import command
from peers import Java
from rocketpy import Admin, Broker, Message, Producer, PushConsumer
from rocketpy.testkit import SMALL_FILES
from sdk import fresh
from waiting import wait_until

QUIET = "3"
"""Seconds; the clients of this test read the route at least each second."""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[str, Broker]]:
    with ExitStack() as servers:
        names = servers.enter_context(rocketpy.NameServer())
        yield {
            name: servers.enter_context(
                Broker(tmp_path / name, name_servers=names.name_server, settings={**SMALL_FILES, "brokerName": name})
            )
            for name in ("first", "second")
        }


def test_a_broker_is_drained_and_stopped_under_load_and_nothing_is_lost_or_rejected(
    java: Java, brokers: dict[str, Broker], home: Path
):
    topic, group = fresh("drained"), fresh("drainer")
    (address,) = brokers["first"].name_servers
    with Admin(address, api_timeout=60) as admin:
        wait_until(lambda: len(admin.brokers()) == 2, "both brokers are registered")
        admin.create_topic(topic, queues=2)
    sent: dict[str, str] = {}
    seen: list[str] = []
    stop = threading.Event()

    def send() -> None:
        for number in itertools.count():  # each client reads the route at its start
            with Producer("drained", name_servers=address, instance_name=f"{group}-{number}", retries=0) as producer:
                for _ in range(50):
                    if stop.wait(0.01):
                        return
                    body = f"python-{len(sent)}"
                    message = Message(topic, body.encode(), delay=0.2 if len(sent) % 10 == 0 else None)
                    sent[body] = producer.send(message).queue.broker_name

    member = PushConsumer(group, name_servers=address)
    member.on(topic)(lambda message: seen.append(message.body.decode()))
    stream = java.start_driver(home, "stream", address, topic, "java", fresh("java-drainer"))
    by_java: list[dict] = []
    with ThreadPoolExecutor(2) as pool, member:
        loads = [pool.submit(send), pool.submit(lambda: by_java.extend(stream.lines()))]
        try:
            wait_until(lambda: sum(body.startswith("java") for body in seen) > 50, "Java sends and Python receives")
            code, out, err = command("broker", "drain", "first", "--quiet", QUIET, "--json", "-n", address)
            assert code == 0, err
            steps = [json.loads(line) for line in out.splitlines()]
            assert (steps[0]["state"], steps[0]["permission"]) == ("lowered", 6)
            writes = [write for step in steps for write in step["writes"]]
            assert {write["topic"] for write in writes} == {topic}
            assert all(write["client"].startswith("127.0.0.1:") for write in writes)
            assert (steps[-1]["state"], steps[-1]["rests"]) == ("drained", [])
            brokers["first"].stop()
            count = len(sent)
            wait_until(lambda: len(sent) > count + 50, "sends continue without the broker")
        finally:
            stop.set()
        loads[0].result()
        with Producer("stopper", name_servers=address) as producer:
            producer.send(Message(topic, b"stop"))
        loads[1].result()
        assert not stream.failure, stream.failure
        statuses = [line["status"] for line in by_java if "status" in line]
        assert set(statuses) == {"SEND_OK"}
        everything = {*sent, "stop", *(f"java-{number}" for number in range(len(statuses)))}
        wait_until(lambda: everything <= set(seen), "Python received every message")
    consumed = {line["consumed"] for line in by_java if "consumed" in line}
    at_first = {body for body, broker in sent.items() if broker == "first"}
    assert at_first
    assert at_first <= consumed, "Java received every message of the drained broker"

"""Message traces between RocketPy and Apache's Java client and tools 5.5.0: each reads what the other wrote."""

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import rocketpy
from peers import Java, lines, mqadmin, running
from sdk import fresh, messages
from waiting import wait_until


def trace(address: str, msg_id: str, has: Callable[[rocketpy.MessageTrace], object]) -> rocketpy.MessageTrace:
    """The trace of a message, once it has what is waited for."""
    found: list[rocketpy.MessageTrace] = []
    with rocketpy.Admin(address, api_timeout=60) as admin:

        def is_there() -> bool:
            with contextlib.suppress(rocketpy.TopicNotFoundError):
                found[:] = [admin.trace(msg_id)]
            return bool(found and has(found[0]))

        wait_until(is_there, f"trace of {msg_id}", seconds=60)
    return found[0]


def check_java_traces(java: Java, address: str, home: Path) -> str:
    """Lets the Java client trace, and reads it with Python; returns the id of a message."""
    topic, group = fresh("java-trace"), fresh("java-tracing")
    with rocketpy.Admin(address, api_timeout=60) as admin:
        admin.create_topic(topic, queues=2)
    with running(java.command("Driver", home, "trace", address, topic, "3", group)) as driver:
        *plain, half, later = itertools.islice(lines(driver), 5)
        for number, result in enumerate(plain):
            found = trace(address, result["msg_id"], lambda found: found.sends and found.deliveries)
            [sent], [delivery] = found.sends, found.deliveries
            assert (sent.group, sent.topic, sent.tag, sent.keys) == (group, topic, "TagA", (f"trace-{number}",))
            assert (sent.kind, sent.success, sent.offset_msg_id) == ("normal", True, result["offset_msg_id"])
            assert sent.body_bytes == len(f"trace-{number}")
            assert (delivery.group, delivery.success, delivery.result, delivery.retries) == (group, True, "success", 0)
            assert delivery.began_at is not None
            assert delivery.ended_at is not None
            assert sent.at <= delivery.began_at <= delivery.ended_at
        found = trace(address, half["msg_id"], lambda found: found.sends and found.transactions and found.deliveries)
        assert [one.kind for one in found.sends] == ["half"]
        ends = [(one.state, one.from_check, one.group) for one in found.transactions]
        assert ends == [("COMMIT_MESSAGE", False, group)]
        found = trace(address, later["msg_id"], lambda found: found.sends and found.recalls)
        assert [(one.group, one.success) for one in found.recalls] == [(group, True)]
    return plain[0]["msg_id"]


def check_python_traces(java: Java, address: str, home: Path) -> None:
    """Lets Python clients trace, and reads it with Apache's tool."""
    topic, group = fresh("python-trace"), fresh("py")[:20]
    with rocketpy.Admin(address, api_timeout=60) as admin:
        admin.create_topic(topic, queues=1)
    names = {"name_servers": [address], "trace": True, "api_timeout": 60}
    with rocketpy.Producer(group, send_timeout=60, **names) as producer:
        [first, *_] = producer.send_many(messages(topic, 3, "traced", "TagA"))
    with rocketpy.Consumer(group, topic, **names) as consumer:
        count = 0
        while count < 3:
            count += len(consumer.poll(timeout=60))
        consumer.commit()
        assert (producer.dropped_traces, consumer.dropped_traces) == (0, 0)
    trace(address, first.msg_id, lambda found: found.sends and found.deliveries)
    told = mqadmin(java, home / "tools", address, "queryMsgTraceById", "-i", first.msg_id)
    rows = [line.split() for line in told.splitlines() if line.startswith(("Pub", "Sub"))]
    assert sorted((row[0], row[1], row[-1]) for row in rows) == [("Pub", group, "success"), ("Sub", group, "success")]


def test_python_and_java_read_each_others_traces_at_rocketpy(java: Java, rocketpy_address: str, home: Path):
    msg_id = check_java_traces(java, rocketpy_address, home)
    command = [sys.executable, "-m", "rocketpy", "message", "trace", msg_id, "-n", rocketpy_address]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "stored" in shown
    assert "consumed" in shown
    told = json.loads(subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout)
    assert (told["msg_id"], told["deliveries"][0]["success"]) == (msg_id, True)
    check_python_traces(java, rocketpy_address, home)


def test_python_and_java_read_each_others_traces_at_apaches_broker(java: Java, apache_address: str, home: Path):
    check_java_traces(java, apache_address, home)
    check_python_traces(java, apache_address, home)

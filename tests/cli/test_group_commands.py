"""`rocketpy group` and `rocketpy cluster`: what members do, what they want, and which brokers there are."""

import json
import os
import signal
import uuid
from pathlib import Path

import pytest

from rocketpy import Consumer, Message, Producer, __version__
from waiting import wait_until


def test_lag_is_told_by_topic_and_on_request_by_queue_in_local_time(rocketpy, server, topic: str):
    group = f"group-{uuid.uuid4().hex[:8]}"
    rocketpy("produce", topic, "--order-key", "k", stdin="1\n2\n3\n4\n")
    rocketpy("consume", topic, "--group", group, "--count", "3")
    (row,) = json.loads(rocketpy("group", "lag", group, "--json").stdout)
    assert (row["topic"], row["queues"], row["lag"], row["held"]) == (topic, 4, 1, 0)
    rows = json.loads(rocketpy("group", "lag", group, "--queues", "--json").stdout)
    assert sorted(row["lag"] for row in rows) == [0, 0, 0, 1]
    assert [row["queue_id"] for row in rows] == [0, 1, 2, 3]
    shown = rocketpy("group", "lag", group, env={**os.environ, "TZ": "Asia/Kolkata"}).stdout
    assert f"{group}: 1 message not committed, 0 live members" in shown
    assert "+05:30" in shown
    assert "the next member continues at the stored commits" in shown
    with Consumer(group, topic, name_servers=server.name_server) as consumer:
        assert consumer.poll(timeout=60)
        shown = rocketpy("group", "lag", group).stdout
        assert f"{group}: 1 message not committed, 1 live member" in shown
        assert "1 message of these: fetched by live members" in shown


def test_members_that_subscribe_to_different_tags_are_shown_and_logged_once(rocketpy, server, topic: str):
    group = f"group-{uuid.uuid4().hex[:8]}"
    assert rocketpy("group", "describe", group, code=3).stderr.startswith(f"error: no such group: {group}")

    def described() -> dict[str, tuple]:
        rows = json.loads(rocketpy("group", "describe", group, "--json").stdout)
        return {row["client_id"]: (row["subscriptions"], row["differs"]) for row in rows}

    options = {"name_servers": server.name_server, "allow_other_subscriptions": True}
    with Consumer(group, topic, tags="a || b", **options) as first:
        assert described() == {first.client_id: ({topic: "a || b"}, False)}
        assert "miss" not in rocketpy("group", "describe", group).stdout
        with Consumer(group, topic, tags="c", **options) as second:
            other = {second.client_id: ({topic: "c"}, True)}
            assert described() == {first.client_id: ({topic: "a || b"}, True)} | other
            shown = rocketpy("group", "describe", group).stdout
            assert f"{topic}: a || b" in shown
            assert "each misses messages" in shown
            assert shown.count(f"rocketpy {__version__}") == shown.count("PYTHON") == 2
        (row,) = json.loads(rocketpy("group", "describe", group, "--stacks", "--json").stdout)
        assert (row["language"], row["client_version"]) == ("PYTHON", f"rocketpy {__version__}")
        assert "in test_members_that_subscribe_to_different_tags_are_shown_and_logged_once" in row["jstack"]
        shown = rocketpy("group", "describe", group, "--stacks").stdout
        assert f'stacks of {first.client_id}:\n"' in shown
    lines = [
        line for line in server.log.read_text().splitlines() if "different topics or tags" in line and group in line
    ]
    assert len(lines) == 1, lines
    assert json.loads(rocketpy("group", "describe", group, "--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("delete", "{}", "--yes"), "stop the members first: `rocketpy group describe GROUP` shows them"),
        (("clone", "{other}", "{}"), "add force=True (--force): their next commits replace the copied offsets"),
        (("reset", "{}", "--topic", "{topic}", "--to", "latest"), "force a reset (--force, force=True)"),
    ],
)
def test_hint_for_a_group_with_live_members_suits_the_command(rocketpy, server, topic: str, arguments, hint):
    group, other = f"group-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    rocketpy("group", "create", other)
    with Consumer(group, topic, name_servers=server.name_server) as consumer:
        wait_until(consumer.assignment, "the member has its queues")
        refused = rocketpy("group", *(one.format(group, other=other, topic=topic) for one in arguments), code=7).stderr
        error, last = refused.splitlines()
        assert f"has 1 live members: {group}" in error
        assert hint in last
        assert ("--force" in last) == (arguments[0] != "delete")


def test_the_producers_of_a_group_are_shown(rocketpy, server, topic: str):
    group = f"group-{uuid.uuid4().hex[:8]}"
    assert "no producer of group" in rocketpy("group", "producers", group).stdout
    with Producer(group, name_servers=server.name_server) as producer:
        producer.send(Message(topic, b"x"))
        wait_until(lambda: json.loads(rocketpy("group", "producers", group, "--json").stdout))
        (row,) = json.loads(rocketpy("group", "producers", group, "--json").stdout)
        assert (row["client_id"], row["language"]) == (producer.client_id, "PYTHON")
        assert f"{group}: 1 producer" in rocketpy("group", "producers", group).stdout


def test_a_group_gets_the_offsets_of_another(rocketpy, topic: str):
    blue, green = (f"{colour}-{uuid.uuid4().hex[:8]}" for colour in ("blue", "green"))
    rocketpy("produce", topic, "--order-key", "k", stdin="1\n2\n3\n4\n")
    rocketpy("consume", topic, "--group", blue, "--count", "3")
    assert f"no such group: {green}" in rocketpy("group", "clone", blue, green, code=3).stderr
    rocketpy("group", "create", green)
    assert json.loads(rocketpy("group", "clone", blue, green, "--json").stdout) == [{"topic": topic}]
    (row,) = json.loads(rocketpy("group", "lag", green, "--json").stdout)
    assert (row["topic"], row["lag"]) == (topic, 1)


def test_a_group_is_deleted_with_its_offsets_once_its_members_have_stopped(rocketpy, server, topic: str):
    group = f"group-{uuid.uuid4().hex[:8]}"
    rocketpy("produce", topic, stdin="1\n")
    with Consumer(group, topic, name_servers=server.name_server):
        assert group in rocketpy("group", "delete", group, "--yes", code=7).stderr
    assert "--yes" in rocketpy("group", "delete", group, code=2).stderr
    assert f"deleted group {group} with its offsets in " in rocketpy("group", "delete", group, "--yes").stdout
    assert group not in [row["group"] for row in json.loads(rocketpy("group", "list", "--json").stdout)]
    refused = rocketpy("group", "delete", group, code=3).stderr
    assert refused.startswith(f"error: no such group: {group}")
    assert "create" not in refused
    assert rocketpy("consume", topic, "--group", group).stdout == "1\n", "a group of the same name begins anew"


def test_the_brokers_of_a_cluster_are_listed_with_what_they_do(rocketpy, server, topic: str):
    rocketpy("produce", topic, stdin="1\n2\n")
    (row,) = json.loads(rocketpy("cluster", "list", "--json").stdout)
    assert (row["broker_name"], row["broker_id"], row["address"]) == ("broker-a", 0, server.ready["broker"])
    assert row["version"].startswith("V5")
    assert row["messages_in"] >= 2
    assert 0 < row["disk_used"] < 1
    assert row["in_per_second"] >= 0 <= row["out_per_second"]
    shown = rocketpy("cluster", "list").stdout
    assert server.ready["broker"] in shown
    assert shown.startswith("1 broker, ")


def test_a_broker_that_is_gone_is_listed_as_one_that_does_not_answer(start, command, tmp_path: Path):
    names = start("namesrv", "--port", "0")
    address = names.ready["name_server"]
    assert "no broker is registered" in command("cluster", "list", name_server=address, code=3).stderr
    broker = start("broker", str(tmp_path / "store"), "--port", "0", "--name-server", address)
    broker.process.send_signal(signal.SIGSTOP)
    try:
        (row,) = json.loads(command("--timeout", "3", "cluster", "list", "--json", name_server=address).stdout)
        shown = command("--timeout", "3", "cluster", "list", name_server=address).stdout
    finally:
        broker.process.send_signal(signal.SIGCONT)
    assert row["address"] == broker.ready["broker"]
    assert "timed out" in row["state"]
    assert row["disk_used"] is None
    assert f"broker-a ({row['address']}): {row['state']}" in shown


def test_a_reset_for_a_topic_that_the_group_does_not_consume_names_those_that_it_does(rocketpy, topic: str):
    group, other = f"group-{uuid.uuid4().hex[:8]}", f"{topic}-other"
    for one in (topic, other):
        rocketpy("produce", one, stdin="1\n")
    rocketpy("consume", topic, "--group", group)
    reset = ("group", "reset", group, "--to", "latest", "--topic", other)
    refused = rocketpy(*reset, code=3).stderr
    assert f"{group} does not consume {other}; it consumes: {topic}" in refused
    assert "--new-topic" in refused
    rocketpy(*reset, "--new-topic")
    rocketpy(*reset)
    rocketpy("group", "create", f"{group}-new")
    rocketpy("group", "reset", f"{group}-new", "--to", "latest", "--topic", other)

"""Commands that change topics, groups, offsets, messages and brokers: plans, JSON, refusals and their hints."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import rocketpy
from commands import command
from rocketpy import Admin, Broker, Message, Producer
from rocketpy.testing import fresh_name
from rocketpy.testkit import SMALL_FILES
from waiting import wait_until

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    """Two masters at one name server."""
    folder = tmp_path_factory.mktemp("brokers")
    with ExitStack() as servers:
        names = servers.enter_context(rocketpy.NameServer())
        yield {
            name: servers.enter_context(
                Broker(folder / name, name_servers=names.name_server, settings={**SMALL_FILES, "brokerName": name})
            )
            for name in ("first", "second")
        }


@pytest.fixture(scope="module")
def address(brokers: dict[str, Broker]) -> str:
    return brokers["first"].name_servers[0]


@pytest.fixture(scope="module")
def admin(address: str) -> Iterator[Admin]:
    with Admin(address, api_timeout=60) as admin:
        wait_until(lambda: len(admin.brokers()) == 2, "both brokers are registered")
        yield admin


@pytest.fixture
def run(address: str, admin: Admin) -> Run:
    """Runs a command at the name server in the process of the test."""
    return lambda *arguments: command("--timeout", "60", *arguments, "--name-server", address)


def rows(result: tuple[int, str, str]) -> list[dict]:
    code, out, err = result
    assert code == 0, err
    return json.loads(out)


def refusal(result: tuple[int, str, str], code: int) -> tuple[str, str]:
    """Error and hint of a command that fails."""
    assert result[0] == code, result
    error, hint = result[2].splitlines()[-2:]
    return error.removeprefix("error: "), hint.removeprefix("hint: ")


@pytest.fixture
def topic(admin: Admin) -> str:
    name = fresh_name("topic")
    admin.create_topic(name, queues=2)
    return name


def test_topic_update_and_perm_show_each_broker_and_a_dry_run_changes_nothing(run: Run, admin: Admin, topic: str):
    plan = rows(run("topic", "update", topic, "--queues", "4", "--broker", "first", "--dry-run", "--json"))
    assert {(row["broker_name"], row["setting"], row["before"], row["after"], row["state"]) for row in plan} == {
        ("first", "read_queues", 2, 4, "would change"), ("first", "write_queues", 2, 4, "would change"),
    }  # fmt: skip
    assert len(admin.queues(topic)) == 4
    done = rows(run("topic", "update", topic, "--queues", "4", "--broker", "first", "--json"))
    assert [row["state"] for row in done] == ["changed", "changed"]
    assert len(admin.queues(topic)) == 6
    done = rows(run("topic", "perm", topic, "r", "--json"))
    assert [(row["broker_name"], row["setting"], row["after"]) for row in done] == [
        ("first", "writable", False), ("second", "writable", False)
    ]  # fmt: skip
    code, out, _ = run("topic", "perm", topic, "4")
    assert (code, out) == (0, f"topic {topic} has these settings already\n")
    assert refusal(run("topic", "perm", topic, "x"), 2)[1].startswith("write r")
    assert refusal(run("topic", "update", topic), 2)[0] == "no setting is given"
    assert refusal(run("topic", "update", "missing", "--queues", "4"), 3)[0].startswith("no route for topic: missing")
    error, hint = refusal(run("topic", "update", topic, "--attribute", "retention.hours=never"), 2)
    assert error.startswith(f"topic {topic} is not changed at first, second: topic creation was refused by ")
    assert "run the command again" in hint


SAME = {
    3: [  # broker, topic or group that does not exist
        "topic create {topic} --broker x", "topic update {topic} --queues 4 --broker x",
        "topic perm {topic} r --broker x", "topic move {topic} --from x --to first",
        "group update {group} --retries 3 --broker x", "broker drain x", "broker undrain x", "broker clean x --files",
        "quota list --broker x", "config list x", "config unset x maxTopics", "ha demote x", "ha promote x",
        "offset set {group} --topic {topic} --queue 0 --to 0 --broker x", "topic describe x",
        "topic update x --queues 4", "topic perm x r", "topic delete x --yes", "topic move x --from first --to second",
        "group reset {group} --topic x --to latest --new-topic",
        "offset set {group} --topic x --queue 0 --to 0 --new-topic", "message query x --key k", "group describe x",
        "group show x", "group lag x", "group delete x --yes", "group clone x {group}", "group clone {group} x",
        "group update x --retries 3", "group reset x --topic {topic} --to latest", "offset show x",
        "offset set x --topic {topic} --queue 0 --to 0 --broker first --new-topic", "dlq show x",
    ],
    2: [  # invalid name or value, and key or attribute that does not exist
        "topic create a$b", "group create a$b", "topic create {topic} --attribute x=1",
        "topic update {topic} --attribute x=1", "config set first x=1", "config set first fileReservedTime=x",
        "config unset first x", "config explain x", "quota set address x --send-messages 1",
        "group update {group} --retries -7", "topic perm {topic} x",
    ],
}  # fmt: skip
"""Commands with the same mistake, by their exit code."""


@pytest.mark.parametrize(("code", "line"), [(code, line) for code, lines in SAME.items() for line in lines])
def test_the_same_mistake_has_the_same_exit_code(address: str, same: dict[str, str], code: int, line: str):
    words = [word.format_map(same) for word in line.split()]
    at = [] if words[:2] == ["config", "explain"] else ["--name-server", address]
    refusal(command("--timeout", "60", *words, *at), code)


def test_a_topic_is_created_at_a_broker_given_by_name_or_by_address(run: Run, admin: Admin, brokers: dict[str, Broker]):
    topic = fresh_name("topic")
    for name, given in (("first", "first"), ("second", brokers["second"].broker)):
        code, out, err = run("topic", "create", topic, "--queues", "2", "--broker", given, "--json")
        assert (code, json.loads(out)) == (0, {"topic": topic, "queues": 2}), err
        assert name in {one.broker_name for one in admin.describe_topic(topic).brokers}
    admin.create_topic(topic, queues=3, broker=brokers["second"].broker)
    assert {one.broker_name: one.read_queues for one in admin.describe_topic(topic).brokers} == {
        "first": 2,
        "second": 3,
    }


@pytest.fixture(scope="module")
def same(admin: Admin) -> dict[str, str]:
    """A topic and a group."""
    topic, group = fresh_name("topic"), fresh_name("group")
    admin.create_topic(topic, queues=1)
    admin.create_group(group)
    return {"topic": topic, "group": group}


def test_group_update_names_its_settings(run: Run, admin: Admin):
    group = fresh_name("group")
    admin.create_group(group)
    plan = rows(run("group", "update", group, "--retries", "3", "--suspend", "--dry-run", "--json"))
    assert {(row["broker_name"], row["setting"], row["state"]) for row in plan} == {
        (broker, setting, "would change") for broker in ("first", "second") for setting in ("retries", "enabled")
    }
    assert {row["state"] for row in rows(run("group", "update", group, "--retries", "3", "--json"))} == {"changed"}
    assert refusal(run("group", "update", group), 2)[0] == "no setting is given"
    assert refusal(run("group", "update", "missing", "--retries", "3"), 3)[0] == "no such group: missing"


def test_group_show_has_the_settings_and_group_describe_says_what_keeps_members_from_reading(run: Run, admin: Admin):
    group = fresh_name("group")
    admin.create_group(group)
    assert "suspended" not in run("group", "describe", group)[1]
    admin.update_group(group, broker="second", enabled=False, broadcast=False, retries=3)
    first, second = rows(run("group", "show", group, "--json"))
    assert (first["broker_name"], first["enabled"], first["retries"]) == ("first", True, 16)
    assert (second["broker_name"], second["enabled"], second["broadcast"], second["retries"]) == (
        "second", False, False, 3
    )  # fmt: skip
    assert "retries" in run("group", "show", group)[1]
    said = run("group", "describe", group)[1]
    assert "the group is suspended at second: `rocketpy group update GROUP --enable` changes this" in said
    assert "the group may not broadcast at second: `rocketpy group update GROUP --broadcast`" in said
    assert refusal(run("group", "show", "missing"), 3)[0] == "no such group: missing"


def test_offset_set_names_broker_and_range(run: Run, admin: Admin, address: str, brokers: dict[str, Broker]):
    topic, group = fresh_name("topic"), fresh_name("group")
    admin.create_topic(topic, queues=1)
    admin.create_group(group)
    with Producer("senders", name_servers=address) as producer:
        for _ in range(4):
            producer.send(Message(topic, b"text"))
    line = ("offset", "set", group, "--topic", topic, "--queue", "0")
    error, hint = refusal(run(*line, "--to", "1"), 2)
    assert error == f"topic {topic} has queues at several brokers: first, second"
    assert hint == "name one with --broker BROKER"
    at = (*line, "--broker", brokers["first"].broker)
    (plan,) = rows(run(*at, "--to", "1", "--dry-run", "--json"))
    assert plan == {"broker_name": "first", "queue_id": 0, "before": None, "after": 1, "state": "would change"}
    assert admin.group_lag(group) == []
    assert rows(run(*at, "--to", "1", "--json")) == [plan | {"state": "changed"}]
    (row,) = rows(run("offset", "show", group, "--topic", topic, "--json"))[:1]
    assert (row["broker_name"], row["committed_offset"], row["min_offset"]) == ("first", 1, 0)
    error, hint = refusal(run(*at, "--to", "999"), 3)
    assert "999" in error
    assert "--beyond" in hint
    assert refusal(run(*at[:-2], "--queue", "7", "--broker", "first", "--to", "1"), 3)[0].endswith(
        "has no readable queue 7 at broker first"
    )
    assert "system" in refusal(run("offset", "set", "CID_RMQ_SYS_TRANS", *at[3:], "--to", "0", "--new-topic"), 2)[0]


def test_message_resend_shows_the_copy_and_sends_it_once(run: Run, admin: Admin, address: str, topic: str):
    with Producer("senders", name_servers=address) as producer:
        msg_id = producer.send(Message(topic, b"text")).msg_id
    wait_until(lambda: admin.message(topic, msg_id), "the index has the message")
    for arguments, state in ((("--dry-run",), "would be sent"), ((), "sent")):
        code, out, err = run("message", "resend", topic, msg_id, *arguments, "--json")
        assert code == 0, err
        assert (json.loads(out)["state"], json.loads(out)["body"]) == (state, "text")
    copy = json.loads(out)["copy_msg_id"]
    wait_until(lambda: admin.message(topic, copy), "the index has the copy")
    assert "sent before: --again" in run("message", "resend", topic, msg_id)[1]
    assert refusal(run("message", "resend", topic, msg_id, "--now"), 2)[1].startswith("--now needs --group")
    assert "has id" in refusal(run("message", "resend", topic, "0" * 32), 3)[0]
    assert refusal(run("message", "resend", topic, msg_id, "--group", "missing"), 3)[0] == "no such group: missing"


def test_topic_move_shows_its_plan_and_where_it_stopped(run: Run, admin: Admin, address: str):
    topic = fresh_name("moved")
    admin.create_topic(topic, queues=1, broker="first")
    with Producer("senders", name_servers=address) as producer:
        producer.send(Message(topic, b"text"))
    line = ("topic", "move", topic, "--from", "first", "--to", "second", "--settle", "0")
    code, out, _ = run(*line, "--dry-run")
    assert (code, [text.split()[1] for text in out.splitlines()]) == (
        0,
        ["create", "close", "quiet", "consume", "remove"],
    )
    code, _, err = run(*line)
    assert code == 5
    assert f"`rocketpy topic move {topic} --from first --to second` continues" in err
    assert "no group consumes topic" in err
    code, out, err = run(*line, "--force", "--json")
    assert code == 0, err
    assert [json.loads(text)["step"] for text in out.splitlines()][-1] == "remove"
    assert [one.broker_name for one in admin.describe_topic(topic).brokers] == ["second"]


def test_broker_clean_needs_a_kind_and_a_confirmation(run: Run, brokers):
    assert refusal(run("broker", "clean"), 2)[0] == "no kind of leftover is given"
    assert refusal(run("broker", "clean", "--files"), 2)[1] == "add --yes"
    assert refusal(run("broker", "clean", "third", "--files"), 3)[0] == "no master of this name or address: third"
    plan = rows(run("broker", "clean", "--files", "--offsets", "--dry-run", "--json"))
    assert [(row["broker_name"], row["kind"], row["state"]) for row in plan] == [
        ("first", "files", "would be removed, if any"), ("second", "files", "would be removed, if any")
    ]  # fmt: skip
    done = rows(run("broker", "clean", brokers["second"].broker, "--files", "--yes", "--json"))
    assert [(row["broker_name"], row["state"]) for row in done] == [("second", "removed, if any")]


def permission(admin: Admin, broker: Broker) -> str:
    return admin.broker_config(broker.broker)["brokerPermission"]


def test_a_drain_goes_on_after_a_timeout_and_undrain_gives_back_the_permission_of_before(
    run: Run, admin: Admin, brokers: dict[str, Broker], address: str
):
    topic, group = fresh_name("topic"), fresh_name("asleep")
    admin.create_topic(topic, queues=1)
    admin.create_group(group)
    with Producer("senders", name_servers=address) as producer:
        for _ in range(2):
            producer.send(Message(topic, b"text"))
    (queue,) = (one for one in admin.queues(topic) if one.broker_name == "first")
    admin.set_offset(group, queue, 0)
    only = fresh_name("only")
    admin.create_topic(only, queues=1, broker="first")
    error, hint = refusal(run("broker", "drain", "first"), 5)
    assert error.startswith("no other broker accepts messages of")
    assert only in error
    assert "--force" in hint
    admin.delete_topic(only)
    code, out, _ = run("broker", "drain", "first", "--dry-run", "--json")
    assert (code, json.loads(out)["state"], permission(admin, brokers["first"])) == (0, "would be read only", "6")
    code, _, err = run("broker", "drain", "first", "--timeout", "0", "--force")
    assert code == 4
    assert "broker first stays read only: `rocketpy broker drain first` continues" in err
    assert "`rocketpy broker undrain first` restores permission 6" in err
    assert permission(admin, brokers["first"]) == "4"
    code, out, err = run("broker", "drain", brokers["first"].broker, "--quiet", "0")
    assert code == 0, err
    assert "may be stopped" in out
    assert f"left in its store until it starts again: group {group}, topic {topic}: 1 message, 0 live members" in out
    line = f"first ({brokers['first'].broker}) is not ready: draining: brokerPermission is 4, clients cannot write"
    for shows in (("status",), ("cluster", "list")):
        out = run(*shows)[1]
        assert f"{line}; `rocketpy broker undrain first` ends it\n" in out
        assert f"second ({brokers['second'].broker}) is not ready" not in out
        shown = json.loads(run(*shows, "--json")[1])
        shown = shown["brokers"] if shows == ("status",) else shown
        assert [bool(one["problems"]) for one in shown] == [True, False]
    code, out, _ = run("broker", "undrain", "first", "--dry-run", "--json")
    assert (json.loads(out)["permission"], permission(admin, brokers["first"])) == (6, "4")
    assert run("broker", "undrain", "first")[0] == 0
    (setting,) = (one for one in admin.config("first") if one.key == "brokerPermission")
    assert (setting.value, setting.is_live) == (6, False)
    assert "not ready" not in run("cluster", "list")[1]
    assert json.loads(run("broker", "undrain", "first", "--json")[1])["state"] == "not drained"
    admin.update_broker_config(brokers["second"].broker, {"brokerPermission": 4})
    try:
        assert "no drain recorded" in refusal(run("broker", "undrain", "second"), 5)[0]
        assert run("broker", "drain", "second", "--quiet", "0")[0] == 0
        code, out, _ = run("broker", "undrain", "second", "--json")
        assert (code, json.loads(out)["permission"]) == (0, 4)
    finally:
        admin.update_broker_config(brokers["second"].broker, {"brokerPermission": 6})


def test_ctrl_c_leaves_the_broker_read_only_and_says_how_to_continue(
    run: Run, executable: list[str], brokers: dict[str, Broker], admin: Admin, address: str, tmp_path: Path
):
    line = [*executable, "broker", "drain", "second", "--quiet", "600", "--force", "-n", address]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert "is read only (permission before: 6)" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "`rocketpy broker drain second` continues" in err
    assert permission(admin, brokers["second"]) == "4"
    assert run("broker", "undrain", "second")[0] == 0
    assert permission(admin, brokers["second"]) == "6"


def test_help_of_broker_shows_the_start_and_the_commands():
    code, out, _ = command("broker", "--help")
    assert code == 0
    assert all(word in out for word in ("DIR", "--broker-name", "drain", "undrain", "clean"))
    assert "--quiet" in command("broker", "drain", "--help")[1]

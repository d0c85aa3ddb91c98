"""`--dry-run`: every changing command has it, it changes nothing, and it says what the command does."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import typer

import rocketpy
from commands import command, command_lines
from rocketpy import Admin, Broker, Consumer, Message, Producer, schedule
from rocketpy.cli import plans
from rocketpy.cli.app import make_app
from rocketpy.commandline.exits import CommandError
from rocketpy.testing import fresh_name
from rocketpy.testkit import SMALL_FILES
from waiting import wait_until

CHANGING = {
    "broker clean": "first --files --topics --offsets",
    "broker drain": "first --force",
    "broker undrain": "first",
    "config set": "first fileReservedTime=24",
    "config unset": "first fileReservedTime",
    "dlq resend": "{group} --to {topic} --yes",
    "group clone": "{group} {other}",
    "group create": "made",
    "group delete": "{group}",
    "group reset": "{group} --topic {topic} --to latest",
    "group update": "{group} --retries 3 --suspend",
    "ha demote": "first",
    "ha promote": "{slave} --force",
    "message resend": "{topic} {msg_id}",
    "offset set": "{group} --topic {topic} --queue 1 --to 0 --broker first",
    "quota remove": "topic {topic}",
    "quota set": "topic {topic} --send-messages 9",
    "schedule add": "new {topic} --every 2d",
    "schedule remove": "old",
    "topic create": "{topic} --queues 4 --attribute retention.hours=24",
    "topic delete": "{topic}",
    "topic move": "{topic} --from first --to second",
    "topic perm": "{topic} r",
    "topic update": "{topic} --queues 4",
}
"""Commands that change a cluster, with arguments that would change something."""
OF_USERS = {
    "acl grant", "acl revoke", "user add", "user delete", "user finish-rotation", "user rotate", "user update",
}  # fmt: skip
"""Commands that need a server with users: test_user_commands.py has their dry runs."""
SHOWING = {"list", "describe", "show", "lag", "producers", "query", "trace", "status", "diff", "explain"}
"""Last words of commands that only read."""
OTHERS = {
    "ping", "top", "doctor", "support-bundle", "audit",
    "server", "namesrv", "broker", "cluster up", "demo", "testkit", "console",  # they start servers
    "produce", "consume", "bench send", "bench produce", "bench consume",  # messages are their purpose
    "store stat", "store verify", "store dump", "store retention",
    "store repair", "store cut",  # --apply makes the changes, and nothing is changed without it
    "store snapshot", "store export", "store import", "dlq export",  # copies
}  # fmt: skip


def parameters_of(line: str) -> set[str]:
    found: Any = typer.main.get_command(make_app())
    for word in line.split():
        found = found.commands[word]
    return {flag for one in found.params for flag in one.opts}


def test_every_changing_command_has_a_dry_run():
    rest = {line for line in command_lines() if line.split()[-1] not in SHOWING} - OTHERS
    assert rest == CHANGING.keys() | OF_USERS
    assert [line for line in rest if "--dry-run" not in parameters_of(line)] == []


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    """Two masters and a slave of the first at one name server."""
    folder = tmp_path_factory.mktemp("brokers")
    with ExitStack() as servers:
        names = servers.enter_context(rocketpy.NameServer())
        settings = {
            "first": {"brokerName": "first", "haListenPort": "0"},
            "second": {"brokerName": "second"},
            "slave": {"brokerName": "first", "brokerRole": "SLAVE", "brokerId": "1"},
        }
        yield {
            name: servers.enter_context(
                Broker(folder / name, name_servers=names.name_server, settings={**SMALL_FILES, **given})
            )
            for name, given in settings.items()
        }


@pytest.fixture(scope="module")
def address(brokers: dict[str, Broker]) -> str:
    return brokers["first"].name_servers[0]


@pytest.fixture(scope="module")
def admin(address: str) -> Iterator[Admin]:
    with Admin(address, api_timeout=60) as admin:
        wait_until(lambda: sum(len(one.addresses) for one in admin.brokers()) == 3, "all brokers are registered")
        yield admin


@pytest.fixture(scope="module")
def names(admin: Admin, address: str, brokers: dict[str, Broker]) -> dict[str, str]:
    """A topic with a message, two groups, a dead letter, a quota, a live value and a schedule."""
    topic, group, other = "dry-topic", "dry-group", "dry-other"
    for name, queues in ((topic, 2), (f"%DLQ%{group}", 1)):
        admin.create_topic(name, queues=queues)
    for name in (group, other):
        admin.create_group(name)
    queue = next(one for one in admin.queues(topic) if (one.broker_name, one.queue_id) == ("first", 1))
    with Producer("dry-runs", name_servers=address, send_timeout=60) as producer:
        msg_id = producer.send(Message(topic, b"text"), queue=queue).msg_id
        producer.send(Message(f"%DLQ%{group}", b"dead"))
    wait_until(lambda: admin.message(topic, msg_id), "the index has the message")
    wait_until(lambda: admin.max_offset(queue) == 1, "the message is readable")
    admin.commit_offset(group, queue, 1)
    admin.set_quota("first", rocketpy.Quota("topic", topic, send_messages=1000))
    admin.set_config("first", {"fileReservedTime": 48})
    admin.create_topic("rocketpy_schedules", queues=1, broker="first")
    schedule.add("old", topic=topic, every=86_400, name_servers=address, api_timeout=60)
    return {"topic": topic, "group": group, "other": other, "msg_id": msg_id, "slave": brokers["slave"].broker}


def state_of(admin: Admin, address: str) -> dict[str, Any]:
    """Everything that commands change."""
    topics, groups = admin.topics(), [one.name for one in admin.groups()]
    queues = {topic: [(one.queue, one.min_offset, one.max_offset) for one in admin.describe_topic(topic).queues]
              for topic in topics if topic.startswith(("dry", "%", "rocketpy"))}  # fmt: skip
    places = {topic: admin.describe_topic(topic).brokers for topic in queues}
    offsets = {group: [(row.queue, row.committed_offset) for row in admin.group_lag(group)] for group in groups}
    return {
        "topics": topics,
        "queues": queues,
        "places": places,
        "offsets": offsets,
        "groups": {group: list(admin.group_settings(group)) for group in groups},
        "config": [(one.key, one.value, one.origin) for name in ("first", "second") for one in admin.config(name)],
        "quotas": [use.quota for name in ("first", "second") for use in admin.quotas(name)],
        "roles": [admin.ha_status(one).is_master for known in admin.brokers() for one in known.addresses.values()],
        "schedules": schedule.schedules(name_servers=address, api_timeout=60),
    }


@pytest.mark.parametrize("line", CHANGING)
def test_a_dry_run_says_something_and_changes_nothing(names: dict[str, str], admin: Admin, address: str, line: str):
    before = state_of(admin, address)
    arguments = [word.format_map(names) for word in CHANGING[line].split()]
    code, out, err = command("--timeout", "60", *line.split(), *arguments, "--dry-run", "--name-server", address)
    assert code == 0, err
    assert out.strip()
    assert state_of(admin, address) == before


Run = Callable[..., Any]


@pytest.fixture
def run(names: dict[str, str], address: str) -> Run:
    """Runs a command with names for placeholders; returns its JSON, or its text if it has no JSON."""

    def call(line: str, *more: str) -> Any:
        words = [word.format_map(names) for word in line.split()]
        code, out, err = command("--timeout", "60", *words, *more, "--name-server", address)
        assert code == 0, err
        return json.loads(out) if "--json" in more else out

    return call


def test_the_plan_of_a_topic_is_what_its_creation_does(run: Run, admin: Admin, names: dict[str, str]):
    new, old = fresh_name("plan"), fresh_name("plan")
    admin.create_topic(old, queues=2, broker="first")
    for line, changes in (
        (f"topic create {new} --queues 3", {(name, kind, None, 3) for name in ("first", "second") for kind in NUMBERS}),
        (f"topic create {old} --queues 4 --attribute retention.hours=24", {
            ("first", "read_queues", 2, 4), ("first", "write_queues", 2, 4), ("first", "retention.hours", None, "24"),
            ("second", "read_queues", None, 4), ("second", "write_queues", None, 4),
            ("second", "retention.hours", None, "24"),
        }),
    ):  # fmt: skip
        plan = run(line, "--dry-run", "--json")
        assert {(row["broker_name"], row["setting"], row["before"], row["after"]) for row in plan} == changes
        assert {row["state"] for row in plan} == {"would change"}
        run(line)
        assert run(line, "--dry-run", "--json") == []
    for topic in (new, old):
        admin.delete_topic(topic)
    shown = run("topic delete {topic}", "--dry-run")
    assert shown == f"would delete topic {names['topic']} with 1 message\n"


NUMBERS = ("read_queues", "write_queues")


def test_a_dry_run_is_refused_where_the_command_is(admin: Admin, address: str, names: dict[str, str]):
    with Consumer(names["other"], names["topic"], name_servers=address) as consumer:
        wait_until(consumer.assignment, "the member has its queues")
        for line, code in (
            ("group delete {other}", 7), ("group clone {group} {other}", 7),
            ("group reset {other} --topic {topic} --to latest", 7), ("group reset x --topic {topic} --to latest", 3),
            ("group clone x {other}", 3), ("group clone {group} x --force", 3), ("group delete x", 3),
            ("group create a$b", 2), ("topic create a$b", 2), ("topic create SCHEDULE_TOPIC_XXXX", 2),
            ("topic create x --broker y", 3), ("topic create {topic} --queues 1", 2), ("topic delete x", 3),
            ("topic create {topic} --queues 1 --force", 0),
            ("ha promote {slave}", 5), ("ha promote second", 3), ("ha demote {slave}", 5), ("schedule remove x", 3),
            ("schedule add old {topic} --every 3d", 7), ("quota remove topic x", 3),
            ("group clone {group} {other} --force", 0),
        ):  # fmt: skip
            words = [word.format_map(names) for word in line.split()]
            result = command("--timeout", "60", *words, "--dry-run", "--name-server", address)
            assert result[0] == code, (line, result)
    wait_until(lambda: not admin.group_members(names["other"]), "the member has left")


def test_plans_of_groups_name_offsets_and_brokers(run: Run, names: dict[str, str], admin: Admin):
    plan = run("group reset {group} --topic {topic} --to earliest", "--dry-run", "--json")
    assert {(row["broker_name"], row["queue_id"], row["before"], row["offset"]) for row in plan} == {
        ("first", 0, None, 0), ("first", 1, 1, 0), ("second", 0, None, 0), ("second", 1, None, 0)
    }  # fmt: skip
    assert [row["state"] for row in run("group create {group}", "--dry-run", "--json")] == ["exists already"] * 2
    assert [row["state"] for row in run("group create made", "--dry-run", "--json")] == ["would create"] * 2
    assert run("group clone {group} {other}", "--dry-run", "--json") == [{"topic": names["topic"]}]
    assert run("group delete {group}", "--dry-run").startswith(f"would delete group {names['group']} with its offsets")
    assert "stored already" in run("schedule add old {topic} --every 1d", "--dry-run")
    with pytest.raises(CommandError, match=r"the master at .* answers"):
        plans.role_change(admin, names["slave"], to_master=True, force=False)

"""What the commands show of a cluster, and what they say when there is nothing to show."""

import io
import json
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

import rocketpy as sdk
from commands import command_lines
from rocketpy import BrokerStatus, ClusterStatus, GroupStatus, Message
from rocketpy.admin.answers import MissingBroker
from rocketpy.cli import main
from rocketpy.cli.group import retry_text
from rocketpy.cli.ha import narrow
from rocketpy.cli.status import broker_rows, failures, kind_of, screen, waiting
from rocketpy.commandline.output import table_of
from waiting import wait_until

WIDTH = 80
LONG = "255.255.255.255:65535"
"""The longest IPv4 address."""


@pytest.fixture
def group(server) -> str:
    name = f"group-{uuid.uuid4().hex[:8]}"
    with sdk.Admin(server.name_server, api_timeout=60) as admin:
        admin.create_group(name)
    return name


def test_status_shows_brokers_and_what_waits(rocketpy, server, topic: str, group: str):
    rocketpy("produce", topic, stdin="1\n2\n")
    rocketpy("group", "reset", group, "--topic", topic, "--to", "earliest")
    with sdk.Producer("filler", name_servers=server.name_server) as producer:
        producer.send(Message(topic, b"x", delay_level=18))
        for place in (f"%RETRY%{group}", f"%DLQ%{group}", f"%DLQ%{group}"):
            producer.send(Message(place, b"x"))

    def found() -> dict:
        return json.loads(rocketpy("status", "--json").stdout)

    wait_until(lambda: [one["dead_letters"] for one in found()["groups"] if one["name"] == group] == [2])
    status = found()
    (broker,) = status["brokers"]
    assert (broker["broker_name"], broker["broker_id"], broker["error"]) == ("broker-a", 0, None)
    assert broker["address"] == server.ready["broker"]
    assert status["delayed"] >= 1
    (of_group,) = (one for one in status["groups"] if one["name"] == group)
    assert (of_group["lag"], of_group["retries"], of_group["topics"]) == (2, 1, [topic])
    shown = rocketpy("status").stdout
    assert "DefaultCluster (V5_3_3" in shown
    assert f" at {server.name_server}: 1 broker" in shown
    assert f"delayed {status['delayed']}" in shown
    assert "dead letters" in shown
    (line,) = (line for line in shown.splitlines() if group in line)
    assert [cell.strip() for cell in line.split("│")[1:-1]] == [group, "0", "2", "1", "2"]


def test_a_broker_that_does_not_answer_leaves_the_others_known(start, command, tmp_path: Path):
    names = start("namesrv", "--port", "0")
    address = names.ready["name_server"]
    here, away = (
        start("broker", str(tmp_path / name), "--port", "0", "--name-server", address, "--set", f"brokerName={name}")
        for name in ("here", "away")
    )
    with sdk.Admin(address, api_timeout=60) as admin:
        admin.create_topic("orders", queues=1)
        admin.create_group("mailer")
        admin.reset_offsets("mailer", "orders", "earliest")
        with sdk.Producer("filler", name_servers=address) as producer:
            for queue in admin.queues("orders"):
                producer.send(Message("orders", b"text"), queue=queue)
    away.process.send_signal(signal.SIGSTOP)

    def shown(*line: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return command("--timeout", "2", *line, name_server=address, code=code)

    try:
        status = shown("status").stdout
        unknown = json.loads(shown("status", "--json").stdout)
        topics = shown("topic", "list")
        groups = shown("group", "list", code=4)
        lag = shown("group", "lag", "mailer", code=4)
    finally:
        away.process.send_signal(signal.SIGCONT)
    assert f"away ({away.ready['broker']}): " in status
    assert "waiting: lag 1+, retries due 0+, delayed 0+, timers 0+; 0+ dead letters" in status
    assert [one["broker_name"] for one in unknown["missing"]] == ["away"]
    assert [(one["name"], one["lag"], one["missing"]) for one in unknown["groups"]] == [("mailer", 1, ["away"])]
    assert re.search(r"orders +│ +1 │.*mailer", topics.stdout)
    assert f"messages and groups unknown at away ({away.ready['broker']}): " in topics.stderr
    assert "mailer" in groups.stdout
    assert "error: groups incomplete: 1 broker did not answer" in groups.stderr
    assert "mailer: 1 message not committed" in lag.stdout
    assert f"lag of mailer unknown at away ({away.ready['broker']}): " in lag.stderr
    assert here.ready["broker"] not in lag.stderr


def test_status_without_any_answer_says_so(start, command, tmp_path: Path):
    names = start("namesrv", "--port", "0")
    address = names.ready["name_server"]
    broker = start("broker", str(tmp_path / "store"), "--port", "0", "--name-server", address)
    with sdk.Admin(address, api_timeout=1.5) as admin:
        wait_until(lambda: admin.broker_status()[0].error is None)
        broker.process.send_signal(signal.SIGSTOP)
        try:
            shown = command("--timeout", "1", "status", name_server=address).stdout
            (row,) = admin.broker_status()
        finally:
            broker.process.send_signal(signal.SIGCONT)
    assert "timed out" in row.error
    assert row.answered_at is not None, "its last answer"
    assert f"({broker.ready['broker']}): " in shown
    assert "waiting: lag ?, retries due ?, delayed ?, timers ?; ? dead letters" in shown
    assert "groups unknown: " in shown


def test_topics_are_listed_with_messages_rate_and_groups(rocketpy, server, topic: str, group: str):
    rocketpy("produce", topic, stdin="1\n2\n3\n")
    rocketpy("group", "reset", group, "--topic", topic, "--to", "latest")

    def row() -> dict:
        (found,) = (one for one in json.loads(rocketpy("topic", "list", "--json").stdout) if one["topic"] == topic)
        return found

    assert (row()["messages"], row()["groups"]) == (3, [group])
    shown = rocketpy("topic", "list").stdout
    (line,) = (line for line in shown.splitlines() if topic in line)
    assert [cell.strip() for cell in line.split("│")][2::2] == ["3", group]
    assert {"topic": topic} in json.loads(rocketpy("topic", "list", "--names", "--json").stdout)
    wait_until(lambda: rocketpy("produce", topic, stdin="1\n2\n3\n") and row()["messages_per_second"] >= 0.05)


def test_lag_names_the_messages_that_wait_for_their_retry(rocketpy, server, topic: str, group: str):
    rocketpy("group", "reset", group, "--topic", topic, "--to", "earliest")
    with sdk.Producer("filler", name_servers=server.name_server) as producer:
        retry = Message(f"%RETRY%{group}", os.urandom(1 << 20), delay_level=18)  # 2 hours
        producer.send(retry)
        with sdk.Admin(server.name_server, api_timeout=60) as admin:
            wait_until(lambda: admin.waiting_retries(group).messages == 1)
            assert "1 failed message waits for its retry, the first at 2" in rocketpy("group", "lag", group).stdout
            producer.send(retry)
            wait_until(lambda: admin.waiting_retries(group).messages == 2)
            assert "2 failed messages wait for their retry, the first at 2" in retry_text(admin, group)


class ShortOfBytes(sdk.Admin):
    """Reads a part of the delayed messages."""

    def __init__(self, name_server: str, max_bytes: int) -> None:
        super().__init__(name_server, api_timeout=60)
        self.max_bytes = max_bytes

    def waiting_retries(self, group: str, **options: int) -> sdk.WaitingRetries:
        return super().waiting_retries(group, max_bytes=self.max_bytes, **options)


def test_the_number_of_retries_after_a_read_of_a_part_is_a_minimum_or_unknown(tmp_path: Path):
    with sdk.Server(tmp_path / "store") as server, server.producer("filler") as producer:
        for _ in range(3):
            producer.send(Message("%RETRY%mailer", os.urandom(1 << 20), delay_level=18))
        with server.admin() as admin:
            wait_until(lambda: admin.status().delayed == 3)
        for max_bytes, shown in ((1 << 20, "at least "), (0, "is unknown")):
            with ShortOfBytes(server.name_server, max_bytes) as admin:
                assert shown in retry_text(admin, "mailer")


def broker(name: str, broker_id: int) -> BrokerStatus:
    return BrokerStatus("DefaultCluster", name, broker_id, LONG, "V5_3_3", 1.0, 123456.0, 123456.0, 10**9, 1000, None)


FOUR = [broker(name, broker_id) for name in ("broker-a", "broker-b") for broker_id in (0, 1)]


def test_tables_of_four_brokers_fit_80_columns():
    slave = {"slave": LONG, "broker_id": 1, "lag_bytes": 10**9, "lag_seconds": 100.5, "is_near": False, "why": None}
    pairs = [{"broker_name": name, "master": f"{name}:{LONG[-5:]}", **slave} for name in ("broker-a", "broker-b")]
    assert [row["role"] for row in narrow(pairs)] == ["master", "slave 1"] * 2
    for rows in (broker_rows(FOUR), narrow(pairs)):
        assert Console(width=1000).measure(table_of(rows)).maximum <= WIDTH


def test_groups_with_the_most_waiting_messages_are_shown():
    lags = {"idle": 0, "behind": 7, "little": 1}
    groups = tuple(GroupStatus(name, 0, (), lag, 0, 0) for name, lag in lags.items())
    console = Console(width=WIDTH, file=io.StringIO())
    for part in screen(ClusterStatus(tuple(FOUR), 3, groups, None, ("part unknown",)), "host:9876", 2):
        console.print(part)
    shown = console.file.getvalue()
    assert shown.index("behind") < shown.index("little") < shown.index("1 more group")
    assert "idle" not in shown
    assert "delayed ?" in shown
    assert "timers 2,000" in shown, "of masters: slaves have copies"
    assert "part unknown" in shown


def test_an_unknown_total_is_a_question_mark_and_a_minimum_has_a_plus_sign():
    groups = (GroupStatus("known", 0, (), 7, 8, 9), GroupStatus("unknown", 0, None, None, None, None, "no answer"))
    away = replace(FOUR[0], timers=None, error="no answer")
    missing = (MissingBroker("broker-a", LONG, "no answer", None),)
    for brokers, of_groups, of_missing, shown in (
        (FOUR, groups[:1], (), "lag 7, retries due 8, delayed 5, timers 2,000; 9 dead letters"),
        (FOUR, groups, (), "lag ?, retries due ?, delayed 5, timers 2,000; ? dead letters"),
        (FOUR, None, (), "lag ?, retries due ?, delayed 5, timers 2,000; ? dead letters"),
        (FOUR, groups[:1], missing, "lag 7+, retries due 8+, delayed 5+, timers 2,000; 9+ dead letters"),
        ([away, *FOUR[1:]], groups[:1], (), "lag 7, retries due 8, delayed 5, timers 1,000+; 9 dead letters"),
        ([away], groups[:1], (), "lag 7, retries due 8, delayed 5, timers ?; 9 dead letters"),
    ):
        assert waiting(ClusterStatus(tuple(brokers), 3, of_groups, 5, (), of_missing)) == f"waiting: {shown}"


def test_a_broker_that_does_not_answer_is_named_once_with_the_age_of_its_last_answer():
    answered_at = datetime.now(UTC) - timedelta(seconds=90)
    away = replace(FOUR[0], error="no answer", answered_at=answered_at)
    other = MissingBroker("broker-b", "host:2", "no answer either", None)
    shown = failures([away], (MissingBroker(away.broker_name, LONG, "no answer", answered_at), other))
    assert len(shown) == 2
    assert re.fullmatch(rf"broker-a \({LONG}\): no answer; last answer \d+ s ago", shown[0])
    assert shown[1] == "broker-b (host:2): no answer either"


def test_brokers_of_several_versions_fit_80_columns():
    mixed = [replace(one, rocketpy_version=f"0.{one.broker_id}.0") for one in FOUR]
    assert kind_of(mixed) == "DefaultCluster (V5_3_3, RocketPy 0.0.0, RocketPy 0.1.0)"
    table = table_of(broker_rows(mixed))
    assert next(str(column.header) for column in table.columns) == "RocketPy"
    assert Console(width=1000).measure(table).maximum <= WIDTH


@pytest.fixture(scope="module")
def idle(tmp_path_factory) -> Iterator[str]:
    """Name server of a cluster with one topic and one group, which have nothing."""
    with sdk.Server(tmp_path_factory.mktemp("idle") / "store") as server, server.admin() as admin:
        yield server.name_server
        assert admin.brokers()


EMPTY = {
    "topic list": ("", "no topics of applications"),
    "group list": ("", "no groups"),
    "dlq list": ("", "no group has dead letters"),
    "schedule list": ("", "no schedules"),
    "group describe": ("quiet", "quiet has no members"),
    "group producers": ("quiet", "no producer of group quiet"),
    "group lag": ("quiet", "quiet has no offsets"),
    "offset show": ("quiet", "quiet has no offsets"),
    "quota list": ("", "no quotas at"),
    "dlq show": ("quiet", "quiet has no dead letters"),
    "group clone": ("quiet other", "quiet has no offsets"),
}
NEVER_EMPTY = {
    "acl list", "acl show", "cluster list", "config list", "group show", "ha status", "status", "topic describe",
    "user list", "user show",
}  # fmt: skip
"""Commands that end with an error without brokers, with users off, or without the topic, group or user."""


@pytest.mark.parametrize("line", EMPTY)
def test_an_empty_answer_names_the_question_and_the_server(idle: str, line: str, capsys: pytest.CaptureFixture):
    arguments, answer = EMPTY[line]
    for group in arguments.split():
        assert main(["--timeout", "60", "group", "create", group, "-n", idle]) == 0
    capsys.readouterr()
    assert main(["--timeout", "60", *line.split(), *arguments.split(), "-n", idle]) == 0
    shown = capsys.readouterr().out
    assert answer in shown
    assert idle in shown
    assert main(["--timeout", "60", *line.split(), *arguments.split(), "-n", idle, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    for group in arguments.split():
        main(["group", "delete", group, "--yes", "-n", idle])


def test_each_command_that_lists_is_known_to_have_an_empty_answer_or_not():
    verbs = ("list", "describe", "producers", "lag", "show", "status", "clone")
    lines = {line for line in command_lines() if line.split()[-1] in verbs} - {"config show"}
    assert lines == EMPTY.keys() | NEVER_EMPTY

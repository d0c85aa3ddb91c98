"""Tables of queues and messages on a terminal of 80 columns: nothing is broken into pieces."""

import re
from collections.abc import Callable

import pytest
from rich.console import Console

from commands import command
from rocketpy import Admin, Message, Producer
from rocketpy.cli.group import NARROW_QUEUES, narrow_topics
from rocketpy.cli.narrow import by_topic, narrowed
from rocketpy.cli.topic import narrow_queues
from rocketpy.commandline import output
from waiting import wait_until

WIDTH = 80
TIME = re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d")
Shown = Callable[..., str]


@pytest.fixture
def shown(server, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Runs a command in the process of the test, as on a terminal of 80 columns or of another width."""

    def run(*arguments: str, width: int = WIDTH) -> str:
        monkeypatch.setattr(output, "stdout", lambda: Console(width=width))
        code, out, err = command("--timeout", "60", *arguments, "--name-server", server.name_server)
        assert code == 0, err
        return out

    return run


@pytest.fixture
def msg_id(server, topic: str) -> str:
    """Id of a message with a key, in queue 0 of the topic; the group of the topic's name has committed there."""
    with Producer("narrow", name_servers=server.name_server) as producer, Admin(server.name_server) as admin:
        queue = admin.queues(topic)[0]
        receipt = producer.send(Message(topic, b"body of a message", tag="tag", keys=["key"]), queue=queue)
        wait_until(lambda: admin.query_messages(topic, "key"), "the index has the message")
        admin.create_group(topic)
        wait_until(lambda: admin.max_offset(queue) == 1, "the message is readable")
        admin.commit_offset(topic, queue, 1)
    return receipt.msg_id


def test_a_message_is_a_block_of_lines(shown: Shown, topic: str, msg_id: str):
    out = shown("message", "query", topic, "--key", "key")
    assert re.search(rf"^msg id +{msg_id}\s*$", out, re.MULTILINE)
    assert re.search(r"^body +body of a message\s*$", out, re.MULTILINE)
    assert "│" not in out
    assert max(map(len, out.splitlines())) <= WIDTH
    assert "│" in shown("message", "query", topic, "--key", "key", width=300)


def test_queues_have_their_offsets_and_times_in_80_columns(shown: Shown, topic: str, msg_id: str):
    for line, columns in (
        (("topic", "describe", topic), ["broker", "queue", "perm", "min", "max", "last stored"]),
        (("group", "lag", topic, "--queues"), ["broker", "queue", "committed", "lag", "held", "last consumed"]),
        (("group", "lag", topic), ["topic", "queues", "never committed", "lag", "held"]),
    ):
        out = shown(*line)
        heads, first = [row for row in out.splitlines() if "┃" in row or "│" in row][:2]
        assert [cell.strip() for cell in heads.split("┃")[1:-1]] == columns, line
        if columns[-1].startswith("last"):
            assert TIME.fullmatch(first.split("│")[-2].strip())
        assert max(map(len, out.splitlines())) <= WIDTH
    assert "never committed" not in shown("group", "lag", topic, "--queues")
    assert re.search(rf"^{topic}\s*$", shown("group", "lag", topic, "--queues"), re.MULTILINE), "line above the table"
    wide = shown("topic", "describe", topic, width=300)
    assert all(name in wide for name in ("readable", "writable", "min offset", "messages"))


def test_large_offsets_fit_80_columns_and_a_long_name_of_a_broker_makes_blocks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    at = output.datetime(2026, 1, 31, 12)
    large = 10**7
    row = {
        "topic": "orders", "broker_name": "broker-a", "queue_id": 16383, "readable": True, "writable": False,
        "min_offset": large, "committed_offset": large, "max_offset": large, "messages": large, "lag": large - 1,
        "held": 0, "last_consumed_at": at, "last_stored_at": at, "queues": 8, "never_committed": 0,
    }  # fmt: skip
    of_offsets = narrowed([row], "broker_name", "queue_id", "min_offset", "committed_offset", "max_offset", "lag")
    lag = by_topic([row, {**row, "topic": "%RETRY%billing"}], *NARROW_QUEUES)
    assert list(lag) == ["orders", "%RETRY%billing"]
    for rows in (narrow_queues([row]), of_offsets, *lag.values(), narrow_topics([row])):
        assert Console(width=1000).measure(output.table_of(rows)).maximum <= WIDTH, rows
    assert narrow_queues([row])[0]["perm"] == "r"
    assert "never_committed" in narrow_topics([row, {**row, "never_committed": 3}])[0]
    monkeypatch.setattr(output, "stdout", lambda: Console(width=WIDTH))
    long = {**row, "broker_name": "broker-" + "x" * 20}
    output.show([long], as_json=False, empty="", in_blocks=True, narrow={"": narrow_queues([long])})
    assert re.search(r"^max offset +10,000,000\s*$", capsys.readouterr().out, re.MULTILINE)

"""produce, consume, topic and group against a real server."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from ports import free_port
from rocketpy import Admin, Consumer, Start
from waiting import wait_until


def lines_of(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@contextlib.contextmanager
def consuming(executable: list[str], server, *arguments: str, options: Sequence[str] = ()):
    """`rocketpy [options] consume arguments` as a process with pipes, which is gone at the end."""
    process = subprocess.Popen(
        [*executable, *options, "consume", *arguments, "--name-server", server.name_server],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_peer_that_hangs_up_on_a_question_leaves_nothing_in_doubt(command):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            with contextlib.suppress(OSError):  # until the listener is closed
                while True:
                    listener.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        for arguments in (["topic", "list"], ["group", "lag", "g"], ["consume", "t"]):
            error = command(*arguments, name_server=address, code=4).stderr
            assert "check --name-server" in error
        listener.shutdown(socket.SHUT_RDWR)


def test_lines_come_out_as_they_went_in(rocketpy, topic: str):
    result = rocketpy("produce", topic, stdin="one\ntwo\r\nthree")
    assert "skipped" not in result.stderr
    assert sorted(rocketpy("consume", topic).stdout.splitlines()) == ["one", "three", "two"]


def test_empty_lines_are_skipped_and_counted(rocketpy, topic: str):
    stdin = "\none\n\r\n\ntwo\n"
    summary = json.loads(rocketpy("produce", topic, "--json", stdin=stdin).stdout)
    assert (summary["messages"], summary["empty_lines"]) == (2, 3)
    result = rocketpy("produce", topic, stdin=stdin)
    assert "2 messages" in result.stderr
    assert "3 empty lines" in result.stderr
    assert sorted(rocketpy("consume", topic).stdout.splitlines()) == ["one", "one", "two", "two"]
    assert json.loads(rocketpy("produce", topic, "--json", stdin="").stdout)["empty_lines"] == 0


def test_lines_with_one_order_key_keep_their_order(rocketpy, topic: str):
    lines = [f"line {number}" for number in range(3000)]
    summary = rocketpy("produce", topic, "--order-key", "k", "--json", stdin="\n".join(lines))
    assert json.loads(summary.stdout)["messages"] == 3000
    assert rocketpy("consume", topic).stdout.splitlines() == lines


def test_json_lines_make_the_round_trip(rocketpy, topic: str):
    messages = [
        {"body": "text", "tag": "UA", "keys": ["N1", "UA1"], "order_key": "N1", "properties": {"origin": "EWR"}},
        {"body_base64": "/wA=", "tag": None, "keys": []},
        {"body": {"nested": [1, 2]}, "tag": "AA"},
    ]
    rocketpy("produce", topic, "--format", "json", stdin="\n".join(map(json.dumps, messages)))
    first = rocketpy("consume", topic, "--format", "json").stdout
    by_tag = {line["tag"]: line for line in lines_of(first)}
    assert by_tag["UA"]["body"] == "text"
    assert by_tag["UA"]["keys"] == ["N1", "UA1"]
    assert by_tag["UA"]["order_key"] == "N1"
    assert by_tag["UA"]["properties"]["origin"] == "EWR"
    assert by_tag[None]["body_base64"] == "/wA="
    assert json.loads(by_tag["AA"]["body"]) == {"nested": [1, 2]}
    assert {line["topic"] for line in lines_of(first)} == {topic}

    copy = f"{topic}-copy"
    rocketpy("topic", "create", copy)
    rocketpy("produce", copy, "--format", "json", stdin=first)
    again = lines_of(rocketpy("consume", copy, "--format", "json").stdout)
    kept = ("body", "body_base64", "tag", "keys", "order_key")

    def plain(lines: list[dict]) -> list[dict]:
        return sorted(({name: line.get(name) for name in kept} for line in lines), key=str)

    assert plain(again) == plain(lines_of(first))
    assert {line["msg_id"] for line in again}.isdisjoint(line["msg_id"] for line in lines_of(first))
    assert [line["properties"]["origin"] for line in again if line["tag"] == "UA"] == ["EWR"]


def test_a_property_that_asks_for_what_is_not_there_is_refused_by_name(rocketpy, topic: str):
    line = json.dumps({"body": "later", "properties": {"TRAN_MSG": "true"}})
    result = rocketpy("produce", topic, "--format", "json", stdin=line, code=5)
    sent, error, hint = result.stderr.splitlines()
    assert sent.startswith("0 messages sent before")
    assert error == "error: transaction messages are not supported by this call, property: TRAN_MSG=true"
    assert hint == "hint: send the message without TRAN_MSG=true"
    assert rocketpy("consume", topic).stdout == ""


def test_files_are_sent_whole(rocketpy, topic: str, tmp_path: Path):
    content = bytes(range(256)) * 100
    (tmp_path / "image").write_bytes(content)
    rocketpy("produce", topic, "--format", "files", stdin=str(tmp_path / "image"))
    result = rocketpy("consume", topic, stdin=b"")
    assert result.stdout == content + b"\n"


def test_messages_are_read_from_files(rocketpy, topic: str, tmp_path: Path):
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("two")
    rocketpy("produce", topic, "--file", str(tmp_path / "a"), "--file", str(tmp_path / "b"))
    assert sorted(rocketpy("consume", topic).stdout.split()) == ["one", "two"]


def test_a_line_that_is_no_message_is_named_and_those_before_it_are_sent(rocketpy, topic: str):
    result = rocketpy("produce", topic, "--format", "json", stdin='{"body": "good"}\n{"boddy": 1}\n', code=2)
    assert "line 2" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("hint: ")
    assert rocketpy("consume", topic).stdout == "good\n"


@pytest.mark.parametrize(
    "line",
    [
        '{"body": null}', "[]", "not json", '{"body_base64": "%"}', '{"body": "x", "properties": 1}', '{"body": ""}',
        '{"body": ' + '{"a": ' * 100_000,
    ],
    ids=range(7),
)  # fmt: skip
def test_a_json_line_that_is_no_message_is_refused(rocketpy, topic: str, line: str):
    assert "line 1: " in rocketpy("produce", topic, "--format", "json", stdin=line, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("my orders",), "my orders"), (("orders", "--tag", "a||b"), "a||b"), (("orders", "--tag", ""), "tag")],
)
@pytest.mark.parametrize("form", ["lines", "json"])
def test_an_invalid_argument_is_refused_before_the_first_line(rocketpy, form: str, arguments, named: str):
    error, hint = rocketpy("produce", *arguments, "--format", form, stdin="not json\n", code=2).stderr.splitlines()
    assert error.startswith("error: ")
    assert named in error
    assert "line 1" not in error + hint


def test_a_failed_send_says_how_many_messages_were_sent(command):
    lines = command("--timeout", "1", "produce", "t", "--name-server", "127.0.0.1:1", stdin="a\n", code=4).stderr
    assert lines.splitlines()[0] == "0 messages sent before the error"


def test_a_slow_pipe_is_sent_line_by_line(rocketpy, executable, server, topic: str):
    process = subprocess.Popen(
        [*executable, "produce", topic, "--name-server", server.name_server], stdin=subprocess.PIPE, text=True
    )
    process.stdin.write("early\n")
    process.stdin.flush()
    with Consumer("slow-pipe", topic, name_servers=server.name_server, start=Start.EARLIEST) as consumer:
        assert [message.body for message in consumer.poll(timeout=60)] == [b"early"]
    assert process.poll() is None, "it still reads"
    process.stdin.close()
    assert process.wait(60) == 0


def test_tags_choose(rocketpy, topic: str):
    for tag in ("UA", "AA", "B6"):
        rocketpy("produce", topic, "--tag", tag, stdin=tag)
    assert sorted(rocketpy("consume", topic, "--tags", "UA || AA").stdout.split()) == ["AA", "UA"]


def test_from_latest_sees_nothing_old_and_a_time_in_the_past_sees_all(rocketpy, topic: str):
    rocketpy("produce", topic, stdin="old")
    assert rocketpy("consume", topic, "--from", "latest").stdout == ""
    assert rocketpy("consume", topic, "--from", "-10m").stdout == "old\n"
    refused = rocketpy("consume", topic, "--from", "2100-01-01T00:00:00", code=2)
    assert "start position is in the future" in refused.stderr


def test_count_ends_it(rocketpy, topic: str):
    rocketpy("produce", topic, "--order-key", "k", stdin="1\n2\n3\n")
    assert rocketpy("consume", topic, "--count", "2").stdout == "1\n2\n"


def test_a_group_goes_on_where_it_stopped(rocketpy, topic: str):
    group = f"group-{uuid.uuid4().hex[:8]}"
    rocketpy("produce", topic, "--order-key", "k", stdin="1\n2\n3\n")
    assert rocketpy("consume", topic, "--group", group, "--count", "2").stdout == "1\n2\n"
    assert rocketpy("consume", topic, "--group", group).stdout == "3\n"


def test_follow_prints_what_arrives_until_ctrl_c(rocketpy, executable, server, topic: str):
    with consuming(executable, server, topic, "--follow") as process:
        for line in ("first", "second"):
            rocketpy("produce", topic, stdin=line)
            assert process.stdout.readline() == f"{line}\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_follow_goes_on_when_the_server_comes_back_and_says_that_the_topic_is_gone(
    command, executable, start, tmp_path: Path
):
    port, name_server_port = (free_port() for _ in range(2))
    arguments = ["server", str(tmp_path / "store"), "--port", str(port), "--name-server-port", str(name_server_port)]
    server = start(*arguments)
    address = server.name_server
    command("topic", "create", "orders", "--queues", "4", name_server=address)
    with consuming(executable, server, "orders", "--follow", "--tags", "A") as process:
        for number in range(2):
            command("produce", "orders", "--tag", "A", stdin=f"{number}", name_server=address)
            command("produce", "orders", "--tag", "B", stdin="other", name_server=address)
            assert process.stdout.readline() == f"{number}\n"
        assert server.stop() == 0
        assert "retrying until the servers are available" in process.stderr.readline()
        assert process.poll() is None
        start(*arguments)
        command("produce", "orders", "--tag", "A", "--order-key", "k", stdin="2\n3\n4", name_server=address)
        assert [process.stdout.readline() for _ in range(3)] == ["2\n", "3\n", "4\n"]
        command("topic", "delete", "orders", "--yes", name_server=address)
        assert process.stderr.readline() == "available again\n"
        # A read before the next look at the route is rejected by the broker.
        absence = process.stderr.readline()
        assert re.fullmatch(r".*\btopic:? orders\b.*; retrying until the servers are available\n", absence)
        assert process.poll() is None


def test_a_member_that_follows_goes_on_when_the_server_comes_back(command, executable, start, tmp_path: Path):
    port, name_server_port = (free_port() for _ in range(2))
    arguments = ["server", str(tmp_path / "store"), "--port", str(port), "--name-server-port", str(name_server_port)]
    server = start(*arguments)
    address = server.name_server
    command("produce", "orders", stdin="1", name_server=address)
    with consuming(executable, server, "orders", "--follow", "--group", "g") as process:
        assert process.stdout.readline() == "1\n"
        assert server.stop() == 0
        assert "retrying until the servers are available" in process.stderr.readline()
        start(*arguments)
        assert process.stderr.readline() == "available again\n"
        command("produce", "orders", stdin="2", name_server=address)
        assert process.stdout.readline() == "2\n"
        assert process.poll() is None


def test_a_member_does_not_end_as_if_it_had_read_all_when_the_server_is_gone(
    command, executable, start, tmp_path: Path
):
    server = start("server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0")
    command("produce", "orders", stdin="1", name_server=server.name_server)
    with consuming(executable, server, "orders", "--group", "g", options=["--timeout", "1"]) as process:
        assert process.stdout.readline() == "1\n"
        with Admin(server.name_server) as admin:
            queues = admin.queues("orders")
            wait_until(lambda: sum(admin.committed_offset("g", queue) or 0 for queue in queues) == 1)
        server.process.send_signal(signal.SIGSTOP)
        error = process.communicate()[1]
    assert process.returncode == 4, error
    assert "timed out" in error


def test_the_user_says_how_long_a_command_waits_for_a_server_that_does_not_answer(command, start, tmp_path: Path):
    server = start("server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0")
    server.process.send_signal(signal.SIGSTOP)
    asked = ["--timeout", "0.2", "topic", "list", "--name-server", server.name_server]
    error = command(*asked, code=4).stderr
    assert "timed out after 200 ms" in error
    assert "--timeout" in error


def test_a_place_to_begin_that_is_none_lists_what_there_is(rocketpy, topic: str):
    for arguments in (
        ["consume", topic, "--from", "start"],
        ["group", "reset", "g", "--topic", topic, "--to", "start"],
    ):
        error = rocketpy(*arguments, code=2).stderr
        assert f"error: {arguments[-2]}: not a start position: start" in error
        assert all(word in error for word in ("earliest", "latest", "-10m"))


def test_a_query_by_two_things_names_them(rocketpy, topic: str):
    error = rocketpy("message", "query", topic, "--key", "a", "--tag", "b", code=2).stderr
    assert "--key and --tag" in error


def test_attributes_of_a_topic_are_set_seen_changed_and_removed(rocketpy):
    name = f"attributes-{uuid.uuid4().hex[:8]}"
    rocketpy("topic", "create", name, "--queues", "3", "--attribute", "retention.hours=24")

    def described() -> tuple[int, dict]:
        rows = json.loads(rocketpy("topic", "describe", name, "--json").stdout)
        (attributes,) = {json.dumps(row["attributes"]) for row in rows}
        return len(rows), json.loads(attributes)

    assert described() == (3, {"retention.hours": "24"})
    rocketpy("topic", "create", name, "--attribute", "flush.type=SYNC_FLUSH")
    assert described() == (3, {"retention.hours": "24", "flush.type": "SYNC_FLUSH"}), "nothing else was changed"
    assert "broker-a: retention.hours=24" in rocketpy("topic", "describe", name).stdout
    rocketpy("topic", "create", name, "--queues", "4", "--attribute", "retention.hours=")
    assert described() == (4, {"flush.type": "SYNC_FLUSH"})
    for wrong in ("retention.hours=soon", "retention.minutes=1", "flush.type=sync"):
        error = rocketpy("topic", "create", name, "--attribute", wrong, code=2).stderr
        assert f"+{wrong}" in error
        assert "retention.hours=HOURS" in error, "what it may be"
    for wrong in ("retention.hours", "=1", "a,b=1"):
        rocketpy("topic", "create", name, "--attribute", wrong, code=2)
    assert described() == (4, {"flush.type": "SYNC_FLUSH"})


def test_an_interrupted_produce_says_how_many_lines_were_sent(executable, server, topic: str):
    process = subprocess.Popen(
        [*executable, "produce", topic, "--name-server", server.name_server],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        with Admin(name_servers=server.name_server) as admin:
            while sum(queue.max_offset for queue in admin.describe_topic(topic).queues) < 2:
                assert process.poll() is None
        # Both are stored; the answer may still be on its way.
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert re.search(rb"^(0 messages|2 messages) sent", process.stderr.read())
    finally:
        process.kill()
        process.stdin.close()
        process.stderr.close()


def test_a_reader_that_goes_away_is_no_error_message(rocketpy, executable, server, topic: str):
    rocketpy("produce", topic, stdin="\n".join("x" * 1000 for _ in range(2000)))
    with consuming(executable, server, topic) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == ""


def test_consuming_without_a_group_leaves_no_trace(rocketpy, topic: str):
    rocketpy("produce", topic, stdin="one")

    def names() -> tuple[str, str]:
        topics = rocketpy("topic", "list", "--all", "--names", "--json")
        return rocketpy("group", "list", "--json").stdout, topics.stdout

    before = names()
    rocketpy("consume", topic)
    assert names() == before


def test_a_topic_lives_from_create_to_delete(rocketpy):
    name = f"topic-{uuid.uuid4().hex[:8]}"
    rocketpy("topic", "create", name, "--queues", "3")
    listed = [row["topic"] for row in json.loads(rocketpy("topic", "list", "--json").stdout)]
    assert name in listed
    assert "TBW102" not in listed
    assert "TBW102" in [row["topic"] for row in json.loads(rocketpy("topic", "list", "--all", "--json").stdout)]
    rows = json.loads(rocketpy("topic", "describe", name, "--json").stdout)
    assert [row["queue_id"] for row in rows] == [0, 1, 2]
    assert {(row["readable"], row["writable"]) for row in rows} == {(True, True)}
    assert {row["messages"] for row in rows} == {0}
    assert name in rocketpy("topic", "describe", name).stdout
    rocketpy("produce", name, stdin="1\n2\n")
    refused = rocketpy("topic", "delete", name, code=2).stderr
    assert f"delete topic {name} with 2 messages?" in refused
    assert "--yes" in refused
    assert name in rocketpy("topic", "list").stdout.split()
    assert rocketpy("topic", "delete", name, "--yes").stdout == f"deleted topic {name} with 2 messages\n"
    assert name not in rocketpy("topic", "list").stdout.split()
    assert name in rocketpy("topic", "describe", name, code=3).stderr


def test_a_topic_that_does_not_exist_is_named_with_the_way_out(rocketpy):
    result = rocketpy("consume", "missing-topic", code=3)
    error, hint = result.stderr.splitlines()[-2:]
    assert "missing-topic" in error
    assert hint == "hint: `rocketpy topic list` shows the topics, `rocketpy topic create missing-topic` creates it"
    assert rocketpy("consume", "missing-topic", "--group", "g", code=3).stderr.splitlines()[-2:] == [error, hint]
    for topic, way_out in [("%RETRY%nobody", "rocketpy group list"), ("%DLQ%nobody", "rocketpy dlq list")]:
        hint = rocketpy("consume", topic, code=3).stderr.splitlines()[-1]
        assert way_out in hint, topic
        assert "topic create" not in hint, "the broker creates it"
    refused = rocketpy("produce", "missing-topic", "--delay", "34560000", stdin="x\n", code=None).stderr
    assert "timerMaxDelaySec" in refused.splitlines()[-1]
    assert "maxMessageSize" not in refused


def test_creating_a_topic_again_changes_only_what_is_said_and_takes_no_messages_away_unasked(rocketpy):
    name = f"wide-{uuid.uuid4().hex[:8]}"
    rocketpy("topic", "create", name, "--queues", "16")

    def describe() -> list[dict[str, int]]:
        return json.loads(rocketpy("topic", "describe", name, "--json").stdout)

    def queues() -> int:
        return len(describe())

    sent = 0
    while not any(row["messages"] for row in describe() if row["queue_id"] >= 2):  # a batch goes to one queue
        rocketpy("produce", name, stdin="\n".join(map(str, range(64))))
        sent += 64

    again = rocketpy("topic", "create", name, "--json")
    assert json.loads(again.stdout) == {"topic": name, "queues": 16}
    assert "is not changed" in again.stderr
    assert queues() == 16
    refused = rocketpy("topic", "create", name, "--queues", "2", code=2).stderr
    assert "cannot reduce topic" in refused
    assert "--force" in refused
    assert queues() == 16
    rocketpy("topic", "create", name, "--queues", "2", "--force")
    assert queues() == 2
    rocketpy("topic", "create", name, "--queues", "16")
    assert len(rocketpy("consume", name).stdout.splitlines()) == sent


def test_more_queues_leave_a_topic_as_readable_and_writable_as_it_was(rocketpy, server, topic: str):
    with Admin(name_servers=server.name_server) as admin:
        admin.create_topic(topic, 4, writable=False)
        rocketpy("topic", "create", topic, "--queues", "6")
        (broker,) = admin.describe_topic(topic).brokers
    assert (broker.read_queues, broker.readable, broker.writable) == (6, True, False)


def test_a_topic_may_be_created_at_one_broker(rocketpy, server):
    name = f"there-{uuid.uuid4().hex[:8]}"
    rocketpy("topic", "create", name, "--broker", "broker-z", code=3)
    assert rocketpy("topic", "describe", name, code=3)
    rocketpy("topic", "create", name, "--queues", "1", "--broker", "broker-a")
    (queue,) = json.loads(rocketpy("topic", "describe", name, "--json").stdout)
    assert queue["broker_name"] == "broker-a"


def test_a_number_of_queues_that_no_broker_takes_is_wrong_usage(rocketpy):
    assert "16384" in rocketpy("topic", "create", "far-too-wide", "--queues", "99999", code=2).stderr


@pytest.mark.parametrize("verb", ["delete", "describe"])
def test_a_topic_that_is_not_there_is_looked_for_rather_than_made(rocketpy, verb: str):
    hint = rocketpy("topic", verb, "no-such-topic", code=3).stderr.splitlines()[-1]
    assert "topic list" in hint
    assert "create" not in hint


def test_a_broker_in_place_of_a_name_server_is_guessed(command, server):
    error = command("topic", "list", "--name-server", server.ready["broker"], code=5).stderr
    assert "not a broker" in error.splitlines()[-1]


def test_a_named_file_that_is_missing_has_its_code(rocketpy, topic: str, tmp_path: Path):
    missing = str(tmp_path / "missing")
    assert missing in rocketpy("produce", topic, "--format", "files", stdin=missing, code=3).stderr


@pytest.mark.parametrize("name", ["a/b", "x" * 300, "spaced out"])
def test_a_name_that_no_topic_may_have_is_refused(rocketpy, name: str):
    assert "hint: " in rocketpy("topic", "create", name, code=2).stderr


def test_lag_shrinks_as_the_group_reads_and_reset_sets_it_back(rocketpy, topic: str):
    group = f"group-{uuid.uuid4().hex[:8]}"
    rocketpy("produce", topic, "--order-key", "k", stdin="1\n2\n3\n4\n")
    rocketpy("consume", topic, "--group", group, "--count", "3")

    def lag() -> int:
        return sum(row["lag"] for row in json.loads(rocketpy("group", "lag", group, "--topic", topic, "--json").stdout))

    assert lag() == 1
    assert group in [row["group"] for row in json.loads(rocketpy("group", "list", "--json").stdout)]
    rocketpy("group", "reset", group, "--topic", topic, "--to", "earliest")
    assert lag() == 4
    rocketpy("group", "reset", group, "--topic", topic, "--to", "latest", "--json")
    assert lag() == 0
    assert group in rocketpy("group", "lag", group).stdout


def test_a_group_that_is_not_there_is_named_and_can_be_created(rocketpy, topic: str):
    group = f"group-{uuid.uuid4().hex[:8]}"
    rocketpy("produce", topic, "--order-key", "k", stdin="1\n2\n3\n")
    reset = ("group", "reset", group, "--topic", topic, "--to", "latest")
    for arguments in (("group", "lag", group), ("group", "lag", group, "--topic", topic, "--json"), reset):
        result = rocketpy(*arguments, code=3)
        assert result.stdout == ""
        error, hint = result.stderr.splitlines()[-2:]
        assert error == f"error: no such group: {group}"
        assert f"`rocketpy group create {group}`" in hint
    assert json.loads(rocketpy("group", "create", group, "--json").stdout) == {"group": group}
    assert json.loads(rocketpy("group", "lag", group, "--json").stdout) == []
    rocketpy(*reset)
    assert rocketpy("consume", topic, "--group", group).stdout == ""
    rocketpy("produce", topic, stdin="4\n")
    assert rocketpy("consume", topic, "--group", group).stdout == "4\n"


def test_a_group_with_live_members_is_reset_only_by_force(rocketpy, server, topic: str):
    group = f"group-{uuid.uuid4().hex[:8]}"
    with Consumer(group, topic, name_servers=server.name_server) as consumer:
        consumer.poll(timeout=0.1)
        rocketpy("group", "reset", group, "--topic", topic, "--to", "earliest", code=7)
        rocketpy("group", "reset", group, "--topic", topic, "--to", "earliest", "--force")


def test_the_variable_of_apaches_tools_names_the_cluster(command, server, topic: str):
    environment = {**os.environ, "NAMESRV_ADDR": server.name_server}
    assert topic in command("topic", "list", env=environment).stdout


def test_version_and_unknown_commands(command):
    assert command("--version").stdout.startswith("rocketpy ")
    assert command("tpic", code=2).stderr.splitlines()[-1].startswith("hint: ")


def test_messages_are_queried_by_key_by_tag_and_by_id(rocketpy, topic: str):
    messages = [{"body": f"body-{n}", "tag": "paid", "keys": ["all", f"own-{n}"]} for n in range(3)]
    rocketpy("produce", topic, "--format", "json", stdin="\n".join(map(json.dumps, messages)))
    assert len(rocketpy("consume", topic).stdout.splitlines()) == 3  # all are dispatched, the index with them

    def found(*flags: str) -> list[dict]:
        return json.loads(rocketpy("message", "query", topic, *flags, "--json").stdout)

    [one] = found("--key", "own-1")
    assert (one["body"], one["tag"], one["keys"]) == ("body-1", "paid", ["all", "own-1"])
    assert found("--unique-key", one["msg_id"]) == [one]
    assert found("--id", one["msg_id"]) == [one]
    assert {line["body"] for line in found("--key", "all")} == {"body-0", "body-1", "body-2"}
    assert len(found("--tag", "paid", "--max", "2")) == 2
    assert found("--key", "own-1", "--begin", "-1h") == [one]
    assert "body-1" in rocketpy("message", "query", topic, "--key", "own-1").stdout
    late = rocketpy("message", "query", topic, "--key", "own-1", "--end", "-1h", code=3)
    assert "own-1" in late.stderr
    assert json.loads(rocketpy("message", "query", topic, "--key", "nothing", "--json", code=3).stdout) == []
    assert "ids have 32 hexadecimal digits" in rocketpy("message", "query", topic, "--id", "zz", code=3).stderr
    assert "--unique-key" in rocketpy("message", "query", topic, code=2).stderr
    rocketpy("message", "query", topic, "--key", "a", "--tag", "b", code=2)


def test_a_master_without_slaves_is_listed_as_such(server, rocketpy):
    (row,) = json.loads(rocketpy("ha", "status", "--json").stdout)
    assert row["master"] == server.ready["broker"]
    assert row["master_end"] >= 0
    assert row["slave"] is None
    assert "0 slaves" in rocketpy("ha", "status").stdout

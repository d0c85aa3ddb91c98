"""Dead letters, from the command line."""

import json
import os
import signal

import pytest
from wire import OK, SEND, SEND_MESSAGE, Raw, give_up, request

from rocketpy import Admin, Message, Producer, Server
from waiting import wait_until


@pytest.fixture
def group(server, rocketpy, topic: str) -> str:
    """A group with three dead letters of the topic."""
    name = f"{topic}-group"
    with Producer("dying", name_servers=server.name_server, send_timeout=60) as producer:
        sent = [producer.send(Message(topic, body, keys=["k"], properties={"n": body.decode()})) for body in BODIES]
    give_up(server.ready["broker"], name, *sent, error=ERROR)
    while len(json.loads(rocketpy("dlq", "show", name, "--json").stdout)) < len(sent):
        pass
    return name


ERROR = "Reject: no such order: A-17"
BODIES = [b"one", b"two", b"three"]


def bodies(lines: str) -> list[str]:
    return [json.loads(line)["body"] for line in lines.splitlines()]


def test_dead_letters_are_listed_shown_and_exported(rocketpy, topic: str, group: str, tmp_path):
    (listed,) = [one for one in json.loads(rocketpy("dlq", "list", "--json").stdout) if one["group"] == group]
    assert (listed["count"], listed["newest_error"]) == (3, ERROR)
    shown = rocketpy("dlq", "show", group).stdout
    assert topic in shown
    assert "three" in shown
    assert shown.count(ERROR) == 3
    some = json.loads(rocketpy("dlq", "show", group, "--property", "n=two", "--json").stdout)
    assert [
        (one["body"], one["origin_topic"], one["reconsume_times"], one["reason"], one["error"]) for one in some
    ] == [("two", topic, 1, "GIVEN_UP", ERROR)]
    assert "only the oldest 1 are shown" in rocketpy("dlq", "show", group, "--max", "1").stdout
    shown = rocketpy("dlq", "show", group, "--newest", "--json").stdout
    assert [one["msg_id"] for one in json.loads(shown)] == [
        one["msg_id"] for one in reversed(json.loads(rocketpy("dlq", "show", group, "--json").stdout))
    ]
    assert bodies(rocketpy("dlq", "export", group, "--since", "-1h", "--max", "2").stdout) == ["one", "two"]
    file = tmp_path / "dead.jsonl"
    rocketpy("dlq", "export", group, str(file))
    assert bodies(file.read_text()) == ["one", "two", "three"]
    refused = rocketpy("dlq", "export", group, str(file), code=2)
    assert "--force" in refused.stderr
    rocketpy("dlq", "export", group, str(file), "--force", "--topic", "other")
    assert file.read_text() == ""
    copy = f"{topic}-copy"
    rocketpy("topic", "create", copy)
    exported = rocketpy("dlq", "export", group).stdout
    rocketpy("produce", copy, "--format", "json", stdin=exported)
    assert sorted(bodies(rocketpy("consume", copy, "--format", "json").stdout)) == ["one", "three", "two"]


def test_dead_letters_are_sent_again_when_it_is_said_and_once(rocketpy, topic: str, group: str):
    preview = rocketpy("dlq", "resend", group).stdout
    assert "3 dead letters would be sent: add --yes" in preview
    assert len(rocketpy("consume", topic, "--format", "json").stdout.splitlines()) == 3, "nothing was sent"
    assert "1 dead letter sent" in rocketpy("dlq", "resend", group, "--property", "n=two", "--yes").stdout
    shown = {one["body"]: one["resent"] for one in json.loads(rocketpy("dlq", "show", group, "--json").stdout)}
    assert shown == {"one": False, "two": True, "three": False}
    for options, resent in [((), 1), (("--check", "2"), None)]:
        (listed,) = [
            one for one in json.loads(rocketpy("dlq", "list", *options, "--json").stdout) if one["group"] == group
        ]
        assert (listed["count"], listed["resent"]) == (3, resent)
    assert len(rocketpy("consume", topic, "--format", "json", "--follow", "--count", "4").stdout.splitlines()) == 4
    summary = rocketpy("dlq", "resend", group, "--yes", "--rate", "1000", "--json").stdout
    assert json.loads(summary) == {"group": group, "sent": 2, "sent_before": 1, "without_origin": 0, "rejected": []}
    rocketpy("produce", f"%DLQ%{group}", stdin="no origin\n")
    preview = rocketpy("dlq", "resend", group).stdout
    assert "0 dead letters would be sent: add --yes\n3 dead letters sent before: --again" in preview
    assert "1 dead letter without a topic of origin: --to TOPIC" in rocketpy("dlq", "resend", group, "--yes").stdout
    other = f"{topic}-other"
    for yes in ([], ["--yes"]):
        refused = rocketpy("dlq", "resend", group, "--to", other, *yes, code=3).stderr
        assert other in refused.splitlines()[0]
        assert f"rocketpy topic create {other}" in refused
    assert other not in rocketpy("topic", "list").stdout.split()
    rocketpy("topic", "create", other)
    assert "4 dead letters sent" in rocketpy("dlq", "resend", group, "--yes", "--to", other).stdout


def test_the_preview_does_not_count_dead_letters_whose_topic_of_origin_is_invalid_or_gone(
    server, rocketpy, topic: str, group: str
):
    origins = ("no topic!", f"{topic}-gone", topic, "")
    with Raw(server.ready["broker"]) as broker:
        for number, name in enumerate(origins):
            properties = f"UNIQ_KEY\1{topic}-{number}\2RETRY_TOPIC\1{name}\2"
            fields = {**SEND, "topic": f"%DLQ%{group}", "properties": properties}
            assert broker.answer(request(SEND_MESSAGE, fields, b"foreign"))["code"] == OK

    def previewed() -> dict[str | None, bool]:
        shown = json.loads(rocketpy("dlq", "resend", group, "--json").stdout)
        return {one["to"]: one["rejected"] is not None for one in shown}

    wait_until(
        lambda: previewed() == {**dict.fromkeys(origins[:2], True), topic: False, None: False}, "all are previewed"
    )
    preview = rocketpy("dlq", "resend", group).stdout
    assert "4 dead letters would be sent: add --yes\n1 dead letter without a topic of origin" in preview
    assert "2 cannot be sent to the topic of origin" in preview
    resent = json.loads(rocketpy("dlq", "resend", group, "--yes", "--json", code=11).stdout)
    assert (resent["sent"], {one["msg_id"] for one in resent["rejected"]}) == (4, {f"{topic}-0", f"{topic}-1"})
    assert f"{topic}-gone" not in rocketpy("topic", "list").stdout.split(), "the resend does not create it again"
    rocketpy("consume", topic, "--follow", "--count", "7")  # the copies can be found
    rocketpy("topic", "create", f"{topic}-gone")
    resent = json.loads(rocketpy("dlq", "resend", group, "--yes", "--json", code=11).stdout)
    assert (resent["sent"], [one["msg_id"] for one in resent["rejected"]]) == (1, [f"{topic}-0"])


def test_a_body_that_does_not_decompress_hides_and_blocks_no_other_dead_letter(
    server, rocketpy, topic: str, group: str
):
    damaged = {"sysFlag": "1", "topic": f"%DLQ%{group}"}
    properties = f"UNIQ_KEY\1{topic}-damaged\2RETRY_TOPIC\1{topic}\2KEYS\1damaged\2DLQ_ERROR\1its own\2"
    with Raw(server.ready["broker"]) as broker:
        fields = {**SEND, **damaged, "properties": properties}
        assert broker.answer(request(SEND_MESSAGE, fields, b"not compressed"))["code"] == OK
    rocketpy("produce", f"%DLQ%{group}", stdin="last\n")
    while len(found := json.loads(rocketpy("dlq", "show", group, "--json").stdout)) < 5:
        pass
    assert [one["body"] for one in found] == ["one", "two", "three", None, "last"]
    assert (found[3]["error"], "does not decompress" in found[3]["body_error"]) == ("its own", True)
    assert "does not decompress" in rocketpy("dlq", "show", group).stdout
    assert bodies(rocketpy("dlq", "export", group).stdout) == ["one", "two", "three", None, "last"]
    for more in ([], ["--json"]):
        query = rocketpy("message", "query", f"%DLQ%{group}", "--key", "damaged", *more).stdout
        assert "does not decompress" in query
    preview = rocketpy("dlq", "resend", group).stdout
    assert "3 dead letters would be sent: add --yes" in preview
    assert "1 cannot be sent, because the body does not decompress" in preview
    rejected = rocketpy("dlq", "resend", group, "--yes", code=11)
    assert "3 dead letters sent" in rejected.stdout
    assert f"rejected: {topic}-damaged: " in rejected.stderr
    assert len(rocketpy("consume", topic, "--follow", "--count", "6").stdout.splitlines()) == 6


def test_what_makes_no_sense_is_named(rocketpy, group: str):
    assert "expected NAME=VALUE: n" in rocketpy("dlq", "show", group, "--property", "n", code=2).stderr
    refused = rocketpy("dlq", "show", "nobody-at-all", code=3).stderr
    assert "no such group: nobody-at-all" in refused
    assert "rocketpy dlq list" in refused
    for more in ([], ["--yes"], ["--yes", "--json"]):
        assert "no such group: nobody-at-all" in rocketpy("dlq", "resend", "nobody-at-all", *more, code=3).stderr
    assert "has no matching dead letters" in rocketpy("dlq", "show", group, "--key", "other").stdout
    for command in (["show"], ["export"], ["resend"], ["resend", "--yes"]):
        refused = rocketpy("dlq", *command, group, "--id", "other", code=3).stderr
        assert f"{group} has no matching dead letter with --id other" in refused


def test_tables_shorten_tags_and_keys(rocketpy, server, topic: str):
    tag, key = "t" * 300, "k" * 300
    with Producer("filler", name_servers=server.name_server) as producer:
        sent = producer.send(Message(f"%DLQ%{topic}", b"x", tag=tag, keys=[key]))
    for table in (
        rocketpy("dlq", "show", topic).stdout,
        rocketpy("message", "query", f"%DLQ%{topic}", "--key", key).stdout,
    ):
        assert ("t" * 200 + "..." in table, "k" * 200 + "..." in table) == (True, True)
        assert (tag[:201] in table, key[:201] in table) == (False, False)
    (row,) = json.loads(rocketpy("dlq", "show", topic, "--json").stdout)
    assert (row["tag"], row["keys"], row["msg_id"]) == (tag, [key], sent.msg_id)


def test_a_group_that_gave_up_nothing_has_none(rocketpy, server, topic: str):
    name = f"{topic}-content"
    rocketpy("group", "create", name)
    assert rocketpy("dlq", "show", name).stdout == f"{name} has no dead letters at {server.name_server}\n"
    assert rocketpy("dlq", "show", name, "--json").stdout == "[]\n"
    assert rocketpy("dlq", "resend", name).stdout == f"{name} has no dead letters at {server.name_server}\n"
    assert "0 dead letters sent" in rocketpy("dlq", "resend", name, "--yes").stdout
    assert rocketpy("dlq", "export", name).stdout == ""


def test_the_topic_of_dead_letters_names_its_group(rocketpy, group: str):
    assert "three" in rocketpy("dlq", "show", f"%DLQ%{group}").stdout


def test_an_export_replaces_the_file_of_a_link_and_writes_into_a_pipe(rocketpy, group: str, tmp_path):
    real, link, dangling, pipe = (tmp_path / name for name in ("real", "link", "dangling", "pipe"))
    real.write_text("before")
    link.symlink_to(real)
    dangling.symlink_to(tmp_path / "new")
    os.mkfifo(pipe)
    for file in (link, dangling):
        rocketpy("dlq", "export", group, str(file), "--force")
        assert file.is_symlink()
        assert bodies(file.read_text()) == ["one", "two", "three"]
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        rocketpy("dlq", "export", group, str(pipe), "--force")
        assert pipe.is_fifo()
        assert bodies(os.read(reader, 1 << 16).decode()) == ["one", "two", "three"]
    finally:
        os.close(reader)
    assert {file.name for file in tmp_path.iterdir()} == {"real", "link", "dangling", "new", "pipe"}


def test_a_dash_is_standard_output(rocketpy, group: str, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert bodies(rocketpy("dlq", "export", group, "-").stdout) == ["one", "two", "three"]
    assert not list(tmp_path.iterdir())


def test_a_broker_that_hangs_leaves_resent_unknown_and_one_notice(start, command, tmp_path):
    names = start("namesrv", "--port", "0").name_server
    line = ["--port", "0", "--name-server", names, "--broker-name"]
    here, hanging = (start("broker", str(tmp_path / name), *line, name) for name in ("here", "hanging"))
    with Admin(names, api_timeout=60) as admin, Producer("dying", name_servers=names, send_timeout=60) as producer:
        admin.create_topic("orders", queues=1)
        (queue,) = (one for one in admin.queues("orders") if one.broker_name == "here")
        give_up(here.ready["broker"], "billing", *(producer.send(Message("orders", b"x"), queue=queue) for _ in "ab"))
        wait_until(lambda: len(list(admin.dead_letters("billing"))) == 2)
    hanging.process.send_signal(signal.SIGSTOP)
    try:
        shown = command("--timeout", "1", "dlq", "show", "billing", "--json", name_server=names)
        listed = command("--timeout", "1", "dlq", "list", "--json", name_server=names)
    finally:
        hanging.process.send_signal(signal.SIGCONT)
    assert [one["resent"] for one in json.loads(shown.stdout)] == [None, None]
    assert [(one["count"], one["resent"]) for one in json.loads(listed.stdout)] == [(2, None)]
    for printed in (shown, listed):
        (notice,) = printed.stderr.splitlines()
        assert notice.startswith("`resent` is unknown: ")
        assert hanging.ready["broker"] in notice


def test_the_look_ups_of_resent_copies_are_bounded_for_all_groups_together(tmp_path):
    with Server(tmp_path / "store") as server, server.admin() as admin, server.producer("filler") as producer:
        for group in ("first", "second"):
            for _ in range(2):
                producer.send(Message(f"%DLQ%{group}", b"x"))
        wait_until(lambda: [one.count for one in admin.dead_letter_groups()] == [2, 2])
        for budget, resent in ((4, [0, 0]), (3, [0, None]), (1, [None, None])):
            assert [one.resent for one in admin.dead_letter_groups(check_resent=budget)] == resent

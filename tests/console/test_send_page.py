"""Send page: fields, checks, the command, copies of stored messages, and the audit log."""

import base64
import json
import shlex
import subprocess
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest
from message_pages import CLUSTER, SAME_ORIGIN, audited, opened, stored, text_of
from starlette.testclient import TestClient

from rocketpy import Admin, Message, ReceivedMessage
from rocketpy.console.sending import draft_of
from rocketpy.testing import PatientServer, fresh_name
from waiting import wait_until


@pytest.fixture(scope="module")
def console(rocketpy_server: PatientServer) -> Iterator[TestClient]:
    with opened(rocketpy_server.name_server) as client:
        yield client


@pytest.fixture
def topic(rocketpy_server: PatientServer) -> str:
    name = fresh_name("send")
    with rocketpy_server.admin() as admin:
        admin.create_topic(name, queues=1)
    return name


def posted(client: TestClient, topic: str, **fields: str) -> Any:
    path = f"{CLUSTER}/topics/{topic}/send"
    return client.post(path, data={"step": "send", **fields}, headers=SAME_ORIGIN, follow_redirects=False)


def newest(admin: Admin, topic: str) -> ReceivedMessage:
    (queue,) = admin.queues(topic)
    wait_until(lambda: admin.max_offset(queue), "the message can be read")
    return admin.read(queue, admin.max_offset(queue) - 1)[0]


def test_message_is_sent_with_all_fields_and_shown(console, topic, rocketpy_server):
    body = '{"n": 100000000000000000000}\r\n'
    fields = {"key": "o-1 o-2", "tag": "paid", "order_key": "ada", "properties": "region=eu=1\r\nempty=x"}
    answer = posted(console, topic, body=body, **fields)
    assert answer.status_code == 303
    page = console.get(answer.headers["location"])
    assert page.status_code == 200
    assert "Sent with id" in text_of(page.text)
    with rocketpy_server.admin() as admin:
        found = newest(admin, topic)
    assert (found.body, found.tag, found.keys) == (b'{"n": 100000000000000000000}\n', "paid", ("o-1", "o-2"))
    assert (found.order_key, found.properties["region"], found.properties["empty"]) == ("ada", "eu=1", "x")
    line = audited(console, "send message")[-1]
    assert (line["object"], line["result"]) == (topic, "done")
    assert line["after"]["offset"] == 0
    assert "1000000000" not in json.dumps(line)


def test_delayed_message_waits_for_its_time(console, topic):
    answer = posted(console, topic, body="x", delay="3600")
    assert answer.headers["location"] == f"{CLUSTER}/topics/{topic}/send"
    assert "It waits for its time." in text_of(console.get(answer.headers["location"]).text)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"body": ""}, "body must not be empty"),
        ({"body": "x" * (1024 * 1024 + 1)}, "body exceeds 1,048,576 bytes"),
        ({"body": "x", "properties": "a"}, "line 1 is not NAME=VALUE"),
        ({"body": "x", "properties": "a=1\na=2"}, "line 2 repeats the name a"),
        ({"body": "x", "properties": "KEYS=1"}, "KEYS"),
        ({"body": "x", "delay": "soon"}, "delay must be a number of seconds from 0"),
        ({"body": "x", "delay": "nan"}, "delay must be a number of seconds from 0"),
        ({"body": "x", "deliver_at": "tomorrow"}, "write a time as 2026-01-31 12:00:00"),
        ({"body": "x", "delay": "1", "deliver_at": "2100-01-01"}, "deliver_at"),
        ({"body": "x", "tag": "a||b"}, "tag"),
        ({"body": "x", "copy": "nowhere"}, "place of the copied message must be BROKER/QUEUE/OFFSET"),
    ],
)
def test_invalid_field_sends_nothing(console, topic, rocketpy_server, fields, problem):
    answer = posted(console, topic, **fields)
    assert answer.status_code == 400
    assert problem in text_of(answer.text)
    with rocketpy_server.admin() as admin:
        assert admin.next_offset(admin.queues(topic)[0]) == 0


@pytest.mark.parametrize(("body", "verdict"), [('{"a": 1}', "valid JSON"), ('{"a": 1', "not JSON: line 1, column 8")])
def test_check_tells_whether_the_body_is_json_and_sends_nothing(console, topic, rocketpy_server, body, verdict):
    answer = posted(console, topic, step="check", body=body, tag="paid")
    assert answer.status_code == 200
    assert f"Body: {len(body)} B, {verdict}." in text_of(answer.text)
    servers = rocketpy_server.name_server
    assert f"rocketpy produce {topic} {shlex.quote(body)} --tag=paid --name-server={servers}" in text_of(answer.text)
    with rocketpy_server.admin() as admin:
        assert admin.next_offset(admin.queues(topic)[0]) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"body": 'it\'s $HOME `id` "x"'},
        {"body": "two\nlines\t<b>", "properties": "a b=it's %s \\n"},
        {"body": "-x", "tag": "--help"},
    ],
)
def test_words_of_the_command_survive_a_shell(fields):
    """The shell gives the words of the form to the command, and expands nothing."""
    draft = draft_of("orders", fields, UTC)
    command = draft.command("127.0.0.1:9876")
    line = command.replace("rocketpy produce", "printf '<%s>'" if "|" not in command else "cat #")
    printed = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout
    if "|" in command:
        assert json.loads(printed)["body"] == fields["body"]
        assert json.loads(printed)["properties"] == {"a b": "it's %s \\n"}
    else:
        assert printed.endswith(f"<{fields['body']}>")


def test_stored_text_is_copied_into_the_form(console, topic, rocketpy_server):
    body = b'\t{"a": "</textarea><script>"}\n'
    with rocketpy_server.admin() as admin, rocketpy_server.producer("console-copy") as producer:
        name = fresh_name("copied")
        stored(admin, producer, name, [Message(name, body, tag="t", keys=["k"], properties={"p": "v"})], queues=1)
    page = console.get(f"{CLUSTER}/topics/{name}/send", params={"copy": "broker-a/0/0"})
    assert page.status_code == 200
    assert "<script>&" not in page.text
    assert "</textarea><script>" not in page.text
    assert "p=v" in page.text
    assert 'value="t"' in page.text
    assert audited(console, "copy message")[-1]["parameters"]["offset"] == 0


def test_properties_that_the_form_cannot_hold_are_named(console, rocketpy_server):
    name = fresh_name("copied")
    with rocketpy_server.admin() as admin, rocketpy_server.producer("console-copy") as producer:
        stored(admin, producer, name, [Message(name, b"x", properties={"two": "a\nb", "one": "a"})], queues=1)
    page = text_of(console.get(f"{CLUSTER}/topics/{name}/send", params={"copy": "broker-a/0/0"}).text)
    assert "Left out, because the form cannot hold them: two." in page
    assert "one=a" in page


@pytest.mark.parametrize("body", [b"\xff\x00", b"a\r\nb", b"\x1b[31m", b"y" * 70_000])
def test_other_body_is_sent_unchanged(console, rocketpy_server, body):
    name = fresh_name("copied")
    with rocketpy_server.admin() as admin, rocketpy_server.producer("console-copy") as producer:
        stored(admin, producer, name, [Message(name, body, flag=7, tag="t")], queues=1)
        page = console.get(f"{CLUSTER}/topics/{name}/send", params={"copy": "broker-a/0/0"})
        assert "is sent unchanged" in text_of(page.text)
        assert '<textarea id="f-body"' not in page.text
        answer = posted(console, name, copy="broker-a/0/0", tag="again")
        assert answer.status_code == 303
        wait_until(lambda: admin.max_offset(admin.queues(name)[0]) == 2, "the copy can be read")
        found = newest(admin, name)
    assert (found.body, found.flag, found.tag) == (body, 7, "again")


def test_send_of_another_origin_is_refused(console, topic, rocketpy_server):
    path = f"{CLUSTER}/topics/{topic}/send"
    assert console.post(path, data={"step": "send", "body": "x"}).status_code == 403
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert console.post(path, data={"step": "send", "body": "x"}, headers=headers).status_code == 403
    with rocketpy_server.admin() as admin:
        assert admin.next_offset(admin.queues(topic)[0]) == 0


def test_send_to_an_unknown_topic_is_an_error_page(console):
    answer = posted(console, "no-such-topic", body="x")
    assert answer.status_code in (404, 502, 303)
    assert "Traceback" not in answer.text


def test_form_of_five_mebibytes_is_refused(console, topic):
    encoded = base64.b64encode(b"x" * (6 * 1024 * 1024)).decode()
    assert posted(console, topic, body=encoded).status_code == 413

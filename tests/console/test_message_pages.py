"""Pages of messages on a real server: lists, searches, hostile bodies, masks, roles and the audit log."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from message_pages import CLUSTER, audited, bodies_of, console_of, continued_at, opened, places_of, stored, text_of
from starlette.testclient import TestClient

from rocketpy import Message
from rocketpy.console.masking import MaskRule
from rocketpy.testing import PatientServer, fresh_name

SCRIPT = b"</script><script>alert(1)</script>"
HOSTILE = {
    "script": (SCRIPT, "</script><script>alert(1)</script>"),
    "image": (b'"><img src=x onerror=alert(1)>', '"><img src=x onerror=alert(1)>'),
    "template": (b"{{7*7}}", "{{7*7}}"),
    "escape": (b"red \x1b[31m", "red \\x1b[31m"),
    "direction": ("\u202edeef".encode(), "\\u202edeef"),
    "binary": (b"\xff\xfe\x00", "00000000 ff fe 00"),
    "depth": (b"[" * 100_000 + b"]" * 100_000, "JSON deeper than 100 levels"),
    "broken": (b'{"a": ', "not JSON: line 1, column 7"),
    "number": (b'{"n":100000000000000000000,"x":1e400}', '"n": 100000000000000000000, "x": 1e400'),
    "large": (b"x" * (4 * 1024 * 1024 - 1000), "Only the first 64 KiB are shown."),
}


@pytest.fixture(scope="module")
def shop(rocketpy_server: PatientServer) -> str:
    """A topic with 120 orders in two queues."""
    topic = fresh_name("shop")
    with rocketpy_server.admin() as admin, rocketpy_server.producer("console-shop") as producer:
        orders = [
            Message(
                topic,
                json.dumps({"n": n, "amount": 10**20 + n, "state": "paid" if n % 3 else "late"}).encode(),
                tag="paid" if n % 3 else "late",
                keys=[f"o-{n}"],
                properties={"region": f"eu-{n % 2}"},
            )
            for n in range(120)
        ]
        stored(admin, producer, topic, orders)
    return topic


@pytest.fixture(scope="module")
def hostile(rocketpy_server: PatientServer) -> str:
    topic = fresh_name("hostile")
    with rocketpy_server.admin() as admin, rocketpy_server.producer("console-hostile") as producer:
        messages = [
            Message(topic, body, tag="<i>tag</i>", keys=['"><img/onerror>'], properties={"<b>n": "\x1b[31m<u>{{7*7}}"})
            for body, _ in HOSTILE.values()
        ]
        stored(admin, producer, topic, messages, queues=1)
    return topic


@pytest.fixture(scope="module")
def console(rocketpy_server: PatientServer, shop: str, hostile: str) -> Iterator[TestClient]:
    with opened(rocketpy_server.name_server) as client:
        yield client


def listed(client: TestClient, topic: str, **query: Any) -> str:
    answer = client.get(f"{CLUSTER}/topics/{topic}/messages", params=query)
    assert answer.status_code == 200, text_of(answer.text)
    return answer.text


def numbers(page: str) -> list[int]:
    return [json.loads(body)["n"] for body in bodies_of(page)]


def test_newest_messages_of_all_queues_come_first(console, shop):
    page = listed(console, shop)
    found = numbers(page)
    assert len(found) == 50
    for queue in (0, 1):
        offsets = [int(one.rpartition("/")[2]) for one in places_of(page) if f"/broker-a/{queue}/" in one]
        assert offsets == list(range(59, 59 - len(offsets), -1))
        assert offsets
    assert "Read 50 of 120 messages. The page is full at " in text_of(page)


def test_continued_list_reaches_every_message_once(console, shop):
    page, found = listed(console, shop), []
    for _ in range(3):
        found += numbers(page)
        if len(found) < 120:
            page = console.get(continued_at(page)).text
    assert sorted(found) == list(range(120))
    assert "Nothing is left to read." in text_of(page)


def test_oldest_messages_come_first_on_demand(console, shop):
    places = places_of(listed(console, shop, at="oldest", size=100))
    assert len(places) == 100
    for queue in (0, 1):
        offsets = [int(one.rpartition("/")[2]) for one in places if f"/broker-a/{queue}/" in one]
        assert offsets == list(range(len(offsets)))


def test_messages_since_a_time_are_listed(console, shop):
    rows = console.get(f"/api/v1{CLUSTER}/topics/{shop}/messages", params={"at": "oldest", "size": 500}).json()["rows"]
    at = rows[60]["stored_at"]
    since = numbers(listed(console, shop, at="time", time=at, size=500))
    assert sorted(since) == sorted(json.loads(one["preview"])["n"] for one in rows if one["stored_at"] >= at)
    assert 0 < len(since) < 120
    assert numbers(listed(console, shop, at="time", time="2100-01-01 00:00:00")) == []


def test_messages_of_one_queue_from_an_offset_are_listed(console, shop):
    page = listed(console, shop, at="offset", queue="broker-a:1", offset="57", size=500)
    assert [int(place.rpartition("/")[2]) for place in places_of(page)] == [57, 58, 59]


def test_filter_finds_exact_numbers(console, shop):
    page = listed(console, shop, where=f"amount >= {10**20 + 118} or n == 3")
    assert sorted(numbers(page)) == [3, 118, 119]
    assert "Read 120 of 120 messages, 3 match." in text_of(page)


def test_filter_combines_tag_and_property(console, shop):
    found = numbers(listed(console, shop, tag="late", where='properties.region == "eu-1" and n < 20'))
    assert sorted(found) == [3, 9, 15]


@pytest.mark.parametrize("name", ["key", "unique_key"])
def test_index_finds_message(console, shop, rocketpy_server, name):
    row = console.get(f"/api/v1{CLUSTER}/topics/{shop}/messages", params={"key": "o-77"}).json()["rows"][0]
    value = "o-77" if name == "key" else row["msg_id"]
    assert numbers(listed(console, shop, **{name: value})) == [77]


def test_offset_message_id_of_another_address_connects_to_nothing(console, shop):
    """An id that names a listener of this test: nobody connects to it."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        foreign = b"\x7f\x00\x00\x01".hex() + f"{listener.getsockname()[1]:08x}" + "0" * 16
        page = text_of(listed(console, shop, unique_key=foreign))
        assert f"No message of {shop} matches." in page
        found = console.get(f"{CLUSTER}/find", params={"q": foreign})
        assert found.status_code == 200
        assert f"No message with the id {foreign}." in text_of(found.text)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"where": "amount = 1"}, "cannot read filter: `=` is not an operator, write `==` at character 8"),
        ({"where": "<script>"}, "expected a field such as `tag` or `order.amount`, not `<` at character 1"),
        ({"at": "yesterday"}, "start must be newest, oldest, time or offset"),
        ({"at": "time", "time": "soon"}, "write a time as 2026-01-31 12:00:00, or -10m for ten minutes ago"),
        ({"at": "offset"}, "an offset needs one queue"),
        ({"at": "offset", "queue": "broker-a:x"}, "queue must be a number from 0 to 2147483647"),
        ({"at": "offset", "queue": "broker-a:0", "offset": "-1"}, "offset must be a number from 0 to"),
        ({"queue": "broker-a:77"}, "topic has no queue broker-a:77"),
        ({"size": "501"}, "size must be a number from 1 to 500"),
        ({"more": "broker-a/0.1.2"}, "the place to continue at is malformed"),
        ({"more": "x"}, "more must be a number from 0 to"),
        ({"key": "k" * 1001}, "text exceeds 1,000 characters"),
    ],
)
def test_invalid_parameter_is_named_beside_the_form(console, shop, query, problem):
    answer = console.get(f"{CLUSTER}/topics/{shop}/messages", params=query)
    assert answer.status_code == 400
    assert problem in text_of(answer.text)
    assert "<script>" not in answer.text.replace('<script nonce="', "")
    assert problem in console.get(f"/api/v1{CLUSTER}/topics/{shop}/messages", params=query).json()["error"]


def test_unknown_topic_is_a_page_with_status_404(console):
    answer = console.get(f"{CLUSTER}/topics/no-such-topic/messages")
    assert answer.status_code == 404
    assert "no-such-topic" in text_of(answer.text)


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_body_is_shown_as_text(console, hostile, name):
    body, expected = HOSTILE[name]
    offset = list(HOSTILE).index(name)
    place = f"{CLUSTER}/topics/{hostile}/messages/broker-a/0/{offset}"
    answer = console.get(place)
    assert answer.status_code == 200
    assert expected in text_of(answer.text)
    for view in ("json", "text", "hex"):
        page = console.get(place, params={"view": view}).text
        assert len(page) < 600_000
        for part in ("<script>alert", "<img src", "<i>tag", "<u>", "\x1b", "\u202e", "{{49"):
            assert part not in page
    properties = console.get(place, params={"tab": "properties"}).text
    assert "\\x1b[31m<u>{{7*7}}" in text_of(properties)
    saved = console.get(f"{place}/download")
    assert saved.content == body
    assert saved.headers["content-type"] == "application/octet-stream"
    assert saved.headers["content-disposition"] == f'attachment; filename="message-0-{offset}.bin"'
    assert "sandbox" in saved.headers["content-security-policy"]
    assert saved.headers["x-content-type-options"] == "nosniff"


def test_list_of_hostile_messages_is_text(console, hostile):
    page = listed(console, hostile)
    assert len(bodies_of(page)) == len(HOSTILE)
    assert all(len(body) <= 255 for body in bodies_of(page))
    for part in ("<script>alert", "<img", "<i>tag", "\x1b", "\u202e", "{{49"):
        assert part not in page
    listed(console, hostile, where='n == 100000000000000000000 or body contains "x"')


@pytest.mark.parametrize("place", ["broker-a/0/999", "broker-a/7/0", "nobody/0/0", "broker-a/x/0", "broker-a/0/-1"])
def test_place_without_message_is_a_page_with_status_404(console, shop, place):
    answer = console.get(f"{CLUSTER}/topics/{shop}/messages/{place}")
    assert answer.status_code == 404
    assert "Traceback" not in answer.text


def test_groups_of_a_message_show_who_has_passed_it(console, shop, rocketpy_server):
    group = fresh_name("passed")
    with rocketpy_server.admin() as admin:
        admin.create_group(group)
        for queue in admin.queues(shop):
            admin.commit_offset(group, queue, 10)
    place = f"{CLUSTER}/topics/{shop}/messages/broker-a/0"
    assert f"{group} 10 ✓ consumed or skipped" in text_of(console.get(f"{place}/9?tab=groups").text)
    assert f"{group} 10 ▲ not consumed yet" in text_of(console.get(f"{place}/10?tab=groups").text)


def test_reading_leaves_no_group_and_no_offset(console, shop, rocketpy_server):
    with rocketpy_server.admin() as admin:
        groups = [one.name for one in admin.groups()]
        listed(console, shop, where="n > 5")
        console.get(f"{CLUSTER}/topics/{shop}/messages/broker-a/0/5")
        assert [one.name for one in admin.groups()] == groups


def test_each_look_is_audited_with_range_and_count(console, shop):
    listed(console, shop, at="offset", queue="broker-a:1", offset="50", where="n > 0")
    line = audited(console, "read messages")[-1]
    assert (line["object"], line["result"], line["text"]) == (shop, "done", "10 messages read, 10 shown")
    assert line["after"] == {"broker-a:1": "50-59"}
    console.get(f"{CLUSTER}/topics/{shop}/messages/broker-a/1/50")
    line = audited(console, "read message")[-1]
    assert line["parameters"] == {"queue": "broker-a:1", "offset": 50, "body": True, "tab": "body"}
    assert "amount" not in json.dumps(list(console_of(console).audit.recent)[-2:])


def test_read_without_an_audit_line_is_refused(rocketpy_server, shop, tmp_path):
    with opened(rocketpy_server.name_server, data=tmp_path) as client:
        (tmp_path / "audit.jsonl").unlink(missing_ok=True)
        (tmp_path / "audit.jsonl").mkdir()
        answer = client.get(f"{CLUSTER}/topics/{shop}/messages")
        assert answer.status_code == 503
        assert "o-119" not in answer.text


def test_reader_sees_no_messages(rocketpy_server, shop):
    with opened(rocketpy_server.name_server, role="reader") as client:
        for path in (
            "messages",
            "messages/broker-a/0/1",
            "messages/broker-a/0/1/download",
            "tail",
            "tail/stream",
            "send",
        ):
            answer = client.get(f"{CLUSTER}/topics/{shop}/{path}")
            assert answer.status_code == 403
            assert "o-" not in text_of(answer.text).replace(shop, "").replace("no-", "")
        assert client.get(f"/api/v1{CLUSTER}/topics/{shop}/messages").status_code == 403


def without_ids(page: str) -> str:
    """Page without message ids: that of a port such as 0xA711 has a one with zeros after it, as the bodies have."""
    return re.sub(r"[0-9A-F]{32}", "", page)


def test_bodies_beyond_loopback_are_shown_on_request_only(rocketpy_server, shop):
    with opened(rocketpy_server.name_server, host="0.0.0.0", public_hosts=("127.0.0.1",)) as client:
        assert set(bodies_of(listed(client, shop))) == {'<span class="muted">hidden</span>'}
        assert audited(client, "read messages")[-1]["parameters"]["bodies"] is False
        assert len(numbers(listed(client, shop, bodies="1"))) == 50
        assert audited(client, "read messages")[-1]["parameters"]["bodies"] is True
        place = f"{CLUSTER}/topics/{shop}/messages/broker-a/0/5"
        hidden = client.get(place)
        assert "The body is hidden" in text_of(hidden.text)
        assert "10000000" not in without_ids(hidden.text)
        assert audited(client, "read message")[-1]["parameters"]["body"] is False
        assert "10000000" in client.get(place, params={"bodies": "1"}).text
        assert audited(client, "read message")[-1]["parameters"]["body"] is True


def test_masked_fields_are_hidden_everywhere(rocketpy_server, shop):
    rule = MaskRule(shop, paths=("amount",), properties=("region", "KEYS"))
    with opened(rocketpy_server.name_server, masks=(rule,)) as client:
        place = f"{CLUSTER}/topics/{shop}/messages/broker-a/0/5"
        pages = [listed(client, shop), *(client.get(place, params={"tab": tab}).text for tab in ("body", "properties"))]
        pages += [client.get(place, params={"view": view}).text for view in ("json", "text", "hex")]
        pages += [client.get(f"/api/v1{place}").text, client.get(f"/api/v1{CLUSTER}/topics/{shop}/messages").text]
        for page in pages:
            assert "1000000000" not in without_ids(page)
            assert "eu-" not in page
            assert "o-11" not in page
            assert "•••" in page or "\\u2022" in page
        answer = client.get(f"{CLUSTER}/topics/{shop}/messages", params={"where": "amount > 5"})
        assert answer.status_code == 400
        assert "your role may not test `body.amount`" in text_of(answer.text)
        answer = client.get(f"{CLUSTER}/topics/{shop}/messages", params={"key": "o-5"})
        assert answer.status_code == 400
        assert "your role may not search by key here" in text_of(answer.text)
        answer = client.get(f"{CLUSTER}/topics/{shop}/tail", params={"where": "amount > 5"})
        assert answer.status_code == 400
        assert "your role may not test `body.amount`" in text_of(answer.text)
        assert client.get(f"{place}/download").status_code == 403
        assert client.get(f"{CLUSTER}/topics/{shop}/send", params={"copy": "broker-a/0/5"}).status_code == 403
    with opened(rocketpy_server.name_server, masks=(rule,), role="admin") as client:
        assert "1000000000" in listed(client, shop)


def test_search_field_opens_the_only_hit(console, shop):
    row = console.get(f"/api/v1{CLUSTER}/topics/{shop}/messages", params={"key": "o-5"}).json()["rows"][0]
    place = f"{CLUSTER}/topics/{shop}/messages/{row['broker_name']}/{row['queue_id']}/{row['offset']}"
    targets = {shop: f"{CLUSTER}/topics/{shop}", shop[:-1].upper() + shop[-1:]: f"{CLUSTER}/topics/{shop}"}
    for query, target in {**targets, row["msg_id"]: place}.items():
        answer = console.get(f"{CLUSTER}/find", params={"q": query}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, target)
    answer = console.get(f"{CLUSTER}/find", params={"q": "o-5", "topic": shop}, follow_redirects=False)
    assert answer.headers["location"] == f"{CLUSTER}/topics/{shop}/messages?key=o-5"


def test_search_without_hits_says_so(console):
    page = console.get(f"{CLUSTER}/find", params={"q": "<script>nothing"})
    assert page.status_code == 200
    assert "Nothing matches <script>nothing." in text_of(page.text)
    assert "<script>nothing" not in page.text

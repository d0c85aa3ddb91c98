"""Pages of topics and the overview, on a real server."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import rocketpy
from console_app import CLUSTER, PATIENT, QUIET, CountingAdmin, opened
from rocketpy.admin.calls import AdminCalls
from rocketpy.console import Settings
from rocketpy.console.names import to_path
from rocketpy.console.snapshot import GroupRow, TopicRow
from rocketpy.testing import SMALL_FILES, fresh_name
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from console_app import Browser
    from rocketpy.testing import PatientServer

HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{7*7}}", "\x1b[31mred", "\u202ertl", "x" * 255,
    "100%", "lone \ud800", "%RETRY%g<b>", "a|b", "a/../b", "'onmouseover='alert(1)",
)  # fmt: skip


def audit_of(browser: Browser, action: str, target: str) -> list[dict]:
    return [one for one in browser.console.audit.recent if (one["action"], one["object"]) == (action, target)]


def test_a_topic_is_listed_with_its_figures(browser: Browser, topic: str):
    browser.refresh()
    page = browser.get(f"{CLUSTER}/topics?q={topic}")
    assert page.status_code == 200
    assert f'href="{CLUSTER}/topics/{topic}"' in page.text
    rows = browser.get(f"/api/v1{CLUSTER}/topics?q={topic}").json()
    assert rows["total"] == 1
    [row] = rows["topics"]
    assert (row["name"], row["messages"], row["queues"], row["lag"]) == (topic, 3, 2, 0)


@pytest.mark.parametrize("tab", ["", "/queues", "/groups", "/config"])
def test_tabs_of_a_topic_show_it(browser: Browser, topic: str, tab: str):
    page = browser.get(f"{CLUSTER}/topics/{topic}{tab}")
    assert page.status_code == 200
    assert f"<title>{topic}" in page.text
    assert page.text.count("<h1>") == 1


def test_queues_and_groups_of_a_topic_as_json(browser: Browser, topic: str, rocketpy_server: PatientServer):
    group = fresh_name("readers")
    with rocketpy_server.consumer(group, topic) as consumer:
        wait_until(lambda: consumer.poll(timeout=1), "a message")
        consumer.commit()
    browser.refresh()
    found = browser.get(f"/api/v1{CLUSTER}/topics/{topic}/queues").json()
    assert [one["info"]["queue"]["queue_id"] for one in found["queues"]] == [0, 1]
    assert sum(one["info"]["max_offset"] for one in found["queues"]) == 3
    readers = browser.get(f"/api/v1{CLUSTER}/topics/{topic}/groups").json()["groups"]
    assert [(one["group"]["name"], one["progress"]["queues"]) for one in readers] == [(group, 2)]
    assert '<td class="num">' in browser.get(f"{CLUSTER}/topics/{topic}/groups").text


def test_a_missing_topic_is_a_page_that_says_so(browser: Browser):
    page = browser.get(f"{CLUSTER}/topics/no-such-topic")
    assert page.status_code == 404
    assert "no topic no-such-topic" in page.text
    assert browser.get(f"/api/v1{CLUSTER}/topics/no-such-topic").json()["error"].startswith("no topic")


def test_a_topic_is_created_after_its_preview(browser: Browser, rocketpy_server: PatientServer):
    name = fresh_name("made")
    form = {"name": name, "queues": "3", "attributes": "retention.hours=24", "type": ""}
    preview = browser.write(f"{CLUSTER}/topics/~new", **form, step="preview")
    assert preview.status_code == 200
    server = f"--name-server={rocketpy_server.name_server}"
    command = f"rocketpy topic create {name} --queues=3 --attribute=retention.hours=24 {server}"
    assert command in html.unescape(preview.text)
    with rocketpy_server.admin() as admin:
        assert name not in admin.topics()
        answer = browser.write(f"{CLUSTER}/topics/~new", **form, step="apply")
        assert (answer.status_code, answer.headers["location"]) == (303, f"{CLUSTER}/topics/{name}")
        assert len(admin.queues(name)) == 3
    page = browser.get(answer.headers["location"])
    assert f"Topic {name} has 3 queues at broker-a." in page.text
    assert f"Topic {name} has 3 queues" not in browser.get(f"{CLUSTER}/").text, "a message is shown once"
    assert f"{CLUSTER}/topics/{name}" in browser.get(f"{CLUSTER}/topics?q={name}").text
    started, done = audit_of(browser, "create topic", name)
    assert (started["result"], done["result"]) == ("started", "done")
    assert done["parameters"]["queues"] == 3
    assert (done["user"], done["address"]) == ("(operator)", "testclient")


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"name": ""}, "name must have"),
        ({"name": "a b"}, "name must have"),
        ({"name": "x" * 128}, "name must have"),
        ({"name": "TBW102"}, "belongs to the system"),
        ({"name": "ok", "queues": "0"}, "queues must be 1 to 16,384"),
        ({"name": "ok", "queues": "\uff19"}, "queues must be 1 to 16,384"),
        ({"name": "ok", "queues": "1", "attributes": "nonsense"}, "name=value lines"),
        ({"name": "ok", "queues": "1", "broker": "other"}, "broker is unknown"),
    ],
)
def test_invalid_new_topics_are_explained_and_keep_their_fields(browser: Browser, form: dict[str, str], says: str):
    for step in ("preview", "apply"):
        answer = browser.write(f"{CLUSTER}/topics/~new", **form, step=step)
        assert answer.status_code == 400
        assert says in html.unescape(answer.text)
        assert f'value="{form["name"]}"' in answer.text


def test_a_topic_is_changed_after_its_preview(browser: Browser, topic: str, rocketpy_server: PatientServer):
    path = f"{CLUSTER}/topics/{topic}/config"
    form = {"queues": "4", "permission": "r", "attributes": "retention.hours=24"}
    preview = browser.write(path, **form, step="preview")
    lines = html.unescape(preview.text)
    server = f"--name-server={rocketpy_server.name_server}"
    assert f"rocketpy topic update {topic} --queues=4 --attribute=retention.hours=24 {server}" in lines
    assert f"rocketpy topic perm {topic} r {server}" in lines
    with rocketpy_server.admin() as admin:
        assert admin.describe_topic(topic).brokers[0].write_queues == 2
        answer = browser.write(path, **form, step="apply")
        assert answer.status_code == 303
        [broker] = admin.describe_topic(topic).brokers
        assert (broker.read_queues, broker.write_queues, broker.writable) == (4, 4, False)
    assert "4 settings of" in browser.get(path).text
    _, done = audit_of(browser, "change topic", topic)
    assert done["before"]["broker-a read_queues"] == 2
    assert done["after"]["broker-a read_queues"] == 4
    nothing = browser.write(path, **form, step="apply")
    assert "Nothing to change" in nothing.text


def test_removed_queues_with_messages_need_a_mark(browser: Browser, topic: str):
    path = f"{CLUSTER}/topics/{topic}/config"
    refused = browser.write(path, queues="1", step="preview")
    assert refused.status_code == 400
    assert "the removed queues hold" in refused.text
    allowed = browser.write(path, queues="1", force="1", step="preview")
    assert f"rocketpy topic update {topic} --queues=1 --force --name-server=" in allowed.text


def test_a_topic_is_deleted_when_its_name_is_typed(browser: Browser, topic: str, rocketpy_server: PatientServer):
    path = f"{CLUSTER}/topics/{topic}/delete"
    command = f"rocketpy topic delete {topic} --yes --name-server={rocketpy_server.name_server}"
    assert command in html.unescape(browser.get(path).text)
    with rocketpy_server.admin() as admin:
        for wrong in ("", "other", f" {topic}", topic.upper()):
            refused = browser.write(path, name=wrong)
            assert refused.status_code == 400
            assert f"name must be {topic}" in refused.text
        assert topic in admin.topics()
        assert browser.write(path, name=topic).status_code == 303
        assert topic not in admin.topics()
    assert f"Topic {topic} is deleted." in browser.get(f"{CLUSTER}/topics").text
    assert topic not in browser.collector.snapshot.topics


def test_system_topics_cannot_be_deleted(browser: Browser):
    assert browser.write(f"{CLUSTER}/topics/TBW102/delete", name="TBW102").status_code == 404


def test_no_action_is_done_without_its_audit_line(
    browser: Browser, topic: str, rocketpy_server: PatientServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(browser.console.audit, "_path", tmp_path / "missing" / "audit.jsonl")
    answer = browser.write(f"{CLUSTER}/topics/{topic}/delete", name=topic)
    assert answer.status_code == 503
    assert "cannot write the audit log" in answer.text
    with rocketpy_server.admin() as admin:
        assert topic in admin.topics()


def test_a_failed_action_is_audited_and_shown_with_its_hint(
    browser: Browser, topic: str, monkeypatch: pytest.MonkeyPatch
):
    async def failing(_self: object, _topic: str) -> None:
        raise rocketpy.RequestTimeoutError("broker did not answer", hint="try again", may_have_been_applied=True)

    monkeypatch.setattr(AdminCalls, "delete_topic", failing)
    answer = browser.write(f"{CLUSTER}/topics/{topic}/delete", name=topic)
    assert answer.status_code == 502
    for text in ("broker did not answer", "try again", "may have been applied"):
        assert text in answer.text
    assert audit_of(browser, "delete topic", topic)[-1]["result"] == "unknown"


def test_defects_show_an_id_and_no_stack(browser: Browser, topic: str, monkeypatch: pytest.MonkeyPatch):
    def broken(*_arguments: object) -> None:
        raise KeyError("secret detail")

    monkeypatch.setattr("rocketpy.console.pages.topics.rates", broken)
    answer = browser.get(f"{CLUSTER}/topics/{topic}")
    assert answer.status_code == 500
    assert "secret detail" not in answer.text
    assert "failed by a defect of the console" in answer.text


@pytest.fixture
def hostile(browser: Browser) -> Iterator[Browser]:
    """A console whose snapshot has hostile names."""
    state = browser.collector.snapshot
    groups = {name: GroupRow(name, 1, ("t",), 9, 0, 1, 900.0, read_at=state.made_at) for name in HOSTILE}
    topics = {
        name: TopicRow(name, kind="<i>", messages=1, in_rate=5.0, groups=(name,), lag=9, read_at=state.made_at)
        for name in HOSTILE
    }
    [broker] = state.brokers
    brokers = tuple(
        replace(broker, status=replace(broker.status, broker_name=name, problems=(name,)), error=name)
        for name in HOSTILE
    )
    browser.collector._made = replace(state, topics=topics, groups=groups, brokers=brokers)
    yield browser
    browser.collector._version += 1


@pytest.mark.parametrize("path", ["/", "/topics", "/find?q=a", "/find?q=%3Cscript%3Ealert(1)", "/topics?q=%3Cb%3E"])
def test_hostile_names_are_shown_as_text(hostile: Browser, path: str):
    text = hostile.get(f"{CLUSTER}{path}").text
    for wrong in ("<script>alert", "<img src=x", "<b>", "<i>", "\x1b", "\u202e", "'onmouseover='", ">49<"):
        assert wrong not in text, wrong
    if path == "/topics":
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        for name in HOSTILE:
            assert f'href="{CLUSTER}/topics/{to_path(name)}"' in text
    rows = hostile.get(f"/api/v1{CLUSTER}/topics").json()["topics"]
    assert {row["name"] for row in rows} == set(HOSTILE)


@pytest.mark.parametrize("name", HOSTILE)
def test_pages_of_hostile_names_are_not_found(browser: Browser, name: str):
    answer = browser.get(f"{CLUSTER}/topics/{to_path(name)}")
    assert answer.status_code in {400, 404}
    for wrong in ("<script>alert", "<img src=x", "<b>", "\x1b", "\u202e"):
        assert wrong not in answer.text


def test_lists_never_call_a_broker(browser: Browser, topic: str):
    browser.refresh()
    before = CountingAdmin.calls
    for path in (
        "/", "/topics", "/topics?q=a&order=-in&page=2", "/topics?part=rows", "/?part=now", "/topics?part=frame",
        "/series", "/series?of=lag&span=24h", f"/topics/{topic}/series", f"/topics/{topic}?part=frame", "/find?q=con",
    ):  # fmt: skip
        assert browser.get(f"{CLUSTER}{path}").status_code == 200
    for path in ("/", "/topics", "/series", "/find?q=con"):
        assert browser.get(f"/api/v1{CLUSTER}{path}").status_code == 200
    assert CountingAdmin.calls == before
    browser.get(f"{CLUSTER}/topics/{topic}")
    assert CountingAdmin.calls == before + 1, "a detail page asks once"


def test_series_are_arrays_of_one_length_and_a_table(browser: Browser):
    browser.refresh()
    for span, points in (("1h", 360), ("6h", 360), ("24h", 288)):
        found = browser.get(f"{CLUSTER}/series?span={span}").json()
        assert {len(found["times"]), *map(len, found["series"])} == {points}
        assert found["labels"] == ["in", "out"]
    table = browser.get(f"{CLUSTER}/series?span=1h&as=table")
    assert "<caption" in table.text
    assert "Time (UTC)" in table.text


def test_search_opens_the_only_hit(browser: Browser, topic: str):
    browser.refresh()
    for query in (topic, topic[2:].upper()):
        answer = browser.get(f"{CLUSTER}/find", params={"q": query}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, f"{CLUSTER}/topics/{topic}")
    assert "Nothing matches" in browser.get(f"{CLUSTER}/find?q=no-such-thing").text


def test_lists_say_that_nothing_matches_and_how_to_see_more(browser: Browser):
    page = browser.get(f"{CLUSTER}/topics?q=TBW").text
    assert "No topic matches" in page
    assert "1 system topics are hidden" in html.unescape(page)
    assert "TBW102" in browser.get(f"{CLUSTER}/topics?q=TBW&system=1").text


def test_an_empty_cluster_says_the_next_step(tmp_path: Path):
    with rocketpy.Server(tmp_path / "store", settings=SMALL_FILES) as server:
        with opened(Settings(server.name_server, **PATIENT)) as browser:
            assert "No topics yet." in browser.get(f"{CLUSTER}/topics").text
            overview = browser.get(f"{CLUSTER}/").text
            assert "Nothing needs attention." in overview
            assert "No group is behind." in overview


def test_pages_without_a_name_server_say_what_does_not_answer(tmp_path: Path):
    settings = Settings("127.0.0.1:1", period=QUIET, request_timeout=0.5)
    with opened(settings, names=False) as browser:
        wait_until(lambda: browser.collector.snapshot.gaps, "the collector has failed")
        for path in ("/cluster/", "/any-name/topics"):
            page = browser.get(path)
            assert page.status_code == 200
            assert "Name server 127.0.0.1:1 does not answer" in page.text
        assert browser.get("/health/ready").status_code == 503
        assert browser.get("/health/live").status_code == 200
        assert browser.get("/cluster/topics/orders").status_code == 502


def test_a_broker_that_ends_leaves_its_last_figures(tmp_path: Path):
    settings = {**SMALL_FILES}
    with rocketpy.NameServer() as names:
        broker = rocketpy.Broker(tmp_path / "store", name_servers=names.name_server, settings=settings)
        with broker, rocketpy.Admin(names.name_server) as admin:
            admin.create_topic("orders", queues=1)
            console = opened(Settings(names.name_server, period=QUIET, request_timeout=0.5))
            browser = console.__enter__()
            assert browser.portal is not None
            assert "answers" in browser.get(f"{CLUSTER}/").text
        try:
            browser.portal.call(browser.collector.read_brokers)
            page = browser.get(f"{CLUSTER}/topics").text
            assert "broker-a does not answer" in page
            assert "Figures are from" in page
            assert 'Brokers</span> <span class="n' not in page or "0 / 1" in page
            assert "does not answer since" in browser.get(f"{CLUSTER}/").text
            assert "orders" in browser.get(f"{CLUSTER}/topics").text
        finally:
            console.__exit__(None, None, None)


def test_audit_lines_are_json_with_secrets_hidden(tmp_path: Path, rocketpy_server: PatientServer, topic: str):
    with opened(Settings(rocketpy_server.name_server, data=tmp_path / "data", **PATIENT)) as browser:
        browser.write(f"{CLUSTER}/topics/{topic}/delete", name=topic)
        path = tmp_path / "data" / "audit.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [one["result"] for one in lines] == ["started", "done"]
        assert path.stat().st_mode & 0o777 == 0o600
        assert browser.console.audit.is_kept
    with opened(Settings(rocketpy_server.name_server, data=tmp_path / "data", **PATIENT)) as browser:
        assert [one["object"] for one in browser.console.audit.recent] == [topic, topic]

"""Pages and API of alerts against a real server: rules, silences, channels, history, rights."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import waiting
from alert_sinks import HttpSink, listening
from console_visitor import WRITE, Visitor, console
from rocketpy.console.alerts.engine import Engine, Step
from rocketpy.console.alerts.records import Alert, Entry
from rocketpy.console.alerts.rules import built_in_rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import rocketpy
    from rocketpy.console.settings import Role


@pytest.fixture
def admin(rocketpy_server: rocketpy.Server) -> Iterator[Visitor]:
    with console(rocketpy_server) as client:
        yield Visitor(client)


RULE = {
    "name": "Mail is late",
    "condition": "lag",
    "threshold": "1",
    "subject": "mail*",
    "for": "0",
    "repeat": "0",
    "enabled": "yes",
}


def test_first_start_lists_the_built_in_rules(admin: Visitor) -> None:
    text = admin.page("/alerts/rules")
    assert all(rule.name in text for rule in built_in_rules())
    assert "Rules, silences, channels and history are in memory" in text
    assert "lag is at least 100,000 messages" in text
    assert {row["rule"]["id"] for row in admin.json("/alerts/rules")} == {rule.id for rule in built_in_rules()}


def test_rule_is_created_after_a_preview_then_changed_and_deleted(admin: Visitor) -> None:
    preview = admin.post("/alerts/rules/~new", step="preview", **RULE)
    assert "Create rule Mail is late" in preview
    assert "lag is at least 1 message" in preview
    assert admin.watch.store.rules == sorted(built_in_rules(), key=lambda rule: (rule.name, rule.id))
    assert "Rule Mail is late is stored." in admin.post("/alerts/rules/~new", step="apply", **RULE)
    [rule] = [one for one in admin.watch.store.rules if one.name == "Mail is late"]
    assert 'value="mail*"' in admin.page(f"/alerts/rules/{rule.id}")
    changed = admin.post(f"/alerts/rules/{rule.id}", step="preview", **(RULE | {"threshold": "5,000"}))
    assert "lag is at least 5,000 messages" in changed
    admin.post(f"/alerts/rules/{rule.id}", step="apply", **(RULE | {"threshold": "5,000"}))
    assert admin.watch.rule(rule.id).threshold == 5000
    assert "Delete rule Mail is late" in admin.post(f"/alerts/rules/{rule.id}/delete", step="preview")
    admin.post(f"/alerts/rules/{rule.id}/delete", step="apply")
    assert admin.watch.rule(rule.id) is None
    actions = [line["action"] for line in admin.client.app.state.console.audit.recent]  # type: ignore[attr-defined]
    assert actions == ["create rule"] * 2 + ["change rule"] * 2 + ["delete rule"] * 2


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"threshold": "many"}, "threshold is not an amount: many; write 100,000"),
        ({"condition": "cpu"}, "choose a condition"),
        ({"for": "-1"}, "for is not an amount: -1"),
        ({"channel": "missing"}, "no such channel: missing"),
        ({"name": ""}, "name of the rule must not be empty"),
        ({"condition": "disk", "threshold": "185 %"}, "threshold must be 0 to 100 percent"),
    ],
)
def test_form_with_a_wrong_value_is_shown_again(admin: Visitor, change: dict[str, str], text: str) -> None:
    found = admin.post("/alerts/rules/~new", 400, step="apply", **(RULE | change))
    assert text in found
    assert "mail*" in found
    answer = admin.client.post("/api/v1/cluster/alerts/rules/~new", data=RULE | change, headers=WRITE)
    assert answer.status_code == 400
    assert text in answer.json()["error"]


def test_alert_of_a_real_group_fires_is_notified_silenced_and_resolved(rocketpy_server: rocketpy.Server) -> None:
    import rocketpy

    topic, group = "alert-orders", "mail-alerts"
    sink = HttpSink(b"HTTP/1.1 500 Later\r\n\r\n")
    with listening(sink.serve) as port, console(rocketpy_server) as client, rocketpy_server.admin() as cluster:
        visitor = Visitor(client)
        cluster.create_topic(topic, queues=1)
        cluster.create_group(group)
        cluster.commit_offset(group, cluster.queues(topic)[0], 0)
        url = f"http://127.0.0.1:{port}/hook/secret-path"
        visitor.post("/alerts/channels/~new", name="ops", kind="webhook", target=url)
        visitor.post("/alerts/rules/~new", step="apply", **(RULE | {"channel": "ops", "subject": group}))
        with rocketpy_server.producer("alerts-test") as producer:
            producer.send(rocketpy.Message(topic, b"body of the message"))
        waiting.wait_until(lambda: len(sink.requests) >= 2, "the notification is delivered in the second attempt")
        notice = json.loads(sink.requests[1][1])["alerts"][0]
        assert (notice["kind"], notice["group"], notice["value"]) == ("firing", group, 1)
        assert b"body of the message" not in sink.requests[1][1]
        assert f"Group {group} has 1 message of lag (limit 1 message)." in visitor.page("/alerts?part=now")
        assert 'aria-current="page"' in visitor.page("/alerts")
        [row] = [one for one in visitor.json("/alerts")["alerts"] if one["subject"] == group]
        assert (row["state"], row["rule"]) == ("firing", "Mail is late")
        form = {"rule": row["rule_id"], "subject": group, "for": "1 h", "reason": "<script>alert(1)</script>"}
        visitor.post("/alerts/silences/~new", **form)
        silences = visitor.page("/alerts/silences")
        assert "&lt;script&gt;" in silences
        assert "<script>alert" not in silences
        [row] = [one for one in visitor.json("/alerts")["alerts"] if one["subject"] == group]
        assert row["state"] == "silenced"
        cluster.commit_offset(group, cluster.queues(topic)[0], 1)
        waiting.wait_until(lambda: len(sink.requests) >= 3, "the recovery is delivered during the silence")
        assert json.loads(sink.requests[2][1])["alerts"][0]["kind"] == "resolved"
        history = [(one["kind"], one["subject"]) for one in visitor.json("/alerts")["history"]["rows"]]
        assert [one for one in history if one[1] == group] == [("resolved", group), ("firing", group)]
        [silence] = visitor.watch.store.silences
        assert "has ended" in visitor.post(f"/alerts/silences/{silence.id}/end")
        assert "over" in visitor.page("/alerts/silences")
        pages = (
            visitor.page("/alerts/channels")
            + visitor.page("/alerts/channels/ops")
            + str(visitor.json("/alerts/channels"))
        )
        audit = json.dumps(list(client.app.state.console.audit.recent))  # type: ignore[attr-defined]
        assert "secret-path" not in pages + audit
        assert f"http://127.0.0.1:{port}/•••" in pages


def test_channel_sends_a_test_and_shows_its_failure(admin: Visitor) -> None:
    sink = HttpSink(b"HTTP/1.1 403 No\r\n\r\n")
    with listening(sink.serve) as port:
        admin.post("/alerts/channels/~new", name="a/b", kind="webhook", target=f"http://127.0.0.1:{port}/")
        assert "Test of channel a/b failed: webhook answered 403." in admin.post("/alerts/channels/a~2fb/test")
        assert "Test of channel a/b was accepted." in admin.post("/alerts/channels/a~2fb/test")
        answer = admin.client.post("/api/v1/cluster/alerts/channels/a~2fb/test", headers=WRITE)
        assert answer.json() == {"result": "Test of channel a/b was accepted."}
    assert json.loads(sink.requests[1][1])["alerts"][0]["kind"] == "test"
    assert "Delete channel a/b" in admin.post("/alerts/channels/a~2fb/delete", step="preview")
    admin.post("/alerts/channels/a~2fb/delete", step="apply")
    assert admin.json("/alerts/channels") == []


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"name": "x", "kind": "webhook", "target": "http://example.com/"}, "URL of the webhook must be https"),
        ({"name": "x", "kind": "webhook", "target": "https://169.254.169.254/"}, "must not connect to address"),
        ({"name": "x", "kind": "mail", "target": "ops@example.com"}, "this console has no mail server"),
        ({"name": "x", "kind": "pager", "target": "1"}, "choose webhook or mail"),
        ({"name": "all", "kind": "webhook", "target": "https://example.com/"}, "name of the channel is reserved: all"),
    ],
)
def test_channel_with_a_wrong_value_is_refused(admin: Visitor, form: dict[str, str], text: str) -> None:
    assert text in admin.post("/alerts/channels/~new", 400, **form)
    assert admin.watch.store.channels == []


def test_channel_of_a_rule_cannot_be_deleted(admin: Visitor) -> None:
    admin.post("/alerts/channels/~new", name="ops", kind="webhook", target="https://example.com/")
    admin.post("/alerts/rules/~new", step="apply", **(RULE | {"channel": "ops"}))
    text = admin.post("/alerts/channels/ops/delete", 400, step="apply")
    assert "cannot delete channel ops: rule Mail is late uses it" in text


PAGES = ("/alerts", "/alerts/rules", "/alerts/silences", "/alerts/channels")
MANAGE = ("/alerts/rules/~new", "/alerts/rules/lag", "/alerts/silences/~new")


@pytest.mark.parametrize("role", ["reader", "operator"])
def test_role_without_the_permission_neither_sees_nor_does_changes(
    rocketpy_server: rocketpy.Server, role: Role
) -> None:
    with console(rocketpy_server, role) as client:
        visitor = Visitor(client)
        texts = "".join(visitor.page(path) for path in PAGES)
        assert ("New rule" in texts, "New silence" in texts) == (role != "reader",) * 2
        assert "New channel" not in texts
        for path in MANAGE:
            visitor.page(path, 403 if role == "reader" else 200)
        for path in ("/alerts/rules/~new", "/alerts/rules/lag/delete", "/alerts/silences/~new"):
            if role == "reader":
                visitor.post(path, 403, **RULE)
        for path in (
            "/alerts/channels/~new",
            "/alerts/channels/x",
            "/alerts/channels/x/test",
            "/alerts/channels/x/delete",
        ):
            visitor.post(path, 403, name="x", kind="webhook", target="https://example.com/")
        assert len(visitor.watch.store.rules) == len(built_in_rules())


HOSTILE = "\"'><script>alert(1)</script>\x1b[31m\u202e{{7*7}}/../\ud800"
HOSTILE_PARTS = ("<script>alert(1)", "\x1b", "\u202e", "\ud800")


def test_hostile_names_of_groups_are_shown_as_text(admin: Visitor) -> None:
    now = admin.watch.now()
    alert = Alert("lag", HOSTILE, "firing", now, now, 5.0, now)
    admin.watch._engine = Engine([alert])
    admin.watch.store.commit(Step(entries=[Entry(now, "firing", HOSTILE, HOSTILE, HOSTILE, False)]))
    texts = [admin.page("/alerts"), admin.page("/alerts?part=now")]
    for text in texts:
        assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3
        assert not [one for one in HOSTILE_PARTS if one in text]
    assert "silences/~new" not in texts[0], "no URL can have a lone surrogate"
    admin.watch._engine = Engine([replace(alert, subject=HOSTILE[:-1])])
    link = re.search(r'href="([^"]+silences/~new[^"]+)"', admin.page("/alerts"))
    assert link is not None
    assert admin.client.get(html.unescape(link[1])).status_code == 200


def test_unknown_rule_silence_channel_and_broker_are_not_found(admin: Visitor) -> None:
    admin.page("/alerts/rules/none", 404)
    admin.post("/alerts/silences/none/end", 404)
    admin.post("/alerts/channels/none/test", 404)
    admin.post("/alerts/brokers/none/forget", 404)


def test_rules_and_history_survive_a_restart_of_the_console(rocketpy_server: rocketpy.Server, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with console(rocketpy_server, data=data) as client:
        Visitor(client).post("/alerts/rules/~new", step="apply", **RULE)
    with console(rocketpy_server, data=data) as client:
        text = Visitor(client).page("/alerts/rules")
        assert "Mail is late" in text
        assert "in memory" not in text


def test_console_without_alerts_says_so(rocketpy_server: rocketpy.Server) -> None:
    with console(rocketpy_server, alerts=False) as client:
        assert "Alerts are off in this console" in Visitor(client).page("/alerts")


LINK = re.compile(r'(?:href|action)="([^"]+)"')
"""Address of a link or a form."""
START = ("/alerts", "/brokers", "/users", "/audit", "/../api")


def test_links_and_forms_of_all_pages_lead_to_pages(admin: Visitor) -> None:
    admin.post("/alerts/channels/~new", name="a/b", kind="webhook", target="https://example.com/")
    admin.post("/alerts/silences/~new", rule="", subject="~x/y", **{"for": "1 h", "reason": ""})
    waiting.wait_until(lambda: admin.json("/brokers"), "the console has read the brokers")
    todo = [admin.client.get(f"/cluster{path}").url.path for path in START]
    seen: set[str] = set()
    while todo:
        path = todo.pop()
        place = path.partition("?")[0]
        if place in seen or place.startswith("/static") or place == "/logout" or "/topics" in place:
            continue
        seen.add(place)
        found = admin.client.get(path)
        kind = found.headers.get("content-type", "")
        # a form that takes POST only has no page
        is_form = found.status_code != 200 and admin.client.post(
            path, headers=WRITE, data={"step": "preview"}
        ).status_code in {200, 400, 502}
        assert found.status_code == 200 or is_form, f"{path}: {found.status_code}"
        if kind.startswith("text/html"):
            todo += [html.unescape(link) for link in LINK.findall(found.text) if link.startswith("/")]
    assert {f"/DefaultCluster/alerts/{part}/~new" for part in ("rules", "silences", "channels")} <= seen
    assert any("a~2fb" in path for path in seen)
    assert len(seen) > 25

"""Pages of groups on a real server: list, lag, members, retries, reset in three steps, settings, copies, deletion."""

import json

import pytest
from group_pages import hidden, text_of, visiting

from rocketpy import Message, Start
from rocketpy.console.snapshot import GroupRow, Snapshot
from rocketpy.testing import fresh_name
from waiting import wait_until


@pytest.fixture(scope="module")
def visitor(rocketpy_server):
    with visiting(rocketpy_server.name_server) as visitor:
        yield visitor


@pytest.fixture(scope="module")
def reader(rocketpy_server):
    with visiting(rocketpy_server.name_server, "reader") as visitor:
        yield visitor


@pytest.fixture
def admin(rocketpy_server):
    with rocketpy_server.admin() as admin:
        yield admin


@pytest.fixture
def group():
    return fresh_name("mailer")


@pytest.fixture
def sent(rocketpy_server, rocketpy_topic):
    """Eight messages of a topic with four queues."""
    with rocketpy_server.producer("shop") as producer:
        return [producer.send(Message(rocketpy_topic, b"%d" % n)) for n in range(8)]


@pytest.fixture
def behind(admin, group, rocketpy_topic, sent):
    """Group without members, at the start of the topic."""
    admin.create_group(group)
    admin.reset_offsets(group, rocketpy_topic, Start.EARLIEST)
    return group


def committed(admin, group, topic):
    return {one.queue.queue_id: one.committed_offset for one in admin.group_lag(group, topic)}


def test_list_shows_groups_of_the_snapshot_and_filters_them(visitor, admin, behind):
    idle = fresh_name("idle")
    admin.create_group(idle)
    text = visitor.shows(f"{behind} ▲ 0 1 8", "groups", q=behind)
    assert "1\N{EN DASH}1 of 1" in text
    visitor.shows(idle, "groups", q=idle)
    assert "No group matches" in visitor.text("groups", q=idle, lag="1")
    assert behind in visitor.text("groups", q=behind, lag="1", idle="1")
    assert "No group matches" in visitor.text("groups", q=behind, differs="1")
    data = visitor.get("api", "groups", q=behind).json()
    assert [(one["name"], one["lag"], one["members"]) for one in data["groups"]] == [(behind, 8, 0)]


def test_list_never_calls_a_broker(visitor, monkeypatch: pytest.MonkeyPatch):
    class Refusing:
        def __getattr__(self, name):
            raise AssertionError(f"the list calls {name}")

    session_of = type(visitor.console.sessions).visitor

    def without_client(self, token, *, renews=True):
        session = session_of(self, token, renews=renews)
        session.admin = Refusing()
        return session

    monkeypatch.setattr(type(visitor.console.sessions), "visitor", without_client)
    for page in ("groups", "dead-letters"):
        visitor.get(page)
        visitor.get(page, part="rows")
    visitor.get("waiting", kind="retry")


def test_group_shows_lag_by_topic_that_opens_to_queues(visitor, admin, behind, rocketpy_topic, sent):
    (queue, *_) = [one.queue for one in admin.group_lag(behind) if one.max_offset]
    text = visitor.text("groups", behind)
    assert f"▾ {rocketpy_topic} 4 8" in text, "the only topic is open"
    assert f"{queue.broker_name}:{queue.queue_id}" in text
    assert "Skip to the end" in text
    data = visitor.get("api", "groups", behind).json()
    assert (data["lag"], data["members"]) == (8, 0)
    (topic,) = data["topics"]
    assert sum(one["lag"] for one in topic["queues"]) == 8
    assert topic["behind"] > 0
    assert all(one["owners"] == [] for one in topic["queues"])


def test_group_names_the_owner_of_each_queue_and_the_report_of_a_member(
    visitor, rocketpy_server, behind, rocketpy_topic
):
    consumer = rocketpy_server.push_consumer(behind)
    consumer.on(rocketpy_topic)(lambda _message: None)
    with consumer:
        visitor.shows("PYTHON", "groups", behind, "members")
        with rocketpy_server.admin() as admin:
            (client,) = admin.group_members(behind)
        visitor.shows(f":0 {client}", "groups", behind)
        text = visitor.text("groups", behind, "members", client=client)
        assert f"Report of {client}" in text
        assert "rocketpy" in text
        assert "Stacks" not in text.replace("Show stacks", "")
        assert "MainThread" in visitor.text("groups", behind, "members", client=client, stacks="1")
        missing = visitor.text("groups", behind, "members", client="nobody@host")
        assert "●" in missing


def test_members_with_other_subscriptions_are_marked(visitor, rocketpy_server, rocketpy_topic, group):
    other = fresh_name("other-topic")
    with (
        rocketpy_server.admin() as admin,
        rocketpy_server.consumer(group, rocketpy_topic, allow_other_subscriptions=True) as first,
    ):
        admin.create_topic(other, queues=1)
        first.poll(timeout=0.1)
        wait_until(lambda: admin.group_members(group))
        with rocketpy_server.consumer(group, other, allow_other_subscriptions=True) as second:
            second.poll(timeout=0.1)
            text = visitor.shows("▲ differs", "groups", group, "members")
    assert f"{other}: *" in text
    assert "The members subscribe to different topics or tags" in text


def test_retries_that_wait_and_those_that_are_due_are_counted(visitor, rocketpy_server, rocketpy_topic, group, sent):
    consumer = rocketpy_server.push_consumer(group)

    @consumer.on(rocketpy_topic)
    def handle(_message):
        raise ValueError("not now")

    with consumer:
        visitor.shows("Wait for their retry 8", "groups", group, "retry")
    text = visitor.text("groups", group, "retry")
    assert "next at 20" in text
    assert "Retries before a message dies 16" in text
    data = visitor.get("api", "groups", group, "retry").json()
    assert data["waiting"]["messages"] == 8
    assert data["errors"] == []


def previewed(visitor, group, **query):
    page = visitor.get("groups", group, "reset", **query)
    return text_of(page.text), hidden(page.text)


def test_reset_shows_each_queue_first_and_reads_the_result_back(visitor, admin, behind, rocketpy_topic):
    text, form = previewed(visitor, behind, topic=rocketpy_topic, to="latest")
    assert "4 queues: 0 messages will be delivered again, 8 skipped." in text
    assert f"rocketpy group reset {behind} --topic={rocketpy_topic} --to=latest" in text
    assert sum(committed(admin, behind, rocketpy_topic).values()) == 0, "a preview changes nothing"
    done = text_of(visitor.post("groups", behind, "reset", form=form, status=200).text)
    assert "as read back" in done
    assert sum(committed(admin, behind, rocketpy_topic).values()) == 8
    lines = visitor.audit("reset group")[-2:]
    assert [one[1] for one in lines] == ["started", "done"]
    back, form = previewed(visitor, behind, topic=rocketpy_topic, to="time", at="2020-01-01 00:00")
    assert "8 messages will be delivered again" in back
    assert form["at"] == "2020-01-01T00:00:00.000Z"
    visitor.post("groups", behind, "reset", form=form, status=200)
    assert sum(committed(admin, behind, rocketpy_topic).values()) == 0


def test_reset_of_one_queue_leaves_the_others(visitor, admin, behind, rocketpy_topic):
    queue = admin.queues(rocketpy_topic)[2]
    name = f"{queue.broker_name}:{queue.queue_id}"
    text, form = previewed(visitor, behind, topic=rocketpy_topic, to="queue", queue=name, offset="1")
    assert f"{name} 0 1 +1 0 1" in text
    assert (
        f"rocketpy offset set {behind} --topic={rocketpy_topic} --broker={queue.broker_name} --queue=2 --to=1" in text
    )
    visitor.post("groups", behind, "reset", form=form, status=200)
    assert committed(admin, behind, rocketpy_topic) == {0: 0, 1: 0, 2: 1, 3: 0}
    text, form = previewed(visitor, behind, topic=rocketpy_topic, to="queue", queue=name, offset="999")
    assert "●" in text
    assert "mark" not in form


def test_reset_is_refused_when_the_commits_moved_since_the_preview(visitor, admin, behind, rocketpy_topic):
    _, form = previewed(visitor, behind, topic=rocketpy_topic, to="latest")
    admin.set_offset(behind, admin.queues(rocketpy_topic)[0], 1)
    page = visitor.post("groups", behind, "reset", form=form, status=409).text
    assert "The committed offsets moved since the preview. Nothing was changed" in text_of(page)
    assert committed(admin, behind, rocketpy_topic)[0] == 1
    visitor.post("groups", behind, "reset", form=hidden(page), status=200)
    assert sum(committed(admin, behind, rocketpy_topic).values()) == 8


def test_reset_is_refused_while_members_are_online_unless_forced(
    visitor, rocketpy_server, admin, behind, rocketpy_topic
):
    with rocketpy_server.consumer(behind, rocketpy_topic, auto_commit=False) as consumer:
        consumer.poll(timeout=0.1)
        wait_until(lambda: admin.group_members(behind))
        text, form = previewed(visitor, behind, topic=rocketpy_topic, to="latest")
        assert f"Group {behind} has 1 member online" in text
        assert "--force" in text
        page = visitor.post("groups", behind, "reset", form=form, status=409).text
        assert "The group has members online. Nothing was changed" in text_of(page)
        assert sum(committed(admin, behind, rocketpy_topic).values()) == 0
        assert visitor.audit("reset group")[-1][:2] == (behind, "failed")
        queue = admin.queues(rocketpy_topic)[0]
        single = {"to": "queue", "queue": f"{queue.broker_name}:{queue.queue_id}", "offset": "1"}
        _, one = previewed(visitor, behind, topic=rocketpy_topic, **single)
        visitor.post("groups", behind, "reset", form=one, status=409)
        visitor.post("groups", behind, "reset", form={**hidden(page), "force": "1"}, status=200)
    assert visitor.audit("reset group")[-1][:2] == (behind, "done")


def test_reset_without_topic_or_with_an_invalid_time_shows_the_form(visitor, behind, rocketpy_topic):
    text, form = previewed(visitor, behind)
    assert "Preview" in text
    assert form == {}
    text, form = previewed(visitor, behind, topic=rocketpy_topic, to="time", at="soon")
    assert "not a point in time: soon" in text
    assert form == {}
    text, _ = previewed(visitor, behind, topic=fresh_name("nowhere"), to="latest")
    assert "●" in text
    visitor.post("groups", behind, "reset", form={"topic": rocketpy_topic, "to": "x"}, status=400)


def test_group_is_created_changed_and_deleted_by_its_typed_name(visitor, admin, group):
    text = visitor.text("groups", "~new", name=group)
    assert "would create the group" in text
    assert f"rocketpy group create {group}" in text
    visitor.post("groups", "~new", form={"name": group})
    assert f"Group {group} exists at" in visitor.text("groups", group)
    page = visitor.get("groups", group, "config", retries="3", enabled="off").text
    assert f"rocketpy group update {group} --suspend --retries=3" in text_of(page)
    assert admin.group_settings(group)[0].retries == 16
    visitor.post("groups", group, "config", form=hidden(page))
    assert (admin.group_settings(group)[0].retries, admin.group_settings(group)[0].enabled) == (3, False)
    assert "may read is off" in visitor.text("groups", group, "config")
    visitor.post("groups", group, "config", form={"retries": "many"}, status=400)
    visitor.post("groups", group, "delete", form={"confirm": group.upper()}, status=400)
    assert admin.group_settings(group)
    visitor.post("groups", group, "delete", form={"confirm": group})
    visitor.get("groups", group, status=404)
    assert [one[1] for one in visitor.audit("delete group") if one[0] == group] == ["started", "done"]


def test_deletion_of_a_group_with_members_is_refused(visitor, rocketpy_server, admin, rocketpy_topic, group):
    with rocketpy_server.consumer(group, rocketpy_topic) as consumer:
        consumer.poll(timeout=0.1)
        wait_until(lambda: admin.group_members(group))
        visitor.post("groups", group, "delete", form={"confirm": group}, status=409)
    assert visitor.audit("delete group")[-1][:2] == (group, "failed")


def test_offsets_are_copied_to_another_group(visitor, admin, behind, rocketpy_topic):
    target = fresh_name("green")
    admin.create_group(target)
    text = visitor.text("groups", target, "clone", source=behind)
    assert f"rocketpy group clone {behind} {target}" in text
    visitor.post("groups", target, "clone", form={"source": behind, "topic": ""})
    assert committed(admin, target, rocketpy_topic) == committed(admin, behind, rocketpy_topic)
    visitor.post("groups", target, "clone", form={}, status=400)


CHANGES = [
    ("~new", {"name": "made-by-a-reader"}),
    ("reset", {"to": "latest"}),
    ("config", {"retries": "1"}),
    ("clone", {"source": "x"}),
    ("delete", {"confirm": "x"}),
]


@pytest.mark.parametrize(("action", "form"), CHANGES)
def test_reader_changes_nothing_and_sees_no_buttons(reader, admin, behind, action, form):
    parts = ("groups", "~new") if action == "~new" else ("groups", behind, action)
    assert "no permission" in text_of(reader.post(*parts, form=form, status=403).text).lower()
    reader.post("api", *parts, form=form, status=403)
    assert admin.group_settings(behind)[0].retries == 16


def test_reader_reads_pages_without_actions(reader, behind):
    for parts in ((), (behind,), (behind, "members"), (behind, "retry"), (behind, "config")):
        text = reader.text("groups", *parts)
        for word in ("New group", "Skip to the end", "Reset", "Delete group"):
            assert word not in text, parts
    reader.get("groups", behind, "reset", status=403)
    reader.get("dead-letters", status=403)
    reader.get("waiting")


def test_unknown_group_is_not_found(visitor):
    nobody = fresh_name("nobody")
    for tab in ((), ("members",), ("retry",), ("reset",), ("config",)):
        visitor.get("groups", nobody, *tab, status=404)
        data = visitor.get("api", "groups", nobody, *tab, status=404).json()
        assert nobody in data["error"]


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}",
    "\x1b[31m",
    "a\u202eb",
    "%25|/..",
    "x" * 300,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_as_text(visitor, name):
    for parts in (("groups", name), ("groups", name, "config"), ("dead-letters", name)):
        found = visitor.client.get(visitor.url(*parts))
        assert found.status_code in {400, 404, 502}, (parts, found.status_code)
        for bad in ("<script>alert", "<img src=x", "\x1b", "\u202e"):
            assert bad not in found.text
    for query in ({"q": name}, {"q": name, "order": name, "page": name, "size": name}):
        page = visitor.get("groups", **query).text
        assert "<script>alert" not in page
        assert "<img src=x" not in page
    page = visitor.get("groups", "~new", name=name, status=400).text
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "group name" in text_of(page), "the form has the reason"


def test_hostile_names_of_a_broker_are_shown_as_text_in_lists(visitor, monkeypatch: pytest.MonkeyPatch):
    at = visitor.console.collector.snapshot.made_at
    rows = {
        name: GroupRow(name, members=0, topics=(name,), lag=3, retries=2, dead_letters=1, read_at=at, error=name)
        for name in HOSTILE
    }
    hostile = Snapshot(version=1, made_at=at, cluster=visitor.console.cluster, groups=rows, groups_at=at, topics_at=at)
    monkeypatch.setattr(type(visitor.console.collector), "snapshot", property(lambda _: hostile))
    for parts, query in ((("groups",), {}), (("dead-letters",), {}), (("waiting",), {"kind": "retry"})):
        page = visitor.get(*parts, **query).text
        for bad in ("<script>alert", "<img src=x", "\x1b", "\u202e"):
            assert bad not in page, (parts, bad)
        text = text_of(page)
        for name in ("<script>alert(1)</script>", "{{7*7}}", "\\x1b[31m", "a\\u202eb", "%25|/..", "x" * 80 + "…"):
            assert name in text, (parts, name)
        assert "/%2525%7C~2f.." in page, "links lead to the same name"


def test_chart_of_the_lag_has_points(visitor, behind):
    def points():
        data = visitor.get("groups", behind, "series").json()
        return [value for value in data["series"][0] if value is not None]

    wait_until(points, "a point of the lag")
    assert points()[-1] == 8
    assert json.dumps(visitor.get("api", "groups", behind, "series").json())
    assert "Lag of" in visitor.text("groups", behind, "series", **{"as": "table"})

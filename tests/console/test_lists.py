"""Lists in memory: filters, order and pages of topics; what needs attention."""

import time
from dataclasses import replace

import pytest

from rocketpy import BrokerStatus
from rocketpy.admin.answers import MissingBroker
from rocketpy.admin.cluster import QueueInfo, QueueLag, TopicInfo
from rocketpy.admin.replication import HaStatus
from rocketpy.base.instant import datetime_of
from rocketpy.console.attention import found_in
from rocketpy.console.pages.topics import COLUMNS, filtered, hidden
from rocketpy.console.sampling import due_groups, due_topics, round_seconds
from rocketpy.console.snapshot import BrokerRow, GroupRow, Snapshot, TopicLag, TopicRow, sampled_group, topic_row
from rocketpy.console.tables import page_of, sorted_rows
from rocketpy.message import MessageQueue

NOW = 1_700_000_000.0


def snapshot(*topics: TopicRow, **values: object) -> Snapshot:
    return replace(Snapshot(made_at=NOW, topics={row.name: row for row in topics}), **values)


TOPICS = snapshot(
    TopicRow("orders", kind="normal", messages=5, lag=3, last_stored=NOW - 10, read_at=NOW),
    TopicRow("Orders-eu", kind="fifo", messages=9, lag=0, last_stored=NOW - 10, read_at=NOW),
    TopicRow("idle", kind="normal", messages=0, lag=0, last_stored=None, read_at=NOW),
    TopicRow("unread"),
    TopicRow("%RETRY%orders", is_system=True, messages=1, read_at=NOW, last_stored=NOW),
)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["Orders-eu", "idle", "orders", "unread"]),
        ({"q": "ORD"}, ["Orders-eu", "orders"]),
        ({"q": "ord", "system": "1"}, ["%RETRY%orders", "Orders-eu", "orders"]),
        ({"type": "fifo"}, ["Orders-eu"]),
        ({"lag": "1"}, ["orders"]),
        ({"idle": "1"}, ["idle"]),
        ({"q": "<script>"}, []),
    ],
)
def test_filters_of_topics(query: dict[str, str], names: list[str]):
    assert sorted(row.name for row in filtered(TOPICS, query)) == names


def test_hidden_system_topics_that_match_are_counted():
    assert hidden(TOPICS, {}) == 1
    assert hidden(TOPICS, {"q": "idle"}) == 0
    assert hidden(TOPICS, {"system": "1"}) == 0


def test_every_column_sorts_with_the_name_as_second_key_and_unknown_figures_last():
    for column in COLUMNS:
        for order in (column, f"-{column}"):
            rows = sorted_rows(TOPICS.topics.values(), order, COLUMNS, lambda row: row.name)
            assert len(rows) == len(TOPICS.topics)
            if column not in {"name", "type"}:
                assert rows[-1].name == "unread"
    most = sorted_rows(TOPICS.topics.values(), "-messages", COLUMNS, lambda row: row.name)
    assert [row.name for row in most] == ["Orders-eu", "orders", "%RETRY%orders", "idle", "unread"]
    unknown = sorted_rows(TOPICS.topics.values(), "-nothing", COLUMNS, lambda row: row.name)
    assert [row.name for row in unknown] == sorted(TOPICS.topics)


def test_pages_are_clamped():
    rows = list(range(10_000))
    page = page_of(rows, {"page": "200", "size": "50"})
    assert (page.rows[0], page.first, page.last, page.pages) == (9950, 9951, 10_000, 200)
    assert page_of(rows, {"page": "999999999999", "size": "-5"}).page == 1
    assert page_of(rows, {"page": "201"}).page == 200
    assert page_of(rows, {"page": "²"}).page == 1
    empty = page_of([], {})
    assert (empty.first, empty.last, empty.pages, empty.numbers) == (0, 0, 1, [1])


def test_ten_thousand_topics_are_filtered_and_sorted_in_milliseconds():
    state = snapshot(*(TopicRow(f"topic-{at:05d}", messages=at % 977, read_at=NOW) for at in range(10_000)))
    took = []
    for _ in range(5):
        began = time.process_time()
        page_of(sorted_rows(filtered(state, {"q": "topic"}), "-messages", COLUMNS, lambda row: row.name), {})
        took.append(time.process_time() - began)
    assert min(took) < 0.1


def queue(number: int, low: int, high: int, at: float | None = NOW) -> QueueInfo:
    return QueueInfo(MessageQueue("orders", "a", number), low, high, datetime_of(int(at * 1000)) if at else None)


def test_rates_come_from_two_samples_and_a_reset_is_not_negative():
    first = topic_row(TopicRow("orders"), TopicInfo("orders", (), (queue(0, 0, 100),)), NOW)
    assert (first.messages, first.in_rate, first.last_stored) == (100, None, NOW)
    second = topic_row(first, TopicInfo("orders", (), (queue(0, 50, 150),)), NOW + 10)
    assert (second.messages, second.in_rate, second.still) == (100, 5.0, 0)
    third = topic_row(second, TopicInfo("orders", (), (queue(0, 0, 10),)), NOW + 20)
    assert third.in_rate == 0
    assert topic_row(TopicRow("new"), TopicInfo("new", (), (queue(0, 0, 0, None),)), NOW).in_rate == 0


def test_broker_that_comes_back_makes_no_spike_in_the_rate_of_a_topic():
    both, one = (queue(0, 0, 100), queue(1, 0, 1_000_000)), (queue(0, 0, 110),)
    missing = (MissingBroker("b", "127.0.0.1:2", "gone", None),)
    first = topic_row(TopicRow("orders"), TopicInfo("orders", (), both), NOW)
    partial = topic_row(first, TopicInfo("orders", (), one, missing=missing), NOW + 10)
    assert (partial.max_offsets, partial.in_rate, partial.still) == (None, None, 0)
    back = topic_row(partial, TopicInfo("orders", (), both), NOW + 20)
    assert (back.max_offsets, back.in_rate) == (1_000_100, None)
    assert topic_row(back, TopicInfo("orders", (), both), NOW + 30).in_rate == 0


def test_queues_of_one_sample_only_make_no_spike_in_the_rate_of_a_group():
    def lag(number: int, committed: int | None) -> QueueLag:
        return QueueLag(MessageQueue("orders", "a", number), committed, 10, 0, None, 0)

    rows = [GroupRow("g")]
    for at, lags in enumerate([
        [lag(0, 100)], [lag(0, 150), lag(1, 1_000_000), lag(2, None)], [lag(1, 1_000_010), lag(2, 900)], [lag(3, 1)],
    ]):  # fmt: skip
        rows.append(sampled_group(rows[-1], lags, NOW + 10 * at, "%RETRY%g"))
    assert [row.out_rate for row in rows[1:]] == [None, 5.0, 1.0, None]


def test_lag_of_a_group_is_that_of_its_topics_without_retries():
    def lag(topic: str, committed: int, behind: int) -> QueueLag:
        at = datetime_of(int((NOW - 60) * 1000))
        return QueueLag(MessageQueue(topic, "a", 0), committed, committed + behind, behind, at, 0)

    before = sampled_group(GroupRow("g"), [lag("orders", 100, 0)], NOW - 10, "%RETRY%g")
    assert before.behind is None
    row = sampled_group(before, [lag("orders", 150, 7), lag("%RETRY%g", 5, 3)], NOW, "%RETRY%g")
    assert row.by_topic["orders"] == TopicLag(7, 1, 1, 60.0, {"a:0": 150}, 5.0)
    assert (row.behind, row.out_rate) == (60.0, 5.0)


def test_topics_are_sampled_on_screens_first_then_the_oldest_and_failed_ones_wait():
    rows = [
        TopicRow("new"),
        TopicRow("failed", tried_at=NOW - 10),
        TopicRow("failed-long-ago", tried_at=NOW - 60),
        TopicRow("moving", read_at=NOW - 51),
        TopicRow("fresh", read_at=NOW - 49),
        TopicRow("still", read_at=NOW - 199, still=3),
        TopicRow("still-and-old", read_at=NOW - 201, still=3),
        TopicRow("on-screen", read_at=NOW - 6, still=9),
        TopicRow("system", is_system=True),
        TopicRow("system-on-screen", is_system=True),
    ]
    watched = {("topic", "on-screen"): 1.0, ("topic", "system-on-screen"): 1.0}
    assert due_topics(rows, watched, NOW, 5.0, 50.0) == [
        "system-on-screen", "on-screen", "new", "failed-long-ago", "moving", "still-and-old",
    ]  # fmt: skip


def test_groups_without_offsets_are_read_once():
    rows = [
        GroupRow("new"),
        GroupRow("empty", sampled_at=NOW - 999),
        GroupRow("reader", topics=("orders",), sampled_at=NOW - 61),
        GroupRow("fresh", topics=("orders",), sampled_at=NOW - 59),
        GroupRow("on-screen", sampled_at=NOW - 6),
        GroupRow("failed", tried_at=NOW - 1),
    ]
    assert due_groups(rows, {("group", "on-screen"): 1.0}, NOW, 5.0, 60.0) == ["on-screen", "new", "reader"]


def test_a_round_takes_as_long_as_the_budget_allows():
    assert round_seconds(10, 100, 5.0) == 15
    assert round_seconds(5000, 100, 5.0) == 50
    assert round_seconds(5000, 100, 5.0, is_slowed=True) == 200


def broker(name: str, broker_id: int = 0, **values: object) -> BrokerRow:
    status = BrokerStatus("c", name, broker_id, "127.0.0.1:1", None, values.pop("disk", 0.5), 1.0, 1.0, 1, 0, None)
    return BrokerRow(status, NOW, **values)


NO_SLAVES = HaStatus(True, 0, (), (), None)


def test_attention_names_the_worst_first_and_nothing_when_all_is_well():
    assert found_in(snapshot(brokers=(broker("a", ha=NO_SLAVES),))) == []
    groups = {
        "mailer": GroupRow(
            "mailer", members=2, lag=90, behind=720.0, by_topic={"orders": TopicLag(90, 2, 4, 720.0)}, read_at=NOW
        ),
        "audit": GroupRow("audit", members=0, lag=4120, read_at=NOW),
        "young": GroupRow("young", members=1, lag=5, behind=3.0, read_at=NOW),
        "dead": GroupRow("dead", members=1, lag=0, dead_letters=1, read_at=NOW),
        "unknown": GroupRow("unknown", error="timeout"),
    }
    brokers = (
        broker("a", ha=NO_SLAVES),
        broker("a", 1),
        broker("b", failed_at=NOW, error="did not answer"),
        broker("c", disk=0.95),
    )
    texts = [one.text for one in found_in(snapshot(brokers=brokers, groups=groups))]
    assert texts == [
        "Broker b does not answer: did not answer.",
        "Broker a has no slave.",
        "Disk of c is 95 % full.",
        "Group audit has no members and 4,120 messages of lag.",
        "Group mailer is 12 min behind on 2 of 4 queues of orders.",
        "Group dead has 1 dead letter.",
        "Group unknown is unknown: timeout.",
    ]

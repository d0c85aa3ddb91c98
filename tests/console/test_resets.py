"""Plans of resets, command lines, and rows of progress, without a server."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from rocketpy import InvalidArgumentError, MessageQueue
from rocketpy.config import Start
from rocketpy.console.progress import member_rows, topic_rows
from rocketpy.console.resets import QueuePlan, ResetPlan, Target, target_of


def queue(number=0, topic="orders"):
    return MessageQueue(topic, "broker-a", number)


@pytest.mark.parametrize(
    ("form", "target", "where"),
    [
        ({"to": "earliest"}, Target("earliest"), "earliest"),
        ({"to": "latest", "at": "nonsense"}, Target("latest"), "latest"),
        ({"to": "time", "at": " 2026-11-28 13:00:00.250 "}, Target("time", 1795870800250), "2026-11-28T13:00:00.250Z"),
        ({"to": "time", "at": "2026-11-28T14:00:00+01:00"}, Target("time", 1795870800000), "2026-11-28T13:00:00.000Z"),
        ({"to": "queue", "queue": "a:0", "offset": "4,820"}, Target("queue", None, "a:0", 4820), "4820"),
    ],
)
def test_target_is_read_from_a_form_with_times_in_utc(form, target, where):
    assert target_of(form) == target
    assert target.where == where


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"to": "stored"},
        {"to": "time"},
        {"to": "time", "at": "soon"},
        {"to": "time", "at": "99999999-01-01"},
        {"to": "queue", "queue": "a:0", "offset": "-1"},
        {"to": "queue", "queue": "a:0", "offset": "9" * 30},
        {"to": "queue", "queue": "a:0", "offset": "\u0662"},
        {"to": "queue", "offset": "5"},
    ],
)
def test_target_of_an_invalid_form_is_refused(form):
    with pytest.raises(InvalidArgumentError):
        target_of(form)


def test_start_of_a_target_is_that_of_the_sdk():
    at = datetime(2026, 11, 28, 13, tzinfo=UTC)
    assert target_of({"to": "time", "at": "2026-11-28T13:00Z"}).start == Start.at(at)
    assert (Target("earliest").start, Target("latest").start) == (Start.EARLIEST, Start.LATEST)


@pytest.mark.parametrize(
    ("before", "after", "change", "again", "skipped"),
    [
        (5119, 4820, -299, 299, 0),
        (100, 100, 0, 0, 0),
        (10, 60, 50, 0, 40),
        (None, 0, None, 0, 0),
        (None, 30, None, 0, 10),  # 20 to 30 are stored and never delivered
        (5, 100, 95, 0, 80),  # offsets below 20 have expired
        (50, 0, -50, 30, 0),
        (200, 50, -150, 50, 0),  # the commit is past the end
    ],
)
def test_plan_counts_stored_messages_that_are_repeated_or_skipped(before, after, change, again, skipped):
    high = 5200 if (before or 0) > 1000 else 100
    plan = QueuePlan(queue(), before, after, 20, high)
    assert (plan.change, plan.again, plan.skipped) == (change, again, skipped)


def plan(*former, target=None, group="mailer", topic="orders"):
    rows = tuple(QueuePlan(queue(n), before, 4, 0, 9) for n, before in enumerate(former))
    return ResetPlan(group, topic, target or Target("latest"), rows)


def test_mark_changes_with_each_commit_and_not_with_the_end_of_a_queue():
    marks = [plan(1, 2).mark, plan(1, 3).mark, plan(1, None).mark, plan(1, 2, group="other").mark]
    assert len(set(marks)) == len(marks)
    longer = ResetPlan(
        "mailer", "orders", Target("latest"), (QueuePlan(queue(0), 1, 8, 0, 10), QueuePlan(queue(1), 2, 8, 0, 9))
    )
    assert longer.mark == plan(1, 2).mark


def test_command_does_the_same_as_the_page():
    assert plan(1, 2).command("127.0.0.1:9876") == "rocketpy group reset mailer --topic=orders --to=latest"
    forced = plan(1, target=Target("time", 1795870800000), group="-g", topic="a b").command("n:1", force=True)
    expected = "rocketpy group reset --topic='a b' --to=2026-11-28T13:00:00.000Z --force --name-server=n:1 -- -g"
    assert forced == expected
    single = plan(1, target=Target("queue", None, "broker-a:0", 4)).command("127.0.0.1:9876")
    assert single == "rocketpy offset set mailer --topic=orders --broker=broker-a --queue=0 --to=4"


def test_summary_names_at_most_100_queues():
    assert plan(1, None).summary() == "broker-a:0 1, broker-a:1 None"
    assert plan(*range(103)).summary().endswith("broker-a:99 99 and 3 more queues")


def lag(number, committed, high, topic="orders", at=None):
    return SimpleNamespace(
        queue=queue(number, topic), committed_offset=committed, max_offset=high,
        lag=high - (committed or 0), last_consumed_at=at, held=1,
    )  # fmt: skip


def test_topic_rows_sum_their_queues_and_keep_unknown_apart_from_zero():
    late = datetime(2026, 11, 28, tzinfo=UTC)
    lags = [lag(1, 5, 9), lag(0, 9, 9, at=late), lag(0, None, 4, topic="bills")]
    bills, orders = topic_rows(lags, {queue(1): 720.5}, {queue(1): ("worker-1",)})
    assert (bills.topic, bills.never, bills.behind, bills.lag) == ("bills", 1, None, 4)
    assert (orders.lag, orders.held, orders.behind, orders.last_consumed_at) == (4, 2, 720.5, late)
    first, second = orders.queues
    assert (first.behind, first.owners, second.owners) == (0.0, (), ("worker-1",))
    assert topic_rows(lags, {}, None)[0].queues[0].owners is None, "members were not asked"


def test_member_rows_take_subscriptions_of_apache_from_the_members_themselves():
    member = SimpleNamespace(client_id="w-1", subscriptions=None, version=479, differs=False)
    info = SimpleNamespace(client_id="w-1", client_version=None, subscriptions={"orders": "*", "%RETRY%g": "*"})
    (row,) = member_rows([member], [info], "%RETRY%")
    assert (row.subscriptions, row.version, row.differs) == ({"orders": "*"}, "479", False)
    (row,) = member_rows([member], [], "%RETRY%")
    assert (row.subscriptions, row.info) == (None, None)

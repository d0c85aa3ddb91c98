"""Readings of the rules, made from snapshots."""

from __future__ import annotations

from dataclasses import replace

from rocketpy.admin.replication import HaStatus, SlaveInfo
from rocketpy.admin.status import BrokerStatus
from rocketpy.console.alerts.amounts import amount_text, parsed_amount
from rocketpy.console.alerts.readings import AWAY_SECONDS, readings_of
from rocketpy.console.alerts.rules import CONDITIONS, built_in_rules
from rocketpy.console.snapshot import BrokerRow, Gap, GroupRow, Snapshot

NOW = 1_700_000_000.0
GROUPS = {key for key, one in CONDITIONS.items() if one.noun == "group"}
BROKERS = set(CONDITIONS) - GROUPS


def broker(broker_id: int = 0, disk: float | None = 0.5) -> BrokerRow:
    name = "broker-a"
    status = BrokerStatus("c", name, broker_id, "127.0.0.1:1", "V5", disk, 1.0, 1.0, 1, 0, None)
    return BrokerRow(status, NOW)


def slave(lag_bytes: int, lag_seconds: float | None) -> SlaveInfo:
    return SlaveInfo("127.0.0.1:2", 1, 0, lag_bytes, None, lag_seconds, True, 0)


GROUP = GroupRow("mailer", members=2, lag=10, dead_letters=3, behind=42.0)
WHOLE = Snapshot(
    version=1,
    made_at=NOW,
    cluster="c",
    brokers=(replace(broker(), ha=HaStatus(True, 0, (slave(5, None), slave(9, 3.0)), (), None)), broker(1, None)),
    groups={"mailer": GROUP},
    brokers_at=NOW,
    groups_at=NOW,
)


def test_whole_snapshot_gives_every_condition() -> None:
    found = readings_of(WHOLE)
    assert found.at_ms == NOW * 1000
    assert found.values == {
        "lag": {"mailer": 10},
        "behind": {"mailer": 42.0},
        "no_members": {"mailer": 0},
        "dead_letters": {"mailer": 3},
        "broker_gone": {"broker-a": 0.0, "broker-a:1": 0.0},
        "disk": {"broker-a": 50.0, "broker-a:1": None},
        "replication_bytes": {"broker-a": 9},
        "replication_seconds": {"broker-a": 3.0},
    }
    assert (found.complete, found.minimums) == (set(CONDITIONS), frozenset())


def test_group_without_lag_is_not_behind_and_one_without_a_sample_is_unknown() -> None:
    for group, behind in ((replace(GROUP, lag=0, behind=None), 0.0), (replace(GROUP, behind=None), None)):
        assert readings_of(replace(WHOLE, groups={"mailer": group})).of("behind") == {"mailer": behind}


def test_group_without_members_has_its_lag_as_value() -> None:
    found = readings_of(replace(WHOLE, groups={"mailer": replace(GROUP, members=0)}))
    assert found.of("no_members") == {"mailer": 10}


def test_group_with_an_error_is_unknown() -> None:
    found = readings_of(replace(WHOLE, groups={"mailer": replace(GROUP, error="broker-a does not answer")}))
    assert all(found.of(key) == {"mailer": None} for key in GROUPS)


def test_first_snapshot_gives_no_group_and_nothing_is_complete() -> None:
    found = readings_of(Snapshot())
    assert found.complete == frozenset()
    assert not any(found.values.values())


def test_gap_of_the_groups_makes_them_unknown_and_one_of_the_brokers_leaves_them() -> None:
    found = readings_of(replace(WHOLE, gaps=(Gap("groups", "x", NOW),)))
    assert (found.of("lag"), found.complete) == ({"mailer": None}, BROKERS)
    found = readings_of(replace(WHOLE, gaps=(Gap("brokers", "x", NOW),)))
    assert (found.of("lag"), found.complete) == ({"mailer": 10}, GROUPS)


def test_master_that_does_not_answer_is_gone_and_makes_groups_minimums() -> None:
    down = replace(WHOLE.brokers[0], failed_at=NOW - 10, error="x")
    found = readings_of(replace(WHOLE, brokers=(down, WHOLE.brokers[1])))
    assert found.of("broker_gone") == {"broker-a": 1.0, "broker-a:1": 0.0}
    assert (found.of("disk")["broker-a"], found.of("replication_bytes")) == (None, {"broker-a": None})
    assert (found.of("lag"), found.of("dead_letters")) == ({"mailer": 10}, {"mailer": None})
    assert (found.complete, found.minimums) == (BROKERS, GROUPS)


def test_master_that_is_away_for_long_counts_as_removed() -> None:
    down = replace(WHOLE.brokers[0], failed_at=NOW - AWAY_SECONDS, error="x")
    found = readings_of(replace(WHOLE, brokers=(down, WHOLE.brokers[1])))
    assert found.of("broker_gone")["broker-a"] == 1.0
    assert (found.of("dead_letters"), found.minimums) == ({"mailer": 3}, frozenset())


def test_amounts_of_all_built_in_rules_are_read_back() -> None:
    for rule in built_in_rules():
        if rule.unit:
            assert parsed_amount("threshold", amount_text(rule.threshold, rule.unit), rule.unit) == rule.threshold
        for seconds in (rule.for_seconds, rule.repeat_seconds, 90_061):
            assert parsed_amount("for", amount_text(seconds, "seconds"), "seconds") == seconds

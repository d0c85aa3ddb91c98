"""Engine of the alert rules under a clock that the test moves."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rocketpy.console.alerts.engine import GAP_MS, MAX_ALERTS, Engine, Moment, Step
from rocketpy.console.alerts.readings import Readings
from rocketpy.console.alerts.records import Silence, alert_text
from rocketpy.console.alerts.rules import CONDITIONS, Rule, built_in_rules
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RULE = Rule("r", "Lag", "lag", "mail*", 100, 60, 600, "hook")
START = 1_700_000_000_000
TICK = 5_000


class World:
    """An engine, its rules and silences, and a clock."""

    def __init__(self, *rules: Rule, channels: Sequence[str] = ("hook",)) -> None:
        self.engine, self.rules, self.channels = Engine(), list(rules), channels
        self.silences: list[Silence] = []
        self.now = START
        self.steps: list[Step] = []

    def read(
        self,
        values: Mapping[str, float | None],
        condition: str = "lag",
        *,
        seconds: float = 0,
        complete: bool = True,
        minimum: bool = False,
    ) -> Step:
        """Applies readings of one condition once."""
        self.now += round(seconds * 1000)
        one = frozenset({condition})
        readings = Readings(
            self.now, {condition: values}, one if complete else frozenset(), one if minimum else frozenset()
        )
        step = self.engine.step(readings, self.rules, self.moment)
        self.steps.append(step)
        return step

    def during(self, seconds: float, values: Mapping[str, float | None], condition: str = "lag") -> list[Step]:
        """Applies the same readings every 5 s."""
        return [self.read(values, condition, seconds=TICK / 1000) for _ in range(round(seconds * 1000) // TICK)]

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.silences, self.channels)

    @property
    def phases(self) -> dict[str, str]:
        return {one.subject: one.phase for one in self.engine.alerts}


def kinds(*steps: Step) -> list[str]:
    return [notice.kind for step in steps for notice in step.notices]


def entries(*steps: Step) -> list[str]:
    return [entry.kind for step in steps for entry in step.entries]


def test_alert_is_pending_then_fires_and_notifies_once_until_the_repeat() -> None:
    world = World(RULE)
    assert kinds(world.read({"mailer": 100})) == []
    assert world.phases == {"mailer": "pending"}
    assert kinds(*world.during(55, {"mailer": 120})) == []
    assert kinds(world.read({"mailer": 130}, seconds=5)) == ["firing"]
    assert world.phases == {"mailer": "firing"}
    assert kinds(*world.during(595, {"mailer": 130})) == []
    assert kinds(world.read({"mailer": 130}, seconds=5)) == ["repeat"]
    assert entries(*world.steps) == ["firing"]


def test_value_below_the_threshold_leaves_no_alert() -> None:
    world = World(RULE)
    world.read({"mailer": 99.9, "other": 1000})
    assert world.phases == {}


def test_pending_alert_ends_without_history_when_the_condition_ends() -> None:
    world = World(RULE)
    world.read({"mailer": 100})
    world.during(55, {"mailer": 100})
    world.read({"mailer": 99}, seconds=1)
    world.read({"mailer": 100}, seconds=1)
    assert kinds(*world.during(55, {"mailer": 100})) == []
    assert entries(*world.steps) == []
    assert world.phases == {"mailer": "pending"}


def fired(world: World, value: float = 150) -> None:
    world.read({"mailer": value})
    world.during(60, {"mailer": value})
    assert world.phases == {"mailer": "firing"}


def test_alert_is_resolved_after_the_condition_ended_for_the_same_time() -> None:
    world = World(RULE)
    fired(world)
    world.read({"mailer": 5}, seconds=5)
    assert kinds(*world.during(55, {"mailer": 5})) == []
    step = world.read({"mailer": 5}, seconds=5)
    assert (kinds(step), entries(step)) == (["resolved"], ["resolved"])
    assert step.alerts == {("r", "mailer"): None}
    assert world.phases == {}


def test_flapping_condition_sends_one_notification() -> None:
    world = World(replace(RULE, repeat_seconds=0))
    fired(world)
    for _ in range(100):
        world.read({"mailer": 1}, seconds=30)
        world.read({"mailer": 150}, seconds=5)
    assert kinds(*world.steps) == ["firing"]


def test_unknown_value_keeps_the_alert() -> None:
    world = World(RULE)
    fired(world)
    steps = world.during(3600, {"mailer": None})
    assert (kinds(*steps), world.phases) == ([], {"mailer": "firing"})


def test_missing_subject_is_resolved_only_if_all_subjects_are_listed() -> None:
    world = World(RULE)
    fired(world)
    for _ in range(100):
        world.read({}, seconds=5, complete=False)
    assert world.phases == {"mailer": "firing"}
    world.during(65, {})
    assert world.phases == {}
    assert kinds(*world.steps) == ["firing", "resolved"]


def test_minimum_below_the_threshold_keeps_the_alert_and_a_minimum_above_it_fires() -> None:
    world = World(replace(RULE, for_seconds=0))
    assert kinds(world.read({"mailer": 150}, minimum=True)) == ["firing"]
    for _ in range(100):
        world.read({"mailer": 1}, seconds=5, minimum=True)
    assert world.phases == {"mailer": "firing"}
    assert kinds(world.read({"mailer": 1}, seconds=5)) == ["resolved"]


def test_silenced_alert_fires_without_notification_and_notifies_after_the_silence() -> None:
    world = World(RULE)
    world.silences = [Silence("s", "", "mailer", START, START + 3_600_000, "ada", "")]
    fired(world)
    assert kinds(*world.steps) == []
    assert [entry.is_silenced for step in world.steps for entry in step.entries] == [True]
    world.during(3_600 - 65, {"mailer": 150})
    assert kinds(*world.steps) == []
    assert kinds(world.read({"mailer": 150}, seconds=5)) == ["firing"]


def test_silence_of_another_rule_or_subject_or_time_silences_nothing() -> None:
    world = World(RULE)
    world.silences = [
        Silence("1", "other", "*", START, START + 10**7, "", ""),
        Silence("2", "r", "bill*", START, START + 10**7, "", ""),
        Silence("3", "", "*", START - 2000, START - 1000, "", ""),
        Silence("4", "", "*", START + 10**6, START + 10**7, "", ""),
    ]
    fired(world)
    assert kinds(*world.steps) == ["firing"]


def test_recovery_during_a_silence_reaches_whoever_got_the_firing_notice() -> None:
    world = World(RULE)
    fired(world)
    world.silences = [Silence("s", "", "*", world.now, world.now + 10**7, "", "")]
    world.during(70, {"mailer": 0})
    assert kinds(*world.steps) == ["firing", "resolved"]


def test_recovery_of_an_alert_that_was_silenced_from_its_start_is_silent() -> None:
    world = World(RULE)
    world.silences = [Silence("s", "", "*", START, START + 10**7, "", "")]
    fired(world)
    world.during(70, {"mailer": 0})
    assert kinds(*world.steps) == []
    assert entries(*world.steps) == ["firing", "resolved"]


def test_rule_with_channel_all_notifies_every_channel_and_none_notifies_nobody() -> None:
    world = World(replace(RULE, channel="all"), replace(RULE, id="q", channel="none"), channels=("a", "b"))
    world.read({"mailer": 150})
    world.during(60, {"mailer": 150})
    assert [notice.channel for step in world.steps for notice in step.notices] == ["a", "b"]


def test_channel_that_is_added_later_is_notified_of_a_firing_alert() -> None:
    world = World(RULE, channels=())
    fired(world)
    world.channels = ("hook",)
    assert kinds(world.read({"mailer": 150}, seconds=5)) == ["firing"]


def test_disabled_rule_ends_its_alerts_with_a_notice() -> None:
    world = World(RULE)
    fired(world)
    world.rules = [replace(RULE, is_enabled=False)]
    step = world.read({"mailer": 150}, seconds=5)
    assert (kinds(step), entries(step), world.phases) == (["resolved"], ["removed"], {})


def test_deleted_rule_ends_its_alerts_with_a_notice() -> None:
    world = World(RULE)
    fired(world)
    step = world.engine.end_rule(RULE, world.moment)
    assert (kinds(step), entries(step), world.phases) == (["resolved"], ["removed"], {})


def test_readings_with_a_long_gap_begin_a_new_period() -> None:
    world = World(RULE)
    world.read({"mailer": 150})
    world.read({"mailer": 150}, seconds=GAP_MS / 1000 + 1)
    assert world.phases == {"mailer": "pending"}


def test_clock_that_is_set_back_neither_fires_nor_blocks_an_alert() -> None:
    world = World(RULE)
    world.read({"mailer": 150})
    world.read({"mailer": 150}, seconds=-86_400)
    assert kinds(*world.during(55, {"mailer": 150})) == []
    assert kinds(world.read({"mailer": 150}, seconds=5)) == ["firing"]


def test_dead_letters_are_counted_from_the_first_reading() -> None:
    rule = Rule("d", "Dead letters", "dead_letters", "*", 1, 0, 0)
    world = World(rule)
    world.read({"mailer": 37, "billing": 0}, "dead_letters")
    assert world.phases == {}
    step = world.read({"mailer": 39, "billing": 0}, "dead_letters", seconds=5)
    assert [notice.text for notice in step.notices] == ["Group mailer has 2 new dead letters within 10 min."]
    assert kinds(*world.during(590, {"mailer": 39, "billing": 0}, "dead_letters")) == []
    assert kinds(*world.during(15, {"mailer": 39, "billing": 0}, "dead_letters")) == ["resolved"]


def test_first_dead_letter_of_a_new_group_is_growth() -> None:
    world = World(Rule("d", "Dead letters", "dead_letters", "*", 1, 0, 0))
    world.read({"mailer": 37}, "dead_letters")
    assert kinds(world.read({"mailer": 37, "fresh": 1}, "dead_letters", seconds=5)) == ["firing"]


@pytest.mark.parametrize("complete", [True, False])
def test_dead_letters_that_become_readable_again_are_not_growth(complete: bool) -> None:
    world = World(Rule("d", "Dead letters", "dead_letters", "*", 1, 0, 0))
    world.read({"mailer": None}, "dead_letters", complete=complete)
    world.read({"mailer": 37}, "dead_letters", seconds=5)
    world.read({"mailer": None}, "dead_letters", seconds=5)
    world.read({"mailer": 37}, "dead_letters", seconds=5)
    assert kinds(*world.steps) == []


def test_dead_letters_that_grew_while_the_console_was_down_are_growth() -> None:
    rule = Rule("d", "Dead letters", "dead_letters", "*", 1, 0, 0)
    world = World(rule)
    counts = {key: count for key, count in world.read({"mailer": 37}, "dead_letters").counts.items() if count}
    world.engine = Engine(counts=counts)
    assert kinds(world.read({"mailer": 40}, "dead_letters", seconds=86_400)) == ["firing"]


def test_counts_of_dead_letters_stay_small() -> None:
    world = World(Rule("d", "Dead letters", "dead_letters", "*", 1, 0, 0))
    for count in range(1000):
        step = world.read({"mailer": count}, "dead_letters", seconds=1)
    assert len(step.counts["mailer"] or ()) <= 32


def test_broker_that_the_name_server_no_longer_lists_is_gone_until_it_is_forgotten() -> None:
    rule = Rule("b", "Gone", "broker_gone", "*", 0, 60, 0)
    world = World(rule)
    world.read({"broker-a": 0.0, "broker-b": 0.0}, "broker_gone")
    steps = world.during(70, {"broker-a": 0.0}, "broker_gone")
    assert [notice.text for step in steps for notice in step.notices] == ["Broker broker-b does not answer."]
    step = world.engine.forget_broker("broker-b")
    assert step.brokers == {"broker-b": False}
    assert kinds(*world.during(70, {"broker-a": 0.0}, "broker_gone")) == ["resolved"]


def test_broker_gone_survives_a_restart_of_the_console() -> None:
    world = World(Rule("b", "Gone", "broker_gone", "*", 0, 0, 0))
    world.engine = Engine(brokers=["broker-b"])
    assert kinds(world.read({"broker-a": 0.0}, "broker_gone")) == ["firing"]


def test_alerts_over_the_maximum_are_counted_and_not_tracked() -> None:
    world = World(replace(RULE, subject="*"))
    world.read({f"group-{number}": 1000 for number in range(MAX_ALERTS + 7)})
    assert (len(world.engine.alerts), world.engine.not_tracked) == (MAX_ALERTS, 7)


def test_engine_continues_from_stored_alerts() -> None:
    world = World(RULE)
    fired(world)
    world.engine = Engine(world.engine.alerts)
    assert kinds(*world.during(590, {"mailer": 150})) == []
    assert kinds(*world.during(10, {"mailer": 150})) == ["repeat"]


def test_quiet_steps_change_nothing_worth_a_write() -> None:
    world = World(RULE)
    fired(world)
    writes = sum(bool(step) for step in world.during(590, {"mailer": 150}))
    assert writes <= 590 // 30 + 1


@pytest.mark.parametrize("seed", range(20))
def test_random_readings_keep_the_order_of_notices(seed: int) -> None:
    """Each alert notifies firing, then repeats, then resolved; nothing while silenced; no repeat too early."""
    choice = random.Random(seed)
    rule = replace(
        RULE, for_seconds=choice.choice([0, 30, 60]), repeat_seconds=choice.choice([0, 60, 300]), subject="*"
    )
    world = World(rule)
    world.silences = [Silence("s", "", "a", START + 10**6, START + 2 * 10**6, "", "")]
    last: dict[str, tuple[str, int]] = {}
    values: dict[str, float | None] = dict.fromkeys("abc", 0)

    def check(step: Step) -> None:
        for notice in step.notices:
            before, at = last.get(notice.subject, ("resolved", 0))
            assert notice.kind in ({"firing"} if before == "resolved" else {"repeat", "resolved"})
            assert notice.kind != "repeat" or world.now - at >= rule.repeat_seconds * 1000 > 0
            is_silenced = world.silences[0].covers("r", notice.subject, world.now)
            assert not is_silenced or notice.kind == "resolved"
            last[notice.subject] = (notice.kind, world.now)

    for _ in range(1500):
        for name in values:
            if choice.random() < 0.05:
                values[name] = choice.choice([0, 99, 100, 5000, None])
        if choice.random() < 0.01:
            world.engine = Engine(world.engine.alerts)
        check(world.read(dict(values), seconds=choice.choice([1, 5, 5, 20]), complete=choice.random() < 0.9))
        firing = {one.subject for one in world.engine.alerts if one.phase == "firing"}
        assert {name for name, (kind, _) in last.items() if kind != "resolved"} <= firing
    for _ in range(20):
        check(world.read(dict.fromkeys("abc", 0), seconds=5))
    assert world.phases == {}
    assert last
    assert {kind for kind, _ in last.values()} == {"resolved"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"threshold": 0}, "threshold must be greater than 0"),
        ({"threshold": float("nan")}, "threshold must be 0 to 10^18"),
        ({"condition": "cpu"}, "unknown condition: cpu"),
        ({"name": " "}, "name of the rule must not be empty"),
        ({"subject": "a\x1b[31m"}, r"subject must not contain control characters: a\x1b[31m"),
        ({"for_seconds": -1}, "`for` must be 0 to"),
        ({"repeat_seconds": 5}, "repeat must be 0 or at least 60 s"),
        ({"condition": "disk", "threshold": 101}, "threshold must be 0 to 100 percent: 101"),
    ],
)
def test_rule_with_a_wrong_value_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(text)):
        replace(RULE, **change)  # type: ignore[arg-type]


def test_built_in_rules_watch_every_condition() -> None:
    rules = built_in_rules()
    assert {rule.condition for rule in rules} == CONDITIONS.keys()
    assert all(rule.is_enabled and alert_text(rule, "x", 1e6).endswith(".") for rule in rules)
    assert len({rule.id for rule in rules}) == len(rules)

"""The collector with a false SDK: what it asks for, and what it does when answers fail or are slow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from rocketpy import BrokerStatus, ConnectionFailedError, GroupStatus, RequestTimeoutError
from rocketpy.admin.answers import Answers
from rocketpy.admin.cluster import TopicInfo
from rocketpy.admin.replication import HaStatus
from rocketpy.console import collector as module
from rocketpy.console.collector import Collector
from rocketpy.console.sampling import SLOWED_FACTOR, TOPICS_A_SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

NAMES = [f"topic-{at:04d}" for at in range(1000)]


class FalseAdmin:
    """Answers every call of the collector, and counts the topics that it describes."""

    def __init__(self) -> None:
        self.described: list[str] = []
        self.failure: Exception | None = None
        self.seconds = 0.0
        self.statuses = [BrokerStatus("c", "a", 0, "127.0.0.1:1", None, 0.5, 1.0, 2.0, 3, 0, None)]

    async def broker_status(self) -> list[BrokerStatus]:
        if self.failure is not None:
            raise self.failure
        return self.statuses

    async def topics(self) -> list[str]:
        return NAMES

    async def brokers(self) -> list[Any]:
        return []

    async def group_status(self) -> Answers[GroupStatus]:
        return Answers([GroupStatus("g", 1, (NAMES[0],), 5, 0, 0)])

    async def group_lag(self, _group: str, *, partial: bool) -> Answers[Any]:
        return Answers()

    async def ha_status(self, _address: str) -> HaStatus:
        return HaStatus(True, 0, (), (), None)

    async def describe_topic(self, name: str, *, partial: bool) -> TopicInfo:
        self.described.append(name)
        return TopicInfo(name, (), ())


def run(test: Callable[[FalseAdmin, Collector], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        admin = FalseAdmin()
        await test(admin, Collector(admin))  # type: ignore[arg-type]

    asyncio.run(main())


def test_one_step_samples_no_more_topics_than_the_budget():
    async def test(admin: FalseAdmin, collector: Collector) -> None:
        await collector.read_brokers()
        await collector.read_names()
        await collector.sample_topics()
        assert len(admin.described) == TOPICS_A_SECOND
        await collector.sample_topics()
        assert len(set(admin.described)) == 2 * TOPICS_A_SECOND
        assert collector.snapshot.sampled == 2 * TOPICS_A_SECOND

    run(test)


def test_slow_answers_slow_the_sampling(monkeypatch: pytest.MonkeyPatch):
    clock = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: clock[0])

    async def test(admin: FalseAdmin, collector: Collector) -> None:
        describe = admin.describe_topic

        async def slow(name: str, *, partial: bool) -> TopicInfo:
            clock[0] += 0.3
            return await describe(name, partial=partial)

        admin.describe_topic = slow  # type: ignore[method-assign]
        await collector.read_names()
        await collector.sample_topics()
        assert collector.snapshot.slowed
        before = len(admin.described)
        await collector.sample_topics()
        assert len(admin.described) - before == TOPICS_A_SECOND // SLOWED_FACTOR
        admin.describe_topic = describe  # type: ignore[method-assign]
        await collector.sample_topics()
        assert not collector.snapshot.slowed

    run(test)


def test_nothing_is_sampled_without_a_name_server_and_the_figures_stay():
    async def test(admin: FalseAdmin, collector: Collector) -> None:
        await collector.refresh()
        before, version = len(admin.described), collector.snapshot.version
        admin.failure = ConnectionFailedError("cannot connect")
        for _ in range(2):
            with pytest.raises(ConnectionFailedError):
                await collector.read_brokers()
        await collector.sample_topics()
        await collector.sample_groups()
        assert len(admin.described) == before
        state = collector.snapshot
        [gap] = state.gaps
        assert (gap.part, gap.error) == ("brokers", "cannot connect")
        assert (state.version > version, len(state.topics), state.in_rate) == (True, 1000, 1.0)
        admin.failure = None
        await collector.read_brokers()
        assert collector.snapshot.gaps == ()

    run(test)


def test_a_broker_that_fails_keeps_its_figures_and_the_time_of_the_first_failure(monkeypatch: pytest.MonkeyPatch):
    clock = [100.0]
    monkeypatch.setattr(module, "now", lambda: clock[0])

    async def test(admin: FalseAdmin, collector: Collector) -> None:
        await collector.read_brokers()
        admin.statuses = [BrokerStatus("c", "a", 0, "127.0.0.1:1", *[None] * 6, "did not answer")]
        for clock[0] in (105.0, 110.0):
            await collector.read_brokers()
        [row] = collector.snapshot.brokers
        assert (row.read_at, row.failed_at, row.error, row.status.in_per_second) == (100, 105, "did not answer", 1)
        assert collector.snapshot.in_rate is None
        admin.statuses = []
        await collector.read_brokers()
        [row] = collector.snapshot.brokers
        assert (row.failed_at, row.error) == (105, "not registered at the name server")
        clock[0] += module.FORGET_SECONDS
        await collector.read_brokers()
        assert collector.snapshot.brokers == ()

    run(test)


def test_listeners_hear_of_every_read_of_the_brokers_even_of_failures():
    async def test(admin: FalseAdmin, collector: Collector) -> None:
        heard: list[int] = []

        async def listen(state: Any) -> None:
            heard.append(len(state.gaps))

        collector.listeners.append(listen)
        await collector.read_brokers()
        admin.failure = RequestTimeoutError("late")
        with pytest.raises(RequestTimeoutError):
            await collector.read_brokers()
        assert heard == [0, 1]

    run(test)


def test_topics_of_a_group_have_its_lag_only_once_it_is_sampled():
    async def test(admin: FalseAdmin, collector: Collector) -> None:
        await collector.refresh()
        rows = collector.snapshot.topics
        assert (rows[NAMES[0]].groups, rows[NAMES[0]].lag) == (("g",), None)
        assert (rows[NAMES[1]].groups, rows[NAMES[1]].lag, rows[NAMES[1]].out_rate) == ((), 0, 0.0)

    run(test)

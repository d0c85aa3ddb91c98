"""Collector: reads a cluster in the background, and fills the snapshot and the history. Visitors never wait for it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from rocketpy.base.clock import monotonic
from rocketpy.base.instant import now_ms
from rocketpy.base.names import RETRY_PREFIX, application_topics
from rocketpy.console.history import History
from rocketpy.console.sampling import (
    GROUPS_A_SECOND,
    SLOWED_FACTOR,
    TOPICS_A_SECOND,
    Queue,
    due_groups,
    due_topics,
    round_seconds,
)
from rocketpy.console.snapshot import BrokerRow, Gap, GroupRow, Snapshot, TopicRow, group_row, sampled_group, topic_row
from rocketpy.errors import GroupNotFoundError, RocketPyError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rocketpy.admin.replication import HaStatus
    from rocketpy.aio.admin import AsyncAdmin

__all__ = ["Collector"]

logger = logging.getLogger("rocketpy.console")
T = TypeVar("T")

MAX_CALLS = 8
"""Maximum number of concurrent requests."""
WATCHED_SECONDS = 15.0
"""Time for which rows stay preferred after a page showed them."""
MIN_PAUSE = 0.05
"""Minimum pause between two reads of one kind, in seconds."""
SLOW_SECONDS = 0.2
"""Median duration of the samples of one step above which sampling is slowed."""
BUSY_SERIES = 200
"""Number of topics and of groups with a history of 24 h."""
TYPES_PERIODS = 12
"""Number of periods between two reads of the types of topics."""


class Collector:
    """Reads one cluster. `snapshot` is the newest state.

    Args:
        admin: Client with the collector's own credentials.
        period: Seconds between two reads of the brokers; the other periods are multiples.
        history_bytes: Maximum memory of the history in bytes.
        name_servers: Name servers, for texts.
    """

    def __init__(
        self, admin: AsyncAdmin, *, period: float = 5.0, history_bytes: int = 32 << 20, name_servers: str = ""
    ) -> None:
        self.admin, self.period, self.name_servers = admin, period, name_servers
        self.history = History(history_bytes)
        self.listeners: list[Callable[[Snapshot], Awaitable[None]]] = []
        """Called after each read of the brokers, such as the rules of alerts."""
        self.requests = 0
        """Number of SDK calls, for tests and metrics."""
        self._version = 0
        self._made: Snapshot | None = None
        self._cluster = ""
        self._brokers: dict[tuple[str, int], BrokerRow] = {}
        self._topics: dict[str, TopicRow] = {}
        self._groups: dict[str, GroupRow] = {}
        self._gaps: dict[str, Gap] = {}
        self._read_at: dict[str, float] = {}
        self._watched: dict[tuple[str, str], float] = {}
        self._application_topics = 0
        self._topic_queue, self._group_queue = Queue(), Queue()
        self._groups_added_at = 0.0
        self._read_topics: set[str] = set()
        self._slowed = False
        self._calls = asyncio.Semaphore(MAX_CALLS)

    @property
    def snapshot(self) -> Snapshot:
        """The newest state. Pages that show it see one moment."""
        if self._made is None or self._made.version != self._version:
            self._made = Snapshot(
                version=self._version,
                made_at=now(),
                cluster=self._cluster,
                brokers=tuple(self._brokers[key] for key in sorted(self._brokers)),
                topics=dict(self._topics),
                groups=dict(self._groups),
                gaps=tuple(self._gaps.values()),
                brokers_at=self._read_at.get("brokers"),
                topics_at=self._read_at.get("topics"),
                groups_at=self._read_at.get("groups"),
                round_seconds=self.topic_round,
                slowed=self._slowed,
            )
        return self._made

    @property
    def topic_round(self) -> float:
        """Seconds in which every topic that moves is read once."""
        return round_seconds(self._application_topics, TOPICS_A_SECOND, self.period, is_slowed=self._slowed)

    @property
    def group_round(self) -> float:
        """Seconds in which every group is read once."""
        return round_seconds(len(self._groups), GROUPS_A_SECOND, self.period)

    def first_row(self, name: str) -> TopicRow:
        """Row of a topic that is not in the list yet."""
        return self._topics.get(name) or TopicRow(name)

    def watch(self, kind: str, names: Iterable[str]) -> None:
        """Prefers rows that a page shows: they are sampled every period.

        Args:
            kind: `topic` or `group`.
            names: Names of the rows.
        """
        until = monotonic() + WATCHED_SECONDS
        for name in names:
            self._watched[kind, name] = until

    async def run(self) -> None:
        """Reads until it is cancelled. A failure of a read never ends it."""
        async with asyncio.TaskGroup() as tasks:
            for read, period in (
                (self.read_brokers, lambda: self.period),
                (self.read_names, lambda: 3 * self.period),
                (self._read_types, lambda: TYPES_PERIODS * self.period),
                (self.read_groups, lambda: self.group_round),
                (self.read_replication, lambda: 3 * self.period),
                (self.sample_topics, lambda: self.period / 5),
                (self.sample_groups, lambda: self.period / 5),
            ):
                tasks.create_task(self._repeat(read, period))

    async def refresh(self) -> None:
        """Reads everything once, and samples the first topics and groups: for tests."""
        await asyncio.gather(self.read_brokers(), self.read_names(), self.read_groups())
        self._topic_queue.fill(self._topics, monotonic())
        self._group_queue.fill(self._groups, monotonic())
        await asyncio.gather(self.read_replication(), self._read_types(), self.sample_groups())
        while self._topic_queue:
            await self.sample_topics()
        self._add_groups()

    async def _repeat(self, read: Callable[[], Awaitable[None]], pause: Callable[[], float]) -> None:
        while True:
            started = monotonic()
            try:
                await read()
            except RocketPyError as error:
                logger.debug("console read failed: %s", error)
            except Exception:
                logger.exception("console read failed")
            spent = monotonic() - started
            await asyncio.sleep(max(pause() - spent, spent, MIN_PAUSE))  # reads take at most half of the time

    async def _call(self, part: str, call: Awaitable[T]) -> T:
        """Awaits a call about a whole part of the cluster, and keeps since when it fails."""
        self.requests += 1
        try:
            found = await call
        except RocketPyError as error:
            since = self._gaps[part].since if part in self._gaps else now()
            self._gaps[part] = Gap(part, str(error), since)
            self._version += 1
            raise
        self._gaps.pop(part, None)
        self._read_at[part] = now()
        return found

    async def read_brokers(self) -> None:
        """Reads the figures of all brokers."""
        try:
            await self._read_brokers()
        finally:
            for listener in self.listeners:
                await listener(self.snapshot)

    async def _read_brokers(self) -> None:
        at = now()
        found = await self._call("brokers", self.admin.broker_status())
        rows: dict[tuple[str, int], BrokerRow] = {}
        for status in found:
            key = (status.broker_name, status.broker_id)
            before = self._brokers.get(key)
            if status.error is None:
                rows[key] = BrokerRow(status, at, ha=before.ha if before else None)
            elif before is None:
                rows[key] = BrokerRow(status, None, at, status.error)
            else:
                rows[key] = replace(before, failed_at=before.failed_at or at, error=status.error)
        # A broker that leaves the name server is kept until its name is gone, so that pages say since when.
        for key, row in self._brokers.items():
            if key not in rows and at - (row.failed_at or at) < FORGET_SECONDS:
                gone = "not registered at the name server"
                rows[key] = replace(row, failed_at=row.failed_at or at, error=gone)
        self._brokers = rows
        names = sorted({row.status.cluster for row in rows.values()})
        self._cluster = "+".join(names)[:60] or self._cluster
        self._version += 1
        self._remember_cluster(at)

    def _remember_cluster(self, at: float) -> None:
        state = self.snapshot
        figures: dict[str, float | None] = {
            "in": state.in_rate,
            "out": state.out_rate,
            "lag": state.lag,
            "dead": state.dead_letters,
        }
        for name, value in figures.items():
            self.history.add(("cluster", name), value, at)
        for row in state.brokers:
            if not row.is_down:
                key = ("broker", row.name, str(row.status.broker_id))
                self.history.add((*key, "in"), row.status.in_per_second, at)
                self.history.add((*key, "out"), row.status.out_per_second, at)
                self.history.add((*key, "disk"), row.status.disk_used, at)

    async def read_names(self) -> None:
        """Reads the names of topics, and their types where the brokers report them."""
        names = await self._call("topics", self.admin.topics())
        with suppress(RocketPyError):
            own = set(application_topics(names, await self.admin.brokers()))
            known = self._topics
            self._topics = {name: known.get(name) or TopicRow(name, is_system=name not in own) for name in names}
            for name in known.keys() - self._topics.keys():
                self.history.forget(("topic", name))
            self._application_topics = sum(not row.is_system for row in self._topics.values())
            self._topic_queue.made_at = float("-inf")
            self._version += 1

    async def _read_types(self) -> None:
        configs: Any = getattr(self.admin, "topic_configs", None)
        if configs is None:
            return
        self.requests += 1
        for config in await configs(partial=True):
            row = self._topics.get(config.name)
            if row is not None:
                self._topics[config.name] = replace(row, kind=(config.message_type or "NORMAL").lower())
        self._version += 1

    async def read_groups(self) -> None:
        """Reads lag, retries, dead letters and members of all groups."""
        found = await self._call("groups", self.admin.group_status())
        at = now()
        known = self._groups
        self._groups = {one.name: group_row(known.get(one.name) or GroupRow(one.name), one, at) for one in found}
        away = {name for one in found for name in one.missing}
        if away:  # their groups are unknown, not gone
            self._groups = {**{name: row for name, row in known.items() if name not in self._groups}, **self._groups}
        for name in known.keys() - self._groups.keys():
            self.history.forget(("group", name))
        self._version += 1
        most = sorted(self._groups.values(), key=lambda row: -(row.lag or 0))
        for place, row in enumerate(most):
            tiers = 3 if row.lag and place < BUSY_SERIES else 1
            self.history.add(("group", row.name, "lag"), row.lag, at, tiers=tiers)

    async def read_replication(self) -> None:
        """Reads the slaves of each master."""
        for key, row in list(self._brokers.items()):
            if not row.is_master or row.is_down:
                continue
            self.requests += 1
            try:
                found: HaStatus | None = await self.admin.ha_status(row.status.address)
            except RocketPyError:
                found = row.ha
            if key in self._brokers:
                self._brokers[key] = replace(self._brokers[key], ha=found)
        self._version += 1

    async def sample_topics(self) -> None:
        """Reads the queues of some topics: those on screens first, then those whose figures are the oldest."""
        clock = monotonic()
        if clock - self._topic_queue.made_at >= self.period:
            self._watched = {key: until for key, until in self._watched.items() if until > clock}
            rows = self._topics.values()
            self._topic_queue.fill(due_topics(rows, self._watched, now(), self.period, self.topic_round), clock)
        if "brokers" in self._gaps:  # without a name server no route is known
            return
        chosen = self._topic_queue.take(TOPICS_A_SECOND // (SLOWED_FACTOR if self._slowed else 1))
        spent = await asyncio.gather(*(self._sample_topic(name) for name in chosen))
        if chosen:
            self._slowed = median(spent) > SLOW_SECONDS
            self._version += 1
        if clock - self._groups_added_at >= self.period / 2:
            self._groups_added_at = clock
            self._add_groups()

    async def _sample_topic(self, name: str) -> float:
        """Reads one topic, and returns how long that took in seconds."""
        async with self._calls:
            started = monotonic()
            self.requests += 1
            try:
                info = await self.admin.describe_topic(name, partial=True)
            except TopicNotFoundError:
                self._topics.pop(name, None)
                return monotonic() - started
            except RocketPyError as error:
                if name in self._topics:
                    self._topics[name] = replace(self._topics[name], error=str(error), tried_at=now())
                return monotonic() - started
            spent = monotonic() - started
        before, at = self._topics.get(name), now()
        if before is None:
            return spent
        row = topic_row(before, info, at)
        if "groups" in self._read_at and name not in self._read_topics:
            row = replace(row, lag=0, out_rate=0.0)  # no group reads it
        self._topics[name] = row
        tiers = 3 if self._is_busy(row) else 1
        self.history.add(("topic", name, "in"), row.in_rate, at, tiers=tiers)
        self.history.add(("topic", name, "out"), row.out_rate, at, tiers=tiers)
        return spent

    def _is_busy(self, row: TopicRow) -> bool:
        return len(self._topics) <= BUSY_SERIES or (row.in_rate or 0) >= 1

    def _add_groups(self) -> None:
        """Adds groups, lag and out rates to the rows of topics. Only topics with groups, now or before, are visited."""
        readers: dict[str, list[str]] = {}
        lags: dict[str, int] = {}
        rates: dict[str, float] = {}
        for group in self._groups.values():
            for topic in group.topics:
                readers.setdefault(topic, []).append(group.name)
            for topic, progress in group.by_topic.items():
                lags[topic] = lags.get(topic, 0) + progress.lag
                if progress.out is not None:
                    rates[topic] = rates.get(topic, 0.0) + progress.out
        self._version += 1
        for name in readers.keys() | self._read_topics:
            row = self._topics.get(name)
            if row is None:
                continue
            groups = tuple(sorted(readers.get(name, ())))
            lag = lags.get(name, None if groups else 0)
            out = rates.get(name, None if groups else 0.0)
            if (row.groups, row.lag, row.out_rate) != (groups, lag, out):
                self._topics[name] = replace(row, groups=groups, lag=lag, out_rate=out)
        self._read_topics = set(readers)

    async def sample_groups(self) -> None:
        """Reads the queues of some groups: those on screens first, then those whose figures are the oldest."""
        clock = monotonic()
        if clock - self._group_queue.made_at >= self.period:
            rows = self._groups.values()
            self._group_queue.fill(due_groups(rows, self._watched, now(), self.period, self.group_round), clock)
        if "brokers" in self._gaps:
            return
        chosen = self._group_queue.take(GROUPS_A_SECOND)
        await asyncio.gather(*(self._sample_group(name) for name in chosen))
        if chosen:
            self._version += 1

    async def _sample_group(self, name: str) -> None:
        async with self._calls:
            self.requests += 1
            try:
                lags = await self.admin.group_lag(name, partial=True)
            except GroupNotFoundError:
                self._groups.pop(name, None)
                return
            except RocketPyError:
                if name in self._groups:
                    self._groups[name] = replace(self._groups[name], tried_at=now())
                return
            differs = await self._differs(name)
        before = self._groups.get(name)
        if before is not None:
            row = sampled_group(before, lags, now(), RETRY_PREFIX + name)
            self._groups[name] = replace(row, differs=differs)

    async def _differs(self, name: str) -> bool | None:
        """Whether the members of a group have different subscriptions."""
        row = self._groups.get(name)
        if row is None or (row.members or 0) < 2:
            return False
        self.requests += 1
        try:
            members = await self.admin.describe_group(name, partial=True)
        except RocketPyError:
            return None
        return any(one.differs for one in members)


FORGET_SECONDS = 24 * 3600.0
"""Time for which a broker that left the name server is shown."""


def now() -> float:
    """Current time in seconds since 1970."""
    return now_ms() / 1000

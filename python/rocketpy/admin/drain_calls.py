"""Calls of `Admin` and `AsyncAdmin` that empty a broker under load."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketpy.admin.change_calls import ChangeCalls
from rocketpy.admin.changes import READ, WRITE
from rocketpy.admin.cluster import MASTER_ID
from rocketpy.admin.drains import DrainStep, GroupRest, TopicWrites
from rocketpy.admin.status_calls import REAL_TOPIC, SCHEDULE_TOPIC
from rocketpy.base.clock import monotonic
from rocketpy.base.names import RETRY_PREFIX, application_topics, check_type
from rocketpy.base.signature import shown_as
from rocketpy.errors import (
    GroupNotFoundError,
    NotSupportedError,
    RefusedError,
    RequestTimeoutError,
    TopicNotFoundError,
)
from rocketpy.message import MessageQueue

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.cluster import GroupInfo, QueueInfo
    from rocketpy.admin.status_calls import Delayed

__all__ = ["DrainCalls"]

NOTES = "ROCKETPY_DRAIN"
"""Namespace of the name servers' configuration with the permission of each drained broker."""
ROUTE_SECONDS = 35.0
"""Time after which clients have read a changed route: they read it every 30 s."""
PACE_SECONDS = 1.0
"""Pause between two looks."""
NAMES_SHOWN = 5
WAIT_TOPICS = (SCHEDULE_TOPIC, "rmq_sys_wheel_timer")
"""Topics of messages that wait for a delay level or a time."""
MAX_READ = 1000
"""Maximum number of new messages of a queue to look at."""
HALF_TOPIC, HALF_GROUP = "RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS"
"""Topic of open transactions, and the group whose offset is before the oldest of them."""
ALONE_HINT = (
    "create them at another broker: `rocketpy topic create TOPIC --broker NAME`; "
    "force=True (--force) lets their sends fail"
)
GO_ON_HINT = "`rocketpy broker drain` continues; `rocketpy broker undrain` gives the permission back"
NOT_DRAINED_HINT = "a drain records the permission; set brokerPermission=6 to let clients write"


def listed(names: Iterable[str]) -> str:
    """The first names of a list, and the number of the others."""
    given = sorted(names)
    more = f" and {len(given) - NAMES_SHOWN} more" if len(given) > NAMES_SHOWN else ""
    return ", ".join(given[:NAMES_SHOWN]) + more


def sent_topic(topic: str, message: ReceivedMessage) -> str | None:
    """Topic to which a client sent a message; None for a message that the broker stored again.

    Args:
        topic: Topic that has the message: an application's, or one of `WAIT_TOPICS`.
        message: The message.
    """
    properties = message.properties
    real = properties.get(REAL_TOPIC)
    if topic in WAIT_TOPICS:  # retries and long timers are stored again
        is_again = message.reconsume_times or "TIMER_ROLL_TIMES" in properties
        return None if is_again or real is None or real.startswith(RETRY_PREFIX) else real
    return None if real is not None and "TRAN_MSG" not in properties else topic


class Watch:
    """Time of a call that waits.

    Args:
        timeout: Maximum time in seconds; None for no limit.
    """

    def __init__(self, timeout: float | None) -> None:
        check_type("timeout", timeout, float | int | None, "a number of seconds")
        self.began, self.timeout = monotonic(), timeout

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return monotonic() - self.began

    def check(self, text: str, hint: str) -> None:
        """Raises an error after the timeout.

        Raises:
            RequestTimeoutError: The timeout is over.
        """
        if self.timeout is not None and self.seconds >= self.timeout:
            raise RequestTimeoutError(f"{text} after {self.timeout:g} s", hint=hint, retryable=True)


@shown_as("AsyncAdmin")
class DrainCalls(ChangeCalls):
    """Drains, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

    async def drain_broker(
        self, broker: str, *, quiet: float = ROUTE_SECONDS, timeout: float | None = None, force: bool = False
    ) -> AsyncIterator[DrainStep]:
        """Makes a broker read only, and waits until it may be stopped, as `Admin.drain_broker`.

        Args:
            broker: Name or `host:port` of the broker.
            quiet: Time in seconds without a send after which all clients have followed.
            timeout: Maximum time in seconds; None for no limit.
            force: Whether to drain a broker with topics that no other broker accepts messages of.
        """
        async for step in self._drain(broker, quiet, timeout, force):
            yield step

    async def undrain_broker(self, broker: str, *, dry_run: bool = False) -> int:
        """Gives a drained broker the permission that it had before the drain. The call may be repeated.

        Args:
            broker: Name or `host:port` of the broker.
            dry_run: Whether to return the permission without restoring it.

        Returns:
            `brokerPermission` of the broker after the call: 4 read, 2 write.

        Raises:
            BrokerNotFoundError: No master has this name or address.
            RefusedError: The broker is read only, and no drain recorded its permission.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.undrain_broker(server.broker)  # not drained
            6
        """
        broker_name, address = await self._master(broker)
        native = self._native_admin()
        note, now = await self._ask(native.note, NOTES, broker_name), await self._permission(address)
        if note is None:
            if now & WRITE:
                return now
            text = f"broker {broker_name} is read only, and no drain recorded its permission"
            raise RefusedError(text, hint=NOT_DRAINED_HINT)
        if dry_run:
            return int(note)
        if int(note) != now:
            await self._restore_permission(address, int(note))
        await self._ask(native.set_note, NOTES, broker_name, None)
        return int(note)

    async def _look_again(self, rest: float = PACE_SECONDS) -> None:
        """Waits until the next look, or for the rest of a time."""
        await self._pause(min(PACE_SECONDS, max(rest, 0.0)))

    async def _permission(self, address: str) -> int:
        return int((await self.broker_config(address)).get("brokerPermission", READ | WRITE))

    async def _set_permission(self, address: str, permission: int) -> None:
        await self._ask(self._native_admin().update_broker_config, address, {"brokerPermission": str(permission)})

    async def _restore_permission(self, address: str, permission: int) -> None:
        """Restores a permission. The broker keeps no live value if the layer below has it."""
        with suppress(NotSupportedError):  # Apache's broker has no layers
            await self._ask(self._native_admin().change_config, address, {}, ["brokerPermission"], False, False)
        if await self._permission(address) != permission:
            await self._set_permission(address, permission)

    async def _drain(
        self, broker: str, quiet: float, timeout: float | None, force: bool
    ) -> AsyncGenerator[DrainStep, None]:
        check_type("quiet", quiet, float | int, "a number of seconds")
        watch = Watch(timeout)
        broker_name, address = await self._master(broker)
        before = await self._lower(broker_name, address, force)
        step = DrainStep(broker_name, address, "lowered", before, 0.0, 0.0)
        yield step
        topics = [*application_topics(await self.topics(), await self.brokers()), *WAIT_TOPICS]
        total, ends, quiet_since = None, await self._ends(broker_name, topics), monotonic()
        while (still := monotonic() - quiet_since) < quiet or total is None:
            cause = (
                f"clients still send to broker {broker_name}" if step.writes else f"no {quiet:g} s without a send yet"
            )
            watch.check(cause, GO_ON_HINT)
            await self._look_again(quiet - still)
            await self._check_drained(broker_name, address)
            now = (await self.broker_figures(address)).get("msgPutTotalTodayNow", "")
            writes: tuple[TopicWrites, ...] = ()
            if now != total:
                total, (writes, ends) = now, await self._writes(broker_name, topics, ends)
            if writes:
                quiet_since = monotonic()
            step = replace(step, state="producers", seconds=watch.seconds, writes=writes)
            yield replace(step, quiet_seconds=monotonic() - quiet_since)
        step = replace(step, state="consumers", quiet_seconds=monotonic() - quiet_since, writes=())
        rests = await self._rests(broker_name)
        while any(one.members for one in rests):
            yield replace(step, seconds=watch.seconds, rests=rests)
            watch.check(f"consumers have not read all messages of broker {broker_name}", GO_ON_HINT)
            await self._look_again()
            await self._check_drained(broker_name, address)
            rests = await self._rests(broker_name)
        waiting = await self._held_back(broker_name, address)
        yield replace(step, state="drained", seconds=watch.seconds, rests=rests, waiting=waiting)

    async def _lower(self, broker_name: str, address: str, force: bool) -> int:
        """Takes the write permission; returns the permission before the first drain."""
        native, now = self._native_admin(), await self._permission(address)
        note = await self._ask(native.note, NOTES, broker_name)
        if not now & WRITE:
            if note is None:
                await self._ask(native.set_note, NOTES, broker_name, str(now))
            return now if note is None else int(note)
        if not force and (alone := await self._alone(broker_name)):
            topics = f"{len(alone)} {'topic' if len(alone) == 1 else 'topics'}"
            text = f"no other broker accepts messages of {topics} of broker {broker_name}: {listed(alone)}"
            raise RefusedError(text, hint=ALONE_HINT)
        await self._ask(native.set_note, NOTES, broker_name, str(now))
        await self._set_permission(address, now & ~WRITE)
        return now

    async def _check_drained(self, broker_name: str, address: str) -> None:
        if await self._permission(address) & WRITE:
            text = f"broker {broker_name} accepts messages again: another command restored its permission"
            raise RefusedError(text, hint=GO_ON_HINT)

    async def _alone(self, broker_name: str) -> list[str]:
        """Topics of a broker that clients could not send to without it."""

        async def is_alone(topic: str) -> bool:
            try:
                brokers = (await self.describe_topic(topic)).brokers
            except TopicNotFoundError:
                return False
            writable = {one.broker_name for one in brokers if one.writable and MASTER_ID in one.addresses}
            return writable == {broker_name}

        topics = application_topics(await self.topics(), await self.brokers())
        return [topic for topic, alone in zip(topics, await self._each(is_alone, topics), strict=True) if alone]

    async def _ends(self, broker_name: str, topics: Iterable[str]) -> dict[str, list[QueueInfo]]:
        """Queues of topics at one broker, by topic."""

        async def queues(topic: str) -> tuple[str, list[QueueInfo]]:
            try:
                found = (await self._ask(self._native_admin().describe_topic, topic, False)).queues
            except TopicNotFoundError:
                found = ()
            return topic, [one for one in found if one.queue.broker_name == broker_name]

        return dict(await self._each(queues, topics))

    async def _writes(
        self, broker_name: str, topics: Iterable[str], ends: Mapping[str, list[QueueInfo]]
    ) -> tuple[tuple[TopicWrites, ...], dict[str, list[QueueInfo]]]:
        """Messages that clients sent since the last look, and the ends of the queues now."""
        now, writes = await self._ends(broker_name, topics), dict[str, TopicWrites]()
        for topic, queues in now.items():
            known = {one.queue: one.max_offset for one in ends.get(topic, ())}
            for one in queues:
                end, start = one.max_offset, known.get(one.queue, 0)
                if end <= start:
                    continue
                first = max(start, end - (MAX_READ if topic in WAIT_TOPICS else 1))
                found, _ = await self._ask(self._native_admin().read, one.queue, first, end)
                sent = [(name, message) for message in found if (name := sent_topic(topic, message))]
                for name in {name for name, _ in sent}:
                    newest = [message for sent_to, message in sent if sent_to == name][-1]
                    count = end - start if name == topic else sum(sent_to == name for sent_to, _ in sent)
                    count += writes[name].messages if name in writes else 0
                    writes[name] = TopicWrites(name, count, newest.born_host)
        return tuple(writes.values()), now

    async def _rests(self, broker_name: str, topic: str | None = None) -> tuple[GroupRest, ...]:
        """Lag of each group at one broker, by topic. Groups without a lag are left out."""

        async def rests(group: GroupInfo) -> list[GroupRest]:
            try:
                rows = await self.group_lag(group.name)
            except GroupNotFoundError:  # deleted meanwhile
                return []
            lags: dict[str, int] = {}
            for row in rows:
                if row.queue.broker_name == broker_name and topic in (None, row.queue.topic):
                    lags[row.queue.topic] = lags.get(row.queue.topic, 0) + row.lag
            return [GroupRest(group.name, name, lag, len(group.members)) for name, lag in lags.items() if lag]

        found = await self._each(rests, await self.groups())
        return tuple(one for of_group in found for one in of_group)

    async def _held_back(self, broker_name: str, address: str) -> int:
        """Number of delayed messages, timers and open transactions of one broker."""
        parts = await self._delayed_at(broker_name)
        timers = (await self.broker_figures(address)).get("timersWaiting", "0")
        _, start, end = await self._open_transactions(broker_name)
        return sum(one.end - one.start for one in parts) + int(timers) + end - start

    async def _delayed_at(self, broker_name: str) -> list[Delayed]:
        """Parts of the delay levels of one broker whose delay has not ended.

        Raises:
            RequestTimeoutError: The broker does not answer. Its topic must not be removed as if nothing waited.
        """
        parts = await self._delayed()
        for one in parts.missing:
            if one.broker_name == broker_name:
                text = f"delayed messages of broker {broker_name} are unknown: {one.error}"
                raise RequestTimeoutError(text, hint=GO_ON_HINT, retryable=True)
        return [one for one in parts if one.queue.broker_name == broker_name]

    async def _open_transactions(self, broker_name: str) -> tuple[MessageQueue, int, int]:
        """Queue of half messages of one broker, and its part from the oldest open transaction on."""
        native, queue = self._native_admin(), MessageQueue(HALF_TOPIC, broker_name, 0)
        try:
            first, end = await self._ask(native.min_offset, queue), await self._ask(native.max_offset, queue)
        except TopicNotFoundError:
            return queue, 0, 0
        start = await self._ask(native.committed_offset, HALF_GROUP, queue)
        return queue, min(max(start or 0, first), end), end

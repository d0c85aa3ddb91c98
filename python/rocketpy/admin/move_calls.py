"""Calls of `Admin` and `AsyncAdmin` that move a topic from one broker to another under load."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketpy.admin.changes import WRITE
from rocketpy.admin.cluster import message_count
from rocketpy.admin.drain_calls import ROUTE_SECONDS, WAIT_TOPICS, DrainCalls, Watch
from rocketpy.admin.drains import MoveStep
from rocketpy.admin.status_calls import REAL_TOPIC
from rocketpy.base.clock import monotonic
from rocketpy.base.names import is_system_topic
from rocketpy.base.signature import shown_as
from rocketpy.errors import (
    GroupNotFoundError,
    InvalidArgumentError,
    NotSupportedError,
    RefusedError,
    TopicNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from typing import Any

    from rocketpy.admin.cluster import GroupInfo
    from rocketpy.message import MessageQueue

__all__ = ["MoveCalls"]

MOVE_HINT = "`rocketpy topic move` continues; start or delete the groups that lag"
NO_GROUP_HINT = "let a group consume them, or add force=True (--force) to remove them"


@shown_as("AsyncAdmin")
class MoveCalls(DrainCalls):
    """Moves of topics, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

    async def move_topic(
        self,
        topic: str,
        source: str,
        target: str,
        *,
        settle: float = ROUTE_SECONDS,
        timeout: float | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> AsyncIterator[MoveStep]:
        """Moves a topic from one broker to another, as `Admin.move_topic`.

        Args:
            topic: The topic.
            source: Name or `host:port` of the broker that has the topic.
            target: Name or `host:port` of the broker that receives the topic.
            settle: Time in seconds without a send to the source after which all clients have followed.
            timeout: Maximum time in seconds; None for no limit.
            force: Whether to remove messages that no group consumes.
            dry_run: Whether to return the plan without changing anything.
        """
        async for step in self._move(topic, source, target, settle, timeout, force, dry_run):
            yield step

    async def _move(
        self, topic: str, source: str, target: str, settle: float, timeout: float | None, force: bool, dry_run: bool
    ) -> AsyncGenerator[MoveStep, None]:
        watch = Watch(timeout)
        if is_system_topic(topic):
            raise InvalidArgumentError(f"topic {topic} belongs to the system")
        from_name, from_address = await self._master(source)
        to_name, to_address = await self._master(target)
        if from_name == to_name:
            raise InvalidArgumentError(f"source and target are the same broker: {from_name}")
        old, new = await self._topic_config(from_address, topic), await self._topic_config(to_address, topic)
        if old is None and new is None:
            raise TopicNotFoundError(f"topic {topic} is not at broker {from_name}", hint="`rocketpy topic list`")
        if old is not None and old["perm"] & WRITE:
            await self._check_target(topic, to_name, to_address, new)
        steps = planned(topic, from_name, to_name, old, new, settle)
        if dry_run or old is None:
            if not dry_run:  # an interrupted removal may have left the source in the routes
                await self._ask(self._native_admin().delete_topic_at, from_address, topic)
            for step in steps:
                yield step
            return
        await self._copy_groups(topic, from_name, (to_name, to_address))  # before the route leads their members there
        if new is None:
            attributes: dict[str, str | None] = {**(old.get("attributes") or {})}
            await self._ask(self._native_admin().put_topic, to_name, json.dumps(old), attributes)
        yield replace(steps[0], state="done")
        if old["perm"] & WRITE:
            closed = {**old, "perm": old["perm"] & ~WRITE}
            await self._ask(self._native_admin().put_topic, from_name, json.dumps(closed), {})
        yield replace(steps[1], state="done")
        async for step in self._wait_for_senders(topic, from_name, steps[2], watch, settle):
            yield step
        async for step in self._wait_for_groups(topic, from_name, from_address, steps[3], watch, force):
            yield step
        await self._ask(self._native_admin().delete_topic_at, from_address, topic)
        yield replace(steps[4], state="done")

    async def _check_target(self, topic: str, name: str, address: str, config: Mapping[str, Any] | None) -> None:
        """Checks that clients can send to the target of a move, before the source rejects them."""
        if not await self._permission(address) & WRITE:
            text = f"broker {name} is read only"
            raise RefusedError(text, hint=f"`rocketpy broker undrain {name}` restores its permission")
        if config is not None and not config["perm"] & WRITE:
            text = f"topic {topic} is read only at broker {name}"
            raise RefusedError(text, hint=f"`rocketpy topic perm {topic} rw --broker {name}` opens it")

    async def _wait_for_senders(
        self, topic: str, broker_name: str, step: MoveStep, watch: Watch, settle: float
    ) -> AsyncGenerator[MoveStep, None]:
        """Waits until clients have read the route. Until then the source accepts their messages."""
        topics = (topic, *WAIT_TOPICS)
        ends, quiet_since = await self._ends(broker_name, topics), monotonic()
        while (still := monotonic() - quiet_since) < settle:
            detail = f"{step.detail}: {still:.0f} s"
            yield replace(step, state="waiting", detail=detail)
            watch.check(f"clients still send to topic {topic} at broker {broker_name}", MOVE_HINT)
            await self._look_again(settle - still)
            writes, ends = await self._writes(broker_name, topics, ends)
            if any(one.topic == topic for one in writes):
                quiet_since = monotonic()
        yield replace(step, state="done")

    async def _wait_for_groups(
        self, topic: str, broker_name: str, address: str, step: MoveStep, watch: Watch, force: bool
    ) -> AsyncGenerator[MoveStep, None]:
        """Waits until nothing of the topic waits at the source, and each group has committed all of its messages."""
        while True:
            rests, waiting = await self._rests(broker_name, topic), await self._waiting_at(topic, broker_name, address)
            if not rests and not waiting:
                break
            yield replace(step, state="waiting", rests=rests, waiting=waiting)
            text = f"messages of topic {topic} at broker {broker_name} are not consumed"
            watch.check(text, MOVE_HINT)
            await self._look_again()
        if not force and not await self._groups_of(topic, broker_name):
            held = message_count((await self._ends(broker_name, [topic]))[topic])
            if held:
                text = f"no group consumes topic {topic}: {held:,} messages at broker {broker_name} would be removed"
                raise RefusedError(text, hint=NO_GROUP_HINT)
        yield replace(step, state="done")

    async def _groups_of(self, topic: str, broker_name: str) -> list[str]:
        """Groups that read a topic at one broker: by their offsets, or by the subscription of a live member."""

        async def reads(group: GroupInfo) -> bool:
            try:
                rows = await self.group_lag(group.name)
            except GroupNotFoundError:  # deleted meanwhile
                return False
            return any(row.queue.topic == topic and row.queue.broker_name == broker_name for row in rows)

        groups = await self.groups()
        return [one.name for one, is_reader in zip(groups, await self._each(reads, groups), strict=True) if is_reader]

    async def _copy_groups(self, topic: str, source: str, target: tuple[str, str]) -> None:
        """Creates the groups that read a topic at the target, with their settings. It may create none by itself."""
        native, (name, address) = self._native_admin(), target
        for group in await self._groups_of(topic, source):
            found = {one[0]: one[2] for one in await self._ask(native.group_configs, group)}
            if (config := found.get(source)) is not None and found.get(name) is None:
                await self._ask(native.put_group, address, config)

    async def _waiting_at(self, topic: str, broker_name: str, address: str) -> int:
        """Number of delayed messages, timers and open transactions of a topic at one broker."""
        try:
            count = (await self._ask(self._native_admin().timers, address)).get(topic, 0)
        except (NotSupportedError, RefusedError):  # no timers there
            count = 0
        for part in await self._delayed_at(broker_name):
            count += await self._count_real(topic, part.queue, part.start, part.end)
        return count + await self._count_real(topic, *await self._open_transactions(broker_name))

    async def _count_real(self, topic: str, queue: MessageQueue, start: int, end: int) -> int:
        """Number of messages of a system topic that wait for their delivery to a topic."""
        count = 0
        async for message in self._range(queue, start, end):
            count += message.properties.get(REAL_TOPIC) == topic
        return count


def planned(
    topic: str, source: str, target: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, settle: float
) -> list[MoveStep]:
    """Steps of a move. Steps that an earlier move finished are done.

    Args:
        topic: The topic.
        source: Broker that has the topic.
        target: Broker that receives the topic.
        old: Configuration at the source; None if the topic is not there.
        new: Configuration at the target; None if the topic is not there.
        settle: Time in seconds without a send to the source.
    """
    is_open = old is not None and bool(old["perm"] & WRITE)
    queues = (new or old or {}).get("writeQueueNums")
    states = {
        "create": (new is not None, f"{topic} at {target} with {queues} queues"),
        "close": (not is_open, f"{topic} at {source} is read only"),
        "quiet": (old is None, f"{settle:g} s without a send to {topic} at {source}"),
        "consume": (old is None, f"wait until all groups have read {topic} at {source}"),
        "remove": (old is None, f"{topic} from {source}"),
    }
    return [
        MoveStep(number, name, "done" if is_done else "planned", detail)
        for number, (name, (is_done, detail)) in enumerate(states.items(), 1)
    ]

"""Calls of `Admin` and `AsyncAdmin` that change settings, offsets, messages and leftovers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rocketpy.admin.changes import (
    GROUP_KEYS,
    GROUP_LIMITS,
    READ,
    TOPIC_KEYS,
    WRITE,
    CleanedPart,
    DirectResult,
    OffsetChange,
    ResentMessage,
    SettingChange,
    group_changes,
    topic_changes,
)
from rocketpy.admin.cluster import MASTER_ID
from rocketpy.admin.dead_letters import ORIGIN_ID, ORIGIN_TOPIC, RESENT_FROM, DeadLetter
from rocketpy.admin.status_calls import StatusCalls
from rocketpy.admin.topic_change import check_held
from rocketpy.base.instant import datetime_of
from rocketpy.base.names import RETRY_PREFIX, check_type
from rocketpy.base.signature import shown_as
from rocketpy.config import Start
from rocketpy.errors import (
    UNKNOWN,
    BrokerNotFoundError,
    InvalidArgumentError,
    NotSupportedError,
    RefusedError,
    TopicNotFoundError,
)
from rocketpy.producing.copies import copy_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from typing import Unpack

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.changes import GroupSettings
    from rocketpy.admin.cluster import TopicBroker
    from rocketpy.message import MessageQueue

__all__ = ["ChangeCalls"]

FAILURES = (*UNKNOWN, NotSupportedError)
"""Errors of one broker, after which a call continues with the others."""
NO_SUCH_MESSAGE = 22
"""QUERY_NOT_FOUND."""
NO_BROKER_HINT = "`rocketpy cluster list` shows the brokers with their names and addresses"
MESSAGE_HINT = "query the messages of the topic by key to see their ids; retention may have removed the message"
NO_MEMBER_HINT = (
    "start a consumer of the group with handlers, or resend the message to the group: its next member receives the copy"
)


@shown_as("AsyncAdmin")
class ChangeCalls(StatusCalls):
    """Calls that change something, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

    async def _master(self, broker: str) -> tuple[str, str]:
        """Name and address of the master of a broker, given by name or by address."""
        check_type("broker", broker, str, "a name or host:port")
        for known in await self.brokers():
            address = known.addresses.get(MASTER_ID)
            if address is not None and broker in (known.broker_name, address):
                return known.broker_name, address
        raise BrokerNotFoundError(f"no master of this name or address: {broker}", hint=NO_BROKER_HINT)

    async def _topic_config(self, address: str, topic: str) -> dict[str, Any] | None:
        """Configuration of a topic at one broker. Routes may show less, because `brokerPermission` limits them."""
        text = await self._ask(self._native_admin().topic_config, address, topic)
        return None if text is None else json.loads(text)

    async def _as_configured(self, topic: str, place: TopicBroker) -> TopicBroker:
        """A topic at one broker with its own permission instead of that of the route."""
        address = place.addresses.get(MASTER_ID)
        if address is None or (place.readable and place.writable):
            return place
        try:
            config = await self._topic_config(address, topic)
        except FAILURES:  # Apache's before 5.0
            return place
        if config is None:
            return place
        return replace(place, readable=bool(config["perm"] & READ), writable=bool(config["perm"] & WRITE))

    async def update_topic(
        self,
        topic: str,
        queues: int | None = None,
        *,
        write_queues: int | None = None,
        readable: bool | None = None,
        writable: bool | None = None,
        broker: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> list[SettingChange]:
        """Changes settings of a topic that exists, broker by broker. The call may be repeated.

        A broker that fails has its error in its rows; the others are changed.

        Args:
            topic: The topic.
            queues: Number of read and write queues at each broker, from 1.
            write_queues: Number of write queues; default: `queues`, if given.
            readable: Whether consumers may read the topic.
            writable: Whether producers may send to the topic.
            broker: Only at the broker with this name, or `host:port` of its master.
            attributes: Attributes to set; the value None removes an attribute.
            force: Whether to remove queues even if they hold messages.
            dry_run: Whether to return the changes without making them.

        Returns:
            Settings that differ from the requested ones, by broker; empty if there is nothing to change.

        Raises:
            TopicNotFoundError: The topic does not exist.
            BrokerNotFoundError: The broker does not have the topic.
            InvalidArgumentError: A number is invalid, or the removed queues hold messages.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_topic("update-doc", queues=2)
            ...     changes = admin.update_topic("update-doc", writable=False, dry_run=True)
            ...     [(one.setting, one.before, one.after) for one in changes]
            [('writable', True, False)]
        """
        given = {
            "read_queues": queues,
            "write_queues": queues if write_queues is None else write_queues,
            "readable": readable,
            "writable": writable,
        }
        for name, value in given.items():
            check_type(name, value, (bool if name.endswith("able") else int) | None, "a bool or a whole number")
            if name in TOPIC_KEYS and value is not None and value < 1:
                raise InvalidArgumentError(f"{name} must be 1 or more: {value}")
        wanted = {name: value for name, value in given.items() if value is not None}
        described = await self.describe_topic(topic, partial=True)  # a broker that does not answer has its error below
        places = [
            one for one in described.brokers if broker in (None, one.broker_name, one.addresses.get(MASTER_ID, ""))
        ]
        if not places:
            raise BrokerNotFoundError(f"topic {topic} is not at broker {broker}", hint=NO_BROKER_HINT)
        if queues is not None and not force:
            names = {one.broker_name for one in places}
            removed = [one for one in described.queues if one.queue.queue_id >= queues]
            removed = [one for one in removed if one.queue.broker_name in names]
            check_held(topic, queues, sum([await self._next(one.queue) - one.min_offset for one in removed]))
        found: list[SettingChange] = []
        for place in places:
            address = place.addresses.get(MASTER_ID)
            try:
                if address is None:
                    raise BrokerNotFoundError("the broker has no master now")
                if (config := await self._topic_config(address, topic)) is None:
                    raise TopicNotFoundError(f"topic {topic} is not at this broker")
                changes = topic_changes(place.broker_name, config, wanted, attributes or {})
                if changes and not dry_run:
                    await self._put_topic(place.broker_name, config, changes, attributes or {})
            except (*FAILURES, TopicNotFoundError) as error:
                named = {**wanted, **(attributes or {})}
                failure = str(error), error.code
                changes = [SettingChange(place.broker_name, name, None, named[name], *failure) for name in named]
            found += changes
        return found

    async def _put_topic(
        self,
        broker_name: str,
        config: Mapping[str, Any],
        changes: Iterable[SettingChange],
        attributes: Mapping[str, str | None],
    ) -> None:
        """Stores a topic at one broker: its configuration with changes."""
        new: dict[str, Any] = {name: config[key] for name, key in TOPIC_KEYS.items()}
        new |= {"readable": bool(config["perm"] & READ), "writable": bool(config["perm"] & WRITE)}
        new |= {one.setting: one.after for one in changes if one.setting in new}
        perm = config["perm"] & ~(READ | WRITE) | READ * new["readable"] | WRITE * new["writable"]
        changed = dict(config) | {key: new[name] for name, key in TOPIC_KEYS.items()} | {"perm": perm}
        await self._ask(self._native_admin().put_topic, broker_name, json.dumps(changed), dict(attributes))

    async def _next(self, queue: MessageQueue) -> int:
        return await self._ask(self._native_admin().next_offset, queue)

    async def update_group(
        self, group: str, *, broker: str | None = None, dry_run: bool = False, **settings: Unpack[GroupSettings]
    ) -> list[SettingChange]:
        """Changes settings of a consumer group, at each broker that has it. The call may be repeated.

        Clients see a change with their next request. A broker that fails has its error in its rows; the others are
        changed.

        Args:
            group: Name of the group.
            broker: Only at the broker with this name, or `host:port` of its master.
            dry_run: Whether to return the changes without making them.
            settings: Settings of `rocketpy.admin.changes.GroupSettings`; others stay unchanged.

        Returns:
            Settings that differ from the requested ones, by broker; empty if there is nothing to change.

        Raises:
            GroupNotFoundError: The group does not exist.
            BrokerNotFoundError: The broker does not have the group.
            InvalidArgumentError: A number is out of its range.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_group("update-doc")
            ...     [(one.setting, one.before, one.after) for one in admin.update_group("update-doc", retries=3)]
            [('retries', 16, 3)]
        """
        for name, value in settings.items():
            if name not in GROUP_KEYS:
                raise TypeError(f"{name} is not a setting of a group; the settings are: {', '.join(GROUP_KEYS)}")
            low, high = GROUP_LIMITS.get(name, (0, 1))
            check_type(name, value, int if name in GROUP_LIMITS else bool, "a whole number or a bool")
            if not isinstance(value, int) or not low <= value <= high:
                raise InvalidArgumentError(f"{name} must be from {low} to {high}: {value}")
        native = self._native_admin()
        places = await self._ask(native.group_configs, group)
        there = [one for one in places if one[2:] != (None, None)]
        if not there:
            await self.describe_group(group)  # raises the error for an unknown group
        there = [one for one in there if broker in (None, *one[:2])]
        if not there:
            raise BrokerNotFoundError(f"group {group} is not at broker {broker}", hint=NO_BROKER_HINT)
        found: list[SettingChange] = []
        for broker_name, address, text, unknown in there:
            config = json.loads(text or "{}")
            changes = group_changes(broker_name, config, settings)
            if unknown is not None:
                changes = [replace(one, error=unknown) for one in changes]
            elif changes and not dry_run:
                config |= {GROUP_KEYS[one.setting]: one.after for one in changes}
                try:
                    await self._ask(native.put_group, address, json.dumps(config))
                except FAILURES as error:
                    changes = [replace(one, error=str(error), code=error.code) for one in changes]
            found += changes
        return found

    async def set_offset(
        self,
        group: str,
        queue: MessageQueue,
        to: int | Start | str | datetime,
        *,
        force: bool = False,
        beyond: bool = False,
        dry_run: bool = False,
    ) -> OffsetChange:
        """Stores the offset that a group reads next in one queue. The call may be repeated.

        Args:
            group: Name of the group; not one of the system.
            queue: The queue.
            to: An offset, `Start.EARLIEST`, `Start.LATEST`, or a point in time as for `Start.of`.
            force: Whether to store the offset while the group has live members. Their next commit replaces it.
            beyond: Whether the offset may be outside of the queue. A broker of RocketPy never stores one past the end.
            dry_run: Whether to check everything, and to store nothing.

        Raises:
            OffsetError: The offset is outside of the queue; see `beyond`.
            GroupConflictError: The group has live members; see `force`.
            GroupNotFoundError: The group does not exist.
            InvalidArgumentError: The group belongs to the system.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin, server.producer("set-doc") as producer:
            ...     admin.create_group("set-doc")
            ...     queue = producer.send(rocketpy.Message("set-doc", b"text")).queue
            ...     change = admin.set_offset("set-doc", queue, "latest")
            ...     change.before, change.after
            (None, 1)
        """
        native = self._native_admin()
        offset = to if isinstance(to, int) else await self._offset_of(queue, Start.of(to))
        await self._ask(native.commit_offset, group, queue, offset, force, beyond, True)
        before = await self._ask(native.committed_offset, group, queue)
        if not dry_run:
            await self._ask(native.commit_offset, group, queue, offset, force, beyond, False)
        return OffsetChange(queue, before, offset)

    async def _offset_of(self, queue: MessageQueue, start: Start) -> int:
        native = self._native_admin()
        if start == Start.EARLIEST:
            return await self._ask(native.min_offset, queue)
        if start == Start.LATEST:
            return await self._ask(native.max_offset, queue)
        if start.at_ms is None:
            raise InvalidArgumentError("an offset is a number, the earliest, the latest or a time")
        return await self._ask(native.search_offset, queue, start.at_ms)

    async def _stored_message(self, topic: str, msg_id: str) -> ReceivedMessage:
        if (message := await self.message(topic, msg_id)) is None:
            raise RefusedError(f"no message of topic {topic} has id {msg_id}", code=NO_SUCH_MESSAGE, hint=MESSAGE_HINT)
        return message

    async def resend_message(
        self,
        topic: str,
        msg_id: str,
        *,
        to: str | None = None,
        group: str | None = None,
        again: bool = False,
        dry_run: bool = False,
    ) -> ResentMessage:
        """Sends a copy of a stored message to its topic, to another topic, or to one consumer group.

        The copy has body, tag, keys, order key and own properties of the message, byte for byte, and names its origin
        in `rocketpyResentFrom`, `rocketpyOriginTopic` and `rocketpyOriginMsgId`. Its `msg_id` is derived from the
        position of the message: a second call finds the copy and sends nothing.

        A copy for a group is stored in the retry topic of the group. Only this group receives it, with its usual
        retries, also if the group has no live member now. Members with handlers read the retry topic; consumers that
        pull do not.

        Args:
            topic: Topic of the message.
            msg_id: The `msg_id` or the `offset_msg_id` of the message.
            to: Target topic; it must exist.
            group: Consumer group that receives the copy, in place of all groups of the topic.
            again: Whether to send a copy even if the target has one.
            dry_run: Whether to look up the message and its copy only.

        Raises:
            TopicNotFoundError: A topic does not exist.
            GroupNotFoundError: The group does not exist.
            RefusedError: The topic has no such message (code 22), or the broker refuses the copy.
            DamagedDataError: The body does not decompress.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin, server.producer("again-doc") as producer:
            ...     msg_id = producer.send(rocketpy.Message("again-doc", b"text")).msg_id
            ...     while admin.message("again-doc", msg_id) is None:  # the index follows within milliseconds
            ...         pass
            ...     admin.resend_message("again-doc", msg_id).receipt.queue.topic
            'again-doc'
        """
        if to is not None and group is not None:
            raise InvalidArgumentError("to and group cannot be given together", hint="a group reads its own copy")
        message = await self._stored_message(topic, msg_id)
        if group is not None:
            await self.describe_group(group)  # raises the error for an unknown group
        target = to or (topic if group is None else RETRY_PREFIX + group)
        copy_id, exists = DeadLetter("", message).resent_id, True
        try:
            await self.describe_topic(target)
        except TopicNotFoundError:
            if group is None:
                raise
            exists = False
        sent_before = exists and await self.message(target, copy_id) is not None
        if not exists and not dry_run:  # as the first retry of the group does
            shape = 1, 1, READ | WRITE
            await self._ask(self._native_admin().create_topic, target, *shape, None, message.broker_name, {})
        if dry_run or (sent_before and not again):
            return ResentMessage(message, target, sent_before, None)
        marks = {RESENT_FROM: message.topic} | ({} if group is None else {"RETRY_TOPIC": message.topic})
        origin = {ORIGIN_TOPIC: message.topic, ORIGIN_ID: message.msg_id}
        copy = copy_of(target, message.body, message.flag, message.properties, defaults=origin, marks=marks)
        async with self._resender() as send:
            return ResentMessage(message, target, sent_before, await send(copy, copy_id))

    async def consume_directly(
        self, topic: str, msg_id: str, group: str, *, client_id: str | None = None
    ) -> DirectResult:
        """Lets a live member of a group handle one stored message now, and returns the outcome of its handler.

        Neither offsets nor retries change. The call waits up to 10 s for the handler.

        Args:
            topic: Topic of the message.
            msg_id: The `msg_id` or the `offset_msg_id` of the message.
            group: Consumer group, whose members have handlers.
            client_id: Member that handles the message; default: the first one by client id.

        Raises:
            GroupNotFoundError: The group does not exist.
            RefusedError: The group has no live member, the member does not answer, or the topic has no such message.
        """
        message = await self._stored_message(topic, msg_id)
        _, address = await self._master(message.broker_name)
        members = [one.client_id for one in await self.describe_group(group)]
        member = client_id or next(iter(members), None)
        if member is None:
            raise RefusedError(f"group {group} has no live member", hint=NO_MEMBER_HINT)
        place = (group, member, topic, message.offset_msg_id)
        result, error, milliseconds = await self._ask(self._native_admin().consume_directly, address, *place)
        return DirectResult(member, result, error, milliseconds)

    async def clean_broker(
        self, broker: str, *, files: bool = False, topics: bool = False, offsets: bool = False, dry_run: bool = False
    ) -> list[CleanedPart]:
        """Removes leftovers of one broker. The call may be repeated.

        Args:
            broker: Name or `host:port` of the broker.
            files: Files of the log past `fileReservedTime`, at any hour, and files of consume queues without messages
                in the log.
            topics: Consume queues of topics that the broker does not have.
            offsets: Offsets of groups or topics that the broker does not have. Groups with live members and groups of
                the system keep theirs.
            dry_run: Whether to return the leftovers without removing them.

        Returns:
            One row for each kind, and for each group with offsets. A kind that failed has its `error`.

        Raises:
            BrokerNotFoundError: No master has this name or address.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.clean_broker(server.broker, offsets=True, dry_run=True)
            []
        """
        broker_name, address = await self._master(broker)
        found: list[CleanedPart] = []
        if files:
            found.append(await self._clean_files(broker_name, address, dry_run))
        if topics:
            text = "consume queues of topics without a configuration"
            found.append(await self._clean(CleanedPart(broker_name, "topics", text, False), address, "topics", dry_run))
        if offsets:
            found += await self._clean_offsets(broker_name, address, dry_run)
        return found

    async def _clean(self, part: CleanedPart, address: str, leftover: str, dry_run: bool) -> CleanedPart:
        if dry_run:
            return part
        try:
            await self._ask(self._native_admin().clean, address, leftover)
        except FAILURES as error:
            return replace(part, error=str(error))
        return replace(part, is_removed=True)

    async def _clean_files(self, broker_name: str, address: str, dry_run: bool) -> CleanedPart:
        """Removes expired files: first those of the log, then those of the queues."""
        part = CleanedPart(broker_name, "files", "expired files", False)
        try:
            config, figures = await self.broker_config(address), await self.broker_figures(address)
        except FAILURES as error:
            return replace(part, error=str(error))
        earliest = int(figures.get("earliestMessageTimeStamp", "-1"))
        oldest = datetime_of(earliest) if earliest > 0 else None
        since = "no message" if oldest is None else f"the oldest message is of {oldest.isoformat(timespec='seconds')}"
        text = f"files older than {config.get('fileReservedTime')} hours; {since}"
        part = await self._clean(replace(part, found=text), address, "log", dry_run)
        return part if part.error or dry_run else await self._clean(part, address, "queues", dry_run)

    async def _clean_offsets(self, broker_name: str, address: str, dry_run: bool) -> list[CleanedPart]:
        native = self._native_admin()
        try:
            unused = await self._ask(native.unused_offsets, address)
        except FAILURES as error:
            return [CleanedPart(broker_name, "offsets", "unused offsets", False, str(error))]
        found: list[CleanedPart] = []
        for group in sorted({group for _, group, is_group_missing in unused if is_group_missing}):
            topics = ", ".join(sorted(topic for topic, one, _ in unused if one == group))
            text = f"offsets of group {group}, which does not exist, in {topics}"
            found.append(CleanedPart(broker_name, "offsets", text, False))
            if not dry_run:
                found[-1] = await self._removed(found[-1], native.delete_group_at, address, group)
        for topic in sorted({topic for topic, _, is_group_missing in unused if not is_group_missing}):
            groups = ", ".join(sorted(group for one, group, missing in unused if one == topic and not missing))
            text = f"offsets in topic {topic}, which does not exist, of {groups}"
            found.append(CleanedPart(broker_name, "offsets", text, False))
            if not dry_run:
                found[-1] = await self._removed(found[-1], native.delete_topic_at, address, topic)
        return found

    async def _removed(self, part: CleanedPart, call: Any, *arguments: str) -> CleanedPart:
        try:
            await self._ask(call, *arguments)
        except FAILURES as error:
            return replace(part, error=str(error))
        return replace(part, is_removed=True)

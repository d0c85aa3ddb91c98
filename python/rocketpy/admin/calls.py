"""The calls of `Admin` and `AsyncAdmin`, each written once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpy.admin.dead_letter_calls import DeadLetterCalls
from rocketpy.admin.topic_change import TopicChange
from rocketpy.admin.trace import TRACE_TOPIC, MessageTrace, explained, trace_of
from rocketpy.base.instant import instant_ms
from rocketpy.base.names import check_type
from rocketpy.base.signature import shown_as
from rocketpy.errors import TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import Literal

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.cluster import BrokerInfo, GroupInfo, GroupMember, ProducerConnection, QueueLag, TopicInfo
    from rocketpy.admin.replication import HaStatus
    from rocketpy.config import Instant, Start
    from rocketpy.message import MessageQueue

__all__ = ["AdminCalls"]

logger = logging.getLogger("rocketpy.client")

BROKER_LIMIT = 64
"""Messages that a broker gives to one query unless it is configured otherwise (`maxMsgsNumBatch`)."""
CUT_OFF = "%s gave %d messages of %s, its limit (maxMsgsNumBatch); there may be older ones: ask for an earlier end"


def cut_off(found: Iterable[ReceivedMessage], max_messages: int) -> list[str]:
    """The brokers that probably found more messages than they gave.

    Args:
        found: What a query gave.
        max_messages: How many were asked for.
    """
    counts = Counter(message.broker_name for message in found)
    return [broker_name for broker_name, count in counts.items() if count == BROKER_LIMIT < max_messages]


def warn_of_cut(found: Iterable[ReceivedMessage], key: str, max_messages: int) -> None:
    """Warns of brokers that probably found more messages than they gave."""
    for broker_name in cut_off(found, max_messages):
        logger.warning(CUT_OFF, broker_name, BROKER_LIMIT, key)


def span_ms(begin: Instant | None, end: Instant | None) -> tuple[int, int]:
    """A span of time, in milliseconds; everything where an end is not given."""
    return 0 if begin is None else instant_ms(begin), 2**63 - 1 if end is None else instant_ms(end)


def master_role(sync: bool) -> str:
    """The role of a master, whose sends wait for slaves or do not."""
    return "SYNC_MASTER" if sync else "ASYNC_MASTER"


def settings_text(changes: Mapping[str, str | float]) -> dict[str, str]:
    """Values of settings as brokers write them."""
    check_type("changes", changes, Mapping, "a dict by name")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in changes.items()}


@shown_as("AsyncAdmin")
class AdminCalls(DeadLetterCalls):
    """The calls of `AsyncAdmin`, which awaits them, and of `Admin`, which has the same ones without `await`.

    For `Admin` a native call blocks the thread, so that no coroutine here ever waits: each ends at its first step.
    """

    __slots__ = ()

    async def create_topic(
        self,
        topic: str,
        queues: int | None = None,
        *,
        write_queues: int | None = None,
        readable: bool | None = None,
        writable: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
        force: bool = False,
    ) -> None:
        """Creates a topic, or changes it, and waits until its route is known.

        What is not named stays as it is; a new topic has 8 queues, and may be read and written.

        Args:
            topic: Its name: up to 127 of `a-z A-Z 0-9 _ - % |`.
            queues: Queues to read at each broker, from 1.
            write_queues: Queues to write at each broker; as many as `queues`, if only that is given.
            readable: Whether consumers may read it.
            writable: Whether producers may send to it.
            cluster: Only at the brokers of this cluster.
            broker: Only at this broker.
            attributes: Attributes to set, by name; None as the value removes one. Those that are not named stay as they
                are. RocketPy's brokers know `retention.hours` and `flush.type` beside some of Apache's.
            force: Remove queues even if they hold messages. The same number as before brings them back.

        Raises:
            InvalidArgumentError: The name, a number of queues, or the text of an attribute breaks its rules; the
                name is one of the system's; or queues that hold messages would go.
            RefusedError: A broker does not know an attribute, or not this value of it; the message names both.
        """
        change = TopicChange(
            topic,
            queues,
            write_queues=write_queues,
            readable=readable,
            writable=writable,
            cluster=cluster,
            broker=broker,
            attributes=attributes,
            force=force,
        )
        known = await self._known_topic(topic)
        held = sum([await self.next_offset(one.queue) - one.min_offset for one in change.dropped(known)])
        for arguments in change.calls(known, held):
            await self._ask(self._native_admin().create_topic, *arguments)

    async def _known_topic(self, topic: str) -> TopicInfo | None:
        try:
            return await self.describe_topic(topic)
        except TopicNotFoundError:
            return None

    async def delete_topic(self, topic: str) -> None:
        """Deletes a topic at every broker and name server. Its messages stay in the log until retention takes them.

        Raises:
            TopicNotFoundError: There is no such topic.
        """
        await self._ask(self._native_admin().delete_topic, topic)

    async def topics(self) -> list[str]:
        """Names of all topics, sorted, those of the system too."""
        return await self._ask(self._native_admin().topics)

    async def describe_topic(self, topic: str) -> TopicInfo:
        """A topic with its brokers and what its queues hold.

        Raises:
            TopicNotFoundError: No name server knows it.
        """
        return await self._ask(self._native_admin().describe_topic, topic)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Queues of a topic that may be read, sorted."""
        return await self._ask(self._native_admin().queues, topic)

    async def groups(self) -> list[GroupInfo]:
        """Consumer groups that the brokers know, sorted by name."""
        return await self._ask(self._native_admin().groups)

    async def group_lag(self, group: str, topic: str | None = None) -> list[QueueLag]:
        """How far a group is in each queue, counted from its stored commits.

        A member that ends without a commit gives back what it holds, and a server that is killed may lose the commits
        of its last 5 s; live members repeat theirs.

        Args:
            group: Name of the group.
            topic: Only this topic; default: all topics that the group has offsets for.

        Raises:
            GroupNotFoundError: There is no such group.
        """
        return await self._ask(self._native_admin().group_lag, group, topic)

    async def group_members(self, group: str) -> list[str]:
        """Client ids of the members of a group that are there now, sorted."""
        return await self._ask(self._native_admin().group_members, group)

    async def describe_group(self, group: str) -> list[GroupMember]:
        """The members of a group that are there now, sorted by client id, with what each subscribes to.

        Raises:
            GroupNotFoundError: There is no such group.
        """
        return await self._ask(self._native_admin().describe_group, group)

    async def producer_connections(self, group: str) -> list[ProducerConnection]:
        """The members of a producer group that are there now, sorted by client id.

        Empty where none is, also for a name that nobody has: brokers know a producer group as long as it has members.

        Args:
            group: Name of the producer group.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin, server.producer("ingest-doc") as producer:
            ...     _ = producer.send(rocketpy.Message("producer-doc", b"text"))
            ...     while not (found := admin.producer_connections("ingest-doc")):  # the first heartbeat is on its way
            ...         pass
            ...     [one.language for one in found]
            ['RUST']
        """
        return await self._ask(self._native_admin().producer_connections, group)

    async def create_group(self, group: str) -> None:
        """Creates a group at every broker, as its first consumer would; does nothing where it is there already.

        `reset_offsets` can then say where it begins, before any consumer started.

        Args:
            group: Its name: up to 120 of `a-z A-Z 0-9 _ - % |`.
        """
        await self._ask(self._native_admin().create_group, group)

    async def delete_group(self, group: str) -> None:
        """Deletes a group with its offsets at every broker.

        Raises:
            GroupConflictError: The group has live members.
            GroupNotFoundError: There is no such group.
        """
        await self._ask(self._native_admin().delete_group, group)

    async def reset_offsets(
        self, group: str, topic: str, to: Start | str | datetime, *, force: bool = False
    ) -> dict[MessageQueue, int]:
        """Stores new offsets for a group that exists.

        Args:
            group: Name of the group.
            topic: The topic. One that the group has not consumed yet is taken too: the group begins there.
            to: `Start.EARLIEST`, `Start.LATEST`, `Start.at(...)` or what `Start.of` takes.
            force: Also while members are there. They continue at the new offsets, each with its next pull: it may hand
                out messages before that it has pulled ahead. A broker with `useServerSideResetOffset=false` stores
                nothing, and tells them: then see with `group_lag` where they are.

        Returns:
            The new offset by queue.

        Raises:
            GroupConflictError: The group has live members.
            GroupNotFoundError: There is no such group: see `create_group`.
        """
        return dict(await self._ask(self._native_admin().reset_offsets, group, topic, to, force))

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int, *, force: bool = False) -> None:
        """Stores the offset that a group reads next in a queue. It may be repeated.

        Args:
            group: Name of the group.
            queue: The queue.
            offset: The offset, from `min_offset` to `max_offset`.
            force: Also while members are there. Their next commit replaces it: `reset_offsets` tells them.

        Raises:
            OffsetError: The queue does not reach there.
            GroupConflictError: The group has live members.
            GroupNotFoundError: There is no such group: see `create_group`.
        """
        await self._ask(self._native_admin().commit_offset, group, queue, offset, force)

    async def clone_offsets(
        self, source: str, target: str, *, topic: str | None = None, force: bool = False
    ) -> list[str]:
        """Gives a group the stored offsets of another one, so that it begins where that is. It may be repeated.

        Args:
            source: The group whose offsets are taken.
            target: The group that gets them. What it had stored in these topics is replaced.
            topic: Only this topic; default: all topics that `source` has offsets for.
            force: Also while `target` has members. Their next commits replace the offsets.

        Returns:
            The topics, sorted; none where `source` has stored nothing.

        Raises:
            GroupConflictError: `target` has live members.
            GroupNotFoundError: There is no such group: see `create_group`.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_topic("clone-doc", queues=1)
            ...     admin.create_group("blue"), admin.create_group("green")
            ...     _ = admin.reset_offsets("blue", "clone-doc", "latest")
            ...     admin.clone_offsets("blue", "green")
            (None, None)
            ['clone-doc']
        """
        return await self._ask(self._native_admin().clone_offsets, source, target, topic, force)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the oldest message of a queue."""
        return await self._ask(self._native_admin().min_offset, queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Offset after the newest message of a queue that can be read."""
        return await self._ask(self._native_admin().max_offset, queue)

    async def next_offset(self, queue: MessageQueue) -> int:
        """Offset that the next message of a queue gets: beyond `max_offset` while acknowledged ones are on their way.

        An Apache broker answers both alike.
        """
        return await self._ask(self._native_admin().next_offset, queue)

    async def search_offset(self, queue: MessageQueue, instant: Instant) -> int:
        """First offset stored at or after a point in time.

        Args:
            queue: The queue.
            instant: Seconds since 1970 UTC, or a datetime.
        """
        return await self._ask(self._native_admin().search_offset, queue, instant_ms(instant))

    async def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset stored for a group in a queue; None if there is none."""
        return await self._ask(self._native_admin().committed_offset, group, queue)

    async def view_message(self, offset_msg_id: str) -> ReceivedMessage:
        """Reads one message by its offset message id.

        Raises:
            InvalidArgumentError: It is not an offset message id.
            RefusedError: There is no message at that place.
            DamagedDataError: Its body is not what was sent.
        """
        return await self._ask(self._native_admin().view_message, offset_msg_id)

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        kind: Literal["key", "unique_key", "tag"] = "key",
        begin: Instant | None = None,
        end: Instant | None = None,
        max_messages: int = 64,
    ) -> list[ReceivedMessage]:
        """Messages of a topic that have a key, the oldest first: what the index of its brokers finds.

        A message is found a moment after it was stored, and as long as it is in the log.

        Args:
            topic: The topic.
            key: A key of the messages, or what `kind` names.
            kind: `"key"`, `"unique_key"` (the `msg_id` of a receipt), or `"tag"` (Apache's brokers before 5.4 find
                nothing).
            begin: Stored at or after this: seconds since 1970 UTC, or a datetime.
            end: Stored at or before this.
            max_messages: Maximum number of messages; the newest are kept. A broker has a limit of
                its own (`maxMsgsNumBatch`, 64): reaching it below `max_messages` is logged as a warning, because there
                may be older ones. Narrow `begin` and `end` to find them.

        Raises:
            TopicNotFoundError: No name server knows the topic.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin, server.producer("query-doc") as producer:
            ...     receipt = producer.send(rocketpy.Message("query-doc", b"late", keys=["N14228"]))
            ...     while not (found := admin.query_messages("query-doc", "N14228")):
            ...         pass
            ...     [message.body for message in found]
            [b'late']
        """
        begin_ms, end_ms = span_ms(begin, end)
        found = await self._ask(self._native_admin().query_messages, topic, key, kind, begin_ms, end_ms, max_messages)
        warn_of_cut(found, key, max_messages)
        return found

    async def message(self, topic: str, msg_id: str) -> ReceivedMessage | None:
        """The message of a topic with this id; None if there is none.

        Args:
            topic: The topic.
            msg_id: The `msg_id` or the `offset_msg_id` of a receipt or of a received message.

        Raises:
            TopicNotFoundError: No name server knows the topic.
        """
        return await self._ask(self._native_admin().message, topic, msg_id)

    async def trace(
        self,
        msg_id: str,
        *,
        trace_topic: str = TRACE_TOPIC,
        begin: Instant | None = None,
        end: Instant | None = None,
        max_messages: int = 64,
    ) -> MessageTrace:
        """What producers and consumers with `trace=True`, of any language, wrote about a message.

        Traces arrive some seconds after what they tell of. They are best effort: what is not there may have happened.

        Args:
            msg_id: The `msg_id` of a receipt or of a received message.
            trace_topic: The topic of the traces.
            begin: Only traces stored at or after this time.
            end: Only traces stored at or before this time.
            max_messages: Maximum number of trace messages that are read, from 1; the newest are kept. A broker gives at
                most `maxMsgsNumBatch`, which is 64 by default.

        Returns:
            The trace; it is false when nobody wrote anything.

        Raises:
            TopicNotFoundError: There is no such trace topic yet.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.producer("trace-doc", trace=True) as producer:
            ...     msg_id = producer.send(rocketpy.Message("trace-doc", b"text")).msg_id
            >>> with server.admin() as admin:
            ...     [(one.group, one.topic, one.success) for one in admin.trace(msg_id).sends]
            [('trace-doc', 'trace-doc', True)]
        """
        with explained(trace_topic):
            found = await self.query_messages(trace_topic, msg_id, begin=begin, end=end, max_messages=max_messages)
        return trace_of(msg_id, found)

    async def brokers(self) -> list[BrokerInfo]:
        """Brokers of the cluster, sorted by name."""
        return await self._ask(self._native_admin().brokers)

    async def broker_figures(self, address: str) -> dict[str, str]:
        """Figures of one broker, as text by Apache's names: `putTps`, `bootTimestamp`, `commitLogDiskRatio` and others.

        Args:
            address: `host:port` of the broker; see `brokers`.
        """
        return await self._ask(self._native_admin().broker_figures, address)

    async def broker_config(self, address: str) -> dict[str, str]:
        """Settings of one broker, as text by Apache's names: `brokerName`, `flushDiskType` and others.

        Args:
            address: `host:port` of the broker; see `brokers`.
        """
        return await self._ask(self._native_admin().broker_config, address)

    async def update_broker_config(self, address: str, changes: Mapping[str, str | float]) -> None:
        """Changes settings of one broker while it runs, by Apache's names. It may be repeated.

        A broker of RocketPy keeps a change until its next start; `rocketpy config` shows which settings it may change.
        One of Apache's writes it to its file, and passes over names that it does not know.

        Args:
            address: `host:port` of the broker; see `brokers`.
            changes: The new value of each setting; True and False as `true` and `false`.

        Raises:
            RefusedError: A name is unknown, a value breaks its rules, or a setting cannot change while the broker runs.
                Nothing was changed.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     address = admin.brokers()[0].addresses[0]
            ...     admin.update_broker_config(address, {"autoCreateTopicEnable": True})
            ...     admin.broker_config(address)["autoCreateTopicEnable"]
            'true'
        """
        await self._ask(self._native_admin().update_broker_config, address, settings_text(changes))

    async def ha_status(self, address: str) -> HaStatus:
        """The slaves of one broker, and how far their logs reach.

        Args:
            address: `host:port` of the broker; see `brokers`.

        Raises:
            RefusedError: The broker does not know the question, as Apache's before 5.0.
        """
        return await self._ask(self._native_admin().ha_status, address)

    async def promote(self, address: str, *, sync: bool = False, force: bool = False) -> None:
        """Makes a slave the master of its name. It has begun when this returns; `ha_status` says when it is done.

        The broker stops in order and starts again, in its process: its clients connect anew. The role is kept in the
        store, and wins over the configuration at later starts. What it checks first may take 10 s: the call waits up to
        30 s, or `api_timeout` where that is longer.

        Args:
            address: `host:port` of the slave.
            sync: Whether its sends wait for slaves (SYNC_MASTER).
            force: Do not ask whether a master of its name answers, or another slave has more of the log. Two masters
                write two histories.

        Raises:
            RefusedError: A master answers, another slave has more of the log, or no name server says who there is; the
                broker is a master already.
        """
        await self._ask(self._native_admin().change_role, address, master_role(sync), None, force)

    async def demote(self, address: str, *, broker_id: int | None = None, force: bool = False) -> None:
        """Makes a master a slave of its name, as `promote` does the reverse.

        It takes no messages any more, and waits up to 10 s until a slave has all. The call waits as that of `promote`.

        Args:
            address: `host:port` of the master.
            broker_id: Its id as a slave, from 1 on; default: the smallest free one.
            force: Do not wait for a slave. What none has cannot be read while this broker is no master.

        Raises:
            RefusedError: No slave had the whole log in 10 s: the broker takes messages again. It is a slave already.
        """
        await self._ask(self._native_admin().change_role, address, "SLAVE", broker_id, force)

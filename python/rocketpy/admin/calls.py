"""The calls of `Admin` and `AsyncAdmin`, each written once."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketpy.admin.cluster import BrokerHealth
from rocketpy.admin.live_config import typed
from rocketpy.admin.status_calls import problems_of
from rocketpy.admin.topic_change import TopicChange
from rocketpy.admin.trace import TRACE_TOPIC, MessageTrace, explained, trace_of
from rocketpy.admin.waiting_calls import WaitingCalls
from rocketpy.base.hints import granting, hinted
from rocketpy.base.instant import instant_ms
from rocketpy.base.misuse import no_option
from rocketpy.base.names import RETRY_PREFIX
from rocketpy.base.signature import shown_as
from rocketpy.errors import GroupConflictError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from typing import Literal, Never

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.answers import Answers, ConsumerRunningInfo
    from rocketpy.admin.cluster import BrokerInfo, GroupInfo, GroupMember, ProducerConnection, QueueLag, TopicInfo
    from rocketpy.admin.replication import HaStatus
    from rocketpy.config import Instant, Start
    from rocketpy.message import MessageQueue

__all__ = ["AdminCalls"]

logger = logging.getLogger("rocketpy.client")

CLUSTER_READ = ("Cluster:*", "Get")
"""Policy of calls that look for the brokers."""
ACTIVE_HINT = "stop the members first: `rocketpy group describe GROUP` shows them"
"""Hint for a change that a group with live members never allows."""
COMMIT_HINT = "stop the members first, or add force=True: their next commit replaces the offset"
CLONE_HINT = (
    "stop the members of the target first, or add force=True (--force): their next commits replace the copied offsets"
)

BROKER_LIMIT = 64
"""Default maximum number of messages that a broker returns for one query (`maxMsgsNumBatch`)."""
CUT_OFF = (
    "query result of %s may be incomplete: limit of %d messages (maxMsgsNumBatch) reached for %s; "
    "query again with an earlier end for older messages"
)


def cut_off(found: Iterable[ReceivedMessage], max_messages: int) -> list[str]:
    """Brokers that probably found more messages than they returned.

    Args:
        found: Messages of a query.
        max_messages: Requested number of messages.
    """
    counts = Counter(message.broker_name for message in found)
    return [broker_name for broker_name, count in counts.items() if count == BROKER_LIMIT < max_messages]


def warn_of_cut(found: Iterable[ReceivedMessage], key: str, max_messages: int) -> None:
    """Warns of brokers that probably found more messages than they returned."""
    for broker_name in cut_off(found, max_messages):
        logger.warning(CUT_OFF, broker_name, BROKER_LIMIT, key)


def span_ms(begin: Instant | None, end: Instant | None) -> tuple[int, int]:
    """Span of time in milliseconds; unlimited where an end is not given."""
    return 0 if begin is None else instant_ms(begin), 2**63 - 1 if end is None else instant_ms(end)


def master_role(sync: bool) -> str:
    """Role of a master whose sends wait for slaves, or do not."""
    return "SYNC_MASTER" if sync else "ASYNC_MASTER"


@shown_as("AsyncAdmin")
class AdminCalls(WaitingCalls):
    """Calls of `AsyncAdmin`, which are awaited, and of `Admin`, which has the same calls without `await`.

    For `Admin` a native call blocks the thread, so that no coroutine here ever waits: each ends at its first step.
    """

    __slots__ = ()

    async def create_topic(
        self,
        /,
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
        **_other: Never,
    ) -> None:
        """Creates a topic, or changes it, and waits until its route is known.

        Attributes that are not named stay unchanged; a new topic has 8 queues, and is readable and writable.

        Args:
            topic: Name of the topic: up to 127 characters of `a-z A-Z 0-9 _ - % |`.
            queues: Number of read queues at each broker, from 1.
            write_queues: Number of write queues at each broker; default: `queues`, if given.
            readable: Whether consumers may read it.
            writable: Whether producers may send to it.
            cluster: Only at the brokers of this cluster.
            broker: Only at the broker with this name, or `host:port` of its master.
            attributes: Attributes to set, by name; the value None removes an attribute. Other attributes stay
                unchanged. RocketPy's brokers support `retention.hours`, `flush.type` and some of Apache's attributes.
            force: Whether to remove queues even if they hold messages. Restoring the old number of queues makes them
                readable again.

        Raises:
            InvalidArgumentError: The name, a number of queues or the text of an attribute is invalid; the name belongs
                to the system; or the removed queues hold messages.
            RefusedError: A broker does not support an attribute or its value; the message names both.
        """
        if _other:
            raise no_option(self.create_topic, _other)
        if broker is not None and ":" in broker:
            broker, _ = await self._master(broker)
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
        with granting((f"Topic:{topic}", "Create,Get"), CLUSTER_READ):
            known = await self._known_topic(topic)
            held = sum([await self.next_offset(one.queue) - one.min_offset for one in change.dropped(known)])
            for arguments in change.calls(known, held):
                await self._ask(self._native_admin().create_topic, *arguments)

    async def _known_topic(self, topic: str) -> TopicInfo | None:
        try:
            known = await self._ask(self._native_admin().describe_topic, topic, False)
        except TopicNotFoundError:
            return None
        return replace(known, brokers=tuple([await self._as_configured(topic, one) for one in known.brokers]))

    async def delete_topic(self, topic: str) -> None:
        """Deletes a topic at every broker and name server. Its messages stay in the log until retention removes them.

        Args:
            topic: The topic.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        with granting((f"Topic:{topic}", "Delete,Get"), CLUSTER_READ):
            await self._ask(self._native_admin().delete_topic, topic)

    async def topics(self) -> list[str]:
        """Names of all topics, including system topics, sorted."""
        return await self._ask(self._native_admin().topics)

    async def describe_topic(self, topic: str, *, partial: bool = False) -> TopicInfo:
        """Brokers and queues of a topic, with the offsets of each queue.

        Args:
            topic: The topic.
            partial: As for `groups`.

        Raises:
            TopicNotFoundError: No name server knows the topic.
        """
        try:
            return await self._ask(self._native_admin().describe_topic, topic, partial)
        except TopicNotFoundError as error:
            await self._explain(error, topic)
            raise

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Readable queues of a topic, sorted.

        Args:
            topic: The topic.
        """
        return await self._ask(self._native_admin().queues, topic)

    async def groups(self, *, partial: bool = False) -> Answers[GroupInfo]:
        """Consumer groups that the brokers know, sorted by name. All brokers are asked at the same time.

        Args:
            partial: Whether to return the answers of the other brokers if one does not answer. The result names such
                brokers in `missing`. By default their error is raised, and always if no broker answers.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_group("groups-doc")
            ...     found = admin.groups(partial=True)
            ...     [one.members for one in found if one.name == "groups-doc"], found.missing
            ([()], ())
        """
        return await self._ask(self._native_admin().groups, partial)

    async def group_lag(self, group: str, topic: str | None = None, *, partial: bool = False) -> Answers[QueueLag]:
        """Progress of a group in each queue, counted from its stored commits.

        Messages of a member that ends without a commit count as lag again. A server that is killed may lose the commits
        of its last 5 s; live members repeat theirs.

        Args:
            group: Name of the group.
            topic: Restricts the result to this topic; default: all topics with offsets of the group.
            partial: As for `groups`. Queues of a broker that does not answer are left out.

        Raises:
            GroupNotFoundError: The group does not exist.
        """
        return await self._ask(self._native_admin().group_lag, group, topic, partial)

    async def group_members(self, group: str, *, partial: bool = False) -> Answers[str]:
        """Client ids of the live members of a group, sorted.

        Args:
            group: Name of the group.
            partial: As for `groups`.
        """
        return await self._ask(self._native_admin().group_members, group, partial)

    async def describe_group(self, group: str, *, partial: bool = False) -> Answers[GroupMember]:
        """Live members of a group with their subscriptions, sorted by client id.

        Args:
            group: Name of the group.
            partial: As for `groups`.

        Raises:
            GroupNotFoundError: The group does not exist.
        """
        return await self._ask(self._native_admin().describe_group, group, partial)

    async def consumer_running_info(self, group: str, client_id: str, *, jstack: bool = False) -> ConsumerRunningInfo:
        """State of one live member of a group, as the member itself reports it: version, subscription and queues.

        Args:
            group: Name of the group.
            client_id: Client id of the member; see `group_members`.
            jstack: Whether to request the stacks of all threads of its process. Members of RocketPy and of Apache's
                Java client report them.

        Raises:
            GroupNotFoundError: The group does not exist.
            RefusedError: No broker knows the member, or it did not answer within 10 s.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_topic("running-doc", queues=1)
            ...     with server.consumer("running-doc", "running-doc") as consumer:
            ...         _ = consumer.poll(timeout=0.1)
            ...         while not (ids := admin.group_members("running-doc")):  # the first heartbeat is on its way
            ...             pass
            ...         info = admin.consumer_running_info("running-doc", ids[0], jstack=True)
            ...         info.language, (info.client_version or "").split()[0], "MainThread" in (info.jstack or "")
            ('PYTHON', 'rocketpy', True)
        """
        return await self._ask(self._native_admin().consumer_running_info, group, client_id, jstack)

    async def running_members(self, group: str, *, jstack: bool = False) -> Answers[ConsumerRunningInfo]:
        """State of all live members of a group, sorted by client id. A member that does not answer has an `error`.

        Brokers that do not answer are named in `missing`; an error is raised if no broker answers.

        Args:
            group: Name of the group.
            jstack: As for `consumer_running_info`.

        Raises:
            GroupNotFoundError: The group does not exist.
        """
        return await self._ask(self._native_admin().running_members, group, jstack)

    async def producer_connections(self, group: str, *, partial: bool = False) -> Answers[ProducerConnection]:
        """Live members of a producer group, sorted by client id.

        Empty for a group without live members and for an unknown name: brokers know a producer group as long as it has
        members.

        Args:
            group: Name of the producer group.
            partial: As for `groups`.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin, server.producer("ingest-doc") as producer:
            ...     _ = producer.send(rocketpy.Message("producer-doc", b"text"))
            ...     while not (found := admin.producer_connections("ingest-doc")):  # the first heartbeat is on its way
            ...         pass
            ...     [one.language for one in found]
            ['PYTHON']
        """
        return await self._ask(self._native_admin().producer_connections, group, partial)

    async def create_group(self, group: str) -> None:
        """Creates a group at every broker, as its first consumer would; does nothing where the group exists.

        `reset_offsets` can then set its start offsets before a consumer starts.

        Args:
            group: Name of the group: up to 120 characters of `a-z A-Z 0-9 _ - % |`.
        """
        with granting((f"Group:{group}", "Create,Get"), CLUSTER_READ):
            await self._ask(self._native_admin().create_group, group)

    async def delete_group(self, group: str) -> None:
        """Deletes a group with its offsets and its retry topic at every broker. Its dead letters stay.

        Args:
            group: Name of the group.

        Raises:
            GroupConflictError: The group has live members: stop them first.
            GroupNotFoundError: The group does not exist.
        """
        with hinted(GroupConflictError, hint=ACTIVE_HINT), granting((f"Group:{group}", "Delete,Get"), CLUSTER_READ):
            await self._ask(self._native_admin().delete_group, group)
        with suppress(TopicNotFoundError):  # an older broker creates it with the first retry
            await self._ask(self._native_admin().delete_topic, RETRY_PREFIX + group)

    async def reset_offsets(
        self, group: str, topic: str, to: Start | str | datetime, *, force: bool = False
    ) -> dict[MessageQueue, int]:
        """Stores new offsets for a group that exists.

        Args:
            group: Name of the group.
            topic: The topic. If the group has not consumed it yet, the group starts at these offsets.
            to: `Start.EARLIEST`, `Start.LATEST`, `Start.at(...)` or a value accepted by `Start.of`.
            force: Whether to reset while the group has live members. Each continues at the new offsets with its next
                pull; prefetched messages may be returned before that. A broker with `useServerSideResetOffset=false`
                stores no offset and only notifies the members: check the result with `group_lag`.

        Returns:
            The new offset by queue.

        Raises:
            GroupConflictError: The group has live members; see `force`.
            GroupNotFoundError: The group does not exist: see `create_group`.
        """
        with granting((f"Group:{group}", "Get,Update"), (f"Topic:{topic}", "Get,Update"), CLUSTER_READ):
            return dict(await self._ask(self._native_admin().reset_offsets, group, topic, to, force))

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int, *, force: bool = False) -> None:
        """Stores the offset that a group reads next in a queue. The call may be repeated.

        Args:
            group: Name of the group.
            queue: The queue.
            offset: The offset, from `min_offset` to `max_offset`.
            force: Whether to store the offset while the group has live members. Their next commit replaces it;
                `reset_offsets` notifies them.

        Raises:
            OffsetError: The offset is outside the queue.
            GroupConflictError: The group has live members; see `force`.
            GroupNotFoundError: The group does not exist: see `create_group`.
        """
        with hinted(GroupConflictError, hint=COMMIT_HINT):
            await self._ask(self._native_admin().commit_offset, group, queue, offset, force, False, False)

    async def clone_offsets(
        self, source: str, target: str, *, topic: str | None = None, force: bool = False
    ) -> list[str]:
        """Copies the stored offsets of one group to another group. The call may be repeated.

        Args:
            source: Group whose offsets are copied.
            target: Group that receives the offsets. Its stored offsets in these topics are replaced.
            topic: Restricts the copy to this topic; default: all topics with offsets of `source`.
            force: Whether to copy while `target` has live members. Their next commits replace the offsets.

        Returns:
            The copied topics, sorted; empty if `source` has no stored offsets.

        Raises:
            GroupConflictError: `target` has live members; see `force`.
            GroupNotFoundError: The group does not exist: see `create_group`.

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
        with hinted(GroupConflictError, hint=CLONE_HINT):
            return await self._ask(self._native_admin().clone_offsets, source, target, topic, force)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the oldest message of a queue.

        Args:
            queue: The queue.
        """
        return await self._ask(self._native_admin().min_offset, queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Offset after the newest readable message of a queue.

        Args:
            queue: The queue.
        """
        return await self._ask(self._native_admin().max_offset, queue)

    async def next_offset(self, queue: MessageQueue) -> int:
        """Offset of the next message of a queue: above `max_offset` while acknowledged messages are not readable.

        An Apache broker returns the same value for both.

        Args:
            queue: The queue.
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
        """Stored offset of a group in a queue; None without one.

        Args:
            group: Name of the group.
            queue: The queue.
        """
        return await self._ask(self._native_admin().committed_offset, group, queue)

    async def view_message(self, offset_msg_id: str) -> ReceivedMessage:
        """Reads one message by its offset message id, from the broker whose address the id contains.

        Args:
            offset_msg_id: That of a receipt or a received message: 32 hexadecimal digits, 56 with IPv6.

        Raises:
            InvalidArgumentError: The id is not an offset message id.
            BrokerNotFoundError: The address in the id does not belong to a broker of this cluster. The client does not
                connect to it.
            RefusedError: No message exists at that offset.
            DamagedDataError: The body does not match its checksum.
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
        partial: bool = False,
    ) -> Answers[ReceivedMessage]:
        """Messages of a topic with a given key, from the index of its brokers, the oldest first.

        A message can be found shortly after it was stored, and as long as it is in the log.

        Args:
            topic: The topic.
            key: Key, unique key or tag of the messages, according to `kind`.
            kind: `"key"`, `"unique_key"` (the `msg_id` of a receipt), or `"tag"` (Apache's brokers before 5.4 find
                nothing).
            begin: Restricts the result to messages stored at or after this time: seconds since 1970 UTC, or a datetime.
            end: Restricts the result to messages stored at or before this time.
            max_messages: Maximum number of messages; the newest are kept. A broker has its own limit
                (`maxMsgsNumBatch`, 64): reaching it below `max_messages` logs a warning, because older messages may be
                missing. Narrow `begin` and `end` to find them.
            partial: As for `groups`.

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
        query = self._native_admin().query_messages
        found = await self._ask(query, topic, key, kind, begin_ms, end_ms, max_messages, partial)
        warn_of_cut(found, key, max_messages)
        return found

    async def message(self, topic: str, msg_id: str) -> ReceivedMessage | None:
        """Message of a topic with this id; None without one.

        A broker that does not answer raises an error only if no other broker has the message.

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
        """Trace of a message, written by producers and consumers with `trace=True` in any language.

        Traces arrive some seconds after the traced event. They are best effort: a missing record does not mean that
        nothing happened.

        Args:
            msg_id: The `msg_id` of a receipt or of a received message.
            trace_topic: Topic of the traces.
            begin: Restricts the result to traces stored at or after this time.
            end: Restricts the result to traces stored at or before this time.
            max_messages: Maximum number of trace messages to read, from 1; the newest are kept. A broker returns at
                most `maxMsgsNumBatch`, which is 64 by default.

        Returns:
            The trace; false if it has no record.

        Raises:
            TopicNotFoundError: The trace topic does not exist yet.

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

    async def broker_figures(self, address: str) -> dict[str, str | float]:
        """Figures of one broker, by Apache's names: `putTps`, `bootTimestamp`, `commitLogDiskRatio` and others.

        Numbers are int or float, switches are bool. Other figures are texts: rates are three numbers in one text.

        Args:
            address: Name or `host:port` of the broker; see `brokers`.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     figures = admin.broker_figures("broker-a")
            ...     type(figures["timersWaiting"]), figures["ready"]
            (<class 'int'>, True)
        """
        texts = await self._ask(self._native_admin().broker_figures, address)
        return {name: typed(text) for name, text in texts.items()}

    async def ping(self, address: str) -> BrokerHealth:
        """Health of one broker: the checks of its `/readyz` and `/livez`, over the protocol.

        A broker of Apache reports only whether clients may write.

        Args:
            address: Name or `host:port` of the broker; see `brokers`.

        Raises:
            ConnectionFailedError: The broker cannot be reached. A retry is safe.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.ping(server.broker)
            BrokerHealth(ready=True, alive=True, problems=())
        """
        figures = await self.broker_figures(address)
        ready = figures.get("ready", figures.get("brokerActive", True)) is True
        return BrokerHealth(ready, figures.get("alive", True) is True, problems_of(figures))

    async def ha_status(self, address: str) -> HaStatus:
        """Slaves of one broker and their replication progress.

        Args:
            address: Name or `host:port` of the broker; see `brokers`.

        Raises:
            RefusedError: The broker does not support the request, as Apache's before 5.0.
        """
        return await self._ask(self._native_admin().ha_status, address)

    async def promote(self, address: str, *, sync: bool = False, force: bool = False, token: str | None = None) -> None:
        """Promotes a slave to the master of its broker name.

        Returns when the promotion has begun; `ha_status` shows its end.

        The broker stops in order and starts again in the same process: its clients reconnect. The role is kept in the
        store, and overrides the configuration at later starts. The checks before may take 10 s: the call waits up to 30
        s, or `api_timeout` if that is longer.

        Args:
            address: `host:port` of the slave, or the name of its broker if it is the only slave.
            sync: Whether sends to the new master wait for slaves (SYNC_MASTER).
            force: Whether to skip the checks that no master of its name answers and that no other slave has more of the
                log. Two masters write diverging logs.
            token: Token in the broker's `haTokenFile`, without surrounding whitespace. The broker requires it from a
                program on another machine. The token itself is not sent.

        Raises:
            RefusedError: A master answers, another slave has more of the log, no name server reports the brokers of the
                name, the broker is already a master, or the program runs on another machine without the token.
        """
        await self._ask(self._native_admin().change_role, address, master_role(sync), None, force, token)

    async def demote(
        self, address: str, *, broker_id: int | None = None, force: bool = False, token: str | None = None
    ) -> None:
        """Demotes a master to a slave of its broker name: the reverse of `promote`.

        The broker refuses messages, and waits up to 10 s until a slave has the whole log. The call waits as long as
        `promote`.

        Args:
            address: Name or `host:port` of the master.
            broker_id: Broker id as a slave, from 1; default: the smallest free id.
            force: Whether to skip the wait for a slave. Messages that no slave has cannot be read while this broker is
                not a master.
            token: As for `promote`.

        Raises:
            RefusedError: No slave had the whole log within 10 s, and the broker accepts messages again; the broker is
                already a slave; or the program runs on another machine without the token.
        """
        await self._ask(self._native_admin().change_role, address, "SLAVE", broker_id, force, token)

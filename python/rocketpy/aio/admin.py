"""Administration for asyncio: the twin of `Admin`, by name and meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rocketpy import _rocketpy
from rocketpy.admin.admin import master_role, settings_text, span_ms, warn_of_cut
from rocketpy.admin.cluster import BrokerInfo, GroupInfo, GroupMember, ProducerConnection, QueueLag, TopicInfo
from rocketpy.admin.replication import HaStatus, status_of
from rocketpy.admin.topic_change import TopicChange
from rocketpy.admin.trace import TRACE_TOPIC, MessageTrace, explained, trace_of
from rocketpy.aio.dead_letters import AsyncDeadLetterCalls
from rocketpy.aio.loop import later
from rocketpy.base.instant import instant_ms
from rocketpy.base.names import name_server_list
from rocketpy.base.options import lists_options
from rocketpy.config import (
    CLIENT_DEFAULTS,
    ClientOptions,
)
from rocketpy.errors import TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from typing import Literal, Unpack

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.topic_change import TopicChanges
    from rocketpy.config import Instant, Start
    from rocketpy.message import MessageQueue

__all__ = ["AsyncAdmin"]


class AsyncAdmin(AsyncDeadLetterCalls):
    """`Admin` for asyncio: administration of a cluster.

    Args:
        name_servers: `host:port` of each name server, as a list or as one text; default: the variable `NAMESRV_ADDR`.
        options: As for `rocketpy.Admin`. They are checked when it is started.

    Examples:
        >>> import asyncio, rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> async def main():
        ...     async with rocketpy.AsyncAdmin(server.name_server) as admin:
        ...         await admin.create_topic("aio-admin-doc", queues=2)
        ...         return len(await admin.queues("aio-admin-doc"))
        >>> asyncio.run(main())
        2
    """

    __slots__ = ()
    _warns = False

    @lists_options(ClientOptions, CLIENT_DEFAULTS)
    def __init__(self, name_servers: Iterable[str] | str | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__()
        self._name_servers, self._options = name_server_list(name_servers), options

    async def _open(self, arrivals: _rocketpy.Arrivals) -> object:
        return _rocketpy.Admin(self._name_servers, arrivals, **self._options)

    def _native(self) -> _rocketpy.Admin:
        return cast("_rocketpy.Admin", self._checked())

    async def create_topic(self, topic: str, queues: int | None = None, **changes: Unpack[TopicChanges]) -> None:
        """Creates a topic, or changes it, and waits until its route is known, as `Admin.create_topic`.

        Args:
            topic: Its name.
            queues: Queues to read at each broker, from 1.
            changes: As for `Admin.create_topic`, by keyword.
        """
        change = TopicChange(topic, queues, **changes)
        known = await self._known_topic(topic)
        dropped = change.dropped(known)
        held = [await self.next_offset(one.queue) - one.min_offset for one in dropped]
        for arguments in change.calls(known, sum(held)):
            await later(self._native().create_topic, *arguments)

    async def _known_topic(self, topic: str) -> TopicInfo | None:
        try:
            return await self.describe_topic(topic)
        except TopicNotFoundError:
            return None

    async def delete_topic(self, topic: str) -> None:
        """Deletes a topic at every broker and name server, as `Admin.delete_topic`."""
        await later(self._native().delete_topic, topic)

    async def topics(self) -> list[str]:
        """Names of all topics, sorted, those of the system too."""
        return await later(self._native().topics)

    async def describe_topic(self, topic: str) -> TopicInfo:
        """A topic with its brokers and what its queues hold, as `Admin.describe_topic`."""
        return TopicInfo.of(topic, *await later(self._native().describe_topic, topic))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Queues of a topic that may be read, sorted."""
        return await later(self._native().queues, topic)

    async def groups(self) -> list[GroupInfo]:
        """Consumer groups that the brokers know, sorted by name."""
        return [GroupInfo(name, tuple(members)) for name, members in await later(self._native().groups)]

    async def group_lag(self, group: str, topic: str | None = None) -> list[QueueLag]:
        """How far a group is in each queue, as `Admin.group_lag`."""
        return [QueueLag(*row) for row in await later(self._native().group_lag, group, topic)]

    async def group_members(self, group: str) -> list[str]:
        """Client ids of the members of a group that are there now, sorted."""
        return await later(self._native().group_members, group)

    async def describe_group(self, group: str) -> list[GroupMember]:
        """The members of a group that are there now, with what each subscribes to, as `Admin.describe_group`."""
        return [GroupMember(*member) for member in await later(self._native().describe_group, group)]

    async def producer_connections(self, group: str) -> list[ProducerConnection]:
        """The members of a producer group that are there now, as `Admin.producer_connections`."""
        return [ProducerConnection(*row) for row in await later(self._native().producer_connections, group)]

    async def create_group(self, group: str) -> None:
        """Creates a group at every broker, as `Admin.create_group`."""
        await later(self._native().create_group, group)

    async def delete_group(self, group: str) -> None:
        """Deletes a group with its offsets at every broker, as `Admin.delete_group`."""
        await later(self._native().delete_group, group)

    async def reset_offsets(
        self, group: str, topic: str, to: Start | str | datetime, *, force: bool = False
    ) -> dict[MessageQueue, int]:
        """Stores new offsets for a group that exists, and returns them by queue, as `Admin.reset_offsets`."""
        return dict(await later(self._native().reset_offsets, group, topic, to, force))

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int, *, force: bool = False) -> None:
        """Stores the offset that a group reads next in a queue, as `Admin.commit_offset`."""
        await later(self._native().commit_offset, group, queue, offset, force)

    async def clone_offsets(
        self, source: str, target: str, *, topic: str | None = None, force: bool = False
    ) -> list[str]:
        """Gives a group the stored offsets of another one, as `Admin.clone_offsets`."""
        return await later(self._native().clone_offsets, source, target, topic, force)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the oldest message of a queue."""
        return await later(self._native().min_offset, queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Offset after the newest message of a queue that can be read."""
        return await later(self._native().max_offset, queue)

    async def next_offset(self, queue: MessageQueue) -> int:
        """Offset that the next message of a queue gets, as `Admin.next_offset`."""
        return await later(self._native().next_offset, queue)

    async def search_offset(self, queue: MessageQueue, instant: Instant) -> int:
        """First offset stored at or after a point in time: seconds since 1970 UTC, or a datetime."""
        return await later(self._native().search_offset, queue, instant_ms(instant))

    async def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset stored for a group in a queue; None if there is none."""
        return await later(self._native().committed_offset, group, queue)

    async def view_message(self, offset_msg_id: str) -> ReceivedMessage:
        """Reads one message by its offset message id, as `Admin.view_message`."""
        return await later(self._native().view_message, offset_msg_id)

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
        """Messages of a topic that have a key, the oldest first, as `Admin.query_messages`."""
        span = span_ms(begin, end)
        found = await later(self._native().query_messages, topic, key, kind, *span, max_messages)
        warn_of_cut(found, key, max_messages)
        return found

    async def message(self, topic: str, msg_id: str) -> ReceivedMessage | None:
        """The message of a topic with this id; None if there is none, as `Admin.message`."""
        return await later(self._native().message, topic, msg_id)

    async def trace(
        self,
        msg_id: str,
        *,
        trace_topic: str = TRACE_TOPIC,
        begin: Instant | None = None,
        end: Instant | None = None,
        max_messages: int = 64,
    ) -> MessageTrace:
        """What producers and consumers with `trace=True` wrote about a message, as `Admin.trace`."""
        with explained(trace_topic):
            found = await self.query_messages(trace_topic, msg_id, begin=begin, end=end, max_messages=max_messages)
        return trace_of(msg_id, found)

    async def brokers(self) -> list[BrokerInfo]:
        """Brokers of the cluster, sorted by name."""
        return [BrokerInfo(*broker) for broker in await later(self._native().brokers)]

    async def broker_figures(self, address: str) -> dict[str, str]:
        """Figures of one broker, as `Admin.broker_figures`."""
        return await later(self._native().broker_figures, address)

    async def broker_config(self, address: str) -> dict[str, str]:
        """Settings of one broker, as `Admin.broker_config`."""
        return await later(self._native().broker_config, address)

    async def update_broker_config(self, address: str, changes: Mapping[str, str | float]) -> None:
        """Changes settings of one broker while it runs, as `Admin.update_broker_config`."""
        await later(self._native().update_broker_config, address, settings_text(changes))

    async def ha_status(self, address: str) -> HaStatus:
        """The slaves of one broker, and how far their logs reach, as `Admin.ha_status`."""
        return status_of(*await later(self._native().ha_status, address))

    async def promote(self, address: str, *, sync: bool = False, force: bool = False) -> None:
        """Makes a slave the master of its name, as `Admin.promote`."""
        await later(self._native().change_role, address, master_role(sync), None, force)

    async def demote(self, address: str, *, broker_id: int | None = None, force: bool = False) -> None:
        """Makes a master a slave of its name, as `Admin.demote`."""
        await later(self._native().change_role, address, "SLAVE", broker_id, force)

    def __repr__(self) -> str:
        return f"<AsyncAdmin{self._shown_state()}>"

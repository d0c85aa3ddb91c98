"""Calls of `Admin` and `AsyncAdmin` about all topics, groups and producers, and about those who read a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.admin.policy_calls import PolicyCalls
from rocketpy.base.signature import shown_as

if TYPE_CHECKING:
    from rocketpy.admin.answers import Answers, ConsumerRunningInfo
    from rocketpy.admin.inventory import (
        GroupConfig,
        MessageConsumer,
        ProducerGroup,
        QueueDelay,
        TopicConfig,
        TrafficRate,
    )
    from rocketpy.message import MessageQueue

__all__ = ["InventoryCalls"]


@shown_as("AsyncAdmin")
class InventoryCalls(PolicyCalls):
    """Calls that read many topics or groups at once, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

    async def topic_configs(self, *, partial: bool = False) -> Answers[TopicConfig]:
        """Configuration of all topics, including system topics, sorted by name: one request for each broker.

        Args:
            partial: As for `groups`.

        Raises:
            RequestTimeoutError: A broker does not answer; see `partial`.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_topic("configs-doc", queues=2)
            ...     found = {one.name: one for one in admin.topic_configs()}
            ...     found["configs-doc"].read_queues, found["configs-doc"].writable, found["TBW102"].is_system
            (2, True, True)
        """
        return await self._ask(self._native_admin().topic_configs, partial)

    async def group_configs(self, *, partial: bool = False) -> Answers[GroupConfig]:
        """Settings of all consumer groups except those of the system, sorted by name: one request for each broker.

        Args:
            partial: As for `groups`.

        Raises:
            RequestTimeoutError: A broker does not answer; see `partial`.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_group("configs-doc")
            ...     found = {one.name: one for one in admin.group_configs()}
            ...     [(one.enabled, one.retries) for one in found["configs-doc"].brokers]
            [(True, 16)]
        """
        return await self._ask(self._native_admin().all_group_configs, partial)

    async def producers(self, *, partial: bool = False) -> Answers[ProducerGroup]:
        """Producer groups with live members, sorted by name.

        Brokers know a producer group as long as it has members.

        Args:
            partial: As for `groups`.

        Raises:
            RequestTimeoutError: A broker does not answer; see `partial`.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin, server.producer("producers-doc") as producer:
            ...     _ = producer.send(rocketpy.Message("producers-doc", b"text"))
            ...     while not (found := [one for one in admin.producers() if one.name == "producers-doc"]):
            ...         pass  # the first heartbeat is on its way
            ...     [one.language for one in found[0].members]
            ['PYTHON']
        """
        return await self._ask(self._native_admin().producers, partial)

    async def topic_groups(self, topic: str, *, partial: bool = False) -> Answers[str]:
        """Names of the consumer groups that subscribe to a topic now or have offsets for it, sorted.

        Args:
            topic: The topic.
            partial: As for `groups`.

        Raises:
            TopicNotFoundError: No name server knows the topic.
            RequestTimeoutError: A broker does not answer; see `partial`.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_topic("readers-doc", queues=1)
            ...     admin.create_group("readers-doc")
            ...     _ = admin.reset_offsets("readers-doc", "readers-doc", "latest")
            ...     admin.topic_groups("readers-doc")
            ['readers-doc']
        """
        return await self._ask(self._native_admin().topic_groups, topic, partial)

    async def message_consumers(self, queue: MessageQueue, offset: int) -> list[MessageConsumer]:
        """Positions of all groups of a topic relative to one message, sorted by group.

        Args:
            queue: Queue of the message.
            offset: Offset of the message in the queue.

        Raises:
            TopicNotFoundError: No name server knows the topic.
            BrokerNotFoundError: The broker of the queue is not in the route of the topic.
            RequestTimeoutError: The broker does not answer.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_topic("past-doc", queues=1)
            ...     admin.create_group("past-doc")
            ...     [(queue, offset)] = admin.reset_offsets("past-doc", "past-doc", "latest").items()
            ...     [(one.group, one.is_past) for one in admin.message_consumers(queue, offset)]
            [('past-doc', False)]
        """
        return await self._ask(self._native_admin().message_consumers, queue, offset)

    async def queue_delays(self, group: str, topic: str | None = None, *, partial: bool = False) -> Answers[QueueDelay]:
        """Delay of a group in time, for each queue, sorted.

        Args:
            group: Name of the group.
            topic: Restricts the result to this topic; default: all topics with offsets of the group.
            partial: As for `groups`.

        Raises:
            GroupNotFoundError: The group does not exist.
            TopicNotFoundError: No name server knows the topic.
            RequestTimeoutError: A broker does not answer; see `partial`.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_topic("delays-doc", queues=1)
            ...     admin.create_group("delays-doc")
            ...     _ = admin.reset_offsets("delays-doc", "delays-doc", "latest")
            ...     [one.behind_seconds for one in admin.queue_delays("delays-doc")]
            [0.0]
        """
        return await self._ask(self._native_admin().queue_delays, group, topic, partial)

    async def queue_owners(self, group: str) -> dict[MessageQueue, tuple[str, ...]]:
        """Client ids of the live members that read each queue, by their own report; see `running_members`.

        Queues of members that do not answer are left out. A queue has several owners while members hand it over, and
        in groups that broadcast.

        Args:
            group: Name of the group.

        Raises:
            GroupNotFoundError: The group does not exist.
            RequestTimeoutError: No broker answers.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_group("owners-doc")
            ...     admin.queue_owners("owners-doc")
            {}
        """
        owners: dict[MessageQueue, tuple[str, ...]] = {}
        members: Answers[ConsumerRunningInfo] = await self._ask(self._native_admin().running_members, group, False)
        for member in members:
            for one in member.queues:
                owners[one.queue] = (*owners.get(one.queue, ()), member.client_id)
        return dict(sorted(owners.items()))

    async def topic_rate(self, topic: str, *, partial: bool = False) -> TrafficRate:
        """Messages and bytes of a topic that brokers stored, over the last minute, hour and day.

        Counts begin at the start of a broker. Apache's brokers sample every 10 s.

        Args:
            topic: The topic.
            partial: Whether to count the other brokers if one does not answer; `missing` names such brokers.

        Raises:
            TopicNotFoundError: No name server knows the topic.
            RequestTimeoutError: A broker does not answer; see `partial`.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_topic("rate-doc", queues=1)
            ...     admin.topic_rate("rate-doc").messages
            CountRate(per_second=0.0, last_minute=0, last_hour=0, last_day=0)
        """
        return await self._ask(self._native_admin().topic_rate, topic, partial)

    async def group_rate(self, group: str, topic: str | None = None, *, partial: bool = False) -> TrafficRate:
        """Messages and bytes that brokers delivered to a group, over the last minute, hour and day.

        Args:
            group: Name of the group.
            topic: Restricts the result to this topic; default: all topics with offsets of the group.
            partial: As for `topic_rate`.

        Raises:
            GroupNotFoundError: The group does not exist.
            TopicNotFoundError: No name server knows the topic.
            RequestTimeoutError: A broker does not answer; see `partial`.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_group("rate-doc")
            ...     admin.group_rate("rate-doc").messages.last_hour
            0
        """
        return await self._ask(self._native_admin().group_rate, group, topic, partial)

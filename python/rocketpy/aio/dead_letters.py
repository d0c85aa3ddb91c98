"""What an `AsyncAdmin` does with dead letters."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, TypeVar

from rocketpy.admin.dead_letters import (
    PREFIX,
    RESENDER,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Pace,
    Resent,
    group_of,
    matcher_of,
    topic_of,
)
from rocketpy.aio import AsyncProducer
from rocketpy.aio.loop import AsyncClosing, later
from rocketpy.base.names import check_type
from rocketpy.base.signature import shown_as
from rocketpy.errors import TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from rocketpy import _rocketpy
    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.cluster import GroupMember, TopicInfo
    from rocketpy.config import ClientOptions
    from rocketpy.message import MessageQueue

Item = TypeVar("Item")


async def each(items: Iterable[Item]) -> AsyncIterator[Item]:
    """An iterable for `async for`."""
    for item in items:
        yield item


@shown_as("AsyncAdmin")
class AsyncDeadLetterCalls(AsyncClosing):
    """Base of `AsyncAdmin`: the calls for dead letters."""

    __slots__ = ("_name_servers", "_options")
    _name_servers: list[str]
    _options: ClientOptions

    @abstractmethod
    def _native(self) -> _rocketpy.Admin:
        """The native client."""

    @abstractmethod
    async def topics(self) -> list[str]:
        """Names of all topics."""

    @abstractmethod
    async def describe_topic(self, topic: str) -> TopicInfo:
        """A topic with its queues."""

    @abstractmethod
    async def describe_group(self, group: str) -> list[GroupMember]:
        """The members of a group; an error where there is no such group."""

    @abstractmethod
    async def message(self, topic: str, msg_id: str) -> ReceivedMessage | None:
        """The message of a topic with this id."""

    async def dead_letter_groups(self) -> list[DeadLetterGroup]:
        """The groups that have dead letters, sorted by name."""
        found: list[DeadLetterGroup] = []
        for name in sorted(topic for topic in await self.topics() if topic.startswith(PREFIX)):
            topic = await self.describe_topic(name)
            queues = [info for info in topic.queues if info.max_offset > info.min_offset]
            firsts = [self._range(info.queue, info.min_offset, info.min_offset + 1) for info in queues]
            if queues:
                found.append(group_of(topic, [message for first in firsts async for message in first]))
        return found

    async def dead_letters(self, group: str, which: DeadLetterFilter | None = None) -> AsyncIterator[DeadLetter]:
        """The dead letters of a group, as `Admin.dead_letters`. Errors come with the first step of the iteration."""
        is_meant = matcher_of(group, which)
        try:
            queues = (await self.describe_topic(topic_of(group))).queues
        except TopicNotFoundError:
            await self.describe_group(group)
            queues = ()
        for info in queues:
            async for message in self._range(info.queue, info.min_offset, info.max_offset):
                letter = DeadLetter(group, message)
                if is_meant(letter):
                    yield letter

    async def resend_dead_letters(
        self,
        letters: AsyncIterable[DeadLetter] | Iterable[DeadLetter],
        *,
        to: str | None = None,
        rate: float | None = None,
        again: bool = False,
    ) -> AsyncIterator[Resent]:
        """Sends dead letters again, as `Admin.resend_dead_letters`. Errors come with the first step of the iteration.

        Args:
            letters: What to resend, from `dead_letters`.
            to: Another topic for all of them. It must exist.
            rate: Most messages a second. Those that were resent before do not count.
            again: Send also what was resent before.

        Examples:
            >>> import asyncio, rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.producer("ingest") as producer:
            ...     _ = producer.send(rocketpy.Message("%DLQ%aio-resend-doc", b"a dead letter that names no topic"))
            >>> async def main():
            ...     async with rocketpy.AsyncAdmin(server.name_server) as admin:
            ...         await admin.create_topic("aio-resend-doc", queues=1)
            ...         letters = admin.dead_letters("aio-resend-doc")
            ...         async for one in admin.resend_dead_letters(letters, to="aio-resend-doc"):
            ...             print(one.topic)
            >>> asyncio.run(main())
            aio-resend-doc
        """
        pace = Pace(rate)
        if to is not None:
            await self.describe_topic(to)
        there = {to}
        async with AsyncProducer(RESENDER, name_servers=self._name_servers, **self._options) as producer:
            async for letter in letters if isinstance(letters, AsyncIterable) else each(letters):
                check_type("each of letters", letter, DeadLetter, "a rocketpy.DeadLetter")
                topic = to or letter.topic
                if topic is None:
                    yield Resent(letter, None, None)
                    continue
                if topic not in there:
                    await self.describe_topic(topic)  # the send would make a topic anew that was deleted
                    there.add(topic)
                if not again and await self.was_resent(letter, to=to):
                    yield Resent(letter, topic, None)
                    continue
                await asyncio.sleep(pace.next())
                yield Resent(letter, topic, await producer.send(letter.again(topic), msg_id=letter.resent_id))

    async def was_resent(self, letter: DeadLetter, *, to: str | None = None) -> bool:
        """Whether the topic that a dead letter came from has its copy, as `Admin.was_resent`."""
        topic = to or letter.topic
        try:
            return topic is not None and await self.message(topic, letter.resent_id) is not None
        except TopicNotFoundError:
            return False

    async def _range(self, queue: MessageQueue, start: int, end: int) -> AsyncIterator[ReceivedMessage]:
        """The messages of a part of a queue."""
        while start < end:
            messages, start = await later(self._native().read, queue, start, end)
            for message in messages:
                yield message

"""Dead-letter calls of `Admin` and `AsyncAdmin`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rocketpy.admin.answers import Answers, TopicTotals
from rocketpy.admin.dead_letters import (
    PREFIX,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Pace,
    Resent,
    group_of,
    matcher_of,
    topic_of,
)
from rocketpy.base.at_once import each
from rocketpy.base.names import check_type
from rocketpy.base.signature import shown_as
from rocketpy.errors import (
    UNKNOWN,
    UNREADABLE_BODY,
    InvalidArgumentError,
    RefusedError,
    RequestTimeoutError,
    RocketPyError,
    TopicNotFoundError,
)
from rocketpy.producing.copies import copy_of, is_rejected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
    from contextlib import AbstractAsyncContextManager

    from rocketpy import _rocketpy
    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.cluster import GroupMember, QueueInfo, TopicInfo
    from rocketpy.message import Message, MessageQueue, Receipt

    Send = Callable[[Message, str], Awaitable[Receipt]]

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")

FEW_TOPICS = 8
"""Maximum number of topics whose routes are requested: all of these at the same time."""


READ_BACKWARDS = 32
"""Number of messages that one read brings, where the newest come first."""


@shown_as("AsyncAdmin")
class DeadLetterCalls(ABC):
    """Dead-letter calls, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

    @abstractmethod
    def _native_admin(self) -> _rocketpy.Admin:
        """The native client."""

    @abstractmethod
    async def _ask(self, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Makes a native call, and waits for its answer."""

    @abstractmethod
    async def _each(self, call: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]) -> list[T]:
        """Results of a call for each item, in their order; at most `CONCURRENT_CALLS` run at a time."""

    @abstractmethod
    async def _explain(self, error: TopicNotFoundError, topic: str) -> None:
        """Extends the hint of an error if a topic of a similar name exists."""

    @abstractmethod
    async def _pause(self, seconds: float) -> None:
        """Waits."""

    @abstractmethod
    def _resender(self) -> AbstractAsyncContextManager[Send]:
        """Opens a producer; gives a function that sends a message with an id."""

    @abstractmethod
    async def topics(self) -> list[str]:
        """Names of all topics."""

    @abstractmethod
    async def describe_topic(self, topic: str, *, partial: bool = False) -> TopicInfo:
        """A topic with its queues."""

    @abstractmethod
    async def describe_group(self, group: str) -> list[GroupMember]:
        """Members of a group; raises an error if the group does not exist."""

    @abstractmethod
    async def message(self, topic: str, msg_id: str) -> ReceivedMessage | None:
        """The message of a topic with this id."""

    async def dead_letter_groups(self, *, check_resent: int = 0, partial: bool = False) -> Answers[DeadLetterGroup]:
        """Groups with dead letters, sorted by name. A resent dead letter stays in its group until it expires.

        Args:
            check_resent: Maximum number of dead letters whose resent copies are looked up, about one millisecond
                each. A group that exceeds the rest of this number has None as its number of resent ones. After a
                look-up that failed no other follows. Default 0: no look-up.
            partial: Whether to return the answers of the other brokers if one does not answer; see `Admin.groups`.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.producer("ingest") as producer, server.admin() as admin:
            ...     _ = producer.send(rocketpy.Message("%DLQ%count-doc", b"text"))
            ...     groups = admin.dead_letter_groups(check_resent=1000)
            ...     [(one.count, one.resent) for one in groups if one.group == "count-doc"]
            [(1, 0)]
        """
        check_type("check_resent", check_resent, int, "a number of dead letters")
        left = check_resent
        found: list[DeadLetterGroup] = []
        names = [topic for topic in await self.topics() if topic.startswith(PREFIX)]
        totals = await self._totals(names, partial)
        for topic in totals:
            if topic.error is not None:
                raise RefusedError(topic.error)
            queues = [info for info in topic.queues if info.max_offset > info.min_offset]
            firsts = [self._range(info.queue, info.min_offset, info.min_offset + 1) for info in queues]
            lasts = [self._range(info.queue, info.max_offset - 1, info.max_offset) for info in queues]
            if queues:
                ends = [[message for one in ranges async for message in one] for ranges in (firsts, lasts)]
                group = group_of(topic, *ends)
                if group.count <= left:
                    left -= group.count
                    letters = await self._letters_of(group.group, None)
                    try:
                        group = replace(group, resent=sum([await self.was_resent(letter) async for letter in letters]))
                    except UNKNOWN as error:
                        group, left = replace(group, resent_error=str(error)), 0
                found.append(group)
        return Answers(found, totals.missing)

    async def _totals(self, names: list[str], partial: bool) -> Answers[TopicTotals]:
        """Queues of topics. A few are requested by their routes: a broker that has none of them cannot be missing."""
        if len(names) > FEW_TOPICS:
            return await self._ask(self._native_admin().topic_totals, names, partial)

        async def described(name: str) -> TopicInfo | None:
            try:
                return await self.describe_topic(name, partial=partial)
            except TopicNotFoundError:
                return None

        found = [topic for topic in await self._each(described, names) if topic is not None]
        missing = {broker.address: broker for topic in found for broker in topic.missing}
        return Answers([TopicTotals(one.name, one.queues, one.put_rate, None) for one in found], missing.values())

    async def dead_letters(
        self, group: str, which: DeadLetterFilter | None = None, *, newest_first: bool = False
    ) -> AsyncIterator[DeadLetter]:
        """Yields the dead letters of a group, as `Admin.dead_letters`.

        The first step of the iteration raises errors; the last step raises that of a broker which does not answer.

        Args:
            group: The consumer group.
            which: Filter of the dead letters; default: all.
            newest_first: Whether to yield the newest of all queues first.
        """
        async for letter in await self._letters_of(group, which, newest_first):
            yield letter

    async def _letters_of(
        self, group: str, which: DeadLetterFilter | None, newest_first: bool = False
    ) -> AsyncGenerator[DeadLetter, None]:
        """Checks the arguments, and returns the dead letters."""
        check_type("newest_first", newest_first, bool, "a bool")
        is_meant = matcher_of(group, which)
        try:
            topic = await self.describe_topic(topic_of(group), partial=True)
        except TopicNotFoundError:
            await self.describe_group(group)  # refuses a name that nobody has
            topic = None

        async def found() -> AsyncGenerator[DeadLetter, None]:
            queues = topic.queues if topic else ()
            async for message in self._newest(queues) if newest_first else self._oldest(queues):
                letter = DeadLetter(group, message)
                if is_meant(letter):
                    yield letter
            for broker in topic.missing if topic else ():
                text = f"dead letters of group {group} at {broker.broker_name} are unknown: {broker.error}"
                raise RequestTimeoutError(text, retryable=True)

        return found()

    async def resend_dead_letters(
        self,
        letters: AsyncIterable[DeadLetter] | Iterable[DeadLetter],
        *,
        to: str | None = None,
        rate: float | None = None,
        again: bool = False,
    ) -> AsyncIterator[Resent]:
        """Resends dead letters, as `Admin.resend_dead_letters`. The first step of the iteration raises errors.

        Args:
            letters: Dead letters to resend, from `dead_letters`.
            to: Target topic for all dead letters, in place of their original topics. It must exist.
            rate: Maximum number of messages per second. Skipped dead letters do not count.
            again: Whether to send dead letters that were resent before.

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
        async for one in await self._resent(letters, to, rate, again):
            yield one

    async def _resent(
        self,
        letters: AsyncIterable[DeadLetter] | Iterable[DeadLetter],
        to: str | None,
        rate: float | None,
        again: bool,
    ) -> AsyncGenerator[Resent, None]:
        """Checks the arguments, and returns the outcome of each dead letter."""
        pace = Pace(rate)
        if to is not None:
            await self.describe_topic(to)
        refused: dict[str | None, RocketPyError | None] = {to: None}  # by topic: why it takes no dead letter

        async def sent() -> AsyncGenerator[Resent, None]:
            async with self._resender() as send:
                async for letter in letters if isinstance(letters, AsyncIterable) else each(letters):
                    check_type("each of letters", letter, DeadLetter, "a rocketpy.DeadLetter")
                    topic = to or letter.topic
                    if topic is None:
                        yield Resent(letter, None, None)
                        continue
                    if topic not in refused:
                        refused[topic] = await self._refusal(topic)
                    if (reason := refused[topic]) is not None:
                        yield Resent(letter, topic, None, reason)
                        continue
                    if not again and await self.was_resent(letter, to=to):
                        yield Resent(letter, topic, None)
                        continue
                    try:
                        copy = letter.again(topic)
                    except UNREADABLE_BODY as error:  # the body does not decompress, which no retry changes
                        yield Resent(letter, topic, None, error)
                        continue
                    await self._pause(pace.next())
                    try:
                        receipt = await send(copy, letter.resent_id)
                    except RocketPyError as error:
                        if not is_rejected(error):
                            raise
                        yield Resent(letter, topic, None, error)
                        continue
                    yield Resent(letter, topic, receipt)

        return sent()

    async def _refusal(self, topic: str) -> RocketPyError | None:
        """Why a topic takes no dead letter: another client stored an invalid name, or the topic is gone; else None.

        The send would create a deleted topic again.
        """
        try:
            copy_of(topic, b"", 0, {}, defaults={})  # checks the name
            await self.describe_topic(topic)
        except (TopicNotFoundError, InvalidArgumentError) as error:
            return error
        return None

    async def was_resent(self, letter: DeadLetter, *, to: str | None = None) -> bool:
        """Whether the original topic of a dead letter still has its resent copy.

        Args:
            letter: The dead letter.
            to: Target topic of the resend; default: the original topic.

        Raises:
            RequestTimeoutError: A broker of the topic does not answer, and no other one has the copy.
        """
        topic = to or letter.topic
        try:
            return topic is not None and await self.message(topic, letter.resent_id) is not None
        except (TopicNotFoundError, InvalidArgumentError):
            return False

    async def _oldest(self, queues: Iterable[QueueInfo]) -> AsyncIterator[ReceivedMessage]:
        """The messages of queues, queue by queue, the oldest first."""
        for info in queues:
            async for message in self._range(info.queue, info.min_offset, info.max_offset):
                yield message

    async def _newest(self, queues: Iterable[QueueInfo]) -> AsyncIterator[ReceivedMessage]:
        """The messages of all queues, the newest first."""
        rests = [self._backwards(info) for info in queues]
        heads = {rest: head for rest in rests if (head := await anext(rest, None)) is not None}
        while heads:
            rest = max(heads, key=lambda one: heads[one].stored_at_ms)
            yield heads.pop(rest)
            if (head := await anext(rest, None)) is not None:
                heads[rest] = head

    async def _backwards(self, info: QueueInfo) -> AsyncIterator[ReceivedMessage]:
        """The messages of a queue, the newest first."""
        end = info.max_offset
        while end > info.min_offset:
            start = max(info.min_offset, end - READ_BACKWARDS)
            for message in reversed([message async for message in self._range(info.queue, start, end)]):
                yield message
            end = start

    async def _range(self, queue: MessageQueue, start: int, end: int) -> AsyncIterator[ReceivedMessage]:
        """The messages of a part of a queue."""
        while start < end:
            messages, start = await self._ask(self._native_admin().read, queue, start, end)
            for message in messages:
                yield message

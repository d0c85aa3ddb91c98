"""What an `Admin` does with dead letters."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING

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
from rocketpy.base.lifetime import Closing
from rocketpy.base.names import check_type
from rocketpy.base.signature import shown_as
from rocketpy.errors import TopicNotFoundError
from rocketpy.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rocketpy import _rocketpy
    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.cluster import GroupMember, TopicInfo
    from rocketpy.config import ClientOptions
    from rocketpy.message import MessageQueue


@shown_as("Admin")
class DeadLetterCalls(Closing):
    """Base of `Admin`: the calls for dead letters."""

    __slots__ = ("_name_servers", "_native", "_options")
    _name_servers: list[str]
    _native: _rocketpy.Admin
    _options: ClientOptions

    @abstractmethod
    def topics(self) -> list[str]:
        """Names of all topics."""

    @abstractmethod
    def describe_topic(self, topic: str) -> TopicInfo:
        """A topic with its queues."""

    @abstractmethod
    def describe_group(self, group: str) -> list[GroupMember]:
        """The members of a group; an error where there is no such group."""

    @abstractmethod
    def message(self, topic: str, msg_id: str) -> ReceivedMessage | None:
        """The message of a topic with this id."""

    def dead_letter_groups(self) -> list[DeadLetterGroup]:
        """The groups that have dead letters, sorted by name."""
        found: list[DeadLetterGroup] = []
        for name in sorted(topic for topic in self.topics() if topic.startswith(PREFIX)):
            topic = self.describe_topic(name)
            queues = [info for info in topic.queues if info.max_offset > info.min_offset]
            firsts = [self._range(info.queue, info.min_offset, info.min_offset + 1) for info in queues]
            if queues:
                found.append(group_of(topic, [message for first in firsts for message in first]))
        return found

    def dead_letters(self, group: str, which: DeadLetterFilter | None = None) -> Iterator[DeadLetter]:
        """The dead letters of a group, queue by queue, the oldest first. Those that die meanwhile are left out.

        A group that has given up nothing has none. Those of a group that was deleted can still be read.

        Args:
            group: The consumer group.
            which: Which ones; default: all.

        Raises:
            GroupNotFoundError: There is no such group, nor a topic of its dead letters.
            InvalidArgumentError: A time is none.
        """
        is_meant = matcher_of(group, which)
        try:
            queues = self.describe_topic(topic_of(group)).queues
        except TopicNotFoundError:
            self.describe_group(group)  # refuses a name that nobody has
            queues = ()
        return (
            letter
            for info in queues
            for message in self._range(info.queue, info.min_offset, info.max_offset)
            if is_meant(letter := DeadLetter(group, message))
        )

    def resend_dead_letters(
        self,
        letters: Iterable[DeadLetter],
        *,
        to: str | None = None,
        rate: float | None = None,
        again: bool = False,
    ) -> Iterator[Resent]:
        """Sends dead letters again, each to the topic that it came from. Each step of the iteration sends the next one.

        The dead letters stay. One that was resent before is not sent again: its copy has an id of its own, made from
        its place, and is looked up first. So a resend that ended in the middle may be repeated. Two at the same time
        may both send one; the copies then have one `msg_id`. A copy is found as long as its topic keeps it. Without
        `to`, one that does not say where it came from is passed over.

        A copy has the body, tag, keys, order key and own properties of the dead letter, and `rocketpyResentFrom`,
        `rocketpyOriginTopic` and `rocketpyOriginMsgId`. Its count of deliveries begins at 0.

        Args:
            letters: What to resend, from `dead_letters`.
            to: Another topic for all of them. It must exist.
            rate: Most messages a second. Those that were resent before do not count.
            again: Send also what was resent before.

        Raises:
            TopicNotFoundError: There is no topic `to`, and nothing was sent; or that of origin is gone: those in front
                of it were resent.
            InvalidArgumentError: The rate is not above 0.
            RocketPyError: As for `Producer.send`. Those before it were resent.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin, server.producer("ingest") as producer:
            ...     admin.create_topic("resend-doc", queues=1)
            ...     _ = producer.send(rocketpy.Message("%DLQ%resend-doc", b"a dead letter that names no topic"))
            ...     resent = admin.resend_dead_letters(admin.dead_letters("resend-doc"), to="resend-doc", rate=100)
            ...     print(sum(one.receipt is not None for one in resent))  # they are sent as they are read
            1
        """
        pace = Pace(rate)
        if to is not None:
            self.describe_topic(to)
        return self._resent(letters, to, pace, again)

    def _resent(self, letters: Iterable[DeadLetter], to: str | None, pace: Pace, again: bool) -> Iterator[Resent]:
        with Producer(RESENDER, name_servers=self._name_servers, **self._options) as producer:
            there = {to}
            for letter in letters:
                check_type("each of letters", letter, DeadLetter, "a rocketpy.DeadLetter")
                topic = to or letter.topic
                if topic is None:
                    yield Resent(letter, None, None)
                    continue
                if topic not in there:
                    self.describe_topic(topic)  # the send would make a topic anew that was deleted
                    there.add(topic)
                if not again and self.was_resent(letter, to=to):
                    yield Resent(letter, topic, None)
                    continue
                time.sleep(pace.next())
                yield Resent(letter, topic, producer.send(letter.again(topic), msg_id=letter.resent_id))

    def was_resent(self, letter: DeadLetter, *, to: str | None = None) -> bool:
        """Whether the topic that a dead letter came from has its copy, as far back as the topic keeps messages.

        Args:
            letter: The dead letter.
            to: The topic that it was resent to; default: that of its origin.
        """
        topic = to or letter.topic
        try:
            return topic is not None and self.message(topic, letter.resent_id) is not None
        except TopicNotFoundError:
            return False

    def _range(self, queue: MessageQueue, start: int, end: int) -> Iterator[ReceivedMessage]:
        """The messages of a part of a queue."""
        while start < end:
            messages, start = self._native.read(queue, start, end)
            yield from messages

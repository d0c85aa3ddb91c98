"""Check that a test consumed all its messages: none unread, waiting for a retry, or dead-lettered."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from rocketpy.admin.dead_letters import PREFIX, DeadLetter
from rocketpy.base.clock import monotonic
from rocketpy.base.names import RETRY_PREFIX, application_topics
from rocketpy.config import duration_seconds
from rocketpy.consuming.reader import RangeReader
from rocketpy.errors import TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.admin import Admin
    from rocketpy.config import Duration
    from rocketpy.message import MessageQueue
    from rocketpy.servers.server import Broker, Server

DELAYED = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
"""Topics of messages that wait: for a delay level, and for a time."""
REAL_TOPIC = "REAL_TOPIC"
"""Property of a waiting message: the topic that it is delivered to."""
PATIENCE_SECONDS = 60.0
"""Timeout for a call."""
PACE_SECONDS = 0.02
"""Pause between two looks at the broker."""

Ends = dict["MessageQueue", int]


class Span(NamedTuple):
    """Part of a queue that was written during the test."""

    queue: MessageQueue
    begin: int
    end: int


class Found(NamedTuple):
    """Result of a look at the broker."""

    unread: list[str]
    """Lines about messages that no reader, or not every reader, has committed."""
    failed: list[str]
    """Lines about retries and dead letters."""
    is_under_way: bool
    """Whether live members may still commit the unread messages."""

    def __str__(self) -> str:
        return "messages are left at the end of the test:" + "".join(
            f"\n  {line}" for line in self.failed + self.unread
        )


@contextmanager
def nothing_left(server: Server | Broker, *, timeout: Duration = PATIENCE_SECONDS) -> Generator[None]:
    """Checks at the end of a `with` statement that the messages sent meanwhile are consumed.

    - Each message is committed by all groups that read its topic, and by at least one. The check waits for groups with
      live members.
    - No message waits for a retry.
    - No message is a new dead letter.

    Messages that wait for their delivery time, and open transactions, are ignored. Consumers that commit nothing, with
    `Consumer.assign` or `broadcast`, do not count as readers.

    Args:
        server: The server, without other tests at the same time.
        timeout: Maximum wait for commits of live members, in seconds.

    Yields:
        None.

    Raises:
        AssertionError: Messages are left; the text lists topics, groups and numbers.
        ClosedError: The server was stopped before the check.

    Examples:
        >>> import rocketpy
        >>> from rocketpy.testkit import drain, nothing_left, temporary_server
        >>> with temporary_server() as server, server.admin() as admin, server.producer("shop") as producer:
        ...     admin.create_topic("orders")
        ...     with nothing_left(server):
        ...         _ = producer.send(rocketpy.Message("orders", b"a book"))
        ...         with server.consumer("billing", "orders") as consumer:
        ...             _ = drain(consumer)
        ...             consumer.commit()
    """
    with server.admin(api_timeout=PATIENCE_SECONDS) as admin:
        before = Look(server, admin, set(), {})
        known, begins = set(before.members), before.ends()
    yield
    deadline = monotonic() + duration_seconds("timeout", timeout)
    with server.admin(api_timeout=PATIENCE_SECONDS) as admin:
        found = Look(server, admin, known, begins).find()
        while found.unread and not found.failed and found.is_under_way and monotonic() < deadline:
            time.sleep(PACE_SECONDS)
            found = Look(server, admin, known, begins).find()
    if found.unread or found.failed:
        raise AssertionError(str(found))


class Look:
    """State of topics and groups at one moment."""

    def __init__(self, server: Server | Broker, admin: Admin, known: set[str], begins: Ends) -> None:
        self.server, self.admin, self.known, self.begins = server, admin, known, begins
        self.members = {group.name: group.members for group in admin.groups()}

    def ends(self) -> Ends:
        """Offset after the last message of each queue that has any."""
        while self.admin.broker_figures(self.server.broker).get("dispatchBehindBytes", 0) != 0:
            time.sleep(PACE_SECONDS)  # acknowledged messages become readable
        found: Ends = {}
        for topic in self.admin.topics():
            try:
                queues = self.admin.describe_topic(topic).queues
            except TopicNotFoundError:  # deleted meanwhile
                continue
            found |= {info.queue: info.max_offset for info in queues if info.max_offset}
        return found

    def find(self) -> Found:
        """Lists the messages that are left."""
        spans: defaultdict[str, list[Span]] = defaultdict(list)
        for queue, end in self.ends().items():
            begin = self.begins.get(queue, 0)
            if end > begin:
                spans[queue.topic].append(Span(queue, begin, end))
        names = set(application_topics(spans, self.admin.brokers()))
        unread: list[str] = []
        failed: list[str] = []
        is_under_way = False
        for topic, parts in sorted(spans.items()):
            group = topic.removeprefix(RETRY_PREFIX)
            if topic.startswith(PREFIX):
                failed += self._dead(topic.removeprefix(PREFIX), parts)
            elif topic in names or group != topic:
                lines, is_live = self._unread(topic, parts, None if group == topic else group)
                unread += lines
                is_under_way |= is_live
        return Found(unread, failed + self._retries(spans), is_under_way)

    def _unread(self, topic: str, parts: list[Span], owner: str | None) -> tuple[list[str], bool]:
        """Lines about the messages of a topic that are not committed, and whether live members may commit them.

        Args:
            topic: The topic.
            parts: Its new messages.
            owner: The group of a retry topic.
        """
        sent = sum(part.end - part.begin for part in parts)
        lines: list[str] = []
        is_live = is_read = False
        for group in self.members if owner is None else [owner]:
            committed = {lag.queue: lag.committed_offset for lag in self.admin.group_lag(group, topic)}
            done = [committed.get(part.queue) or 0 for part in parts]
            left = sum(max(0, part.end - max(part.begin, at)) for part, at in zip(parts, done, strict=True))
            has_read = left < sent
            reads = any(at is not None for at in committed.values()) or group == owner
            if not has_read and not (reads and (group not in self.known or self.members.get(group))):
                is_live |= self._subscribes(group, topic)
                continue  # not a reader, or one of former tests
            is_read = True
            if left:
                lines.append(f"topic {topic}: group {group} has not committed {left} of {sent} messages")
                is_live |= bool(self.members.get(group))
        if not is_read:
            lines.append(f"topic {topic}: no group has committed {sent} messages")
        return lines, is_live

    def _subscribes(self, group: str, topic: str) -> bool:
        """Whether a live member of a group, which has committed nothing yet, subscribes to a topic."""
        if not self.members.get(group):
            return False
        return any(topic in (member.subscriptions or {topic: ""}) for member in self.admin.describe_group(group))

    def _dead(self, group: str, parts: list[Span]) -> Iterator[str]:
        for message in self._messages(parts):
            letter = DeadLetter(group, message)
            why = letter.error or letter.reason or "reason unknown"
            yield f"group {group}: dead letter {message.msg_id} of topic {letter.topic}: {why}"

    def _retries(self, spans: dict[str, list[Span]]) -> list[str]:
        """Lines about messages that groups returned, and that are not in their retry topics yet."""
        waiting: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        for message in self._messages([part for topic in DELAYED for part in spans.get(topic, ())]):
            topic = message.properties.get(REAL_TOPIC, "")
            if topic.startswith(RETRY_PREFIX):
                waiting[topic].add((message.msg_id, message.reconsume_times))
        for topic in waiting:
            waiting[topic] -= {(one.msg_id, one.reconsume_times) for one in self._messages(spans.get(topic, []))}
        return [
            f"group {topic.removeprefix(RETRY_PREFIX)}: message {msg_id} waits for a retry"
            for topic, ids in sorted(waiting.items())
            for msg_id, _ in sorted(ids)
        ]

    def _messages(self, parts: list[Span]) -> Iterator[ReceivedMessage]:
        for queue, begin, end in parts:
            with RangeReader(queue, begin, end, name_servers=self.server.name_servers) as reader:
                for messages in reader.messages():
                    yield from messages

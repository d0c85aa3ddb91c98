"""A false client of a cluster: queues in memory, for tests of reads without a server."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rocketpy import MessageQueue, QueueInfo, TopicInfo
from rocketpy.errors import OffsetError, RequestTimeoutError


@dataclass(frozen=True)
class FakeMessage:
    queue: MessageQueue
    queue_offset: int
    stored_at_ms: int
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def body_view(self) -> memoryview:
        return memoryview(self.body)

    @property
    def topic(self) -> str:
        return self.queue.topic

    @property
    def broker_name(self) -> str:
        return self.queue.broker_name

    @property
    def queue_id(self) -> int:
        return self.queue.queue_id

    @property
    def stored_at(self) -> datetime:
        return datetime.fromtimestamp(self.stored_at_ms / 1000, UTC)

    @property
    def msg_id(self) -> str:
        return f"{self.queue}-{self.queue_offset}"


class FakeAdmin:
    """Serves `read` and `min_offset`; an answer has at most `answer_messages` messages."""

    def __init__(self, queues: dict[MessageQueue, list[FakeMessage]], answer_messages: int = 32) -> None:
        self.queues, self.answer_messages = queues, answer_messages
        self.expired: dict[MessageQueue, int] = {}
        self.silent: set[MessageQueue] = set()
        self.stuck: set[MessageQueue] = set()
        self.reads = 0
        self.messages = 0

    async def read(
        self, queue: MessageQueue, start: int, end: int | None = None, *, max_messages: int = 64, wait: Any = 0
    ) -> list[Any]:
        self.reads += 1
        await asyncio.sleep(0)
        if queue in self.silent:
            raise RequestTimeoutError("broker did not answer")
        if queue in self.stuck:
            await asyncio.Event().wait()
        if start < self.expired.get(queue, 0):
            raise OffsetError("expired")
        stored = self.queues[queue]
        last = min(end if end is not None else len(stored), start + min(max_messages, self.answer_messages))
        self.messages += max(0, last - start)
        return stored[start:last]

    async def describe_topic(self, topic: str, *, partial: bool = False) -> TopicInfo:
        if self.silent and not partial:
            raise RequestTimeoutError("broker did not answer")
        infos = [
            QueueInfo(queue, self.expired.get(queue, 0), len(stored), stored[-1].stored_at if stored else None)
            for queue, stored in self.queues.items()
        ]
        return TopicInfo(topic, (), tuple(infos))

    async def min_offset(self, queue: MessageQueue) -> int:
        return self.expired.get(queue, 0)

"""What a sink did before, as small records in a topic of its own, and the rows that are stored already.

Before a task sends its first row to a topic, it sends a record `begun` with the ends of the topic's queues: all of its
rows come after them. After a batch the driver sends a record `done`. A task that finds an earlier `begun` of its own
partition and batch is a repetition: it reads the queues from the ends in that record, and skips the rows that it finds.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketpy.errors import DamagedDataError, OffsetError, RocketPyError, TopicNotFoundError
from rocketpy.message import Message, MessageQueue
from rocketpy.spark.patience import Patience
from rocketpy.spark.sink_rows import ROW_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rocketpy.message import ReceivedMessage
    from rocketpy.spark.offsets import Offsets
    from rocketpy.spark.sink_client import SinkClient
    from rocketpy.spark.sink_rows import Place

BEGUN, DONE = "begun", "done"
"""Tags of the records."""
BLOCK = 256
"""Records that are read at once, from the newest back."""
FIRST_PAUSE = 0.01
"""Seconds between the first two questions for the end of a queue: messages are readable after a few milliseconds."""


@dataclass(slots=True)
class Earlier:
    """What earlier attempts left."""

    is_done: bool = False
    """Whether the whole batch was written and committed."""
    ends: dict[str, Offsets] = field(default_factory=dict)
    """By topic, the ends of its queues before the first attempt sent anything there. A queue not named is new."""


def settled_end(client: SinkClient, queue: MessageQueue) -> int:
    """The end of a queue, once all that is stored before it can be read.

    Args:
        client: Of this process.
        queue: The queue.

    Raises:
        RocketPyError: The broker does not answer, or its messages do not become readable in time.
    """
    end = client.admin.next_offset(queue)
    patience = Patience(client.options.retry_seconds, first_pause=FIRST_PAUSE)
    while client.admin.max_offset(queue) < end:
        pause = patience.next_pause()
        if pause is None:
            raise RocketPyError(f"messages of {queue} before {end} do not become readable", retryable=True)
        time.sleep(pause)
    return end


def read_between(client: SinkClient, queue: MessageQueue, start: int, end: int) -> Iterator[ReceivedMessage]:
    """Reads what retention left of a range.

    Args:
        client: Of this process.
        queue: The queue.
        start: First queue offset.
        end: Queue offset to stop before.

    Yields:
        The messages.
    """
    at = start
    while (at := max(at, client.admin.min_offset(queue))) < end:
        try:
            with client.range_reader(queue, at, end) as reader:
                for messages in reader.messages():
                    for message in messages:
                        yield message
                        at = message.queue_offset + 1
            return
        except OffsetError:
            if client.admin.min_offset(queue) <= at:
                raise


def ends_of(client: SinkClient, topic: str) -> Offsets:
    """The ends of the queues of a topic; empty for one that does not exist yet.

    Args:
        client: Of this process.
        topic: The topic.
    """
    try:
        return {one.queue: one.max_offset for one in client.admin.describe_topic(topic).queues}
    except TopicNotFoundError:
        return {}


def stored_rows(client: SinkClient, ends: Mapping[str, Offsets], prefix: str) -> set[str]:
    """Reads which rows are stored.

    Args:
        client: Of this process.
        ends: By topic, where to begin in each queue; a queue that is not named is read from its beginning.
        prefix: Of the row ids.

    Returns:
        Row ids.
    """
    found: set[str] = set()
    for topic, starts in ends.items():
        try:
            queues = set(client.admin.queues(topic)) | starts.keys()
        except TopicNotFoundError:
            queues = set(starts)
            if not queues:
                continue
        for queue in queues:
            for message in read_between(client, queue, starts.get(queue, 0), settled_end(client, queue)):
                row = message.properties.get(ROW_PROPERTY, "")
                if row.startswith(prefix):
                    found.add(row)
    return found


class Progress:
    """The records of sinks in their topic, which has one queue at each broker."""

    def __init__(self, client: SinkClient, topic: str) -> None:
        self._client = client
        self._topic = topic

    def ends(self) -> Offsets:
        """Where the records end now. Creates the topic."""
        admin = self._client.admin
        try:
            queues = admin.queues(self._topic)
        except TopicNotFoundError:
            admin.create_topic(self._topic, queues=1)
            queues = admin.queues(self._topic)
        return {queue: settled_end(self._client, queue) for queue in queues}

    def earlier(self, place: Place, since: Mapping[MessageQueue, int]) -> Earlier:
        """Looks up what earlier attempts at a place left.

        Args:
            place: The place.
            since: Where the records of its write begin at the earliest, if known.
        """
        found = Earlier()
        for queue, end in self.ends().items():
            for tag, batch, record in self._back(queue, since.get(queue, 0), end, place.write):
                if tag == DONE:
                    if batch < place.batch:
                        break
                    found.is_done = True
                elif batch == place.batch and record["partition"] == place.partition:
                    for topic, starts in record["ends"].items():
                        earliest: Offsets = found.ends.setdefault(topic, {})
                        for broker, queue_id, offset in starts:
                            one = MessageQueue(topic, broker, queue_id)
                            earliest[one] = min(offset, earliest.get(one, offset))
        return found

    def begin(self, place: Place, attempt: int, ends: Mapping[str, Offsets]) -> None:
        """Records that a task begins to send to some topics. On return a record is stored at one broker at least.

        Args:
            place: What the task writes.
            attempt: Number of the attempt; nothing reads it but a human.
            ends: Ends of the topics' queues, from before anything was sent.
        """
        told = {
            topic: [(queue.broker_name, queue.queue_id, end) for queue, end in sorted(starts.items())]
            for topic, starts in ends.items()
        }
        record = {"v": 1, "batch": place.batch, "partition": place.partition, "attempt": attempt, "ends": told}
        self._store(BEGUN, place.write, record)

    def finish(self, write: str, batch: int) -> None:
        """Records that a batch is written. On return a record is stored at one broker at least.

        Args:
            write: Id of the write.
            batch: Number of the batch.
        """
        self._store(DONE, write, {"v": 1, "batch": batch})

    def _store(self, tag: str, write: str, record: Mapping[str, object]) -> None:
        """Sends a record to every broker that can be reached, so that it is found while others are down."""
        message = Message(self._topic, json.dumps(record).encode(), tag=tag, keys=[write])
        stored, failure = 0, None
        for queue in self._client.admin.queues(self._topic):
            try:
                self._client.recorder.send(message, queue=queue)
                stored += 1
            except RocketPyError as error:
                failure = error
        if not stored and failure is not None:
            raise failure

    def _back(self, queue: MessageQueue, start: int, end: int, write: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Yields tag, batch and content of the records of a write, the newest first."""
        size = BLOCK
        while start < end:
            begin = max(start, end - size)
            block = list(read_between(self._client, queue, begin, end))
            for message in reversed(block):
                if message.keys == (write,):
                    record = self._record(message)
                    yield message.tag or "", record["batch"], record
            if len(block) < end - begin:
                return  # retention removed what is before
            end, size = begin, min(size * 2, 1 << 16)

    def _record(self, message: ReceivedMessage) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads(message.body)
            if record["v"] == 1:
                return record
        except (ValueError, KeyError, TypeError):
            pass
        raise DamagedDataError(f"topic {self._topic} has a message that is no record of a sink: {message.msg_id}")

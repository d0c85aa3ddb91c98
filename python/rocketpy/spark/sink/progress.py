"""Progress of a sink, as small records in a topic of its own, and the rows that are stored already.

Before a task sends its first row to a topic, it sends a record `begun` with the ends of the topic's queues: all of its
rows come after them. The record also tells the setting of `exactly_once`, with which the batch is finished. After a
batch the driver sends a record `done`. A task that finds an earlier `begun` of its own
partition and batch is a repetition: it reads the queues from the ends in that record, and skips the rows that it finds.

With `exactly_once` a task sends half messages and then records `halves` with their places. The driver's `decided` says
which attempts count; the first one of a batch does, whatever is recorded later. `lost` says that a decided batch has
half messages that will never be delivered. All records are in one queue then.
"""

from __future__ import annotations

import json
import time
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rocketpy.config import SendStatus
from rocketpy.errors import DamagedDataError, NotSupportedError, OffsetError, RocketPyError, TopicNotFoundError
from rocketpy.message import Message, MessageQueue, Receipt
from rocketpy.spark.patience import Patience, again
from rocketpy.spark.sink.options import DECISION_TOPIC, PROGRESS_TOPIC
from rocketpy.spark.sink.rows import ROW_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from rocketpy.config import Tags
    from rocketpy.message import ReceivedMessage
    from rocketpy.spark.offsets import Offsets
    from rocketpy.spark.sink.client import SinkClient
    from rocketpy.spark.sink.options import SinkOptions
    from rocketpy.spark.sink.rows import Place

BEGUN, DONE, HALVES, DECIDED, LOST = "begun", "done", "halves", "decided", "lost"
"""Tags of the records."""
NOT_HALVES = [BEGUN, DONE, DECIDED, LOST]
BLOCK = 256
"""Records that are read at once, from the newest back."""
HALVES_IN_A_RECORD = 5000
"""Some 150 bytes each, before the client compresses them."""
ONE_QUEUE = "exactly_once needs a topic of one queue at one broker"
FIRST_PAUSE = 0.01
"""Seconds between the first two questions for the end of a queue: messages are readable after a few milliseconds."""


@dataclass(slots=True)
class Earlier:
    """Results of earlier attempts."""

    is_done: bool = False
    """Whether the whole batch was written and committed."""
    exactly_once: bool | None = None
    """Setting with which the batch was begun; None if it was not begun."""
    ends: dict[str, Offsets] = field(default_factory=dict)
    """Ends of the queues before the first send of the first attempt, by topic. Other queues are new."""
    is_decided: bool = False
    """Whether half messages of the batch are to be delivered, by the driver."""
    is_lossy: bool = False
    """Whether some half messages will not be delivered. All others are delivered."""
    looked_to: Offsets = field(default_factory=dict)
    """Offset up to which the records were read."""


@dataclass(slots=True)
class Fate:
    """Decision on a batch."""

    attempts: dict[str, int] | None = None
    """Attempts that count, with the number of their half messages; None before the decision. Empty where the batch was
    over without one."""
    is_lossy: bool = False
    """Whether it is recorded that some half messages of these attempts will not be delivered."""
    decided_at: int | None = None
    """Offset of the decision in its queue."""
    begun_at: int = 0
    """Offset of the first record of the batch: those with its half messages come after it."""


def settled_end(client: SinkClient, queue: MessageQueue) -> int:
    """The end of a queue, once all that is stored before it can be read.

    Args:
        client: Client of this process.
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


def read_between(
    client: SinkClient, queue: MessageQueue, start: int, end: int, tags: Tags = "*"
) -> Iterator[ReceivedMessage]:
    """Reads the remaining messages of a range.

    Args:
        client: Client of this process.
        queue: The queue.
        start: First queue offset.
        end: Queue offset to stop before.
        tags: Tags of the messages to read.

    Yields:
        The messages.
    """
    at = start
    while (at := max(at, client.admin.min_offset(queue))) < end:
        try:
            with client.range_reader(queue, at, end, tags) as reader:
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
        client: Client of this process.
        topic: The topic.
    """
    try:
        return {one.queue: one.max_offset for one in client.admin.describe_topic(topic).queues}
    except TopicNotFoundError:
        return {}


def stored_rows(client: SinkClient, ends: Mapping[str, Offsets], prefix: str) -> set[str]:
    """Reads which rows are stored.

    Args:
        client: Client of this process.
        ends: Start offset of each queue, by topic; other queues are read from the beginning.
        prefix: Prefix of the row ids.

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
    """The records of sinks in their topic, which has one queue at each broker.

    Args:
        client: Client of this process.
        topic: Topic of the records; default: that of the client's options.
    """

    def __init__(self, client: SinkClient, topic: str | None = None) -> None:
        self._client = client
        self._topic = topic or client.options.progress_topic or ""

    def queues(self) -> list[MessageQueue]:
        """The queues of the topic. Creates the client's own topic, but not one of decisions.

        Raises:
            NotSupportedError: The client's topic of decisions has several queues.
            TopicNotFoundError: The topic does not exist. Retryable if it did, or if no broker is registered.
        """
        admin, options, known = self._client.admin, self._client.options, self._client.known_topics
        is_own = self._topic == options.progress_topic
        try:
            queues = admin.queues(self._topic)
        except TopicNotFoundError as error:
            if self._topic in known or not is_own:
                raise
            if options.exactly_once:  # its broker may be away: at another one the decisions would be missing
                brokers = admin.brokers()
                if not brokers:
                    raise
                command = f"rocketpy topic create {self._topic} --queues 1 --broker {brokers[0].broker_name}"
                hint = (
                    f"{ONE_QUEUE}. If it was made before, start its broker again and make nothing. Else: "
                    f"`{command} --name-server {','.join(options.name_servers)}`"
                )
                raise TopicNotFoundError(f"the topic of decisions does not exist: {self._topic}", hint=hint) from error
            admin.create_topic(self._topic, queues=1)
            queues = admin.queues(self._topic)
        if is_own and options.exactly_once and len(queues) != 1:
            raise NotSupportedError(f"topic {self._topic} has {len(queues)} queues", hint=ONE_QUEUE)
        known.add(self._topic)
        return queues

    def ends(self) -> Offsets:
        """Returns the current end of the records.

        Raises:
            RocketPyError: As for `queues`, or a broker does not answer.
        """
        return {queue: settled_end(self._client, queue) for queue in self.queues()}

    def earlier(self, place: Place, since: Mapping[MessageQueue, int]) -> Earlier:
        """Looks up the results of earlier attempts at a place.

        Args:
            place: The place.
            since: Minimum offset of the records of this write, if known.
        """
        found = Earlier(looked_to=self.ends())
        for queue, end in found.looked_to.items():
            for tag, batch, record, _ in self._of_batch(queue, since.get(queue, 0), end, place.write, place.batch):
                if tag == DONE:
                    found.is_done = True
                elif batch != place.batch:
                    continue
                elif tag == DECIDED:
                    found.is_decided = True
                elif tag == LOST:
                    found.is_lossy = True
                elif tag == BEGUN:
                    found.exactly_once = record.get("exactly_once")  # the oldest comes last
                    if record["partition"] != place.partition:
                        continue
                    for topic, starts in record["ends"].items():
                        earliest: Offsets = found.ends.setdefault(topic, {})
                        for broker, queue_id, offset in starts:
                            one = MessageQueue(topic, broker, queue_id)
                            earliest[one] = min(offset, earliest.get(one, offset))
        if found.is_decided:
            found.exactly_once = True
        return found

    def begin(self, place: Place, attempt: int, ends: Mapping[str, Offsets]) -> None:
        """Records that a task begins to send to some topics. On return a record is stored at one broker at least.

        Args:
            place: Place that the task writes.
            attempt: Number of the attempt, for information only.
            ends: Ends of the topics' queues before the first send.
        """
        told = {
            topic: [(queue.broker_name, queue.queue_id, end) for queue, end in sorted(starts.items())]
            for topic, starts in ends.items()
        }
        record = {"v": 1, "batch": place.batch, "partition": place.partition, "attempt": attempt, "ends": told}
        self._store(BEGUN, place.write, record | {"exactly_once": self._client.options.exactly_once})

    def finish(self, write: str, batch: int, decided_at: int | None = None) -> None:
        """Records that a batch is written. On return a record is stored at one broker at least.

        Args:
            write: Id of the write.
            batch: Number of the batch.
            decided_at: Offset of the decision on it.
        """
        decided = {} if decided_at is None else {"decided_at": decided_at}
        self._store(DONE, write, {"v": 1, "batch": batch, **decided})

    def note_halves(self, place: Place, attempt: str, halves: Sequence[Receipt]) -> None:
        """Records the positions of the half messages of an attempt.

        Args:
            place: Place that the task wrote.
            attempt: Id of the attempt.
            halves: Half messages in the order of their rows.
        """
        for first in range(0, len(halves), HALVES_IN_A_RECORD):
            notes = [
                (*astuple(one.queue), one.queue_offset, one.offset_msg_id, one.msg_id)
                for one in halves[first : first + HALVES_IN_A_RECORD]
            ]
            record = {"v": 1, "batch": place.batch, "partition": place.partition, "attempt": attempt, "halves": notes}
            self._store(HALVES, place.write, record)

    def decide(self, write: str, batch: int, attempts: Mapping[str, int]) -> None:
        """Records which attempts of a batch count.

        Args:
            write: Id of the write.
            batch: Number of the batch.
            attempts: Ids of the attempts, with the number of half messages of each.
        """
        self._store(DECIDED, write, {"v": 1, "batch": batch, "attempts": attempts})

    def note_loss(self, write: str, batch: int, messages: int) -> None:
        """Records that half messages of a decided batch will not be delivered, and all others are.

        Args:
            write: Id of the write.
            batch: Number of the batch.
            messages: Number of lost half messages, for information only.
        """
        self._store(LOST, write, {"v": 1, "batch": batch, "messages": messages})

    def fate(self, write: str, batch: int) -> Fate:
        """Looks up the decision on a batch, without the positions of its half messages.

        Args:
            write: Id of the write.
            batch: Number of the batch.
        """
        found = Fate()
        for queue, end in self.ends().items():
            for tag, number, record, offset in self._of_batch(queue, 0, end, write, batch):
                if tag == DONE or (tag == DECIDED and number > batch):
                    # The batch is over here: what comes behind is from a driver that was taken for dead.
                    found.attempts, found.decided_at, found.is_lossy = {}, None, False
                elif number > batch:
                    continue
                elif tag == DECIDED:
                    found.attempts, found.decided_at = record["attempts"], offset  # the oldest comes last
                elif tag == LOST:
                    found.is_lossy = True
                elif tag == BEGUN:
                    found.begun_at = offset
        return found

    def halves(self, write: str, batch: int, fate: Fate, attempts: Collection[str]) -> Iterator[list[Receipt]]:
        """Looks up half messages of a batch, a record at a time: all of them may be more than memory holds.

        Args:
            write: Id of the write.
            batch: Number of the batch.
            fate: Fate of the batch.
            attempts: Attempts that sent the half messages.

        Yields:
            The half messages of a record, as far as they are recorded, each once; those of an attempt in the order of
            their rows.

        Raises:
            RocketPyError: No broker answered for `retry_timeout`.
        """
        first_ids: set[str] = set()  # a record may be stored twice
        for queue, end in again(self.ends, self._client.options.retry_seconds).items():
            for record in self._halves_between(queue, fate.begun_at, end, write):
                if record["batch"] == batch and record["attempt"] in attempts:
                    halves = _halves(record)
                    if halves[0].msg_id not in first_ids:
                        first_ids.add(halves[0].msg_id)
                        yield halves

    def _halves_between(self, queue: MessageQueue, start: int, end: int, write: str) -> Iterator[dict[str, Any]]:
        """Yields the records of a write that say where half messages are, the oldest first. Waits for the broker."""
        patience = Patience(self._client.options.retry_seconds)
        while start < end:
            try:
                for message in read_between(self._client, queue, start, end, [HALVES]):
                    patience.progressed()
                    start = message.queue_offset + 1
                    if message.keys == (write,):
                        yield self._record(message)
                return
            except RocketPyError as error:
                time.sleep(patience.pause_after(error, passes=error.retryable))

    def _store(self, tag: str, write: str, record: Mapping[str, object]) -> None:
        """Sends a record to every broker that can be reached, so that it is found while others are down."""
        message = Message(self._topic, json.dumps(record).encode(), tag=tag, keys=[write])
        stored, failure = 0, None
        for queue in self._client.admin.queues(self._topic):
            try:
                receipt = self._client.recorder.send(message, queue=queue)
                if tag == DECIDED and receipt.status is not SendStatus.SEND_OK:
                    raise RocketPyError(f"a decision may be lost: {receipt.status}", retryable=True)
                stored += 1
            except RocketPyError as error:
                failure = error
        if not stored and failure is not None:
            raise failure

    def _of_batch(
        self, queue: MessageQueue, start: int, end: int, write: str, batch: int
    ) -> Iterator[tuple[str, int, dict[str, Any], int]]:
        """Yields tag, batch, content and offset of the records of a batch and of later ones, the newest first.

        They are behind the decision on every earlier batch, though not behind each record that one is done: a driver
        that was taken for dead may write it late. Records of half messages, the larger part by far, are left out.
        """
        begin, is_once = 0, self._client.options.exactly_once
        for tag, number, record, offset in self._back(queue, start, end, write):
            if offset < begin:
                return
            if number >= batch:
                yield tag, number, record, offset
            elif tag == DONE:  # a batch without exactly_once has no decision to go by
                begin = max(begin, record.get("decided_at", 0 if is_once else offset))

    def _back(
        self, queue: MessageQueue, start: int, end: int, write: str
    ) -> Iterator[tuple[str, int, dict[str, Any], int]]:
        """Yields tag, batch, content and offset of the records of a write, the newest first."""
        size = BLOCK
        start = max(start, self._client.admin.min_offset(queue))  # retention removed what is before
        while start < end:
            begin = max(start, end - size)
            for message in reversed(list(read_between(self._client, queue, begin, end, NOT_HALVES))):
                if message.keys == (write,):
                    record = self._record(message)
                    yield message.tag or "", record["batch"], record, message.queue_offset
            end, size = begin, min(size * 2, 1 << 16)

    def _record(self, message: ReceivedMessage) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads(message.body)
            if record["v"] == 1:
                return record
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise DamagedDataError(f"topic {self._topic} has a message that is not a record of a sink: {message.msg_id}")


def _halves(record: Mapping[str, Any]) -> list[Receipt]:
    return [
        Receipt(SendStatus.SEND_OK, msg_id, offset_msg_id, MessageQueue(topic, broker, queue_id), queue_offset)
        for topic, broker, queue_id, queue_offset, offset_msg_id, msg_id in record["halves"]
    ]


def as_begun(client: SinkClient, place: Place, since: Mapping[MessageQueue, int]) -> tuple[SinkOptions, Earlier]:
    """Looks up the results of earlier attempts at a place, and the options with which its batch is to be finished.

    A query may have been stopped within a batch, and started again with the other setting of `exactly_once`. So the
    default progress topics of both settings are looked through as well.

    Args:
        client: Client of this process.
        place: The place.
        since: Begin of the records of a new write; else empty.

    Raises:
        RocketPyError: As for `Progress.ends`.
    """
    options = client.options
    found = Progress(client).earlier(place, since)
    if found.exactly_once is not None:
        return replace(options, exactly_once=found.exactly_once), found
    for topic in () if since else {PROGRESS_TOPIC, DECISION_TOPIC} - {options.progress_topic}:
        key = (topic, place.write)
        try:
            other = Progress(client, topic).earlier(place, client.looked_to.get(key, {}))
        except TopicNotFoundError:
            if topic in client.known_topics:
                raise
            continue
        if other.exactly_once is not None:
            return replace(options, exactly_once=other.exactly_once, progress_topic=topic), other
        client.looked_to[key] = other.looked_to
    return options, found

"""`rocketpy consume`: messages to standard output, as text or JSON lines."""

import functools
import heapq
import shlex
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import typer

from rocketpy import (
    Admin,
    Consumer,
    ConsumerState,
    DamagedDataError,
    MessageQueue,
    OffsetError,
    RangeReader,
    ReceivedMessage,
    RocketPyError,
    Start,
    TopicNotFoundError,
)
from rocketpy.base.clock import monotonic
from rocketpy.base.names import is_system_topic
from rocketpy.cli.message_output import Output, Writer, notice
from rocketpy.cli.options import LOCAL, WAITING, BodyBytes, NameServer, Tags, start_of
from rocketpy.cli.topic import existing
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.errors import UNREADABLE_BODY

FOLLOW_SECONDS = 0.2
"""Interval at which --follow without a group checks for newer messages."""
POLL_MESSAGES = 1000
POLL_SECONDS = 0.5
QUIET_SECONDS = 2.0
"""Idle time after which a group without --follow ends, if its queues hold no more messages."""
SILENCE_SECONDS = 60.0
"""Time without an answer from any broker after which a group without --follow ends with an error."""
JOIN_SECONDS = 60.0
"""Time after which a member ends that has no queue, or no answer of the broker of a queue."""
RETRYING = "retrying until the servers are available"
DAMAGE_HINT = (
    "stop the broker: `rocketpy store verify` shows the damage of its store, and `rocketpy store repair` repairs it; "
    "`--from TIME` without a group, or `rocketpy group reset`, continues after this message"
)
"""Hint for a damaged record. A command cannot seek."""


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    tags: Tags = "*",
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest (the default), latest, a time, or -10m for the last ten minutes. A group begins there only "
            "in queues without a committed offset.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing what arrives, until Ctrl-C.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "--limit", "--max", "-c", min=1, help="Stop after N messages.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", help="Read as a member of this consumer group: continue where it stopped, and commit."
        ),
    ] = None,
    form: Annotated[Output, typer.Option("--format", help="text: the body. json: one object per line.")] = Output.TEXT,
    max_body_bytes: BodyBytes = None,
    name_server: NameServer = LOCAL,
) -> None:
    """Print messages in the order in which they were stored.

    Without --follow, stops at the ends that the queues had at the start. Without --group, joins no group and commits
    nothing. With --group, each queue keeps its order, but queues are not merged. A body that does not decompress is
    null in JSON. Text leaves it out, and the command ends with exit code 11.
    """
    begin = start_of(start or "earliest", "--from")
    hint = None  # of a topic that brokers create: the error has one
    if not is_system_topic(topic):
        hint = f"`rocketpy topic list` shows the topics, `rocketpy topic create {shlex.quote(topic)}` creates it"
    read = functools.partial(RangeReader, tags=tags, max_body_bytes=max_body_bytes, name_servers=name_server, **WAITING)
    if group is not None:
        with existing(topic, name_server, hint):
            with Admin(name_servers=name_server, **WAITING) as admin:
                queues = readable_queues(admin, topic)
                if start is not None:
                    tell_of_a_place(admin, queues, group, start)
            consumer = Consumer(
                group,
                topic,
                tags=tags,
                start=begin,
                max_body_bytes=max_body_bytes,
                unreachable_timeout=None if follow else SILENCE_SECONDS,
                name_servers=name_server,
                **WAITING,
            )
        with undamaged(), Writer(form) as writer:
            consume_as_member(consumer, read, writer, follow, count)
        return
    with Admin(name_servers=name_server, **WAITING) as admin:
        with existing(topic, name_server, hint):
            queues = readable_queues(admin, topic)
        positions = {queue: offset_at(admin, queue, begin) for queue in queues}
        with undamaged(), Writer(form) as writer:
            writer.write(read_on(admin, topic, positions, read, follow), count)


@contextmanager
def undamaged() -> Generator[None]:
    """Gives the error of a damaged record a hint that leads out."""
    try:
        yield
    except DamagedDataError as error:
        raise CommandError(str(error), ExitCode.DAMAGED, DAMAGE_HINT) from error


def readable_queues(admin: Admin, topic: str) -> list[MessageQueue]:
    """Returns the queues that a topic has for readers; an error if there is none."""
    queues = admin.queues(topic)
    if not queues:
        raise CommandError(
            f"topic has no readable queue: {topic}",
            ExitCode.REFUSED,
            f"`rocketpy topic describe {shlex.quote(topic)}` shows its queues and permissions",
        )
    return queues


def tell_of_a_place(admin: Admin, queues: list[MessageQueue], group: str, start: str) -> None:
    """Reports on standard error that `--from` is ignored in queues where the group has committed offsets."""
    been = sum(admin.committed_offset(group, queue) is not None for queue in queues)
    if been:
        notice(
            f"--from {start} is ignored in {been} of {output.counted(len(queues), 'queue')}: group {group} continues "
            "at its committed offsets; `rocketpy group reset` changes them"
        )


def offset_at(admin: Admin, queue: MessageQueue, begin: Start) -> int:
    """Returns the offset at which reading of a queue begins."""
    if begin.at_ms is not None:
        return admin.search_offset(queue, datetime.fromtimestamp(begin.at_ms / 1000, UTC))
    return admin.min_offset(queue) if begin == Start.EARLIEST else admin.max_offset(queue)


def read_on(
    admin: Admin, topic: str, positions: dict[MessageQueue, int], read: Callable[..., RangeReader], follow: bool
) -> Iterator[ReceivedMessage | None]:
    """Reads all queues from their positions to their current ends and then, with --follow, new messages.

    With --follow, reading continues, with a notice, when the server or the topic is available again. Queues that appear
    are read from their first message.

    Yields:
        Messages, the available ones in the order in which they were stored; None when no more are available now.
    """
    away, firsts = False, dict[MessageQueue, First]()
    while True:
        try:
            if follow:
                for queue in admin.queues(topic):  # raises for a deleted topic, whose queues would only look empty
                    if queue not in positions:
                        positions[queue] = admin.min_offset(queue)
                notice_later_queues(admin, positions, firsts, read, is_back=away)
            yield from read_new(admin, positions, read)
            if away:
                tell_of_return()
            away = False
        except RocketPyError as error:
            # Retention, or a topic that was created again, may come between a check and a read.
            if not (follow and (error.retryable or isinstance(error, OffsetError))):
                raise
            if not away:
                tell_of_absence(error)
            away = True
        yield None
        if not follow:
            return
        time.sleep(FOLLOW_SECONDS)


class First(NamedTuple):
    """First message of a queue."""

    offset: int
    identity: tuple[str, int] | None
    """Its `msg_id` and store time; None if the queue is empty."""

    def is_of_other_queue(self, now: "First") -> bool:
        """Whether the queue that has `now` as its first message is not the one that had this one: offsets only grow."""
        return now.offset < self.offset or (now.offset == self.offset and self.identity not in (None, now.identity))


def notice_later_queues(
    admin: Admin,
    positions: dict[MessageQueue, int],
    firsts: dict[MessageQueue, First],
    read: Callable[..., RangeReader],
    *,
    is_back: bool,
) -> None:
    """Corrects the positions in queues of a topic that was created again, or of a store that lost or expired messages.

    Args:
        admin: Client.
        positions: Offset of the next message, by queue.
        firsts: First message of each queue in the last round.
        read: Opens a reader.
        is_back: Whether the topic or its server was not available in the last round.
    """
    for queue, position in positions.items():
        end = admin.max_offset(queue)
        if end == position and not is_back and queue in firsts and is_still_first(admin, queue, firsts[queue], end):
            continue
        first = first_of(admin, queue, end, read)
        if queue in firsts and firsts[queue].is_of_other_queue(first):
            if first.identity is None:
                continue  # empty: the topic is being deleted, or its first message will tell that it was created again
            tell_of_move(queue, "was created again, or its store was replaced", first.offset)
            positions[queue] = first.offset
        elif end < position:
            tell_of_move(queue, f"lost {output.counted(position - end, 'message')} at its end", end)
            positions[queue] = end
        elif position < first.offset:
            cause = f"expired {output.counted(first.offset - position, 'unread message')}"
            tell_of_move(queue, cause, first.offset)
            positions[queue] = first.offset
        firsts[queue] = first


def is_still_first(admin: Admin, queue: MessageQueue, first: First, end: int) -> bool:
    """Whether a queue that ends at `end` begins with `first`, or later after retention.

    A topic that was created again with as many messages has a first message with a later store time.
    """
    if first.identity is None:
        return first.offset == end
    _, stored_at_ms = first.identity
    try:
        later = datetime.fromtimestamp((stored_at_ms + 1) / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a number of another broker that is not a time
        return False
    return admin.search_offset(queue, later) > first.offset


def first_of(admin: Admin, queue: MessageQueue, end: int, read: Callable[..., RangeReader]) -> First:
    """Reads the first message of a queue that ends at `end`."""
    offset = admin.min_offset(queue)
    if offset < end:
        with read(queue, offset, offset + 1, tags="*") as reader:
            for message in one_by_one(reader):
                return First(offset, (message.msg_id, message.stored_at_ms))
    return First(offset, None)


def tell_of_move(queue: MessageQueue, cause: str, offset: int) -> None:
    """Reports on standard error that reading continues at another offset."""
    notice(f"{queue} {cause}; reading continues at offset {offset}")


def tell_of_absence(error: object) -> None:
    """Reports an outage on standard error, and that the command retries."""
    notice(f"{error}; " + ("reading the offsets again" if isinstance(error, OffsetError) else RETRYING))


def tell_of_return() -> None:
    """Reports the end of an outage on standard error."""
    notice("available again")


def read_new(
    admin: Admin, positions: dict[MessageQueue, int], read: Callable[..., RangeReader]
) -> Iterator[ReceivedMessage]:
    """Reads all queues from their positions to their current ends, and advances the positions with the messages.

    Yields:
        Messages in the order in which they were stored.
    """
    ends: dict[MessageQueue, int] = {}
    with ExitStack() as stack:
        queues: list[Iterator[ReceivedMessage]] = []
        for queue, position in positions.items():
            end = admin.max_offset(queue)
            if position < end:
                queues.append(one_by_one(stack.enter_context(read(queue, position, end))))
                ends[queue] = end
        for message in heapq.merge(*queues, key=lambda message: (message.stored_at_ms, message.physical_offset)):
            positions[message.queue] = message.queue_offset + 1
            yield message
    positions.update(ends)  # also past messages that the tags leave out


def one_by_one(reader: RangeReader) -> Iterator[ReceivedMessage]:
    """Yields the messages of a reader."""
    for messages in reader.messages():
        yield from messages


def consume_as_member(
    consumer: Consumer, read: Callable[..., RangeReader], writer: "Writer", follow: bool, count: int | None
) -> None:
    """Reads as a member of a group and commits printed messages.

    With --follow, reading continues, with a notice, when the server or a deleted topic is available again.
    """
    left = count
    away = is_behind = is_missing = False
    with consumer:
        last = complete = monotonic()
        while left != 0:
            try:
                batch = poll(consumer, read, POLL_MESSAGES if left is None else min(left, POLL_MESSAGES))
            except TopicNotFoundError as error:
                if not follow:
                    raise
                if not is_missing:
                    tell_of_absence(error)
                is_missing = True
                continue
            if follow:
                away = tell_of_contact(consumer.state(), away)
                is_missing = is_missing and not tell_of_messages(batch)
            if batch:
                printed = writer.write(batch)
                left = None if left is None else left - printed
                is_behind = True
                last = monotonic()
            if is_behind:
                is_behind = not commit(consumer, later=follow and left != 0)
            elif not follow:
                positions = consumer.positions()
                unread = [queue for queue in consumer.assignment() if queue not in positions]
                if positions and not unread:
                    complete = monotonic()
                elif monotonic() - complete < JOIN_SECONDS:
                    last = monotonic()  # queues are still being assigned, or wait for the answer of their broker
                if monotonic() - last > QUIET_SECONDS:
                    # Quiet may also be a broker that is gone: it is asked, and that is an error then.
                    if not any(consumer.lag().values()):
                        check_all_read(consumer, unread, is_idle=not positions)
                        return
                    last = monotonic()


def poll(consumer: Consumer, read: Callable[..., RangeReader], most: int) -> list[ReceivedMessage]:
    """Polls. A message whose body does not decompress is returned too, so that it does not block its queue for ever."""
    try:
        return consumer.poll(most, POLL_SECONDS)
    except UNREADABLE_BODY:
        for queue, offset in consumer.positions().items():
            message = unreadable_at(queue, offset, read)
            if message is not None:
                consumer.seek(queue, offset + 1)
                return [message]
        raise


def unreadable_at(queue: MessageQueue, offset: int, read: Callable[..., RangeReader]) -> ReceivedMessage | None:
    """Returns the message at an offset if its body does not decompress."""
    with read(queue, offset, offset + 1, tags="*") as reader:
        try:
            message = next(one_by_one(reader), None)
        except OffsetError:  # the queue ends there
            return None
    try:
        _ = message and message.body
    except UNREADABLE_BODY:
        return message
    return None


def check_all_read(consumer: Consumer, unread: list[MessageQueue], *, is_idle: bool) -> None:
    """Reports on standard error that a member ends without a queue.

    Raises:
        CommandError: The member has queues that it could not read.
    """
    if unread:
        raise CommandError(
            f"no broker of the queues answered within {JOIN_SECONDS:.0f} s: {', '.join(map(str, unread[:4]))}",
            ExitCode.UNAVAILABLE,
        )
    if not is_idle:
        return
    cause = "its other members have all queues, or no broker of the queues is registered"
    notice(f"no queue was assigned to this member of group {consumer.group}: {cause}")


def tell_of_contact(state: ConsumerState, away: bool) -> bool:
    """Reports when the last broker stops answering and when one answers again; returns whether none answers now."""
    if not away and not state.reachable:
        tell_of_absence(next(broker.last_error for broker in state.brokers))
    if away and state.reachable:
        tell_of_return()
    return not state.reachable


def tell_of_messages(batch: list[ReceivedMessage]) -> bool:
    """Reports that a missing topic is available again, if it has messages; returns whether it has."""
    if batch:
        tell_of_return()
    return bool(batch)


def commit(consumer: Consumer, *, later: bool) -> bool:
    """Commits; returns False if the commit failed, may succeed later, and `later` is set."""
    try:
        consumer.commit()
    except RocketPyError as error:
        if not (later and error.retryable):
            raise
        return False
    return True

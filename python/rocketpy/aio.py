"""Clients for asyncio: twins of `Producer`, `Consumer` and `Admin`, by name and meaning."""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

from rocketpy import _rocketpy
from rocketpy.admin import (
    BrokerInfo,
    GroupInfo,
    GroupMember,
    QueueLag,
    TopicChange,
    TopicInfo,
    master_role,
    span_ms,
    warn_of_cut,
)
from rocketpy.arrow import import_pyarrow
from rocketpy.balance import Allocating, allocating, assigned
from rocketpy.config import (
    CLIENT_DEFAULTS,
    CONSUMER_DEFAULTS,
    PRODUCER_DEFAULTS,
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
)
from rocketpy.consumer import FOREVER, BrokerContact, ConsumerState, OffsetMove, check_offsets, topic_list
from rocketpy.errors import ClosedError, PartlySentError, RocketPyError, TopicNotFoundError
from rocketpy.instant import instant_ms
from rocketpy.lifetime import Lifetime
from rocketpy.names import name_server_list
from rocketpy.producer import recall_handle
from rocketpy.receipts import Receipts
from rocketpy.replication import HaStatus, status_of
from rocketpy.signature import lists_options
from rocketpy.stats import ConsumerStats, ProducerStats, consumer_stats, producer_stats
from rocketpy.trace import TRACE_TOPIC, MessageTrace, explained, trace_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from datetime import datetime
    from types import TracebackType
    from typing import Literal, Unpack

    import pyarrow

    from rocketpy._rocketpy import ArrowBatch, ReceivedMessage
    from rocketpy.admin import TopicChanges
    from rocketpy.config import Duration, Instant, Start
    from rocketpy.message import Message, MessageQueue, Receipt

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncProducer"]

P = ParamSpec("P")
T = TypeVar("T")


class Watch:
    """What a loop watches for its clients."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.arrivals = _rocketpy.Arrivals(loop.create_future)
        self.clients = 0
        loop.add_reader(self.arrivals.descriptor, self.arrivals.deliver)


_watches: dict[asyncio.AbstractEventLoop, Watch] = {}
"""By loop, while it has open clients."""


def watch(loop: asyncio.AbstractEventLoop) -> _rocketpy.Arrivals:
    """The arrivals that a loop watches, for one client more."""
    for other in [other for other in _watches if other.is_closed()]:
        del _watches[other]
    if loop not in _watches:
        _watches[loop] = Watch(loop)
    _watches[loop].clients += 1
    return _watches[loop].arrivals


def leave(loop: asyncio.AbstractEventLoop) -> None:
    """A client of a loop is closed; without one the loop watches nothing."""
    left = _watches.get(loop)
    if left is None:
        return
    left.clients -= 1
    if not left.clients:
        del _watches[loop]
        if not loop.is_closed():
            loop.remove_reader(left.arrivals.descriptor)


def later(call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> Awaitable[T]:
    """For a loop a native call gives a future of what it gives a thread, which is what its stub says."""
    return cast("Awaitable[T]", call(*arguments, **options))


class AsyncClosing(Lifetime):
    """Base of the clients of an event loop: `async with`, or `start` and `close`."""

    __slots__ = ("_client", "_loop")

    def __init__(self) -> None:
        super().__init__()
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @abstractmethod
    async def _open(self, arrivals: _rocketpy.Arrivals) -> object:
        """Makes the native client."""

    async def start(self) -> Self:
        """Opens the client for the running event loop, which alone may use it; `async with` does so too.

        Raises:
            RocketPyError: It was started before. Make a new one.
        """
        if self._loop is not None:
            raise RocketPyError(f"{self!r} was started before", hint="a client has one life: make a new one")
        loop = self._loop = asyncio.get_running_loop()
        try:
            self._client = await self._open(watch(loop))
        except BaseException:
            leave(loop)
            self._loop = None  # it may be tried again
            raise
        self._opened()
        return self

    def _checked(self) -> Any:
        """The native client, for the loop that it was started in.

        Raises:
            ClosedError: It was not started, or is closed.
            RocketPyError: Another loop runs.
        """
        if self._closed:
            state = "was not started" if self._client is None else "is closed"
            raise ClosedError(f"{self!r} {state}", hint="use it inside `async with`, or between start() and close()")
        if asyncio.get_running_loop() is not self._loop:
            raise RocketPyError(f"{self!r} belongs to another event loop", hint="make a client in each loop")
        return self._client

    def _started(self) -> Any:
        """The native client, for what any thread may call at any time after the start.

        Raises:
            ClosedError: It was not started.
        """
        if self._client is None:
            raise ClosedError(f"{self!r} was not started", hint="use it inside `async with`, or after start()")
        return self._client

    async def close(self) -> None:
        """Closes the client. A second call does nothing, or waits for what a cancellation interrupted."""
        if self._is_over():
            return
        self._closed = True
        if os.getpid() == self._made_by:
            await self._client.close(False)
        self._ended()
        leave(cast("asyncio.AbstractEventLoop", self._loop))

    def _close_now(self) -> None:
        self._closed = True
        self._client.close(True)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class AsyncProducer(AsyncClosing):
    """`Producer` for asyncio. Sends that run side by side share requests, as those of `Producer.submit` do.

    Args:
        group: Name of the producer group.
        name_servers: `host:port` of each name server, as a list or as one text; default: the variable `NAMESRV_ADDR`.
        options: As for `rocketpy.Producer`. They are checked when it is started.

    Examples:
        >>> import asyncio, rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> async def main():
        ...     async with rocketpy.AsyncProducer("app", name_servers=server.name_server) as producer:
        ...         messages = [rocketpy.Message("aio-doc", b"%d" % n) for n in range(1000)]
        ...         receipts = await asyncio.gather(*(producer.send(message) for message in messages))
        ...     return len(receipts)
        >>> asyncio.run(main())
        1000
    """

    __slots__ = ("_group", "_name_servers", "_options")

    @lists_options(ProducerOptions, PRODUCER_DEFAULTS)
    def __init__(
        self, group: str, *, name_servers: Iterable[str] | str | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__()
        self._group = group
        self._name_servers, self._options = name_server_list(name_servers), options

    async def _open(self, arrivals: _rocketpy.Arrivals) -> object:
        return _rocketpy.Producer(self._group, self._name_servers, arrivals, **self._options)

    @property
    def group(self) -> str:
        """Name of the producer group."""
        return self._group

    @property
    def client_id(self) -> str:
        """The id by which brokers know this producer, once it was started."""
        return self._native().client_id

    @property
    def dropped_traces(self) -> int:
        """Trace records that were not sent so far: they came faster than they were sent, or no broker took them."""
        return self._native().dropped_traces

    def _native(self) -> _rocketpy.Producer:
        return cast("_rocketpy.Producer", self._checked())

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
    ) -> Receipt:
        """Sends one message and waits for its acknowledgement.

        Waits for room first if the window is full (`window_messages`, `window_bytes`). Messages of one order key keep
        their order if each is awaited before the next is sent. When one of several that are sent side by side fails,
        those that wait behind it for the same queue fail too, unsent.

        Args:
            message: What to send. Its `order_key`, if any, chooses the queue.
            queue: The queue to use; no other is tried.
            timeout: Budget of all attempts, in seconds, from when the message leaves; default: the producer's
                `send_timeout`.
            msg_id: As for `Producer.send`.

        Raises:
            asyncio.CancelledError: The task was cancelled. The message may be sent all the same.
            RocketPyError: As for `Producer.send` and `Producer.submit`.
        """
        try:
            return await later(self._native().send, message, queue, timeout, msg_id)
        except asyncio.CancelledError as error:
            error.add_note(f"a message to {message.topic} was on its way: it may be stored")
            raise

    async def send_many(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout: Duration | None = None
    ) -> Receipts:
        """Sends many messages in few requests, as `Producer.send_many`.

        Raises:
            PartlySentError: Some messages were not acknowledged; `error.receipts` shows which.
            asyncio.CancelledError: The task was cancelled. The messages are sent all the same.
        """
        sent = await later(self._native().send_many, messages, queue, timeout)
        try:
            sent.check()
        except PartlySentError as error:
            error.receipts = Receipts(sent)
            raise
        return Receipts(sent)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Sends without waiting for an answer, so it is not known whether the message was stored."""
        await later(self._native().send_oneway, message, queue)

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
    ) -> ReceivedMessage:
        """Sends one message and waits for the reply of the consumer that receives it, as `Producer.request`."""
        return await later(self._native().request, message, queue, timeout, msg_id)

    async def reply(
        self, request: ReceivedMessage, body: bytes | bytearray | memoryview, *, timeout: Duration | None = None
    ) -> Receipt:
        """Sends the reply to a message that a producer sent with `request`, as `Producer.reply`."""
        return await later(self._native().reply, request, body, timeout)

    async def recall(self, receipt: Receipt | str) -> None:
        """Takes back a message that waits for its time, as `Producer.recall`."""
        await later(self._native().recall, recall_handle(receipt))

    async def flush(self, timeout: Duration = 30.0) -> None:
        """Waits until every message sent before has its outcome, as `Producer.flush`."""
        await later(self._native().flush, timeout)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Queues of a topic that may be written, as `Producer.queues`."""
        return await later(self._native().queues, topic)

    def stats(self) -> ProducerStats:
        """What was sent so far, as `Producer.stats`. Any thread may ask, such as that of an exporter."""
        return producer_stats(self._started())

    def __repr__(self) -> str:
        return f"<AsyncProducer{' (closed)' if self.closed else ''} of group {self._group!r}>"


class AsyncConsumer(AsyncClosing):
    """`Consumer` for asyncio: a member of a consumer group.

    A call that is cancelled gives its messages back: they are handed out again.

    Args:
        group: Name of the consumer group.
        topic: Topic to read, or several.
        name_servers: `host:port` of each name server, as a list or as one text; default: the variable `NAMESRV_ADDR`.
        options: As for `rocketpy.Consumer`. They are checked when it is started.

    Examples:
        >>> import asyncio, rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> with server.producer("ingest") as producer:
        ...     _ = producer.send_many([rocketpy.Message("aio-read-doc", b"%d" % n) for n in range(10)])
        >>> async def main():
        ...     servers = server.name_servers
        ...     async with rocketpy.AsyncConsumer("report", "aio-read-doc", name_servers=servers) as consumer:
        ...         count = 0
        ...         async for message in consumer:
        ...             count += 1
        ...             if count == 10:
        ...                 break
        ...         await consumer.commit()
        ...     return count
        >>> asyncio.run(main())
        10
    """

    __slots__ = ("_allocating", "_group", "_name_servers", "_options", "_topics")

    @lists_options(ConsumerOptions, CONSUMER_DEFAULTS)
    def __init__(
        self,
        group: str,
        topic: str | Iterable[str],
        *,
        name_servers: Iterable[str] | str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__()
        self._group, self._topics = group, topic_list(topic)
        self._name_servers, self._options = name_server_list(name_servers), options
        self._allocating: Allocating | None = None

    @classmethod
    def assign(
        cls,
        group: str,
        queues: Iterable[MessageQueue],
        *,
        name_servers: Iterable[str] | str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Self:
        """A consumer of given queues that is no member of the group, as `Consumer.assign`."""
        topics, options = assigned(queues, options)
        return cls(group, topics, name_servers=name_servers, **options)

    async def _open(self, arrivals: _rocketpy.Arrivals) -> object:
        join, options = _rocketpy.Consumer.join, self._options
        self._allocating = allocating(options)
        if self._allocating is not None:
            options = self._allocating.options(options)
        try:
            return await later(join, self._group, self._topics, self._name_servers, arrivals, **options)
        except BaseException:
            if self._allocating is not None:
                self._allocating.end()
            raise

    def _close_now(self) -> None:
        super()._close_now()
        if self._allocating is not None:
            self._allocating.join()

    @property
    def group(self) -> str:
        """Name of the consumer group."""
        return self._group

    @property
    def client_id(self) -> str:
        """The id by which brokers and other members know this consumer, once it was started."""
        return self._native().client_id

    @property
    def dropped_traces(self) -> int:
        """Trace records that were not sent so far.

        They came faster than they were sent, no broker took them, or too many messages waited for a commit.
        """
        return self._native().dropped_traces

    def _native(self) -> _rocketpy.Consumer:
        return cast("_rocketpy.Consumer", self._checked())

    async def _taken(
        self, taking: object, places: Callable[[Any], list[tuple[MessageQueue, int]]]
    ) -> Any:  # what the native call of the caller gives
        """Waits for messages, and gives them back if nobody gets them: a task may be cancelled after they have come."""
        future = cast("asyncio.Future[Any]", taking)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._client.take_back(places(future.result()))
            raise

    async def poll(self, max_messages: int = 500, timeout: Duration = 1.0) -> list[ReceivedMessage]:
        """Returns messages that have arrived, as `Consumer.poll`.

        Args:
            max_messages: Maximum number of messages, from 1.
            timeout: Longest wait for the first message, in seconds; 0 takes only what has arrived.
        """
        taken = await self._taken(self._native().poll(max_messages, timeout), begins)
        return cast("list[ReceivedMessage]", taken)

    async def _next(self, timeout: Duration) -> ReceivedMessage | None:
        taken = await self._taken(self._native().next(timeout), lambda one: begins([one] if one else []))
        return cast("ReceivedMessage | None", taken)

    async def batches(
        self, max_messages: int = 500, *, idle_timeout: Duration | None = None
    ) -> AsyncIterator[list[ReceivedMessage]]:
        """Yields lists of messages, never an empty one, until the consumer is closed, as `Consumer.batches`."""
        while not self._closed:
            try:
                taken = await self.poll(max_messages, FOREVER if idle_timeout is None else idle_timeout)
            except ClosedError:
                return  # by another task, while this one waited
            if taken:
                yield taken
            elif idle_timeout is not None:
                return

    async def messages(self, *, idle_timeout: Duration | None = None) -> AsyncIterator[ReceivedMessage]:
        """Yields messages one by one, as `async for message in consumer` does, until the consumer is closed.

        A `commit` inside the loop covers the messages so far, including the current one.

        Args:
            idle_timeout: End when no message has come for this many seconds; None to wait without an end.
        """
        while not self._closed:
            try:
                message = await self._next(FOREVER if idle_timeout is None else idle_timeout)
            except ClosedError:
                return  # by another task, while this one waited
            if message is not None:
                yield message
            elif idle_timeout is not None:
                return

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """As `messages()`: waits for the next message without a limit, and ends when the consumer is closed."""
        self._native()
        return self.messages()

    async def fetch_arrow(  # pyright: ignore[reportUnknownParameterType]  # pyarrow has no types
        self, max_rows: int = 100_000, timeout: Duration = 1.0, *, columns: Iterable[str] | None = None
    ) -> pyarrow.RecordBatch:  # pyright: ignore[reportUnknownMemberType]
        """Returns messages as one Arrow record batch, as `Consumer.fetch_arrow`. Needs pyarrow."""
        pyarrow = import_pyarrow()  # before messages are taken, which would be lost without it
        return pyarrow.record_batch(await self.fetch_columns(max_rows, timeout, columns=columns))

    async def fetch_columns(
        self, max_rows: int = 100_000, timeout: Duration = 1.0, *, columns: Iterable[str] | None = None
    ) -> ArrowBatch:
        """As `fetch_arrow`, for any library that takes the Arrow PyCapsule interface."""
        taking = self._native().fetch_columns(max_rows, timeout, None if columns is None else list(columns))
        batch, _ = await self._taken(taking, lambda taken: taken[1])
        return cast("ArrowBatch", batch)

    async def commit(self) -> None:
        """Commits all messages returned so far and waits for the brokers' answers, as `Consumer.commit`."""
        await later(self._native().commit)

    async def commit_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Commits given offsets, as `Consumer.commit_offsets`."""
        await later(self._native().commit_offsets, check_offsets(offsets))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset: the next message to read. None if there is none."""
        return await later(self._native().committed, queue)

    def positions(self) -> dict[MessageQueue, int]:
        """By queue, the offset after the last message returned, as `Consumer.positions`."""
        return dict(self._native().positions())

    async def lag(self) -> dict[MessageQueue, int]:
        """By queue, how many messages lie between the last one returned and the queue's end, as `Consumer.lag`."""
        return dict(await later(self._native().lag))

    async def seek(self, queue: MessageQueue, to: int | Start | str | datetime) -> int:
        """Continues reading a queue from another place, as `Consumer.seek`."""
        return await later(self._native().seek, queue, to)

    def pause(self, *queues: MessageQueue) -> None:
        """Stops handing out messages of some queues until `resume`, as `Consumer.pause`."""
        self._native().pause(list(queues) or self.assignment())

    def resume(self, *queues: MessageQueue) -> None:
        """Hands out messages of paused queues again, as `Consumer.resume`."""
        if queues:
            self._native().resume(list(queues))
        else:
            self._native().resume_all()

    def assignment(self) -> list[MessageQueue]:
        """The queues now assigned to this member, sorted, as `Consumer.assignment`."""
        return self._native().assignment()

    def state(self) -> ConsumerState:
        """What this member reads, and which of its brokers answer. Asks no broker."""
        assigned, brokers = self._native().state()
        return ConsumerState(tuple(assigned), tuple(BrokerContact(*broker) for broker in brokers))

    def stats(self) -> ConsumerStats:
        """What was received so far, as `Consumer.stats`. Any thread may ask, such as that of an exporter."""
        return consumer_stats(self._started())

    def offset_moves(self) -> list[OffsetMove]:
        """Returns what moves brokers ordered since the last call, as `Consumer.offset_moves`."""
        return [OffsetMove(*move) for move in self._native().take_offset_moves()]

    def __repr__(self) -> str:
        return f"<AsyncConsumer{' (closed)' if self.closed else ''} of group {self._group!r}>"


class AsyncAdmin(AsyncClosing):
    """`Admin` for asyncio: administration of a cluster. Dead letters are read by `Admin` only.

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

    __slots__ = ("_name_servers", "_options")
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
        return f"<AsyncAdmin{' (closed)' if self.closed else ''}>"


def begins(messages: list[ReceivedMessage]) -> list[tuple[MessageQueue, int]]:
    """Where messages begin in their queues: the first of a queue is the last here, and counts."""
    return [(message.queue, message.queue_offset) for message in reversed(messages)]

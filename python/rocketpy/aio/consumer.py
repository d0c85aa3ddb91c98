"""Receiving messages in an event loop: the twin of `Consumer`, by name and meaning."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, cast

from rocketpy import _rocketpy
from rocketpy.aio.loop import AsyncClosing, T, later
from rocketpy.aio.rebalance import AsyncTelling
from rocketpy.base.arrow import import_pyarrow
from rocketpy.base.misuse import no_message, no_option
from rocketpy.base.names import check_type, column_list, name_server_list
from rocketpy.base.options import check_options, lists_options
from rocketpy.base.topic_names import TopicNames
from rocketpy.config import (
    CONSUMER_DEFAULTS,
    ConsumerOptions,
)
from rocketpy.consuming.balance import Allocating, allocating, assigned, without_function
from rocketpy.consuming.consumer import (
    FOREVER,
    ConsumerState,
    OffsetMove,
    V_co,
    check_offsets,
    decode_by,
    topic_list,
)
from rocketpy.consuming.rebalance import callbacks
from rocketpy.errors import ClosedError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from datetime import datetime
    from typing import Never, Unpack

    import pyarrow

    from rocketpy._rocketpy import ArrowBatch, ReceivedMessage
    from rocketpy.codec import Codec
    from rocketpy.config import Duration, Start
    from rocketpy.consuming.consumer import V
    from rocketpy.message import MessageQueue
    from rocketpy.stats import ConsumerStats

__all__ = ["AsyncConsumer"]


class AsyncConsumer(AsyncClosing, Generic[V_co]):
    """`Consumer` for asyncio: a member of a consumer group.

    A cancelled call returns its messages to the consumer: later calls return them again. With concurrent calls, later
    messages of the same queue may be returned twice.

    Args:
        group: Name of the consumer group.
        topic: Name of the topic, or a list of names.
        codec: Decodes values of messages, as for `rocketpy.Consumer`.
        name_servers: `host:port` of each name server, as a list or as one text; default: the environment variable
            `NAMESRV_ADDR`.
        options: As for `rocketpy.Consumer`. Limits of numbers are checked at the start.

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

    __slots__ = ("_allocating", "_callbacks", "_decode", "_group", "_name_servers", "_options", "_telling", "_topics")

    @lists_options(ConsumerOptions, CONSUMER_DEFAULTS)
    def __init__(
        self,
        group: str,
        topic: str | Iterable[str],
        *,
        codec: Codec[V_co] | None = None,
        name_servers: Iterable[str] | str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__()
        check_type("group", group, str, "a str")
        self._group, self._topics = group, topic_list(topic)
        self._name_servers, self._options = name_server_list(name_servers), options
        self._decode = decode_by(codec)
        self._allocating: Allocating | None = None
        self._callbacks = callbacks(group, options, has_loop=True)
        check_options(partial(_rocketpy.Consumer.join, group, self._topics, [], None, None), without_function(options))
        self._telling: AsyncTelling | None = None

    @classmethod
    def assign(
        cls,
        group: str,
        queues: Iterable[MessageQueue],
        *,
        codec: Codec[V] | None = None,
        name_servers: Iterable[str] | str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> AsyncConsumer[V]:
        """Creates a consumer of given queues that is not a member of the group, as `Consumer.assign`.

        Args:
            group: Name of the group whose offsets the consumer reads and commits.
            queues: The queues to read, at least one, of one topic or several: `producer.queues(topic)`.
            codec: As for `Consumer`.
            name_servers: `host:port` of each name server; default: the environment variable `NAMESRV_ADDR`.
            options: As for `Consumer`, without `balance`, `retry_topic`, `on_assigned` and `on_revoked`.
        """
        topics, options = assigned(queues, options)
        return cast("type[AsyncConsumer[V]]", cls)(group, topics, codec=codec, name_servers=name_servers, **options)

    async def _open(self, arrivals: _rocketpy.Arrivals) -> object:
        join, options = _rocketpy.Consumer.join, self._options
        self._allocating = allocating(options)
        if self._allocating is not None:
            options = self._allocating.options(options)
        try:
            place = (self._group, self._topics, self._name_servers)
            native = await later(join, *place, arrivals, self._decode, **options)
        except BaseException as error:
            if self._allocating is not None:
                self._allocating.end()
            if isinstance(error, TopicNotFoundError):
                await TopicNames(self._name_servers, options, self._group).explain_later(error, self._topics)
            raise
        if self._callbacks is not None:
            self._telling = AsyncTelling(self, native, self._callbacks)
        return native

    async def close(self) -> None:
        """Calls `on_revoked` for all queues and closes the consumer.

        A second call does nothing, or completes the first.
        """
        try:
            if self._telling is not None and not self._closed and not self._is_elsewhere:
                self._has_outlived_its_loop()  # or refuses
                await self._telling.leave()
        finally:  # also when it is cancelled: a member that stays keeps its queues from the others
            await super().close()

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
        """Id of this consumer at brokers and other members, once it was started."""
        return self._native().client_id

    @property
    def dropped_traces(self) -> int:
        """Number of dropped trace records.

        Records were produced faster than they were sent, no broker accepted them, or too many messages waited for a
        commit.
        """
        return self._native().dropped_traces

    def _native(self) -> _rocketpy.Consumer:
        native: _rocketpy.Consumer = self._checked()
        return native

    async def _take(self, take: Callable[[Duration], Awaitable[T]], timeout: Duration) -> T:
        """Waits for messages, and calls the callbacks of a consumer that has some."""
        return await (take(timeout) if self._telling is None else self._telling.take(take, timeout))

    async def poll(
        self, max_messages: int = 500, timeout: Duration = 1.0, **_other: Never
    ) -> list[ReceivedMessage[V_co]]:
        """Returns arrived messages, as `Consumer.poll`.

        Args:
            max_messages: Maximum number of messages, from 1.
            timeout: Maximum wait for the first message, in seconds; 0 returns only messages that have arrived.
        """
        if _other:
            raise no_option(AsyncConsumer.poll, _other)
        return await self._take(lambda left: later(self._native().poll, max_messages, left), timeout)

    async def _next(self, timeout: Duration) -> ReceivedMessage[V_co] | None:
        return await self._take(lambda left: later(self._native().next, left), timeout)

    async def batches(
        self, max_messages: int = 500, *, idle_timeout: Duration | None = None
    ) -> AsyncIterator[list[ReceivedMessage[V_co]]]:
        """Yields lists of messages, never an empty one, until the consumer is closed, as `Consumer.batches`.

        Args:
            max_messages: Maximum number of messages in one list, from 1.
            idle_timeout: Stop when no message has arrived for this many seconds; None to wait without a limit.
        """
        while not self._closed:
            try:
                taken = await self.poll(max_messages, FOREVER if idle_timeout is None else idle_timeout)
            except ClosedError:
                return  # by another task, while this one waited
            if taken:
                yield taken
            elif idle_timeout is not None:
                return

    async def messages(self, *, idle_timeout: Duration | None = None) -> AsyncIterator[ReceivedMessage[V_co]]:
        """Yields messages one by one, as `async for message in consumer` does, until the consumer is closed.

        A `commit` inside the loop covers the messages so far, including the current one.

        Args:
            idle_timeout: Stop when no message has arrived for this many seconds; None to wait without a limit.
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

    def __aiter__(self) -> AsyncIterator[ReceivedMessage[V_co]]:
        """Iterates as `messages()`: waits for messages without a limit, and stops when the consumer is closed."""
        self._native()
        return self.messages()

    async def fetch_arrow(  # pyright: ignore[reportUnknownParameterType]  # pyarrow has no types
        self, max_rows: int = 100_000, timeout: Duration = 1.0, *, columns: Iterable[str] | None = None
    ) -> pyarrow.RecordBatch:  # pyright: ignore[reportUnknownMemberType]
        """Returns messages as one Arrow record batch, as `Consumer.fetch_arrow`. Requires pyarrow.

        Args:
            max_rows: Maximum number of rows, from 1.
            timeout: Maximum wait for the first message, in seconds.
            columns: Names of columns, in the wanted order. Default: `topic, queue_id, queue_offset, broker_name, tag,
                keys, body, properties, born_at, stored_at, msg_id, reconsume_times`.
        """
        pyarrow = import_pyarrow()  # before messages are taken, which would be lost without it
        return pyarrow.record_batch(await self.fetch_columns(max_rows, timeout, columns=columns))

    async def fetch_columns(
        self, max_rows: int = 100_000, timeout: Duration = 1.0, *, columns: Iterable[str] | None = None
    ) -> ArrowBatch:
        """Returns messages as `fetch_arrow`, for any library with the Arrow PyCapsule interface.

        Args:
            max_rows: Maximum number of rows, from 1.
            timeout: Maximum wait for the first message, in seconds.
            columns: Names of columns, in the wanted order; default: as for `fetch_arrow`.
        """
        names = column_list(columns)
        return await self._take(lambda left: later(self._native().fetch_columns, max_rows, left, names), timeout)

    async def commit(self, *_rest: Never, wait: bool = True, **_other: Never) -> None:
        """Commits all messages returned so far and waits for the answers of the brokers, as `Consumer.commit`.

        Args:
            wait: Whether to wait for the answers. False commits in the background the messages returned before the
                call, and merges many calls into one request. A failure is logged, and the next commit repeats it;
                `close` waits for the last commit.
        """
        if _rest or _other:
            raise no_message(AsyncConsumer.commit, _other)
        await later(self._native().commit, wait)

    async def commit_offsets(self, offsets: dict[MessageQueue, int], *, wait: bool = True) -> None:
        """Commits given offsets, as `Consumer.commit_offsets`.

        Args:
            offsets: Offset of the next message to read, by queue; at most the offset after the last returned message. A
                reassigned queue that is kept for unfinished messages is released when all of them are committed.
            wait: Whether to wait for the answers, as for `commit`.
        """
        await later(self._native().commit_offsets, check_offsets(offsets), wait)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Stored offset of the group: the next message to read. None without one.

        Args:
            queue: A queue of a subscribed topic.
        """
        return await later(self._native().committed, queue)

    def positions(self) -> dict[MessageQueue, int]:
        """Offset after the last returned message, by queue, as `Consumer.positions`."""
        return dict(self._native().positions())

    async def lag(self) -> dict[MessageQueue, int]:
        """Number of messages by queue after the last returned message, as `Consumer.lag`."""
        return dict(await later(self._native().lag))

    async def seek(self, queue: MessageQueue, to: int | Start | str | datetime) -> int:
        """Moves the read position of a queue, as `Consumer.seek`.

        Args:
            queue: An assigned queue.
            to: A queue offset, or `Start.EARLIEST`, `Start.LATEST`, `Start.at(...)` or a value accepted by `Start.of`.
        """
        return await later(self._native().seek, queue, to)

    def pause(self, *queues: MessageQueue) -> None:
        """Pauses queues until `resume`, as `Consumer.pause`.

        Args:
            queues: Assigned queues.
        """
        self._native().pause(list(queues) or self.assignment())

    def resume(self, *queues: MessageQueue) -> None:
        """Resumes paused queues, as `Consumer.resume`.

        Args:
            queues: Assigned queues, or queues that were paused before they were reassigned to another member.
        """
        if queues:
            self._native().resume(list(queues))
        else:
            self._native().resume_all()

    def assignment(self) -> list[MessageQueue]:
        """Currently assigned queues of this member, sorted, as `Consumer.assignment`."""
        return self._native().assignment()

    def state(self) -> ConsumerState:
        """Assigned queues, and which brokers answer, as `Consumer.state`. Any thread may call this."""
        native: _rocketpy.Consumer = self._started()
        return native.state()

    def stats(self) -> ConsumerStats:
        """Statistics of received messages, as `Consumer.stats`. Any thread may call this, such as an exporter."""
        native: _rocketpy.Consumer = self._started()
        return native.stats(self._callbacks.failures if self._callbacks else 0)

    def offset_moves(self) -> list[OffsetMove]:
        """Returns the moves ordered by brokers since the last call, as `Consumer.offset_moves`."""
        return self._native().take_offset_moves()

    def __repr__(self) -> str:
        return f"<AsyncConsumer{self._shown_state()} of group {self._group!r}>"

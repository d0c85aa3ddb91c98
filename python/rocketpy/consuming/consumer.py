"""Receiving messages."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from rocketpy import _rocketpy
from rocketpy.base.arrow import import_optional, import_polars, import_pyarrow
from rocketpy.base.lifetime import Closing
from rocketpy.base.misuse import no_message, no_option
from rocketpy.base.names import check_type, column_list, name_server_list, text_list
from rocketpy.base.options import takes_options
from rocketpy.base.text import printable
from rocketpy.base.topic_names import TopicNames
from rocketpy.config import CONSUMER_DEFAULTS, ConsumerOptions
from rocketpy.consuming.balance import allocating, assigned
from rocketpy.consuming.rebalance import Telling, callbacks
from rocketpy.errors import ClosedError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime
    from typing import Never, Unpack

    import pandas
    import polars
    import pyarrow
    from typing_extensions import TypeVar as DefaultTypeVar

    from rocketpy._rocketpy import ArrowBatch, ReceivedMessage
    from rocketpy.codec import Codec
    from rocketpy.config import Duration, Start
    from rocketpy.message import MessageQueue
    from rocketpy.stats import ConsumerStats

    V = DefaultTypeVar("V", default=object)
    V_co = DefaultTypeVar("V_co", default=object, covariant=True)
else:
    V = TypeVar("V")
    V_co = TypeVar("V_co", covariant=True)

__all__ = ["BrokerContact", "Consumer", "ConsumerState", "OffsetMove"]

T = TypeVar("T")

FOREVER = 3600.0
"""Duration of one wait of an iteration, in seconds. Ctrl-C interrupts it."""


def topic_list(topic: str | Iterable[str]) -> list[str]:
    """Converts names of topics to a list."""
    return [topic] if isinstance(topic, str) else text_list("topic", topic, "a name, or a list of names")


def decode_by(codec: Codec[V] | None) -> Callable[[ReceivedMessage], V] | None:
    """Decoder of message values; None if the value is the body."""
    if codec is None:
        return None
    from rocketpy.codec import decoder

    return decoder(codec)


def check_offsets(offsets: dict[MessageQueue, int]) -> list[tuple[MessageQueue, int]]:
    """Converts offsets by queue to a list.

    Raises:
        TypeError: The value is not a dict. Not every caller has a type checker.
    """
    if not isinstance(offsets, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"offsets must be a dict such as {{message.queue: message.queue_offset + 1}}: {offsets!r}")
    return list(offsets.items())


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """Move of a read position ordered by the broker: the requested offset no longer exists, or the group was reset."""

    queue: MessageQueue
    """The queue."""
    from_offset: int
    """The requested offset."""
    to_offset: int
    """New offset. If it is greater, the messages in between are gone, or were skipped by the reset."""


@dataclass(frozen=True, slots=True)
class BrokerContact:
    """Reachability of a broker."""

    broker_name: str
    """The broker."""
    unreachable_since: datetime | None
    """Time of the first failed call; None while the broker answers."""
    last_error: str | None
    """Error of the latest failed call; None while the broker answers."""

    def __post_init__(self) -> None:
        """Escapes what the error quotes from a server."""
        if self.last_error is not None:
            object.__setattr__(self, "last_error", printable(self.last_error))


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """Assigned queues of a consumer, and which of its brokers answer."""

    assigned: tuple[MessageQueue, ...]
    """Currently assigned queues, sorted."""
    brokers: tuple[BrokerContact, ...]
    """Brokers that were called, sorted by name."""
    denied: str | None = None
    """Denial of the subscription by users and policies, as last known; None while it is allowed."""

    @property
    def reachable(self) -> bool:
        """Whether any broker answers, as last known."""
        return not self.brokers or any(broker.unreachable_since is None for broker in self.brokers)


@takes_options(ConsumerOptions, CONSUMER_DEFAULTS)
class Consumer(Closing, Generic[V_co]):
    """Member of a consumer group. The members share the queues of a topic.

    Messages are prefetched in the background. Messages count as consumed only after `commit` (or `auto_commit`): after
    a crash the group continues from the last commit. A group without a commit starts with the oldest message, so that
    nothing is skipped; with `start="latest"` it reads only messages that are sent from now on. No message that is sent
    after the constructors of all members of the group have returned is missed.

    Args:
        group: Name of the consumer group.
        topic: Name of the topic, or a list of names.
        codec: Decodes the `value` of each message, such as `JsonCodec(Order)`; the consumer is a `Consumer[Order]`
            then. Default None: the value is the body. For an undecodable body, the access to the value raises
            `DecodeError`. The consumer has passed that message: store it elsewhere and continue.
        name_servers: `host:port` of each name server, as a list or as one text; default: the environment variable
            `NAMESRV_ADDR`.
        options: Keyword options, declared in `rocketpy.config.ConsumerOptions`.

    Raises:
        InvalidArgumentError: A name, the tag expression or an option is invalid.
        TopicNotFoundError: The topic does not exist.
        GroupConflictError: Another consumer of the group in this process subscribes to other topics or tags: each would
            miss messages. See the option `allow_other_subscriptions`.
        AccessDeniedError: The user may not read a topic, or not as this group.
        ConnectionFailedError: No name server can be reached; a retry is safe.

    Examples:
        >>> import itertools, rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> with server.producer("ingest") as producer:
        ...     _ = producer.send_many([rocketpy.Message("consumer-doc", b"%d" % n, tag="UA") for n in range(10)])
        >>> with server.consumer("report", "consumer-doc", tags="UA") as consumer:
        ...     bodies = sorted(message.body for message in itertools.islice(consumer, 10))
        ...     consumer.commit()
        >>> len(bodies), bodies[0]
        (10, b'0')
    """

    __slots__ = ("_allocating", "_callbacks", "_group", "_native", "_telling")

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
        topics, servers, decode = topic_list(topic), name_server_list(name_servers), decode_by(codec)
        self._callbacks = callbacks(group, options, has_loop=False)
        self._group, self._allocating = group, allocating(options)
        if self._allocating is not None:
            options = self._allocating.options(options)
        try:
            self._native = _rocketpy.Consumer.join(group, topics, servers, decode=decode, **options)
        except BaseException as error:
            self._end_allocating()
            if isinstance(error, TopicNotFoundError):
                TopicNames(servers, options, group).explain(error, topics)
            raise
        self._telling = None if self._callbacks is None else Telling(self, self._native, self._callbacks)
        self._opened()

    @classmethod
    def assign(
        cls,
        group: str,
        queues: Iterable[MessageQueue],
        *,
        codec: Codec[V] | None = None,
        name_servers: Iterable[str] | str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer[V]:
        """Creates a consumer of given queues that is not a member of the group and does not share the queues.

        The consumer starts at the group's stored offset, or else according to `start`, and stores nothing before a
        `commit`. Members of the group do not see it, and read the same queues: use a group without members. A commit
        that a crash of the broker undoes is not repeated. `seek`, `pause`, `lag` and all other calls work as usual.

        Args:
            group: Name of the group whose offsets the consumer reads and commits.
            queues: The queues to read, at least one, of one topic or several: `producer.queues(topic)`.
            codec: As for `Consumer`.
            name_servers: `host:port` of each name server; default: the environment variable `NAMESRV_ADDR`.
            options: As for `Consumer`, without `balance`, `retry_topic`, `on_assigned` and `on_revoked`.

        Raises:
            InvalidArgumentError: No queue is given, or a queue does not exist (with `allow_missing_topic` the consumer
                waits for it).
            TopicNotFoundError: The topic does not exist.

        Examples:
            >>> import rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> with server.producer("ingest") as producer:
            ...     receipt = producer.send(rocketpy.Message("assigned-doc", b"it"))
            >>> with rocketpy.Consumer.assign("audit", [receipt.queue], name_servers=server.name_servers) as consumer:
            ...     _ = consumer.seek(receipt.queue, receipt.queue_offset)
            ...     [message.body for message in consumer.poll(timeout=60)]
            [b'it']
        """
        topics, options = assigned(queues, options)
        return cast("type[Consumer[V]]", cls)(group, topics, codec=codec, name_servers=name_servers, **options)

    @property
    def group(self) -> str:
        """Name of the consumer group."""
        return self._group

    @property
    def client_id(self) -> str:
        """Id of this consumer at brokers and other members."""
        return self._native.client_id

    @property
    def dropped_traces(self) -> int:
        """Number of dropped trace records.

        Records were produced faster than they were sent, no broker accepted them, or too many messages waited for a
        commit.
        """
        return self._native.dropped_traces

    def poll(self, max_messages: int = 500, timeout: Duration = 1.0, **_other: Never) -> list[ReceivedMessage[V_co]]:
        """Returns arrived messages.

        Args:
            max_messages: Maximum number of messages, from 1.
            timeout: Maximum wait for the first message, in seconds; 0 returns only messages that have arrived.

        Returns:
            Up to `max_messages` messages, in order within each queue; empty if none arrived in time.

        Raises:
            ConnectionFailedError: No broker has answered for `unreachable_timeout`. The consumer keeps trying: a later
                poll returns messages when a broker answers again. Iteration and `fetch_arrow` do the same.
        """
        if _other:
            raise no_option(Consumer.poll, _other)
        if self._telling is None:
            return self._native.poll(max_messages, timeout)
        return self._telling.take(functools.partial(self._native.poll, max_messages), timeout)

    def batches(
        self, max_messages: int = 500, *, idle_timeout: Duration | None = None
    ) -> Iterator[list[ReceivedMessage[V_co]]]:
        """Yields lists of messages, never an empty one, until the consumer is closed.

        Args:
            max_messages: Maximum number of messages in one list, from 1.
            idle_timeout: Stop when no message has arrived for this many seconds; None to wait without a limit.

        Yields:
            Messages, in order within each queue.
        """
        return self._until_idle(functools.partial(self._native.poll, max_messages), idle_timeout)

    def messages(self, *, idle_timeout: Duration | None = None) -> Iterator[ReceivedMessage[V_co]]:
        """Yields messages one by one, as `for message in consumer` does, until the consumer is closed.

        A `commit` inside the loop covers the messages so far, including the current one.

        Args:
            idle_timeout: Stop when no message has arrived for this many seconds; None to wait without a limit.

        Yields:
            Messages, in order within each queue.
        """
        return self._until_idle(self._native.next, idle_timeout)

    def _until_idle(self, take: Callable[[Duration], T | None], idle_timeout: Duration | None) -> Iterator[T]:
        if self._telling is not None:
            take = functools.partial(self._telling.take, take)
        while not self._closed:
            try:
                taken = take(FOREVER if idle_timeout is None else idle_timeout)
            except ClosedError:
                return  # by another thread, while this one waited
            if taken:
                yield taken
            elif idle_timeout is not None:
                return

    def __iter__(self) -> Iterator[ReceivedMessage[V_co]]:
        """Iterates as `messages()`: waits for messages without a limit, and stops when the consumer is closed."""
        return self.messages()

    def __next__(self) -> ReceivedMessage[V_co]:
        return next(self.messages())

    def fetch_arrow(  # pyright: ignore[reportUnknownParameterType]  # pyarrow has no types
        self, max_rows: int = 100_000, timeout: Duration = 1.0, *, columns: Iterable[str] | None = None
    ) -> pyarrow.RecordBatch:  # pyright: ignore[reportUnknownMemberType]
        """Returns messages as one Arrow record batch, without a Python object per message. Requires pyarrow.

        Args:
            max_rows: Maximum number of rows, from 1.
            timeout: Maximum wait for the first message, in seconds.
            columns: Names of columns, in the wanted order. Default: `topic, queue_id, queue_offset, broker_name, tag,
                keys, body, properties, born_at, stored_at, msg_id, reconsume_times`.

        Returns:
            Up to `max_rows` rows, in order within each queue; empty if no message arrived in time.
        """
        pyarrow = import_pyarrow()  # before messages are taken, which would be lost without it
        return pyarrow.record_batch(self.fetch_columns(max_rows, timeout, columns=columns))

    def fetch_pandas(  # pyright: ignore[reportUnknownParameterType]  # pandas has no types
        self, max_rows: int = 100_000, timeout: Duration = 1.0, *, columns: Iterable[str] | None = None
    ) -> pandas.DataFrame:
        """Returns messages as a pandas data frame, as `fetch_arrow`. Requires pandas and pyarrow.

        Args:
            max_rows: Maximum number of rows, from 1.
            timeout: Maximum wait for the first message, in seconds.
            columns: Names of columns, in the wanted order; default: as for `fetch_arrow`.

        Returns:
            Up to `max_rows` rows, with an index from 0. Texts, bodies (`bytes`) and properties (`dict`) are objects,
            born_at and stored_at `datetime64[us, UTC]`, numbers int32, and int64 for queue_offset.

        Raises:
            RocketPyError: pandas or pyarrow is not installed; no message was taken.
        """
        pyarrow = import_optional("pyarrow", "pandas")  # both before messages are taken, which would be lost
        import_optional("pandas", "pandas")
        batch = pyarrow.record_batch(self.fetch_columns(max_rows, timeout, columns=columns))
        return batch.to_pandas(maps_as_pydicts="lossy")  # of a property that is there twice, the last one

    def fetch_polars(
        self, max_rows: int = 100_000, timeout: Duration = 1.0, *, columns: Iterable[str] | None = None
    ) -> polars.DataFrame:
        """Returns messages as a Polars data frame, as `fetch_arrow`. Requires polars, but not pyarrow.

        Args:
            max_rows: Maximum number of rows, from 1.
            timeout: Maximum wait for the first message, in seconds.
            columns: Names of columns, in the wanted order; default: as for `fetch_arrow`.

        Returns:
            Up to `max_rows` rows. Texts are String, bodies Binary, properties Map (before Polars 2: a List of structs
            of key and value), born_at and stored_at `Datetime("us", "UTC")`, numbers Int32, and Int64 for queue_offset.

        Raises:
            RocketPyError: polars is not installed, or older than 1.36; no message was taken.
        """
        data_frame: type[polars.DataFrame] = import_polars().DataFrame  # before messages are taken, which would be lost
        return data_frame(self.fetch_columns(max_rows, timeout, columns=columns))

    def fetch_columns(
        self, max_rows: int = 100_000, timeout: Duration = 1.0, *, columns: Iterable[str] | None = None
    ) -> ArrowBatch:
        """Returns messages as `fetch_arrow`, for libraries with the Arrow PyCapsule interface, such as DuckDB.

        Args:
            max_rows: Maximum number of rows, from 1.
            timeout: Maximum wait for the first message, in seconds.
            columns: Names of columns, in the wanted order; default: as for `fetch_arrow`.
        """
        names = column_list(columns)
        if self._telling is None:
            return self._native.fetch_columns(max_rows, timeout, names)
        return self._telling.take(lambda left: self._native.fetch_columns(max_rows, left, names), timeout)

    def commit(self, *_rest: Never, wait: bool = True, **_other: Never) -> None:
        """Commits all messages returned so far and waits for the answers of the brokers.

        A reassigned queue that is kept for unfinished messages (see `handover_timeout`) is then released to its new
        member.

        Args:
            wait: Whether to wait for the answers. False commits in the background the messages returned before the
                call, and merges many calls into one request. A failure is logged, and the next commit repeats it;
                `close` waits for the last commit.

        Raises:
            RequestTimeoutError: A broker did not answer; the offset may be stored. A retry is safe.
        """
        if _rest or _other:
            raise no_message(Consumer.commit, _other)
        self._native.commit(wait)

    def commit_offsets(self, offsets: dict[MessageQueue, int], *, wait: bool = True) -> None:
        """Commits given offsets.

        Args:
            offsets: Offset of the next message to read, by queue; at most the offset after the last returned message. A
                reassigned queue that is kept for unfinished messages is released when all of them are committed.
            wait: Whether to wait for the answers, as for `commit`.

        Raises:
            TypeError: The value is not a dict of queues and offsets.
            OffsetError: A queue is not assigned, or an offset is above the last returned message. Nothing is committed.
        """
        self._native.commit_offsets(check_offsets(offsets), wait)

    def committed(self, queue: MessageQueue) -> int | None:
        """Stored offset of the group: the next message to read. None without one.

        Args:
            queue: A queue of a subscribed topic.
        """
        return self._native.committed(queue)

    def positions(self) -> dict[MessageQueue, int]:
        """Offset after the last returned message, by queue. Queues without a known start offset are left out."""
        return dict(self._native.positions())

    def lag(self) -> dict[MessageQueue, int]:
        """Number of messages by queue after the last returned message. Queries the brokers.

        Messages filtered out by tags count until the consumer has passed them. Queues without a known start offset are
        left out.

        Raises:
            ConnectionFailedError: A broker cannot be reached. A retry is safe.
        """
        return dict(self._native.lag())

    def seek(self, queue: MessageQueue, to: int | Start | str | datetime) -> int:
        """Moves the read position of a queue.

        Args:
            queue: An assigned queue.
            to: A queue offset, or `Start.EARLIEST`, `Start.LATEST`, `Start.at(...)` or a value accepted by `Start.of`.

        Returns:
            The queue offset of the next message.

        Raises:
            OffsetError: The queue is not assigned, or the offset is outside the queue.
        """
        return self._native.seek(queue, to)

    def pause(self, *queues: MessageQueue) -> None:
        """Pauses queues until `resume`: their messages are not returned. Without arguments, pauses all assigned queues.

        A queue that is reassigned to another member and back stays paused. Queues assigned later are not paused.

        Args:
            queues: Assigned queues.

        Raises:
            OffsetError: A queue is not assigned; the others are paused.
        """
        self._native.pause(list(queues) or self.assignment())

    def resume(self, *queues: MessageQueue) -> None:
        """Resumes paused queues. Without arguments, resumes all of them.

        Args:
            queues: Assigned queues, or queues that were paused before they were reassigned to another member.

        Raises:
            OffsetError: A queue is neither; the others are resumed.
        """
        if queues:
            self._native.resume(list(queues))
        else:
            self._native.resume_all()

    def assignment(self) -> list[MessageQueue]:
        """Currently assigned queues of this member, sorted. They change when members join or leave.

        Excludes reassigned queues that are kept until their messages are committed, as do `positions`, `lag` and
        `state`.
        """
        return self._native.assignment()

    def state(self) -> ConsumerState:
        """Assigned queues of this member, and which of its brokers answer. Sends no request."""
        return self._native.state()

    def stats(self) -> ConsumerStats:
        """Statistics of received messages and the lag as last known.

        Sends no request, and works after a close.
        """
        return self._native.stats(self._callbacks.failures if self._callbacks else 0)

    def offset_moves(self) -> list[OffsetMove]:
        """Returns the moves ordered by brokers since the last call: an offset did not exist, or the group was reset."""
        return self._native.take_offset_moves()

    def _begin_close(self) -> None:
        if self._telling is None:  # else `on_revoked` comes first
            self._native.begin_close()

    def _close(self) -> None:
        try:
            if self._telling is not None:
                self._telling.leave()
        finally:  # also when a callback raises SystemExit: a member that stays keeps its queues from the others
            try:
                self._native.close()
            finally:
                self._end_allocating()

    def _end_allocating(self) -> None:
        if self._allocating is not None:
            self._allocating.end()
            self._allocating.join()

    def __repr__(self) -> str:
        return f"<Consumer{' (closed)' if self.closed else ''} of group {self._group!r}>"

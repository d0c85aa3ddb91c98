# The extension module. The classes of the package wrap those here; `Message`, `ReceivedMessage`, `ArrowBatch` and
# `Scan` are public as they are.

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import Context
from datetime import datetime, timedelta
from threading import Condition
from types import GenericAlias
from typing import Any, Generic, Literal, Self, TypedDict, Unpack, final, type_check_only

from typing_extensions import TypeVar, disjoint_base

from rocketpy.admin.answers import Answers, BrokerFigures, ConsumerRunningInfo, GroupProgress, TopicTotals
from rocketpy.admin.cluster import BrokerInfo, GroupInfo, GroupMember, ProducerConnection, QueueLag, TopicInfo
from rocketpy.admin.inventory import (
    GroupConfig,
    MessageConsumer,
    ProducerGroup,
    QueueDelay,
    TopicConfig,
    TrafficRate,
)
from rocketpy.admin.live_config import ConfigValue
from rocketpy.admin.quotas import QuotaUse
from rocketpy.admin.replication import HaStatus
from rocketpy.config import ClientOptions, ConsumerOptions, Duration, ProducerOptions, PushOptions, Start, Tags
from rocketpy.consuming.consumer import ConsumerState, OffsetMove
from rocketpy.message import MessageQueue, Receipt
from rocketpy.stats import ConsumerStats, ProducerStats, PushStats
from rocketpy.store import LostRange, QueueRange, StoredTopic, StoreRange
from rocketpy.store.reports import LogDiff, Repair, Snapshot, StoreFacts, TransferReport, VerifyReport
from rocketpy.store.retention_plan import RetentionPlan

_V_co = TypeVar("_V_co", default=object, covariant=True)

__version__: str
__profile__: str
__commit__: str
__has_test_faults__: bool

def end_threads() -> None: ...
def monotonic() -> float: ...
def move_clock(by_ms: int) -> None: ...
def reopen_log() -> None: ...
def start_log(path: str | None, max_bytes: int, kept_files: int, is_json: bool) -> None: ...

@final
class Message:
    """A message to send: immutable, cheap to create, and reusable for many sends.

    Args:
        topic: Target topic: up to 127 characters of `a-z A-Z 0-9 _ - % |`.
        body: Body, from 1 byte to 4 MiB: bytes, or any other buffer of bytes, which is copied.
        tag: One word by which consumers filter messages; default None. It must not be `*`, contain `||` or have blanks
            around it, because no subscription could name it.
        keys: One or several words by which tools find the message; default None.
        order_key: Text that selects the queue: messages with the same order key stay in order. Default None.
        properties: Further texts by name; default None. Names reserved for the system are refused. The send refuses a
            transaction with `NotSupportedError`.
        flag: 32-bit number for applications; default 0.
        wait_store_ok: Whether the acknowledgement waits for the flush, where the broker or the topic flushes before it
            acknowledges (SYNC_FLUSH); default True. With False a power cut right after the acknowledgement may lose the
            message.
        delay_level: Delay level of the broker, from 1 (1 s) to 18 (2 h); default None. At most one of `delay_level`,
            `deliver_at` and `delay` may be given; a message with one of them is sent in a separate request.
        deliver_at: Delivery time: a datetime (local without a time zone) or seconds since 1970; default None. Requires
            a broker with timer messages; a broker without them refuses the send.
        delay: Delay of the delivery: seconds or a timedelta; default None. Requires timer messages, as `deliver_at`.

    Raises:
        InvalidArgumentError: A name or a value is invalid.
        TypeError: An argument has another type.

    Examples:
        >>> Message("flights", b"UA1545 EWR-IAH", tag="UA", keys=["N14228", "UA1545"], order_key="N14228").keys
        ('N14228', 'UA1545')
    """

    def __new__(
        cls,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] | None = None,
        order_key: str | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int | None = None,
        wait_store_ok: bool = True,
        delay_level: int | None = None,
        deliver_at: float | datetime | None = None,
        delay: float | timedelta | None = None,
    ) -> Self: ...
    @property
    def topic(self) -> str:
        """Target topic."""
    @property
    def body(self) -> bytes:
        """Body in bytes; copied on each access."""
    @property
    def body_view(self) -> memoryview:
        """Body as a read-only memoryview of bytes, not copied."""
    @property
    def text(self) -> str:
        """The body as text in UTF-8, decoded on each access.

        Raises:
            DecodeError: The body is not UTF-8.
        """
    def json(self) -> Any:
        """The value that the body holds as JSON, decoded on each call.

        Raises:
            DecodeError: The body is not JSON.
        """
    @property
    def tag(self) -> str | None:
        """Tag by which consumers filter messages; None without one."""
    @property
    def keys(self) -> tuple[str, ...]:
        """Keys by which tools find the message; empty without any."""
    @property
    def order_key(self) -> str | None:
        """Order key, which selects the queue; None without one."""
    @property
    def properties(self) -> dict[str, str]:
        """Properties of the application, as a new dict by name."""
    @property
    def flag(self) -> int:
        """32-bit number of the application."""
    @property
    def wait_store_ok(self) -> bool:
        """Whether the acknowledgement waits for the flush, where the broker or the topic flushes before it
        acknowledges.
        """
    @property
    def delay_level(self) -> int | None:
        """Delay level of the broker, from 1 to 18; None without one."""
    @property
    def deliver_at(self) -> float | None:
        """Delivery time, in seconds since 1970 UTC; None without one."""
    @property
    def delay(self) -> float | None:
        """Delay of the delivery, in seconds; None without one."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[str, bytes], dict[str, Any]]: ...

@final
class ReceivedMessage(Generic[_V_co]):
    """A message that was received or read from a store, decoded on access.

    The message shares the bytes of the pull answer, by default at most 1 MiB, and keeps them alive: keep the needed
    values rather than the message. Every attribute raises `DamagedDataError` if the record is damaged.
    """

    @property
    def topic(self) -> str:
        """Topic of the message."""
    @property
    def body(self) -> bytes:
        """The body, decompressed when it was compressed; copied on each access."""
    @property
    def value(self) -> _V_co:
        """The value decoded by the codec of the consumer, again on each access; the body without a codec. An
        undecodable body raises `DecodeError`.
        """
    @property
    def body_view(self) -> memoryview:
        """The body as a read-only memoryview; nothing is copied unless it was compressed."""
    @property
    def text(self) -> str:
        """The body as text in UTF-8, decoded on each access.

        Raises:
            DecodeError: The body is not UTF-8.
        """
    def json(self) -> Any:
        """The value that the body holds as JSON, decoded on each call. A codec also checks its type.

        Raises:
            DecodeError: The body is not JSON.
        """
    @property
    def tag(self) -> str | None:
        """Tag by which consumers filter messages; None without one."""
    @property
    def keys(self) -> tuple[str, ...]:
        """Keys by which tools find the message; empty without any."""
    @property
    def order_key(self) -> str | None:
        """Order key, which selected the queue; None without one."""
    @property
    def properties(self) -> dict[str, str]:
        """All properties, including those of the system, as a new dict. The last of two with one name counts; bytes
        that are not UTF-8 become U+FFFD.
        """
    @property
    def flag(self) -> int:
        """32-bit number set by the sender."""
    @property
    def queue(self) -> MessageQueue:
        """Queue of the message."""
    @property
    def queue_id(self) -> int:
        """Number of the queue, from 0."""
    @property
    def broker_name(self) -> str:
        """Name of the broker of the queue."""
    @property
    def queue_offset(self) -> int:
        """Queue offset of the message, from 0."""
    @property
    def physical_offset(self) -> int:
        """Physical offset of the record in the commit log, in bytes."""
    @property
    def born_at(self) -> datetime | None:
        """Time at which the message was created, by the sender's clock; None for a number before 1970 or after the year
        9999.
        """
    @property
    def born_at_ms(self) -> int:
        """Time at which the message was created, in milliseconds since 1970 UTC, as stored."""
    @property
    def stored_at(self) -> datetime | None:
        """Time at which the message was stored, by the broker's clock; None for a number before 1970 or after the year
        9999.
        """
    @property
    def stored_at_ms(self) -> int:
        """Time at which the message was stored, in milliseconds since 1970 UTC, as stored."""
    @property
    def born_host(self) -> str:
        """`host:port` of the sender."""
    @property
    def store_host(self) -> str:
        """Advertised `host:port` of the broker that stored the message."""
    @property
    def msg_id(self) -> str:
        """Unique key set by the sender, or else the offset message id."""
    @property
    def offset_msg_id(self) -> str:
        """Offset message id: store host and physical offset, in hexadecimal."""
    @property
    def reconsume_times(self) -> int:
        """Number of times that consumers sent the message back, from 0."""
    @classmethod
    def __class_getitem__(cls, key: object) -> GenericAlias: ...
    def __reduce__(self) -> tuple[Any, tuple[bytes, str, int | None]]: ...
    @staticmethod
    def _restore(
        record: bytes,
        broker_name: str,
        max_body_bytes: int | None = None,
        tries: int | None = None,
        namespace: str | None = None,
        decode: object = None,
    ) -> ReceivedMessage: ...

@final
class ArrowBatch:
    """Rows as Arrow columns, for libraries with the Arrow PyCapsule interface: `pyarrow.record_batch(batch)`."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""
    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class Scan:
    """Batches of a store, by iteration, or once by the Arrow PyCapsule interface: `pyarrow.table(scan)`."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
    @property
    def lost(self) -> list[LostRange]:
        """Ranges of messages that were requested and are left out so far, because their data is lost or damaged."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> ArrowBatch: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class SentMany:
    def __len__(self) -> int: ...
    @property
    def acknowledged(self) -> int: ...
    def receipt(self, index: int) -> Receipt: ...
    def check(self) -> None: ...

@final
class UnreadReceipt:
    """Outcome from which a `Receipt` creates its values at the first access."""

    def fill(self, receipt: object) -> None: ...

@disjoint_base
class SendOutcome:
    """State of `rocketpy.producing.futures.SendFuture` in place of Python's future, under the same names."""

    _state: str
    _result: Any
    _exception: BaseException | None
    _condition: Condition
    _waiters: list[Any]
    def __new__(cls) -> Self: ...
    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> Any: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None: ...
    def _invoke_callbacks(self) -> None: ...
    def _peek(self) -> BaseException | None: ...
    def _track(self) -> None: ...

@final
class Answer:
    """Awaitable of a task of an event loop: the part of an asyncio future that a task uses."""

    _asyncio_future_blocking: bool
    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Self: ...
    def get_loop(self) -> asyncio.AbstractEventLoop: ...
    def result(self) -> Any: ...
    def add_done_callback(self, fn: Callable[[Answer], object], *, context: Context | None = None) -> None: ...
    def cancel(self, msg: object = None) -> bool: ...

@final
class Arrivals:
    def __new__(cls, event_loop: asyncio.AbstractEventLoop) -> Self: ...
    @property
    def descriptor(self) -> int: ...
    def deliver(self) -> None: ...
    def end(self) -> None: ...

# With `arrivals`, methods that wait return an `Answer` for the loop, which resolves to their usual result.

@final
class Producer:
    def __new__(
        cls,
        group: str,
        name_servers: list[str],
        arrivals: Arrivals | None = None,
        **options: Unpack[ProducerOptions],
    ) -> Self: ...
    @property
    def group(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def dropped_traces(self) -> int: ...
    def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
    ) -> Receipt: ...
    def recall(self, handle: str) -> None: ...
    def prepare(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
    ) -> Half: ...
    def half(self, msg_id: str, offset_msg_id: str, queue: MessageQueue, queue_offset: int) -> Half: ...
    def ends_once(self, topic: str, timeout: Duration) -> bool: ...
    def checks(self) -> Checks: ...
    def request(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
    ) -> ReceivedMessage: ...
    def reply(
        self, request: ReceivedMessage, body: bytes | bytearray | memoryview, timeout: Duration | None = None
    ) -> Receipt: ...
    def send_many(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        queues: list[MessageQueue] | None = None,
    ) -> SentMany: ...
    def submit(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        wait: Duration | None = None,
        msg_id: str | None = None,
    ) -> Future[Receipt]: ...
    def flush(self, timeout: Duration) -> None: ...
    def send_oneway(self, message: Message, queue: MessageQueue | None = None) -> None: ...
    def stats(self) -> ProducerStats: ...
    def queues(self, topic: str) -> list[MessageQueue]: ...
    def begin_close(self) -> None: ...
    def close(self, now: bool = True) -> None: ...

@final
class Half:
    @property
    def receipt(self) -> Receipt: ...
    def end(self, commit: bool) -> None: ...

@final
class Checks:
    def next(self, timeout: Duration) -> tuple[Check | None, bool]: ...
    def answer(self, check: Check, commit: bool) -> None: ...

@final
class Check:
    @property
    def message(self) -> ReceivedMessage: ...
    def done(self) -> None: ...

@final
class Allocations:
    def __new__(cls) -> Self: ...
    def next(self, timeout: Duration) -> tuple[Allocation | None, bool]: ...
    def end(self) -> None: ...

@final
class Allocation:
    def asked(self) -> tuple[str, str, list[MessageQueue], list[str]] | None: ...
    def answer(self, queues: list[MessageQueue]) -> None: ...
    def refuse(self) -> None: ...

@final
class Change:
    @property
    def is_gain(self) -> bool: ...
    @property
    def queues(self) -> list[MessageQueue]: ...

@final
class SendLoad:
    def __new__(
        cls,
        targets: Sequence[tuple[str, str, str, int]],
        *,
        group: str,
        size: int,
        batch: int,
        messages: int,
        connections: int,
        threads: int,
        window: int,
        rate: float | None,
    ) -> Self: ...
    @property
    def answered(self) -> int: ...
    def wait(
        self, at_most: Duration, percentiles: Sequence[float]
    ) -> tuple[int, int, list[tuple[int, str, int]], float, list[int]] | None: ...

@final
class Consumer:
    @staticmethod
    def join(
        group: str,
        topics: list[str],
        name_servers: list[str],
        arrivals: Arrivals | None = None,
        decode: Callable[[ReceivedMessage], Any] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer: ...
    @property
    def group(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def dropped_traces(self) -> int: ...
    def poll(self, max_messages: int, timeout: Duration) -> list[ReceivedMessage[Any]]: ...
    def next(self, timeout: Duration) -> ReceivedMessage[Any] | None: ...
    def fetch_columns(self, max_rows: int, timeout: Duration, columns: list[str] | None = None) -> ArrowBatch: ...
    def commit(self, wait: bool = True) -> None: ...
    def commit_offsets(self, offsets: list[tuple[MessageQueue, int]], wait: bool = True) -> None: ...
    def committed(self, queue: MessageQueue) -> int | None: ...
    def positions(self) -> list[tuple[MessageQueue, int]]: ...
    def lag(self) -> list[tuple[MessageQueue, int]]: ...
    def seek(self, queue: MessageQueue, to: int | Start | str | datetime) -> int: ...
    def pause(self, queues: list[MessageQueue]) -> None: ...
    def resume(self, queues: list[MessageQueue]) -> None: ...
    def resume_all(self) -> None: ...
    def assignment(self) -> list[MessageQueue]: ...
    def state(self) -> ConsumerState: ...
    def stats(self, failed_callbacks: int) -> ConsumerStats: ...
    def change(self) -> Change | None: ...
    def told(self, change: Change) -> None: ...
    def begin_leaving(self) -> None: ...
    def take_offset_moves(self) -> list[OffsetMove]: ...
    def begin_close(self) -> None: ...
    def close(self, now: bool = True) -> None: ...

@final
class PushConsumer:
    def __new__(
        cls,
        group: str,
        topics: list[tuple[str, Tags, str | None, int, int, Callable[[ReceivedMessage], Any] | None]],
        name_servers: list[str],
        **options: Unpack[PushOptions],
    ) -> Self: ...
    @property
    def client_id(self) -> str: ...
    def take(self, lane: int, timeout: Duration) -> Work | None: ...
    def next_change(self, timeout: Duration) -> Change | None: ...
    def told(self, change: Change) -> None: ...
    def stats(self, failed_callbacks: int) -> PushStats: ...
    def stuck(self, lane: int) -> int: ...
    def state(self) -> ConsumerState: ...
    def begin_stop(self, patience: Duration) -> None: ...
    def stop(self, patience: Duration) -> None: ...

@final
class Work:
    @property
    def topic(self) -> str: ...
    def __iter__(self) -> Messages: ...
    def next_batch(self) -> list[ReceivedMessage]: ...
    def fail(
        self,
        after: Duration | None = None,
        level: int | None = None,
        reject: bool = False,
        reason: str | None = None,
        chosen: bool = False,
    ) -> tuple[str, bool] | None: ...

@final
class Messages:
    def __iter__(self) -> Self: ...
    def __next__(self) -> ReceivedMessage: ...

@final
class RangeReader:
    def __new__(
        cls,
        name_servers: list[str],
        queue: MessageQueue,
        start: int,
        end: int,
        tags: Tags,
        columns: list[str] | None,
        groupings: list[list[str]],
        batch_rows: int,
        batch_bytes: int,
        max_body_bytes: int | None,
        null_unreadable_bodies: bool,
        **options: Unpack[ClientOptions],
    ) -> Self: ...
    def next_batch(self) -> tuple[ArrowBatch, int, list[tuple[int, int]]] | None: ...
    def next_messages(self) -> list[ReceivedMessage] | None: ...
    def close(self) -> None: ...

@final
class Admin:
    def __new__(
        cls, name_servers: list[str], arrivals: Arrivals | None = None, **options: Unpack[ClientOptions]
    ) -> Self: ...
    def create_topic(
        self,
        topic: str,
        read_queues: int,
        write_queues: int,
        perm: int,
        cluster: str | None,
        broker: str | None,
        attributes: dict[str, str | None],
    ) -> None: ...
    def delete_topic(self, topic: str) -> None: ...
    def topics(self) -> list[str]: ...
    def describe_topic(self, topic: str, partial: bool) -> TopicInfo: ...
    def topic_totals(self, topics: list[str], partial: bool) -> Answers[TopicTotals]: ...
    def queues(self, topic: str) -> list[MessageQueue]: ...
    def topic_configs(self, partial: bool) -> Answers[TopicConfig]: ...
    def all_group_configs(self, partial: bool) -> Answers[GroupConfig]: ...
    def producers(self, partial: bool) -> Answers[ProducerGroup]: ...
    def topic_groups(self, topic: str, partial: bool) -> Answers[str]: ...
    def message_consumers(self, queue: MessageQueue, offset: int) -> list[MessageConsumer]: ...
    def queue_delays(self, group: str, topic: str | None, partial: bool) -> Answers[QueueDelay]: ...
    def topic_rate(self, topic: str, partial: bool) -> TrafficRate: ...
    def group_rate(self, group: str, topic: str | None, partial: bool) -> TrafficRate: ...
    def groups(self, partial: bool) -> Answers[GroupInfo]: ...
    def group_progress(self) -> Answers[GroupProgress]: ...
    def group_lag(self, group: str, topic: str | None, partial: bool) -> Answers[QueueLag]: ...
    def group_members(self, group: str, partial: bool) -> Answers[str]: ...
    def describe_group(self, group: str, partial: bool) -> Answers[GroupMember]: ...
    def consumer_running_info(self, group: str, client_id: str, jstack: bool) -> ConsumerRunningInfo: ...
    def running_members(self, group: str, jstack: bool) -> Answers[ConsumerRunningInfo]: ...
    def create_group(self, group: str) -> None: ...
    def delete_group(self, group: str) -> None: ...
    def reset_offsets(
        self, group: str, topic: str, to: Start | str | datetime, force: bool
    ) -> list[tuple[MessageQueue, int]]: ...
    def min_offset(self, queue: MessageQueue) -> int: ...
    def max_offset(self, queue: MessageQueue) -> int: ...
    def next_offset(self, queue: MessageQueue) -> int: ...
    def search_offset(self, queue: MessageQueue, at_ms: int) -> int: ...
    def committed_offset(self, group: str, queue: MessageQueue) -> int | None: ...
    def view_message(self, offset_msg_id: str) -> ReceivedMessage: ...
    def query_messages(
        self, topic: str, key: str, kind: str, begin_ms: int, end_ms: int, max_messages: int, partial: bool
    ) -> Answers[ReceivedMessage]: ...
    def message(self, topic: str, msg_id: str) -> ReceivedMessage | None: ...
    def brokers(self) -> list[BrokerInfo]: ...
    def brokers_at(self, name_server: str) -> list[BrokerInfo]: ...
    def producer_connections(self, group: str, partial: bool) -> Answers[ProducerConnection]: ...
    def commit_offset(
        self, group: str, queue: MessageQueue, offset: int, force: bool, beyond: bool, dry_run: bool
    ) -> None: ...
    def clone_offsets(self, source: str, target: str, topic: str | None, force: bool) -> list[str]: ...
    def broker_config(self, address: str) -> dict[str, str]: ...
    def update_broker_config(self, address: str, changes: dict[str, str]) -> None: ...
    def config(self, server: str) -> list[ConfigValue]: ...
    def change_config(
        self, server: str, changes: dict[str, str], unset: list[str], at_restart: bool, dry_run: bool
    ) -> str | None: ...
    def read(self, queue: MessageQueue, start: int, end: int) -> tuple[list[ReceivedMessage], int]: ...
    def read_within(
        self, queue: MessageQueue, start: int, end: int, wait: Duration
    ) -> tuple[list[ReceivedMessage], int]: ...
    def all_figures(self) -> list[BrokerFigures]: ...
    def broker_figures(self, address: str) -> dict[str, str]: ...
    def ha_status(self, address: str) -> HaStatus: ...
    def quotas(self, address: str) -> list[QuotaUse]: ...
    def set_quota(
        self,
        address: str,
        scope: str,
        name: str,
        send_messages: int | None,
        send_bytes: int | None,
        pull_messages: int | None,
        pull_bytes: int | None,
        connections: int | None,
    ) -> None: ...
    def remove_quota(self, address: str, scope: str, name: str) -> None: ...
    def users(self, server: str) -> list[tuple[str, bool, bool, bool]]: ...
    def put_user(
        self,
        server: str,
        name: str,
        is_new: bool,
        password: str | None,
        new_password: str | None,
        rotating: bool | None,
        is_super: bool | None,
        is_enabled: bool | None,
    ) -> None: ...
    def delete_user(self, server: str, name: str) -> None: ...
    def policies(self, server: str) -> list[tuple[str, str, str, tuple[list[str], list[str], bool]]]: ...
    def put_policy(
        self,
        server: str,
        user: str,
        kind: str,
        resource: str,
        actions: list[str],
        sources: list[str],
        is_allowed: bool,
    ) -> None: ...
    def delete_policy(self, server: str, user: str, kind: str | None, resource: str | None) -> None: ...
    def change_role(self, address: str, role: str, broker_id: int | None, force: bool, token: str | None) -> None: ...
    def group_configs(self, group: str) -> list[tuple[str, str, str | None, str | None]]: ...
    def put_topic(self, broker: str, config: str, attributes: dict[str, str | None]) -> None: ...
    def put_group(self, address: str, config: str) -> None: ...
    def delete_topic_at(self, address: str, topic: str) -> None: ...
    def delete_group_at(self, address: str, group: str) -> None: ...
    def clean(self, address: str, leftover: str) -> None: ...
    def unused_offsets(self, address: str) -> list[tuple[str, str, bool]]: ...
    def topic_config(self, address: str, topic: str) -> str | None: ...
    def timers(self, address: str) -> dict[str, int]: ...
    def consume_directly(
        self, address: str, group: str, client_id: str, topic: str, offset_msg_id: str
    ) -> tuple[str, str | None, int]: ...
    def note(self, namespace: str, key: str) -> str | None: ...
    def set_note(self, namespace: str, key: str, value: str | None) -> None: ...
    def begin_close(self) -> None: ...
    def close(self, now: bool = True) -> None: ...

@final
class Server:
    def __new__(cls, kind: str, config: str | None, settings: list[tuple[str, str]]) -> Self: ...
    @property
    def name_server(self) -> str | None: ...
    @property
    def broker(self) -> str | None: ...
    @property
    def name_servers(self) -> list[str]: ...
    @property
    def metrics(self) -> str | None: ...
    @property
    def warning(self) -> str | None: ...
    def check(self) -> None: ...
    def stop(self, timeout: Duration) -> None: ...

@final
class StoreReader:
    def __new__(cls, path: str, commit_log: str | None) -> Self: ...
    def topics(self) -> list[StoredTopic]: ...
    def topic(self, name: str) -> StoredTopic: ...
    def ranges(
        self,
        topic: str,
        queues: list[int] | None,
        starts: list[tuple[int, int]],
        ends: list[tuple[int, int]],
        stored_from_ms: int | None,
        stored_before_ms: int | None,
        part_bytes: int,
        min_parts: int,
        fail_on_data_loss: bool,
    ) -> list[StoreRange]: ...
    def query(
        self,
        topic: str,
        key: str,
        kind: str,
        begin_ms: int,
        end_ms: int,
        max_messages: int | None,
        slots_and_entries: tuple[int, int] | None,
    ) -> list[ReceivedMessage]: ...
    def scan(
        self,
        ranges: list[QueueRange],
        columns: list[str] | None,
        groupings: list[list[str]],
        tags: Tags,
        batch_rows: int,
        batch_bytes: int,
        broker_name: str | None,
        fail_on_data_loss: bool,
        verify: bool,
        max_body_bytes: int | None,
        null_unreadable_bodies: bool,
    ) -> Scan: ...

@type_check_only
class ImportedMessage(TypedDict):
    number: int
    topic: str
    queue_id: int
    flag: int
    born_at_ms: int
    born_host: str
    reconsume_times: int
    body: bytes
    properties: bytes

@type_check_only
class ConfigKey(TypedDict):
    name: str
    section: str
    kind: str
    unit: str | None
    bounds: tuple[int, int] | None
    choices: list[str]
    description: str
    apache_default: str | None
    alias_of: str | None
    is_changeable: bool
    default: bool | int | str | list[str] | None
    default_text: str
    value: bool | int | str | list[str] | None
    text: str
    layer: str
    source: str | None

@type_check_only
class TraceRecord(TypedDict):
    step: Literal["sent", "began", "ended", "transaction", "recalled"]
    msg_id: str
    at_ms: int | None
    region: str | None
    group: str | None
    topic: str | None
    tag: str | None
    keys: str | None
    store_host: str | None
    body_bytes: int | None
    cost_ms: int | None
    kind: str | None
    offset_msg_id: str | None
    success: bool | None
    client_host: str | None
    request_id: str | None
    retries: int | None
    result: str | None
    transaction_id: str | None
    state: str | None
    from_check: bool | None

def json_columns(bodies: object, fields: object) -> ArrowBatch: ...
def tag_hashes(tags: object) -> ArrowBatch: ...
def offset_message_id_parts(ids: object) -> ArrowBatch: ...
def unique_key_parts(keys: object, near: object, month_starts: list[int]) -> ArrowBatch: ...
def trace_records(body: bytes) -> list[TraceRecord]: ...
def tag_names(tags: Tags) -> list[str] | None: ...
def is_reserved_property(name: str) -> bool: ...
def split_keys(text: str) -> list[str]: ...
def message_copy(topic: str, body: bytes, flag: int, properties: list[tuple[str, str]]) -> Message: ...
def config_keys(
    config: str | None, settings: list[tuple[str, str]], environment: bool
) -> tuple[list[ConfigKey], list[str]]: ...
def config_unused_keys() -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]: ...
def config_check_on_command_line(key: str) -> None: ...
def config_key_name(key: str) -> str: ...
def put_user_offline(store: str, name: str, password: str, is_super: bool, dry_run: bool) -> tuple[str, bool]: ...
def config_unset(store: str, keys: list[str], dry_run: bool) -> list[tuple[str, str, str]]: ...
def store_facts(path: str, commit_log: str | None) -> StoreFacts: ...
def store_verify(path: str, commit_log: str | None, progress: Callable[[int, int], object] | None) -> VerifyReport: ...
def store_properties(pairs: list[tuple[str, str]]) -> bytes: ...
def store_repair(
    path: str, commit_log: str | None, apply: bool, progress: Callable[[int, int], object] | None
) -> Repair: ...
def store_cut(
    path: str, at: int, commit_log: str | None, apply: bool, progress: Callable[[int, int], object] | None
) -> Repair: ...
def store_retention(path: str, config: str | None, settings: list[tuple[str, str]], asked: bool) -> RetentionPlan: ...
def store_diff(
    first: tuple[str, str | None],
    second: tuple[str, str | None],
    progress: Callable[[int, int], object] | None,
) -> LogDiff: ...
def store_snapshot(
    path: str, target: str, commit_log: str | None, progress: Callable[[int, int], object] | None
) -> Snapshot: ...

@final
class StoreRecords:
    def __new__(
        cls,
        path: str,
        commit_log: str | None,
        topics: list[str],
        queues: list[int] | None,
        queue_offsets: tuple[int | None, int | None],
        physical_offsets: tuple[int | None, int | None],
        stored_ms: tuple[int | None, int | None],
        key: str | None,
        use_index: bool,
        skips_damage: bool,
        verify: bool,
        columns: list[str] | None,
        batch_rows: int,
        batch_bytes: int,
        max_body_bytes: int | None,
        takes_waiting: bool,
    ) -> Self: ...
    def next_batch(self) -> ArrowBatch | None: ...
    def next_raw(self) -> bytes | None: ...
    @property
    def state(self) -> tuple[int, int, int]: ...

@final
class StoreTransfer:
    def __new__(
        cls, path: str, commit_log: str | None, like: str | None, like_commit_log: str | None, is_new: bool
    ) -> Self: ...
    def append_records(self, records: StoreRecords, progress: Callable[[int, int], object] | None) -> None: ...
    def append(self, messages: list[ImportedMessage]) -> None: ...
    def finish(self) -> TransferReport: ...

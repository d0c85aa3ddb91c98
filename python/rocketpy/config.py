"""Values and options of the clients: durations, where a group starts, and the keyword options of each client.

A duration is a number of seconds or a `datetime.timedelta`, never negative and never endless.
"""

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias, TypedDict

from rocketpy.base.instant import Instant, instant_ms
from rocketpy.base.options import Default, defaults_of
from rocketpy.consuming.balance import Balance
from rocketpy.errors import InvalidArgumentError
from rocketpy.security import Credentials, Tls

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from rocketpy.consuming.balance import Allocate
    from rocketpy.consuming.rebalance import QueuesCallback
    from rocketpy.producing.selector import Selector

__all__ = [
    "Backoff",
    "Compression",
    "ConsumerOptions",
    "Credentials",
    "Duration",
    "Instant",
    "ProducerOptions",
    "PushOptions",
    "SendStatus",
    "Start",
    "Tags",
    "Tls",
]

Duration: TypeAlias = float | timedelta
"""A number of seconds, or a timedelta."""

MAX_SECONDS = 3.2e9
"""Maximum duration: 100 years, as in the extension module."""


def duration_seconds(name: str, given: Duration) -> float:
    """A duration in seconds.

    Args:
        name: Name of the argument, for the error.
        given: Its value.

    Raises:
        TypeError: The value is not a number or a timedelta.
        InvalidArgumentError: The value is negative, or longer than 100 years.

    Examples:
        >>> duration_seconds("lease", timedelta(minutes=1))
        60.0
    """
    if isinstance(given, timedelta):
        given = given.total_seconds()
    # Not every caller has a type checker.
    if isinstance(given, bool) or not isinstance(given, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be a number of seconds or a timedelta, not {type(given).__name__}")
    if not 0 <= given <= MAX_SECONDS:  # also of nan
        raise InvalidArgumentError(f"{name} must be from 0 to {MAX_SECONDS:g} seconds, not {given}")
    return float(given)


Tags: TypeAlias = str | list[str] | tuple[str, ...] | set[str]
"""Tags to receive: `"*"` for all messages, tags separated by `||`, or the tags themselves.

Tags in an expression may contain blanks. Expressions of other languages raise an error: `UA|AA`, `UA,AA`, `UA OR AA`,
`tag = 'UA'`. Tags in a list may contain these characters, except `||`, which separates tags on the wire.
"""

Compression: TypeAlias = Literal["zlib", "lz4", "zstd"]
"""Compression of large bodies. Every client reads zlib; lz4 and zstd need consumers of version 5."""


class SendStatus(enum.StrEnum):
    """Durability of an acknowledged message. Every status means that the message is stored."""

    SEND_OK = "SEND_OK"
    """Stored, flushed and replicated according to the broker's policy."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but the flush was not confirmed in time: a power cut may lose it."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored, but replication was not confirmed in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored, but no slave was connected."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start position of a group in a queue without a stored offset. A stored offset always takes precedence.

    The default is `EARLIEST`: messages that were sent before the group existed are read, not skipped. Use `LATEST` to
    read only messages that are sent from now on.

    The first member that reads a queue from `LATEST` or from `at(...)` stores its start offset, even without
    `auto_commit`. Until the first commit, the next reader of the queue starts at the same offset, so no message in
    between is skipped.

    Examples:
        >>> from datetime import datetime, timezone
        >>> Start.EARLIEST
        Start('earliest')
        >>> Start.at(datetime(2013, 1, 1, tzinfo=timezone.utc))
        Start('timestamp', 1356998400000)
    """

    kind: Literal["earliest", "latest", "timestamp", "stored"]
    """The kind of start."""
    at_ms: int | None = None
    """Milliseconds since 1970 UTC, for `timestamp` only."""

    EARLIEST: ClassVar["Start"]
    """The oldest message in the queue."""
    LATEST: ClassVar["Start"]
    """Messages that arrive from now on."""
    STORED: ClassVar["Start"]
    """The stored offset of the group. A queue without a stored offset is an error."""

    @classmethod
    def at(cls, instant: Instant) -> "Start":
        """The first message stored at or after a point in time.

        Args:
            instant: Seconds since 1970 UTC, a datetime, or text as for `of`. Times without a time zone are local.

        Raises:
            InvalidArgumentError: The text is not a point in time, or the number counts milliseconds.
        """
        return cls("timestamp", instant_ms(instant))

    @classmethod
    def of(cls, start: "Start | str | datetime") -> "Start":
        """Converts user input to a start.

        Args:
            start: A start; `"earliest"`, `"latest"` or `"stored"`; or a point in time: a datetime, ISO 8601 text, or an
                age such as `"-10m"`.

        Raises:
            TypeError: The value is a number or another type.
            InvalidArgumentError: The text is not a start.

        Examples:
            >>> Start.of("latest"), Start.of("2013-01-01T00:00:00Z")
            (Start('latest'), Start('timestamp', 1356998400000))
        """
        if isinstance(start, cls):
            return start
        if isinstance(start, datetime):
            return cls.at(start)
        if not isinstance(start, str):
            raise TypeError(
                f"a start must be a rocketpy.Start, a datetime or one of {STARTS}, not {type(start).__name__}"
            )
        named = {"earliest": cls.EARLIEST, "latest": cls.LATEST, "stored": cls.STORED}.get(start.strip().lower())
        if named is not None:
            return named
        if start.strip().isdigit():
            raise InvalidArgumentError(f"not a start: {start}", hint=f"for seconds since 1970: Start.at({start})")
        try:
            return cls.at(start)
        except InvalidArgumentError:
            raise InvalidArgumentError(f"not a start: {start}", hint=f"write one of {STARTS}") from None

    def __repr__(self) -> str:
        at = "" if self.at_ms is None else f", {self.at_ms}"
        return f"Start({self.kind!r}{at})"


STARTS = "'earliest', 'latest', 'stored', '-10m', '2026-01-31T12:00:00'"
"""Starts as text, for errors."""

Start.EARLIEST = Start("earliest")
Start.LATEST = Start("latest")
Start.STORED = Start("stored")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pause before a send is retried at the broker that failed last. Other brokers are tried at once.

    Examples:
        >>> Backoff(first=0.2, longest=5)
        Backoff(first=0.2, factor=2.0, longest=5, jitter=0.2)
    """

    first: Duration = 0.05
    """The first pause; 0 disables pauses."""
    factor: float = 2.0
    """Factor between successive pauses, from 1."""
    longest: Duration = 1.0
    """Maximum pause, before jitter."""
    jitter: float = 0.2
    """Random variation of each pause as a fraction of it, from 0 to 1, so that clients do not retry in step."""

    def __post_init__(self) -> None:
        duration_seconds("first", self.first)
        duration_seconds("longest", self.longest)


class ClientOptions(TypedDict, total=False):
    """Options of every client."""

    instance_name: Annotated["str | None", Default(None)]
    """Part of the client id after `@`. Default None: a unique value.

    Clients of one process with the same name and name servers share connections, routes and heartbeats. They must have
    the same `connect_timeout`, and each group may have only one of them: a second consumer of a group needs another
    name. A client with the same client id in another process is not refused: both receive the same messages, and log a
    warning.
    """
    client_ip: Annotated["str | None", Default(None)]
    """Address shown in the client id. Default None: the local address used to reach the first name server."""
    unit_name: Annotated["str | None", Default(None)]
    """Unit appended to the client id. Default None."""
    api_timeout: Annotated["Duration", Default(3.0)]
    """Timeout for route, heartbeat, membership and administration calls. Default 3 s."""
    connect_timeout: Annotated["Duration", Default(3.0)]
    """Timeout for a TCP connect. Default 3 s."""
    tls: Annotated["Tls | bool | None", Default(None)]
    """TLS for all connections: settings, True for the system's authorities, or False. Default None: by environment.

    The environment turns TLS on by `ROCKETPY_TLS=1`, `ROCKETPY_TLS_CA` or `ROCKETPY_TLS_CERT`, with `ROCKETPY_TLS_KEY`
    and `ROCKETPY_TLS_KEY_PASSWORD`; `ROCKETPY_TLS=0` turns it off.
    """
    credentials: Annotated["Credentials | Literal[False] | None", Default(None)]
    """User and secret that sign every request, or False for none. Default None: by environment.

    The environment names a file for `Credentials.from_file` in `ROCKETPY_CREDENTIALS`; or it has the values in
    `ROCKETPY_ACCESS_KEY`, `ROCKETPY_SECRET_KEY` and `ROCKETPY_SECURITY_TOKEN`.
    """


CLIENT_DEFAULTS: ClientOptions = defaults_of(ClientOptions)
"""Default of every option, for signatures. The extension module declares the same defaults."""


class ProducerOptions(ClientOptions, total=False):
    """Keyword options of `rocketpy.Producer`."""

    send_timeout: Annotated["Duration", Default(60.0)]
    """Timeout for one send, including all attempts and pauses. Default 60 s: a broker may restart meanwhile."""
    attempt_timeout: Annotated["Duration", Default(3.0)]
    """Timeout for one attempt while another broker can be tried, at most half of the remaining time. An attempt at the
    only broker has longer. Also the timeout of `send_oneway`, and the default of `request`. Default 3 s."""
    retries: Annotated["int | None", Default(None)]
    """Maximum number of retries after the first attempt, at other brokers if available, all with the same `msg_id`.
    Messages with an order key or a queue are not retried once they may be stored. Default None: until `send_timeout`
    while servers are away or busy, and 2 after other refusals."""
    backoff: Annotated["Backoff", Default(Backoff())]
    """Pause before a retry once all brokers of the topic have failed; another broker is tried at once. Default
    `Backoff()`: 50 ms, doubled each time up to 1 s, plus or minus 20 % at random."""
    selector: Annotated["Selector", Default("round_robin")]
    """Chooses the queue of messages that have neither a queue nor an order key: `"round_robin"` (the default),
    `"random"`, `"least_latency"`, or a function `(queues, message)` that returns one of the queues. `"least_latency"`
    is a round robin that skips brokers that failed, for 10 s and until they answer again, and brokers that took 0.55 s
    or longer, for 2 s to 30 s. The others skip only brokers that failed after a silence of 1 s or longer. A function is
    also called for messages with an order key, and its queue counts like a queue passed to the call."""
    max_message_size: Annotated["int", Default(4 << 20)]
    """Maximum size of a body in bytes, before compression. Default 4 MiB."""
    compression: Annotated["Compression | None", Default("zlib")]
    """Compression of large bodies in single sends; None disables it. Default `"zlib"`."""
    compress_over: Annotated["int", Default(4096)]
    """Minimum size in bytes of bodies that are compressed. Default 4096."""
    compression_level: Annotated["int", Default(5)]
    """Compression level. Default 5."""
    window_messages: Annotated["int", Default(16_384)]
    """Maximum number of unacknowledged messages of `submit`. Default 16384."""
    window_bytes: Annotated["int", Default(64 << 20)]
    """Maximum number of unacknowledged body bytes of `submit`; each body counts as at least 1 KiB. Default 64 MiB."""
    batch_messages: Annotated["int", Default(1024)]
    """Maximum number of messages in one wire batch of `send_many`. Default 1024."""
    batch_bytes: Annotated["int", Default(512 << 10)]
    """Maximum size of one wire batch in bytes. Default 512 KiB."""
    requests_in_flight: Annotated["int", Default(8)]
    """Maximum number of concurrent requests of one `send_many`, and of the submitted messages of one topic. Default
    8."""
    linger: Annotated["Duration", Default(0.0)]
    """Maximum time that a submitted message waits for others to share its request. Default 0 s: messages are batched
    only while a request is under way."""
    default_topic_queues: Annotated["int", Default(4)]
    """Number of queues requested when the broker creates a topic automatically. Default 4."""
    trace: Annotated["bool", Default(False)]
    """Whether to write a trace of each acknowledged message to the trace topic, for `Admin.trace`. Default False."""
    trace_topic: Annotated["str | None", Default(None)]
    """Topic for traces; setting it enables `trace`. Default None: `RMQ_SYS_TRACE_TOPIC`."""
    namespace: Annotated["str | None", Default(None)]
    """Prefix of group and topic names at the brokers, as in `namespace%orders`; messages and queues show names without
    it. `Admin` expects the full names. Default None."""


PRODUCER_DEFAULTS: ProducerOptions = defaults_of(ProducerOptions, CLIENT_DEFAULTS)
"""The same for producers."""
PATIENT: ClientOptions = {"api_timeout": 30.0}
"""Options of commands, which a user can interrupt: they wait for a stalled disk instead of failing with an unknown
outcome."""
PATIENT_SENDS: ProducerOptions = {"api_timeout": 30.0, "send_timeout": 30.0, "retries": 2}
"""The same for producers. A command reports a server that is away instead of waiting for it."""


class MemberOptions(ClientOptions, total=False):
    """Options of every member of a consumer group, with polls or with handlers."""

    start: Annotated["Start | str | datetime", Default(Start.EARLIEST)]
    """Start position of a group in queues without a stored offset: `Start.EARLIEST` (the default: nothing is skipped),
    `Start.LATEST`, `Start.at(...)`, `Start.STORED`, or text as for `Start.of`. The start offset is then stored."""
    balance: Annotated["Balance | str | Allocate", Default(Balance.AVERAGE)]
    """Strategy by which the members of the group share queues; all members must use the same one. `Balance.AVERAGE`
    (the default), `CIRCLE`, `CONSISTENT_HASH`, `Balance.by_configuration(...)` or another `Balance`; `"average"`,
    `"circle"` or `"consistent_hash"`; or a function `(group, client_id, queues, members)` that returns the queues of
    this member. The function is called for each topic at every change and every 20 s, in its own thread. If it raises
    or takes longer than 10 s, the error is logged and the member keeps its queues."""
    on_assigned: Annotated["QueuesCallback | None", Default(None)]
    """Called as `on_assigned(consumer, queues)` with the queues that this member gained, before it receives their
    messages. The caller is `poll`, or with handlers a separate thread, or the loop of an `AsyncPushConsumer`. For an
    `AsyncConsumer`, and with handlers, it may be an `async def`, which runs in their event loop. Exceptions are logged,
    and counted by `stats()`. Default None."""
    on_revoked: Annotated["QueuesCallback | None", Default(None)]
    """Called in the same way with the queues that this member loses, and with all queues at the close. The member keeps
    the queues, and can commit them, until the callback returns, at most for `handover_timeout`. Default None."""
    handover_timeout: Annotated["Duration", Default(5.0)]
    """Maximum time for which this member keeps a queue that is reassigned while its messages are being processed. The
    queue is released earlier when all of them are committed, with `auto_commit` at the next poll, and with handlers
    when these are done. The new member starts after that. With `ordered`, a handler that runs keeps its queue until it
    returns, without limit. Default 5 s, at most 1 h; 0 releases queues at once."""
    unreachable_timeout: Annotated["Duration | None", Default(60.0)]
    """Time without an answer from any broker after which `poll` and iteration raise `ConnectionFailedError`, or a
    consumer with handlers logs an error. Repeated after each further period. Default 60 s; None for never."""
    prefetch_messages: Annotated["int", Default(16_384)]
    """Maximum number of prefetched messages per queue; with handlers, counted from the first unfinished message.
    Default 16384."""
    prefetch_bytes: Annotated["int", Default(16 << 20)]
    """Maximum size in bytes of the messages per queue that are prefetched or being processed by handlers. Default 16
    MiB."""
    prefetch_total_bytes: Annotated["int", Default(128 << 20)]
    """Maximum size in bytes of the prefetched messages of all queues together. Default 128 MiB."""
    pull_messages: Annotated["int", Default(4096)]
    """Maximum number of messages requested by one pull. Default 4096."""
    pull_bytes: Annotated["int", Default(1 << 20)]
    """Maximum number of bytes requested by one pull. Default 1 MiB."""
    suspend: Annotated["Duration", Default(15.0)]
    """Maximum time for which the broker holds a pull that finds no message. Default 15 s."""
    pull_timeout: Annotated["Duration", Default(30.0)]
    """Timeout for one pull, longer than `suspend`. Default 30 s."""
    allow_missing_topic: Annotated["bool", Default(False)]
    """Whether to start even if a topic does not exist yet, and wait for it. Default False: an error."""
    allow_other_subscriptions: Annotated["bool", Default(False)]
    """Whether to join and continue while another live member of the group subscribes to other topics or tags, as during
    a change of all members' tags. Default False: the start raises `GroupConflictError` if that member is in this
    process; otherwise `poll` raises it, or a consumer with handlers logs an error."""
    allow_idle: Annotated["bool", Default(False)]
    """Whether members without a queue are expected, such as standbys of the one member that works. Default False: a
    member without a queue logs a warning."""
    max_body_bytes: Annotated["int | None", Default(None)]
    """Maximum size of a decompressed body in bytes. Default None: 64 MiB, and above 16 MiB at most 100 times the stored
    size."""
    trace: Annotated["bool", Default(False)]
    """Whether to write a trace of each message to the trace topic, for `Admin.trace`: when the message is returned, and
    when it is committed or its handler ends. Default False."""
    trace_topic: Annotated["str | None", Default(None)]
    """Topic for traces; setting it enables `trace`. Default None: `RMQ_SYS_TRACE_TOPIC`."""
    namespace: Annotated["str | None", Default(None)]
    """Prefix of group and topic names at the brokers, as in `namespace%orders`; messages and queues show names without
    it. `Admin` expects the full names. Default None."""


MEMBER_DEFAULTS: MemberOptions = defaults_of(MemberOptions, CLIENT_DEFAULTS)
"""Default of every option of a member."""


class ConsumerOptions(MemberOptions, total=False):
    """Keyword options of `rocketpy.Consumer`."""

    tags: Annotated["Tags | Mapping[str, Tags]", Default("*")]
    """Tags to receive; the broker filters. `"*"` (the default) for all messages, `"UA || AA"`, or `["UA", "AA"]`, whose
    tags may contain any characters except `||`; or one of these values by topic: `{"orders": "UA", "audit": "*"}`."""
    sql: Annotated["str | Mapping[str, str] | None", Default(None)]
    """SQL92 expression over message properties that selects messages; the broker filters: `"a > 3 AND b IS NOT NULL"`.
    Or an expression by topic, `{"orders": "price > 9"}`: other topics are filtered by `tags`. A topic cannot have both.
    Default None: only `tags` filters."""
    auto_commit: Annotated["Duration | bool | None", Default(False)]
    """Interval of automatic commits, which cover the messages returned before the latest poll; more than 0 s and at
    most 1 h. True for every second; False (the default) or None for never."""
    retry_topic: Annotated["bool", Default(False)]
    """Whether to read the group's retry topic as well, as Apache's push consumers do. The property `RETRY_TOPIC` of its
    messages names their original topic. Default False."""


CONSUMER_DEFAULTS: ConsumerOptions = defaults_of(ConsumerOptions, MEMBER_DEFAULTS)
"""Default of every option of a consumer."""


CONCURRENCY = 16
HANDLER_SECONDS = 900.0
STOP_SECONDS = 30.0


class PushOptions(MemberOptions, total=False):
    """Keyword options of `rocketpy.PushConsumer` and `rocketpy.AsyncPushConsumer`."""

    concurrency: Annotated["int", Default(CONCURRENCY)]
    """Maximum number of handlers to run concurrently (1 to 1000). Each runs in a thread, or in a task if it is `async
    def`. Default 16."""
    max_retries: Annotated["int", Default(16)]
    """Maximum number of redeliveries before a message is moved to the dead letters. Default 16."""
    dead_letter_error: Annotated["bool", Default(True)]
    """Whether a dead letter carries type and text of the last exception, up to 512 bytes, for `DeadLetter.error` and
    `rocketpy dlq show`. A body as it was sent is left out; parsed values of it and other data in the text are stored.
    Default True."""
    handler_timeout: Annotated["Duration", Default(HANDLER_SECONDS)]
    """Timeout for a handler. When it expires, the message is sent back for a later redelivery; a task is cancelled, and
    a thread, which cannot be cancelled, is replaced by a new one. Not used with `ordered`. Default 900 s."""
    stop_timeout: Annotated["Duration", Default(STOP_SECONDS)]
    """Timeout for a stop: the wait for running handlers, and then for `on_revoked`. Messages of handlers that run
    longer are redelivered. Default 30 s."""
    ordered: Annotated["bool", Default(False)]
    """Whether to process the messages of each queue one at a time, in order. A failed message is retried before the
    messages after it. Default False: concurrently."""
    retry_pause: Annotated["Duration", Default(1.0)]
    """Pause before a retry with `ordered`. Default 1 s."""
    broadcast: Annotated["bool", Default(False)]
    """Whether each member receives all messages and keeps its offsets in a file. Failed messages are not redelivered.
    Give each member on a machine its own `instance_name`, which selects its file. Default False: the members share the
    messages."""
    offsets_folder: Annotated["str | os.PathLike[str] | None", Default(None)]
    """Folder of the offset files of `broadcast`. Default None: `.rocketmq_offsets` in the home folder, as in Apache's
    clients."""


PUSH_DEFAULTS: PushOptions = defaults_of(PushOptions, MEMBER_DEFAULTS)
"""Default of every option of a push consumer."""

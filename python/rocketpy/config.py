"""Values and options of the clients: durations, where a group starts, and the keyword options of each client.

A duration is a number of seconds or a `datetime.timedelta`, never negative and never endless.
"""

import enum
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias, TypedDict

from rocketpy.base.instant import Instant, instant_ms
from rocketpy.base.options import Default, defaults_of
from rocketpy.consuming.balance import Balance
from rocketpy.errors import InvalidArgumentError

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
"""Seconds, or a timedelta."""

MAX_SECONDS = 3.2e9
"""Longest duration that is accepted: 100 years, as in the extension module."""


def duration_seconds(name: str, given: Duration) -> float:
    """A duration in seconds.

    Args:
        name: Name of the argument, for the error.
        given: Its value.

    Raises:
        TypeError: It is no number and no timedelta.
        InvalidArgumentError: It is negative, or longer than 100 years.

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

A tag in an expression may hold blanks. What is surely another language is refused: `UA|AA`, `UA,AA`, `UA OR AA`,
`tag = 'UA'`. In a list a tag may hold these signs too, but not `||`, which separates tags on the wire.
"""

Compression: TypeAlias = Literal["zlib", "lz4", "zstd"]
"""How large bodies are compressed. Every client reads zlib; lz4 and zstd need consumers of version 5."""


class SendStatus(enum.StrEnum):
    """How far an acknowledged message got. Every status means that the message is stored."""

    SEND_OK = "SEND_OK"
    """Stored as the broker's flush and replication policy asks."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but the flush was not confirmed in time: a power cut may lose it."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored, but replication was not confirmed in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored, but no slave was connected."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a group begins in a queue for which it has no stored offset. A stored offset always wins.

    The default is `EARLIEST`: what was sent before the group was there, such as by a program that started first, is
    read and not skipped. A group that wants only what is sent from now on says `LATEST`.

    The first member to read a queue from `LATEST` or from `at(...)` stores where it began, also without `auto_commit`.
    Until the first commit, the next reader of the queue begins there too, and nothing that arrives in between
    is skipped.

    Examples:
        >>> from datetime import datetime, timezone
        >>> Start.EARLIEST
        Start('earliest')
        >>> Start.at(datetime(2013, 1, 1, tzinfo=timezone.utc))
        Start('timestamp', 1356998400000)
    """

    kind: Literal["earliest", "latest", "timestamp", "stored"]
    """Which rule applies."""
    at_ms: int | None = None
    """Milliseconds since 1970 UTC, for `timestamp` only."""

    EARLIEST: ClassVar["Start"]
    """The oldest message that is there."""
    LATEST: ClassVar["Start"]
    """Messages that arrive from now on."""
    STORED: ClassVar["Start"]
    """Only where the group stopped. A queue without a stored offset is an error."""

    @classmethod
    def at(cls, instant: Instant) -> "Start":
        """The first message stored at or after a point in time.

        Args:
            instant: Seconds since 1970 UTC, a datetime, or text as for `of`. Without a time zone it is local time.

        Raises:
            InvalidArgumentError: The text is no point in time, or the number counts milliseconds.
        """
        return cls("timestamp", instant_ms(instant))

    @classmethod
    def of(cls, start: "Start | str | datetime") -> "Start":
        """A start as people write it.

        Args:
            start: A start; `"earliest"`, `"latest"` or `"stored"`; or a point in time: a datetime, ISO 8601, or how
                long ago, such as `"-10m"`.

        Raises:
            TypeError: It is a number or another type.
            InvalidArgumentError: The text is no start.

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
    """The pause before another attempt of a send at the broker that failed last. Another broker is tried at once.

    Examples:
        >>> Backoff(first=0.2, longest=5)
        Backoff(first=0.2, factor=2.0, longest=5, jitter=0.2)
    """

    first: Duration = 0.05
    """The first pause; 0 for none at all."""
    factor: float = 2.0
    """How many times longer each pause is than the one before, from 1."""
    longest: Duration = 1.0
    """No pause is longer, apart from its jitter."""
    jitter: float = 0.2
    """By which part of itself a pause is longer or shorter at random, from 0 to 1, so that clients that failed together
    do not come back together."""

    def __post_init__(self) -> None:
        duration_seconds("first", self.first)
        duration_seconds("longest", self.longest)


@dataclass(frozen=True, slots=True)
class Tls:
    """How a client encrypts its connections. Clients refuse it: they have no TLS yet."""

    ca_file: str | None = None
    """Certificates that are trusted, in a PEM file; None: those of the system."""
    cert_file: str | None = None
    """Certificate of the client, in a PEM file."""
    key_file: str | None = None
    """Key of that certificate, in a PEM file."""
    verify: bool = True
    """Whether the certificate and the name of a server are checked."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who a client is. Clients refuse it: they have no access control yet."""

    access_key: str
    """Name of the user."""
    secret_key: str = field(repr=False)
    """Its secret, which signs requests and is never sent."""
    security_token: str | None = field(default=None, repr=False)
    """Token of a temporary access."""


class ClientOptions(TypedDict, total=False):
    """Options that every client takes."""

    instance_name: Annotated["str | None", Default(None)]
    """Part of the client id after `@`. Default None: a unique one.

    Clients of one process with the same name and name servers share connections, routes and heartbeats. They must have
    the same `connect_timeout`, and hold each group once: a second consumer of a group needs another name. In another
    process nothing refuses one with the same client id: both get the same messages, and log a warning.
    """
    client_ip: Annotated["str | None", Default(None)]
    """Address shown in the client id. Default None: the local address used to reach the first name server."""
    unit_name: Annotated["str | None", Default(None)]
    """Unit appended to the client id. Default None."""
    api_timeout: Annotated["Duration", Default(3.0)]
    """Time for a route, heartbeat, membership or administration call. Default 3 s."""
    connect_timeout: Annotated["Duration", Default(3.0)]
    """Time for one TCP connect. Default 3 s."""
    tls: Annotated["Tls | bool | None", Default(None)]
    """Not supported yet: anything but None and False is refused. Default None."""
    credentials: Annotated["Credentials | None", Default(None)]
    """Not supported yet: anything but None is refused. Default None."""


CLIENT_DEFAULTS: ClientOptions = defaults_of(ClientOptions)
"""Default of every option, for signatures; the extension module has them of its own."""


class ProducerOptions(ClientOptions, total=False):
    """Options of `rocketpy.Producer`, all by keyword."""

    send_timeout: Annotated["Duration", Default(3.0)]
    """Budget of one send, all attempts together. Default 3 s."""
    retries: Annotated["int", Default(2)]
    """Attempts after the first, at other brokers where there are some, all with one `msg_id`. A message with an order
    key or a queue is not tried again once it may be stored. Default 2."""
    backoff: Annotated["Backoff", Default(Backoff())]
    """The pause before another attempt at the broker that failed; another broker is tried at once. Default `Backoff()`:
    50 ms, then twice as long each time up to 1 s, a fifth more or less at random."""
    selector: Annotated["Selector", Default("round_robin")]
    """How the queue of a message is chosen that has neither a queue nor an order key: `"round_robin"` (the default),
    `"random"`, or `"least_latency"`: in turn, without brokers that failed, for 10 s and until they answer again, or
    that took 0.55 s or longer, for 2 s to 30 s. Or a function `(queues, message)` that returns one of the queues; it
    is also asked for messages with an order key, and its queue counts like one that is given to the call."""
    max_message_size: Annotated["int", Default(4 << 20)]
    """Largest body in bytes, before compression. Default 4 MiB."""
    compression: Annotated["Compression | None", Default("zlib")]
    """How large bodies of single sends are compressed; None never does. Default `"zlib"`."""
    compress_over: Annotated["int", Default(4096)]
    """Bodies of this many bytes or more are compressed. Default 4096."""
    compression_level: Annotated["int", Default(5)]
    """Level of the compression. Default 5."""
    window_messages: Annotated["int", Default(16_384)]
    """Maximum number of unacknowledged messages of `submit`. Default 16384."""
    window_bytes: Annotated["int", Default(64 << 20)]
    """Maximum unacknowledged body bytes of `submit`; each body counts as 1 KiB at least. Default 64 MiB."""
    batch_messages: Annotated["int", Default(1024)]
    """Maximum number of messages in one wire batch of `send_many`. Default 1024."""
    batch_bytes: Annotated["int", Default(512 << 10)]
    """Maximum bytes of one wire batch. Default 512 KiB."""
    requests_in_flight: Annotated["int", Default(8)]
    """Maximum concurrent requests of one `send_many`, and of the submitted messages of one topic. Default 8."""
    linger: Annotated["Duration", Default(0.0)]
    """How long a submitted message may wait for others to share its request. Default 0 s: while one is under way."""
    default_topic_queues: Annotated["int", Default(4)]
    """Queues asked for when the broker creates a topic by itself. Default 4."""
    trace: Annotated["bool", Default(False)]
    """Whether a trace of each acknowledged message is written to the trace topic, for `Admin.trace`. Default False."""
    trace_topic: Annotated["str | None", Default(None)]
    """Another topic for traces; it switches them on. Default None: `RMQ_SYS_TRACE_TOPIC`."""
    namespace: Annotated["str | None", Default(None)]
    """Stands before the names of group and topics at the brokers, as `namespace%orders`; messages and queues have them
    without it. `Admin` takes names as they are at the brokers. Default None."""


PRODUCER_DEFAULTS: ProducerOptions = defaults_of(ProducerOptions, CLIENT_DEFAULTS)
"""The same for producers."""
PATIENT: ClientOptions = {"api_timeout": 30.0}
"""For commands, which a user can interrupt: they wait for a stalled disk rather than leave the outcome open."""
PATIENT_SENDS: ProducerOptions = {"api_timeout": 30.0, "send_timeout": 30.0}
"""The same for producers."""


class MemberOptions(ClientOptions, total=False):
    """Options of every member of a consumer group, polled or with handlers."""

    start: Annotated["Start | str | datetime", Default(Start.EARLIEST)]
    """Where a group begins that has no stored offset for a queue: `Start.EARLIEST` (the default: nothing is skipped),
    `Start.LATEST`, `Start.at(...)`, `Start.STORED`, or text as for `Start.of`. The place is then stored."""
    balance: Annotated["Balance | str | Allocate", Default(Balance.AVERAGE)]
    """How the members of the group share queues; all must say the same. `Balance.AVERAGE` (the default), `CIRCLE`,
    `CONSISTENT_HASH` or `Balance.by_configuration(...)` and its like; `"average"`, `"circle"` or `"consistent_hash"`;
    or a function `(group, client_id, queues, members)` that returns the queues of this member, called for each topic
    at every change and every 20 s, in a thread of its own. What it raises is logged and the queues stay as they are,
    also when it takes longer than 10 s."""
    on_assigned: Annotated["QueuesCallback | None", Default(None)]
    """Called as `on_assigned(consumer, queues)` with queues that this member gained, before a message of them is handed
    out. `poll` calls it, or for handlers a thread of its own. For an `AsyncConsumer`, and for handlers, it may be an
    `async def`: that runs in their event loop. What it raises is logged, and counted by `stats()`. Default None."""
    on_revoked: Annotated["QueuesCallback | None", Default(None)]
    """Called in the same way with queues that this member loses, and at the close with all. Until it returns they are
    kept and can be committed, but at most for `handover_timeout`. Default None."""
    handover_timeout: Annotated["Duration", Default(5.0)]
    """How long a queue that goes to another member is kept while its messages are worked on: until all of them are
    committed, or with `auto_commit` until the next poll, or until the handlers that have them are done; and at most
    this long. The other member begins after that. Default 5 s, at most 1 h; 0 gives queues up at once and waits for
    nobody."""
    unreachable_timeout: Annotated["Duration | None", Default(60.0)]
    """Time without an answer of any broker after which `poll` and iteration raise `ConnectionFailedError`, or a
    consumer with handlers logs an error; and again after each such time. Default 60 s; None for never."""
    prefetch_messages: Annotated["int", Default(16_384)]
    """Maximum number of messages of a queue that are prefetched. With handlers, from the first on that is not
    finished. Default 16384."""
    prefetch_bytes: Annotated["int", Default(16 << 20)]
    """Maximum bytes of messages of a queue that are prefetched, or that handlers work on. Default 16 MiB."""
    prefetch_total_bytes: Annotated["int", Default(128 << 20)]
    """Maximum bytes prefetched, for all queues together. Default 128 MiB."""
    pull_messages: Annotated["int", Default(4096)]
    """Maximum number of messages requested by one pull. Default 4096."""
    pull_bytes: Annotated["int", Default(1 << 20)]
    """Maximum bytes requested by one pull. Default 1 MiB."""
    suspend: Annotated["Duration", Default(15.0)]
    """Time for which the broker may hold a pull that finds nothing. Default 15 s."""
    pull_timeout: Annotated["Duration", Default(30.0)]
    """Time for one pull, longer than `suspend`. Default 30 s."""
    allow_missing_topic: Annotated["bool", Default(False)]
    """Starts even if a topic does not exist yet, and waits for it. Default False: an error."""
    allow_other_subscriptions: Annotated["bool", Default(False)]
    """Joins and goes on while another live member of the group subscribes to other topics or tags, as during a change
    of all members' tags. Default False: the start raises `GroupConflictError` if that member is in this process;
    otherwise `poll` does, or a consumer with handlers logs an error."""
    max_body_bytes: Annotated["int | None", Default(None)]
    """Largest body when decompressed. Default None: 64 MiB, above 16 MiB at most a hundred times what is stored."""
    trace: Annotated["bool", Default(False)]
    """Whether a trace of each message is written to the trace topic when it is handed out, and when it is committed or
    its handler ends, for `Admin.trace`. Default False."""
    trace_topic: Annotated["str | None", Default(None)]
    """Another topic for traces; it switches them on. Default None: `RMQ_SYS_TRACE_TOPIC`."""
    namespace: Annotated["str | None", Default(None)]
    """Stands before the names of group and topics at the brokers, as `namespace%orders`; messages and queues have them
    without it. `Admin` takes names as they are at the brokers. Default None."""


MEMBER_DEFAULTS: MemberOptions = defaults_of(MemberOptions, CLIENT_DEFAULTS)
"""Default of every option of a member."""


class ConsumerOptions(MemberOptions, total=False):
    """Options of `rocketpy.Consumer`, all by keyword."""

    tags: Annotated["Tags | Mapping[str, Tags]", Default("*")]
    """Which tags to receive; filtered in the broker. `"*"` (the default) for all messages, `"UA || AA"`, or
    `["UA", "AA"]`, whose tags may hold anything; or such a value by topic: `{"orders": "UA", "audit": "*"}`."""
    sql: Annotated["str | Mapping[str, str] | None", Default(None)]
    """Which messages to receive, as an SQL92 expression over their properties; filtered in the broker:
    `"a > 3 AND b IS NOT NULL"`. Or such by topic, `{"orders": "price > 9"}`: other topics come by `tags`, which one
    topic cannot have beside it. Default None: all that `tags` let through."""
    auto_commit: Annotated["Duration | bool | None", Default(False)]
    """Interval at which to commit the messages returned before the latest poll, more than 0 s and at most 1 h; True for
    every second; False or None (the default) for never."""
    retry_topic: Annotated["bool", Default(False)]
    """Also reads the group's retry topic, as Apache's push consumers do. The first topic of such a message stands in
    its property `RETRY_TOPIC`. Default False."""


CONSUMER_DEFAULTS: ConsumerOptions = defaults_of(ConsumerOptions, MEMBER_DEFAULTS)
"""Default of every option of a consumer."""


CONCURRENCY = 16
HANDLER_SECONDS = 900.0
STOP_SECONDS = 30.0


class PushOptions(MemberOptions, total=False):
    """Options of `rocketpy.PushConsumer`, all by keyword."""

    concurrency: Annotated["int", Default(CONCURRENCY)]
    """Most handlers that run at the same time, from 1 to 1000. Each has a thread, or a task if it is `async def`.
    Default 16."""
    max_retries: Annotated["int", Default(16)]
    """How many times a message comes again before it goes to the dead letters. Default 16."""
    handler_timeout: Annotated["Duration", Default(HANDLER_SECONDS)]
    """Time after which a message whose handler has not returned is sent back, and the handler no longer waited for. A
    task is then cancelled; a thread cannot be, and another is started beside it. Not with `ordered`. Default 900 s."""
    stop_timeout: Annotated["Duration", Default(STOP_SECONDS)]
    """How long a stop waits for handlers that run, and then for `on_revoked`. Messages of handlers that run longer come
    again. Default 30 s."""
    ordered: Annotated["bool", Default(False)]
    """Gives the messages of each queue to their handler one after the other, and one that failed again in its place,
    before those behind it. Default False: side by side."""
    retry_pause: Annotated["Duration", Default(1.0)]
    """Pause before that. Default 1 s."""
    broadcast: Annotated["bool", Default(False)]
    """Each member gets all messages, and keeps its offsets in a file. What fails does not come again. Give each member
    on a machine an `instance_name` of its own; it finds its file by that. Default False: the members share the
    messages."""
    offsets_folder: Annotated["str | os.PathLike[str] | None", Default(None)]
    """Folder for the files of offsets of `broadcast`. Default None: `.rocketmq_offsets` in the home folder, as Apache's
    clients."""


PUSH_DEFAULTS: PushOptions = defaults_of(PushOptions, MEMBER_DEFAULTS)
"""Default of every option of a push consumer."""

"""Statistics of clients: values of `stats()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from rocketpy.message import MessageQueue

__all__ = ["ConsumerStats", "Latency", "ProducerStats", "PushStats", "QueueStats", "Traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic in one direction since the client was created."""

    requests: int
    """Number of requests; a batch of messages is one."""
    messages: int
    """Number of messages."""
    bytes: int
    """Bytes of the messages."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Times of a producer's acknowledged requests, or of calls of handlers, in seconds.

    A request lasts from its first attempt to its acknowledgement; the time for which a message of `submit` waits for
    others is not included. Percentiles cover the last one to two minutes, with an error of at most 1 % up to 60 s; None
    when nothing ended then.
    """

    count: int
    """Number of all times."""
    total: float
    """Sum of all times."""
    p50: float | None
    """Half of the times are at most this long."""
    p90: float | None
    """90 % of the times are at most this long."""
    p99: float | None
    """99 % of the times are at most this long."""
    p999: float | None
    """99.9 % of the times are at most this long."""
    max: float | None
    """Maximum time."""


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """Statistics of a producer since it was created, and the use of its window.

    Bytes are those of bodies before compression. Messages that are refused at once as invalid are not counted.

    Examples:
        >>> import rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> with server.admin() as admin:
        ...     admin.create_topic("counted-doc", queues=4)
        >>> with server.producer("counting") as producer:
        ...     _ = producer.send_many([rocketpy.Message("counted-doc", b"text") for _ in range(100)])
        ...     stats = producer.stats()
        >>> stats.sent
        Traffic(requests=1, messages=100, bytes=400)
        >>> stats.failed.messages, 0 < stats.latency.p50 <= stats.latency.max
        (0, True)
    """

    sent: Traffic
    """Messages acknowledged by a broker."""
    failed: Traffic
    """Messages that ended with an error, or were not sent because of an earlier error. With `may_have_been_applied`
    they may be stored."""
    retried: Traffic
    """Messages sent again after a failed attempt; each further attempt counts. Their outcome is in `sent` or
    `failed`."""
    unknown: Traffic
    """Messages whose outcome was not awaited: after Ctrl-C, or after a reply that arrived before the
    acknowledgement."""
    oneway: Traffic
    """Messages sent by `send_oneway`. Whether they were stored is unknown."""
    latency: Latency
    """Times of the acknowledged requests; `count` equals `sent.requests`."""
    in_flight_messages: int
    """Number of messages of `submit`, and of sends of an `AsyncProducer`, without an outcome."""
    in_flight_bytes: int
    """Bytes of these messages in the window, where each body counts in steps of 1 KiB."""
    window_messages: int
    """Maximum of `in_flight_messages`: the option `window_messages`."""
    window_bytes: int
    """Maximum of `in_flight_bytes`: the option `window_bytes`."""
    failing_since: datetime | None = None
    """Time of the first retryable failure of a send since the last acknowledgement; None if there was none."""

    @property
    def window_use(self) -> float:
        """Use of the window, from 0 to 1. At 1 `submit` waits."""
        return max(self.in_flight_messages / self.window_messages, self.in_flight_bytes / self.window_bytes)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Position of a consumer in a queue."""

    queue: MessageQueue
    """The queue."""
    position: int | None
    """Offset after the last returned message, or with handlers of the first message that no handler has finished; None
    until the start is known."""
    end: int | None
    """Offset after the newest message at the last answer to a pull; None before."""
    prefetched_messages: int
    """Number of messages that wait for a poll or a handler."""
    prefetched_bytes: int
    """Their bytes."""
    paused: bool
    """Whether the queue is paused."""

    @property
    def lag(self) -> int | None:
        """Number of messages from `position` to `end`, as last known; None before the first answer to a pull."""
        if self.position is None or self.end is None:
            return None
        return max(0, self.end - self.position)


class _Queues:
    """Sums over the queues of a member."""

    __slots__ = ()
    queues: tuple[QueueStats, ...]

    @property
    def lag(self) -> int:
        """Number of messages after the positions of all queues, as last known."""
        return sum(queue.lag or 0 for queue in self.queues)

    @property
    def prefetched_messages(self) -> int:
        """Number of messages of all queues that wait for a poll or a handler."""
        return sum(queue.prefetched_messages for queue in self.queues)

    @property
    def prefetched_bytes(self) -> int:
        """Their bytes."""
        return sum(queue.prefetched_bytes for queue in self.queues)


@dataclass(frozen=True, slots=True)
class ConsumerStats(_Queues):
    """Statistics of a consumer since it was created, and its positions in its queues.

    Bytes are those of stored records: compressed bodies, properties and 91 bytes or more a message.

    The ends of queues, and so the lag, are those of the last answers to pulls. They become outdated while no pull is
    made: when the queue is paused, or the prefetch limit is reached. `Consumer.lag()` queries the brokers.

    Examples:
        >>> import rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> with server.admin() as admin:
        ...     admin.create_topic("behind-doc", queues=4)
        >>> with server.producer("ingest") as producer:
        ...     _ = producer.send_many([rocketpy.Message("behind-doc", b"text") for _ in range(100)])
        >>> with server.consumer("behind", "behind-doc") as consumer:
        ...     messages = consumer.poll(max_messages=10, timeout=60)
        ...     stats = consumer.stats()
        >>> stats.received.messages, stats.lag
        (10, 90)
    """

    received: Traffic
    """Messages returned; a request is a call that returned messages. Messages of a cancelled call count again when they
    are returned later."""
    pulled: Traffic
    """Messages prefetched from brokers, in answers with messages. Includes messages dropped later, as by a `seek`."""
    failed_pulls: int
    """Number of failed pull requests. They are repeated."""
    queues: tuple[QueueStats, ...]
    """Currently assigned queues of this member, sorted."""
    failed_callbacks: int = 0
    """Number of calls of `on_assigned` and `on_revoked` that raised."""


NO_TIMES = Latency(0, 0.0, None, None, None, None, None)
"""Times before the first one."""


@dataclass(frozen=True, slots=True)
class PushStats(_Queues):
    """Outcomes of messages since the start of a push consumer, times of its handlers, and its positions in its queues.

    The lag counts messages that no handler has finished, and those finished after them: as in `Admin.group_lag`, a
    message is done when its offset can be committed. The ends of queues are those of the last answers to pulls, as in
    `ConsumerStats`. Bytes are those of stored records.

    Examples:
        >>> import rocketpy, threading
        >>> server = getfixture("rocketpy_server")
        >>> with server.admin() as admin:
        ...     admin.create_topic("pushed-doc", queues=4)
        >>> with server.producer("shop") as producer:
        ...     _ = producer.send_many([rocketpy.Message("pushed-doc", b"text") for _ in range(3)])
        >>> mailer, done = server.push_consumer("pushed-doc"), threading.Semaphore(0)
        >>> @mailer.on("pushed-doc")
        ... def mail(message):
        ...     done.release()
        >>> with mailer:
        ...     _ = [done.acquire(timeout=60) for _ in range(3)]
        >>> stats = mailer.stats()
        >>> stats.consumed, stats.failed, stats.handling.count
        (3, 0, 3)
    """

    consumed: int
    """Number of messages whose handler returned."""
    failed: int
    """Number of messages whose handler raised or exceeded its timeout; each time counts."""
    timed_out: int
    """Number of messages in `failed` whose handler exceeded `handler_timeout`."""
    sent_back: int
    """Number of messages sent back to the broker, which delivers them to the group again later."""
    dead: int
    """Number of messages moved to the dead letters of the group."""
    unfinished: int
    """Number of messages that handlers are processing, or that are being sent back."""
    failed_callbacks: int = 0
    """Number of calls of `on_assigned` and `on_revoked` that raised."""
    handling: Latency = NO_TIMES
    """Times of calls of handlers that returned, raised, or exceeded `handler_timeout`, which then counts as their
    time."""
    queues: tuple[QueueStats, ...] = ()
    """Currently assigned queues of this member, sorted, with those of the group's retry topic."""
    hung: int = 0
    """Number of calls of handlers that exceeded `handler_timeout` and have not returned: hung threads, and tasks until
    their cancellation. Their messages are sent back, and not in `unfinished`. Always 0 with `ordered`."""
    stalled: bool = False
    """Whether all handler threads hang, replacements included: this member takes no more messages for them."""

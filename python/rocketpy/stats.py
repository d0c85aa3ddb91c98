"""What clients count: values of `stats()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketpy.message import MessageQueue

__all__ = ["ConsumerStats", "Latency", "ProducerStats", "PushStats", "QueueStats", "Traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """How much went one way since the client was made."""

    requests: int
    """Number of requests; a batch of messages is one."""
    messages: int
    """Number of messages."""
    bytes: int
    """Bytes of the messages."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Times of the acknowledged requests of a producer, in seconds, each from its first attempt to its acknowledgement.

    The time that a message of `submit` waits for others is not part of it. Percentiles are those of the last one to two
    minutes, right to 1 % and up to 60 s; None when nothing was acknowledged then.
    """

    total: float
    """Sum of the times of all `sent.requests`."""
    p50: float | None
    """Half of the requests took at most this long."""
    p90: float | None
    """90 % of the requests took at most this long."""
    p99: float | None
    """99 % of the requests took at most this long."""
    p999: float | None
    """99.9 % of the requests took at most this long."""
    max: float | None
    """The longest time."""


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """What a producer sent since it was made, and how full its window is.

    Bytes are those of bodies before compression. What is refused at once because it breaks a rule counts nowhere.

    Examples:
        >>> import rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> with server.producer("counting") as producer:
        ...     _ = producer.send_many([rocketpy.Message("counted-doc", b"text") for _ in range(100)])
        ...     stats = producer.stats()
        >>> stats.sent
        Traffic(requests=1, messages=100, bytes=400)
        >>> stats.failed.messages, 0 < stats.latency.p50 <= stats.latency.max
        (0, True)
    """

    sent: Traffic
    """Acknowledged by a broker."""
    failed: Traffic
    """Ended with an error, or not sent because of one before. With `may_have_been_applied` they may be stored."""
    retried: Traffic
    """Sent again after a failed attempt; each further attempt counts. Their outcome is in `sent` or `failed`."""
    unknown: Traffic
    """Nobody waited for the outcome any longer: after Ctrl-C, or after a reply that came before the acknowledgement."""
    oneway: Traffic
    """Sent by `send_oneway`. Whether they were stored is not known."""
    latency: Latency
    """Times of the acknowledged requests."""
    in_flight_messages: int
    """Messages of `submit`, and of sends of an `AsyncProducer`, without an outcome."""
    in_flight_bytes: int
    """Their bytes in the window, where a body counts in steps of 1 KiB."""
    window_messages: int
    """Most `in_flight_messages`: the option `window_messages`."""
    window_bytes: int
    """Most `in_flight_bytes`: the option `window_bytes`."""

    @property
    def window_use(self) -> float:
        """How full the window is, from 0 to 1. At 1 `submit` waits."""
        return max(self.in_flight_messages / self.window_messages, self.in_flight_bytes / self.window_bytes)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Where a consumer stands in a queue."""

    queue: MessageQueue
    """The queue."""
    position: int | None
    """Offset after the last message returned; None until the start is known."""
    end: int | None
    """Offset after the newest message when the broker last answered a pull; None before."""
    prefetched_messages: int
    """Messages that wait for a poll."""
    prefetched_bytes: int
    """Their bytes."""
    paused: bool
    """Whether it is paused."""

    @property
    def lag(self) -> int | None:
        """Messages between the last one returned and the end, as last known; None before the first answer to a pull."""
        if self.position is None or self.end is None:
            return None
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """What a consumer received since it was made, and where it stands in its queues.

    Bytes are those of stored records: compressed bodies, properties and 91 bytes or more a message.

    The ends of queues, and so the lag, come from answers to pulls. They grow old while no pull is made: when the queue
    is paused, or as much is prefetched as may be. `Consumer.lag()` asks the brokers.

    Examples:
        >>> import rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> with server.producer("ingest") as producer:
        ...     _ = producer.send_many([rocketpy.Message("behind-doc", b"text") for _ in range(100)])
        >>> with server.consumer("behind", "behind-doc") as consumer:
        ...     messages = consumer.poll(max_messages=10, timeout=60)
        ...     stats = consumer.stats()
        >>> stats.received.messages, stats.lag
        (10, 90)
    """

    received: Traffic
    """Returned; a request is a call that got messages. What a cancelled call gave back counts again later."""
    pulled: Traffic
    """Prefetched from brokers, in answers with messages. Includes what was dropped later, as by a `seek`."""
    failed_pulls: int
    """Requests for messages that failed. They are repeated."""
    queues: tuple[QueueStats, ...]
    """The queues assigned to this member now, sorted."""
    failed_callbacks: int = 0
    """Calls of `on_assigned` and `on_revoked` that raised."""

    @property
    def lag(self) -> int:
        """Messages between the last ones returned and the ends of all queues, as last known."""
        return sum(queue.lag or 0 for queue in self.queues)

    @property
    def prefetched_messages(self) -> int:
        """Messages that wait for a poll, of all queues."""
        return sum(queue.prefetched_messages for queue in self.queues)

    @property
    def prefetched_bytes(self) -> int:
        """Their bytes."""
        return sum(queue.prefetched_bytes for queue in self.queues)


@dataclass(frozen=True, slots=True)
class PushStats:
    """What became of messages since a push consumer started.

    Examples:
        >>> import rocketpy, threading
        >>> server = getfixture("rocketpy_server")
        >>> with server.producer("shop") as producer:
        ...     _ = producer.send_many([rocketpy.Message("pushed-doc", b"text") for _ in range(3)])
        >>> mailer, done = server.push_consumer("pushed-doc"), threading.Semaphore(0)
        >>> @mailer.on("pushed-doc")
        ... def mail(message):
        ...     done.release()
        >>> with mailer:
        ...     _ = [done.acquire(timeout=60) for _ in range(3)]
        >>> mailer.stats()
        PushStats(consumed=3, failed=0, timed_out=0, sent_back=0, dead=0, unfinished=0, failed_callbacks=0)
    """

    consumed: int
    """Handlers returned for them."""
    failed: int
    """Handlers raised for them, or did not return in time; each time counts."""
    timed_out: int
    """Of those, handlers did not return within `handler_timeout`."""
    sent_back: int
    """The broker has them, and gives them to the group again later."""
    dead: int
    """They went to the dead letters of the group."""
    unfinished: int
    """Handlers work on them now, or they are being sent back."""
    failed_callbacks: int = 0
    """Calls of `on_assigned` and `on_revoked` that raised."""

"""Real server for tests, which starts fast on free ports, for unittest and for programs in any language.

The pytest fixtures in `rocketpy.testing` use it. It requires only Python.

`rocketpy testkit -- COMMAND` runs a command with its own server: clients in Java, Go and Python read its address from
the environment variable `NAMESRV_ADDR`.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
import unittest
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import rocketpy
from rocketpy import _rocketpy
from rocketpy.base.clock import monotonic
from rocketpy.config import duration_seconds
from rocketpy.servers.clock_service import serve_clock
from rocketpy.servers.leftovers import PATIENCE_SECONDS, nothing_left

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from typing import Self, Unpack

    from rocketpy.codec import Codec
    from rocketpy.config import ClientOptions, ConsumerOptions, Duration, ProducerOptions, PushOptions
    from rocketpy.consuming.consumer import V
    from rocketpy.message import MessageQueue
    from rocketpy.servers.server import Setting

__all__ = [
    "AsyncClients",
    "PatientServer",
    "RocketPyTestCase",
    "drain",
    "drain_async",
    "fresh_name",
    "nothing_left",
    "serve_clock",
    "temporary_server",
    "wait_until_consumed",
]

SMALL_FILES = {"mappedFileSizeCommitLog": 16 << 20, "mappedFileSizeConsumeQueue": 20 * 10_000}
"""Small log files for tests: a store of 64 MiB files is slow to create and to remove."""
TEST_SETTINGS = {**SMALL_FILES, "autoCreateTopicEnable": False, "traceTopicEnable": True}
"""Settings of a test server: a wrong topic name fails, as in production, and does not create a topic."""
QUEUES = 4
"""Default number of queues of a topic for tests."""
NOT_READY = "has no queues, or has not received their start offsets"
PACE_SECONDS = 0.01
"""Pause between two requests to the brokers."""


class PatientServer(rocketpy.Server):
    """Server whose clients wait for a stalled disk on a busy machine, and whose clock can be advanced."""

    __slots__ = ("_advanced_ms",)

    def start(self) -> Self:
        """Starts the server with the system clock, as `rocketpy.Server.start`."""
        if self._closed:
            self._advanced_ms = 0
        return super().start()

    def advance(self, by: Duration) -> None:
        """Advances the clock until the server stops: due messages are delivered within a second.

        This applies to delays (`delay`, `delay_level`, `deliver_at`), retries, and check-backs of transactions. All
        servers and clients of this process use the clock, also for the times of messages. The clock of Python
        (`time.time()`) and the timeouts of calls, handlers and locks do not change.

        Args:
            by: Seconds, or a timedelta; from 0.

        Examples:
            >>> with temporary_server() as server, server.admin() as admin, server.producer("shop") as producer:
            ...     admin.create_topic("reminders")
            ...     _ = producer.send(rocketpy.Message("reminders", b"pay", delay=3600))
            ...     with server.consumer("mailer", "reminders", start="earliest") as consumer:
            ...         server.advance(3600)
            ...         [message.body for message in consumer.poll(timeout=60)]
            [b'pay']
        """
        self._running()
        moved_ms = int(duration_seconds("by", by) * 1000)
        self._advanced_ms += moved_ms
        _rocketpy.move_clock(moved_ms)

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            _rocketpy.move_clock(-self._advanced_ms)
            self._advanced_ms = 0

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> rocketpy.Producer:
        """Creates a producer with timeouts of one minute.

        Args:
            group: Name of the producer group.
            options: As for `rocketpy.Producer`.
        """
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        options.setdefault("send_timeout", PATIENCE_SECONDS)
        options.setdefault("attempt_timeout", PATIENCE_SECONDS)
        return super().producer(group, **options)

    def consumer(
        self,
        group: str,
        topic: str | Iterable[str],
        *,
        codec: Codec[V] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> rocketpy.Consumer[V]:
        """Creates a consumer with a timeout of one minute.

        Args:
            group: Name of the consumer group.
            topic: Name of the topic, or a list of names.
            codec: Decodes values of messages; default None.
            options: As for `rocketpy.Consumer`.
        """
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        return super().consumer(group, topic, codec=codec, **options)

    def push_consumer(self, group: str, **options: Unpack[PushOptions]) -> rocketpy.PushConsumer:
        """Creates a push consumer with a timeout of one minute.

        Args:
            group: Name of the consumer group.
            options: As for `rocketpy.PushConsumer`.
        """
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        return super().push_consumer(group, **options)

    def admin(self, **options: Unpack[ClientOptions]) -> rocketpy.Admin:
        """Creates an administration client with a timeout of one minute.

        Args:
            options: As for `rocketpy.Admin`.
        """
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        return super().admin(**options)


class AsyncClients:
    """Creates clients of a test server for asyncio, with timeouts of one minute. Use each with `async with`.

    Args:
        server: The running server.

    Examples:
        >>> import asyncio, rocketpy
        >>> async def main(clients):
        ...     async with clients.admin() as admin, clients.producer("shop") as producer:
        ...         await admin.create_topic("orders", queues=4)
        ...         _ = await producer.send(rocketpy.Message("orders", b"a book"))
        ...         async with clients.consumer("billing", "orders") as consumer:
        ...             return [message.body for message in await drain_async(consumer)]
        >>> with temporary_server() as server:
        ...     asyncio.run(main(AsyncClients(server)))
        [b'a book']
    """

    def __init__(self, server: rocketpy.Server | rocketpy.Broker) -> None:
        self._server = server

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> rocketpy.AsyncProducer:
        """Creates a producer.

        Args:
            group: Name of the producer group.
            options: As for `rocketpy.AsyncProducer`.
        """
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        options.setdefault("send_timeout", PATIENCE_SECONDS)
        options.setdefault("attempt_timeout", PATIENCE_SECONDS)
        return rocketpy.AsyncProducer(group, name_servers=self._server.name_servers, **options)

    def consumer(
        self,
        group: str,
        topic: str | Iterable[str],
        *,
        codec: Codec[V] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> rocketpy.AsyncConsumer[V]:
        """Creates a consumer.

        Args:
            group: Name of the consumer group.
            topic: Name of the topic, or a list of names.
            codec: Decodes values of messages; default None.
            options: As for `rocketpy.AsyncConsumer`.
        """
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        servers = self._server.name_servers
        return rocketpy.AsyncConsumer(group, topic, codec=codec, name_servers=servers, **options)

    def push_consumer(self, group: str, **options: Unpack[PushOptions]) -> rocketpy.AsyncPushConsumer:
        """Creates a push consumer.

        Args:
            group: Name of the consumer group.
            options: As for `rocketpy.AsyncPushConsumer`.
        """
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        return rocketpy.AsyncPushConsumer(group, name_servers=self._server.name_servers, **options)

    def admin(self, **options: Unpack[ClientOptions]) -> rocketpy.AsyncAdmin:
        """Creates an administration client.

        Args:
            options: As for `rocketpy.AsyncAdmin`.
        """
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        return rocketpy.AsyncAdmin(name_servers=self._server.name_servers, **options)


def fresh_name(prefix: str = "test") -> str:
    """Returns a unique name for a topic or group.

    Args:
        prefix: Prefix of the name. Characters that a name cannot have become `-`.

    Examples:
        >>> fresh_name("orders[1]")
        'orders-1--...'
    """
    return f"{re.sub('[^a-zA-Z0-9_-]', '-', prefix)[:80]}-{uuid.uuid4().hex[:8]}"


@contextmanager
def temporary_server(
    *, host: str | None = None, settings: Mapping[str, Setting] | None = None
) -> Generator[PatientServer]:
    """Runs a server on free ports, in a folder that is removed at the end.

    Args:
        host: Host or address to listen on; default `127.0.0.1`. Containers and other machines need another one.
        settings: Configuration keys, in addition to those of test servers: small files, and
            `autoCreateTopicEnable=false`, so that the first send to an unknown topic fails.

    Yields:
        The running server.

    Examples:
        >>> with temporary_server() as server, server.admin() as admin, server.producer("shop") as producer:
        ...     admin.create_topic("orders", queues=4)
        ...     producer.send(rocketpy.Message("orders", b"a book")).queue_offset
        0
    """
    with tempfile.TemporaryDirectory(prefix="rocketpy-") as folder:
        store = Path(folder) / "store"
        with PatientServer(store, host=host, settings={**TEST_SETTINGS, **(settings or {})}) as server:
            yield server


class RocketPyTestCase(unittest.TestCase):
    """Base of unittest classes whose tests share a server: `self.server`.

    Examples:
        >>> class OrderTest(RocketPyTestCase):
        ...     def test_an_order_arrives(self):
        ...         topic = self.new_topic()
        ...         with self.server.producer("shop") as producer:
        ...             producer.send(rocketpy.Message(topic, b"a book"))
        ...         with self.server.consumer("billing", topic) as consumer:
        ...             self.assertEqual([message.body for message in drain(consumer)], [b"a book"])
        >>> result = unittest.TestResult()
        >>> unittest.defaultTestLoader.loadTestsFromTestCase(OrderTest).run(result).wasSuccessful()
        True
    """

    settings: ClassVar[Mapping[str, Setting]] = {}
    """Configuration keys of the server, set by the subclass."""
    server: ClassVar[PatientServer]
    """Server of the class. Give each test its own topics and groups."""

    @classmethod
    def setUpClass(cls) -> None:
        """Starts the server; it stops after the last test of the class."""
        super().setUpClass()
        cls.server = cls.enterClassContext(temporary_server(settings=cls.settings))

    def new_topic(self, queues: int = QUEUES) -> str:
        """Creates a topic for one test, and returns its name."""
        topic = fresh_name(self.id().rpartition(".")[2])
        with self.server.admin() as admin:
            admin.create_topic(topic, queues=queues)
        return topic


def drain(consumer: rocketpy.Consumer, *, timeout: Duration = PATIENCE_SECONDS) -> list[rocketpy.ReceivedMessage]:
    """Reads all messages that the queues of a consumer contain at the time of the call. Commits nothing.

    Args:
        consumer: A consumer that no other thread polls. In a group with several members, only its own queues are read.
        timeout: Maximum duration, in seconds.

    Returns:
        The messages, in order within each queue. Messages that are sent meanwhile may be included.

    Raises:
        RequestTimeoutError: The consumer did not reach the ends of its queues in time.
        TypeError: The consumer has another type. For an `AsyncConsumer` use `drain_async`.
    """
    if not isinstance(consumer, rocketpy.Consumer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"drain reads a rocketpy.Consumer, not {consumer!r}; drain_async reads an AsyncConsumer")
    deadline = monotonic() + duration_seconds("timeout", timeout)
    messages: list[rocketpy.ReceivedMessage] = []
    while not _is_ready(consumer):
        _check(deadline, timeout, f"{consumer!r} {NOT_READY}")
        time.sleep(PACE_SECONDS)
    ends = _ends(consumer.positions(), consumer.lag())
    while behind := _behind(consumer.positions(), ends):
        _check(deadline, timeout, f"{consumer!r} has not read {behind} messages")
        messages += consumer.poll(timeout=_step(deadline))
    return messages


async def drain_async(
    consumer: rocketpy.AsyncConsumer, *, timeout: Duration = PATIENCE_SECONDS
) -> list[rocketpy.ReceivedMessage]:
    """Reads all messages of a started `AsyncConsumer`, as `drain`.

    Args:
        consumer: A consumer that no other task polls.
        timeout: Maximum duration, in seconds.

    Raises:
        RequestTimeoutError: The consumer did not reach the ends of its queues in time.
        TypeError: The consumer has another type.

    Examples:
        >>> import asyncio, rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> with server.producer("shop") as producer:
        ...     _ = producer.send_many([rocketpy.Message("drain-doc", b"a book") for _ in range(10)])
        >>> async def main():
        ...     servers = server.name_servers
        ...     async with rocketpy.AsyncConsumer("billing", "drain-doc", name_servers=servers) as consumer:
        ...         return len(await drain_async(consumer))
        >>> asyncio.run(main())
        10
    """
    if not isinstance(consumer, rocketpy.AsyncConsumer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"drain_async reads a rocketpy.AsyncConsumer, not {consumer!r}; drain reads a Consumer")
    deadline = monotonic() + duration_seconds("timeout", timeout)
    messages: list[rocketpy.ReceivedMessage] = []
    while not _is_ready(consumer):
        _check(deadline, timeout, f"{consumer!r} {NOT_READY}")
        await asyncio.sleep(PACE_SECONDS)
    ends = _ends(consumer.positions(), await consumer.lag())
    while behind := _behind(consumer.positions(), ends):
        _check(deadline, timeout, f"{consumer!r} has not read {behind} messages")
        messages += await consumer.poll(timeout=_step(deadline))
    return messages


def _is_ready(consumer: rocketpy.Consumer | rocketpy.AsyncConsumer) -> bool:
    """Whether a consumer has queues with known start offsets."""
    assigned = consumer.assignment()
    return bool(assigned) and len(consumer.positions()) >= len(assigned)


def _ends(positions: dict[MessageQueue, int], lag: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
    """Current ends of the queues of a consumer."""
    return {queue: position + lag.get(queue, 0) for queue, position in positions.items()}


def _behind(positions: dict[MessageQueue, int], ends: dict[MessageQueue, int]) -> int:
    """Number of messages left to read, without queues that were reassigned to another member."""
    return sum(max(0, end - positions.get(queue, end)) for queue, end in ends.items())


def _step(deadline: float) -> float:
    """Timeout for a poll before the ends are checked again."""
    return min(1.0, max(0.0, deadline - monotonic()))


def wait_until_consumed(
    server: rocketpy.Server | rocketpy.Broker, group: str, topic: str, *, timeout: Duration = PATIENCE_SECONDS
) -> None:
    """Waits until a group has committed all messages that a topic contains at the time of the call.

    The members of the group may be any programs. Messages that wait for a retry, or in the group's retry topic, are not
    waited for.

    Args:
        server: The server.
        group: The consumer group, which may start later.
        topic: The topic.
        timeout: Maximum wait, in seconds.

    Raises:
        RequestTimeoutError: The group did not commit all messages in time.
        TopicNotFoundError: The topic does not exist.

    Examples:
        >>> import threading
        >>> server = getfixture("rocketpy_server")
        >>> with server.producer("ingest") as producer:
        ...     receipts = producer.send_many([rocketpy.Message("drained-doc", b"text") for _ in range(100)])
        >>> def work():  # in real tests, the program under test
        ...     with server.consumer("workers", "drained-doc", auto_commit=0.1) as consumer:
        ...         for message in consumer.messages(idle_timeout=1.0):
        ...             pass
        >>> thread = threading.Thread(target=work)
        >>> thread.start()
        >>> wait_until_consumed(server, "workers", "drained-doc")
        >>> thread.join()
    """
    deadline = monotonic() + duration_seconds("timeout", timeout)
    with server.admin(api_timeout=PATIENCE_SECONDS) as admin:
        ends = {queue: admin.next_offset(queue) for queue in admin.queues(topic)}
        while True:
            done = {queue: admin.committed_offset(group, queue) or 0 for queue in ends}
            left = sum(max(0, end - done[queue]) for queue, end in ends.items())
            if not left:
                return
            _check(deadline, timeout, f"group {group} has not committed {left} messages of topic {topic}")
            time.sleep(PACE_SECONDS)


def _check(deadline: float, timeout: Duration, problem: str) -> None:
    """Raises after the deadline."""
    if monotonic() >= deadline:
        raise rocketpy.RequestTimeoutError(
            f"{problem} after {duration_seconds('timeout', timeout):g} s",
            retryable=True,
            hint="check the log of the consumers; on a busy machine increase the timeout",
        )


if __name__ == "__main__":
    from rocketpy.cli import main

    sys.exit(main(["testkit", *sys.argv[1:]]))

"""Push consumers: messages are passed to handlers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import signal
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rocketpy.base.lifetime import Closing
from rocketpy.base.misuse import explained
from rocketpy.base.options import takes_options
from rocketpy.base.wakeup import StopRequest, stop_signals
from rocketpy.config import PUSH_DEFAULTS, PushOptions
from rocketpy.consuming.handlers import Reject, Retry
from rocketpy.consuming.member import OPTIONS_OF_HANDLERS, PushMember
from rocketpy.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Unpack

    from rocketpy.codec import Codec
    from rocketpy.config import Tags
    from rocketpy.consuming.consumer import ConsumerState
    from rocketpy.stats import PushStats

__all__ = ["PushConsumer", "Reject", "Retry"]

Function = TypeVar("Function", bound="Callable[..., Any]")

logger = logging.getLogger("rocketpy.client")

LOOP_SECONDS = 1.0
"""Maximum time for which `close` blocks an event loop: handlers may wait for tasks of this loop."""
LOOP_TEXT = (
    "%s() of push consumer of group %s blocks the event loop of its thread: "
    "use rocketpy.AsyncPushConsumer, whose handlers run in this loop, and %s"
)


@takes_options(PushOptions, PUSH_DEFAULTS, OPTIONS_OF_HANDLERS)
class PushConsumer(Closing):
    """Member of a consumer group that passes messages to handlers, up to `concurrency` at the same time.

    The end of a handler decides the outcome of its message:

    - The handler returns: the message is consumed.
    - The handler raises: the message is redelivered later, to any member, up to `max_retries` times, and then moved to
      the dead letters. Each attempt is logged as a warning, the last one with its traceback. `raise
      rocketpy.Retry(after=60)` sets the delay.
    - The handler raises `rocketpy.Reject`: the message is moved to the dead letters at once.
    - The handler exceeds `handler_timeout`: the message is redelivered later, and the handler is no longer waited for.

    Offsets are committed each second, and never past a message whose handler has not finished: after a crash these
    messages, and those finished after them, are redelivered. Make handlers repeatable (`reconsume_times` and `msg_id`
    identify a redelivered message).

    `run` works until SIGINT or SIGTERM; `start` and `stop`, or a `with` statement, work in the background.

    Args:
        group: Name of the consumer group.
        name_servers: `host:port` of each name server, as a list or as one text; default: the environment variable
            `NAMESRV_ADDR`.
        options: Keyword options, declared in `rocketpy.config.PushOptions`.

    Examples:
        >>> import rocketpy, threading
        >>> server = getfixture("rocketpy_server")
        >>> with server.producer("shop") as producer:
        ...     _ = producer.send(rocketpy.Message("push-doc", b"A-17", tag="paid"))
        >>> mailer = server.push_consumer("mailer")
        >>> sent, done = [], threading.Event()
        >>> @mailer.on("push-doc", tags="paid")
        ... def mail(message):
        ...     sent.append(message.body)
        ...     done.set()
        >>> with mailer:
        ...     _ = done.wait(60)
        >>> sent
        [b'A-17']
    """

    __slots__ = ("_is_starting", "_is_unwanted", "_member", "_starting", "_stop_asked")

    def __init__(
        self, group: str, *, name_servers: Iterable[str] | str | None = None, **options: Unpack[PushOptions]
    ) -> None:
        super().__init__()
        self._member = PushMember(group, name_servers, options)
        self._stop_asked = StopRequest()
        self._starting = threading.RLock()  # a signal handler may stop the consumer in the thread that starts it
        self._is_starting = self._is_unwanted = False

    @explained
    def on(
        self,
        topic: str,
        *,
        tags: Tags = "*",
        sql: str | None = None,
        batch: int | None = None,
        codec: Codec[Any] | None = None,
    ) -> Callable[[Function], Function]:
        """Returns a decorator that registers the handler of a topic, before the start.

        A handler takes a message. With `batch` it takes a list of at most that many messages of one queue; when it
        raises, all of them are redelivered. An `async def` runs as a task; the tasks of all handlers share one event
        loop, and none may block it.

        Args:
            topic: The topic. Each topic has one handler.
            tags: Tags to receive; the broker filters.
            sql: SQL92 expression over message properties, in place of tags; the broker filters: `"a > 3 AND b IS NOT
                NULL"`. Messages that are sent back are redelivered in any case.
            batch: Maximum number of messages in a list, from 1 to 4096. Default None: one message, not a list.
            codec: Decodes the `value` of a message, such as `JsonCodec(Order)`. A `DecodeError` that leaves the handler
                of one message moves the message to the dead letters at once: a retry does not help. In a batch it
                counts like any other error: catch it there.

        Raises:
            InvalidArgumentError: The topic already has a handler, the consumer was started, or both `tags` and `sql`
                are given.

        Examples:
            >>> import rocketpy
            >>> mailer = rocketpy.PushConsumer("mailer", name_servers="127.0.0.1:9876")
            >>> @mailer.on("orders", tags=["paid", "sent"], batch=32)
            ... def mail(messages):
            ...     print(len(messages))
        """
        return self._member.register(topic, tags, sql, batch, codec)

    def start(self) -> Self:
        """Joins the group and calls handlers in background threads. Does nothing if the consumer is running.

        Raises:
            InvalidArgumentError: The consumer has no handler, or a name, a tag expression or an option is invalid.
            TopicNotFoundError: A topic does not exist. See the option `allow_missing_topic`.
            GroupConflictError: Another member in this process subscribes to other topics or tags; or with `broadcast`
                another member uses the same offset file.
            AccessDeniedError: The user may not read a topic, or not as this group. A right that is revoked later does
                not end the consumer: it is logged as an error, and `state().denied` and `rocketpy.health` show it.
            ConnectionFailedError: No name server can be reached; a retry is safe.
            ClosedError: The consumer was stopped before or during the start.
        """
        with self._starting:
            self._is_unwanted = False
            if self._member.has_started:
                self._member.workers.check_open()
                return self
            self._is_starting = True
            try:
                joined = self._member.join()
                self._opened()
                self._member.begin(joined, self)
            finally:
                self._is_starting = False
            if self._is_unwanted:
                super().close()
                raise ClosedError(
                    f"the push consumer of group {self.group} was stopped during its start", hint="create a new one"
                )
        return self

    def run(self) -> None:
        """Starts the consumer, runs until SIGINT (Ctrl-C), SIGTERM or `stop` by another thread, and stops in order.

        A second signal ends the wait for handlers. Signals are caught only if this is called in the main thread.

        Raises:
            RocketPyError: As for `start` and `stop`.
        """
        if _blocks_a_loop():
            logger.warning(LOOP_TEXT, "run", self.group, "`await consumer.run()`")
        with stop_signals(self._on_signal):
            try:
                try:
                    self.start()
                except ClosedError:
                    if not self._is_unwanted:
                        raise
                self._stop_asked.wait()
            finally:
                self.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stop_asked.is_set():
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        self._stop_asked.set()

    def stop(self) -> None:
        """Stops in order: waits up to `stop_timeout` for running handlers, commits, and leaves the group.

        Handlers receive no new messages, except those already taken for them. A call inside a handler returns at once,
        and the stop follows. A call in the thread of a running event loop, whose tasks a handler may need, returns
        after 1 s at most with a warning, and the stop follows: use `AsyncPushConsumer` there.

        Raises:
            RequestTimeoutError: A broker did not answer the last commit: messages may be redelivered.
        """
        self.close()

    def close(self) -> None:
        """Stops the consumer, as `stop`."""
        self._stop_asked.set()
        if not self._member.workers.has_current_thread():
            if self._is_starting:
                self._is_unwanted = True
            if not self._is_elsewhere:
                with self._starting:  # waits for a start in another thread
                    pass
            if _blocks_a_loop() and not self._is_over() and not self._is_elsewhere:
                self._close_beside_a_loop()
            else:
                super().close()
        elif not self._closed:
            threading.Thread(target=super().close, name="rocketpy-push-stop").start()

    def _close_beside_a_loop(self) -> None:
        """Stops in another thread: the current one runs an event loop, which a handler may need to return."""
        ended: concurrent.futures.Future[None] = concurrent.futures.Future()

        def stop() -> None:
            try:
                super(PushConsumer, self).close()
            except BaseException as error:
                ended.set_exception(error)
            else:
                ended.set_result(None)

        threading.Thread(target=stop, name="rocketpy-push-stop").start()
        if concurrent.futures.wait([ended], LOOP_SECONDS).done:
            ended.result()
        else:
            logger.warning(LOOP_TEXT, "close", self.group, "`await consumer.close()`")
            ended.add_done_callback(self._note_stop)

    def _note_stop(self, ended: concurrent.futures.Future[None]) -> None:
        if (error := ended.exception()) is not None:
            logger.error("cannot stop push consumer of group %s in order: %s", self.group, error)

    def _begin_close(self) -> None:
        self._member.begin_stop(self._member.stop_timeout)

    def _close(self) -> None:
        self._member.stop()

    @property
    def group(self) -> str:
        """Name of the consumer group."""
        return self._member.group

    @property
    def client_id(self) -> str | None:
        """Id of this consumer at brokers and other members; None before the start."""
        return self._member.client_id

    def stats(self) -> PushStats:
        """Outcomes of messages since the start, times of handlers, and the lag as last known.

        Sends no request, and works after a stop.
        """
        return self._member.stats()

    def state(self) -> ConsumerState:
        """Assigned queues of this consumer, and which of its brokers answer. Sends no request."""
        return self._member.state()

    def __enter__(self) -> Self:
        """Starts the consumer if it has a handler; otherwise call `start` in the block."""
        return self.start() if self._member.has_handlers else self

    def __repr__(self) -> str:
        state = "not started" if not self._member.has_started else "stopped" if self._closed else "runs"
        return f"<PushConsumer of group {self.group!r} ({state})>"


def _blocks_a_loop() -> bool:
    """Whether a wait in the current thread blocks an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

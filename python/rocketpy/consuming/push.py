"""Push consumers: messages are passed to handlers."""

from __future__ import annotations

import signal
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rocketpy import _rocketpy
from rocketpy.base.lifetime import Closing
from rocketpy.base.names import check_type, check_unicode, name_server_list, path_text
from rocketpy.base.options import takes_options
from rocketpy.base.signature import check_function
from rocketpy.base.wakeup import StopRequest
from rocketpy.config import CONCURRENCY, HANDLER_SECONDS, PUSH_DEFAULTS, STOP_SECONDS, PushOptions, duration_seconds
from rocketpy.consuming.balance import Allocating, allocating
from rocketpy.consuming.consumer import ConsumerState, decode_by
from rocketpy.consuming.handlers import Handler, Reject, Retry
from rocketpy.consuming.rebalance import callbacks
from rocketpy.consuming.workers import END_SECONDS, Workers
from rocketpy.errors import ClosedError, InvalidArgumentError
from rocketpy.stats import PushStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Unpack

    from rocketpy.codec import Codec
    from rocketpy.config import Tags

__all__ = ["PushConsumer", "Reject", "Retry"]

Function = TypeVar("Function", bound="Callable[..., Any]")

MAX_CONCURRENCY = 1000
"""Maximum of `concurrency`; each handler runs in a thread or a task."""
MAX_BATCH = 4096
"""Maximum number of messages of a batch: the size of a pull."""
OFFSETS_FOLDER = ".rocketmq_offsets"
"""Folder of offset files in the home folder, as in Apache's clients."""
OPTIONS_OF_HANDLERS = ("topic", "tags", "sql", "batch", "codec")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@takes_options(PushOptions, PUSH_DEFAULTS)
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

    __slots__ = (
        "_allocating",
        "_callbacks",
        "_group",
        "_handlers",
        "_is_starting",
        "_is_unwanted",
        "_name_servers",
        "_native",
        "_options",
        "_starting",
        "_stop_asked",
        "_stop_timeout",
        "_workers",
    )

    def __init__(
        self, group: str, *, name_servers: Iterable[str] | str | None = None, **options: Unpack[PushOptions]
    ) -> None:
        super().__init__()
        check_type("group", group, str, "a str")
        if misplaced := [name for name in OPTIONS_OF_HANDLERS if name in options]:
            raise TypeError(f"PushConsumer has no option {misplaced[0]}: pass it to the decorator on() of each topic")
        check_unicode(group)
        self._group = group
        self._name_servers = name_server_list(name_servers)
        self._handlers: dict[str, Handler] = {}
        concurrency = options.pop("concurrency", CONCURRENCY)
        _check_count("concurrency", concurrency, MAX_CONCURRENCY)
        self._workers = Workers(group, concurrency, options.get("handler_timeout", HANDLER_SECONDS))
        self._stop_timeout = duration_seconds("stop_timeout", options.pop("stop_timeout", STOP_SECONDS))
        self._callbacks = callbacks(group, options, has_loop=True)
        self._allocating: Allocating | None = None
        self._options = options
        self._native: _rocketpy.PushConsumer | None = None
        self._stop_asked = StopRequest()
        self._starting = threading.RLock()  # a signal handler may stop the consumer in the thread that starts it
        self._is_starting = self._is_unwanted = False

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
        check_type("topic", topic, str, "a name")
        check_unicode(topic, sql, tags)
        if sql is not None:
            check_type("sql", sql, str, 'an expression such as "a > 3"')
            if tags != "*":
                hint = "use TAGS in the expression, as in TAGS = 'UA'"
                raise InvalidArgumentError(f"tags and sql exclude each other for topic {topic}", hint=hint)
        if batch is not None:
            _check_count("batch", batch, MAX_BATCH)
        _rocketpy.tag_names(tags)  # refuses what are no tags
        decode = decode_by(codec)

        def register(function: Function) -> Function:
            wanted = "a function of a message" if batch is None else "a function of a list of messages"
            check_function(f"the handler of topic {topic}", function, wanted, 1)
            if self._native is not None:
                raise InvalidArgumentError(
                    f"cannot register a handler of topic {topic}: the consumer was already started"
                )
            if topic in self._handlers:
                hint = "subscribe the handler to all tags, and branch on message.tag in it"
                raise InvalidArgumentError(f"topic {topic} already has a handler", hint=hint)
            self._handlers[topic] = Handler(function, tags, sql, batch, decode)
            return function

        return register

    def start(self) -> Self:
        """Joins the group and calls handlers in background threads. Does nothing if the consumer is running.

        Raises:
            InvalidArgumentError: The consumer has no handler, or a name, a tag expression or an option is invalid.
            TopicNotFoundError: A topic does not exist. See the option `allow_missing_topic`.
            GroupConflictError: Another member in this process subscribes to other topics or tags; or with `broadcast`
                another member uses the same offset file.
            ConnectionFailedError: No name server can be reached; a retry is safe.
            ClosedError: The consumer was stopped before or during the start.
        """
        with self._starting:
            self._is_unwanted = False
            if self._native is not None:
                self._workers.check_open()
                return self
            self._is_starting = True
            try:
                self._start()
            finally:
                self._is_starting = False
            if self._is_unwanted:
                super().close()
                raise ClosedError(
                    f"the push consumer of group {self._group} was stopped during its start", hint="create a new one"
                )
        return self

    def _start(self) -> None:
        """Joins the group and starts the threads."""
        if not self._handlers:
            raise InvalidArgumentError(
                f"push consumer of group {self._group} has no handler",
                hint='decorate a function: @consumer.on("orders")',
            )
        options = self._options.copy()
        folder = options.pop("offsets_folder", None)
        if options.get("broadcast"):
            path = Path.home() / OFFSETS_FOLDER if folder is None else Path(path_text("offsets_folder", folder))
            options["offsets_folder"] = str(path.absolute())
        topics = [
            (topic, one.tags, one.sql, one.lane, one.batch or 1, one.decode) for topic, one in self._handlers.items()
        ]
        self._allocating = allocating(options)
        if self._allocating is not None:
            options = self._allocating.options(options)
        try:
            self._native = _rocketpy.PushConsumer(self._group, topics, self._name_servers, **options)
        except BaseException:
            self._end_allocating()
            raise
        self._opened()
        self._workers.start(self._native, self._handlers, self._callbacks, weakref.ref(self))

    def _end_allocating(self) -> None:
        if self._allocating is not None:
            self._allocating.end()
            self._allocating.join()

    def run(self) -> None:
        """Starts the consumer, runs until SIGINT (Ctrl-C), SIGTERM or `stop` by another thread, and stops in order.

        A second signal ends the wait for handlers. Signals are caught only if this is called in the main thread.

        Raises:
            RocketPyError: As for `start` and `stop`.
        """
        is_main = threading.current_thread() is threading.main_thread()
        # What is ignored stays so, as in the background job of a shell.
        caught = [one for one in STOP_SIGNALS if is_main and signal.getsignal(one) is not signal.SIG_IGN]
        before = {one: signal.signal(one, self._on_signal) for one in caught}
        try:
            try:
                self.start()
            except ClosedError:
                if not self._is_unwanted:
                    raise
            self._stop_asked.wait()
        finally:
            try:
                self.close()
            finally:
                for one, handler in before.items():
                    if handler is not None:  # of a program that is not Python's
                        signal.signal(one, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stop_asked.is_set():
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        self._stop_asked.set()

    def stop(self) -> None:
        """Stops in order: waits up to `stop_timeout` for running handlers, commits, and leaves the group.

        Handlers receive no new messages, except those already taken for them. A call inside a handler returns at once,
        and the stop follows.

        Raises:
            RequestTimeoutError: A broker did not answer the last commit: messages may be redelivered.
        """
        self.close()

    def close(self) -> None:
        """Stops the consumer, as `stop`."""
        self._stop_asked.set()
        if not self._workers.has_current_thread():
            if self._is_starting:
                self._is_unwanted = True
            if not self._is_elsewhere:
                with self._starting:  # waits for a start in another thread
                    pass
            super().close()
        elif not self._closed:
            threading.Thread(target=super().close, name="rocketpy-push-stop").start()

    def _begin_close(self) -> None:
        if self._native is not None:
            self._native.begin_stop(self._stop_timeout)

    def _close(self) -> None:
        if self._native is not None:
            try:
                self._native.stop(self._stop_timeout)
            except BaseException:  # Ctrl-C: neither this nor the end of Python waits on
                self._stop_timeout = 0.0
                self._workers.end(0.0)
                raise
            finally:
                self._end_allocating()
            self._workers.end(END_SECONDS)

    @property
    def group(self) -> str:
        """Name of the consumer group."""
        return self._group

    @property
    def client_id(self) -> str | None:
        """Id of this consumer at brokers and other members; None before the start."""
        return None if self._native is None else self._native.client_id

    def stats(self) -> PushStats:
        """Outcomes of messages since the start, times of handlers, and the lag as last known.

        Sends no request, and works after a stop.
        """
        failed_callbacks = self._callbacks.failures if self._callbacks else 0
        if self._native is None:
            return PushStats(0, 0, 0, 0, 0, 0, failed_callbacks)
        return self._native.stats(failed_callbacks)

    def state(self) -> ConsumerState:
        """Assigned queues of this consumer, and which of its brokers answer. Sends no request."""
        if self._native is None:
            return ConsumerState((), ())
        return self._native.state()

    def __enter__(self) -> Self:
        """Starts the consumer if it has a handler; otherwise call `start` in the block."""
        return self.start() if self._handlers else self

    def __repr__(self) -> str:
        state = "not started" if self._native is None else "stopped" if self._closed else "runs"
        return f"<PushConsumer of group {self._group!r} ({state})>"


def _check_count(name: str, count: int, most: int) -> None:
    # Not every caller has a type checker.
    if isinstance(count, bool) or not isinstance(count, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be an int, not {type(count).__name__}")
    if not 1 <= count <= most:
        raise InvalidArgumentError(f"{name} must be from 1 to {most}, not {count}")

"""Handlers in an event loop: the twin of `PushConsumer`, by name and meaning."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import weakref
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from rocketpy.aio.loop import AsyncClosing
from rocketpy.aio.workers import LoopWorkers, in_thread, outcome
from rocketpy.base.misuse import explained
from rocketpy.base.options import takes_options
from rocketpy.base.wakeup import stop_signals
from rocketpy.config import PUSH_DEFAULTS, PushOptions
from rocketpy.consuming.member import OPTIONS_OF_HANDLERS, PushMember
from rocketpy.errors import ClosedError

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Coroutine, Iterable
    from types import FrameType
    from typing import Unpack

    from rocketpy import _rocketpy
    from rocketpy.codec import Codec
    from rocketpy.config import Tags
    from rocketpy.consuming.consumer import ConsumerState
    from rocketpy.stats import PushStats

__all__ = ["AsyncPushConsumer"]

Function = TypeVar("Function", bound="Callable[..., Any]")

logger = logging.getLogger("rocketpy.client")


@takes_options(PushOptions, PUSH_DEFAULTS, OPTIONS_OF_HANDLERS)
class AsyncPushConsumer(AsyncClosing):
    """`PushConsumer` for asyncio: handlers run as tasks of the loop that started the consumer.

    Outcomes, retries and dead letters are those of `PushConsumer`. Handlers may use all objects of the application that
    belong to its loop. `async with` and `close` wait for running handlers; the loop serves other tasks meanwhile. A
    plain function is called in a thread, up to `concurrency` at the same time, as `PushConsumer` does. `on_assigned`
    and `on_revoked` run in the loop.

    Args:
        group: Name of the consumer group.
        name_servers: `host:port` of each name server, as a list or as one text; default: the environment variable
            `NAMESRV_ADDR`.
        options: Keyword options, declared in `rocketpy.config.PushOptions`.

    Examples:
        >>> import asyncio, rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> with server.admin() as admin:
        ...     admin.create_topic("aio-push-doc", queues=4)
        >>> async def main():
        ...     mailer = rocketpy.AsyncPushConsumer("mailer", name_servers=server.name_server)
        ...     sent = asyncio.Queue()
        ...     @mailer.on("aio-push-doc", tags="paid")
        ...     async def mail(message):
        ...         await sent.put(message.body)
        ...     async with rocketpy.AsyncProducer("shop", name_servers=server.name_server) as producer:
        ...         await producer.send(rocketpy.Message("aio-push-doc", b"A-17", tag="paid"))
        ...     async with mailer:
        ...         return await sent.get()
        >>> asyncio.run(main())
        b'A-17'
    """

    __slots__ = ("_member", "_stop_asked", "_workers")

    def __init__(
        self, group: str, *, name_servers: Iterable[str] | str | None = None, **options: Unpack[PushOptions]
    ) -> None:
        super().__init__()
        self._member = PushMember(group, name_servers, options, LoopWorkers)
        self._workers = cast("LoopWorkers", self._member.workers)
        self._stop_asked = asyncio.Event()

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
        """Returns a decorator that registers the handler of a topic before the start, as `PushConsumer.on`.

        An `async def` runs as a task of the application's loop, which it must not block. Tasks have a copy of the
        context variables of the start; a task may call a handler for several messages, one after the other.

        Args:
            topic: The topic. Each topic has one handler.
            tags: Tags to receive; the broker filters.
            sql: SQL92 expression over message properties, in place of tags.
            batch: Maximum number of messages in a list, from 1 to 4096. Default None: one message, not a list.
            codec: Decodes the `value` of a message, such as `JsonCodec(Order)`.
        """
        return self._member.register(topic, tags, sql, batch, codec)

    async def _open(self, arrivals: _rocketpy.Arrivals) -> object:
        member = self._member
        joining = in_thread("rocketpy-push-start", member.join, member.leave)
        member.has_started = True
        try:
            joined = await outcome(joining)
        except BaseException as error:
            member.has_started = False
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if is_cancelled and not joining.cancel() and joining.exception() is None:
                in_thread("rocketpy-push-stop", functools.partial(member.leave, joining.result()))
            raise
        self._workers.bind()
        try:
            member.begin(joined, self)
        except BaseException:  # such as a lack of threads
            member.begin_stop(0.0)
            self._workers.end(0.0)
            raise
        return Stopping(self)

    async def run(self) -> None:
        """Starts the consumer, runs until SIGINT (Ctrl-C), SIGTERM or a `close` by another task, and stops in order.

        A second signal ends the wait for handlers. Signals are caught only in the main thread. Under a server such as
        uvicorn, which catches them itself, use `async with` instead.

        Raises:
            RocketPyError: As for `start` and `close`.
        """
        loop = asyncio.get_running_loop()
        has_signal = False

        def stop(number: int, frame: FrameType | None) -> None:
            nonlocal has_signal
            if has_signal:
                raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
            has_signal = True
            loop.call_soon_threadsafe(self._stop_asked.set)

        with stop_signals(stop):
            try:
                await self.start()
            except ClosedError:
                if self._is_unwanted:
                    return
                raise
            try:
                await self._stop_asked.wait()
            finally:
                await self.close()

    async def stop(self) -> None:
        """Stops the consumer, as `close`."""
        await self.close()

    async def close(self) -> None:
        """Stops in order: waits up to `stop_timeout` for running handlers, commits, and leaves the group.

        The loop serves other tasks meanwhile. Handlers that run longer are cancelled; their messages are redelivered. A
        cancelled close cancels the handlers at once and leaves the group in the background; a second call waits for
        that. A call inside a handler returns at once, and the stop follows.

        Raises:
            RequestTimeoutError: A broker did not answer the last commit: messages may be redelivered.
            RocketPyError: The loop of the client is another one, and not closed.
        """
        if self._client is None or self._is_over() or not self._workers.has_current_task():
            await super().close()
            return
        self._closed = True
        cast("Stopping", self._client).follow(self._ended)

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

        Sends no request, and works after a stop. Any thread may call this, such as an exporter.
        """
        return self._member.stats()

    def state(self) -> ConsumerState:
        """Assigned queues of this consumer, and which of its brokers answer. Sends no request."""
        return self._member.state()

    async def __aenter__(self) -> Self:
        """Starts the consumer if it has a handler; otherwise call `start` in the block."""
        return await self.start() if self._member.has_handlers else self

    def __repr__(self) -> str:
        return f"<AsyncPushConsumer{self._shown_state()} of group {self.group!r}>"


class Stopping:
    """Stop of a consumer: one for all calls of `close`."""

    def __init__(self, consumer: AsyncPushConsumer) -> None:
        self._consumer = weakref.ref(consumer)  # a consumer that is never closed gets a ResourceWarning
        self._member, self._workers = consumer._member, consumer._workers
        self._stop_asked = consumer._stop_asked
        self._stopped: concurrent.futures.Future[None] | None = None

    def close(self, waits: bool) -> Coroutine[Any, Any, None] | None:
        """Stops the consumer.

        Args:
            waits: Whether the call waits, in a thread. Otherwise its result is awaited, in the loop of the consumer.
        """
        if not waits:
            return self._close_in_loop()
        if self._stopped is None:
            self._note_dead_loop()
            self._member.stop()
        else:
            self._stopped.result()
        return None

    def begin_close(self) -> None:
        """Begins the stop at the exit of Python, unless one is under way."""
        if not self._workers.is_stopping:
            self._note_dead_loop()
            self._member.begin_stop(self._member.stop_timeout)

    def _note_dead_loop(self) -> None:
        if not self._workers.has_live_loop():  # no handler can end
            self._member.stop_timeout = 0.0

    async def _close_in_loop(self) -> None:
        try:
            await outcome(self._begin())
        except asyncio.CancelledError:
            self._hasten()
            raise
        except BaseException:
            await self._workers.wait_for_tasks()
            raise
        await self._workers.wait_for_tasks()

    def _begin(self) -> concurrent.futures.Future[None]:
        self._stop_asked.set()
        self._workers.is_stopping = True
        if self._stopped is None:
            self._stopped = in_thread("rocketpy-push-stop", functools.partial(_stop, self._member, self._consumer()))
        return self._stopped

    def _hasten(self) -> None:
        """Ends the wait for handlers after the cancellation of a close."""
        assert self._stopped is not None
        if not self._stopped.done() and self._member.stop_timeout > 0:
            self._member.stop_timeout = 0.0
            self._workers.end(0.0)
            self._stopped = None
            self._begin()

    def follow(self, ended: Callable[[], None]) -> None:
        """Stops the consumer in the background, for a call inside a handler.

        Args:
            ended: Called after the stop.
        """

        def note(stopped: concurrent.futures.Future[None]) -> None:
            if (error := stopped.exception()) is not None:
                logger.error("cannot stop push consumer of group %s in order: %s", self._member.group, error)
            ended()

        self._begin().add_done_callback(note)


def _stop(member: PushMember, consumer: AsyncPushConsumer | None) -> None:
    """Stops a member. Its consumer stays alive until then, so that the exit of Python waits for the stop."""
    member.stop()
    del consumer

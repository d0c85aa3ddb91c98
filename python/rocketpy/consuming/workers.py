"""Threads and tasks that run the handlers of a push consumer."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from typing import TYPE_CHECKING, Any, ClassVar

from rocketpy.base.clock import monotonic
from rocketpy.base.failure import loggable
from rocketpy.config import duration_seconds
from rocketpy.consuming.handlers import TASKS, THREADS, failed
from rocketpy.consuming.rebalance import tell_of_changes
from rocketpy.errors import ClosedError, ForkedError

if TYPE_CHECKING:
    import contextvars
    import weakref
    from collections.abc import Callable, Coroutine, Iterator

    from rocketpy._rocketpy import PushConsumer, ReceivedMessage, Work
    from rocketpy.config import Duration
    from rocketpy.consuming.handlers import Handler
    from rocketpy.consuming.rebalance import Callbacks

logger = logging.getLogger("rocketpy.client")

LOOK_SECONDS = 60.0
"""Maximum duration of one wait for messages; the end of the consumer ends each wait."""
WATCH_SECONDS = 1.0
"""Interval of the check for handlers and callbacks that do not return."""
REPORT_SECONDS = 60.0
"""Minimum time between two log records about the same hung threads."""
GRACE_SECONDS = 0.5
"""Time after `handler_timeout` before a task is cancelled: its messages are sent back first."""
TURN_SECONDS = 0.005
"""Time after which handlers that never wait let other tasks of the application run."""
END_SECONDS = 1.0
"""Timeout for the threads of a stopped consumer. A thread in a handler continues; its messages are redelivered."""


class Workers:
    """The threads of a push consumer, one of which runs the loop of its tasks."""

    _has_own_loop: ClassVar[bool] = True

    def __init__(self, group: str, concurrency: int, handler_timeout: Duration) -> None:
        self._group = group
        self._concurrency = concurrency
        self._timeout = duration_seconds("handler_timeout", handler_timeout)
        self._native: PushConsumer | None = None
        self._handlers: dict[str, Handler] = {}
        self._threads: set[threading.Thread] = set()  # those that call handlers
        self._others: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: contextvars.Context | None = None  # of the tasks
        self._loop_ends = False
        self._most_threads = 2 * concurrency  # each of the first ones is replaced once
        self._report_at, self._reported_stall = 0.0, False
        self._slots = threading.Semaphore(concurrency)
        self._running: dict[asyncio.Task[None], Running] = {}

    def start(
        self,
        native: PushConsumer,
        handlers: dict[str, Handler],
        callbacks: Callbacks | None,
        consumer: weakref.ref[Any],
    ) -> None:
        """Starts the threads that the handlers and the callbacks for changed queues need.

        Args:
            native: The native consumer.
            handlers: The handlers, by topic.
            callbacks: The callbacks.
            consumer: The consumer, passed to the callbacks.
        """
        self._native, self._handlers = native, handlers
        lanes = {handler.lane for handler in handlers.values()}
        if self._has_own_loop and (TASKS in lanes or (callbacks is not None and callbacks.any_async)):
            self._loop = asyncio.new_event_loop()  # before a handler can stop the consumer, which ends the loop
        with self._lock:  # a handler may stop the consumer before all threads are started
            if self._has_own_loop and self._loop is not None:
                self._add_other(self._run_loop, "loop")
            if THREADS in lanes:
                for _ in range(self._concurrency):
                    self._add_thread()
                self._add_other(self._watch, "watch")
            if TASKS in lanes:
                self._add_other(self._feed_loop, "feed")
            if callbacks is not None:
                given = (consumer, native, callbacks, self._run_in_loop)
                tell = functools.partial(tell_of_changes, *given, all_in_loop=not self._has_own_loop)
                self._add_other(tell, "rebalance")

    def check_open(self) -> None:
        """Raises if the consumer was stopped.

        Raises:
            ClosedError: The consumer was stopped.
        """
        if self._ended.is_set():
            raise ClosedError(f"the push consumer of group {self._group} was stopped", hint="create a new one")

    def hung(self) -> tuple[int, bool]:
        """Returns the number of calls that exceeded `handler_timeout` and still run, and whether all threads hang."""
        if self._native is None:
            return 0, False
        threads = self._native.stuck(THREADS)
        return threads + self._native.stuck(TASKS), threads >= self._most_threads

    def has_current_thread(self) -> bool:
        """Whether the caller is a handler."""
        current = threading.current_thread()
        return current in self._threads or current in self._others

    def end(self, patience: float) -> None:
        """Ends the threads of a stopped consumer. A thread stuck in a handler is left running.

        Args:
            patience: Maximum wait for the threads, in seconds.
        """
        if self._ended.is_set():
            return
        self._ended.set()
        self._slots.release()
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(self._end_loop)
        with self._lock:
            threads = [*self._threads, *self._others]
        deadline = monotonic() + patience
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))

    def _end_loop(self) -> None:
        assert self._loop is not None
        for task in self._running:
            task.cancel()
        if self._running:
            ended = asyncio.ensure_future(asyncio.wait([*self._running], timeout=END_SECONDS))
            ended.add_done_callback(lambda _: self._stop_loop())
        else:
            self._stop_loop()

    def _stop_loop(self) -> None:
        assert self._loop is not None
        self._loop_ends = True
        self._loop.stop()

    # Both are called with the lock, so that `end` meets no thread that is not started.

    def _add_other(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=f"rocketpy-push-{name}", daemon=True)
        self._others.append(thread)
        try:
            thread.start()
        except RuntimeError:  # the system gives none
            self._others.remove(thread)
            raise

    def _add_thread(self) -> None:
        name = f"rocketpy-push-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._threads.discard(thread)
            raise

    def _work(self) -> None:
        """Calls handlers until the consumer stops."""
        try:
            while (work := self._take(THREADS, LOOK_SECONDS)) is not None:
                self._run(work)
                del work
                if self._is_one_too_many():
                    return
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _take(self, lane: int, seconds: float) -> Work | None:
        """Waits for messages, `seconds` at a time; None once the consumer stops or its loop was closed."""
        assert self._native is not None
        while True:
            try:
                work = self._native.take(lane, seconds)
            except (ClosedError, ForkedError):
                return None
            if work is not None:
                return work
            if self._has_lost_loop():
                return None

    def _run(self, work: Work) -> None:
        handler = self._handlers[work.topic]
        if handler.batch is None:
            call = handler.function
            for message in work:
                try:
                    result = call(message)
                    if result is not None:
                        handler.check_result(result, work.topic)
                except BaseException as error:  # SystemExit as well: the thread works on
                    failed(work, [message], error)
        else:
            while messages := work.next_batch():
                try:
                    handler.check_result(handler.function(messages), work.topic)
                except BaseException as error:
                    failed(work, messages, error)

    def _watch(self) -> None:
        """Starts another thread for each that is stuck in a handler whose messages were sent back, within bounds."""
        assert self._native is not None
        while not self._ended.wait(WATCH_SECONDS):
            try:
                hung = self._native.stuck(THREADS)
            except ForkedError:
                return
            if self._has_lost_loop():
                return
            with self._lock:
                for _ in range(min(self._concurrency + hung, self._most_threads) - len(self._threads)):
                    self._add_thread()
            self._report_hung(hung)

    def _report_hung(self, hung: int) -> None:
        """Logs that no thread is left, or only replacements: once, then once a minute while it lasts."""
        is_stalled, now = hung >= self._most_threads, monotonic()
        is_new = is_stalled and not self._reported_stall
        if hung < self._concurrency or (now < self._report_at and not is_new):
            return
        self._report_at, self._reported_stall = now + REPORT_SECONDS, is_stalled
        logger.log(
            logging.ERROR if is_stalled else logging.WARNING,
            "push consumer of group %s: %s of %s handler threads do not return%s; "
            "restart the process, or use `async def` handlers, which are cancelled after handler_timeout",
            self._group,
            hung,
            self._most_threads,
            ": takes no more messages" if is_stalled else "",
        )

    def _is_one_too_many(self) -> bool:
        """Whether a thread that was stuck works again, so that another may end."""
        assert self._native is not None
        if len(self._threads) <= self._concurrency:
            return False
        with self._lock:
            if len(self._threads) - self._native.stuck(THREADS) <= self._concurrency:
                return False
            self._threads.discard(threading.current_thread())
            return True

    def _run_loop(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.call_later(WATCH_SECONDS, self._cancel_late)
        try:
            while not (self._loop_ends or self._loop.is_closed()):
                self._run_until_stopped(self._loop)
        finally:
            if not self._loop.is_closed():
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
                self._loop.close()

    def _run_until_stopped(self, loop: asyncio.AbstractEventLoop) -> None:
        """Runs the loop. Logs if a handler stops it, which would otherwise end all handlers silently."""
        try:
            loop.run_forever()
            error = None
        except BaseException as raised:  # SystemExit and KeyboardInterrupt of a task leave the loop
            error = raised
        if not self._loop_ends:
            text = "event loop of push consumer %s was stopped by a handler; loop restarted"
            logger.error(text, self._group, exc_info=None if error is None else loggable(error))

    def _feed_loop(self) -> None:
        """Takes messages when a task may begin. The tasks of a closed loop free no slot."""
        assert self._loop is not None
        seconds = LOOK_SECONDS if self._has_own_loop else WATCH_SECONDS
        while True:
            while not self._slots.acquire(timeout=seconds):
                if self._has_lost_loop():
                    return
            work = None if self._ended.is_set() else self._take(TASKS, seconds)
            if work is None:
                return
            try:
                self._loop.call_soon_threadsafe(self._begin_task, work, context=self._context)
            except RuntimeError:  # the loop was closed
                self._loop_has_ended()
                return
            del work

    def _run_in_loop(self, callback: Coroutine[Any, Any, None]) -> None:
        """Runs a callback in the loop of the handlers, and waits for its end, or for that of the loop."""
        assert self._loop is not None
        running = self._run_callback(callback)
        try:
            called = asyncio.run_coroutine_threadsafe(running, self._loop)
        except RuntimeError:  # the loop was closed
            running.close()
            callback.close()
            return
        while not (called.done() or self._loop.is_closed()):
            with contextlib.suppress(TimeoutError):  # of this wait: the callback raises nothing
                called.result(WATCH_SECONDS)
        if called.cancelled():  # maybe before it was waited for
            called.result()

    async def _run_callback(self, callback: Coroutine[Any, Any, None]) -> None:
        """Runs a callback as a task that is cancelled as those of handlers are."""
        if self._is_ending():
            callback.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._running[task] = Running()
        try:
            await callback
        finally:
            del self._running[task]

    def _is_ending(self) -> bool:
        """Whether tasks are cancelled because the consumer ends."""
        return self._ended.is_set()

    def _has_lost_loop(self) -> bool:
        """Whether the loop of the tasks was closed, in which case the consumer leaves its group."""
        if self._loop is None or not self._loop.is_closed():
            return False
        self._loop_has_ended()
        return True

    def _loop_has_ended(self) -> None:
        """Follows the end of a loop that still has tasks to run."""

    def _begin_task(self, work: Work) -> None:
        assert self._loop is not None
        if self._is_ending():  # other members get the messages
            self._slots.release()
            return
        task = self._loop.create_task(self._run_async(work))
        if not task.done():  # a loop may run the beginning of a task at once
            self._running.setdefault(task, Running())
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._slots.release()
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            logger.error("a task of push consumer %s failed", self._group, exc_info=loggable(error))

    async def _run_async(self, work: Work) -> None:
        task = asyncio.current_task()
        assert task is not None
        handler, running = self._handlers[work.topic], self._running.setdefault(task, Running())
        turned = monotonic()
        for given in work if handler.batch is None else batches(work):
            running.since = monotonic()
            if not self._has_own_loop and running.since - turned >= TURN_SECONDS:
                await asyncio.sleep(0)  # before the handler: a cancelled task gives the message back
                turned = monotonic()
            try:
                await handler.run(given, work.topic)
            except BaseException as error:
                if isinstance(error, GeneratorExit) or (
                    isinstance(error, asyncio.CancelledError) and self._is_ending()
                ):
                    raise  # by the end of the loop or of the consumer
                failed(work, given if isinstance(given, list) else [given], error)
                if not self._has_own_loop and isinstance(error, KeyboardInterrupt | SystemExit):
                    raise  # it is meant for the application
            # By `handler_timeout`, or by the handler itself, which may have caught it: the next call begins without it.
            running.is_late = False
            while not self._is_ending() and task.cancelling():
                task.uncancel()

    def _cancel_late(self) -> None:
        """Cancels late tasks of the own loop from time to time."""
        assert self._loop is not None
        self._cancel_late_tasks()
        self._loop.call_later(WATCH_SECONDS, self._cancel_late)

    def _cancel_late_tasks(self) -> None:
        """Cancels tasks whose messages were sent back, because they did not end in time."""
        latest = monotonic() - self._timeout - GRACE_SECONDS
        for task, running in self._running.items():
            if running.since < latest and not running.is_late:
                running.is_late = True
                task.cancel()


class Running:
    """State of a running task."""

    __slots__ = ("is_late", "since")

    def __init__(self) -> None:
        self.since = monotonic()
        self.is_late = False


def batches(work: Work) -> Iterator[list[ReceivedMessage]]:
    """Yields the batches of a piece of work."""
    while messages := work.next_batch():
        yield messages

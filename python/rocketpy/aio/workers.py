"""Tasks of an `AsyncPushConsumer` in the event loop of the application, and threads for calls that wait."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import logging
import threading
from typing import TYPE_CHECKING, TypeVar

from rocketpy.consuming.workers import END_SECONDS, WATCH_SECONDS, Workers
from rocketpy.errors import ForkedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketpy.config import Duration

logger = logging.getLogger("rocketpy.client")

T = TypeVar("T")


class LoopWorkers(Workers):
    """The threads of an `AsyncPushConsumer`. Its tasks run in the loop of the application."""

    _has_own_loop = False

    def __init__(self, group: str, concurrency: int, handler_timeout: Duration) -> None:
        super().__init__(group, concurrency, handler_timeout)
        self._watching: asyncio.Task[None] | None = None
        self.is_stopping = False

    def bind(self) -> None:
        """Takes the running loop for the tasks, each of which gets a copy of the current context."""
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._watching = self._loop.create_task(self._watch_tasks(), name=f"rocketpy-push-watch-{self._group}")

    async def _watch_tasks(self) -> None:
        """Cancels late tasks from time to time. Its own cancellation reports the end of the loop."""
        try:
            while True:
                await asyncio.sleep(WATCH_SECONDS)
                self._cancel_late_tasks()
        except GeneratorExit:  # dropped with its loop, anywhere: another thread notices the closed loop
            raise
        except BaseException:
            self._loop_has_ended()
            raise

    def _is_ending(self) -> bool:
        watching = self._watching
        return super()._is_ending() or watching is None or watching.done() or watching.cancelling() > 0

    def _loop_has_ended(self) -> None:
        """Leaves the group if the application ends its loop, so that other members get the messages."""
        if self._ended.is_set() or self._native is None:
            return
        try:
            self._native.begin_stop(0.0)
        except ForkedError:  # the loop of a child process
            return
        if not self.is_stopping:
            text = "event loop of push consumer %s ended before close(): the consumer leaves its group"
            logger.warning(text, self._group)
        self.is_stopping = True
        self._ended.set()
        self._slots.release()

    def has_current_task(self) -> bool:
        """Whether the caller is the task of a handler or of a callback."""
        return asyncio.current_task() in self._running

    def has_live_loop(self) -> bool:
        """Whether the loop runs, so that tasks can end."""
        return self._loop is not None and self._loop.is_running()

    def _end_loop(self) -> None:
        """Cancels all tasks. The loop continues for the application."""
        for task in (*self._running, self._watching):
            if task is not None:
                task.cancel()

    async def wait_for_tasks(self) -> None:
        """Waits a bounded time for cancelled tasks."""
        tasks = [task for task in (*self._running, self._watching) if task is not None]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=END_SECONDS)
            if left:
                text = "handlers of push consumer %s continue after their cancellation: %s"
                logger.error(text, self._group, len(left))


def in_thread(
    name: str, call: Callable[[], T], undo: Callable[[T], object] | None = None
) -> concurrent.futures.Future[T]:
    """Makes a call that waits in a daemon thread, for which neither the loop nor the exit of Python waits.

    Args:
        name: Name of the thread.
        call: The call.
        undo: Follows a call whose future was cancelled meanwhile, in the thread.
    """
    ended: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            if ended.set_running_or_notify_cancel():
                ended.set_exception(error)
            return
        if ended.set_running_or_notify_cancel():
            ended.set_result(result)
        elif undo is not None:
            undo(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return ended


async def outcome(ended: concurrent.futures.Future[T]) -> T:
    """Awaits a call of `in_thread`. A cancelled task leaves the call alone, and its loop may be closed meanwhile."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    def notify(_: concurrent.futures.Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(wake)

    ended.add_done_callback(notify)
    await woken
    return ended.result()

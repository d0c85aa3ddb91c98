"""Calls of user functions when the queues of an `AsyncConsumer` change."""

from __future__ import annotations

import asyncio
import inspect
import logging
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from rocketpy.base.clock import monotonic
from rocketpy.config import duration_seconds
from rocketpy.consuming.rebalance import LEAVE_SECONDS, refuse_poll

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketpy import _rocketpy
    from rocketpy.config import Duration
    from rocketpy.consuming.rebalance import Callbacks

logger = logging.getLogger("rocketpy.client")

T = TypeVar("T")


class AsyncTelling:
    """Calls the callbacks of an `AsyncConsumer` in the task that polls or closes it."""

    __slots__ = ("_callbacks", "_caller", "_consumer", "_lock", "_native")

    def __init__(self, consumer: object, native: _rocketpy.Consumer, callbacks: Callbacks) -> None:
        self._consumer = weakref.ref(consumer)
        self._native, self._callbacks = native, callbacks
        self._lock = asyncio.Lock()
        self._caller: asyncio.Task[Any] | None = None

    async def take(self, take: Callable[[Duration], Awaitable[T]], timeout: Duration) -> T:
        """Takes messages, and calls callbacks before and while it waits for them."""
        deadline = monotonic() + duration_seconds("timeout", timeout)
        while True:
            taken = await take(max(0.0, deadline - monotonic()))
            if taken:
                return taken
            is_told = await self._tell(max(0.0, deadline - monotonic()))
            if not is_told and monotonic() >= deadline:
                return taken

    async def leave(self) -> None:
        """Calls `on_revoked` for all queues, before the consumer is closed."""
        if self._caller is asyncio.current_task():
            return
        self._native.begin_leaving()
        if not await self._tell(LEAVE_SECONDS) and self._native.change() is not None:
            logger.error("on_revoked skipped: a consumer is closed while another task runs its callback")

    async def _tell(self, patience: float) -> bool:
        if self._caller is asyncio.current_task():
            refuse_poll()
        try:
            async with asyncio.timeout(patience):
                await self._lock.acquire()
        except TimeoutError:
            return False
        try:
            self._caller = asyncio.current_task()
            is_told = False
            while (change := self._native.change()) is not None:
                is_told = True
                try:
                    result = self._callbacks.call(self._consumer(), change)
                    if inspect.isawaitable(result):
                        await result
                except (Exception, asyncio.CancelledError) as error:
                    if isinstance(error, asyncio.CancelledError) and is_cancelled():
                        raise
                    self._callbacks.failed(change, error)
                self._native.told(change)  # not after a cancellation: then it is called again
            return is_told
        finally:
            self._caller = None
            self._lock.release()


def is_cancelled() -> bool:
    """Whether the current task was requested to end. Otherwise a `CancelledError` is of a task that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

"""Calls of user functions when the queues of a consumer change."""

from __future__ import annotations

import inspect
import logging
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from rocketpy.base.clock import monotonic
from rocketpy.base.failure import loggable
from rocketpy.base.signature import check_function
from rocketpy.config import duration_seconds
from rocketpy.consuming.handlers import is_async, refuse_awaitable
from rocketpy.errors import ClosedError, ForkedError, RocketPyError
from rocketpy.message import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from rocketpy import _rocketpy
    from rocketpy.config import Duration, MemberOptions

__all__ = ["QueuesCallback"]

logger = logging.getLogger("rocketpy.client")

T = TypeVar("T")

QueuesCallback: TypeAlias = Callable[[Any, list[MessageQueue]], object]
"""Function of a consumer and its sorted queues: of all its topics, and with handlers also of the retry topic. It may be
an `async def`, except for a `Consumer`, which has no event loop."""

LEAVE_SECONDS = 5.0
"""Timeout for a callback in another thread or task at a close."""
LOOK_SECONDS = 60.0
"""Maximum wait of the callback thread for one change; the end of the consumer ends each wait."""


class Callbacks:
    """User functions for changes of the assignment."""

    __slots__ = ("_assigned", "_group", "_revoked", "failures")

    def __init__(self, group: str, assigned: QueuesCallback | None, revoked: QueuesCallback | None) -> None:
        self._group, self._assigned, self._revoked = group, assigned, revoked
        self.failures = 0

    def _of(self, change: _rocketpy.Change) -> QueuesCallback | None:
        return self._assigned if change.is_gain else self._revoked

    def call(self, consumer: object, change: _rocketpy.Change) -> object:
        """Calls the function for a change."""
        function = self._of(change)
        return None if function is None else function(consumer, change.queues)

    def call_plain(self, consumer: object, change: _rocketpy.Change) -> None:
        """Calls the function for a change, without an event loop.

        Raises:
            TypeError: The function returned an awaitable.
        """
        refuse_awaitable(self.call(consumer, change), "on_assigned" if change.is_gain else "on_revoked")

    def is_async(self, change: _rocketpy.Change) -> bool:
        """Whether the function for a change is an `async def`."""
        function = self._of(change)
        return function is not None and is_async(function)

    @property
    def any_async(self) -> bool:
        """Whether any function is an `async def`."""
        return any(is_async(function) for function in (self._assigned, self._revoked) if function is not None)

    def failed(self, change: _rocketpy.Change, error: BaseException) -> None:
        """Logs and counts what the function for a change raised."""
        self.failures += 1
        name = "on_assigned" if change.is_gain else "on_revoked"
        text = "%s of the consumer of group %s failed for %s queues; the call is not repeated"
        logger.error(text, name, self._group, len(change.queues), exc_info=loggable(error))


def callbacks(group: str, options: MemberOptions, *, has_loop: bool) -> Callbacks | None:
    """Callbacks among the options, if any.

    Raises:
        TypeError: A callback is not callable, or is an `async def` and the consumer has no loop.
    """
    found = {name: cast("QueuesCallback | None", options.get(name)) for name in ("on_assigned", "on_revoked")}
    for name, function in found.items():
        if function is None:
            continue
        check_function(f"option {name}", function, "a function of a consumer and queues", 2)
        if is_async(function) and not has_loop:
            others = "AsyncConsumer, PushConsumer and AsyncPushConsumer take an `async def`"
            raise TypeError(f"option {name} must be a plain function: a Consumer has no loop; {others}")
    return Callbacks(group, *found.values()) if any(found.values()) else None


def refuse_poll() -> None:
    """Refuses a poll inside a callback."""
    raise RocketPyError(
        "cannot poll inside on_assigned or on_revoked", hint="return from the callback, then poll as before"
    )


class Telling:
    """Calls the callbacks of a `Consumer` in the thread that polls or closes it."""

    __slots__ = ("_callbacks", "_caller", "_consumer", "_lock", "_native")

    def __init__(self, consumer: object, native: _rocketpy.Consumer, callbacks: Callbacks) -> None:
        self._consumer = weakref.ref(consumer)  # who forgets a consumer is told so
        self._native, self._callbacks = native, callbacks
        self._lock = threading.Lock()
        self._caller: threading.Thread | None = None

    def take(self, take: Callable[[Duration], T], timeout: Duration) -> T:
        """Takes messages, and calls callbacks before and while it waits for them."""
        deadline = monotonic() + duration_seconds("timeout", timeout)
        while True:
            taken = take(max(0.0, deadline - monotonic()))
            if taken:
                return taken
            is_told = self._tell(max(0.0, deadline - monotonic()))
            if not is_told and monotonic() >= deadline:
                return taken

    def leave(self) -> None:
        """Calls `on_revoked` for all queues, before the consumer is closed."""
        if self._caller is threading.current_thread():
            return  # by a callback
        self._native.begin_leaving()
        if not self._tell(LEAVE_SECONDS) and self._native.change() is not None:
            logger.error("on_revoked skipped: a consumer is closed while another thread runs its callback")

    def _tell(self, patience: float) -> bool:
        """Calls callbacks until no change is left. Returns False without a change, or on timeout."""
        if self._caller is threading.current_thread():
            refuse_poll()
        if not self._lock.acquire(timeout=patience):
            return False
        try:
            self._caller = threading.current_thread()
            is_told = False
            while (change := self._native.change()) is not None:
                is_told = True
                try:
                    self._callbacks.call_plain(self._consumer(), change)
                except Exception as error:
                    self._callbacks.failed(change, error)
                self._native.told(change)  # not after Ctrl-C: then it is called again
            return is_told
        finally:
            self._caller = None
            self._lock.release()


def tell_of_changes(
    consumer: weakref.ref[Any],
    native: _rocketpy.PushConsumer,
    callbacks: Callbacks,
    run: Callable[[Coroutine[Any, Any, None]], None],
    *,
    all_in_loop: bool,
) -> None:
    """Calls the callbacks of a push consumer until it is stopped: `async def` callbacks in its loop, others here.

    Args:
        consumer: The consumer.
        native: The native consumer.
        callbacks: The callbacks.
        run: Runs a callback in the loop, and waits for it.
        all_in_loop: Whether plain callbacks run in the loop as well.
    """
    while True:
        try:
            change = native.next_change(LOOK_SECONDS)
            if change is None:
                continue
            try:
                if all_in_loop or callbacks.is_async(change):
                    run(call_async(consumer(), change, callbacks))
                else:
                    callbacks.call_plain(consumer(), change)
            except BaseException as error:  # SystemExit, or a cancelled task: the thread tells of the next change too
                callbacks.failed(change, error)
            native.told(change)
        except (ClosedError, ForkedError):
            return


async def call_async(consumer: object, change: _rocketpy.Change, callbacks: Callbacks) -> None:
    """Calls a callback in an event loop."""
    try:
        result = callbacks.call(consumer, change)
        if inspect.isawaitable(result):
            await result
    except BaseException as error:  # SystemExit as well, which would end the loop
        callbacks.failed(change, error)

"""Requests to stop, from signal handlers and other threads."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

__all__ = ["StopRequest", "stop_signals"]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stop_signals(handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Passes SIGINT and SIGTERM to a handler, if the current thread is the main thread.

    Args:
        handler: As for `signal.signal`.
    """
    is_main = threading.current_thread() is threading.main_thread()
    # What is ignored stays so, as in the background job of a shell.
    caught = [one for one in STOP_SIGNALS if is_main and signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, handler) for one in caught}
    try:
        yield
    finally:
        for one, previous in before.items():
            if previous is not None:  # of a program that is not Python's
                signal.signal(one, previous)


class StopRequest:
    """An event that a signal handler may set.

    `threading.Event` may not: its `set` takes a lock, which the interrupted thread holds for a moment of each `wait`.
    The handler runs in that thread, and would wait for itself.
    """

    __slots__ = ("_is_set", "_wakeups")

    def __init__(self) -> None:
        self._is_set = False
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()  # its `put` is reentrant

    def is_set(self) -> bool:
        """Whether a stop was requested."""
        return self._is_set

    def set(self) -> None:
        """Requests the stop, and wakes the waiting threads."""
        self._is_set = True
        self._wakeups.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the request.

        Args:
            timeout: Maximum wait in seconds; None to wait without a limit.

        Returns:
            Whether a stop was requested.
        """
        if not self._is_set:
            try:
                self._wakeups.get(timeout=timeout)
            except queue.Empty:
                return self._is_set
            self._wakeups.put(None)  # for the next waiting thread
        return self._is_set

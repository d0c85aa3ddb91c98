"""The future of a submitted message."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from threading import Condition
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SendFuture"]

FINISHED = "FINISHED"


class SendFuture(Future[Any]):
    """A `concurrent.futures.Future` that costs little until somebody waits for it.

    Its lock and its list of waiters are made when they are first used, and `_watched` is set before. Without them
    nobody waits: the thread that completes futures then sets the result without the lock and without a wake-up. It
    asks and answers without letting go of the interpreter lock. Callbacks need no lock: whoever takes one out of the
    list runs it.
    """

    _state = "RUNNING"
    _result = None
    _exception = None
    _watched = False
    _callbacks: list[Callable[[Future[Any]], object]] | None = None

    __init__ = object.__init__

    def __getattr__(self, name: str) -> Any:
        """Makes what `Future.__init__` would have made. The first of several threads wins."""
        if name == "_condition":
            self._watched = True
            return vars(self).setdefault(name, Condition())
        if name in ("_waiters", "_done_callbacks"):
            return vars(self).setdefault(name, [])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def done(self) -> bool:
        """True with an outcome. It cannot be cancelled."""
        return self._state == FINISHED

    def result(self, timeout: float | None = None) -> Any:
        """As in Python's future."""
        if self._state == FINISHED and self._exception is None:
            return self._result
        return super().result(timeout)

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """As in Python's future. If it is completed at this moment, the completing thread may be the one that calls."""
        callbacks = self._callbacks
        if callbacks is None:
            callbacks = vars(self).setdefault("_callbacks", [])
        callbacks.append(fn)
        # The thread that completes it sets the state and then looks for callbacks: one of the two sees the other.
        if self._state == FINISHED:
            self._invoke_callbacks()

    def _invoke_callbacks(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread took it
                return
            try:
                callback(self)
            except Exception:
                logging.getLogger("concurrent.futures").exception("exception calling callback for %r", self)

"""Objects that own threads and sockets. `with` or `close` closes them; the exit of Python closes the rest."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from abc import abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Self

from rocketpy import _rocketpy
from rocketpy.base.misuse import ForeignNames
from rocketpy.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

import_module("logging")  # exit hooks run last in, first out: its own, which closes handlers, comes after the one below

_open: weakref.WeakSet[Lifetime] = weakref.WeakSet()
"""Open objects of this process, unordered."""


class Lifetime(ForeignNames):
    """Base of objects that are opened and closed once.

    Unclosed objects are closed at the exit of Python; a `ResourceWarning` reports an object that is collected earlier.
    """

    __slots__ = ("__weakref__", "_closed", "_made_by")
    _closed_last: ClassVar[bool] = False
    """True for servers, which clients of this process may still use."""
    _warns: ClassVar[bool] = True
    """False for objects that may be dropped without `close`, as in `server.admin().topics()`."""

    def __init__(self) -> None:
        self._closed = True
        self._made_by = os.getpid()

    def _opened(self) -> None:
        """Marks the object as open: from now on it has to be closed."""
        self._closed = False
        self._made_by = os.getpid()
        _open.add(self)

    def _is_over(self) -> bool:
        """Whether `close` has nothing to do: never opened, or closed, and no call of `close` was cut short."""
        return self._closed and self not in _open

    def _ended(self) -> None:
        """Marks the object as closed for good."""
        _open.discard(self)

    @property
    def _is_elsewhere(self) -> bool:
        """Whether another process made it, which also closes it."""
        return os.getpid() != self._made_by

    @property
    def closed(self) -> bool:
        """True once `close` was called, and before a server was started."""
        return self._closed

    def _begin_close(self) -> None:  # not every object can
        """Begins what `_close_now` then waits for, where that is possible; when Python ends."""

    @abstractmethod
    def _close_now(self) -> None:
        """Closes the object when Python ends, by a call that waits."""

    def __del__(self) -> None:
        if self._warns and not getattr(self, "_closed", True) and not self._is_elsewhere:
            warnings.warn(f"never closed: {self!r}", ResourceWarning, source=self, stacklevel=2)


class Closing(Lifetime):
    """Base of objects that `close` or the end of a `with` statement closes."""

    __slots__ = ()

    def close(self) -> None:
        """Closes the object. A second call does nothing, or completes a close that Ctrl-C interrupted."""
        if self._is_over():
            return
        self._closed = True
        try:
            if not self._is_elsewhere:
                self._close()
        except Exception:
            self._ended()
            raise
        self._ended()

    def _close_now(self) -> None:
        self.close()

    @abstractmethod
    def _close(self) -> None:
        """Does the work of `close`."""

    def __enter__(self) -> Self:
        if self._closed:
            raise ClosedError(f"cannot reopen a closed object: {self!r}", hint="create a new one")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@atexit.register
def _end() -> None:
    """Closes open objects at the exit of Python: clients before their servers.

    All closes of clients begin before the first is waited for, so that many of a silent server end together. Then the
    threads end that call into Python: those of callbacks and of the log.
    """
    left = sorted(_open, key=lambda closing: closing._closed_last)
    try:
        for closing in left:
            if not closing._is_elsewhere:
                _reported(closing._begin_close)
        for closing in left:
            _reported(closing._close_now)
    finally:
        _rocketpy.end_threads()


def _reported(step: Callable[[], None]) -> None:
    """Takes a step at the end of Python. A failure, such as that of a callback, keeps no other object open."""
    try:
        step()
    except (Exception, SystemExit) as error:
        warnings.warn(f"cannot close an object at the exit of Python: {error}", ResourceWarning, stacklevel=1)

"""Objects that own threads and sockets. `with` or `close` closes them, and the end of Python closes the rest."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from types import TracebackType

_open: weakref.WeakSet[Closing] = weakref.WeakSet()
"""The open objects of this process, in no order."""
_hook_of = 0
"""Process id in which the exit hook was set. A forked child has only its own objects."""


class Closing(ABC):
    """Base of everything that is closed once.

    Use it in a `with` statement, or call `close`. Forgotten objects are closed when Python ends; one that is
    collected earlier is reported by a `ResourceWarning`.
    """

    __slots__ = ("__weakref__", "_closed", "_made_by")
    _closed_last: ClassVar[bool] = False
    """True for servers, which clients of this process may still talk to."""
    _warns: ClassVar[bool] = True
    """False for objects that may be dropped without `close`, as in `server.admin().topics()`."""

    def __init__(self) -> None:
        self._closed = True
        self._made_by = os.getpid()

    def _opened(self) -> None:
        """Marks the object as open: from now on it has to be closed."""
        global _hook_of
        self._closed = False
        self._made_by = os.getpid()
        _open.add(self)
        if _hook_of != self._made_by:
            _hook_of = self._made_by
            atexit.register(_close_all, self._made_by)

    @property
    def closed(self) -> bool:
        """True once `close` was called, and before a server was started."""
        return self._closed

    def close(self) -> None:
        """Closes the object; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        _open.discard(self)
        if os.getpid() == self._made_by:
            self._close()

    @abstractmethod
    def _close(self) -> None:
        """Does the work of `close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._warns and not getattr(self, "_closed", True) and os.getpid() == self._made_by:
            warnings.warn(f"never closed: {self!r}", ResourceWarning, source=self, stacklevel=2)


def _close_all(made_by: int) -> None:
    """Closes what is still open when Python ends: clients before the servers that they talk to."""
    if os.getpid() != made_by:
        return
    for closing in sorted(_open, key=lambda closing: closing._closed_last):
        try:
            closing.close()
        except Exception as error:
            warnings.warn(f"closing at the end of Python failed: {error}", ResourceWarning, stacklevel=1)

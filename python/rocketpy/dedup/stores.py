"""Stores for the marks of `rocketpy.dedup`: SQLite, the transaction of the work itself, or a mapping."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from rocketpy.base.clock import monotonic
from rocketpy.base.lifetime import Closing
from rocketpy.base.names import path_text
from rocketpy.config import duration_seconds
from rocketpy.errors import ClosedError, DedupStoreError, ForkedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, MutableMapping

    from rocketpy.config import Duration

__all__ = ["MappingStore", "Mark", "SqliteStore", "Store"]

T = TypeVar("T")

PACE_SECONDS = 0.005
"""Pause between two attempts while another process holds the lock of the file."""
LOCK_SECONDS = 0.1
"""Maximum wait inside SQLite, where Ctrl-C has no effect."""
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@dataclass(frozen=True, slots=True)
class Mark:
    """Mark of one piece of work."""

    owner: str | None
    """Token of the worker with the lease; None if the work is done."""
    at_ms: int
    """End of the lease, or for finished work the time of the mark, in milliseconds since 1970 UTC."""


class Store(ABC):
    """Store of marks, one for each piece of work, identified by name and key. Subclass it for your own store.

    Every call is atomic and thread-safe. Times are milliseconds since 1970 UTC, by the clock of the caller.
    """

    blocks: ClassVar[bool] = True
    """Whether a call may wait for a disk or for other processes. Coroutines then call the store in a thread."""
    purged_by_itself: ClassVar[bool] = True
    """Whether `Dedup` calls `purge` automatically."""

    @abstractmethod
    def begin(self, name: str, key: str, owner: str, now_ms: int, until_ms: int) -> Mark | None:
        """Assigns the work to `owner` with a lease until `until_ms`, unless it is done or has an unexpired lease.

        Returns:
            The existing mark that prevents it, or None if the work is assigned.
        """

    @abstractmethod
    def renew(self, name: str, key: str, owner: str, until_ms: int) -> bool:
        """Extends the lease. Returns False, and changes nothing, if `owner` no longer has it."""

    @abstractmethod
    def finish(self, name: str, key: str, owner: str, now_ms: int) -> bool:
        """Marks the work as done, regardless of the lease. Returns False if `owner` no longer had the lease."""

    @abstractmethod
    def release(self, name: str, key: str, owner: str) -> None:
        """Removes the mark if `owner` still has the lease."""

    @abstractmethod
    def purge(self, name: str, before_ms: int, limit: int) -> int:
        """Removes marks of work finished, and of leases expired, before `before_ms`.

        Returns their number, 0 if none is left.

        An automatically purged store removes at most `limit` marks in one call.
        """


class SqliteStore(Store, Closing):
    """Marks in an SQLite file, which several threads and processes of one machine may share.

    The first call opens the file, and creates it if missing: a process that was forked before that may use the object.
    The folder must be on a local disk: the file uses WAL mode, which network file systems do not support.

    Args:
        path: Path of the file. It may contain other tables; the marks are in `rocketpy_marks`.
        busy_timeout: Maximum wait for the lock of another process or thread, in seconds.
        durable: Whether a mark of finished work is on disk before the call returns. False saves the flush: a kill of
            the process loses no mark, but a power cut may lose the latest marks, and their work is repeated.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, SqliteStore(folder + "/done.db") as store:
        ...     store.begin("billing", "A1", "worker-1", 1_000, 6_000)
        ...     store.begin("billing", "A1", "worker-2", 2_000, 7_000)
        ...     store.finish("billing", "A1", "worker-1", 3_000)
        ...     store.begin("billing", "A1", "worker-2", 9_000, 14_000)
        Mark(owner='worker-1', at_ms=6000)
        True
        Mark(owner=None, at_ms=3000)
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: Duration = 5.0, durable: bool = True) -> None:
        super().__init__()
        self._path = path_text("path", path)
        self._busy_seconds = duration_seconds("busy_timeout", busy_timeout)
        self._end_level = "FULL" if durable else "NORMAL"
        self._lock = threading.Lock()
        self._file: sqlite3.Connection | None = None
        self._opened()

    def begin(self, name: str, key: str, owner: str, now_ms: int, until_ms: int) -> Mark | None:
        """See `Store.begin`."""

        def begin(file: sqlite3.Connection) -> Mark | None:
            file.execute("PRAGMA synchronous = NORMAL")  # a lease need not outlive a power cut: nor does its worker
            with write_transaction(file):
                found = file.execute(
                    "SELECT owner, at_ms FROM rocketpy_marks WHERE name = ? AND key = ?", (name, key)
                ).fetchone()
                if found is not None and (found[0] is None or found[1] > now_ms):
                    return Mark(*found)
                file.execute("INSERT OR REPLACE INTO rocketpy_marks VALUES (?, ?, ?, ?)", (name, key, owner, until_ms))
                return None

        return self._run(begin)

    def renew(self, name: str, key: str, owner: str, until_ms: int) -> bool:
        """See `Store.renew`."""
        return self._run(
            lambda file: (
                file.execute(
                    "UPDATE rocketpy_marks SET at_ms = ? WHERE name = ? AND key = ? AND owner = ?",
                    (until_ms, name, key, owner),
                ).rowcount
                > 0
            )
        )

    def finish(self, name: str, key: str, owner: str, now_ms: int) -> bool:
        """See `Store.finish`."""

        def finish(file: sqlite3.Connection) -> bool:
            file.execute(f"PRAGMA synchronous = {self._end_level}")
            with write_transaction(file):
                found = file.execute(
                    "SELECT owner FROM rocketpy_marks WHERE name = ? AND key = ?", (name, key)
                ).fetchone()
                file.execute("INSERT OR REPLACE INTO rocketpy_marks VALUES (?, ?, NULL, ?)", (name, key, now_ms))
                return bool(found == (owner,))

        return self._run(finish)

    def release(self, name: str, key: str, owner: str) -> None:
        """See `Store.release`."""
        where = "name = ? AND key = ? AND owner = ?"
        self._run(lambda file: file.execute(f"DELETE FROM rocketpy_marks WHERE {where}", (name, key, owner)))

    def purge(self, name: str, before_ms: int, limit: int) -> int:
        """See `Store.purge`."""
        return self._run(
            lambda file: (
                file.execute(
                    "DELETE FROM rocketpy_marks WHERE name = ? AND key IN "
                    "(SELECT key FROM rocketpy_marks WHERE name = ? AND at_ms < ? ORDER BY at_ms LIMIT ?)",
                    (name, name, before_ms, limit),
                ).rowcount
            )
        )

    def _run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Calls a function with the open file, and repeats the call while another process has the lock.

        Waits here, where Ctrl-C works.
        """
        if self._file is not None and self._made_by != os.getpid():
            raise ForkedError(
                f"mark store of process {self._made_by} used in process {os.getpid()} after os.fork(): {self._path}",
                hint="create a store in the child, or do not use it before the fork",
            )
        deadline = monotonic() + self._busy_seconds
        if not self._lock.acquire(timeout=self._busy_seconds):
            raise DedupStoreError(f"mark store was busy for {self._busy_seconds:g} s: {self._path}", retryable=True)
        try:
            while True:
                try:
                    return call(self._open_file())
                except sqlite3.Error as error:
                    is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY
                    if not is_busy or monotonic() >= deadline:
                        raise self._failed(error, is_busy) from error
                time.sleep(PACE_SECONDS)
        finally:
            self._lock.release()

    def _open_file(self) -> sqlite3.Connection:
        if self._closed:
            raise ClosedError(f"mark store is closed: {self._path}")
        if self._file is None:
            file = sqlite3.connect(self._path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                file.execute("PRAGMA journal_mode = WAL")
                with write_transaction(file):
                    for statement in SCHEMA:
                        file.execute(statement)
            except BaseException:
                file.close()
                raise
            self._file = file
            self._opened()  # by this process
        return self._file

    def _failed(self, error: sqlite3.Error, is_busy: bool) -> DedupStoreError:
        if is_busy:
            text = f"mark store was locked by another process for {self._busy_seconds:g} s: {self._path}"
            return DedupStoreError(text, retryable=True, hint="end the other transaction, or increase busy_timeout")
        return DedupStoreError(
            f"cannot use mark store {self._path}: {error}", hint="check its folder, permissions and disk"
        )

    def _close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()

    def __repr__(self) -> str:
        return f"<SqliteStore{' (closed)' if self.closed else ''} {self._path!r}>"


SCHEMA = (
    "CREATE TABLE IF NOT EXISTS rocketpy_marks (name TEXT NOT NULL, key TEXT NOT NULL, owner TEXT, "
    "at_ms INTEGER NOT NULL, PRIMARY KEY (name, key)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS rocketpy_marks_by_time ON rocketpy_marks (name, at_ms)",
)


@contextmanager
def write_transaction(file: sqlite3.Connection) -> Generator[None]:
    """Takes the write lock at the start, so that data read inside is current at the write."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise


class MappingStore(Store):
    """Marks in a mapping of this process, for tests.

    Args:
        marks: Mapping by name and key; default: a new dict. Tests may read and change it.

    Examples:
        >>> from rocketpy.dedup import Dedup
        >>> store = MappingStore()
        >>> once = Dedup("billing", store, key=str, clock=lambda: 1_800_000_000)
        >>> once(lambda message: "done")("A1")
        'done'
        >>> store.marks
        {('billing', 'A1'): Mark(owner=None, at_ms=1800000000000)}
    """

    blocks = False

    def __init__(self, marks: MutableMapping[tuple[str, str], Mark] | None = None) -> None:
        self.marks: MutableMapping[tuple[str, str], Mark] = {} if marks is None else marks
        self._lock = threading.Lock()

    def begin(self, name: str, key: str, owner: str, now_ms: int, until_ms: int) -> Mark | None:
        """See `Store.begin`."""
        with self._lock:
            found = self.marks.get((name, key))
            if found is not None and (found.owner is None or found.at_ms > now_ms):
                return found
            self.marks[name, key] = Mark(owner, until_ms)
            return None

    def renew(self, name: str, key: str, owner: str, until_ms: int) -> bool:
        """See `Store.renew`."""
        with self._lock:
            has_it = self._has(name, key, owner)
            if has_it:
                self.marks[name, key] = Mark(owner, until_ms)
            return has_it

    def finish(self, name: str, key: str, owner: str, now_ms: int) -> bool:
        """See `Store.finish`."""
        with self._lock:
            had_it = self._has(name, key, owner)
            self.marks[name, key] = Mark(None, now_ms)
            return had_it

    def release(self, name: str, key: str, owner: str) -> None:
        """See `Store.release`."""
        with self._lock:
            if self._has(name, key, owner):
                del self.marks[name, key]

    def purge(self, name: str, before_ms: int, limit: int) -> int:
        """See `Store.purge`."""
        with self._lock:
            old = [place for place, mark in self.marks.items() if place[0] == name and mark.at_ms < before_ms][:limit]
            for place in old:
                del self.marks[place]
            return len(old)

    def _has(self, name: str, key: str, owner: str) -> bool:
        found = self.marks.get((name, key))
        return found is not None and found.owner == owner

"""Where `rocketpy.dedup` keeps its marks: SQLite, the transaction of the work itself, or a mapping."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

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
"""Wait between two tries while another process holds the lock of the file."""
LOCK_SECONDS = 0.1
"""Longest wait inside SQLite, where Ctrl-C is not seen."""
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a store knows of one piece of work."""

    owner: str | None
    """Token of the worker that has the lease; None when the work is done."""
    at_ms: int
    """When the lease ends; of work that is done, when that was marked. Milliseconds since 1970 UTC."""


class Store(ABC):
    """Keeps a mark for each piece of work, which a name and a key identify. Subclass it for a store of your own.

    Every call is atomic, and safe in several threads. Times are milliseconds since 1970 UTC, by the caller's clock.
    """

    blocks: ClassVar[bool] = True
    """Whether a call may wait for a disk or for other processes. Coroutines then call the store in a thread."""
    purged_by_itself: ClassVar[bool] = True
    """Whether `Dedup` calls `purge` now and then."""

    @abstractmethod
    def begin(self, name: str, key: str, owner: str, now_ms: int, until_ms: int) -> Mark | None:
        """Gives the work to `owner` with a lease until `until_ms`, unless it is done or under a lease that still runs.

        Returns:
            The mark that forbids it, or None: it is given.
        """

    @abstractmethod
    def renew(self, name: str, key: str, owner: str, until_ms: int) -> bool:
        """Moves the end of the lease. False when `owner` does not have it any longer: nothing changes."""

    @abstractmethod
    def finish(self, name: str, key: str, owner: str, now_ms: int) -> bool:
        """Marks the work as done, whoever has the lease. False when `owner` did not have it any longer."""

    @abstractmethod
    def release(self, name: str, key: str, owner: str) -> None:
        """Removes the mark if `owner` still has the lease."""

    @abstractmethod
    def purge(self, name: str, before_ms: int, limit: int) -> int:
        """Removes marks of work done, and of leases ended, before `before_ms`. Returns how many, 0 when none is left.

        A store that is purged by itself removes at most `limit` in one call.
        """


class SqliteStore(Store, Closing):
    """Marks in an SQLite file. Several threads and processes of one machine may share it.

    The file is opened, and made if need be, at the first call: a process that was forked before then may use the
    object. The folder has to be on a disk of this machine: the file is in WAL mode, which no network file system has.

    Args:
        path: The file. It may hold other tables too; the marks are in `rocketpy_marks`.
        busy_timeout: Longest wait for the lock of another process or thread, in seconds.
        durable: Whether a mark of done work is on disk before the call returns. False saves the flush: a kill of the
            process loses no mark, but a power cut may lose the latest, and their messages are worked on again.

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
        """Calls with the open file, again while another process has its lock. Waits here, where Ctrl-C is seen."""
        if self._file is not None and self._made_by != os.getpid():
            raise ForkedError(
                f"opened by process {self._made_by} and used in process {os.getpid()} after os.fork(): {self._path}",
                hint="make a store in the child, or do not use it before the fork",
            )
        deadline = time.monotonic() + self._busy_seconds
        if not self._lock.acquire(timeout=self._busy_seconds):
            raise DedupStoreError(f"busy for {self._busy_seconds:g} s: {self._path}", retryable=True)
        try:
            while True:
                try:
                    return call(self._open_file())
                except sqlite3.Error as error:
                    is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY
                    if not is_busy or time.monotonic() >= deadline:
                        raise self._failed(error, is_busy) from error
                time.sleep(PACE_SECONDS)
        finally:
            self._lock.release()

    def _open_file(self) -> sqlite3.Connection:
        if self._closed:
            raise ClosedError(f"closed: {self._path}")
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
            text = f"locked by another process for {self._busy_seconds:g} s: {self._path}"
            return DedupStoreError(text, retryable=True, hint="see who keeps a transaction open, or raise busy_timeout")
        return DedupStoreError(f"{error}: {self._path}", hint="check that its folder is there, its owner and the disk")

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
    """Takes the lock for writing at once, so that nothing read inside is out of date when it writes."""
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
        marks: The mapping, by name and key; default: a new dict. A test may look into it, and change it.

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

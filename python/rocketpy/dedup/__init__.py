"""Work that is done once even if its message is delivered twice.

A broker delivers a message at least once: again after a crash, after the reassignment of a queue, after a repeated
send. `Dedup` keeps a mark for each message: running, with a lease, or done. It runs the work of a message without a
mark.

| store | cases in which the work still runs twice | requirements | |---|---|---|
| `SqliteStore`, the default | its process died between the work and the mark; the work took longer than its lease | a
file |
| `TransactionStore` | never | the work is a change of the same database, in one transaction |
| `MappingStore` | the process ended | none: for tests only |
"""

from __future__ import annotations

import functools
import inspect
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from rocketpy.admin.dead_letters import ORIGIN_ID
from rocketpy.base.lifetime import Closing
from rocketpy.base.names import path_text
from rocketpy.base.signature import check_function, is_generator, misfit
from rocketpy.config import duration_seconds
from rocketpy.dedup.claim import Claim, Work, checked_text
from rocketpy.dedup.stores import MappingStore, Mark, SqliteStore, Store
from rocketpy.dedup.transaction import TransactionStore
from rocketpy.errors import ClosedError, InvalidArgumentError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.config import Duration

    M = TypeVar("M")
    R = TypeVar("R")

__all__ = ["Claim", "Dedup", "MappingStore", "Mark", "SqliteStore", "Store", "TransactionStore", "message_key"]

LEASE_SECONDS = 300.0
"""Default lease: longer than most work, and short enough for the retry after a worker died."""
KEEP = timedelta(days=7)
"""Default time to keep marks: longer than a broker keeps messages (72 h by default)."""


def message_key(message: ReceivedMessage) -> str:
    """Id that is the same in all deliveries of a message: `msg_id`, or for a resent dead letter the original `msg_id`.

    The id of a message without a unique key is its position in the log: a send repeated by its producer is not
    recognised.
    """
    return message.properties.get(ORIGIN_ID) or message.msg_id


class Dedup(Closing):
    """Runs the work of each message once. Threads may share it.

    Use it as a decorator of a handler of one message, plain or `async def`, or with `claim` in a `with` statement:

    * The first call marks the message as running, runs the handler, and marks it as done.
    * A call for a message that is done returns None and runs nothing.
    * A call for a message that another process works on raises `InProgressError` with the end of the lease. An
      expired lease is taken over: its worker died, or needs longer than the lease.
    * An exception of the handler removes the mark and is passed on, so that a retry runs at once, without waiting for
      the end of the lease. The retry repeats the work that the handler did before it raised.

    Leases use the wall clock, because restarted processes, and with your own store several machines, share them. A
    clock that is set forward by more than the lease expires leases of running work, which other workers then take over;
    set forward by more than `keep`, it drops marks of finished work. A clock that is set back extends the wait for the
    lease of a dead worker.

    Args:
        name: Name of the work, usually the name of the consumer group. Two kinds of work on one message need two names,
            otherwise the second counts as done. Up to 255 characters.
        store: Path of an SQLite file, or a store.
        key: Function of a message that returns its identifying text, of 1 to 255 characters. Default: `message_key`.
        lease: Maximum duration of the work, in seconds, more than 0. Longer work may run twice; `Claim.renew` extends
            the lease. The lease of a dead worker blocks its message until it expires. Default 300 s.
        keep: Time for which marks of finished work are kept, in seconds; a later duplicate runs again. Default 7 days,
            longer than brokers keep messages by default.
        clock: Function that returns seconds since 1970; tests may replace it.

    Raises:
        InvalidArgumentError: A name or a duration is invalid.

    Examples:
        >>> import rocketpy
        >>> from rocketpy.dedup import Dedup, MappingStore
        >>> server = getfixture("rocketpy_server")
        >>> with server.producer("shop") as producer:
        ...     first = producer.send(rocketpy.Message("dedup-doc", b"10"))
        ...     _ = producer.send(rocketpy.Message("dedup-doc", b"10"), msg_id=first.msg_id)  # stored twice
        >>> paid = []
        >>> once = Dedup("billing", MappingStore())
        >>> @once
        ... def charge(message):
        ...     paid.append(int(message.body))
        >>> with server.consumer("billing", "dedup-doc") as consumer:
        ...     for message in consumer.messages(idle_timeout=1):
        ...         charge(message)
        ...     consumer.commit()
        >>> paid
        [10]
    """

    __slots__ = ("_key", "_owned", "_work")
    _warns = False  # the store does

    def __init__(
        self,
        name: str,
        store: str | os.PathLike[str] | Store,
        *,
        key: Callable[[Any], str] | None = None,
        lease: Duration = LEASE_SECONDS,
        keep: Duration = KEEP,
        clock: Callable[[], float] = time.time,  # noqa: TID251  # of leases that processes share; tests may freeze it
    ) -> None:
        super().__init__()
        check_function("key", key or message_key, "a function of a message that returns text", 1)
        self._key = key or message_key
        checked_text("name", name)
        lease_ms, keep_ms = (
            round(duration_seconds(what, given) * 1000) for what, given in (("lease", lease), ("keep", keep))
        )
        if lease_ms < 1:
            raise InvalidArgumentError("lease must be 1 ms or more", hint="set it to the maximum duration of the work")
        self._owned = None if isinstance(store, Store) else SqliteStore(path_text("store", store))
        self._work = Work(name, self._owned or cast("Store", store), lease_ms=lease_ms, keep_ms=keep_ms, clock=clock)
        self._opened()

    @property
    def name(self) -> str:
        """Name of the work."""
        return self._work.name

    @property
    def store(self) -> Store:
        """Store of the marks."""
        return self._work.store

    @overload
    def __call__(
        self, handler: Callable[[M], Coroutine[Any, Any, R]]
    ) -> Callable[[M], Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, handler: Callable[[M], R]) -> Callable[[M], R | None]: ...
    def __call__(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wraps a handler so that it runs once for each message, and returns None for a duplicate.

        Args:
            handler: Function of one message, plain or `async def`. Pass methods bound: `once(self.handle)`.

        Raises:
            TypeError: The handler is a generator, or takes other arguments.
        """
        check_handler(handler)
        if is_async(handler):

            @functools.wraps(handler)
            async def runs_once_async(message: Any) -> Any:
                async with self.claim(message) as claim:
                    return None if claim.already_done else await handler(message)

            return runs_once_async

        @functools.wraps(handler)
        def runs_once(message: Any) -> Any:
            with self.claim(message) as claim:
                if claim.already_done:
                    return None
                result = handler(message)
                if inspect.isawaitable(result):
                    close = getattr(result, "close", None)
                    if close is not None:
                        close()  # nobody will await it, which Python would warn of
                    raise TypeError(f"{handler!r} returned an awaitable: write it as `async def`")
                return result

        return runs_once

    def claim(self, message: Any) -> Claim:
        """Claims the work of a message, for a `with` or `async with` statement.

        The end of the block marks the work as done; an exception removes the mark. The block always runs, and must
        check `claim.already_done` first.

        Examples:
            >>> from rocketpy.dedup import Dedup, MappingStore
            >>> once = Dedup("billing", MappingStore(), key=lambda message: message)
            >>> for message in ["A1", "A1"]:
            ...     with once.claim(message) as claim:
            ...         print("skipped" if claim.already_done else "done")
            done
            skipped
        """
        if self.closed:
            raise ClosedError(f"dedup is closed: {self!r}")
        return Claim(self._work, checked_text("key", self._key(message)))

    def purge(self) -> int:
        """Removes all marks of work finished, and of leases expired, longer than `keep` ago.

        Needed only for a `TransactionStore`, from time to time, in a separate transaction: other stores are purged
        automatically.

        Returns:
            Number of removed marks.
        """
        removed = 0
        while taken := self._work.purge():
            removed += taken
        return removed

    def _close(self) -> None:
        if self._owned is not None:
            self._owned.close()

    def __repr__(self) -> str:
        return f"<Dedup of {self.name!r} in {self.store!r}>"


def is_async(handler: Callable[..., object]) -> bool:
    """Whether a call of the handler returns a coroutine."""
    call = getattr(handler, "__call__", None)  # noqa: B004  # an object with an `async def __call__`
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def check_handler(handler: Any) -> None:
    """Refuses a handler that cannot be called with one message, or that a call does not run to its end.

    Raises:
        TypeError: The handler does not fit.
    """
    if not callable(handler):
        raise TypeError(f"a handler must be a function of one message, not {handler!r}")
    if is_generator(handler):
        raise TypeError(f"a handler must not be a generator: its call runs nothing: {handler!r}")
    if (signature := misfit(handler, 1)) is not None:
        text = f"a handler takes one message, not {signature}: {handler!r}. Of a method give the bound one"
        raise TypeError(f"{text}: once(self.handle)")

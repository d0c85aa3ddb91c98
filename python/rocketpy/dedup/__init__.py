"""Work that is done once although its message comes twice.

A broker delivers a message at least once: again after a crash, after a queue went to another member, after a repeated
send. `Dedup` keeps a mark for each message: running, with a lease, and done. It runs the work of a message whose mark
says neither.

| store | when the work runs twice all the same | what it needs |
|---|---|---|
| `SqliteStore`, the default | its process died between the work and the mark; it took longer than its lease | a file |
| `TransactionStore` | never | the work is a change of the same database, in one transaction |
| `MappingStore` | the process ended | nothing: it is for tests |
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
"""Longer than most work, and short enough for the retry of what a dead worker left."""
KEEP = timedelta(days=7)
"""Longer than a broker keeps messages (72 h by default), after which none can come again."""


def message_key(message: ReceivedMessage) -> str:
    """The id that stays the same in all deliveries of a message: `msg_id`, or that of the dead letter's first life.

    A message of a producer that gives no unique key has its place in the log as its id: a send that such a producer
    repeats is not recognised.
    """
    return message.properties.get(ORIGIN_ID) or message.msg_id


class Dedup(Closing):
    """Runs the work of each message once. Threads may share it.

    Use it as a decorator of a handler of one message, plain or `async def`, or by `claim` in a `with` statement:

    * The first call marks the message as running, runs the handler, and marks it as done.
    * A call for a message that is done returns None and runs nothing.
    * A call for one that runs elsewhere raises `InProgressError`, which says when the lease ends. A lease that ended is
      taken over: its worker died, or needs longer than the lease.
    * An exception of the handler removes the mark and is passed on, so that a retry runs at once: nothing works on the
      message any longer, so waiting for the end of the lease would only delay it. What the handler did before it raised
      is done again.

    Leases are times of the wall clock, as processes of several starts, and with a store of your own several machines,
    share them. Set forward by more than the lease, a clock ends leases of work that still runs, and other workers take
    it over; set forward by more than `keep`, it forgets what is done. Set back, it makes those who wait for the lease
    of a dead worker wait that much longer.

    Args:
        name: What the work is, usually the name of the consumer group: two kinds of work on one message need two names,
            else the second one is taken for done. Up to 255 characters.
        store: The path of an SQLite file, or a store.
        key: What identifies a message: a function of it that returns text of 1 to 255 characters. Default:
            `message_key`.
        lease: Longest time that the work takes, in seconds. Work that takes longer may run twice; `Claim.renew` moves
            the end. A worker that dies keeps others from its message that long. More than 0. Default 300 s.
        keep: How long marks of work done are kept, in seconds; a duplicate that comes later runs again. Default 7 days,
            longer than brokers keep messages by default.
        clock: Gives seconds since 1970; a test may give one of its own.

    Raises:
        InvalidArgumentError: A name or a duration breaks its rules.

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
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        check_function("key", key or message_key, "a function of a message that returns text", 1)
        self._key = key or message_key
        checked_text("name", name)
        lease_ms, keep_ms = (
            round(duration_seconds(what, given) * 1000) for what, given in (("lease", lease), ("keep", keep))
        )
        if lease_ms < 1:
            raise InvalidArgumentError("lease must be 1 ms or more", hint="give the longest time that the work takes")
        self._owned = None if isinstance(store, Store) else SqliteStore(path_text("store", store))
        self._work = Work(name, self._owned or cast("Store", store), lease_ms=lease_ms, keep_ms=keep_ms, clock=clock)
        self._opened()

    @property
    def name(self) -> str:
        """What the work is."""
        return self._work.name

    @property
    def store(self) -> Store:
        """Where the marks are."""
        return self._work.store

    @overload
    def __call__(
        self, handler: Callable[[M], Coroutine[Any, Any, R]]
    ) -> Callable[[M], Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, handler: Callable[[M], R]) -> Callable[[M], R | None]: ...
    def __call__(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A handler that runs the given one once for each message. It returns None for a duplicate.

        Args:
            handler: A function of one message, plain or `async def`. A method is given bound: `once(self.handle)`.

        Raises:
            TypeError: It is a generator, or takes something else.
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
        """The right to do the work of a message, for a `with` or `async with` statement.

        The end of the block marks the work as done, an exception removes the mark. The block itself always runs, and
        asks `claim.already_done` first.

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
            raise ClosedError(f"closed: {self!r}")
        return Claim(self._work, checked_text("key", self._key(message)))

    def purge(self) -> int:
        """Removes all marks of work that was done, and of leases that ended, longer than `keep` ago.

        Needed only for a `TransactionStore`, now and then, in a transaction of its own: the other stores are purged
        while they are used.

        Returns:
            Number of marks that were removed.
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
    """Whether calling it returns a coroutine."""
    call = getattr(handler, "__call__", None)  # noqa: B004  # an object with an `async def __call__`
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def check_handler(handler: Any) -> None:
    """Refuses what cannot be called with one message, and what a call does not run to its end.

    Raises:
        TypeError: It is such.
    """
    if not callable(handler):
        raise TypeError(f"a handler must be a function of one message, not {handler!r}")
    if is_generator(handler):
        raise TypeError(f"a handler must not be a generator: its call runs nothing: {handler!r}")
    if (signature := misfit(handler, 1)) is not None:
        text = f"a handler takes one message, not {signature}: {handler!r}. Of a method give the bound one"
        raise TypeError(f"{text}: once(self.handle)")

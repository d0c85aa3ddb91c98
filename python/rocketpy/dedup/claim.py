"""Claims of the work of messages, for `rocketpy.dedup`."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import uuid
from typing import TYPE_CHECKING, Self

from rocketpy.base.instant import datetime_of
from rocketpy.base.text import printable
from rocketpy.errors import ClosedError, DedupStoreError, InProgressError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rocketpy.dedup.stores import Store

__all__ = ["Claim", "Work", "checked_text"]

logger = logging.getLogger("rocketpy.dedup")

PURGE_EVERY = 500
"""Number of pieces of work after which old marks are removed."""
PURGE_LIMIT = 1000
"""Maximum number of marks per removal: more than are added in between, and few enough not to block other workers."""
MAX_TEXT = 255
"""Maximum length of a name or key in characters, which a text column of every database accepts."""


class Work:
    """Kind of work: its name, the store of its marks, and their durations."""

    __slots__ = ("_clock", "_ended", "_keep_ms", "lease_ms", "name", "store")

    def __init__(self, name: str, store: Store, *, lease_ms: int, keep_ms: int, clock: Callable[[], float]) -> None:
        self.name = name
        self.store = store
        self.lease_ms = lease_ms
        self._keep_ms = keep_ms
        self._clock = clock
        self._ended = 0

    def now_ms(self) -> int:
        """Current time in milliseconds since 1970 UTC."""
        return int(self._clock() * 1000)

    def purge(self) -> int:
        """Removes some old marks. Returns their number, 0 if none is left."""
        return self.store.purge(self.name, self.now_ms() - self._keep_ms, PURGE_LIMIT)

    def purge_now_and_then(self) -> None:
        """Removes some old marks, after the first piece of work and then after every `PURGE_EVERY`."""
        self._ended += 1  # threads may lose a step: it need not be exact
        if self.store.purged_by_itself and self._ended % PURGE_EVERY == 1:
            try:
                self.purge()
            except Exception as error:  # the work is done, and marked
                logger.warning("cannot remove old marks of %s: %s", self.name, printable(str(error)))


class Claim:
    """Claim of the work of one message. Created by `Dedup.claim`; use it in one `with` statement.

    Attributes:
        already_done: Whether the work was done before, so that the block must skip it. Set on entry.
        key: Identifying text of the message.
    """

    __slots__ = ("_owner", "_work", "already_done", "key")

    def __init__(self, work: Work, key: str) -> None:
        self._work = work
        self.key = key
        self.already_done = False
        self._owner: str | None = None  # while it has the lease

    def renew(self) -> None:
        """Restarts the lease now. For long work, between its steps.

        Raises:
            InProgressError: The lease expired before, and another worker took the work over or finished it. Stop the
                work.
            DedupStoreError: The mark could not be written; the lease is not extended. A retry is safe.
            ClosedError: The call is outside the `with` statement.
        """
        if self._owner is None:
            raise ClosedError(f"claim to {self.key} is not active: renew it inside its `with` block")
        work = self._work
        if not work.store.renew(work.name, self.key, self._owner, work.now_ms() + work.lease_ms):
            raise InProgressError(
                f"lease on {self.key} of {work.name} expired, and another worker took it over",
                retryable=True,
                may_have_been_applied=True,
                hint="stop this work; use a longer lease, or renew it earlier",
            )

    def _begin(self) -> None:
        work = self._work
        if self._owner is not None:
            raise InvalidArgumentError(
                f"claim to {self.key} is already in use", hint="call claim(message) for each `with` statement"
            )
        now_ms, owner = work.now_ms(), uuid.uuid4().hex
        mark = work.store.begin(work.name, self.key, owner, now_ms, now_ms + work.lease_ms)
        self.already_done = mark is not None and mark.owner is None
        if mark is None:
            self._owner = owner
        elif not self.already_done:
            ends_at = datetime_of(mark.at_ms)
            until = "an unknown time" if ends_at is None else ends_at.isoformat(" ", "milliseconds")
            error = InProgressError(
                f"another worker of {work.name} holds the lease on {self.key} until {until}",
                retryable=True,
                may_have_been_applied=True,
                hint="retry later: the retry skips finished work, and takes the work over after the lease",
            )
            error.lease_ends_at = ends_at
            raise error

    def _finish(self) -> None:
        if (owner := self._owner) is None:
            return
        self._owner = None
        work = self._work
        try:
            had_it = work.store.finish(work.name, self.key, owner, work.now_ms())
        except DedupStoreError as error:
            error.may_have_been_applied = True
            raise
        if not had_it:
            text = "lease on %s of %s expired before the end of the work, which may have run twice; extend or renew it"
            logger.warning(text, printable(self.key), work.name)
        work.purge_now_and_then()

    def _release(self) -> None:
        if (owner := self._owner) is None:
            return
        self._owner = None
        work = self._work
        try:
            work.store.release(work.name, self.key, owner)
        except Exception as error:  # the error of the work is the one to see
            text = "mark of %s of %s not removed, valid until its lease expires or its transaction is rolled back: %s"
            logger.warning(text, printable(self.key), work.name, printable(str(error)))

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        else:
            self._release()

    async def __aenter__(self) -> Self:
        try:
            await self._aside(self._begin)
        except asyncio.CancelledError:
            await self._aside(self._release)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._aside(self._finish if kind is None else self._release)

    async def _aside(self, call: Callable[[], None]) -> None:
        """Calls the store without blocking the loop. A started call completes even if the task is cancelled."""
        if not self._work.store.blocks:
            call()
            return
        context = contextvars.copy_context()
        # Not a task, which the end of the loop would cancel while the call continues.
        ended = asyncio.get_running_loop().run_in_executor(None, context.run, call)
        cancelled: asyncio.CancelledError | None = None
        while not ended.done():
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError as error:  # each of several
                cancelled = error
        if cancelled is None:
            ended.result()
            return
        ended.exception()  # the cancellation hides it
        raise cancelled


def checked_text(what: str, given: object) -> str:
    """Checks a name or a key.

    Raises:
        TypeError: The value is not text.
        InvalidArgumentError: The value is empty or too long.
    """
    if not isinstance(given, str):
        raise TypeError(f"{what} must be text, not {type(given).__name__}")
    if not 0 < len(given) <= MAX_TEXT:
        raise InvalidArgumentError(f"{what} must have 1 to {MAX_TEXT} characters, not {len(given)}: {given[:40]!r}")
    return given

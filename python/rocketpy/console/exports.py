"""Exports of dead letters as JSON lines: streamed, bounded in bytes and time, one at a time for each user."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from rocketpy.base.clock import monotonic
from rocketpy.console.audit import AuditError
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from rocketpy.admin.dead_letters import DeadLetter

__all__ = ["ExportRefusedError", "Exports"]

logger = logging.getLogger("rocketpy.console")

MAX_BYTES = 1 << 30
"""Maximum size of one export."""
MAX_SECONDS = 600.0
"""Maximum duration of one export."""
GRACE_SECONDS = 5.0
"""Time for a client that does not read, after the maximum duration."""
CHUNK_BYTES = 64 << 10
"""Size from which collected lines are sent."""


class ExportRefusedError(RocketPyError):
    """The user has an export under way."""


class Claim:
    """Right of a user to the only export of that user, until its end or its deadline."""

    def __init__(self, user: str, deadline: float) -> None:
        self.user, self.deadline = user, deadline
        self.count = 0
        """Number of exported letters."""
        self.reason = "the client left"
        """Reason why the export is incomplete; empty after a complete one."""


class Download(StreamingResponse):
    """Response that ends at a deadline even if its client does not read, and calls a function at its end."""

    def __init__(
        self, content: AsyncIterator[bytes], seconds: float, ended: Callable[[], Awaitable[None]], name: str
    ) -> None:
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        super().__init__(content, media_type="application/octet-stream", headers=headers)
        self._seconds, self._ended = seconds, ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        try:
            with suppress(TimeoutError):  # the answer stays incomplete, which its client notices
                async with asyncio.timeout(self._seconds):
                    await super().__call__(scope, receive, send)
        finally:
            await self._ended()


class Exports:
    """Exports under way.

    Args:
        max_bytes: Maximum size of one export.
        max_seconds: Maximum duration of one export.
        clock: Seconds of a monotonic clock.
    """

    def __init__(
        self, *, max_bytes: int = MAX_BYTES, max_seconds: float = MAX_SECONDS, clock: Callable[[], float] = monotonic
    ) -> None:
        self._max_bytes, self._max_seconds, self._clock = max_bytes, max_seconds, clock
        self._claims: dict[str, Claim] = {}

    def claim(self, user: str) -> Claim:
        """Claims the export of a user. A claim past its deadline is replaced: its response was never sent.

        Raises:
            ExportRefusedError: The user has an export under way.
        """
        known = self._claims.get(user)
        now = self._clock()
        if known is not None and known.deadline + 2 * GRACE_SECONDS > now:
            text = f"cannot start the export: user {user} has another one under way"
            raise ExportRefusedError(text, hint="wait for its end, or stop the download")
        self._claims[user] = Claim(user, now + self._max_seconds)
        return self._claims[user]

    def release(self, claim: Claim) -> None:
        """Gives a claim back; a second call does nothing."""
        if self._claims.get(claim.user) is claim:
            del self._claims[claim.user]

    def response(
        self,
        claim: Claim,
        letters: AsyncIterator[DeadLetter],
        facts: Callable[[DeadLetter], dict[str, Any]],
        ended: Callable[[], Awaitable[None]],
    ) -> Download:
        """Response with a line for each letter.

        Args:
            claim: Claim that the end of the response releases.
            letters: The letters.
            facts: Gives the fields of a letter.
            ended: Called at the end, for the audit.
        """

        async def finish() -> None:
            self.release(claim)
            try:
                await ended()
            except AuditError as error:  # the letters are sent already
                logger.error("%s; export of %d dead letters by %s", error, claim.count, claim.user)

        seconds = max(0.0, claim.deadline - self._clock()) + GRACE_SECONDS
        lines = self.lines(claim, letters, facts)
        return Download(lines, seconds, finish, "dead-letters.jsonl")

    async def lines(
        self, claim: Claim, letters: AsyncIterator[DeadLetter], facts: Callable[[DeadLetter], dict[str, Any]]
    ) -> AsyncIterator[bytes]:
        """Yields JSON lines in chunks. The last line of an incomplete export has the reason as `incomplete`."""
        size, chunk, reason = 0, bytearray(), ""
        try:
            async for letter in letters:
                line = json.dumps(facts(letter), ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
                if size + len(line) > self._max_bytes:
                    reason = f"the export reached its maximum size of {self._max_bytes:,} bytes"
                    break
                if self._clock() > claim.deadline:
                    reason = f"the export reached its maximum duration of {self._max_seconds:g} s"
                    break
                size, claim.count = size + len(line), claim.count + 1
                chunk += line
                if len(chunk) >= CHUNK_BYTES:
                    yield bytes(chunk)
                    chunk.clear()
        except RocketPyError as error:
            reason = f"the export failed: {error}"
        if reason:
            chunk += json.dumps({"incomplete": reason, "letters": claim.count}).encode() + b"\n"
        yield bytes(chunk)
        claim.reason = reason  # not reached if the client left

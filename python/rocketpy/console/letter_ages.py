"""Oldest letter of each group, read in the background: the list waits for no broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rocketpy.base.clock import monotonic
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocketpy.admin.dead_letters import DeadLetterGroup
    from rocketpy.aio.admin import AsyncAdmin

__all__ = ["LetterAges"]

FRESH_SECONDS = 30.0
"""Age of an answer after which a visit starts the next read."""
MAX_SECONDS = 60.0
"""Maximum duration of one read of all groups."""


class LetterAges:
    """Last answer about all groups with dead letters, and one read at a time.

    Args:
        clock: Seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._found: dict[str, DeadLetterGroup] = {}
        self._read_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self.error: str | None = None
        """Reason why the last read failed; None if it did not."""

    @property
    def is_known(self) -> bool:
        """Whether a read has ended."""
        return self._read_at is not None

    def known(self, admin: AsyncAdmin) -> Mapping[str, DeadLetterGroup]:
        """What is known now. Starts a read if that is old.

        Args:
            admin: Client of the collector: every visitor may see names and times.
        """
        is_old = self._read_at is None or self._clock() - self._read_at > FRESH_SECONDS
        if is_old and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._read(admin), name="ages of dead letters")
        return self._found

    async def read(self, admin: AsyncAdmin) -> Mapping[str, DeadLetterGroup]:
        """Waits for the read that runs, or for a new one."""
        self._read_at = None
        self.known(admin)
        if self._task is not None:
            await asyncio.wait([self._task])
        return self._found

    async def _read(self, admin: AsyncAdmin) -> None:
        try:
            async with asyncio.timeout(MAX_SECONDS):
                groups = await admin.dead_letter_groups(partial=True)
            self._found, self.error = {one.group: one for one in groups}, None
        except TimeoutError:
            self.error = f"dead letters of all groups were not read within {MAX_SECONDS:g} s"
        except RocketPyError as error:
            self.error = str(error)
        self._read_at = self._clock()

"""Resends of many dead letters that outlive their page, as jobs with an id, a rate and a result for each letter."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from rocketpy.console.audit import AuditError
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from rocketpy.admin.dead_letters import DeadLetter, Resent
    from rocketpy.aio.admin import AsyncAdmin

__all__ = [
    "WORDS",
    "JobRefusedError",
    "Jobs",
    "LetterResult",
    "Order",
    "ResendJob",
    "count_of",
]

MAX_RUNNING = 4
"""Maximum number of jobs that run at a time."""
MAX_KEPT = 20
"""Maximum number of finished jobs whose results stay visible."""
MAX_LETTERS = 10_000
"""Maximum number of dead letters of one job."""
MAX_RESULTS = 500
"""Maximum number of results that a job keeps: of the newest letters, and again of the first rejected ones."""
MAX_DETAIL = 500
"""Maximum number of characters of a reason."""
RATES = (0.1, 1000.0)
"""Minimum and maximum number of messages per second."""

Outcome: TypeAlias = Literal["sent", "sent before", "no topic", "rejected"]
State: TypeAlias = Literal["running", "done", "cancelled", "failed"]
Letters: TypeAlias = "Callable[[AsyncAdmin], AsyncIterator[DeadLetter]]"
Opened: TypeAlias = "Callable[[], AbstractAsyncContextManager[AsyncAdmin]]"
Ended: TypeAlias = "Callable[[ResendJob], Awaitable[None]]"


class JobRefusedError(RocketPyError):
    """The job cannot start: its group has a running one, or too many run."""


@dataclass(frozen=True, slots=True)
class LetterResult:
    """Outcome of one dead letter, without its body."""

    place: str
    """`broker:queue:offset` of the dead letter."""
    msg_id: str
    topic: str | None
    """Target topic; None if the original topic is unknown."""
    outcome: Outcome
    detail: str
    """`broker:queue:offset` of the copy, or the reason of a rejection."""


@dataclass(frozen=True, slots=True)
class Order:
    """Parameters of a resend."""

    cluster: str
    group: str
    user: str
    selection: str
    """The selection in words, such as `3 selected` or `all with topic orders`."""
    to: str | None = None
    """Target topic for all letters; None for their original topics."""
    rate: float = 10.0
    again: bool = False
    total: int | None = None
    """Number of selected letters; None if it is unknown."""


def now() -> datetime:
    """Current time in UTC."""
    return datetime.now(UTC)


@dataclass(slots=True, eq=False)
class ResendJob:
    """A resend under way, or a finished one."""

    order: Order
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: State = "running"
    counts: Counter[Outcome] = field(default_factory=Counter)
    newest: deque[LetterResult] = field(default_factory=lambda: deque(maxlen=MAX_RESULTS))
    """Results of the last letters, the newest last."""
    rejected: list[LetterResult] = field(default_factory=list)
    """Results of the first rejected letters."""
    started_at: datetime = field(default_factory=now)
    ended_at: datetime | None = None
    error: str | None = None
    """Reason of a failed job; None for the others."""
    is_cut: bool = False
    """Whether the job ended at its maximum number of letters."""
    audit_error: str | None = None
    """Error of the audit record of the end; None if it was stored."""

    @property
    def handled(self) -> int:
        """Number of letters with a result."""
        return self.counts.total()

    @property
    def is_running(self) -> bool:
        """Whether the job still sends."""
        return self.state == "running"

    @property
    def per_second(self) -> float | None:
        """Letters per second since the start; None in the first second."""
        seconds = ((self.ended_at or now()) - self.started_at).total_seconds()
        return self.handled / seconds if seconds >= 1 else None

    @property
    def share(self) -> float | None:
        """Handled part of the selected letters, from 0 to 1; None if their number is unknown."""
        total = self.order.total
        return None if not total else min(1.0, self.handled / total)

    def add(self, result: LetterResult) -> None:
        """Counts a result, and keeps it within the limits."""
        self.counts[result.outcome] += 1
        self.newest.append(result)
        if result.outcome == "rejected" and len(self.rejected) < MAX_RESULTS:
            self.rejected.append(result)

    def summary(self) -> str:
        """The result in one line, for the page and the audit."""
        parts = [f"{self.counts['sent']:,} sent"]
        parts += [f"{self.counts[name]:,} {words}" for name, words in WORDS.items() if self.counts[name]]
        text = ", ".join(parts)
        return f"{text}; {self.state}" if self.error is None else f"{text}; failed: {self.error}"


WORDS: dict[Outcome, str] = {
    "sent before": "sent before",
    "no topic": "without an original topic",
    "rejected": "rejected",
}
"""Words for the outcomes that are not a send."""


def place_of(queue: object, offset: int) -> str:
    """`broker:queue:offset` of a message."""
    return f"{queue.broker_name}:{queue.queue_id}:{offset}"  # type: ignore[attr-defined]


def result_of(one: Resent) -> LetterResult:
    """Reduces the outcome of a letter to text: a kept message would keep its body."""
    message = one.letter.message
    outcome: Outcome = "sent"
    detail = ""
    if one.rejected is not None:
        outcome, detail = "rejected", str(one.rejected)[:MAX_DETAIL]
    elif one.topic is None:
        outcome = "no topic"
    elif one.receipt is None:
        outcome = "sent before"
    else:
        detail = place_of(one.receipt.queue, one.receipt.queue_offset)
    return LetterResult(place_of(message.queue, message.queue_offset), message.msg_id, one.topic, outcome, detail)


def count_of(job: ResendJob) -> str:
    """Progress in words: `12 of 37`."""
    total = job.order.total
    return f"{job.handled:,}" if total is None else f"{job.handled:,} of {total:,}"


class Jobs:
    """Jobs of one console, in its memory: they end with the process.

    Args:
        max_letters: Maximum number of dead letters of one job.
    """

    def __init__(self, *, max_letters: int = MAX_LETTERS) -> None:
        self._jobs: dict[str, ResendJob] = {}  # by id, the oldest first
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._max_letters = max_letters
        self._is_closed = False

    def start(self, order: Order, letters: Letters, admin: Opened, ended: Ended) -> ResendJob:
        """Starts a job in the running event loop.

        Args:
            order: Its parameters.
            letters: Gives the letters to resend, with the client of the job.
            admin: Opens the client of the job: that of the page may close before the job ends.
            ended: Called once after the end, for the audit.

        Raises:
            JobRefusedError: The group has a running job, too many run, or the console ends.
        """
        self._check(order)
        job = ResendJob(order)
        self._jobs[job.id] = job
        self._tasks[job.id] = asyncio.create_task(self._run(job, letters, admin, ended), name=f"resend {job.id}")
        self._forget()
        return job

    def _check(self, order: Order) -> None:
        what = f"cannot start a resend for group {order.group}"
        if self._is_closed:
            raise JobRefusedError(f"{what}: the console is ending")
        running = self.running(order.cluster, order.group)
        if running is not None:
            raise JobRefusedError(
                f"{what}: job {running.id} of this group is running", hint="wait for it, or cancel it"
            )
        if len(self._tasks) >= MAX_RUNNING:
            raise JobRefusedError(f"{what}: {MAX_RUNNING} jobs are running", hint="wait for one of them")

    def running(self, cluster: str, group: str) -> ResendJob | None:
        """The running job of a group; None without one."""
        found = (job for job in self.of_group(cluster, group) if job.is_running)
        return next(found, None)

    def of_group(self, cluster: str, group: str) -> list[ResendJob]:
        """Jobs of a group, the newest first."""
        return [job for job in self.all() if (job.order.cluster, job.order.group) == (cluster, group)]

    def all(self) -> list[ResendJob]:
        """All jobs, the newest first."""
        return list(reversed(self._jobs.values()))

    def get(self, cluster: str, job_id: str) -> ResendJob | None:
        """A job of a cluster by its id; None if it is unknown or forgotten."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.order.cluster == cluster else None

    async def cancel(self, job: ResendJob) -> None:
        """Ends a job, and waits for its end. Sent letters stay sent. Does nothing after the end of the job."""
        task = self._tasks.get(job.id)
        if task is not None:
            await self._end([task])

    async def close(self) -> None:
        """Ends all jobs, and refuses new ones."""
        self._is_closed = True
        await self._end(list(self._tasks.values()))

    @staticmethod
    async def _end(tasks: list[asyncio.Task[None]]) -> None:
        await asyncio.sleep(0)  # a task that is cancelled before its first step would leave its job running
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _forget(self) -> None:
        """Drops the oldest finished jobs over the limit."""
        finished = [job.id for job in self._jobs.values() if not job.is_running]
        for job_id in finished[: max(0, len(finished) - MAX_KEPT)]:
            del self._jobs[job_id]

    async def _run(self, job: ResendJob, letters: Letters, admin: Opened, ended: Ended) -> None:
        try:
            async with admin() as client:
                await self._resend(job, letters(client), client)
            job.state = "done"
        except asyncio.CancelledError:
            job.state = "cancelled"
        except RocketPyError as error:
            job.state, job.error = "failed", str(error)
        except Exception as error:
            job.state, job.error = "failed", f"defect of the console: {type(error).__name__}"
            raise
        finally:
            job.ended_at = now()
            self._tasks.pop(job.id, None)
            self._forget()
            await self._report(job, ended)

    async def _report(self, job: ResendJob, ended: Ended) -> None:
        """Writes the end to the audit. The letters are sent already: a failure is shown apart from the result."""
        try:
            await ended(job)
        except (AuditError, RocketPyError) as error:
            job.audit_error = str(error)

    async def _resend(self, job: ResendJob, letters: AsyncIterator[DeadLetter], client: AsyncAdmin) -> None:
        bounded = self._bounded(job, letters)
        order = job.order
        async for one in client.resend_dead_letters(bounded, to=order.to, rate=order.rate, again=order.again):
            job.add(result_of(one))

    async def _bounded(self, job: ResendJob, letters: AsyncIterator[DeadLetter]) -> AsyncIterator[DeadLetter]:
        left = self._max_letters
        async for letter in letters:
            if left == 0:
                job.is_cut = True
                break
            left -= 1
            yield letter
        with suppress(AttributeError):
            await letters.aclose()  # type: ignore[attr-defined]

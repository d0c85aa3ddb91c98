"""Waiting messages: delays and timers by due time, retries by group, open transactions by age."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from rocketpy.base.clock import monotonic
from rocketpy.base.names import RETRY_PREFIX
from rocketpy.console.tables import page_of, sorted_rows
from rocketpy.console.view import PageNotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response

    from rocketpy.console.snapshot import GroupRow
    from rocketpy.console.view import View

__all__ = ["Kept", "show"]

T = TypeVar("T")

KINDS = {"delayed": "Delayed", "retry": "Retries", "transaction": "Transactions"}
"""Tabs by their names in URLs."""
MAX_MESSAGES = 100
"""Maximum number of messages of one page: the first by due time, or the oldest."""
KEPT_SECONDS = 5.0
"""Time for which one answer serves all visits of a user: each reads up to 10,000 messages."""
MAX_KEPT = 64

ORDERS: dict[str, Callable[[GroupRow], object]] = {
    "group": lambda row: row.name,
    "retry": lambda row: row.retries,
    "members": lambda row: row.members,
    "dead": lambda row: row.dead_letters,
}
"""Columns of retries that sort, by their names in URLs."""


class Kept:
    """Answers by key for a few seconds, one read at a time for each key.

    Args:
        keep_seconds: Time for which an answer is kept.
        clock: Seconds of a monotonic clock.
    """

    def __init__(self, *, keep_seconds: float = KEPT_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._seconds, self._clock = keep_seconds, clock
        self._known: dict[tuple[str, str], tuple[float, Any]] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    async def get(self, key: tuple[str, str], read: Callable[[], Awaitable[T]]) -> T:
        """The answer of a key; read if it is old. An error is not kept."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            at, found = self._known.get(key, (None, None))
            if at is None or self._clock() - at > self._seconds:
                found = await read()
                self._known[key] = self._clock(), found
                self._forget()
        return found  # type: ignore[return-value]

    def _forget(self) -> None:
        while len(self._known) > MAX_KEPT:
            oldest = min(self._known, key=lambda one: self._known[one][0])
            del self._known[oldest]
            self._locks.pop(oldest, None)


async def show(view: View) -> Response:
    """One kind of waiting messages."""
    kind = view.query.get("kind", "delayed")
    if kind not in KINDS:
        raise PageNotFoundError(f"waiting messages have the kinds {', '.join(KINDS)}")
    tabs = [(title, view.url("waiting", kind=name), name == kind) for name, title in KINDS.items()]
    if kind == "retry":
        return retries(view, tabs)
    kept = view.console.extra("waiting", Kept)
    admin, key = view.admin, (view.session.user, kind)
    if kind == "transaction":
        found: Any = await kept.get(key, lambda: admin.open_transactions(max_messages=MAX_MESSAGES))
    else:
        found = await kept.get(key, lambda: admin.waiting_messages(max_messages=MAX_MESSAGES))
    return view.answer(
        f"waiting_{kind}.html", found, tabs=tabs, max_messages=MAX_MESSAGES, retry_prefix=RETRY_PREFIX,
        timers=timers_of(view),
    )  # fmt: skip


def timers_of(view: View) -> list[tuple[str, int | None]]:
    """Number of timers by broker, from the snapshot; None where the broker does not report it."""
    return [(row.name, row.status.timers) for row in view.snapshot.masters]


def retries(view: View, tabs: list[tuple[str, str, bool]]) -> Response:
    """Groups with retries that are due, from the snapshot only."""
    order = view.query.get("order", "-retry")
    found = [row for row in view.snapshot.groups.values() if row.retries]
    rows = page_of(sorted_rows(found, order, ORDERS, lambda row: row.name), view.query)
    view.watch("group", [row.name for row in rows.rows])
    data = {"groups": rows.rows, "total": rows.total}
    return view.answer("waiting_retry.html", data, rows=rows, order=order, tabs=tabs)

"""Groups: the list of the snapshot, and one group with its lag, members and retries."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rocketpy.base.names import RETRY_PREFIX
from rocketpy.base.text import printable
from rocketpy.console.names import shown
from rocketpy.console.progress import MemberRow, TopicRow, Trend, member_rows, topic_rows, trend_of
from rocketpy.console.series import series_answer
from rocketpy.console.tables import page_of, sorted_rows
from rocketpy.errors import UNKNOWN, AccessDeniedError, GroupNotFoundError, RocketPyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.responses import Response

    from rocketpy import MessageQueue
    from rocketpy.admin.answers import ConsumerRunningInfo, MissingBroker
    from rocketpy.admin.status import WaitingRetries
    from rocketpy.console.snapshot import GroupRow
    from rocketpy.console.view import View

__all__ = ["frame", "index", "members", "retry", "show"]

T = TypeVar("T")

OWNER_SECONDS = 1.5
"""Timeout for the members' own reports of their queues; the table shows unknown owners after it."""
MAX_QUEUES = 500
"""Maximum number of queues of an open topic on the page; the JSON has all."""


ORDERS: dict[str, Callable[[GroupRow], Any]] = {
    "group": lambda row: row.name,
    "members": lambda row: row.members,
    "topics": lambda row: len(row.topics),
    "lag": lambda row: row.lag,
    "behind": lambda row: row.behind,
    "out": lambda row: row.out_rate,
    "retry": lambda row: row.retries,
    "dead": lambda row: row.dead_letters,
}
"""Columns that sort, by their names in URLs."""
FILTERS: dict[str, tuple[str, Callable[[GroupRow], bool]]] = {
    "lag": ("with lag", lambda row: bool(row.lag)),
    "idle": ("without members", lambda row: row.members == 0),
    "differs": ("differing subscriptions", lambda row: bool(row.differs)),
}
"""Filters by their names in URLs: label and predicate."""


def matching(rows: Iterable[GroupRow], query: dict[str, str]) -> list[GroupRow]:
    """Groups whose name contains `q`, and that pass the filters of a query."""
    text = query.get("q", "").strip().lower()
    wanted = [test for name, (_, test) in FILTERS.items() if query.get(name)]
    return [row for row in rows if text in row.name.lower() and all(test(row) for test in wanted)]


async def index(view: View) -> Response:
    """List of groups, from the snapshot only."""
    found = matching(view.snapshot.groups.values(), view.query)
    order = view.query.get("order", "-lag")
    rows = page_of(sorted_rows(found, order, ORDERS, lambda row: row.name), view.query)
    view.watch("group", [row.name for row in rows.rows])
    filters = [(name, label, bool(view.query.get(name))) for name, (label, _) in FILTERS.items()]
    data = {"groups": rows.rows, "total": rows.total, "page": rows.page, "size": rows.size}
    return view.answer("groups.html", data, rows=rows, order=order, filters=filters)


def frame(view: View, name: str, tab: str) -> dict[str, Any]:
    """Values that all pages of a group show: name, tabs, and its row of the snapshot if there is one."""
    view.watch("group", [name])
    titles = {"": "Lag", "members": "Members", "retry": "Retry", "reset": "Reset", "config": "Config"}
    if not view.may("manage"):
        del titles["reset"]
    tabs = [(title, view.url("groups", name, *filter(None, [part])), part == tab) for part, title in titles.items()]
    return {"group": name, "tabs": tabs, "row": view.snapshot.groups.get(name)}


async def known(call: Awaitable[T], otherwise: T) -> tuple[T, str | None]:
    """Result of a call, or a replacement with the error of a broker. An unknown group and a refusal are raised."""
    try:
        return await call, None
    except (AccessDeniedError, GroupNotFoundError):
        raise
    except UNKNOWN as error:
        return otherwise, str(error)


async def owners_of(view: View, group: str) -> dict[MessageQueue, tuple[str, ...]] | None:
    """Client ids by queue; None if the members do not report in time."""
    try:
        async with asyncio.timeout(OWNER_SECONDS):
            return await view.admin.queue_owners(group)
    except (TimeoutError, RocketPyError):
        return None


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a group, as its page and the API show it."""

    group: str
    members: int | None
    lag: int | None
    behind: float | None
    topics: list[TopicRow]
    trend: Trend | None
    errors: list[str]
    missing: tuple[MissingBroker, ...] = ()
    has_owners: bool = True


async def progress_of(view: View, group: str) -> Progress:
    """Reads the progress of a group: lags, delays, members and owners at the same time."""
    admin = view.admin
    lags, delays, present, owners = await asyncio.gather(
        known(admin.group_lag(group, partial=True), None),
        known(admin.queue_delays(group, partial=True), None),
        known(admin.group_members(group, partial=True), None),
        owners_of(view, group),
    )
    errors = list(dict.fromkeys(error for _, error in (lags, delays, present) if error is not None))
    behind: dict[MessageQueue, float] = {one.queue: one.behind_seconds for one in delays[0] or ()}
    topics = topic_rows(lags[0] or (), behind, owners)
    own = [one for one in topics if one.topic != RETRY_PREFIX + group]
    points = view.history.read(("group", group, "lag"), "1h", view.snapshot.made_at)
    return Progress(
        group=group,
        members=None if present[0] is None else len(present[0]),
        lag=None if lags[0] is None else sum(one.lag for one in own),
        behind=max((one.behind for one in own if one.behind is not None), default=None),
        topics=sorted(topics, key=lambda one: (one.topic == RETRY_PREFIX + group, one.topic)),
        trend=trend_of(points.values, points.step),
        errors=errors,
        missing=tuple(lags[0].missing) if lags[0] is not None else (),
        has_owners=owners is not None,
    )


async def show(view: View) -> Response:
    """Lag of one group by topic and queue."""
    name = view.path["group"]
    data = await progress_of(view, name)
    opened = view.query.get("open") or (data.topics[0].topic if len(data.topics) == 1 else "")
    values = frame(view, name, "")
    return view.answer("group.html", data, opened=opened, max_queues=MAX_QUEUES, retry=RETRY_PREFIX + name, **values)


async def series(view: View) -> Response:
    """History of the lag, for the chart."""
    name = view.path["group"]
    return series_answer(view, f"Lag of {shown(name, 80)}", {"lag": ("group", name, "lag")})


async def members(view: View) -> Response:
    """Live members, and the report of one of them on request."""
    name, wanted = view.path["group"], view.query.get("client", "")
    stacks = bool(view.query.get("stacks"))
    found = await view.admin.describe_group(name, partial=True)
    report, problem = await report_of(view, name, wanted, stacks=stacks) if wanted else (None, None)
    rows: list[MemberRow] = member_rows(found, [report] if report else [], RETRY_PREFIX)
    values = frame(view, name, "members")
    data = {"members": rows, "report": report}
    differing = sum(row.differs for row in rows)
    return view.answer(
        "group_members.html", data, rows=rows, report=report, problem=problem, wanted=wanted, stacks=stacks,
        differing=differing, missing=found.missing, stack_text=stack_text(report), **values,
    )  # fmt: skip


async def report_of(
    view: View, group: str, client: str, *, stacks: bool
) -> tuple[ConsumerRunningInfo | None, str | None]:
    """Report of a member by itself, or the error."""
    try:
        report = await view.admin.consumer_running_info(group, client, jstack=stacks)
    except RocketPyError as error:
        return None, str(error)
    return report, report.error


async def retry(view: View) -> Response:
    """Messages of a group that wait for their retry, and those whose delay has ended."""
    name = view.path["group"]
    topic = RETRY_PREFIX + name
    settings, waiting, due = await asyncio.gather(
        known(view.admin.group_settings(name, partial=True), None),
        known(view.admin.waiting_retries(name), None),
        known(view.admin.group_lag(name, topic, partial=True), None),
    )
    retries: WaitingRetries | None = waiting[0]
    data = {
        "waiting": retries,
        "due": None if due[0] is None else sum(one.lag for one in due[0]),
        "settings": settings[0],
        "errors": list(dict.fromkeys(error for _, error in (settings, waiting, due) if error is not None)),
    }
    limits = sorted({one.retries for one in settings[0] or ()})
    return view.answer("group_retry.html", data, topic=topic, limits=limits, **frame(view, name, "retry"))


def stack_text(report: ConsumerRunningInfo | None) -> str:
    """Stacks of a report as visible text."""
    return "" if report is None or not report.jstack else printable(report.jstack, keep="\n\t")

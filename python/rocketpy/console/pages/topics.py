"""Topics: the list, and one topic with its queues and groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy.console.names import row_id
from rocketpy.console.series import series_answer
from rocketpy.console.tables import page_of, sorted_rows
from rocketpy.console.view import PageNotFoundError
from rocketpy.errors import UNKNOWN, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.responses import Response

    from rocketpy.admin.cluster import QueueInfo, TopicInfo
    from rocketpy.console.settings import Permission
    from rocketpy.console.snapshot import GroupRow, Snapshot, TopicLag, TopicRow
    from rocketpy.console.view import View

DAY = 86_400
IDLE_DAYS = 7
DEFAULT_ORDER = "name"
MAX_REMEMBERED = 200
"""Number of topics whose last queues are kept for rates."""
MIN_SECONDS = 0.5
"""Minimum time between two samples of one rate."""

COLUMNS: dict[str, Callable[[TopicRow], object]] = {
    "name": lambda row: row.name,
    "type": lambda row: row.kind or None,
    "messages": lambda row: row.messages,
    "in": lambda row: row.in_rate,
    "out": lambda row: row.out_rate,
    "groups": lambda row: len(row.groups) if row.read_at else None,
    "lag": lambda row: row.lag,
    "last": lambda row: row.last_stored,
}
"""Value of a row by the name of a column."""


def filtered(state: Snapshot, query: Mapping[str, str]) -> list[TopicRow]:
    """Topics that match the filters of a query.

    Args:
        state: The snapshot.
        query: `q` a part of the name, `type`, `lag`, `idle`, `system`, each `1` or empty.
    """
    text = query.get("q", "").strip().lower()
    kind = query.get("type", "")
    found = [row for row in state.topics.values() if query.get("system") or not row.is_system]
    if text:
        found = [row for row in found if text in row.name.lower()]
    if kind:
        found = [row for row in found if row.kind == kind]
    if query.get("lag"):
        found = [row for row in found if row.lag]
    if query.get("idle"):
        since = state.made_at - IDLE_DAYS * DAY
        found = [row for row in found if row.read_at and (row.last_stored or 0) < since]
    return found


async def index(view: View) -> Response:
    """The list of topics: filters, order and page are in the address; favourites come first."""
    state, query = view.snapshot, view.query
    order = query.get("order", DEFAULT_ORDER)
    rows = sorted_rows(filtered(state, query), order, COLUMNS, lambda row: row.name)
    stars = view.stars
    if stars:
        rows.sort(key=lambda row: row_id(row.name) not in stars)
    page = page_of(rows, query)
    view.watch("topic", [row.name for row in page.rows])
    if view.as_json:
        return view.json({"topics": page.rows, "total": page.total, "page": page.page, "size": page.size})
    return view.render(
        "topics.html",
        data=page,
        order=order,
        stars=stars,
        kinds=sorted({row.kind for row in state.topics.values() if row.kind}),
        hidden=hidden(state, query),
        ages=[state.made_at - row.read_at for row in page.rows if row.read_at],
    )


def hidden(state: Snapshot, query: Mapping[str, str]) -> int:
    """Number of system topics that match the name and are not shown."""
    if query.get("system"):
        return 0
    return len(filtered(state, {**query, "system": "1"})) - len(filtered(state, query))


@dataclass(frozen=True, slots=True)
class Reader:
    """A group of a topic."""

    group: GroupRow
    progress: TopicLag | None
    """Progress on this topic; None before the first sample."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue with its rate."""

    info: QueueInfo
    in_rate: float | None


@dataclass(frozen=True, slots=True)
class TopicPage:
    """One topic: what its brokers answer now, or the snapshot where they do not."""

    row: TopicRow
    info: TopicInfo | None
    """Brokers and queues; None if no broker answers."""
    error: str | None
    """Reason why `info` is None."""
    readers: tuple[Reader, ...]
    queues: tuple[QueueRow, ...]

    @property
    def kind(self) -> str:
        """Type of the topic."""
        given = [one.attributes.get("message.type", "") for one in self.info.brokers] if self.info else []
        return next((one.lower() for one in given if one), self.row.kind)

    @property
    def permission(self) -> str:
        """Whether consumers may read and producers may send."""
        if self.info is None or not self.info.brokers:
            return "unknown"
        reads = any(one.readable for one in self.info.brokers)
        writes = any(one.writable for one in self.info.brokers)
        return {(True, True): "read and send", (True, False): "read only", (False, True): "send only"}.get(
            (reads, writes), "closed"
        )

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of its brokers."""
        return tuple(one.broker_name for one in self.info.brokers) if self.info else ()


async def load(view: View) -> TopicPage:
    """Reads one topic.

    Raises:
        PageNotFoundError: The topic does not exist.
    """
    name = view.path["topic"]
    row = view.snapshot.topics.get(name)
    info, error = None, None
    try:
        info = await view.admin.describe_topic(name, partial=True)
    except TopicNotFoundError:
        raise PageNotFoundError(f"no topic {name}; it may have been deleted") from None
    except UNKNOWN as failure:
        if row is None:
            raise
        error = str(failure)
    if row is None:
        row = view.console.collector.first_row(name)
    view.watch("topic", [name])
    view.watch("group", list(row.groups))
    groups = view.snapshot.groups
    readers = tuple(Reader(groups[one], groups[one].by_topic.get(name)) for one in row.groups if one in groups)
    return TopicPage(row, info, error, readers, rates(view, info))


def rates(view: View, info: TopicInfo | None) -> tuple[QueueRow, ...]:
    """Queues with the rate since the page was read before."""
    if info is None:
        return ()
    samples = view.console.extra("queue samples", dict[str, tuple[float, dict[str, int]]])
    at, ends = view.console.now(), {str(one.queue): one.max_offset for one in info.queues}
    then, before = samples.pop(info.name, (at, {}))
    seconds = at - then

    def rate(one: QueueInfo) -> float | None:
        end = before.get(str(one.queue))
        return None if end is None or seconds < MIN_SECONDS else max(0, one.max_offset - end) / seconds

    samples[info.name] = (at, ends) if seconds >= MIN_SECONDS or not before else (then, before)
    while len(samples) > MAX_REMEMBERED:
        samples.pop(next(iter(samples)))
    return tuple(QueueRow(one, rate(one)) for one in info.queues)


def tabs(view: View, current: str) -> list[tuple[str, str, bool]]:
    """Tabs of the page of a topic."""
    name = view.path["topic"]
    items = (("Overview", ()), ("Queues", ("queues",)), ("Groups", ("groups",)), ("Config", ("config",)))
    return [(title, view.url("topics", name, *parts), title == current) for title, parts in items]


def actions(view: View) -> list[tuple[str, str]]:
    """Pages of messages that the visitor may open."""
    name = view.path["topic"]
    items: tuple[tuple[str, str, Permission], ...] = (
        ("Messages", "messages", "messages"),
        ("Live tail", "tail", "messages"),
        ("Send", "send", "send"),
    )
    return [
        (title, view.url("topics", name, part))
        for title, part, permission in items
        if view.console.has_page(f"/C/topics/{{topic}}/{part}") and view.may(permission)
    ]


async def page(view: View, template: str, tab: str) -> Response:
    """One tab of a topic."""
    data = await load(view)
    if view.as_json:
        shown = {"topic": data.row, "brokers": data.info.brokers if data.info else None, "error": data.error}
        rows: dict[str, object] = {"queues": data.queues} if tab == "Queues" else {}
        rows |= {"groups": data.readers} if tab == "Groups" else {}
        return view.json({**shown, "missing": data.info.missing if data.info else (), **rows})
    return view.render(template, page=data, tabs=tabs(view, tab), actions=actions(view))


async def show(view: View) -> Response:
    """One topic: figures and chart."""
    return await page(view, "topic.html", "Overview")


async def queues(view: View) -> Response:
    """Queues of one topic."""
    return await page(view, "topic_queues.html", "Queues")


async def groups(view: View) -> Response:
    """Groups of one topic."""
    return await page(view, "topic_groups.html", "Groups")


async def series(view: View) -> Response:
    """Figures of the chart of a topic."""
    topic = view.path["topic"]
    return series_answer(view, f"{topic}: in and out", {"in": ("topic", topic, "in"), "out": ("topic", topic, "out")})

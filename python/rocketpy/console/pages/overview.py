"""Overview: what needs attention first, then figures, charts, the busiest topics and the most delayed groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from rocketpy.console.attention import problems
from rocketpy.console.series import series_answer
from rocketpy.console.view import PageNotFoundError

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.console.view import View

TOP = 5
"""Number of topics and of groups in the short lists."""


async def root(view: View) -> Response:
    """Redirects to the only cluster."""
    return RedirectResponse(view.url(), 303)


async def show(view: View) -> Response:
    """The overview."""
    state = view.snapshot
    topics = [row for row in state.topics.values() if not row.is_system and row.in_rate]
    groups = [row for row in state.groups.values() if row.lag]
    data = {
        "problems": problems(view),
        "gaps": state.gaps,
        "in": state.in_rate,
        "out": state.out_rate,
        "lag": state.lag,
        "dead_letters": state.dead_letters,
        "new_dead_letters": growth(view),
        "disk": state.disk,
        "busiest": sorted(topics, key=lambda row: (-(row.in_rate or 0), row.name))[:TOP],
        "delayed": sorted(groups, key=lambda row: (-(row.behind or 0), -(row.lag or 0), row.name))[:TOP],
        "brokers": state.brokers,
    }
    return view.answer("overview.html", data)


def growth(view: View) -> int | None:
    """Number of dead letters that arrived within the last hour; None without a history."""
    known = [
        one for one in view.history.read(("cluster", "dead"), "1h", view.snapshot.made_at).values if one is not None
    ]
    return round(max(0.0, known[-1] - known[0])) if known else None


async def series(view: View) -> Response:
    """Figures of the charts: in and out, or the lag of all groups."""
    if view.query.get("of") == "lag":
        return series_answer(view, "Lag of all groups", {"lag": ("cluster", "lag")})
    return series_answer(view, "Messages in and out", {"in": ("cluster", "in"), "out": ("cluster", "out")})


async def find(view: View) -> Response:
    """Opens the topic or group of this name; else lists what matches."""
    query = view.query.get("q", "").strip()
    if not query:
        return RedirectResponse(view.url(), 303)
    state = view.snapshot
    if query in state.topics:
        return RedirectResponse(view.url("topics", query), 303)
    if query in state.groups and view.console.has_page("/C/groups/{group}"):
        return RedirectResponse(view.url("groups", query), 303)
    low = query.lower()
    topics = sorted(name for name in state.topics if low in name.lower())[:50]
    groups = sorted(name for name in state.groups if low in name.lower())[:50]
    if len(topics) == 1 and not groups:
        return RedirectResponse(view.url("topics", topics[0]), 303)
    if view.part is not None:
        raise PageNotFoundError("this page has no parts")
    return view.answer("find.html", {"query": query, "topics": topics, "groups": groups})

"""Overview: what needs attention first, then figures, charts, the busiest topics and the most delayed groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from rocketpy.console.attention import problems
from rocketpy.console.series import series_answer

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

"""Series of charts: as arrays for uPlot, and as a table for readers of screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.console.history import SPANS
from rocketpy.console.names import time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from rocketpy.console.view import View

__all__ = ["series_answer"]


def series_answer(view: View, title: str, keys: Mapping[str, tuple[str, ...]]) -> Response:
    """Answers with the points of some series over the span of the query.

    Args:
        view: The request; `span` is 1h, 6h or 24h, `as=table` returns a table.
        title: Title of the table.
        keys: Name of each series in the history, by its label.
    """
    span = view.query.get("span", "1h")
    span = span if span in SPANS else "1h"
    at = view.snapshot.made_at
    found = {label: view.history.read(key, span, at) for label, key in keys.items()}
    first = next(iter(found.values()))
    if view.query.get("as") == "table" and not view.as_json:
        rows = [
            (time_text(time, view.zone)[:19], [points.values[place] for points in found.values()])
            for place, time in enumerate(first.times)
        ]
        rows = [row for row in reversed(rows) if any(value is not None for value in row[1])]
        return view.render("series.html", title=title, labels=list(found), rows=rows, span=span, spans=list(SPANS))
    return view.json({"times": first.times, "labels": list(found), "series": [one.values for one in found.values()]})

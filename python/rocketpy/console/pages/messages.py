"""Messages of one topic: newest first across its queues, by time, offset, key or id, with a filter."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rocketpy.base.instant import datetime_of
from rocketpy.console.filters import FilterError
from rocketpy.console.masking import Mask, mask_of
from rocketpy.console.reading import Limits
from rocketpy.console.rows import Choice
from rocketpy.console.search import SIZES, Search, SearchError, rest_text, run_search

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.console.reading import Reach
    from rocketpy.console.view import View

__all__ = ["has_bodies", "index", "mask_for", "spans_text"]

SEARCHES = 4
"""Maximum number of searches at the same time; others wait."""
MAX_SPANS = 64
"""Maximum number of queues in a line of the audit log."""
FIELDS = ("at", "time", "queue", "offset", "key", "unique_key", "tag", "where", "size", "bodies")
STOPPED = {
    "rows": "The page is full",
    "messages": "Stopped after 100,000 messages",
    "bytes": "Stopped after 64 MiB",
    "time": "Stopped after 2 s",
    "end": "Nothing is left to read",
}


def mask_for(view: View, topic: str) -> Mask:
    """Fields of a topic's messages that the visitor may not see."""
    return mask_of(view.console.settings.masks, topic, view.session.role)


def has_bodies(view: View) -> bool:
    """Whether the page shows bodies. Beyond loopback the visitor asks for them."""
    return not view.console.settings.hides_bodies or view.query.get("bodies") == "1"


def spans_text(reach: Reach) -> dict[str, str]:
    """Offsets of the shown rows by queue, for the audit log."""
    spans: dict[str, tuple[int, int]] = {}
    for row in reach.rows:
        name = f"{row.broker_name}:{row.queue_id}"
        low, high = spans.get(name, (row.offset, row.offset))
        spans[name] = (min(low, row.offset), max(high, row.offset))
    return {name: f"{low}-{high}" for name, (low, high) in list(spans.items())[:MAX_SPANS]}


async def read(view: View, topic: str, search: Search) -> Reach:
    """Runs the search of a page, with its lines in the audit log."""
    mask = mask_for(view, topic)
    search.check(mask)
    choice = Choice(search.tested, search.tag or None, mask, has_bodies(view))
    turn: asyncio.Semaphore = view.console.extras.setdefault("searches", asyncio.Semaphore(SEARCHES))
    asked = {"from": search.at, "where": search.where, "tag": search.tag, "bodies": choice.has_bodies}
    asked |= {"queue": search.queue, "search": search.key or search.unique_key}
    asked = {name: value for name, value in asked.items() if value not in ("", None)}
    async with turn, view.act("read messages", topic, parameters=asked) as done:
        reach = await run_search(view.admin, topic, search, choice, Limits(rows=search.rows))
        done.result(f"{reach.read} messages read, {len(reach.rows)} shown", after=spans_text(reach))
    return reach


async def index(view: View) -> Response:
    """Page of a topic's messages."""
    topic = view.path["topic"]
    errors: dict[str, str] = {}
    reach: Reach | None = None
    search = Search()
    try:
        search = Search.of(view.query, view.zone)
        reach = await read(view, topic, search)
    except SearchError as error:
        errors[error.name] = str(error)
    except FilterError as error:
        errors["where"] = str(error)
    more = rest_text(reach.rest) if reach is not None and reach.rest else None
    if view.as_json:
        return answer(view, reach, more, errors)
    row = view.snapshot.topics.get(topic)
    return view.render(
        "messages.html",
        400 if errors else 200,
        topic=topic,
        search=search,
        given={name: view.query.get(name, "") for name in FIELDS},
        reach=reach,
        more=more,
        errors=errors,
        stopped=STOPPED[reach.stopped] if reach is not None else "",
        last=datetime_of(reach.last_ms) if reach is not None else None,
        has_bodies=has_bodies(view),
        is_hidden=view.console.settings.hides_bodies,
        sizes=SIZES,
        total=row.messages if row is not None else None,
    )


def answer(view: View, reach: Reach | None, more: str | None, errors: dict[str, str]) -> Response:
    """JSON of the page."""
    if reach is None:
        return view.json({"error": "; ".join(errors.values()), "fields": errors}, 400)
    return view.json(
        {
            "rows": reach.rows,
            "read": reach.read,
            "total": reach.total,
            "stopped": reach.stopped,
            "last_stored_at": datetime_of(reach.last_ms),
            "more": more,
            "problems": reach.problems,
        }
    )

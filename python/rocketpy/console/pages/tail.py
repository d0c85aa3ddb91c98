"""Live tail of a topic: a page, and a stream of server-sent events that it follows."""

from __future__ import annotations

import secrets
from collections import deque
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from rocketpy.console.audit import AuditError
from rocketpy.console.filters import FilterError
from rocketpy.console.names import row_id
from rocketpy.console.pages.messages import has_bodies, mask_for
from rocketpy.console.rows import Choice
from rocketpy.console.search import Search, SearchError
from rocketpy.console.tails import TailError, Tails, batches
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.responses import Response

    from rocketpy.console.rows import MessageRow
    from rocketpy.console.tails import Batch, Tail
    from rocketpy.console.view import View

__all__ = ["show", "stream"]

KEPT_ROWS = 200
"""Rows that the page keeps."""
FIELDS = ("tag", "where", "bodies")
MAX_NAME = 64
HEADERS = {"X-Accel-Buffering": "no"}


def choice_of(view: View, topic: str) -> tuple[Choice, dict[str, str]]:
    """Choice of rows by the query, and the errors of its fields."""
    mask, shows = mask_for(view, topic), has_bodies(view)
    try:
        search = Search.of({name: view.query.get(name, "") for name in FIELDS}, view.zone)
        search.check(mask)
    except SearchError as error:
        return Choice(mask=mask, has_bodies=shows), {error.name: str(error)}
    except FilterError as error:
        return Choice(mask=mask, has_bodies=shows), {"where": str(error)}
    return Choice(search.tested, search.tag or None, mask, shows), {}


async def show(view: View) -> Response:
    """Page of the tail. The browser opens the stream; without scripts the messages page does the same by hand."""
    topic = view.path["topic"]
    _, errors = choice_of(view, topic)
    given = {name: view.query.get(name, "") for name in FIELDS}
    is_stopped = view.query.get("stopped") == "1" or bool(errors)
    return view.render(
        "tail.html",
        400 if errors else 200,
        topic=topic,
        given=given,
        errors=errors,
        is_stopped=is_stopped,
        stream=view.url("topics", topic, "tail", "stream", name=secrets.token_urlsafe(12), **given),
        has_bodies=has_bodies(view),
        is_hidden=view.console.settings.hides_bodies,
    )


async def stream(view: View) -> Response:
    """Events of the tail."""
    topic = view.path["topic"]
    choice, errors = choice_of(view, topic)
    tails = view.console.extra("tails", Tails)
    client = view.request.client
    address = f"address {client.host if client else ''}"
    name = view.query.get("name", "")[:MAX_NAME]
    tail: Tail | None = None
    problem = "; ".join(errors.values())
    if view.request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        problem = "The request does not come from a page of this console."
    if not problem:
        try:
            tail = tails.begin(view.session.key or address, view.session.user or address, name)
        except TailError as error:
            problem = str(error)
    if tail is None:
        return StreamingResponse(refused(view, problem), media_type="text/event-stream", headers=HEADERS)
    asked = {name: view.query[name] for name in FIELDS if view.query.get(name)} | {"bodies": choice.has_bodies}
    try:
        async with view.act("tail messages", topic, parameters=asked) as done:
            done.result("tail begun")
    except BaseException:
        tails.finish(tail)
        raise
    return StreamingResponse(events(view, topic, choice, tails, tail), media_type="text/event-stream", headers=HEADERS)


def event(text: str, name: str = "") -> str:
    """One event; the browser swaps unnamed ones into the page."""
    head = f"event: {name}\n" if name else ""
    return head + "".join(f"data: {line}\n" for line in text.splitlines() or [""]) + "\n"


async def refused(view: View, problem: str) -> AsyncGenerator[str]:
    """Events of a tail that may not begin."""
    yield event(fragment(view, "over", problem))
    yield event("", "over")


def fragment(view: View, macro: str, *values: object) -> str:
    """Part of the page for an event."""
    found: Any = view.console.templates.get_template("tail_events.html").module
    return str(getattr(found, macro)(*values))


def place_of(row: MessageRow) -> str:
    """Id of a row in the page."""
    return row_id(row.broker_name, str(row.queue_id), str(row.offset))


async def events(view: View, topic: str, choice: Choice, tails: Tails, tail: Tail) -> AsyncGenerator[str]:
    """Events of a tail until it ends or the browser goes."""
    kept: deque[str] = deque()
    shown = 0
    try:
        try:
            async with aclosing(batches(view.admin, topic, choice, tail)) as found:
                async for batch in found:
                    shown += len(batch.rows)
                    yield event(batch_text(view, batch, kept))
        except RocketPyError as error:
            tail.end(str(error))
        yield event(fragment(view, "over", tail.reason))
        yield event("", "over")
    finally:
        tails.finish(tail)
        with suppress(AuditError):  # the begin is in the log; the end only counts
            async with view.act("end tail", topic) as done:
                done.result(f"{shown} messages shown")


def batch_text(view: View, batch: Batch, kept: deque[str]) -> str:
    """Rows of a batch, and the ids of those that leave the page."""
    kept.extend(place_of(row) for row in reversed(batch.rows))
    gone = [kept.popleft() for _ in range(max(0, len(kept) - KEPT_ROWS))]
    return fragment(view, "rows", view, batch, gone, place_of)

"""Search field of every page: topics, groups, and messages by id or key."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from rocketpy.base.clock import monotonic
from rocketpy.console.pages.messages import mask_for
from rocketpy.console.rows import Choice, row_of
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.console.rows import MessageRow
    from rocketpy.console.view import View

__all__ = ["find"]

MAX_QUERY = 300
MAX_NAMES = 50
MESSAGE_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{40}|[0-9A-Fa-f]{56}")
"""Unique key or offset message id, of IPv4 or IPv6."""
MAX_TOPICS = 200
"""Maximum number of topics in which an id is looked for; the busiest come first."""
SECONDS = 2.0
CONCURRENT = 16


@dataclass(slots=True)
class Found:
    """What a search found."""

    query: str
    topics: list[str] = field(default_factory=list[str])
    groups: list[str] = field(default_factory=list[str])
    messages: list[MessageRow] = field(default_factory=list["MessageRow"])
    searched: int | None = None
    """Number of topics in which the id was looked for; None if the query is not an id."""
    known: int = 0
    """Number of topics of the cluster, without those of the system."""


def is_id(query: str) -> bool:
    """Whether a query looks like the id of a message.

    Examples:
        >>> is_id("7F0000010007" + "0" * 20), is_id("orders")
        (True, False)
    """
    return MESSAGE_ID.fullmatch(query) is not None


def exact(view: View, query: str) -> str | None:
    """Address of the topic or group of this name."""
    if query in view.snapshot.topics:
        return view.url("topics", query)
    if query in view.snapshot.groups and view.console.has_page("/C/groups/{group}"):
        return view.url("groups", query)
    return None


def address_of(view: View, row: MessageRow) -> str:
    """Address of a message."""
    return view.url("topics", row.topic, "messages", row.broker_name, str(row.queue_id), str(row.offset))


async def messages_of(view: View, found: Found, topics: list[str]) -> None:
    """Looks for the message of an id in topics: only brokers of a topic are asked, never an address of the id."""
    turn = asyncio.Semaphore(CONCURRENT)
    deadline = monotonic() + SECONDS
    found.searched = 0

    async def look(topic: str) -> None:
        async with turn:
            if found.messages or monotonic() > deadline:
                return
            try:
                one = await view.admin.message(topic, found.query)
            except RocketPyError:
                return
            found.searched = (found.searched or 0) + 1
            if one is not None:
                found.messages.append(row_of(one, Choice(mask=mask_for(view, topic), has_bodies=False)))

    async with view.act("find message", found.query, parameters={"topics": len(topics)}) as done:
        try:
            async with asyncio.timeout(SECONDS):
                await asyncio.gather(*(look(topic) for topic in topics))
        except TimeoutError:
            pass
        done.result(f"{len(found.messages)} messages found in {found.searched} topics")


async def find(view: View) -> Response:
    """Opens the page of the only hit; else lists what matches."""
    query = view.query.get("q", "").strip()[:MAX_QUERY]
    topic = view.query.get("topic", "").strip()
    if not query:
        return RedirectResponse(view.url(), 303)
    if topic and not is_id(query):
        return RedirectResponse(view.url("topics", topic, "messages", key=query), 303)
    if not view.as_json and not topic and (url := exact(view, query)) is not None:
        return RedirectResponse(url, 303)
    state, low = view.snapshot, query.lower()
    found = Found(query)
    rows = [row for row in state.topics.values() if not row.is_system]
    found.known = len(rows)
    if is_id(query) and view.may("messages"):
        rows.sort(key=lambda row: (-(row.in_rate or 0), -(row.messages or 0), row.name))
        await messages_of(view, found, [topic] if topic else [row.name for row in rows[:MAX_TOPICS]])
    if not topic:
        found.topics = sorted(name for name in state.topics if low in name.lower())[:MAX_NAMES]
        found.groups = sorted(name for name in state.groups if low in name.lower())[:MAX_NAMES]
    if not view.as_json and (url := only_hit(view, found)) is not None:
        return RedirectResponse(url, 303)
    return view.answer("find.html", found)


def only_hit(view: View, found: Found) -> str | None:
    """Address of the only hit; None for none or several."""
    if len(found.messages) + len(found.topics) + len(found.groups) != 1:
        return None
    if found.messages:
        return address_of(view, found.messages[0])
    if found.topics:
        return view.url("topics", found.topics[0])
    return view.url("groups", found.groups[0]) if view.console.has_page("/C/groups/{group}") else None

"""One message: body, properties, groups that consumed it, trace, and its download."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from rocketpy import _rocketpy
from rocketpy.console.bodies import shown_body, view_of
from rocketpy.console.names import shown
from rocketpy.console.pages.messages import has_bodies, mask_for
from rocketpy.console.rows import Choice, row_of
from rocketpy.console.timeline import Timeline, timeline_of
from rocketpy.console.view import DeniedError, PageNotFoundError
from rocketpy.errors import DamagedDataError, MessageTooLargeError, OffsetError, RefusedError, TopicNotFoundError
from rocketpy.message import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.console.bodies import ShownBody
    from rocketpy.console.masking import Mask
    from rocketpy.console.rows import MessageRow
    from rocketpy.console.view import View

__all__ = ["download", "load", "show"]

WAIT = 0.3
"""Seconds to wait for a message that was sent just now."""
TABS = ("body", "properties", "groups", "trace")
BODY_SLOTS = 2
"""Maximum number of bodies that are decoded at the same time: one may take many times its size."""
DOWNLOAD_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Property:
    """Property of a message as a page shows it."""

    name: str
    value: str
    is_system: bool
    """Whether the name is reserved for the system."""


def queue_of(view: View) -> tuple[MessageQueue, int]:
    """Queue and offset of the address.

    Raises:
        PageNotFoundError: The queue or the offset is not a number.
    """
    number, offset = view.path["queue"], view.path["offset"]
    for text in (number, offset):
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise PageNotFoundError(f"not a queue and an offset: {shown(number, 40)}/{shown(offset, 40)}")
    return MessageQueue(view.path["topic"], view.path["broker"], int(number)), int(offset)


async def load(view: View, queue: MessageQueue, offset: int) -> ReceivedMessage:
    """Reads one message by its place.

    Raises:
        PageNotFoundError: The queue has no message at the offset.
    """
    place = f"queue {queue.queue_id} of {shown(queue.broker_name)} has no message at offset {offset:,}"
    try:
        found = await view.admin.read(queue, offset, offset + 1, max_messages=1, wait=WAIT)
    except (OffsetError, RefusedError):  # the queue does not have it, or the topic not the queue
        found = []
    if not found or found[0].queue_offset != offset:
        raise PageNotFoundError(f"{place}: it has expired, or was not stored yet")
    return found[0]


def properties_of(properties: Mapping[str, str], mask: Mask) -> list[Property]:
    """Properties, those of the application first."""
    found = [
        Property(name, mask.text(name, value), _rocketpy.is_reserved_property(name))
        for name, value in properties.items()
    ]
    return sorted(found, key=lambda one: (one.is_system, one.name))


async def body_of(view: View, message: ReceivedMessage, mask: Mask) -> ShownBody | str:
    """Body of a message as the page shows it, or why it cannot be decoded. Decoding runs in a thread."""
    turn: asyncio.Semaphore = view.console.extras.setdefault("bodies", asyncio.Semaphore(BODY_SLOTS))
    try:
        async with turn:
            return await asyncio.to_thread(lambda: shown_body(message.body, view_of(view.query.get("view", "")), mask))
    except (DamagedDataError, MessageTooLargeError) as error:
        return f"cannot decode the body: {error}"


async def trace_of(view: View, msg_id: str) -> Timeline | None:
    """Trace of a message; None if no client of the cluster writes traces."""
    try:
        return timeline_of(await view.admin.trace(msg_id))
    except TopicNotFoundError:
        return None


async def show(view: View) -> Response:
    """Page of one message."""
    queue, offset = queue_of(view)
    tab = view.query.get("tab", "body")
    if tab not in TABS:
        raise PageNotFoundError(f"page has no tab {shown(tab, 40)}")
    mask = mask_for(view, queue.topic)
    shows_body = tab == "body" and has_bodies(view)
    asked = {"queue": f"{queue.broker_name}:{queue.queue_id}", "offset": offset, "body": shows_body, "tab": tab}
    async with view.act("read message", queue.topic, parameters=asked) as done:
        message = await load(view, queue, offset)
        row = await asyncio.to_thread(row_of, message, Choice(mask=mask, has_bodies=False))
        body = await body_of(view, message, mask) if shows_body else None
        done.result("1 message read")
    values: dict[str, Any] = {
        "properties": properties_of(message.properties, mask),
        "consumers": await view.admin.message_consumers(queue, offset) if tab == "groups" else [],
        "timeline": await trace_of(view, message.msg_id) if tab == "trace" else None,
    }
    if view.as_json:
        return view.json(as_data(message, row, body, values))
    problem = body if isinstance(body, str) else None
    return view.render(
        "message.html",
        message=message,
        row=row,
        queue=queue,
        offset=offset,
        tab=tab,
        body=None if problem else body,
        body_problem=problem,
        has_bodies=has_bodies(view),
        may_copy=mask.is_empty,
        **values,
    )


def as_data(
    message: ReceivedMessage, row: MessageRow, body: ShownBody | str | None, values: dict[str, Any]
) -> dict[str, object]:
    """JSON of one message."""
    return {
        "message": row,
        "born_at": message.born_at,
        "born_host": message.born_host,
        "offset_msg_id": message.offset_msg_id,
        "reconsume_times": message.reconsume_times,
        "body": body,
        **values,
    }


async def download(view: View) -> Response:
    """Body of one message as a file, never rendered by the browser."""
    queue, offset = queue_of(view)
    mask = mask_for(view, queue.topic)
    if mask.hides_body or mask.has_paths:
        raise DeniedError("messages", f"download bodies of topic {shown(queue.topic)}: some of their fields are hidden")
    place = {"queue": f"{queue.broker_name}:{queue.queue_id}", "offset": offset, "body": True}
    async with view.act("download message", queue.topic, parameters=place) as done:
        message = await load(view, queue, offset)
        body = await asyncio.to_thread(lambda: message.body)
        done.result(f"{len(body)} bytes")
    name = f"message-{queue.queue_id}-{offset}.bin"
    headers = {**DOWNLOAD_HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(body, media_type="application/octet-stream", headers=headers)

"""Send of one message by hand: form, check with the equivalent command, send; or again, from a stored message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rocketpy.console.names import shown
from rocketpy.console.pages.message import load
from rocketpy.console.pages.messages import mask_for
from rocketpy.console.sending import Draft, as_form, draft_of, left_out
from rocketpy.console.view import DeniedError, FormError
from rocketpy.message import MessageQueue

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.console.view import View
    from rocketpy.message import Receipt

__all__ = ["show"]

EMPTY = {"key": "", "tag": "", "order_key": "", "delay": "", "deliver_at": "", "properties": "", "body": "", "copy": ""}


async def copied_of(view: View, place: str) -> tuple[ReceivedMessage, str] | None:
    """Stored message that is sent again, and its place; None without one.

    Raises:
        FormError: The place is malformed.
    """
    if not place:
        return None
    view.require("messages", topic=view.path["topic"])
    broker_name, _, rest = place.rpartition("/")[0].rpartition("/")
    offset = place.rpartition("/")[2]
    if not broker_name or not (rest + offset).isascii() or not (rest.isdigit() and offset.isdigit()):
        raise FormError("place of the copied message must be BROKER/QUEUE/OFFSET")
    if len(rest) > 9 or len(offset) > 18:
        raise FormError("place of the copied message is out of range")
    if not mask_for(view, view.path["topic"]).is_empty:
        raise DeniedError(
            "messages", f"copy messages of topic {shown(view.path['topic'])}: some of their fields are hidden"
        )
    queue = MessageQueue(view.path["topic"], broker_name, int(rest))
    asked = {"queue": f"{broker_name}:{rest}", "offset": int(offset), "body": True}
    async with view.act("copy message", queue.topic, parameters=asked) as done:
        found = await load(view, queue, int(offset))
        done.result("1 message read")
    return found, place


async def show(view: View) -> Response:
    """The form, its check, and the send."""
    topic = view.path["topic"]
    if not view.is_post:
        copied = await copied_of(view, view.query.get("copy", ""))
        values = EMPTY if copied is None else {**EMPTY, **await asyncio.to_thread(as_form, *copied)}
        return page(view, Draft(topic, values), copied[0] if copied is not None else None)
    form = await view.form()
    copied = await copied_of(view, form.get("copy", ""))
    message = copied[0] if copied is not None else None
    draft = await asyncio.to_thread(draft_of, topic, form, view.zone, message)
    if draft.message is None or form.get("step") != "send":
        if view.as_json:
            return view.json({"errors": draft.errors, "body": draft.verdict}, 400 if draft.errors else 200)
        return page(view, draft, message, is_checked=not draft.errors)
    receipt = await send(view, draft)
    queue = receipt.queue
    if view.as_json:
        return view.json(
            {"msg_id": receipt.msg_id, "status": receipt.status, "queue": queue, "offset": receipt.queue_offset}
        )
    if draft.message.delay is not None or draft.message.deliver_at is not None:
        return view.back(view.url("topics", topic, "send"), f"Stored with id {receipt.msg_id}. It waits for its time.")
    place = f"queue {queue.queue_id} of {queue.broker_name}, offset {receipt.queue_offset:,}"
    text = f"Sent with id {receipt.msg_id} to {place}."
    target = view.url("topics", topic, "messages", queue.broker_name, str(queue.queue_id), str(receipt.queue_offset))
    return view.back(target if view.may("messages") else view.url("topics", topic, "send"), text)


async def send(view: View, draft: Draft) -> Receipt:
    """Sends a checked message."""
    assert draft.message is not None
    values = draft.values
    asked = {name: values[name] for name in ("tag", "delay", "deliver_at", "copy") if values[name]}
    asked |= {"size": str(len(draft.body)), "properties": str(len(draft.message.properties))}
    async with view.act("send message", draft.topic, parameters=asked) as done:
        async with view.producer() as producer:
            receipt = await producer.send(draft.message)
        done.result(
            f"sent with id {receipt.msg_id}", after={"queue": str(receipt.queue), "offset": receipt.queue_offset}
        )
    return receipt


def page(view: View, draft: Draft, copied: ReceivedMessage | None, *, is_checked: bool = False) -> Response:
    """Page of the form."""
    return view.render(
        "send.html",
        400 if draft.errors else 200,
        topic=draft.topic,
        draft=draft,
        values=draft.values,
        errors=draft.errors,
        copied_size=len(copied.body) if copied is not None and draft.values["copy"] else None,
        left_out=left_out(copied) if copied is not None and not view.is_post else [],
        is_checked=is_checked,
        command=draft.command(view.console.settings.name_servers) if is_checked else "",
    )

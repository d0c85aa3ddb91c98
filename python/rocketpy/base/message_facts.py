"""All fields of messages and dead letters as JSON has them: of commands, exports and the console."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from rocketpy.errors import UNREADABLE_BODY

if TYPE_CHECKING:
    from rocketpy import ReceivedMessage
    from rocketpy.admin.dead_letters import DeadLetter

__all__ = ["as_json", "as_json_or_damaged", "letter_facts"]


def times_of(message: ReceivedMessage) -> dict[str, Any]:
    """Returns both times as text, or null for a number that is not a time; and both as stored, in milliseconds."""
    times = {"born_at": message.born_at, "stored_at": message.stored_at}
    facts: dict[str, Any] = {name: None if at is None else at.isoformat() for name, at in times.items()}
    return {**facts, "born_at_ms": message.born_at_ms, "stored_at_ms": message.stored_at_ms}


def fields_of(message: ReceivedMessage) -> dict[str, Any]:
    """Returns all fields of a message except the body."""
    return {
        "topic": message.topic,
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "order_key": message.order_key,
        "properties": message.properties,
        **times_of(message),
        "reconsume_times": message.reconsume_times,
    }


def as_json(message: ReceivedMessage) -> dict[str, Any]:
    """Returns all fields of a message. A body that is not UTF-8 is in `body_base64` instead of `body`."""
    body = message.body
    try:
        return fields_of(message) | {"body": body.decode()}
    except UnicodeDecodeError:
        return fields_of(message) | {"body_base64": base64.b64encode(body).decode()}


def as_json_or_damaged(message: ReceivedMessage) -> dict[str, Any]:
    """Returns all fields of a message. A body that does not decompress is null, and `body_error` has the error."""
    try:
        return as_json(message)
    except UNREADABLE_BODY as error:
        return fields_of(message) | {"body": None, "body_error": str(error)}


def letter_facts(letter: DeadLetter) -> dict[str, Any]:
    """Returns all fields of a dead letter, with its topic of origin, as `rocketpy produce --format json` reads them."""
    facts = {"group": letter.group, "origin_topic": letter.topic, "reason": letter.reason, "error": letter.error}
    return facts | as_json_or_damaged(letter.message)

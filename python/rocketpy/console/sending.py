"""Messages from the form of the send page: fields, checks, the equivalent command, and copies of stored messages."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketpy import _rocketpy
from rocketpy.base.instant import datetime_of
from rocketpy.console.commands import command_line
from rocketpy.console.json_text import JsonProblem, check_json
from rocketpy.console.search import SearchError, time_of
from rocketpy.errors import InvalidArgumentError
from rocketpy.message import Message

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.console.commands import Option

__all__ = ["FIELDS", "Draft", "as_form", "draft_of", "left_out"]

FIELDS = ("key", "tag", "order_key", "delay", "deliver_at", "properties", "body", "copy")
MAX_BODY = 1 << 20
"""Maximum length of a body that is typed in, in bytes. A copy of a stored message may be longer."""
MAX_PREFILLED = 64 * 1024
"""Maximum length of a stored body that the form shows to be changed."""
MAX_COMMAND = 2_000
"""Maximum length of a body in the equivalent command, in characters."""
MAX_DELAY = 40 * 366 * 86_400
MAX_PROPERTIES = 200


@dataclass(slots=True)
class Draft:
    """Message of a form."""

    topic: str
    values: dict[str, str]
    """Fields as they were typed."""
    body: bytes = b""
    errors: dict[str, str] = field(default_factory=dict[str, str])
    """Problems by field."""
    message: Message | None = None
    """None while a field is invalid."""
    due_ms: int | None = None
    """Delivery time in milliseconds since 1970."""

    @property
    def verdict(self) -> str:
        """Whether the body is JSON, in words."""
        try:
            check_json(self.body)
        except JsonProblem as error:
            return str(error)
        return "valid JSON"

    @property
    def has_json(self) -> bool:
        """Whether the body is JSON."""
        return self.verdict == "valid JSON"

    def command(self, name_servers: str) -> str:
        """The `rocketpy produce` that sends the same message; empty for a long body, and for a copy."""
        values = self.values
        if len(self.body) > MAX_COMMAND or values["copy"]:
            return ""
        options: dict[str, Option] = {name.replace("_", "-"): values[name] for name in ("tag", "order_key", "delay")}
        if (due := datetime_of(self.due_ms)) is not None:
            options["deliver-at"] = due.isoformat()
        options["key"] = values["key"].split()
        properties = _properties(values["properties"])
        if not properties and values["body"].isprintable():
            return command_line(["produce"], [self.topic, values["body"]], options, name_servers)
        line = json.dumps({"body": values["body"], "properties": properties})
        options["format"] = "json"
        return f"printf '%s\\n' {shlex.quote(line)} | {command_line(['produce'], [self.topic], options, name_servers)}"


def _properties(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise InvalidArgumentError(f"line {number} is not NAME=VALUE")
        if name.strip() in found:
            raise InvalidArgumentError(f"line {number} repeats the name {name.strip()}")
        found[name.strip()] = value
    if len(found) > MAX_PROPERTIES:
        raise InvalidArgumentError(f"more than {MAX_PROPERTIES} properties")
    return found


def _delay(text: str) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_DELAY:
        raise InvalidArgumentError(f"delay must be a number of seconds from 0 to {MAX_DELAY:,}")
    return seconds


def draft_of(topic: str, form: Mapping[str, str], zone: tzinfo, copied: ReceivedMessage | None = None) -> Draft:
    """Reads the form.

    Args:
        topic: Target topic.
        form: Fields as they were typed.
        zone: Zone of a delivery time without one.
        copied: Stored message whose body is sent unchanged.
    """
    values = {name: form.get(name, "") for name in FIELDS}
    for name in ("key", "tag", "order_key", "delay", "deliver_at"):
        values[name] = values[name].strip()
    values["body"] = values["body"].replace("\r\n", "\n")  # forms send each line end as two characters
    draft = Draft(topic, values)
    draft.body = copied.body if copied is not None else values["body"].encode("utf-8", "surrogatepass")
    delay: float | None = None
    properties: dict[str, str] = {}
    try:
        properties = _properties(values["properties"])
    except InvalidArgumentError as error:
        draft.errors["properties"] = str(error)
    try:
        delay = _delay(values["delay"])
        draft.due_ms = time_of(values["deliver_at"], zone) if values["deliver_at"] else None
    except InvalidArgumentError as error:
        draft.errors["delay"] = str(error)
    except SearchError as error:
        draft.errors["deliver_at"] = str(error)
    if copied is None and not draft.body:
        draft.errors["body"] = "body must not be empty"
    elif copied is None and len(draft.body) > MAX_BODY:
        draft.errors["body"] = f"body exceeds {MAX_BODY:,} bytes: {len(draft.body):,}"
    if not draft.errors:
        try:
            draft.message = Message(
                topic,
                draft.body,
                tag=values["tag"] or None,
                keys=values["key"].split() or None,
                order_key=values["order_key"] or None,
                properties=properties or None,
                delay=delay,
                deliver_at=None if draft.due_ms is None else draft.due_ms / 1000,
                flag=copied.flag if copied is not None else None,
            )
        except InvalidArgumentError as error:
            draft.errors["message"] = str(error)
    return draft


def own_properties(message: ReceivedMessage) -> dict[str, str]:
    """Properties of the application."""
    return {name: value for name, value in message.properties.items() if not _rocketpy.is_reserved_property(name)}


def is_line(name: str, value: str) -> bool:
    """Whether a line of the form can hold a property."""
    return f"{name}={value}".isprintable() and name == name.strip() and "=" not in name


def left_out(message: ReceivedMessage) -> list[str]:
    """Names of the properties that a copy does not have, because a line of the form cannot hold them."""
    return [name for name, value in own_properties(message).items() if not is_line(name, value)]


def as_form(message: ReceivedMessage, place: str) -> dict[str, str]:
    """Fields of the form for a copy of a stored message.

    A long body, or one that a text field would change, is copied by its place.

    Args:
        message: The stored message.
        place: Broker, queue and offset, as in its address.
    """
    lines = [f"{name}={value}" for name, value in own_properties(message).items() if is_line(name, value)]
    values = {
        "key": " ".join(message.keys),
        "tag": message.tag or "",
        "order_key": message.order_key or "",
        "properties": "\n".join(lines),
        "copy": place,
        "body": "",
    }
    body = message.body
    if len(body) <= MAX_PREFILLED:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return values
        if all(one.isprintable() or one in "\n\t" for one in text) and not text.startswith("\n"):
            values |= {"body": text, "copy": ""}
    return values

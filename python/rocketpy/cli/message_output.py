"""Messages as commands print them: lines of text or JSON, and cells of tables."""

import base64
import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Self

from rocketpy import ReceivedMessage
from rocketpy.base.text import printable
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.commandline.terminal import shown
from rocketpy.errors import UNREADABLE_BODY

CHARACTERS_SHOWN = 200
"""Characters of a body, a tag or keys that a table shows."""
LEFT_OUT_HINT = (
    "`rocketpy consume TOPIC --format json` without a group shows their other fields; "
    "--max-body-bytes raises the limit of a body that exceeds it"
)
"""Hint for messages whose text is not printed."""


class Output(StrEnum):
    """Output form of a message."""

    TEXT = "text"
    JSON = "json"


def notice(text: str) -> None:
    """Prints a line on standard error."""
    output.STDERR.print(printable(text), soft_wrap=True, markup=False, highlight=False)


class Writer:
    """Writes messages to standard output.

    Reports at its end how many bodies do not decompress.

    Raises:
        CommandError: At the end without another error: messages were left out of text.
    """

    def __init__(self, form: Output) -> None:
        self._form = form
        self._unreadable = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._unreadable:
            return
        bodies = "1 body does" if self._unreadable == 1 else f"{self._unreadable:,} bodies do"
        if self._form == Output.JSON:
            notice(f"{bodies} not decompress: null, with the error in `body_error`")
        elif kind is None:
            raise CommandError(f"{bodies} not decompress: left out", ExitCode.REJECTED, LEFT_OUT_HINT)

    def write(self, messages: Iterable[ReceivedMessage | None], limit: int | None = None) -> int:
        """Writes messages, flushes at each None, and returns the number of messages."""
        written = 0
        for message in messages:
            if message is None:
                sys.stdout.buffer.flush()
                continue
            line = self._line(message)
            if line is not None:
                sys.stdout.buffer.write(line + b"\n")
            written += 1
            if written == limit:
                break
        sys.stdout.buffer.flush()
        return written

    def _line(self, message: ReceivedMessage) -> bytes | None:
        """Line of a message; None if it has no text."""
        if self._form == Output.JSON:
            facts = as_json_or_damaged(message)
            self._unreadable += "body_error" in facts
            return json.dumps(facts).encode()
        try:
            return shown(message.body)
        except UNREADABLE_BODY as error:
            self._unreadable += 1
            notice(f"message {message.queue_offset} of {message.queue} left out: {error}")
            return None


def times_of(message: ReceivedMessage) -> dict[str, Any]:
    """Returns both times as text, or null for a number that is not a time; and both as stored, in milliseconds."""
    times = {"born_at": message.born_at, "stored_at": message.stored_at}
    facts: dict[str, Any] = {name: None if at is None else at.isoformat() for name, at in times.items()}
    return {**facts, "born_at_ms": message.born_at_ms, "stored_at_ms": message.stored_at_ms}


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


def text_or_damaged(message: ReceivedMessage) -> str:
    """Returns the beginning of the body for a table, or the error of a body that does not decompress."""
    try:
        body = message.body.decode(errors="replace")
    except UNREADABLE_BODY as error:
        return f"({error})"
    return shortened(body)


def shortened(text: str) -> str:
    """Returns the beginning of a text for a table."""
    return text if len(text) <= CHARACTERS_SHOWN else text[:CHARACTERS_SHOWN] + "..."


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

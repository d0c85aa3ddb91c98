"""Messages as commands print them: lines of text or JSON, and cells of tables."""

import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Self

from rocketpy import ReceivedMessage
from rocketpy.base.message_facts import as_json_or_damaged
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

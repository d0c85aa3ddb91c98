"""Exceptions of users' functions, for logs and dead letters: no bodies of messages, no control characters, a limit."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, cast

from rocketpy.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from rocketpy._rocketpy import ReceivedMessage

    ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]

MAX_TEXT = 4096
"""Maximum number of characters of an error that are read; a dead letter stores 512 bytes."""
BODY_HEAD = 32
"""Number of characters by which a body, or its beginning, is recognised in an error."""
MIN_PLAIN = 8
"""Minimum length of a body that is recognised without quotes."""
PYDANTIC_INPUT = re.compile(r", input_value=.*?(?=, input_type=)", re.DOTALL)
"""Part of the body in the text of pydantic's ValidationError."""
MAX_LINKS = 64
"""Maximum number of exceptions of one traceback: causes, contexts and members of groups."""


def text_of(error: BaseException) -> str:
    """Text of an error, even if its own conversion raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def shown_as_text(value: object, convert: Callable[[object], str] = str) -> str:
    """Text of a value, or its type if its own conversion raises.

    Args:
        value: A value of a user's function.
        convert: `str` or `repr`.
    """
    try:
        return convert(value)
    except Exception:
        return f"<{type(value).__name__}>"


def without_bodies(text: str, messages: Iterable[ReceivedMessage]) -> str:
    """Removes the parts of messages' bodies from the text of an error."""
    text = PYDANTIC_INPUT.sub("", text)
    for message in messages:
        text = without_body(text, message)
    return text


def without_body(text: str, message: ReceivedMessage) -> str:
    """Replaces the body of a message, or its beginning, by `<body>`.

    Quoted forms are replaced at any length. An unquoted body of a few characters may be an ordinary word. A body that
    the handler parsed and wrote in another form is not recognised.
    """
    try:
        body = message.body[:MAX_TEXT]
    except Exception:  # a body that cannot be decompressed is in no text
        return text
    if not body:
        return text
    body = body.removeprefix(b"\xef\xbb\xbf").strip()  # handlers decode and strip
    plain = body.decode(errors="replace")
    if not plain:
        return text
    forms = [repr(body), repr(plain), f'"{plain}"']
    if len(plain) >= MIN_PLAIN:
        forms.append(plain)
    for form in forms:
        at = text.find(form[:BODY_HEAD])
        while at >= 0:
            same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text[at:], form, strict=False))
            length = sum(1 for _ in same)
            text = f"{text[:at]}<body>{text[at + length :]}"
            at = text.find(form[:BODY_HEAD], at + len("<body>"))
    return text


def loggable(error: BaseException, messages: Iterable[ReceivedMessage] = ()) -> ExceptionInfo:
    """Copies an exception for `exc_info`, with its causes, notes and groups: whatever formats it gets the texts safe.

    Args:
        error: Exception of a user's function.
        messages: Messages that the function got; their bodies are removed from the texts.
    """
    copy = _Copies(messages).of(error)
    return type(copy), copy, copy.__traceback__


class _Copies:
    """Copies of exceptions that refer to each other."""

    def __init__(self, messages: Iterable[ReceivedMessage]) -> None:
        self._messages = tuple(messages)
        self._made: dict[int, BaseException | None] = {}

    def of(self, error: BaseException) -> BaseException:
        """Copies an exception with those that it refers to."""
        self._made[id(error)] = None  # a group may be the cause of its own member
        self._made[id(error)] = copy = self._bare(error)
        copy.__traceback__ = error.__traceback__
        copy.__cause__, copy.__context__ = self._linked(error.__cause__), self._linked(error.__context__)
        copy.__suppress_context__ = error.__suppress_context__
        notes: object = getattr(error, "__notes__", None)
        if isinstance(notes, list):
            for note in cast("list[object]", notes)[:MAX_LINKS]:
                copy.add_note(self._safe(shown_as_text(note)))
        return copy

    def _linked(self, error: BaseException | None) -> BaseException | None:
        if error is None or id(error) in self._made:
            return None if error is None else self._made[id(error)]
        return None if len(self._made) >= MAX_LINKS else self.of(error)

    def _bare(self, error: BaseException) -> BaseException:
        kind, text = type(error), text_of(error)
        names = {"__module__": str(kind.__module__), "__qualname__": kind.__qualname__}
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            members = [copy for one in group.exceptions if (copy := self._linked(one)) is not None]
            if members:
                made: type[BaseException] = type(kind.__name__, (BaseExceptionGroup,), names)
                return made(self._safe(group.message), members)
        made = type(kind.__name__, (Exception,), names)
        return made(self._safe(text.removeprefix(kind.__name__).removeprefix(": ")))

    def _safe(self, text: str) -> str:
        return printable(without_bodies(text[:MAX_TEXT], self._messages))

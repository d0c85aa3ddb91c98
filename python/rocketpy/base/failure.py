"""Exceptions of users' functions, for logs and dead letters: no bodies of messages, no control characters, a limit."""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING, cast

from rocketpy.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from rocketpy._rocketpy import ReceivedMessage

    ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]

MAX_TEXT = 4096
"""Maximum length of the text of an error in characters; a dead letter stores 512 bytes."""
BODY_HEAD = 32
"""Number of characters by which a body, or its beginning, is recognised in an error."""
READ_TEXT = MAX_TEXT + BODY_HEAD
"""Number of characters of an error in which bodies are searched, so that each one before the cut is recognised."""
MARK = "<body>"
"""Text that replaces a body."""
MIN_PLAIN = 8
"""Minimum length of a body that is recognised without quotes."""
PYDANTIC_INPUT = re.compile(r", input_value=.*?(?=, input_type=|\Z)", re.DOTALL)
"""Part of the body in the text of pydantic's ValidationError, which may be cut."""
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


def safe_text(text: str, messages: Iterable[ReceivedMessage] = ()) -> str:
    """Text of an error for logs and dead letters: without bodies, then cut, then escaped.

    Args:
        text: Text of an error.
        messages: Messages that the failed function got.
    """
    kept = without_bodies(text[:READ_TEXT], messages)
    if len(text) > READ_TEXT:
        # The beginning of a body before the cut may be too short to be recognised.
        mark = kept.rfind(MARK)
        kept = kept[: max(len(kept) - BODY_HEAD, 0 if mark < 0 else mark + len(MARK))]
    return printable(kept[:MAX_TEXT])


def without_bodies(text: str, messages: Iterable[ReceivedMessage]) -> str:
    """Replaces the bodies of messages, or their beginnings, by `<body>`.

    Quoted forms are replaced at any length. An unquoted body of a few characters may be an ordinary word. A body that
    the handler parsed and wrote in another form is not recognised.
    """
    text = PYDANTIC_INPUT.sub("", text)
    found: dict[str, list[str]] = {}
    for message in messages:
        for form in forms_of(message):
            if (head := form[:BODY_HEAD]) in text:
                found.setdefault(head, []).append(form)
    for head in sorted(found, key=len, reverse=True):  # a short body may be a part of another one
        at = text.find(head)
        while at >= 0:
            text = f"{text[:at]}{MARK}{text[at + longest(text, at, len(head), found[head]) :]}"
            at = text.find(head, at + len(MARK))
    return text


def forms_of(message: ReceivedMessage) -> Iterator[str]:
    """Forms of a body in the text of an error, each as long as such a text is read."""
    try:
        body = message.body
    except Exception:  # a body that cannot be decompressed is in no text
        return
    stripped = body.removeprefix(b"\xef\xbb\xbf").strip()  # handlers decode and strip
    for one in dict.fromkeys((body, stripped)) if stripped else ():
        plain = one[: 4 * READ_TEXT].decode(errors="replace")[:READ_TEXT]
        yield repr(one[:READ_TEXT])
        yield repr(plain)
        yield f'"{plain}"'
        if len(plain) >= MIN_PLAIN:
            yield plain


def longest(text: str, at: int, length: int, forms: Iterable[str]) -> int:
    """Length of the longest beginning of a form that a text has at a place; at least `length`, which all have there.

    Bodies of one kind begin alike, so that the first form that is found may be of another message.
    """
    for form in forms:
        if len(form) > length and text.startswith(form[: length + 1], at):
            length = common(text, at, form)
    return length


def common(text: str, at: int, form: str) -> int:
    """Length of the beginning of a form that a text has at a place."""
    ends = range(1, len(form) + 1)
    return bisect.bisect_left(ends, True, key=lambda end: not text.startswith(form[:end], at))


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
        return safe_text(text, self._messages)

"""JSON of bodies: exact numbers for filters, and text on lines for the page with each token as it was sent."""

from __future__ import annotations

import decimal
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["MASKED", "JsonProblem", "check_json", "exact_json", "pretty_json"]

MAX_BYTES = 4 * 1024 * 1024
"""Maximum length of a body that is read as JSON."""
MAX_DEPTH = 100
"""Maximum depth of objects and lists."""
MASKED = '"•••"'
"""Shown in place of a masked value."""
INDENT = "  "

STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
BRACKETS = bytes.maketrans(b"{}", b"[]")
OTHERS = bytes(byte for byte in range(256) if byte not in b"{}[]")
TOKEN = re.compile(r'[ \t\n\r]*("[^"\\]*(?:\\.[^"\\]*)*"|[^\s"\[\]{},:]+|[\[\]{},:])', re.DOTALL)


class JsonProblem(ValueError):
    """Body that is not shown or tested as JSON, with the cause in words."""


def _check_depth(body: bytes) -> None:
    """Refuses deep JSON without a step of Python for each bracket: a body may have millions."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    brackets = STRING.sub(b"", body).translate(BRACKETS, OTHERS)
    is_deep = b"[" * (MAX_DEPTH + 1) in brackets
    for _ in range(0 if is_deep else MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")  # removes the innermost level
        if b"[]" not in brackets:
            return
    raise JsonProblem(f"JSON deeper than {MAX_DEPTH} levels")


def _decoded(body: bytes) -> str:
    if len(body) > MAX_BYTES:
        raise JsonProblem("body longer than 4 MiB")
    if not body.lstrip(b" \t\r\n\xef\xbb\xbf")[:1]:
        raise JsonProblem("empty body")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JsonProblem(f"byte {error.start:,} is not UTF-8") from None
    _check_depth(body)
    return text


def _refuse(text: str) -> NoReturn:
    raise JsonProblem(f"JSON has no {text}")


def _exact(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except decimal.InvalidOperation:  # an exponent of more than 18 digits: no filter matches it
        return None


def _parsed(text: str, real: Callable[[str], object], whole: Callable[[str], object] | None = None) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=real, parse_int=whole)
    except json.JSONDecodeError as error:
        raise JsonProblem(f"not JSON: line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise JsonProblem(f"JSON deeper than {MAX_DEPTH} levels") from None


def exact_json(body: bytes) -> Any:
    """Value of a body in JSON: numbers as int, or as Decimal with all digits.

    Raises:
        JsonProblem: The body is not JSON in UTF-8, too long or too deep.

    Examples:
        >>> exact_json(b'{"amount": 0.10, "big": 100000000000000000001}')
        {'amount': Decimal('0.10'), 'big': 100000000000000000001}
    """
    text = _decoded(body)
    try:
        return _parsed(text, _exact)
    except JsonProblem:
        raise
    except ValueError:  # more digits than Python converts to an int
        return _parsed(text, _exact, _exact)


def check_json(body: bytes) -> str:
    """Text of a body that is JSON.

    Raises:
        JsonProblem: As for `exact_json`.
    """
    text = _decoded(body)
    _parsed(text, len, len)
    return text


class _Level(NamedTuple):
    is_object: bool
    path: tuple[str, ...]


class _Printer:
    """Writes the tokens of valid JSON on lines, values of masked paths as `•••`.

    Lists do not count in a path: `items.card` names the field of each element.
    """

    def __init__(self, is_masked: Callable[[tuple[str, ...]], bool] | None) -> None:
        self._is_masked = is_masked
        self._levels: list[_Level] = []
        self._path: tuple[str, ...] = ()
        self._is_key = False
        self._hidden = 0
        self._is_empty = False

    def parts(self, text: str) -> Iterator[str]:
        for found in TOKEN.finditer(text):
            token = found[1]
            if self._hidden:
                self._skip(token)
            elif token in ("}", "]"):
                yield self._close(token)
            elif token == ",":
                yield "," + self._line()
                self._begin_part()
            elif token == ":":
                yield ": "
            elif self._is_key:
                self._is_key = False
                self._path = (*self._levels[-1].path, json.loads(token)) if self._is_masked else ()
                yield self._opened() + token
            else:
                yield self._opened() + self._value(token)

    def _line(self) -> str:
        return "\n" + INDENT * len(self._levels)

    def _opened(self) -> str:
        """New line before the first part of a list or an object."""
        is_first, self._is_empty = self._is_empty, False
        return self._line() if is_first else ""

    def _begin_part(self) -> None:
        self._is_key = self._levels[-1].is_object
        self._path = self._levels[-1].path

    def _value(self, token: str) -> str:
        if self._is_masked is not None and self._is_masked(self._path):
            self._hidden = 1 if token in "{[" else 0
            return MASKED
        if token in "{[":
            self._levels.append(_Level(token == "{", self._path))
            self._begin_part()
            self._is_empty = True
        return token

    def _close(self, token: str) -> str:
        self._levels.pop()
        self._is_key = False
        is_empty, self._is_empty = self._is_empty, False
        return token if is_empty else self._line() + token

    def _skip(self, token: str) -> None:
        self._hidden += (token in "{[") - (token in "}]")


def pretty_json(
    text: str, max_characters: int, is_masked: Callable[[tuple[str, ...]], bool] | None = None
) -> tuple[str, bool]:
    """JSON with a line for each value; numbers, escapes and repeated names stay as they are.

    Args:
        text: Valid JSON, as `check_json` returns it.
        max_characters: Length after which the text is cut.
        is_masked: Whether the value of a path of names is hidden; lists do not count in a path.

    Returns:
        The text, and whether it was cut.

    Examples:
        >>> print(pretty_json('{"a":[1e2,{}],"card":{"no":7}}', 100, lambda path: path == ("card",))[0])
        {
          "a": [
            1e2,
            {}
          ],
          "card": "•••"
        }
    """
    parts: list[str] = []
    left = max_characters
    for part in _Printer(is_masked).parts(text):
        if len(part) > left:
            parts.append(part[:left])
            return "".join(parts), True
        left -= len(part)
        parts.append(part)
    return "".join(parts), False

"""Filter expressions of the messages page: a grammar of fields and constants, without calls and regular expressions.

    amount > 100 and (state == "paid" or tag in ["late", "lost"]) and not properties.region starts with "eu"

Fields: `tag`, `key` (any key of the message), `properties.NAME`, and paths into the JSON of the body:
`body.order.items[0]` or, shorter, `order.items[0]`. `body` alone is the text of the body, for `contains` and
`starts with`. Names with other characters than letters, digits, `_`, `-` and `$` are written `properties["a b"]`.
A missing field is null; `!=` is the opposite of `==`. Numbers are compared exactly. With a number, a text of `tag`,
`key` or `properties` is compared as a number. `contains` finds a part of a text and an element of a JSON list.
"""

from __future__ import annotations

import decimal
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, cast

from rocketpy.base.text import printable
from rocketpy.console.json_text import exact_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Candidate", "Constant", "Filter", "FilterError", "Path", "parse_filter"]

MAX_CHARACTERS = 1_000
"""Maximum length of an expression."""
MAX_DEPTH = 20
"""Maximum depth of brackets and of `not`."""
SHOWN_CHARACTERS = 40
"""Maximum length of a part of the expression in an error."""

Constant: TypeAlias = str | Decimal | bool | None
"""Value on the right side of a comparison."""
Step: TypeAlias = str | int
"""Step of a path: the name of a field, or the number of an element."""

ROOTS = ("tag", "key", "properties", "body")
"""Names with a meaning of their own at the begin of a path; other names are fields of the body."""
CONSTANTS: dict[str, Constant] = {"true": True, "false": False, "null": None}
WORDS = {"and", "or", "not", "in", "contains", "starts", "with", *CONSTANTS}
"""Words of the grammar, in any case; a field with the name of a word is written `body["in"]`."""
OPERATORS = ("==", "!=", "<=", ">=", "<", ">")
WORD_OPERATORS = {"contains": "contains", "starts": "starts with", "in": "in"}
TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w$.]))
  | (?P<name>[^\W\d][\w$]*(?:-[\w$]+)*)
  | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<sign>==|!=|<=|>=|[<>()\[\].,])
  | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
NUMBER = re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,9})?", re.ASCII)
"""Text that is compared as a number with a number."""
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\", "/": "/"}


class FilterError(ValueError):
    """Filter that cannot be read, or that tests a masked field.

    Args:
        problem: Cause, without the position.
        at: Position in the expression, from 0.
    """

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(f"cannot read filter: {problem} at character {at + 1}")
        self.problem = problem
        self.at = at


@dataclass(frozen=True, slots=True)
class Candidate:
    """Values of one message that a filter reads; bodies are decoded at the first test that reads them."""

    tag: str | None
    keys: Sequence[str]
    properties: Mapping[str, str]
    body: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Path:
    """Field that a filter tests."""

    root: str
    """`tag`, `key`, `properties` or `body`."""
    steps: tuple[Step, ...]
    at: int
    """Position in the expression, from 0."""

    def __str__(self) -> str:
        shown = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps]
        return self.root + "".join(shown)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Body:
    """Body of one message while a filter tests it."""

    __slots__ = ("_read", "_text", "_value")

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self._text: str | None = None
        self._value: tuple[object] | None = None

    def text(self) -> str:
        if self._text is None:
            self._text = self._read().decode("utf-8", "replace")
        return self._text

    def value(self) -> object:
        """JSON of the body; null for another body."""
        if self._value is None:
            try:
                self._value = (exact_json(self._read()),)
            except ValueError:
                self._value = (None,)
        return self._value[0]


@dataclass(frozen=True, slots=True)
class _Comparison:
    path: Path
    operator: str
    constants: tuple[Constant, ...]

    def matches(self, message: Candidate, body: _Body) -> bool:
        if self.operator == "!=":
            return not any(_equal(value, self.constants[0], loose) for value, loose in self._values(message, body))
        return any(self._holds(value, loose) for value, loose in self._values(message, body))

    def _values(self, message: Candidate, body: _Body) -> list[tuple[object, bool]]:
        """Values of the field, and whether their texts are compared as numbers with numbers."""
        match self.path.root:
            case "tag":
                return [(message.tag, True)]
            case "key":
                return [(key, True) for key in message.keys] or [(None, True)]
            case "properties":
                return [(message.properties.get(str(self.path.steps[0])), True)]
            case _ if not self.path.steps:
                return [(body.text(), False)]
            case _:
                return [(_field(body.value(), self.path.steps), False)]

    def _holds(self, value: object, loose: bool) -> bool:
        constant = self.constants[0] if self.constants else None
        match self.operator:
            case "==":
                return _equal(value, constant, loose)
            case "in":
                return any(_equal(value, one, loose) for one in self.constants)
            case "contains" if isinstance(value, list):
                return any(_equal(one, constant, False) for one in cast("list[object]", value))
            case "contains":
                return isinstance(value, str) and isinstance(constant, str) and constant in value
            case "starts with":
                return isinstance(value, str) and isinstance(constant, str) and value.startswith(constant)
            case operator:
                return _ordered(value, operator, constant, loose)


@dataclass(frozen=True, slots=True)
class _Not:
    part: _Node

    def matches(self, message: Candidate, body: _Body) -> bool:
        return not self.part.matches(message, body)


@dataclass(frozen=True, slots=True)
class _All:
    parts: tuple[_Node, ...]

    def matches(self, message: Candidate, body: _Body) -> bool:
        return all(part.matches(message, body) for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Any:
    parts: tuple[_Node, ...]

    def matches(self, message: Candidate, body: _Body) -> bool:
        return any(part.matches(message, body) for part in self.parts)


_Node: TypeAlias = _Comparison | _Not | _All | _Any


@dataclass(frozen=True, slots=True)
class Filter:
    """Filter over messages, as `parse_filter` returns it."""

    text: str
    paths: tuple[Path, ...]
    """Fields that the filter tests."""
    root: _Node

    def matches(self, message: Candidate) -> bool:
        """Whether a message passes the filter. Reads the body only if a test needs it."""
        return self.root.matches(message, _Body(message.body))


def _field(value: object, steps: tuple[Step, ...]) -> object:
    for step in steps:
        if isinstance(value, dict) and isinstance(step, str):
            value = cast("dict[str, object]", value).get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(elements := cast("list[object]", value)):
            value = elements[step]
        else:
            return None
    return value


def _number(value: object, loose: bool) -> int | Decimal | None:
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return value
    if loose and isinstance(value, str) and NUMBER.fullmatch(value):
        return Decimal(value)
    return None


def _equal(value: object, constant: Constant, loose: bool) -> bool:
    if isinstance(constant, Decimal):
        return (number := _number(value, loose)) is not None and number == constant
    if isinstance(constant, bool):
        return value is constant or (loose and value == str(constant).lower())
    return value is None if constant is None else isinstance(value, str) and value == constant


def _ordered(value: object, operator: str, constant: Constant, loose: bool) -> bool:
    one: Any = _number(value, loose) if isinstance(constant, Decimal) else value if isinstance(value, str) else None
    if one is None or not isinstance(constant, Decimal | str):
        return False
    order = int(one > constant) - int(one < constant)
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[operator]


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while not found or found[-1].kind != "end":
        token = TOKEN.match(text, at)
        if token is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise _unreadable(text, at)
        kind = token.lastgroup or "end"
        found.append(_Token(kind, token[kind], token.start(kind)))
        at = token.end()
    return found


def _unreadable(text: str, at: int) -> FilterError:
    rest = text[at:]
    if rest[0] in "\"'":
        return FilterError("text without its closing quote", at)
    if rest[0] == "=":
        return FilterError("`=` is not an operator, write `==`", at)
    if rest[0] in "&|!~":
        return FilterError("write `and`, `or`, `not`: the signs `&`, `|`, `!`, `~` are not supported", at)
    if rest[0].isdigit() or rest[0] == "-":
        return FilterError("malformed number", at)
    return FilterError(f"unexpected character `{printable(rest[0])}`", at)


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0
        self.paths: list[Path] = []

    def whole(self) -> _Node:
        node = self._either()
        if self._peek().kind != "end":
            self._fail("expected `and`, `or` or the end")
        return node

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _fail(self, problem: str, token: _Token | None = None) -> NoReturn:
        token = token or self._peek()
        found = "the end" if token.kind == "end" else f"`{printable(token.text[:SHOWN_CHARACTERS])}`"
        raise FilterError(f"{problem}, not {found}", token.at)

    def _is_word(self, word: str) -> bool:
        token = self._peek()
        return token.kind == "name" and token.text.lower() == word

    def _is_sign(self, sign: str) -> bool:
        token = self._peek()
        return token.kind == "sign" and token.text == sign

    def _expect(self, sign: str, problem: str) -> None:
        if not self._is_sign(sign):
            self._fail(problem)
        self._next += 1

    def _either(self) -> _Node:
        parts = [self._both()]
        while self._is_word("or"):
            self._next += 1
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else _Any(tuple(parts))

    def _both(self) -> _Node:
        parts = [self._single()]
        while self._is_word("and"):
            self._next += 1
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else _All(tuple(parts))

    def _single(self) -> _Node:
        if not (self._is_word("not") or self._is_sign("(")):
            return self._comparison()
        opening = self._take()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FilterError(f"more than {MAX_DEPTH} levels of brackets and `not`", opening.at)
        if opening.text == "(":
            node = self._either()
            self._expect(")", "expected `)`")
        else:
            node = _Not(self._single())
        self._depth -= 1
        return node

    def _comparison(self) -> _Comparison:
        path = self._path()
        operator = self._operator()
        if not path.steps and path.root == "properties":
            raise FilterError("`properties` needs the name of a property: `properties.NAME`", path.at)
        if not path.steps and path.root == "body" and operator not in ("contains", "starts with"):
            raise FilterError("`body` alone has only `contains` and `starts with`; test a field: `body.NAME`", path.at)
        constants = self._list() if operator == "in" else (self._constant(),)
        if operator == "starts with" and not isinstance(constants[0], str):
            raise FilterError("`starts with` needs a text in quotes", path.at)
        self.paths.append(path)
        return _Comparison(path, operator, constants)

    def _path(self) -> Path:
        first = self._peek()
        if first.kind != "name" or first.text.lower() in WORDS:
            self._fail("expected a field such as `tag` or `order.amount`")
        self._next += 1
        root, steps = (first.text, []) if first.text in ROOTS else ("body", [first.text])
        path: list[Step] = [*steps]
        while self._is_sign(".") or self._is_sign("["):
            path.append(self._step(self._take().text))
        if root in ("tag", "key") and path:
            raise FilterError(f"`{root}` has no fields; a field of the body is written `body.{root}`", first.at)
        if root == "properties" and (len(path) > 1 or (path and isinstance(path[0], int))):
            raise FilterError("properties are texts by name: `properties.NAME`", first.at)
        return Path(root, tuple(path), first.at)

    def _step(self, opening: str) -> Step:
        token = self._take()
        if opening == ".":
            if token.kind != "name":
                self._fail('expected the name of a field after `.`; other names are written `["a b"]`', token)
            return token.text
        step: Step
        if token.kind == "text":
            step = _unquoted(token)
        elif token.kind == "number" and token.text.isdigit():
            step = int(token.text)
        else:
            self._fail("expected a number or a name in quotes", token)
        self._expect("]", "expected `]`")
        return step

    def _operator(self) -> str:
        token = self._peek()
        if token.kind == "sign" and token.text in OPERATORS:
            return self._take().text
        operator = WORD_OPERATORS.get(token.text.lower()) if token.kind == "name" else None
        if operator is None:
            if token.kind == "sign" and token.text == "(":
                raise FilterError("filters have no functions", token.at)
            self._fail("expected == != < <= > >= contains, starts with or in")
        self._next += 1
        if operator == "starts with":
            if not self._is_word("with"):
                self._fail("expected `with` after `starts`")
            self._next += 1
        return operator

    def _list(self) -> tuple[Constant, ...]:
        self._expect("[", 'expected a list after `in`: `["a", "b"]`')
        constants = [self._constant()]
        while self._is_sign(","):
            self._next += 1
            constants.append(self._constant())
        self._expect("]", "expected `,` or `]`")
        return tuple(constants)

    def _constant(self) -> Constant:
        token = self._take()
        if token.kind == "text":
            return _unquoted(token)
        if token.kind == "number":
            return _constant_number(token)
        if token.kind == "name" and token.text.lower() in CONSTANTS:
            return CONSTANTS[token.text.lower()]
        if token.kind == "name":
            self._fail(f'text is written in quotes: "{token.text[:SHOWN_CHARACTERS]}"', token)
        return self._fail("expected a text in quotes, a number, true, false or null", token)


def _constant_number(token: _Token) -> Decimal:
    try:
        return Decimal(token.text)
    except decimal.InvalidOperation:
        raise FilterError("number out of range", token.at) from None


def _unquoted(token: _Token) -> str:
    def escaped(found: re.Match[str]) -> str:
        name = found[1]
        if len(name) == 5:
            return str(json.loads(f'"\\{name}"'))
        if name not in ESCAPES:
            raise FilterError(f"unknown escape `\\{printable(name)}` in a text", token.at + 1 + found.start())
        return ESCAPES[name]

    text = ESCAPE.sub(escaped, token.text[1:-1])
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")  # joins the two halves of an escaped character
    except UnicodeDecodeError:
        raise FilterError("text with half of a character", token.at) from None


def parse_filter(text: str) -> Filter | None:
    r"""Reads a filter expression.

    Args:
        text: The expression, at most 1,000 characters.

    Returns:
        The filter; None for a blank text.

    Raises:
        FilterError: The text is not a filter; the error has the position.

    Examples:
        >>> paid = parse_filter('amount >= 100000000000000000001 and tag == "paid"')
        >>> paid.matches(Candidate("paid", (), {}, lambda: b'{"amount": 100000000000000000001}'))
        True
        >>> paid.matches(Candidate("paid", (), {}, lambda: b'{"amount": 100000000000000000000}'))
        False
        >>> parse_filter("a = 1")
        Traceback (most recent call last):
            ...
        rocketpy.console.filters.FilterError: cannot read filter: `=` is not an operator, write `==` at character 3
    """
    if len(text) > MAX_CHARACTERS:
        raise FilterError(f"more than {MAX_CHARACTERS:,} characters", MAX_CHARACTERS)
    if not text.strip():
        return None
    parser = _Parser(text)
    root = parser.whole()
    return Filter(text, tuple(parser.paths), root)

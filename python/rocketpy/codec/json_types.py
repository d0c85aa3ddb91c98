"""Conversion of JSON to Python values of a declared type, for `rocketpy.codec.JsonCodec`."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
import uuid
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Readers", "json_of"]

Reader: TypeAlias = "Callable[[Any, str], Any]"
"""Converts a JSON value to a type, at a path such as `$.items[3].price`. Raises ValueError."""

PLAIN: dict[Any, tuple[type | tuple[type, ...], str]] = {
    str: (str, "text"),
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
    type(None): (type(None), "null"),
}
TEXTS: dict[Any, tuple[Callable[[str], Any], str]] = {
    datetime: (datetime.fromisoformat, "a time such as 2026-01-31T12:00:00Z"),
    date: (date.fromisoformat, "a date such as 2026-01-31"),
    uuid.UUID: (uuid.UUID, "a UUID"),
    Decimal: (Decimal, "a decimal number as text"),
}
"""Types without a JSON form, written as text."""


def json_of(value: Any) -> Any:
    """Fallback of `json.dumps`: replaces an unsupported value by a supported one.

    Raises:
        TypeError: The value has no JSON form.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, uuid.UUID | Decimal):
        return str(value)
    raise TypeError(f"JSON has no {type(value).__qualname__}")


class Readers:
    """Builds readers of types. Keeps the readers of dataclasses, which may refer to themselves."""

    def __init__(self) -> None:
        self._of_dataclasses: dict[type, Reader] = {}

    def of(self, kind: Any, where: str) -> Reader:
        """The reader of a type.

        Args:
            kind: `Any`, a type of JSON, a dataclass, an enum, a `Literal`, a union, a list, tuple or dict of these, or
                one of `TEXTS`.
            where: Name of the declaration with this type, for the error.

        Raises:
            TypeError: The type is not supported.
        """
        if dataclasses.is_dataclass(kind) and not isinstance(kind, type):
            raise TypeError(f"{where} is a value, not a type: give {type(kind).__qualname__}")
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind is Any or kind is object:
            return lambda value, path: value
        if kind is None or kind in PLAIN:
            return plain(type(None) if kind is None else kind)
        if kind in TEXTS:
            return text(kind)
        if origin is typing.Annotated:
            return self.of(arguments[0], where)
        if origin is typing.Literal:
            return literal(arguments)
        if origin in (typing.Union, types.UnionType):
            return union([self.of(one, where) for one in arguments])
        if kind in (list, dict) or origin in (list, dict, tuple):
            return self._of_container(origin or kind, arguments, where)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return choice(kind)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return self._of_dataclass(kind)
        raise TypeError(f"{where} has a type without a JSON form: {kind!r}; PydanticCodec supports more types")

    def _of_container(self, kind: type, arguments: tuple[Any, ...], where: str) -> Reader:
        if kind is dict:
            if arguments and arguments[0] is not str:
                raise TypeError(f"{where}: keys of a JSON object must be str, not {arguments[0]!r}")
            member = self.of(arguments[1] if arguments else Any, where)
            return lambda value, path: {
                key: member(one, f"{path}.{key}") for key, one in expect(dict, "an object", value, path).items()
            }
        if kind is list:
            member = self.of(arguments[0] if arguments else Any, where)
            return lambda value, path: read_all(member, value, path)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            member = self.of(arguments[0], where)
            return lambda value, path: tuple(read_all(member, value, path))
        members = [self.of(one, where) for one in arguments]

        def read(value: Any, path: str) -> Any:
            if len(expect(list, "a list", value, path)) != len(members):
                raise ValueError(f"{path} must have {len(members)} values, not {len(value)}")
            return tuple(
                member(one, f"{path}[{at}]") for at, (member, one) in enumerate(zip(members, value, strict=True))
            )

        return read

    def _of_dataclass(self, kind: type[Any]) -> Reader:
        if kind in self._of_dataclasses:
            return self._of_dataclasses[kind]
        readers: dict[str, Reader] = {}
        required: set[str] = set()

        def read(value: Any, path: str) -> Any:
            given = expect(dict, "an object", value, path)
            missing = sorted(required - given.keys())
            if missing:
                raise ValueError(f"{path} lacks {', '.join(missing)}")
            values = {name: read(given[name], f"{path}.{name}") for name, read in readers.items() if name in given}
            return kind(**values)

        self._of_dataclasses[kind] = read
        try:
            hints = typing.get_type_hints(kind)
        except NameError as error:
            raise TypeError(f"cannot resolve the types of {kind.__qualname__}: {error}") from error
        for field in dataclasses.fields(kind):
            if field.init:
                readers[field.name] = self.of(hints[field.name], f"{kind.__qualname__}.{field.name}")
                if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                    required.add(field.name)
        return read


def expect(kind: type | tuple[type, ...], wanted: str, value: Any, path: str) -> Any:
    """Checks that a value has one of the types. The error does not show the value, because bodies are confidential."""
    is_whole_number = not isinstance(value, bool) or kind is bool  # to Python, True is an int
    if not isinstance(value, kind) or not is_whole_number:
        raise ValueError(f"{path} must be {wanted}, not {name_of(value)}")
    return value


def name_of(value: object) -> str:
    """JSON name of the type of a value."""
    names: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def plain(kind: Any) -> Reader:
    """Reader of a JSON type."""
    accepted, wanted = PLAIN[kind]
    if kind is float:
        return lambda value, path: float(expect(accepted, wanted, value, path))
    return lambda value, path: expect(accepted, wanted, value, path)


def text(kind: Any) -> Reader:
    """Reader of a type that is written as text."""
    make, wanted = TEXTS[kind]

    def read(value: Any, path: str) -> Any:
        written = expect(str, wanted, value, path)
        try:
            return make(written)
        except (ValueError, InvalidOperation):
            raise ValueError(f"{path} must be {wanted}") from None

    return read


def literal(values: tuple[Any, ...]) -> Reader:
    """Reader of literal values."""

    def read(value: Any, path: str) -> Any:
        for one in values:
            if type(one) is type(value) and one == value:
                return one
        raise ValueError(f"{path} must be one of {', '.join(map(repr, values))}")

    return read


def choice(kind: type[enum.Enum]) -> Reader:
    """Reader of an enum, by its values."""
    by_value = literal(tuple(one.value for one in kind))
    return lambda value, path: kind(by_value(value, path))


def union(members: list[Reader]) -> Reader:
    """Reader of a union: the first type that fits."""

    def read(value: Any, path: str) -> Any:
        failures: list[str] = []
        for member in members:
            try:
                return member(value, path)
            except (ValueError, OverflowError) as error:  # of a whole number that no float can be
                failures.append(str(error))
        raise ValueError(", or ".join(dict.fromkeys(failures)))

    return read


def read_all(member: Reader, value: Any, path: str) -> list[Any]:
    """Reads the values of a list."""
    return [member(one, f"{path}[{at}]") for at, one in enumerate(expect(list, "a list", value, path))]

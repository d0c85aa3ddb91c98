"""Compares two lists of public names: a removal or an incompatible change breaks a program that worked."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REQUIRED = "required"
"""Mark of a command's argument or flag that a call must have."""
NAME = re.compile(r"(?:(?P<what>class|async def|def|module|option) )?(?P<name>[^(:]+)")


class Break(NamedTuple):
    """One incompatible difference."""

    name: str
    is_removal: bool
    text: str


def name_of(line: str) -> str:
    """Name that a line describes, such as `rocketpy.Producer.send` or `rocketpy topic create --queues`."""
    return _split(line)[1]


def breaks(old: Sequence[str], new: Sequence[str]) -> Iterator[Break]:
    """Yields the differences that may break a program, a script or a configuration.

    Args:
        old: Lines of the last release.
        new: Lines of now.
    """
    before, now = ({name_of(line): line for line in lines} for lines in (old, new))
    for name, line in before.items():
        if name not in now:
            yield Break(name, True, f"{name} was removed: {line}")
        elif line != now[name] and (why := _difference(line, now[name])):
            yield Break(name, False, f"{name}: {why}\n  before: {line}\n  now:    {now[name]}")
    for name, line in now.items():
        command, _, _ = name.rpartition(" ")
        if name not in before and command in before and line.endswith(f", {REQUIRED}"):
            yield Break(name, False, f"{name} is new and required: existing calls of {command} fail")


def _split(line: str) -> tuple[str, str, str]:
    """What a line describes (`class`, `def`, ...), its name, and the rest."""
    found = NAME.match(line)
    assert found is not None, line
    return found["what"] or "", found["name"].strip(), line[found.end() :]


def _difference(old: str, new: str) -> str | None:
    """Reason why a changed line is incompatible; None if every use of the old one works with the new one."""
    kind, name, rest = _split(old)
    kind_now, _, rest_now = _split(new)
    if kind != kind_now:
        return f"was {kind or 'a value'}, is {kind_now or 'a value'}"
    if kind == "class":
        lost = set(_bases(rest)) - set(_bases(rest_now))
        return f"is no longer a {', '.join(sorted(lost))}" if lost else None
    if kind in ("def", "async def"):
        return _signature(_function(rest), _function(rest_now))
    if kind == "option":
        (kinds, default), (kinds_now, default_now) = (_halves(part) for part in (rest, rest_now))
        return _default(name, default, default_now) or _narrowed(name, kinds, kinds_now)
    if name.startswith("rocketpy "):
        return _flag(rest.removeprefix(": "), rest_now.removeprefix(": "))
    if name.startswith("rocketpy."):
        return None if _union(rest_now[2:]) <= _union(rest[2:]) else "value has another type"
    return "was changed"


def _flag(old: str, new: str) -> str | None:
    """Reason why a command line that has the flag or argument may fail, or mean something else."""
    (kinds, *facts), (kinds_now, *facts_now) = old.split(", "), new.split(", ")
    if not _union(kinds) <= _union(kinds_now):
        return "no longer takes every value that it took"
    if REQUIRED in facts_now and REQUIRED not in facts:
        return "is required"
    return "has another default" if set(facts) - {REQUIRED} != set(facts_now) - {REQUIRED} else None


def _halves(rest: str) -> tuple[str, str | None]:
    kinds, _, default = rest.removeprefix(": ").partition(" = ")
    return kinds, default or None


def _bases(rest: str) -> list[str]:
    return [base for base in rest.strip("()").split(", ") if base]


def _function(rest: str) -> ast.FunctionDef:
    parsed = ast.parse(f"def f{rest}: ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    return parsed


class _Parameter(NamedTuple):
    place: int | None
    is_keyword: bool
    kinds: str
    default: str | None


def _parameters(function: ast.FunctionDef) -> dict[str, _Parameter]:
    args = function.args
    placed = [*args.posonlyargs, *args.args]
    missing: list[ast.expr | None] = [None] * (len(placed) - len(args.defaults))
    found: dict[str, _Parameter] = {}
    for place, (arg, default) in enumerate(zip(placed, [*missing, *args.defaults], strict=True)):
        found[arg.arg] = _Parameter(place, place >= len(args.posonlyargs), _text(arg.annotation), _value(default))
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found[arg.arg] = _Parameter(None, True, _text(arg.annotation), _value(default))
    return found


def _text(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)


def _value(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)


def _signature(old: ast.FunctionDef, new: ast.FunctionDef) -> str | None:
    """Reason why a call of the old signature may fail, or mean something else, with the new one."""
    before, now = _parameters(old), _parameters(new)
    for name, parameter in before.items():
        if name not in now:
            return f"parameter {name} was removed or renamed"
        if parameter.place is not None and now[name].place != parameter.place:
            return f"parameter {name} has another position"
        if parameter.is_keyword and not now[name].is_keyword:
            return f"parameter {name} can no longer be named"
        if why := _default(name, parameter.default, now[name].default):
            return why
        if why := _narrowed(name, parameter.kinds, now[name].kinds):
            return why
    for name, parameter in now.items():
        if name not in before and parameter.default is None:
            return f"parameter {name} is new and has no default"
    for star, old_rest, new_rest in (
        ("*", old.args.vararg, new.args.vararg),
        ("**", old.args.kwarg, new.args.kwarg),
    ):
        if old_rest is not None and (new_rest is None or _text(old_rest.annotation) != _text(new_rest.annotation)):
            return f"parameter {star}{old_rest.arg} was removed or has another type"
    if not _union(_text(new.returns)) <= _union(_text(old.returns)):
        return "returns another type"
    return None


def _default(name: str, old: str | None, new: str | None) -> str | None:
    return f"the default of {name} was changed" if old is not None and old != new else None


def _narrowed(name: str, old: str, new: str) -> str | None:
    return None if _union(old) <= _union(new) else f"{name} no longer takes every type that it took"


def _union(annotation: str) -> set[str]:
    """Members of a union of types; those within brackets stay together."""
    parts, depth = [""], 0
    for character in annotation:
        depth += (character in "[(") - (character in "])")
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return {part.strip() for part in parts} - {""}

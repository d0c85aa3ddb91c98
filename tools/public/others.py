"""Public names outside Python: commands with their flags, configuration keys, exit codes, metrics."""

from __future__ import annotations

import ast
import inspect
import re
from enum import Enum
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from public.compare import REQUIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEY_ROW = re.compile(r"^\| `(?P<key>\w+)` \| (?P<values>[^|]*(?:\\\|[^|]*)*) \| (?P<default>[^|]*) \| ", re.MULTILINE)
METRIC_ROW = re.compile(r"^\| `(?P<name>rocket\w+)` \| (?P<kind>\w+) \| (?P<labels>[^|]+) \| ", re.MULTILINE)
METRIC = re.compile(r"rocketpy_[a-z0-9_]*[a-z0-9]")


def commands() -> list[str]:
    """Commands of the installed `rocketpy`, with each argument and each name of a flag: type, default, `required`."""
    from rocketpy.cli.app import make_app

    return sorted(_commands(make_app(), "rocketpy"))


def _commands(app: Any, path: str) -> Iterator[str]:
    if app.registered_callback is not None:
        if " " in path:  # a command that has commands, such as `rocketpy broker`
            yield f"{path}: command"
        yield from _flags(app.registered_callback.callback, path)
    for command in app.registered_commands:
        yield f"{path} {command.name}: command"
        yield from _flags(command.callback, f"{path} {command.name}")
    for group in app.registered_groups:
        yield from _commands(group.typer_instance, f"{path} {group.name}")


def _flags(function: Callable[..., None], path: str) -> Iterator[str]:
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if not get_args(parameter.annotation):  # the context
            continue
        kind, info = get_args(parameter.annotation)[:2]
        if type(info).__name__ == "ArgumentInfo":
            shown = [info.metavar or parameter.name.upper()]
        else:  # typer takes the first flag of an annotation for a default
            flags = [flag for flag in (info.default, *(info.param_decls or ())) if str(flag).startswith("-")]
            named = flags or [f"--{parameter.name.replace('_', '-')}"]
            shown = [each for flag in named for each in flag.split("/")]
        facts = [_kind(kind)]
        default = parameter.default
        if default is inspect.Parameter.empty:
            facts.append(REQUIRED)
        elif default is not None and default not in (False, [], ()):
            facts.append(f"default {getattr(default, 'value', default)}")
        yield from (f"{path} {name}: {', '.join(facts)}" for name in shown)


def _kind(annotation: Any) -> str:
    """Type as users see it: `flag`, `int`, the values of a choice; `each` before that of a repeatable one."""
    members = [each for each in get_args(annotation) if each is not NoneType]
    if get_origin(annotation) is list:
        return f"each {_kind(members[0])}"
    if members:
        return " or ".join(map(_kind, members))
    if not isinstance(annotation, type):  # a value of a Literal
        return str(annotation)
    if issubclass(annotation, Enum):
        return " | ".join(str(each.value) for each in annotation)
    return "flag" if annotation is bool else str(annotation.__name__)


def keys(root: Path) -> list[str]:
    """Configuration keys with their values and default, from the page that a test compares with the table of keys."""
    page = (root / "docs/configuration.md").read_text()
    return sorted(f"{row['key']}: {row['values'].strip()} = {row['default'].strip()}" for row in KEY_ROW.finditer(page))


def exit_codes(root: Path) -> list[str]:
    """Exit codes of the command line by name."""
    tree = ast.parse((root / "python/rocketpy/commandline/exits.py").read_text())
    (codes,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ExitCode"]
    return [ast.unparse(line).replace(" = ", ": ") for line in codes.body if isinstance(line, ast.Assign)]


def metrics(root: Path) -> list[str]:
    """Metrics of clients and of the broker.

    The clients' come from tables `NAME: (KIND, DESCRIPTION)` in the modules of Prometheus, the broker's from the page
    that a test compares with its table.
    """
    page = (root / "docs/metrics.md").read_text()
    of_broker = (f"{row['name']}: {row['kind']} {row['labels'].strip()}" for row in METRIC_ROW.finditer(page))
    sources = sorted((root / "python/rocketpy").rglob("prometheus*.py"))
    tables = (node for path in sources for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Dict))
    of_clients = (
        f"{key.value}: {ast.literal_eval(value)[0]}"
        for table in tables
        for key, value in zip(table.keys, table.values, strict=True)
        if isinstance(key, ast.Constant) and METRIC.fullmatch(str(key.value)) and isinstance(value, ast.Tuple)
    )
    return sorted([*of_clients, *of_broker])

#!/usr/bin/env python3
"""Copies the docstrings of the extension's public classes into its stub, where editors and the site read them.

The comments in Rust are their source, because `help()` and doctest read the compiled classes. `--update` writes
python/rocketpy/_rocketpy.pyi from the installed extension; without it the two are compared. Each public class and
method must have a docstring that names each of its arguments.
"""

import argparse
import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import rocketpy
from rocketpy import _rocketpy

STUB = Path(__file__).parents[1] / "python/rocketpy/_rocketpy.pyi"
PUBLIC = [
    name
    for name in rocketpy.__all__
    if inspect.isclass(vars(_rocketpy).get(name)) and vars(_rocketpy)[name] is getattr(rocketpy, name)
]
WIDTH = 120
UPDATE = "python tools/stub_docs.py --update"


class Documented(NamedTuple):
    """Public class, method or property of the stub."""

    label: str
    node: ast.ClassDef | ast.FunctionDef
    text: str | None
    """Docstring of the compiled class, without indentation."""
    arguments: list[str]


def names_of(function: ast.FunctionDef) -> list[str]:
    """Names of the arguments of a method, without `self` and `cls`."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [one.arg for one in every if one is not None and one.arg not in ("self", "cls")]


def documented(tree: ast.Module) -> Iterator[Documented]:
    """Yields the public classes of the stub with their methods and properties."""
    for node in tree.body:
        if not (isinstance(node, ast.ClassDef) and node.name in PUBLIC):
            continue
        compiled = getattr(_rocketpy, node.name)
        methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
        new = [name for one in methods if one.name == "__new__" for name in names_of(one)]
        yield Documented(node.name, node, inspect.getdoc(compiled), new)
        for method in methods:
            if not method.name.startswith("_"):
                text = inspect.getdoc(inspect.getattr_static(compiled, method.name))
                yield Documented(f"{node.name}.{method.name}", method, text, names_of(method))


def problems(tree: ast.Module) -> Iterator[str]:
    """Yields a line for each docstring that is missing, differs, or does not name an argument."""
    for one in documented(tree):
        shown = ast.get_docstring(one.node)
        if one.text is None:
            yield f"{one.label} has no docstring in Rust"
            continue
        if (shown or "").split() != one.text.split():
            yield f"docstring of {one.label} differs from the one in Rust; run: {UPDATE}"
        for name in one.arguments:
            if f"\n    {name}: " not in one.text:
                yield f"docstring of {one.label} does not name the argument {name}"


def rendered(text: str, column: int) -> list[str]:
    """Lines of a docstring at a column. Paragraphs before the first section are wrapped."""
    indent = " " * column
    if "\n\n" not in text:
        text = " ".join(text.split())
        if len(text) + column + 6 <= WIDTH:
            return [f'{indent}"""{text}"""']
        text = textwrap.fill(text, WIDTH - column - 3)
    lines = [f'"""{text}'.rstrip(), '"""']
    return textwrap.indent("\n".join(lines), indent).split("\n")


def updated(source: str) -> str:
    """Returns the stub with the docstrings of the compiled classes."""
    lines = source.splitlines()
    for one in sorted(documented(ast.parse(source)), key=lambda one: -one.node.lineno):
        if one.text is None:
            continue
        body = one.node.body
        column = one.node.col_offset + 4
        docs = rendered(one.text, column)
        first = body[0]
        begin, end = first.lineno - 1, first.end_lineno or first.lineno
        if ast.get_docstring(one.node) is not None:
            lines[begin:end] = docs
        elif isinstance(one.node, ast.ClassDef):
            lines[begin:begin] = [*docs, ""]
        else:  # `def topic(self) -> str: ...`
            lines[begin] = lines[begin].removesuffix(" ...")
            lines[begin + 1 : begin + 1] = docs
    return "\n".join(lines) + "\n"


def main() -> int:
    """Compares or updates the stub, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the docstrings into the stub")
    source = STUB.read_text()
    if parser.parse_args().update:
        source = updated(source)
        STUB.write_text(source)
    found = list(problems(ast.parse(source)))
    for line in found:
        print(line, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

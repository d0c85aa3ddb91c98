"""Circles of Rust modules: modules of one crate that reach each other through the paths they name.

Test modules and binaries are left out.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

USE = re.compile(r"^\s*(?:pub\([^)]*\)\s+)?use\s+([^;]+);", re.MULTILINE)
"""Use within the crate, at the start of a line: texts contain the word too."""
ANY_USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+[^;]+;", re.MULTILINE)


def modules(source: Path) -> dict[str, Path]:
    """Modules of a crate by their paths."""
    found: dict[str, Path] = {}
    for path in source.rglob("*.rs"):
        parts = list(path.relative_to(source).with_suffix("").parts)
        if parts[-1] in ("mod", "lib", "main"):
            parts.pop()
        if not {"tests", "bin", "testing"} & set(parts):
            found["::".join(parts)] = path
    return found


def split(tree: str) -> list[str]:
    """Split a use tree at its outer commas."""
    items: list[str] = []
    depth, item = 0, ""
    for char in tree:
        depth += (char == "{") - (char == "}")
        if char == "," and not depth:
            items.append(item)
            item = ""
        else:
            item += char
    return [text.strip() for text in [*items, item] if text.strip()]


def expand(tree: str, prefix: str = "") -> list[str]:
    """List the paths of a use tree."""
    paths: list[str] = []
    for item in split(tree):
        if "{" in item:
            paths += expand(item[item.index("{") + 1 : item.rindex("}")], prefix + item[: item.index("{")].strip())
        else:
            paths.append(prefix + item.split(" as ")[0].strip())
    return paths


def resolve(path: str, module: str, known: dict[str, Path]) -> tuple[str, str | None] | None:
    """Return the module that a path points to, and the name it takes from there."""
    segments = path.split("::")
    base = module.split("::") if module else []
    if segments[0] == "crate":
        base, segments = [], segments[1:]
    elif segments[0] == "super":
        while segments and segments[0] == "super":
            base, segments = base[:-1], segments[1:]
    elif segments[0] == "self":
        segments = segments[1:]
    elif "::".join([*base, segments[0]]) not in known:
        return None
    while segments and "::".join([*base, segments[0]]) in known:
        base, segments = [*base, segments[0]], segments[1:]
    return "::".join(base), segments[0] if segments else None


def ties(known: dict[str, Path]) -> dict[str, dict[str, set[str]]]:
    """For each module the modules that it names, and the names that it takes from there."""
    text: dict[str, str] = {}
    for module, file in known.items():
        code = re.sub(r"//[^\n]*", "", file.read_text())
        text[module] = re.split(r"#\[cfg\(test\)\]\s*mod \w+\s*\{", code)[0]
    exported: dict[str, dict[str, str]] = defaultdict(dict)
    for module, code in text.items():
        for tree in re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);", code):
            for path in expand(tree):
                target = resolve(path, module, known)
                if target and target[1]:
                    exported[module][target[1]] = target[0]
    tied: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module, code in text.items():
        paths = [path for tree in USE.findall(code) for path in expand(tree)]
        paths += re.findall(r"\b(?:crate|super|self)(?:::\w+)+", ANY_USE.sub("", code))
        for path in paths:
            target = resolve(path, module, known)
            if not target:
                continue
            place, name = target
            for _ in range(5):  # follow re-exports to where the name is defined
                place = exported[place].get(name or "", place)
            if place != module and place in known:
                tied[module][place].add(name or "*")
    return tied


def circles(nodes: dict[str, Path], tied: dict[str, dict[str, set[str]]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan)."""
    sys.setrecursionlimit(10_000)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in tied.get(node, {}):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            circle: list[str] = []
            while not circle or circle[-1] != node:
                circle.append(stack.pop())
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in nodes:
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)

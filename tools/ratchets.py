#!/usr/bin/env python3
"""Figures of the sources that may only improve, compared with those of tools/ratchets.json.

    tools/ratchets.py                  compares, and names the place of each figure that got worse
    tools/ratchets.py --update         writes the figures that improved, never one that got worse
    tools/ratchets.py --list           prints every function, struct and circle above its limit
    tools/ratchets.py --words [AREA]   prints every text that contains a form of tools/words.toml
    tools/ratchets.py --texts AREA     prints all errors, hints, logs, help and option texts of a crate or folder
    tools/ratchets.py --stages FILE    compares the minutes of .ci/run (JSON, by stage) with the committed ones

Figures of an area (a crate of rust/, or a folder with Python): the largest circle of modules, the structs with too
many fields, the functions with too many lines, the assertions per function outside of tests, and the texts that
contain a form of tools/words.toml. Imports that tools/ratchets.toml does not allow fail as well. The minutes of the
stages are committed too: their sum has a budget, and no check depends on the speed of the machine that runs it.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import re
import signal
import sys
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from ratchet import circles
from ratchet.rust import RustFile
from ratchet.texts import Text, python_texts, rust_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PYTHON_AREAS = ("benches", "python", "spark", "tests", "tools")
AREAS_WITH_TEXTS = ("python", "spark")
SKIPPED = {"target", "__pycache__", ".venv", "cpp-env", "node_modules"}
ASSERTION = re.compile(r"\bassert(?:_eq|_ne)?!")
RATE = "assertions_per_function"
DESCRIPTIONS = {
    "circle": "modules in the largest circle",
    "large_structs": "structs with too many fields",
    "long_functions": "functions with too many lines",
    "words": "texts with a form of tools/words.toml",
    RATE: "assertions per function",
}


class Place(NamedTuple):
    """One finding and its place in the sources."""

    path: Path
    line: int
    text: str


class Problem(NamedTuple):
    """A figure that got worse, and the places that may be the cause."""

    text: str
    places: list[Place]


@dataclass
class Area:
    """Findings in a crate or a folder."""

    functions: int = 0
    assertions: int = 0
    circle: list[str] = field(default_factory=list)
    long_functions: list[Place] = field(default_factory=list)
    large_structs: list[Place] = field(default_factory=list)
    words: list[Place] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    ties: list[Place] = field(default_factory=list)
    is_crate: bool = False

    def figures(self) -> dict[str, int | float]:
        """Figures as they are committed."""
        figures: dict[str, int | float] = {"long_functions": len(self.long_functions), "words": len(self.words)}
        if self.is_crate:
            rate = self.assertions / self.functions if self.functions else 0
            figures |= {
                "circle": len(self.circle),
                "large_structs": len(self.large_structs),
                RATE: math.floor(rate * 100) / 100,
            }
        return figures

    def places(self, figure: str) -> list[Place]:
        """Findings that a figure counts."""
        return {
            "circle": self.ties,
            "large_structs": self.large_structs,
            "long_functions": self.long_functions,
            "words": self.words,
        }.get(figure, [])


class Form(NamedTuple):
    """A form that a text must not have, and the advice."""

    pattern: re.Pattern[str]
    write: str


class Tree:
    """The sources below a folder, measured."""

    def __init__(self, root: Path) -> None:
        self.root = root
        tools = root / "tools"
        self.limits: dict[str, Any] = tomllib.loads((tools / "ratchets.toml").read_text())
        self.committed: dict[str, Any] = json.loads((tools / "ratchets.json").read_text())
        listed = tomllib.loads((tools / "words.toml").read_text())["forms"]
        self.forms = [Form(re.compile(form["form"], re.IGNORECASE), form["write"]) for form in listed]
        self.exempt: dict[str, str] = self.limits["structs"]
        self.used_exemptions: set[str] = set()
        self.importers: dict[str, list[str]] = self.limits["imports"]
        self.foreign_imports: dict[str, list[Place]] = {module: [] for module in self.importers}

    @cached_property
    def areas(self) -> dict[str, Area]:
        """Every area by its name."""
        areas = {folder.name: self._crate(folder) for folder in self._crates()}
        for name in PYTHON_AREAS:
            if (self.root / name).is_dir():
                areas.setdefault(name, Area())
                self._python(name, areas[name])
        return dict(sorted(areas.items()))

    def _crates(self) -> Iterator[Path]:
        folders = sorted((self.root / "rust").iterdir()) if (self.root / "rust").is_dir() else []
        # The crate rust/python and the package python/ are one area.
        yield from (folder for folder in [*folders, self.root / "benches"] if (folder / "Cargo.toml").is_file())

    def _crate(self, folder: Path) -> Area:
        area = Area(is_crate=True)
        source = folder / "src"
        known = circles.modules(source)
        tied = circles.ties(known)
        found = circles.circles(known, tied)
        if found:
            area.circle = found[0]
            inside = set(found[0])
            area.ties = [
                tie(known[module], module, other, sorted(tied[module][other]))
                for module in found[0]
                for other in sorted(tied[module].keys() & inside)
            ]
        files = [RustFile(path, path.read_text()) for path in self._files(folder, ".rs")]
        tests = {file.path.parent / name for file in files for name in file.test_modules}
        tests |= {file.path.with_suffix("") / name for file in files for name in file.test_modules}
        for file in files:
            stem = file.path.with_suffix("")
            inner = file.path.relative_to(folder).parts
            is_test = inner[0] != "src" or "tests" in inner or bool({stem, *stem.parents} & tests)
            self._rust_file(area, file, folder.name, is_test=is_test)
        return area

    def _rust_file(self, area: Area, file: RustFile, crate: str, *, is_test: bool) -> None:
        limit = self.limits["max_function_lines"]
        for function in file.functions:
            area.functions += not (is_test or function.is_test)
            if function.lines > limit:
                text = f"fn {function.name}: {function.lines} lines"
                area.long_functions.append(Place(file.path, function.line, text))
        for struct in file.structs:
            if struct.fields > self.limits["max_struct_fields"] and not (is_test or struct.is_test):
                name = f"{crate}::{struct.name}"
                if name in self.exempt:
                    self.used_exemptions.add(name)
                    continue
                text = f"struct {struct.name}: {struct.fields} fields"
                area.large_structs.append(Place(file.path, struct.line, text))
        if not is_test:
            area.assertions += sum(not file.is_test(match.start()) for match in ASSERTION.finditer(file.code))
            self._texts(area, list(rust_texts(file)))

    def _python(self, name: str, area: Area) -> None:
        for path in self._files(self.root / name, ".py"):
            tree = ast.parse(path.read_text())
            for node in functions(tree):
                lines = python_lines(node)
                if lines > self.limits["max_function_lines"]:
                    area.long_functions.append(Place(path, node.lineno, f"def {node.name}: {lines} lines"))
            if name in AREAS_WITH_TEXTS:
                self._imports(path, tree)
                self._texts(area, python_texts(path, tree, is_command_line="cli" in path.parts))

    def _imports(self, path: Path, tree: ast.AST) -> None:
        for module, importers in self.importers.items():
            if not any(path.is_relative_to(self.root / importer) for importer in importers):
                package = path.parent.relative_to(self.root).parts[1:]
                self.foreign_imports[module] += [
                    Place(path, line, f"imports {name}")
                    for line, name in imports(tree, package)
                    if f"{name}.".startswith(f"{module}.")
                ]

    def _texts(self, area: Area, texts: list[Text]) -> None:
        area.texts += texts
        for text in texts:
            for form in self.forms:
                if found := form.pattern.search(text.text):
                    words = f'{text.kind} has "{found[0].strip()}" (write: {form.write}): {text.text}'
                    area.words.append(Place(text.path, text.line, words))
                    break

    def _files(self, folder: Path, suffix: str) -> list[Path]:
        return [path for path in walk(folder) if path.suffix == suffix]

    def problems(self) -> Iterator[Problem]:
        """Every figure that is worse than the committed one."""
        for name, area in self.areas.items():
            committed = self.committed["areas"].get(name, self.limits["new_area"])
            for figure, value in area.figures().items():
                before = committed.get(figure, self.limits["new_area"][figure])
                if value != better(figure, value, before):
                    text = f"{name}: {DESCRIPTIONS[figure]}: {value}, committed: {before}"
                    yield Problem(text, area.places(figure))
        for module, places in self.foreign_imports.items():
            if places:
                yield Problem(f"only {' and '.join(self.importers[module])} may import {module}", places)
        limits = self.root / "tools/ratchets.toml"
        for name in sorted(self.exempt.keys() - self.used_exemptions):
            yield Problem("a struct of the exemptions was removed or renamed, or is small", [Place(limits, 0, name)])
        for name, reason in self.exempt.items():
            if not reason.strip():
                yield Problem("an exemption needs a reason", [Place(limits, 0, name)])
        minutes, budget = self.committed["minutes"], self.committed["budget_minutes"]
        if sum(minutes.values()) > budget:
            figures = self.root / "tools/ratchets.json"
            stages = [Place(figures, 0, f"{stage}: {value}") for stage, value in minutes.items()]
            yield Problem(f"minutes of CI: {sum(minutes.values())}, budget: {budget}", stages)

    def updated(self, stages: dict[str, float]) -> dict[str, Any]:
        """The committed figures, with those that improved. Stages that were measured replace the committed ones."""
        areas: dict[str, dict[str, int | float]] = {}
        for name, area in self.areas.items():
            committed = self.committed["areas"].get(name, self.limits["new_area"])
            areas[name] = {}
            for figure, value in area.figures().items():
                before = committed.get(figure, self.limits["new_area"][figure])
                improved = better(figure, value, before)
                if figure == RATE:  # assertions beyond the target are no duty of later changes
                    improved = max(before, min(improved, self.limits["assertions_per_function"]))
                areas[name][figure] = improved
        minutes: dict[str, float] = dict(self.committed["minutes"])
        if stages:
            minutes = {stage: min(minutes.get(stage, math.inf), math.ceil(took)) for stage, took in stages.items()}
        budget = max(self.limits["budget_minutes"], min(self.committed["budget_minutes"], sum(minutes.values())))
        return {"areas": areas, "budget_minutes": budget, "minutes": minutes}


def better(figure: str, value: float, before: float) -> float:
    """The better one of two values of a figure."""
    return max(value, before) if figure == RATE else min(value, before)


def tie(path: Path, module: str, other: str, names: list[str]) -> Place:
    """A module's use of another one, at the first line that has a name of it."""
    wanted = re.compile(rf"\b(?:{'|'.join([other.split('::')[-1] or 'crate', *names]).replace('*', 'crate')})\b")
    numbered = enumerate(path.read_text().splitlines(), 1)
    line = next((number for number, text in numbered if not text.lstrip().startswith("//") and wanted.search(text)), 0)
    return Place(path, line, f"{module or 'lib'} -> {other or 'lib'}: {', '.join(names)}")


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of a module, also those within others."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, block, [])
        for child in inner if isinstance(inner, list) else []:
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child
            yield from functions(child)


def imports(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a file imports, also within functions.

    Args:
        tree: The file.
        package: Package of the file, for relative imports.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def python_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its decorators and its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
    return lines


def walk(folder: Path) -> Iterator[Path]:
    """Files below a folder, apart from those that builds make."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in SKIPPED and not path.is_symlink():
            yield from walk(path)
        elif path.is_file():
            yield path


def show(root: Path, place: Place) -> None:
    """Prints a place as `file:line: text`."""
    line = f":{place.line}" if place.line else ""
    print(f"{place.path.relative_to(root)}{line}: {place.text}")


def listed(tree: Tree, arguments: argparse.Namespace) -> list[Place]:
    """Places that an option asks for."""
    places: list[Place] = []
    for name, area in tree.areas.items():
        if arguments.texts == name:
            places += [Place(text.path, text.line, f"{text.kind}: {text.text}") for text in area.texts]
        if arguments.words in ("all", name):
            places += area.words
        if arguments.list:
            places += area.long_functions + area.large_structs + area.ties
    return places


def compare(committed: dict[str, float], measured: dict[str, float]) -> None:
    """Prints the minutes of each stage."""
    rows = [(stage, measured.get(stage, math.nan), committed.get(stage, math.nan)) for stage in committed | measured]
    for stage, took, figure in [*rows, ("all", sum(measured.values()), sum(committed.values()))]:
        print(f"{stage:20} measured {took:6.1f}  committed {figure:4.0f}")


def parsed() -> argparse.Namespace:
    """Arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--words", nargs="?", const="all", metavar="AREA")
    parser.add_argument("--texts", metavar="AREA")
    parser.add_argument("--stages", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> int:
    """Runs the command; the exit code is 1 if a figure got worse."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the lists are long: `| head` ends the command quietly
    arguments = parsed()
    tree = Tree(arguments.root)
    if unknown := {arguments.texts, arguments.words} - {None, "all", *tree.areas}:
        print(f"no area {' '.join(unknown)}; areas: {' '.join(tree.areas)}", file=sys.stderr)
        return 2
    stages: dict[str, float] = json.loads(arguments.stages.read_text()) if arguments.stages else {}
    if arguments.list or arguments.words or arguments.texts:
        places = listed(tree, arguments)
        for place in places:
            show(tree.root, place)
        print(f"{len(places)} places")
        return 0
    if stages:
        compare(tree.committed["minutes"], stages)
    if arguments.update:
        (tree.root / "tools/ratchets.json").write_text(json.dumps(tree.updated(stages), indent=2) + "\n")
        tree = Tree(arguments.root)
    problems = list(tree.problems())
    for problem in problems:
        print(f"worse: {problem.text}")
        for place in problem.places:
            print("  ", end="")
            show(tree.root, place)
    if problems:
        print("hint: `tools/ratchets.py --help`; figures that may only improve: tools/ratchets.json")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())

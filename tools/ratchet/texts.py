"""The texts that users read: errors, hints, log messages, help and the descriptions of options, each with its place."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .rust import RustFile

LOG_CALL = re.compile(r"\b(?:error|warn|info|debug|trace)!\s*(?=[({\[])")
ERROR_TEXT = re.compile(r"#\[error(?=\()")
RAISED = re.compile(r"\b\w+::new_err(?=\()")
HINT_CALL = re.compile(r"\.hint(?=\()")
CLAP_ITEM = re.compile(r"#\[derive(?=\(([^)]*\b(?:Parser|Args|Subcommand|ValueEnum)\b[^)]*)\))")
CLAP_TEXT = re.compile(r"#\[(?:arg|command|clap)(?=\()")
CLAP_KEYS = re.compile(r"\b(?:help|long_help|about|long_about)\s*=\s*$")
DOCUMENTED_KEY = re.compile(r'^[ \t]*"\w+" =', re.MULTILINE)
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
SECTIONS_OF_OPTIONS = ("Args:", "Attributes:")


class Text(NamedTuple):
    """One text and its place in the sources."""

    kind: str
    path: Path
    line: int
    text: str


def rust_texts(file: RustFile) -> Iterator[Text]:
    """Texts of a Rust file that are not those of tests."""
    for kind, at, text in sorted(_rust_texts(file), key=lambda found: found[1]):
        if not file.is_test(at) and text.strip():
            yield Text(kind, file.path, file.line(at), text)


def _rust_texts(file: RustFile) -> Iterator[tuple[str, int, str]]:
    for match in ERROR_TEXT.finditer(file.code):
        yield from (("error", at, text) for at, text in file.strings_in(*_inside(file, match.end()))[:1])
    for match in LOG_CALL.finditer(file.code):
        parts = file.split(*_inside(file, match.end()))
        message = next((part for part in parts if file.code[slice(*part)].lstrip().startswith('"')), None)
        if message:
            yield from (("log", at, text) for at, text in file.strings_in(*message)[:1])
    for match in RAISED.finditer(file.code):
        yield from (("error", at, text) for at, text in file.strings_in(*_inside(file, match.end())))
    hints = [(function.start, function.end) for function in file.functions if function.name == "hint"]
    hints += [_inside(file, match.end()) for match in HINT_CALL.finditer(file.code)]
    for span in hints:
        yield from (("hint", at, text) for at, text in file.strings_in(*span))
    for match in CLAP_ITEM.finditer(file.code):
        yield from _docs(file, _docs_start(file, match.start()), file.item_end(file.pairs[match.end()])[0])
    for match in CLAP_TEXT.finditer(file.code):
        for at, text in file.strings_in(*_inside(file, match.end())):
            if CLAP_KEYS.search(file.code[:at]):
                yield "help", at, text
    for match in DOCUMENTED_KEY.finditer(file.source):
        yield from _docs(file, _docs_start(file, match.start()), match.start())


def _inside(file: RustFile, opening: int) -> tuple[int, int]:
    return opening + 1, file.pairs.get(opening, len(file.code)) - 1


def _docs_start(file: RustFile, item: int) -> int:
    start = file.source.rfind("\n", 0, item) + 1
    while start:
        line = file.source.rfind("\n", 0, start - 1) + 1
        if not file.source[line:start].lstrip().startswith("///"):
            break
        start = line
    return start


def _docs(file: RustFile, start: int, end: int) -> Iterator[tuple[str, int, str]]:
    """Doc comments between two places, each block as one text."""
    for match in re.finditer(r"(?:^[ \t]*///[^\n]*\n?)+", file.source[start:end], re.MULTILINE):
        lines = [line.strip().removeprefix("///").strip() for line in match[0].splitlines()]
        yield "help", start + match.start(), " ".join(lines)


def python_texts(path: Path, tree: ast.Module, *, is_command_line: bool) -> list[Text]:
    """Texts of a Python file."""
    found: list[Text] = []

    def add(kind: str, node: ast.expr, text: str | None = None) -> None:
        text = constant(node) if text is None else text
        if text and text.strip():
            found.append(Text(kind, path, node.lineno, " ".join(text.split())))

    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for value in node.exc.args:
                add("error", value)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for keyword in node.keywords:
                if keyword.arg in ("help", "hint", "short_help", "epilog"):
                    add("hint" if keyword.arg == "hint" else "help", keyword.value)
            if name in ("fail", "CommandError"):
                for value in node.args:
                    add("error", value)
            elif name in ("Flag", "Command"):
                for value in node.args:
                    if " " in (constant(value) or ""):
                        add("help", value)
            elif name in LOG_METHODS and isinstance(node.func, ast.Attribute) and node.args:
                add("log", node.args[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found += _docstring(path, node, is_command_line=is_command_line)
        if isinstance(node, ast.ClassDef | ast.Module):
            found += _attributes(path, node)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id.endswith("HINTS"):
                for value in node.value.values:
                    add("hint", value)
    return sorted(set(found), key=lambda text: text.line)


def constant(node: ast.expr) -> str | None:
    """Text of an expression, with its values in braces; None for what is not a text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = (part.value for part in node.values if isinstance(part, ast.Constant | ast.FormattedValue))
        return "".join(f"{{{ast.unparse(part)}}}" if isinstance(part, ast.expr) else str(part) for part in parts)
    if isinstance(node, ast.BinOp):
        sides = constant(node.left), constant(node.right)
        return None if sides == (None, None) else "".join(side or "" for side in sides)
    return None


def _docstring(
    path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, *, is_command_line: bool
) -> Iterator[Text]:
    """Help of a command, and the entries of a docstring that describe arguments."""
    docstring = ast.get_docstring(node)
    if not docstring or node.name.startswith("_"):
        return
    first = node.body[0].lineno
    if is_command_line:
        yield Text("help", path, first, " ".join(docstring.split()))
        return
    section = entry = ""
    started = 0
    for number, line in enumerate([*docstring.splitlines(), "End:"]):
        begins = re.match(r"    [\w*]+(?: \([^)]*\))?: ", line)
        if entry and (begins or not line.startswith("    ")):
            yield Text("option", path, started, " ".join(entry.split()))
            entry = ""
        if re.match(r"\w+:$", line):
            section = line
        elif section in SECTIONS_OF_OPTIONS and begins:
            entry, started = line[begins.end() :], first + number
        elif entry:
            entry += " " + line


def _attributes(path: Path, node: ast.ClassDef | ast.Module) -> Iterator[Text]:
    """Docstrings below the fields of a class or the names of a module."""
    for before, after in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(before, ast.AnnAssign | ast.Assign)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            yield Text("option", path, after.lineno, " ".join(after.value.value.split()))

"""A Rust file without a parser: comments and literals are blanked, so that brackets and names can be counted."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*(?:[^*]|\*(?!/))*\*/ )
    | (?P<string> \b(?:b|c)?r(?P<hashes>\#*)".*?"(?P=hashes) | \b[bc]?"(?:\\.|[^"\\])*" | "(?:\\.|[^"\\])*" )
    | (?P<char> b?'(?:\\(?:u\{[^}]*\}|x[0-9a-fA-F]{2}|.)|[^'\\\n])' )
    """,
    re.VERBOSE | re.DOTALL,
)
OPENING = {"(": ")", "[": "]", "{": "}"}
TEST_ITEM = re.compile(r"#\[\s*(?:cfg\(\s*(?:(?:all|any)\(\s*)?test\b[^\]]*|test|tokio::test[^\]]*)\]")


@dataclass(frozen=True)
class Function:
    """A function with a body, and the lines from its `fn` to its last bracket."""

    name: str
    line: int
    lines: int
    start: int
    end: int
    is_test: bool


@dataclass(frozen=True)
class Struct:
    """A struct and the number of its fields."""

    name: str
    line: int
    fields: int
    is_test: bool


class RustFile:
    """Source of a Rust file, and the same text with blanks for comments and literals."""

    def __init__(self, path: Path, source: str) -> None:
        self.path = path
        self.source = source
        self.strings: list[tuple[int, int]] = []
        self.code = HIDDEN.sub(self._blank, source)
        self._newlines = [match.start() for match in re.finditer("\n", source)]

    def _blank(self, match: re.Match[str]) -> str:
        if match["string"]:
            self.strings.append(match.span())
        text = "\n".join(" " * len(line) for line in match[0].split("\n"))
        return text if match["comment"] else f'"{text[1:-1]}"'

    def line(self, at: int) -> int:
        """Line of a place in the text, counted from 1."""
        return bisect_left(self._newlines, at) + 1

    @cached_property
    def pairs(self) -> dict[int, int]:
        """Place after the closing bracket of each opening one."""
        pairs: dict[int, int] = {}
        open_at: list[int] = []
        for match in re.finditer(r"[()\[\]{}]", self.code):
            if match[0] in OPENING:
                open_at.append(match.start())
            elif open_at:
                pairs[open_at.pop()] = match.end()
        return pairs

    def item_end(self, at: int) -> tuple[int, bool]:
        """End of the item at a place, and whether a body in braces closes it."""
        bracket = re.compile(r"[(\[{;]")
        while match := bracket.search(self.code, at):
            if match[0] == ";":
                return match.end(), False
            at = self.pairs.get(match.start(), len(self.code))
            if match[0] == "{":
                return at, True
        return len(self.code), False

    @cached_property
    def test_spans(self) -> list[tuple[int, int]]:
        """Items that only tests compile."""
        spans: list[tuple[int, int]] = []
        for match in TEST_ITEM.finditer(self.code):
            if not spans or match.start() >= spans[-1][1]:
                spans.append((match.start(), self.item_end(match.end())[0]))
        return spans

    @cached_property
    def test_modules(self) -> set[str]:
        """Modules in files of their own that only tests compile."""
        return set(re.findall(TEST_ITEM.pattern + r"\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", self.code))

    def is_test(self, at: int) -> bool:
        """Whether only tests compile the code at a place."""
        return any(start <= at < end for start, end in self.test_spans)

    @cached_property
    def functions(self) -> list[Function]:
        """Functions that have a body, also those within others."""
        found = []
        for match in re.finditer(r"\bfn\s+(\$?\w+)", self.code):
            end, has_body = self.item_end(match.end())
            if has_body:
                line = self.line(match.start())
                lines = self.line(end - 1) - line + 1
                found.append(Function(match[1], line, lines, match.start(), end, self.is_test(match.start())))
        return found

    @cached_property
    def structs(self) -> list[Struct]:
        """Structs, with named fields or without names."""
        found = []
        for match in re.finditer(r"\bstruct\s+(\w+)", self.code):
            opening = re.compile(r"[({;]").search(self.code, match.end())
            if opening is None or opening[0] == ";":
                continue
            end = self.pairs.get(opening.start(), len(self.code))
            fields = len(self.split(opening.end(), end - 1))
            found.append(Struct(match[1], self.line(match.start()), fields, self.is_test(match.start())))
        return found

    def split(self, start: int, end: int) -> list[tuple[int, int]]:
        """Parts between the commas of a bracket's inside; angle brackets of generics count as brackets."""
        parts, at, depth = [], start, start
        angles = 0
        while at < end:
            char = self.code[at]
            if char in OPENING:
                at = self.pairs.get(at, end)
                continue
            if char == "<":
                angles += 1
            elif char == ">" and self.code[at - 1] not in "-=":
                angles = max(0, angles - 1)
            elif char == "," and not angles:
                parts.append((depth, at))
                depth = at + 1
            at += 1
        parts.append((depth, end))
        return [part for part in parts if self.code[slice(*part)].strip()]

    def strings_in(self, start: int, end: int) -> list[tuple[int, str]]:
        """Place and text of each string literal between two places."""
        first = bisect_left(self.strings, (start, 0))
        found = []
        for begin, stop in self.strings[first:]:
            if begin >= end:
                break
            found.append((begin, literal(self.source[begin:stop])))
        return found


def literal(source: str) -> str:
    """Text of a string literal as the compiler reads it, apart from rare escapes."""
    prefix, _, rest = source.partition('"')
    if "r" in prefix:
        return rest[: -1 - prefix.count("#")]
    text = re.sub(r"\\\n\s*", "", rest[:-1])
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), text)

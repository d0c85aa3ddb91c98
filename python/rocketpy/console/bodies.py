"""Bodies on a page: as JSON on lines, as text or as hexadecimal bytes, at most the first 64 KiB."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from rocketpy.base.text import printable
from rocketpy.console.json_text import MAX_BYTES, JsonProblem, check_json, pretty_json

if TYPE_CHECKING:
    from rocketpy.console.masking import Mask

__all__ = ["HIDDEN", "BodyView", "ShownBody", "preview", "shown_body", "view_of"]

BodyView: TypeAlias = Literal["json", "text", "hex"]
VIEWS: tuple[BodyView, ...] = ("json", "text", "hex")
SHOWN_BYTES = 64 * 1024
"""Part of a body that a page shows."""
PREVIEW_CHARACTERS = 200
"""Part of a body that a row of a list shows."""
ROW_BYTES = 16
"""Bytes in a row of the hexadecimal view."""
HIDDEN = "•••"
"""Shown in place of a hidden body."""
MARKS = re.compile("[\u200e\u200f\u061c]")
"""Marks of direction that `printable` leaves."""
ASCII = bytes(byte if 32 <= byte < 127 else 46 for byte in range(256))
"""Characters of the hexadecimal view; a dot for others."""


@dataclass(frozen=True, slots=True)
class ShownBody:
    """Body as a page shows it."""

    view: BodyView
    views: tuple[BodyView, ...]
    """Views that the body has."""
    text: str
    size: int
    """Length of the whole body in bytes."""
    is_cut: bool
    """Whether more of the body exists than `text` shows."""
    is_hidden: bool = False
    problem: str | None = None
    """Why the body is not shown as JSON or text."""


def view_of(text: str) -> BodyView | None:
    """View of a query parameter; None for an unknown one."""
    return next((view for view in VIEWS if view == text), None)


def preview(body: bytes | memoryview, mask: Mask | None = None) -> str:
    r"""First 200 characters of a body on one line.

    Examples:
        >>> preview(b'{"a": 1}\n\x1b[31m'), preview(b"\x00\xff")
        ('{"a": 1} \\x1b[31m', '00 ff')
    """
    if mask is not None and mask.hides_body:
        return HIDDEN
    if mask is not None and mask.has_paths:
        return preview(shown_body(bytes(body), "json", mask).text.encode())
    begin = bytes(body[: 4 * PREVIEW_CHARACTERS])
    text = _text(begin, is_cut=len(body) > len(begin))
    if text is None or "\0" in text:
        return begin[: PREVIEW_CHARACTERS // 3].hex(" ")
    return printable(" ".join(text.split())[:PREVIEW_CHARACTERS])


def shown_body(body: bytes, wanted: BodyView | None = None, mask: Mask | None = None) -> ShownBody:
    r"""Body in the wanted view, or in the best one.

    Args:
        body: The body, decompressed.
        wanted: The view; default: JSON if the body is JSON, else text if it is text, else hexadecimal.
        mask: Fields that the visitor may not see. A body that is not JSON is hidden as a whole.

    Examples:
        >>> shown_body(b'{"amount":100000000000000000000}').text
        '{\n  "amount": 100000000000000000000\n}'
        >>> broken = shown_body(b"caf\xe9")
        >>> broken.view, broken.text, broken.problem
        ('hex', '00000000  63 61 66 e9                                      caf.', 'byte 3 is not UTF-8')
    """
    if mask is not None and mask.hides_body:
        return _hidden(body)
    try:
        text = check_json(body)
    except JsonProblem as error:
        if mask is not None and mask.has_paths:
            return _hidden(body)
        return _other(body, wanted, str(error))
    is_masked = mask.is_masked if mask is not None and mask.has_paths else None
    if wanted is None or wanted == "json" or is_masked is not None:
        views: tuple[BodyView, ...] = VIEWS if is_masked is None else ("json",)
        shown, is_cut = pretty_json(text, SHOWN_BYTES, is_masked)
        return ShownBody("json", views, _visible(shown), len(body), is_cut)
    return _plain(body, wanted, VIEWS, None)


def _visible(text: str) -> str:
    return MARKS.sub(lambda found: f"\\u{ord(found[0]):04x}", printable(text, keep="\n\t\r"))


def _hidden(body: bytes) -> ShownBody:
    return ShownBody("text", (), HIDDEN, len(body), is_cut=False, is_hidden=True)


def _other(body: bytes, wanted: BodyView | None, problem: str) -> ShownBody:
    """Body that is not JSON."""
    is_text = len(body) <= MAX_BYTES and _text(body, is_cut=False) is not None
    views: tuple[BodyView, ...] = ("text", "hex")
    if wanted is None or wanted == "json":
        has_nul = b"\0" in body[:SHOWN_BYTES]
        wanted = "text" if is_text and not has_nul else "hex"
    return _plain(body, wanted, views, problem)


def _plain(body: bytes, view: BodyView, views: tuple[BodyView, ...], problem: str | None) -> ShownBody:
    begin = body[:SHOWN_BYTES]
    is_cut = len(body) > SHOWN_BYTES
    if view == "hex":
        return ShownBody("hex", views, _hex(begin), len(body), is_cut, problem=problem)
    text = _text(begin, is_cut=is_cut)
    if text is None:
        text = begin.decode("utf-8", "backslashreplace")
    return ShownBody("text", views, _visible(text), len(body), is_cut, problem=problem)


def _text(begin: bytes, *, is_cut: bool) -> str | None:
    """Text of UTF-8, of which the last character may be cut; None for other bytes."""
    try:
        return begin.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start > len(begin) - 4 and error.reason == "unexpected end of data":
            return begin[: error.start].decode()
        return None


def _hex(part: bytes) -> str:
    rows: list[str] = []
    for at in range(0, len(part), ROW_BYTES):
        row = part[at : at + ROW_BYTES]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        rows.append(f"{at:08x}  {left:<23}  {right:<23}  {row.translate(ASCII).decode('ascii')}")
    return "\n".join(rows)

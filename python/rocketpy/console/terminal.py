"""Text of peers on a terminal: control characters are shown as escapes. Imports only the standard library."""

import re
import sys

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 and C1 controls (escape sequences begin with one), line separators, and what changes the direction of text."""
NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str, *, keep: str = "") -> str:
    r"""Writes control characters as escapes.

    Args:
        text: May come from a server, a message or a file.
        keep: Control characters that stay as they are.

    Examples:
        >>> printable("red \x1b[31m and\na line")
        'red \\x1b[31m and\\na line'
        >>> printable("two\nlines", keep="\n")
        'two\nlines'
    """
    return CONTROL.sub(lambda found: found[0] if found[0] in keep else escape(found[0]), text)


def escape(character: str) -> str:
    """One control character as an escape."""
    number = ord(character)
    return NAMED.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")


def shown(body: bytes) -> bytes:
    """A message body for standard output: as it is for a pipe or a file, printable on a terminal.

    Lines and tabs stay. What is not UTF-8 is escaped.
    """
    if not sys.stdout.isatty():
        return body
    return printable(body.decode(errors="backslashreplace"), keep="\n\t").encode()

"""Text of peers in logs and on terminals: control characters become escapes. Imports only the standard library."""

import re

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 and C1 controls (escape sequences begin with one), line separators, and controls of the direction of text."""
SURROGATE = re.compile(r"[\ud800-\udfff]")
NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str, *, keep: str = "") -> str:
    r"""Writes control characters as escapes.

    Args:
        text: Text from a server, a message or a file.
        keep: Control characters that stay as they are.

    Examples:
        >>> printable("red \x1b[31m and\na line")
        'red \\x1b[31m and\\na line'
        >>> printable("two\nlines", keep="\n")
        'two\nlines'
    """
    return CONTROL.sub(lambda found: found[0] if found[0] in keep else escape(found[0]), text)


def is_unicode(text: str) -> bool:
    r"""Whether a text has no lone surrogate. Python reads bytes as such where they are not characters of the locale.

    Examples:
        >>> is_unicode("caf\u00e9"), is_unicode("caf\udce9")
        (True, False)
    """
    return text.isascii() or not SURROGATE.search(text)


def escape(character: str) -> str:
    """Escapes a control character."""
    number = ord(character)
    return NAMED.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")

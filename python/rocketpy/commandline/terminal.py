"""Message bodies on a terminal. Imports only the standard library."""

import sys

from rocketpy.base.text import printable


def shown(body: bytes) -> bytes:
    """Converts a message body for standard output: unchanged for a pipe or a file, printable on a terminal.

    Lines and tabs are kept. Bytes that are not UTF-8 are escaped.
    """
    if not sys.stdout.isatty():
        return body
    text = printable(body.decode(errors="backslashreplace"), keep="\n\t")
    return text.encode(sys.stdout.encoding, errors="backslashreplace")

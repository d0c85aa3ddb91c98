"""Descriptors of standard streams that are closed. Imports only the standard library."""

import os

INPUT, OUTPUT, ERRORS = 0, 1, 2
"""Descriptors of the standard streams."""
UNUSABLE = {INPUT: os.O_WRONLY, OUTPUT: os.O_RDONLY, ERRORS: os.O_WRONLY}
"""Modes of `/dev/null` in which reading standard input or writing standard output stays an error.

Nothing can report a closed standard error: it discards."""


def open_closed_descriptors(*, is_usable: bool = True) -> None:
    """Opens `/dev/null` on closed descriptors 0 to 2, so that no file or socket takes their numbers.

    Args:
        is_usable: Whether reading finds an empty input and writing discards. Otherwise both stay errors, so that a
            command whose output is lost does not succeed.
    """
    for number in (INPUT, OUTPUT, ERRORS):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR if is_usable else UNUSABLE[number])
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)

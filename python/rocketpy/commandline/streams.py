"""Standard streams of a command: closed ones, full ones, and charsets that lack a character.

Imports only the standard library.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from rocketpy.base.descriptors import ERRORS, INPUT, OUTPUT, open_closed_descriptors

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

NAMES = {INPUT: "standard input", OUTPUT: "standard output", ERRORS: "standard error"}


class StreamError(Exception):
    """A standard stream cannot be read or written."""

    def __init__(self, number: int, cause: OSError) -> None:
        verb = "read" if number == INPUT else "write"
        why = "it is closed" if cause.errno == errno.EBADF else cause.strerror or str(cause)
        super().__init__(f"cannot {verb} {NAMES[number]}: {why}")
        self.hint = "redirect it to a file or a pipe that is open; /dev/null discards the output"
        if number == INPUT:
            self.hint = "redirect it from a file or a pipe; </dev/null is an empty input"
        elif cause.errno in (errno.ENOSPC, errno.EDQUOT):
            self.hint = "free disk space, or redirect the output to another disk"


def prepare(*, is_server: bool = False) -> None:
    """Prepares the standard streams of a command's process, before it opens anything.

    Characters that the charset of a stream lacks are written as escapes. A failed write to standard output raises
    `StreamError`; a failed write to standard error is ignored, so that the exit code tells the failure.

    Args:
        is_server: Whether the process may run without any standard stream, as a daemon does.
    """
    open_closed_descriptors(is_usable=is_server)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Descriptor(INPUT)), encoding="utf-8")
    sys.stdout = _writer(sys.stdout, OUTPUT)
    sys.stderr = _writer(sys.stderr, ERRORS)


def discard() -> None:
    """Discards the buffered rest of standard output."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, OUTPUT)
    os.close(null)
    sys.stdout.flush()


def flush() -> StreamError | None:
    """Flushes standard output for a command that fails.

    Returns:
        Why the rest of the output was lost; None if it was written, or if its reader has ended.
    """
    try:
        sys.stdout.flush()
    except StreamError as error:
        discard()
        return error
    except OSError:
        discard()
    return None


def _writer(given: TextIO | Any, number: int) -> io.TextIOWrapper:
    """A standard stream whose failures are told apart from those of files. `given` is None for a closed one."""
    encoding = "utf-8" if given is None else given.encoding
    is_terminal = os.isatty(number)
    is_unbuffered = getattr(given, "write_through", False)  # python -u, PYTHONUNBUFFERED
    writer = _Unbuffered if is_unbuffered else io.BufferedWriter
    return io.TextIOWrapper(
        writer(_Descriptor(number)),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=is_terminal or number == ERRORS,
        write_through=is_unbuffered or number == ERRORS,
    )


class _Unbuffered(io.BufferedWriter):
    """Writes everything at once, in as many calls of the system as it takes."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes bytes."""
        written = super().write(data)
        self.flush()
        return written


class _Descriptor(io.FileIO):
    """Descriptor of a standard stream."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "r" if number == INPUT else "w", closefd=False)
        self._number = number

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Reads bytes."""
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise StreamError(INPUT, error) from error

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]
        """Writes bytes."""
        try:
            return super().write(data)
        except BrokenPipeError:
            if self._number == OUTPUT:
                raise  # the reader has enough, as in `| head`
        except OSError as error:
            if self._number == OUTPUT:
                raise StreamError(OUTPUT, error) from error
        return memoryview(data).nbytes

"""Hints of errors that several calls raise."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from rocketpy.errors import RocketPyError


@contextlib.contextmanager
def hinted(kind: type[RocketPyError], *, hint: str, code: int | None = None) -> Generator[None]:
    """Replaces the hint of an error: another call that raises it has other remedies.

    Args:
        kind: Class of the error.
        hint: Remedy for this call.
        code: Response code of the error; default: any.
    """
    try:
        yield
    except kind as error:
        if code is None or error.code == code:
            set_hint(error, hint)
        raise


def set_hint(error: RocketPyError, hint: str) -> None:
    """Replaces the hint of an error, also below its traceback."""
    before = f"hint: {error.hint}"
    error.hint = hint
    error.__notes__ = [*(note for note in getattr(error, "__notes__", ()) if note != before), f"hint: {hint}"]

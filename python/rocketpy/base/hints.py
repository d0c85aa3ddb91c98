"""Hints of errors that several calls raise."""

from __future__ import annotations

import contextlib
import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from rocketpy.errors import RocketPyError

DENIED = re.compile(r"User:(.+?) has no permission to access (\S+) (?:from \S+, )(?!only a super user)")
"""User and resource in the error of a denied request, which names one missing right."""


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


@contextlib.contextmanager
def granting(*needs: tuple[str, str]) -> Generator[None]:
    """Names all policies that a denied call needs: the server names what it missed first.

    Args:
        needs: Resources with their actions, such as `("Topic:orders", "Create,Get")`.
    """
    from rocketpy.errors import AccessDeniedError

    try:
        yield
    except AccessDeniedError as error:
        found = DENIED.search(str(error))
        if found is not None:
            user = shlex.quote(found[1])
            commands = [f"`rocketpy acl grant {user} {shlex.quote(resource)} {actions}`" for resource, actions in needs]
            text = f"an administrator allows it: {', '.join(commands)}"
            set_hint(error, f"{text}; each replaces the policy of its resource, see `rocketpy acl show {user}`")
        raise

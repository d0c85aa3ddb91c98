"""Which Python interpreters can load the extension module."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__all__: list[str] = []

MAIN = 0
"""The id of the main interpreter."""


def interpreter_id() -> int:
    """The id of this interpreter; that of the main one where Python does not tell."""
    try:
        interpreters = import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    except ImportError:  # a build of Python may leave it out
        return MAIN
    current: Any = interpreters.get_current()
    return int(current[0] if hasattr(current, "__getitem__") else current)


def check_interpreter() -> None:
    """Refuses interpreters in which the extension module would not load, or would share its state with another one.

    Raises:
        ImportError: This is a free-threaded build of Python, or a sub-interpreter.
    """
    if "t" in getattr(sys, "abiflags", ""):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise ImportError(
            f"rocketpy does not run on free-threaded Python yet: use python{version} in place of python{version}t",
            name="rocketpy",
        )
    if (number := interpreter_id()) != MAIN:
        raise ImportError(
            f"rocketpy runs in the main interpreter of a process alone, this is sub-interpreter {number}: "
            "use threads or processes (multiprocessing with spawn), or mod_wsgi with WSGIApplicationGroup %{GLOBAL}",
            name="rocketpy",
        )

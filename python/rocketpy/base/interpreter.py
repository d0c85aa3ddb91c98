"""Check that the Python interpreter can load the extension module."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__all__: list[str] = []

MAIN = 0
"""Id of the main interpreter."""


def interpreter_id() -> int:
    """Id of this interpreter; the id of the main interpreter if Python does not report it."""
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
            f"rocketpy cannot run in sub-interpreter {number}, only in the main interpreter: "
            "use threads or processes (multiprocessing with spawn), or mod_wsgi with WSGIApplicationGroup %{GLOBAL}",
            name="rocketpy",
        )

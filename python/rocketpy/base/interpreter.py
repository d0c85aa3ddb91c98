"""Check that the Python interpreter and its platform can load the extension module."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__all__: list[str] = []

OLDEST_PYTHON = (3, 11)
"""`requires-python` of pyproject.toml, for packages that were not installed by pip."""
PLATFORMS = ("linux", "darwin")
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


def check_platform() -> None:
    """Refuses platforms and Pythons without an extension module.

    Raises:
        ImportError: This is neither Linux nor macOS, not CPython, or a CPython that is too old.
    """
    python = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
    if sys.implementation.name != "cpython" or sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise ImportError(
            f"rocketpy runs on CPython {oldest} or newer, not on {python}: make an environment with python{oldest} or "
            "newer and install rocketpy-mq there",
            name="rocketpy",
        )
    if sys.platform not in PLATFORMS:
        way = "install it in WSL" if sys.platform in ("win32", "cygwin") else "use one of them"
        raise ImportError(f"rocketpy runs on Linux and macOS, not on {sys.platform}: {way}", name="rocketpy")


def check_interpreter() -> None:
    """Refuses interpreters in which the extension module would not load, or would share its state with another one.

    Raises:
        ImportError: This is a platform or a Python that is not supported, a free-threaded build of Python, or a
            sub-interpreter.
    """
    check_platform()
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

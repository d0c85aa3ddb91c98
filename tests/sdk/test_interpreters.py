"""Interpreters that cannot load the extension module say so."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rocketpy

PACKAGE = str(Path(rocketpy.__file__).parent.parent)
IMPORT = f"import sys; sys.path.insert(0, {PACKAGE!r}); import rocketpy; rocketpy.Message"
REFUSED = f"try: exec({IMPORT!r})\nexcept ImportError as error: print(error, flush=True)"
# A sub-interpreter, whatever its module is called in this version.
SUB_INTERPRETER = f"""
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
sys.path.insert(0, {PACKAGE!r})
if "main first" in sys.argv:
    import rocketpy
    rocketpy.Message
interpreters.run_string(interpreters.create(), {REFUSED!r})
import rocketpy
print(rocketpy.Message)
"""


def run(code: str, *args: str, python: str = sys.executable) -> str:
    ran = subprocess.run([python, "-c", code, *args], capture_output=True, text=True, timeout=120, check=True)
    return ran.stdout


def test_a_sub_interpreter_is_refused_by_name_and_the_main_one_still_loads() -> None:
    for args in [(), ("main first",)]:
        lines = run(SUB_INTERPRETER, *args).splitlines()
        assert lines[0].startswith("rocketpy cannot run in sub-interpreter ")
        assert lines[-1] == "<class 'rocketpy.Message'>", lines


def test_free_threaded_python_is_refused_by_name() -> None:
    # Where there is none, this one says that it is one.
    free_threaded = shutil.which("python3.14t")
    disguise = "" if free_threaded else "import sys; sys.abiflags = 't'; "
    assert run(f"{disguise}\n{REFUSED}", python=free_threaded or sys.executable).startswith(
        "rocketpy does not run on free-threaded Python"
    )


@pytest.mark.parametrize(
    ("disguise", "error"),
    [
        ("sys.version_info = (3, 10, 1)", "rocketpy runs on CPython 3.11 or newer, not on cpython 3.10"),
        ("sys.implementation.name = 'pypy'", "rocketpy runs on CPython 3.11 or newer, not on pypy 3."),
        ("sys.platform = 'win32'", "rocketpy runs on Linux and macOS, not on win32: install it in WSL"),
        ("sys.platform = 'freebsd14'", "rocketpy runs on Linux and macOS, not on freebsd14"),
    ],
)
def test_unsupported_python_or_platform_is_refused_by_name(disguise: str, error: str) -> None:
    # Modules of the standard library that look at the platform are loaded before.
    loaded = "import sys, importlib.util, os, pathlib, typing; "
    assert run(f"{loaded}{disguise}\n{REFUSED}").startswith(error)

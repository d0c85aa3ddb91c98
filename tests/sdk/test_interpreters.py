"""Interpreters that cannot load the extension module say so."""

import shutil
import subprocess
import sys
from pathlib import Path

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

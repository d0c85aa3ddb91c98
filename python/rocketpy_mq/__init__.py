"""Entry of the command `rocketpy` and of Spark's workers, outside the package `rocketpy`.

The distribution `rocketpy`, a rocket trajectory simulator, installs a package of the same name into the same folder.
Its `__init__` may replace that of RocketPy, so the check for it runs here. `import rocketpy` imports this module, so it
loads little: no pathlib.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

__all__ = ["Conflict", "Outcome", "check_installation", "installation_conflict", "main", "other_distributions"]

DISTRIBUTION = "rocketpy-mq"
OTHER = "rocketpy"
"""Name of the other distribution, and of the package that both install."""
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""Folder of the installed packages."""
MARK = b"rocketpy.base"
"""Text that only RocketPy's `rocketpy/__init__` contains."""


class Conflict(NamedTuple):
    """Reason why `import rocketpy` does not find this installation, and the way out."""

    text: str
    hint: str


class Outcome(NamedTuple):
    """Outcome of one check of `rocketpy doctor`."""

    status: str
    """`ok`, `warning`, `failed`, or `skipped`."""
    found: str
    hint: str | None = None


def installation_conflict() -> Conflict | None:
    """Finds the reason why `import rocketpy` gives another package, or files of two."""
    if version := _other_version():
        return Conflict(
            f"{DISTRIBUTION} (this message broker) and {OTHER} {version} (a rocket trajectory simulator) are both "
            f"installed in {FOLDER} and overwrite each other's files",
            f"keep one in each environment: `python -m pip uninstall --yes {OTHER} {DISTRIBUTION}`, then "
            f"`python -m pip install {DISTRIBUTION}` for the broker, or `python -m pip install {OTHER}`",
        )
    again = f"install it again: `python -m pip install --force-reinstall --no-deps {DISTRIBUTION}`"
    origin = _origin()
    if origin is None:
        return Conflict(f"rocketpy/__init__.py of {DISTRIBUTION} is missing in {FOLDER}", again)
    try:
        with open(origin, "rb") as file:
            is_ours = MARK in file.read()
    except OSError:  # a frozen program has no such file
        is_ours = True
    if is_ours:
        return None
    if os.path.dirname(os.path.dirname(origin)) == FOLDER:
        return Conflict(f"{origin} is not that of {DISTRIBUTION}: another package has overwritten it", again)
    return Conflict(
        f"`import rocketpy` finds {origin}, not the package of {DISTRIBUTION} in {FOLDER}",
        f"remove that folder from PYTHONPATH, or the rocket trajectory simulator: `python -m pip uninstall {OTHER}`",
    )


@cache
def check_installation() -> None:
    """Checks that the package `rocketpy` is that of this distribution.

    Raises:
        ImportError: It is that of another one, or has files of two. The text names both and the commands.
    """
    if conflict := installation_conflict():
        raise ImportError(f"{conflict.text}: {conflict.hint}", name=OTHER)


def other_distributions() -> list[tuple[str, str]]:
    """Finds the installations of the other distribution on the search path: version and folder of each."""
    from importlib.metadata import distributions

    found = [(one.version, str(one.locate_file(""))) for one in distributions(name=OTHER)]
    return sorted(set(found))


def main() -> int:
    """Runs the command `rocketpy`.

    Returns:
        The exit code; 1 if the package `rocketpy` is not that of this distribution.
    """
    try:
        conflict = installation_conflict()
        if conflict is not None:
            return _report(conflict, sys.argv[1:])
        from rocketpy.cli import main as run
    except KeyboardInterrupt:  # Ctrl-C may come while modules are imported
        return 130
    return run()


def _other_version() -> str | None:
    """Version of the other distribution if it is installed in the same folder."""
    prefix = f"{OTHER}-"
    # importlib.metadata takes longer to import than all of RocketPy, so it is asked only if there is something to find.
    try:
        names = os.listdir(FOLDER)
    except OSError:  # in an archive
        return None
    if not any(name.startswith(prefix) and name.endswith("-info") for name in names):
        return None
    from importlib.metadata import distributions

    return next((one.version for one in distributions(name=OTHER, path=[FOLDER])), None)


def _origin() -> str | None:
    """File of the package `rocketpy`, without an import of it; None for one without `__init__`."""
    spec = find_spec(OTHER)
    return None if spec is None else spec.origin


def _report(conflict: Conflict, arguments: list[str]) -> int:
    """Prints a conflict as the lines of an error, and as the first check for `rocketpy doctor --json`."""
    if arguments[:1] == ["doctor"] and "--json" in arguments:
        import json

        print(json.dumps([{"check": "name"} | Outcome("failed", *conflict)._asdict()], indent=2))
    else:
        print(f"error: {conflict.text}\nhint: {conflict.hint}", file=sys.stderr)
    return 1

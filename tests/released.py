"""The last released program, for tests of an upgrade and of the way back."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WHEEL = "ROCKETPY_TEST_RELEASED_WHEEL"
"""Environment variable with the path of a wheel; default: the newest one in target/dist."""
DIST = Path(__file__).parents[1] / "target/dist"


def wheel() -> Path:
    """Wheel of the last release; skips the test if there is none."""
    if named := os.environ.get(WHEEL):
        return Path(named)
    wheels = sorted(DIST.glob("rocketpy_mq-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        pytest.skip(f"there is no released wheel: set {WHEEL}, or run `make wheels`")
    return wheels[-1]


def unpack(folder: Path) -> Path:
    """Installs the wheel into a folder without its dependencies, which servers do not need."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*command, str(wheel())], check=True)
    with first_on_path(folder):
        show = [sys.executable, "-P", "-c", "import rocketpy; print(rocketpy.__file__)"]
        found = subprocess.run(show, check=True, capture_output=True, text=True).stdout.strip()
    assert Path(found).is_relative_to(folder), f"another program comes first: {found}"
    return folder


@contextmanager
def first_on_path(folder: Path | None) -> Iterator[None]:
    """Processes that start meanwhile use the program of a folder; None: that of the tests."""
    if folder is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield

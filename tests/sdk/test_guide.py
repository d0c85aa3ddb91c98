"""The programs of the guides run as they stand, each in a process of its own and with warnings as errors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rocketpy
from rocketpy import errors

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "python.md"
BLOCK = re.compile(r"^(<!-- p2 -->\n)?```python ?(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN_SECONDS = 240


def blocks(page: Path) -> list[tuple[str, str]]:
    """File name, if any, and text of each block. Marked ones are left out: what they show is not merged yet."""
    return [(name, text) for mark, name, text in BLOCK.findall(page.read_text()) if not mark]


PROGRAMS = {
    f"{page.stem}-{number}": text
    for page in (PAGE, DOCS / "first-hour.md", *sorted(DOCS.glob("migration/*.md")))
    for number, (name, text) in enumerate(blocks(page))
    if not name
}
FILES = {name: text for name, text in blocks(PAGE) if name}


def run(command: list[str], folder: Path, server: rocketpy.Server) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NAMESRV_ADDR": server.name_server}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_of_the_guides_runs(tmp_path: Path, rocketpy_server: rocketpy.Server, program: str):
    (tmp_path / "program.py").write_text(program)
    ended = run([sys.executable, "-W", "error", "program.py"], tmp_path, rocketpy_server)
    assert ended.returncode == 0, f"{program}\n{ended.stdout}\n{ended.stderr}"


def test_the_reference_has_every_module_with_public_names():
    listed = set(re.findall(r"^::: rocketpy\.(\w+)", (DOCS / "reference/python.md").read_text(), re.MULTILINE))
    assert listed >= {*rocketpy._NAMES, "dedup", "codec", "testing"}


def test_the_tests_of_the_guide_pass(tmp_path: Path, rocketpy_server: rocketpy.Server):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    ended = run([sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", "."], tmp_path, rocketpy_server)
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout


def test_the_table_of_errors_has_every_class():
    section = PAGE.read_text().split("\n## Errors\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+Error)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(set(errors.__all__) - {"RocketPyError"})


def test_the_table_of_fixtures_has_every_fixture():
    from rocketpy import testing

    listed = set(re.findall(r"^\| `(rocketpy_\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert listed == {name for name in testing.__all__ if name.startswith("rocketpy_")}

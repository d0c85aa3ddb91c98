"""docs/python.md: its programs run as they stand, and its tables name all errors and fixtures."""

import re
import sys
from pathlib import Path

import pytest
from guides import DOCS, blocks, check_program, programs, run

import rocketpy
from rocketpy import errors

PAGE = DOCS / "python.md"
PROGRAMS = programs(PAGE)
FILES = {name: text for name, text in blocks(PAGE) if name}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_of_the_guide_runs(tmp_path: Path, rocketpy_server: rocketpy.Server, program: str):
    check_program(program, tmp_path, rocketpy_server)


def test_the_reference_has_every_module_with_public_names():
    listed = re.findall(r"^::: rocketpy\.([\w.]+)", (DOCS / "reference/python.md").read_text(), re.MULTILINE)
    modules = {*rocketpy._NAMES, "dedup", "codec", "schedule", "testing"}
    assert not {module for module in modules if not any(f"{one}.".startswith(f"{module}.") for one in listed)}


def test_the_tests_of_the_guide_pass(tmp_path: Path, rocketpy_server: rocketpy.Server):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    # a folder of its own: in the shared one pytest removes those of other runs, and warns where one is in use
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", ".", "--basetemp", "base"]
    ended = run(command, tmp_path, rocketpy_server)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert "3 passed" in ended.stdout


def test_the_table_of_errors_has_every_class():
    section = PAGE.read_text().split("\n## Errors\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+Error)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(set(errors.__all__) - {"RocketPyError"})


def test_the_table_of_fixtures_has_every_fixture():
    from rocketpy import testing

    listed = set(re.findall(r"^\| `(rocketpy_\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert listed == {name for name in testing.__all__ if name.startswith("rocketpy_")}

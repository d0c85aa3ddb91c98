"""docs/first-hour.md: its programs run as they stand."""

from pathlib import Path

import pytest
from guides import DOCS, check_program, programs

import rocketpy

PROGRAMS = programs(DOCS / "first-hour.md")


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_of_the_first_hour_runs(tmp_path: Path, rocketpy_server: rocketpy.Server, program: str):
    check_program(program, tmp_path, rocketpy_server)

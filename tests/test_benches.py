"""The programs of `benches/macro` that compare: one runs, and the page is what their figures say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MACRO = ROOT / "benches" / "macro"


def run(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    environment = os.environ | {"PYTHONPATH": str(MACRO), "MPLBACKEND": "Agg"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def test_the_comparison_of_python_clients_takes_every_row_of_rocketpy():
    """Counts are small, so nothing is said about the figures; the other clients run when somebody compares."""
    options = ["--clients", "RocketPy", "--rounds", "1", "--scale", "0.001", "--bodies", "128"]
    table = run(str(MACRO / "clients.py"), *options)
    rows = [line for line in table.splitlines() if "│ RocketPy" in line]
    assert len(rows) == 10, table
    assert all(any(cell.strip(" │") for cell in line.split("│")[4:]) for line in rows)


@pytest.mark.soak
def test_the_comparison_of_sparks_sources_takes_a_row_of_rocketpy():
    options = ["--sources", "path", "--rows", "count", "--rounds", "1", "--scale", "0.01"]
    table = run(str(MACRO / "spark_sources.py"), *options)
    assert re.search(r"RocketPy, path +│ +[1-9][\d,]+ ", table), table


def test_the_page_on_performance_is_what_its_program_writes():
    assert run("-c", "import page; print(page.text_of_page(), end='')") == (ROOT / "docs/performance.md").read_text()

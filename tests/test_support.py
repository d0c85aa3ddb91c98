"""docs/support.md: three kinds of status, and classifiers for versions that were run only."""

import re
import tomllib
from pathlib import Path

STATUSES = {"in CI", "run once", "not run"}


def rows(root: Path) -> list[tuple[str, str, str]]:
    """Subject, version and status of each row; a row without a subject has that of the row above."""
    found: list[tuple[str, str, str]] = []
    for line in (root / "docs" / "support.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[2] not in ("status", "---"):
            found.append((cells[0] or found[-1][0], cells[1], cells[2]))
    return found


def test_each_row_has_one_of_three_statuses(pytestconfig):
    table = rows(pytestconfig.rootpath)
    assert {status for _, _, status in table} == STATUSES
    assert {subject for subject, _, _ in table} >= {"Python", "PySpark", "JDK, for Spark", "Platform", "Kernel"}


def test_classifiers_name_versions_and_systems_that_were_run(pytestconfig):
    root = pytestconfig.rootpath
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    named = {line.rsplit(" :: ", 1)[1] for line in project["classifiers"] if re.search(r"Python :: 3\.\d+$", line)}
    assert named == {version for what, version, status in rows(root) if what == "Python" and status != "not run"}
    systems = [line for line in project["classifiers"] if line.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]


def test_versions_in_ci_are_those_that_ci_installs(pytestconfig):
    pins = (pytestconfig.rootpath / "requirements" / "constraints.txt").read_text()
    spark = {version for what, version, status in rows(pytestconfig.rootpath) if (what, status) == ("PySpark", "in CI")}
    assert spark == {".".join(pins.split("\npyspark==")[1].split("\n")[0].split(".")[:2])}

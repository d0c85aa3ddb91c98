#!/usr/bin/env python3
"""Durations of tests: tests/durations.json, from the JUnit files of pytest and nextest.

    python tools/durations.py --report XML...   print the ten slowest tests of a run
    python tools/durations.py --update XML...   print them, and write what the run measured to tests/durations.json
    python tools/durations.py --check           fail when a test outside soak takes over 60 s, by tests/durations.json

pytest writes its file with `--junitxml`, nextest with `[profile.NAME.junit]` of its configuration. Parallel runs of
pytest start the longest files first by these durations (tests/longest_first.py). The file's `exempt` names the tests
that may take longer than the limit, each with its reason; it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "durations.json"
LIMIT_SECONDS = 60.0
NAMED_SECONDS = 3.0
"""Tests from this duration on are listed by name; others count in the sum of their file."""
SLOWEST = 10


@dataclass
class Durations:
    """Seconds of test files (for Rust: test binaries) and of tests, and reasons of the tests that may take longer."""

    files: dict[str, float] = field(default_factory=dict)
    tests: dict[str, float] = field(default_factory=dict)
    exempt: dict[str, str] = field(default_factory=dict)


def measured(path: Path) -> Durations:
    """Durations of one run. A test that failed measures nothing."""
    found = Durations()
    for suite in ET.parse(path).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                continue
            file, test = names(suite.get("name", ""), case)
            seconds = float(case.get("time") or 0)
            found.files[file] = found.files.get(file, 0.0) + seconds
            found.tests[test] = found.tests.get(test, 0.0) + seconds
    return found


def names(suite: str, case: ET.Element) -> tuple[str, str]:
    """File and id of a test; those of Rust are the binary and binary::test."""
    name, of = case.get("name", ""), case.get("classname", "")
    if suite != "pytest":
        return suite, f"{suite}::{name}"
    parts, inner = of.split("."), []
    while parts and not (ROOT / f"{'/'.join(parts)}.py").is_file():
        inner.insert(0, parts.pop())  # a class in the file
    file = f"{'/'.join(parts)}.py" if parts else of
    return file, "::".join([file, *inner, name])


def merged(known: Durations, runs: list[Durations]) -> Durations:
    """Replaces the files that were measured, and drops files that no longer exist."""
    files = {
        file: seconds for file, seconds in known.files.items() if not file.endswith(".py") or (ROOT / file).is_file()
    }
    tests = known.tests
    for run in runs:
        tests = {test: seconds for test, seconds in tests.items() if not of_files(test, run.files)}
        tests |= {test: seconds for test, seconds in run.tests.items() if seconds >= NAMED_SECONDS}
        files |= run.files
    tests = {test: seconds for test, seconds in tests.items() if of_files(test, files)}
    return Durations(files, tests, known.exempt)


def of_files(test: str, files: dict[str, float]) -> bool:
    """Whether a test belongs to one of these files."""
    return test.partition("::")[0] in files or any(test.startswith(f"{file}::") for file in files)


def read() -> Durations:
    """Reads the committed file."""
    return Durations(**json.loads(FILE.read_text())) if FILE.exists() else Durations()


def write(durations: Durations) -> None:
    """Writes the committed file."""
    rounded = {
        kind: {name: round(seconds, 1) for name, seconds in sorted(of.items())}
        for kind, of in (("files", durations.files), ("tests", durations.tests))
    }
    FILE.write_text(json.dumps({"exempt": durations.exempt, **rounded}, indent=1) + "\n")


def report(runs: list[Durations]) -> None:
    """Prints the slowest tests of all runs."""
    tests = sorted(((seconds, test) for run in runs for test, seconds in run.tests.items()), reverse=True)
    total = sum(seconds for seconds, _ in tests)
    print(f"{len(tests)} tests took {total / 60:.1f} minutes in all; the {SLOWEST} slowest:")
    for seconds, test in tests[:SLOWEST]:
        print(f"{seconds:7.1f} s  {test}")


def check() -> int:
    """Names the tests over the limit, and exemptions that no test needs; returns the exit code."""
    durations = read()
    over = {test: seconds for test, seconds in durations.tests.items() if seconds > LIMIT_SECONDS}
    too_long, unneeded = over.keys() - durations.exempt.keys(), durations.exempt.keys() - over.keys()
    for test in sorted(too_long):
        print(f"{test} takes {over[test]:.0f} s; the limit outside soak is {LIMIT_SECONDS:.0f} s", file=sys.stderr)
    for test in sorted(unneeded):
        print(f"{test} is exempt from the limit but stays below it, or is not measured", file=sys.stderr)
    if too_long:
        print("hint: shorten or divide the test, or give it the marker `soak`; then measure again", file=sys.stderr)
    if unneeded:
        print("hint: remove the exemption from tests/durations.json", file=sys.stderr)
    return 1 if too_long or unneeded else 0


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--report", nargs="+", type=Path, metavar="XML")
    action.add_argument("--update", nargs="+", type=Path, metavar="XML")
    action.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.check:
        return check()
    runs = [measured(path) for path in given.report or given.update]
    report(runs)
    if given.update:
        write(merged(read(), runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Order of work for parallel runs: `--dist loadfile` starts the longest files first.

xdist itself sorts files by their number of tests, so a file of two tests that take minutes would start last. The
durations are those of `tests/durations.json`, which `tools/durations.py` writes. A file longer than `UNIT_SECONDS` is
divided between workers, unless its tests share a fixture of module or class scope. Folders whose tests share something
that each worker has to start, such as a Spark session, stay with few workers.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xdist.workermanage import WorkerController

ROOT = Path(__file__).parents[1]
DURATIONS = ROOT / "tests" / "durations.json"
UNIT_SECONDS = 40.0
"""Longest piece of a divided file; one test may still take longer."""
AHEAD_SECONDS = 5.0
"""A worker knows its next unit before its last test begins. While that test takes longer than this, the next unit is a
short one, because it has to wait for the test."""
FEW_WORKERS = {"tests/spark/": 2, "tests/interop/": 2}
"""Folders, and how many workers take their files: each one starts a Spark session, or JVMs with Apache's clients."""
UNKNOWN_SECONDS = 0.3
"""Duration of a test that was never measured."""


class Durations:
    """Measured seconds of files and tests."""

    def __init__(self, measured: dict[str, dict[str, float]], nodes: Iterable[str]) -> None:
        self._tests = measured["tests"]
        nodes = list(nodes)
        unnamed = Counter(file_of(node) for node in nodes if node not in self._tests)
        rest = {file: measured["files"].get(file) for file in unnamed}
        for node, seconds in self._tests.items():
            if rest.get(file_of(node)) is not None:
                rest[file_of(node)] -= seconds
        self._each = {
            file: UNKNOWN_SECONDS if left is None else max(left, 0.0) / unnamed[file] for file, left in rest.items()
        }

    def seconds(self, node: str) -> float:
        """Expected duration of one test."""
        return self._tests.get(node, self._each.get(file_of(node), UNKNOWN_SECONDS))


def file_of(node: str) -> str:
    return node.partition("::")[0]


def shares_fixtures(file: str) -> bool:
    """Whether tests of a file share a fixture that a division would set up twice."""
    text = (ROOT / file).read_text()
    return any(f'scope="{scope}"' in text for scope in ("module", "class", "package"))


def divided(nodes: Iterable[str], durations: Durations) -> dict[str, str]:
    """Unit of each test: its file, or a part of a long file."""
    by_file: dict[str, list[str]] = {}
    for node in nodes:
        by_file.setdefault(file_of(node), []).append(node)
    units: dict[str, str] = {}
    for file, tests in by_file.items():
        whole = shares_fixtures(file)
        part, filled = 0, 0.0
        for node in tests:
            seconds = durations.seconds(node)
            if not whole and filled and filled + seconds > UNIT_SECONDS:
                part, filled = part + 1, 0.0
            filled += seconds
            units[node] = f"{file}#{part}"
    return units


class LongestFirst(LoadScopeScheduling):
    """Scheduler of xdist that assigns the longest unit first."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._units: dict[str, str] = {}
        self._durations = Durations({"files": {}, "tests": {}}, [])
        self._holders: dict[str, set[WorkerController]] = {folder: set() for folder in FEW_WORKERS}

    def schedule(self) -> None:
        if self.collection is None:
            nodes = next(iter(self.registered_collections.values()))
            measured = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {"files": {}, "tests": {}}
            self._durations = Durations(measured, nodes)
            self._units = divided(nodes, self._durations)
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]

    def _seconds(self, unit: dict[str, bool]) -> float:
        return sum(self._durations.seconds(node) for node, completed in unit.items() if not completed)

    def _assign_work_unit(self, node: WorkerController) -> None:
        left = sum(map(self._seconds, self.assigned_work.get(node, {}).values()))
        choose = min if left > AHEAD_SECONDS else max
        chosen = choose(self._suitable(node), key=lambda name: self._seconds(self.workqueue[name]))
        self.workqueue.move_to_end(chosen, last=False)
        for folder, holders in self._holders.items():
            if chosen.startswith(folder):
                holders.add(node)
        super()._assign_work_unit(node)

    def _suitable(self, node: WorkerController) -> list[str]:
        """Units for which a worker has started what they need; else those that need nothing; else all."""
        units: dict[bool, list[str]] = {True: [], False: []}
        for unit in self.workqueue:
            folder = next((folder for folder in FEW_WORKERS if unit.startswith(folder)), None)
            holders = self._holders.get(folder or "", set())
            if node in holders:
                units[True].append(unit)
            elif folder is None or len(holders) < FEW_WORKERS[folder]:
                units[False].append(unit)
        return units[True] or units[False] or list(self.workqueue)

    def _reschedule(self, node: WorkerController) -> None:
        """Assigns a unit when one test is left, which a worker starts only when it knows the next one."""
        if node.shutting_down:
            return
        if not self.workqueue:
            node.shutdown()
        elif self._pending_of(self.assigned_work[node]) <= 1:
            self._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    return LongestFirst(config, log) if config.getvalue("dist") == "loadfile" else None

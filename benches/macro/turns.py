"""Systems that take turns, each turn a process, and their figures: a table of them, and a file for `page.py`."""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from results import save_rows

Rounds = dict[str, list[dict[str, float]]]
"""By system, the figures of each round."""


def figures_of(command: list[str], home: str, timeout_s: float) -> dict[str, float]:
    """Figures that a process prints as JSON. Clients write their logs into the home folder, here another."""
    environment = os.environ | {"HOME": home}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout_s)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if ended.returncode or not lines:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr[-1500:]}")
    return json.loads(lines[-1])


def take_turns(
    console: Console, title: str, systems: Iterable[str], rounds: int, turn: Callable[[str], dict[str, float]]
) -> tuple[Rounds, list[str]]:
    """One warm-up and then the rounds, the systems in turn. Returns what failed as well."""
    taken: Rounds = {name: [] for name in systems}
    failures = []
    for number in range(rounds + 1):
        for name in taken:
            console.print(f"{title}: {name}, {f'{number} of {rounds}' if number else 'warm-up'}")
            try:
                figures = turn(name)
            except (RuntimeError, subprocess.TimeoutExpired) as error:  # the other figures are worth having
                failures.append(f"{title}: {name}: {error}")
                continue
            if number:
                taken[name].append(figures)
    return {name: rounds for name, rounds in taken.items() if rounds}, failures


def show(
    console: Console, heads: dict[str, dict[str, str]], taken: dict[str, Rounds], figures: dict[str, tuple[str, str]]
) -> None:
    """A row's head is what its systems have in common; a figure has a title and a format."""
    columns = next(iter(heads.values()))
    table = Table(*columns, "system", *(title for title, _ in figures.values()), title="median (least to most)")
    for name, systems in taken.items():
        for system, rounds in systems.items():
            cells = []
            for figure, (_, form) in figures.items():
                values = [one[figure] for one in rounds if figure in one]
                spread = (
                    f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
                    if values
                    else ""
                )
                cells.append(spread)
            table.add_row(*heads[name].values(), system, *cells)
        table.add_section()
    console.print(table)


def report(
    console: Console,
    heads: dict[str, dict[str, str]],
    taken: dict[str, Rounds],
    figures: dict[str, tuple[str, str]],
    *,
    program: str | None,
    failures: Iterable[str],
) -> int:
    """Shows the figures, saves them if it gets the program's name, and tells what failed. Returns the exit code."""
    show(console, heads, taken, figures)
    if program is not None:
        console.print(f"written to {save(program, heads, taken)}")
    failures = list(failures)
    for failure in failures:
        console.print(failure, style="red", markup=False)
    return 1 if failures else 0


def save(program: str, heads: dict[str, dict[str, str]], taken: dict[str, Rounds]) -> Path:
    """Writes rows to the file of the release, where those that were not taken now stay as they are."""
    machine = {"processors": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    return save_rows(program, machine, {name: {**heads[name], "systems": systems} for name, systems in taken.items()})

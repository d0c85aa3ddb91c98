"""Figures of systems that took turns: a table of them, and a file for `page.py`."""

import json
import os
import platform
import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

Rounds = dict[str, list[dict[str, float]]]
"""By system, the figures of each round."""


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


def save(path: Path, heads: dict[str, dict[str, str]], taken: dict[str, Rounds]) -> None:
    """Writes rows to a file, where those that were not taken now stay as they are."""
    machine = {"processors": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    rows = {name: {**heads[name], "systems": systems} for name, systems in taken.items()}
    former = json.loads(path.read_text())["rows"] if path.exists() else {}
    path.write_text(json.dumps({"machine": machine, "rows": former | rows}, indent=1) + "\n")

"""Everything that commands print: tables and JSON on standard output, progress on standard error."""

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from rocketpy.cli.terminal import printable

STDERR = Console(stderr=True)


def plain(value: Any) -> Any:
    """Turns a value into JSON types: datetimes become ISO 8601, timedeltas seconds, bytes text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Any", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in cast("Iterable[Any]", value)]
    return value


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool, title: str | None = None, empty: str = "nothing") -> None:
    """Prints rows as a table, or as a JSON array of objects.

    Args:
        rows: Each maps column to value; the first one names the columns.
        as_json: JSON instead of a table.
        title: Above the table.
        empty: What to say when there is no row.
    """
    if as_json:
        print(json.dumps([plain(row) for row in rows], indent=2))
        return
    if not rows:
        print(printable(empty))
        return
    table = Table(title=title and Text(printable(title)), title_justify="left", title_style="bold", header_style="bold")
    for name in rows[0]:
        numbers = all(isinstance(row[name], int | float) and not isinstance(row[name], bool) for row in rows)
        table.add_column(
            Text(printable(name.replace("_", " "))), justify="right" if numbers else "left", overflow="fold"
        )
    for row in rows:
        # What names a process or a broker is no quantity.
        values = (str(value) if name.endswith("id") and value is not None else value for name, value in row.items())
        table.add_row(*(cell(value) for value in values))
    # A pipe or a file has no width; keep each row on one line.
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)


def show_one(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints named facts one below the other, or as one JSON object."""
    if as_json:
        print(json.dumps(plain(facts), indent=2))
        return
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        grid.add_row(Text(printable(name.replace("_", " ")), style="bold"), cell(value))
    Console(width=None if sys.stdout.isatty() else 10_000).print(grid)


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    Examples:
        >>> counted(1, "message"), counted(2000, "message")
        ('1 message', '2,000 messages')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def cell(value: Any) -> Text:
    r"""One value, formatted for a terminal.

    Examples:
        >>> str(cell("a\x1b[2Jb")), str(cell(["c", "d"])), str(cell(12345)), str(cell({0: "host:1", 1: "host:2"}))
        ('a\\x1b[2Jb', 'c, d', '12,345', '0=host:1, 1=host:2')
    """
    if value is None or (isinstance(value, list | tuple | Mapping) and not value):
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, int):
        return Text(f"{value:,}")
    if isinstance(value, float):
        return Text(f"{value:,.3g}" if abs(value) < 10 else f"{value:,.0f}")
    if isinstance(value, datetime):
        # Local time, as in what users write; JSON has the zone with it.
        return Text(value.astimezone().isoformat(sep=" ", timespec="milliseconds"))
    if isinstance(value, timedelta):
        return Text(f"{value.total_seconds():,g} s")
    if isinstance(value, bytes):
        return Text(printable(value.decode(errors="backslashreplace")))
    if isinstance(value, Mapping):
        named = plain(value).items()
        return Text(", ".join(f"{cell(name)}={cell(item)}" for name, item in named))
    if isinstance(value, list | tuple | set | frozenset):
        return Text(", ".join(str(cell(item)) for item in cast("Iterable[Any]", value)))
    return Text(printable(str(value)))


class RateColumn(ProgressColumn):
    """Messages per second since the start of the task."""

    def render(self, task: Task) -> Text:
        """Writes the rate."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} msg/s", style="progress.data.speed")


def progress(*, quiet: bool = False, transient: bool = False) -> Progress:
    """A progress bar with messages per second on standard error, when that is a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
        console=STDERR,
        transient=transient,
        disable=quiet or not sys.stderr.isatty(),
    )


def rows_of(values: Iterable[Any]) -> list[dict[str, Any]]:
    """Dataclass values as rows."""
    return [{field.name: getattr(value, field.name) for field in dataclasses.fields(value)} for value in values]


def byte_progress() -> Progress:
    """A progress bar of bytes on standard error, when that is a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=STDERR,
        transient=True,
        disable=not sys.stderr.isatty(),
    )

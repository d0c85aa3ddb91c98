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

from rocketpy.base.text import printable
from rocketpy.commandline.exits import CommandError, ExitCode

STDERR = Console(stderr=True)


class Rate(float):
    """Messages per second. A table shows large ones in thousands."""


PIPE_WIDTH = 10_000
"""A pipe or a file has no width: each row stays on one line."""


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


def show(
    rows: Sequence[Mapping[str, Any]],
    *,
    as_json: bool,
    empty: str,
    title: str | None = None,
    in_blocks: bool = False,
    narrow: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> None:
    """Prints rows as a table, or as a JSON array of objects.

    Args:
        rows: Values by column; the first row defines the columns.
        as_json: Whether to print JSON instead of a table.
        empty: Text to print without rows: it names the question and the server or folder, as in
            `no groups at 127.0.0.1:9876`.
        title: Line above the table.
        in_blocks: On a terminal that is too narrow for the table, print the facts of each row one below the other.
        narrow: Tables with fewer columns for a narrow terminal, by the line above each, if they fit.
    """
    if as_json:
        print(json.dumps([plain(row) for row in rows], indent=2))
        return
    if not rows:
        print(printable(empty))
        return
    console = stdout()
    if title:
        console.print(Text(printable(title)), style="bold", soft_wrap=True)
    whole, parts = {"": table_of(rows)}, {name: table_of(part) for name, part in (narrow or {}).items()}
    fitting = next((tables for tables in (whole, parts) if tables and fits(console, tables.values())), None)
    tables = fitting or ({} if in_blocks else whole)
    for name, table in tables.items():
        if name:
            console.print(Text(printable(name)), soft_wrap=True)
        console.print(table)
    for row in () if tables else rows:
        console.print()
        show_one({name: value for name, value in row.items() if value is not None}, as_json=False)


def fits(console: Console, tables: Iterable[Table]) -> bool:
    """Whether no cell of tables is broken on a console."""
    wide = console.options.update(max_width=PIPE_WIDTH)
    return all(console.measure(table, options=wide).maximum <= console.width for table in tables)


def table_of(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns rows as a table. A column of numbers, some of which may be None, is aligned to the right.

    Args:
        rows: Values by column; the first row defines the columns.
    """
    table = Table(header_style="bold")
    for name in rows[0]:
        values = [row[name] for row in rows if row[name] is not None]
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values or [None])
        table.add_column(
            Text(printable(name.replace("_", " "))), justify="right" if numbers else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(named_cell(name, value) for name, value in row.items()))
    return table


def show_one(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints named facts one below the other, or as one JSON object."""
    if as_json:
        print(json.dumps(plain(facts), indent=2))
        return
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        grid.add_row(Text(printable(name.replace("_", " ")), style="bold"), named_cell(name, value))
    stdout().print(grid)


REJECTIONS_SHOWN = 100
"""Maximum number of rejected messages that a command names."""


def check_rejected(noun: str, rejections: Sequence[str], count: int | None = None) -> None:
    """Ends the command with an exit code of its own if messages were rejected, and names them on standard error.

    Args:
        noun: Noun of the messages.
        rejections: Name and reason of each, or of the first.
        count: Number of rejected messages; default: that of the names.

    Raises:
        CommandError: Messages were rejected and skipped.
    """
    count = len(rejections) if count is None else count
    if not count:
        return
    for one in rejections[:REJECTIONS_SHOWN]:
        print(printable(f"rejected: {one}"), file=sys.stderr)
    raise CommandError(f"{counted(count, noun)} rejected and skipped", ExitCode.REJECTED)


def stdout() -> Console:
    """Returns a console for standard output."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def counted(number: int, noun: str) -> str:
    """Formats a number with its noun.

    Examples:
        >>> counted(1, "message"), counted(2000, "message")
        ('1 message', '2,000 messages')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def named_cell(name: str, value: Any) -> Text:
    """Formats a value by its name. Ids of processes, brokers and queues are not quantities.

    Examples:
        >>> str(named_cell("pid", 17501)), str(named_cell("broker_id", None)), str(named_cell("messages", 17501))
        ('17501', '-', '17,501')
    """
    return cell(str(value) if isinstance(value, int) and name.split("_")[-1] in ("id", "pid") else value)


def cell(value: Any) -> Text:
    r"""Formats a value for a terminal.

    Examples:
        >>> str(cell("a\x1b[2Jb")), str(cell(["c", "d"])), str(cell(12345)), str(cell({0: "host:1", 1: "host:2"}))
        ('a\\x1b[2Jb', 'c, d', '12,345', '0=host:1, 1=host:2')
        >>> str(cell(Rate(99_999))), str(cell(Rate(123_456)))
        ('99,999', '123k')
    """
    if value is None or (isinstance(value, list | tuple | Mapping) and not value):
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, int):
        return Text(f"{value:,}")
    if isinstance(value, Rate) and value >= 100_000:
        return Text(f"{value / 1000:,.0f}k")
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
    """Column with the messages per second since the start of the task."""

    def render(self, task: Task) -> Text:
        """Writes the rate."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} msg/s", style="progress.data.speed")


def progress(*, quiet: bool = False, transient: bool = False) -> Progress:
    """Returns a progress bar with messages per second on standard error, if that is a terminal."""
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
    """Converts dataclass values to rows."""
    return [{field.name: getattr(value, field.name) for field in dataclasses.fields(value)} for value in values]


def byte_progress() -> Progress:
    """Returns a progress bar of bytes on standard error, if that is a terminal."""
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

"""`rocketpy audit`: the audit log of a server, with its rotated files."""

import json
import sys
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy.cli.options import Json
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.commandline.selection import moment

PLACE = Path("log", "audit.log")
"""Default place of the audit log in a store."""
NO_LOG = "name the store of a server with authenticationEnabled=true, or the file of its auditLogPath"
MAX_LINE_BYTES = 1 << 20
"""Maximum size of a line. The log has shorter ones."""
ADMITTED, DENIED, LEFT_OUT = "admitted", "denied", "left out"
"""Beginnings of results, and a part of those that count lines."""
LOCAL = "local"
"""Address of changes that no request made."""


class Result(StrEnum):
    """Results of requests in the audit log."""

    ADMITTED = "admitted"
    DENIED = "denied"
    LEFT_OUT = "left-out"


def audit(
    place: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="Store of a server, or the file of auditLogPath.")],
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Only requests in this name.")] = None,
    action: Annotated[str | None, typer.Option("--action", help="Only requests that need this action.")] = None,
    result: Annotated[Result | None, typer.Option("--result", help="Only requests with this result.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="At or after this time, or -10m.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Maximum number of lines: the newest.")] = 1000,
    as_json: Json = False,
) -> None:
    """Show denied requests and changes by administrators, oldest first, from the files of this machine.

    The user of a denied request is the name in the request, which another one may have used. Result left-out counts
    lines that the log left out during a flood.
    """
    first = None if since is None else moment(since, "--since")
    path = place / PLACE if place.is_dir() else place
    files = files_of(path)
    if not files:
        raise CommandError(f"no audit log: {path}", ExitCode.NOT_FOUND, NO_LOG)
    rows: deque[dict[str, Any]] = deque(maxlen=count)
    unreadable = 0
    for line in lines_of(files):
        row = row_of(line)
        if row is None:
            unreadable += 1
        elif (
            (user is None or row["user"] == user)
            and (action is None or action.lower() in str(row["action"]).lower().split(","))
            and (result is None or row["result"] == result)
            and (first is None or row["time"] >= first)
        ):
            rows.append(row)
    if unreadable:
        print(f"note: {output.counted(unreadable, 'line')} of {path} skipped: not of an audit log", file=sys.stderr)
    shown = list(rows) if as_json else [{name: row[name] for name in row if name != "code"} for row in rows]
    output.show(shown, as_json=as_json, empty=f"no such requests in {path}", in_blocks=True)


def files_of(path: Path) -> list[Path]:
    """Returns a log and its rotated files, `PATH.1` the youngest of them, oldest first."""
    prefix = f"{path.name}."
    names = [one.name.removeprefix(prefix) for one in path.parent.glob("*") if one.name.startswith(prefix)]
    numbers = sorted((int(name) for name in names if name.isascii() and name.isdecimal()), reverse=True)
    rotated = [path.with_name(f"{prefix}{number}") for number in numbers]
    return [*rotated, *([path] if path.is_file() else [])]


def lines_of(files: list[Path]) -> Iterator[bytes]:
    """Yields the lines of files. A file that was rotated away meanwhile is skipped."""
    for path in files:
        try:
            with path.open("rb") as file:
                while line := file.readline(MAX_LINE_BYTES):
                    yield line
        except FileNotFoundError:
            continue


def row_of(line: bytes) -> dict[str, Any] | None:
    """Returns the columns of a line, or None for one that is cut off or not of an audit log."""
    try:
        values: Any = json.loads(line)
        at = datetime.fromisoformat(values["time"])
        if at.tzinfo is None:
            return None
        text = str(values["result"])
        row = {"time": at, "user": values["user"], "from": values["from"], "request": values["request"]}
        row |= {"code": values["code"], "resource": values["resource"], "action": values["action"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if LEFT_OUT in text and not text.startswith(DENIED):
        result, reason = Result.LEFT_OUT, text
    elif text.startswith(ADMITTED) or row["from"] == LOCAL:
        result, reason = Result.ADMITTED, text.removeprefix(ADMITTED).lstrip(", ")
    else:
        result, reason = Result.DENIED, text.removeprefix(f"{DENIED}: ")
    return row | {"result": str(result), "reason": reason or None}

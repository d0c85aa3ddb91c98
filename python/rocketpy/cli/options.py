"""Options that several commands share, and the values that users write in them."""

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from rocketpy.base.instant import LEAST_SECONDS
from rocketpy.cli.flags import NAME_SERVER_PORT
from rocketpy.config import ClientOptions, ProducerOptions, Start
from rocketpy.console.exits import CommandError, ExitCode
from rocketpy.console.selection import moment

NameServer = Annotated[
    str,
    typer.Option(
        "--name-server",
        "-n",
        envvar="NAMESRV_ADDR",
        metavar="HOST:PORT[,HOST:PORT]",
        help="Name servers of the cluster.",
    ),
]
LOCAL = f"127.0.0.1:{NAME_SERVER_PORT.default}"

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Tags = Annotated[str, typer.Option("--tags", metavar="'A || B'", help="Only messages with one of these tags.")]

BodyBytes = Annotated[
    int | None,
    typer.Option("--max-body-bytes", min=1, help="Largest body when decompressed. Default: 64 MiB, within a ratio."),
]

Yes = Annotated[bool, typer.Option("--yes", help="Do it without a question.")]


def confirm(question: str, *, yes: bool) -> None:
    """Asks before something is lost, on a terminal; elsewhere `--yes` is needed.

    Raises:
        CommandError: The answer is not yes, or nobody can be asked.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError(f"not confirmed: {question}", ExitCode.USAGE, "add --yes")
    if not typer.confirm(question, err=True):
        raise CommandError("nothing was changed", ExitCode.REFUSED, "answer y, or add --yes")


WAITING: ClientOptions = {"api_timeout": 10.0}
"""How long the clients of commands wait for an answer. The user can change it."""
WAITING_SENDS: ProducerOptions = {"api_timeout": 10.0, "send_timeout": 30.0}
"""As `WAITING`. A send that stops waiting leaves its outcome open, so it waits longer."""


def wait_for(seconds: float) -> None:
    """Lets every client of this command wait `seconds` for each answer."""
    WAITING["api_timeout"] = WAITING_SENDS["api_timeout"] = WAITING_SENDS["send_timeout"] = seconds


STARTS = "write earliest, latest, 2026-01-31T12:00:00 (local time), seconds since 1970, or -10m for ten minutes ago"
"""A hint."""


def start_of(text: str) -> Start:
    """Reads where to begin: `earliest`, `latest`, or a point in time as for `moment`.

    Raises:
        CommandError: It is none of these.
    """
    named = {"earliest": Start.EARLIEST, "latest": Start.LATEST}.get(text.strip().lower())
    if named is not None:
        return named
    digits = text.strip()
    is_offset = digits.isdigit() and len(digits) != len("20260131") and int(digits) < LEAST_SECONDS
    if text.strip()[:1].isalpha() or is_offset:
        raise CommandError(f"not a place to begin: {text}", ExitCode.USAGE, STARTS)
    at = moment(text)
    if at > datetime.now(UTC):
        hint = "write latest to begin with what comes from now on"
        raise CommandError(f"not a place to begin, it lies ahead: {text}", ExitCode.USAGE, hint)
    return Start.at(at)

"""Options that several commands share, and the values that users write in them."""

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from rocketpy.base.instant import LEAST_SECONDS
from rocketpy.commandline.exits import DEFAULT_ADDRESS, CommandError, ExitCode
from rocketpy.commandline.selection import moment
from rocketpy.config import ClientOptions, ProducerOptions, Start


def address(context: typer.Context, given: str) -> str:
    """Refuses a number of messages, which `-n` has in other command lines."""
    if given.isdecimal():
        has_count = any("--count" in one.opts for one in context.command.params)
        limit = f"; --count {given} limits the messages" if has_count else ""
        raise typer.BadParameter(f"{given} is not HOST:PORT{limit}")
    return given


NameServer = Annotated[
    str,
    typer.Option(
        "--name-server",
        "-n",
        envvar="NAMESRV_ADDR",
        metavar="HOST:PORT[,HOST:PORT]",
        help="Name servers of the cluster.",
        callback=address,
    ),
]
LOCAL = DEFAULT_ADDRESS

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Tags = Annotated[str, typer.Option("--tags", metavar="'A || B'", help="Only messages with one of these tags.")]

BodyBytes = Annotated[
    int | None,
    typer.Option("--max-body-bytes", min=1, help="Maximum decompressed body size. Default: 64 MiB, within a ratio."),
]

Broker = Annotated[
    str | None, typer.Option("--broker", metavar="BROKER", help="Only at this broker: its name, or HOST:PORT.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def confirm(question: str, *, yes: bool) -> None:
    """Requests confirmation on a terminal before data is lost; elsewhere `--yes` is required.

    Raises:
        CommandError: The answer is not yes, or standard input and error are not a terminal.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError(f"not confirmed: {question}", ExitCode.USAGE, "add --yes")
    try:
        is_confirmed = typer.confirm(question, err=True)
    except typer.Abort as ended:  # Ctrl-D, or Ctrl-C
        if isinstance(ended.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        is_confirmed = False
    if not is_confirmed:
        raise CommandError("nothing was changed", ExitCode.REFUSED, "answer y, or add --yes")


WAITING: ClientOptions = {"api_timeout": 10.0}
"""Timeouts of the commands' clients for answers. `--timeout` changes them."""
WAITING_SENDS: ProducerOptions = {"api_timeout": 10.0, "send_timeout": 30.0, "retries": 2}
"""Options of producers. Sends wait longer, because the outcome of a send that timed out is unknown. A command reports a
server that is away instead of waiting for it."""


FIGURES: ClientOptions = {"api_timeout": 3.0, "connect_timeout": 3.0}
"""Short timeouts for figures: a command shows a server that does not answer instead of waiting for it."""


def wait_for(seconds: float) -> None:
    """Sets the timeout for each answer, for every client of this command."""
    FIGURES["api_timeout"] = FIGURES["connect_timeout"] = seconds
    WAITING["api_timeout"] = WAITING_SENDS["api_timeout"] = WAITING_SENDS["send_timeout"] = seconds


STARTS = "write earliest, latest, 2026-01-31T12:00:00 (local time), seconds since 1970, or -10m for ten minutes ago"
"""Hint for an invalid start."""


def start_of(text: str, option: str) -> Start:
    """Reads a start position: `earliest`, `latest`, or a point in time as for `moment`.

    Args:
        text: Text of the user.
        option: Option that has it, for the error.

    Raises:
        CommandError: The text is none of these.
    """
    named = {"earliest": Start.EARLIEST, "latest": Start.LATEST}.get(text.strip().lower())
    if named is not None:
        return named
    digits = text.strip()
    is_offset = digits.isdecimal() and len(digits) != len("20260131") and float(digits) < LEAST_SECONDS
    if text.strip()[:1].isalpha() or is_offset:
        raise CommandError(f"{option}: not a start position: {text}", ExitCode.USAGE, STARTS)
    at = moment(text, option)
    if at > datetime.now(UTC):
        hint = "write latest to begin with messages that arrive from now on"
        raise CommandError(f"start position is in the future: {text}", ExitCode.USAGE, hint)
    return Start.at(at)

"""Options that several commands share, and the values that users write in them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from rocketpy.cli.exits import CommandError, ExitCode
from rocketpy.cli.flags import NAME_SERVER_PORT

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

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def moment(text: str) -> datetime:
    """Reads a point in time.

    Args:
        text: ISO 8601 (local time when it names no zone), milliseconds since 1970, or how long ago: `-90s`, `-10m`,
            `-2h`, `-7d`.

    Returns:
        The moment, with its zone.

    Raises:
        CommandError: It is neither.

    Examples:
        >>> moment("2013-01-01T05:00:00+00:00").year
        2013
        >>> moment("1357016400000") == moment("2013-01-01T05:00:00+00:00")
        True
    """
    ago = re.fullmatch(r"-(\d+)([smhd])", text)
    if ago:
        return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * UNIT_SECONDS[ago[2]])
    try:
        if re.fullmatch(r"\d{11,}", text):  # fewer digits are a date or seconds
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise CommandError(
            f"not a point in time: {text}",
            ExitCode.USAGE,
            "write 2026-01-31T12:00:00, milliseconds since 1970, or -10m for ten minutes ago",
        ) from None

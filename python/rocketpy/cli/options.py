"""Options that several commands share, and the values that users write in them."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from rocketpy.cli.exits import CommandError, ExitCode
from rocketpy.cli.flags import NAME_SERVER_PORT
from rocketpy.errors import InvalidArgumentError
from rocketpy.instant import instant_ms

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


def moment(text: str) -> datetime:
    """Reads a point in time.

    Args:
        text: As `rocketpy.config.Instant` says: ISO 8601 (local time when it names no zone), how long ago (`-90s`,
            `-10m`, `-2h`, `-7d`), or seconds since 1970.

    Returns:
        The moment, with its zone.

    Raises:
        CommandError: It is none of these.

    Examples:
        >>> moment("2013-01-01T05:00:00+00:00") == moment("1357016400")
        True
    """
    try:
        return datetime.fromtimestamp(instant_ms(text) / 1000, UTC)
    except InvalidArgumentError as error:
        raise CommandError(str(error), ExitCode.USAGE, error.hint) from None

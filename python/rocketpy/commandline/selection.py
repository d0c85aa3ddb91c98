"""Selection of messages by the options of a command."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from rocketpy.admin.dead_letters import DeadLetterFilter
from rocketpy.base.instant import instant_ms
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.errors import GroupNotFoundError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketpy.admin.admin import Admin
    from rocketpy.admin.dead_letters import DeadLetter

Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Died at or after this time, or -10m.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Died before this time.")]
Property = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="Property of the messages; may be repeated."),
]
LIST = "`rocketpy dlq list` shows the groups with dead letters"


def moment(text: str, option: str) -> datetime:
    """Reads a point in time.

    Args:
        text: Point in time as in `rocketpy.config.Instant`: ISO 8601 (local time without a zone), a time ago (`-90s`,
            `-10m`, `-2h`, `-7d`), or seconds since 1970.
        option: Option that has it, for the error.

    Returns:
        The time, with its zone.

    Raises:
        CommandError: The text is none of these.

    Examples:
        >>> moment("2013-01-01T05:00:00+00:00", "--from") == moment("1357016400", "--from")
        True
    """
    try:
        return datetime.fromtimestamp(instant_ms(text) / 1000, UTC)
    except InvalidArgumentError as error:
        raise CommandError(f"{option}: {error}", ExitCode.USAGE, error.hint) from None


def filter_of(
    topic: str | None,
    since: str | None,
    until: str | None,
    key: str | None,
    msg_id: str | None,
    properties: list[str] | None,
) -> DeadLetterFilter:
    """Converts options to a filter of dead letters.

    Raises:
        CommandError: A property is not NAME=VALUE, or a time is invalid.
    """
    pairs: dict[str, str] = {}
    for text in properties or []:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise CommandError(f"expected NAME=VALUE: {text}", ExitCode.USAGE, "for example --property color=red")
        pairs[name] = value
    begin = None if since is None else moment(since, "--since")
    end = None if until is None else moment(until, "--until")
    return DeadLetterFilter(topic=topic, since=begin, until=end, key=key, msg_id=msg_id, properties=pairs)


def dead_letters(
    admin: Admin, group: str, which: DeadLetterFilter, *, newest_first: bool = False
) -> Iterator[DeadLetter]:
    """Yields the dead letters of a group.

    Raises:
        CommandError: The group does not exist, or has no dead letter with the requested `msg_id`.
    """
    try:
        letters = admin.dead_letters(group, which, newest_first=newest_first)
    except GroupNotFoundError as error:
        raise CommandError(f"no such group: {group}", ExitCode.NOT_FOUND, LIST) from error
    first = next(letters, None)
    if first is not None:
        return chain([first], letters)
    if which.msg_id is not None:
        text = f"{group} has no matching dead letter with --id {which.msg_id}"
        raise CommandError(text, ExitCode.NOT_FOUND, f"`rocketpy dlq show {group}` shows its dead letters")
    return iter(())

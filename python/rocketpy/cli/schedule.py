"""`rocketpy schedule`: list, add, remove."""

import re
from typing import Annotated, Any

import typer

from rocketpy import Admin, GroupNotFoundError
from rocketpy.base.instant import UNITS_MS
from rocketpy.cli.options import LOCAL, WAITING, DryRun, Json, NameServer
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.schedule import Schedule, add, remove, schedules
from rocketpy.schedule.journal import GROUP

Name = Annotated[str, typer.Argument(metavar="NAME")]
NO_SCHEDULER = (
    "no scheduler runs now: a process of yours must run rocketpy.schedule.Scheduler; without one, schedules are lost "
    "after fileReservedTime (72 hours)"
)


def list_schedules(name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """List the schedules of a cluster, with the next time, the latest one that fired and the latest error."""
    rows = [row(one) for one in schedules(name_servers=name_server, **WAITING)]
    if not as_json:
        for one in rows:
            del one["body"]
    output.show(rows, as_json=as_json, empty=f"no schedules at {name_server}", in_blocks=True)
    if rows and not as_json and not is_running(name_server):
        print(NO_SCHEDULER)


def add_schedule(
    name: Name,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="Text; default: the name.")] = None,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="TEXT", help="Cron text of five fields, such as '0 3 * * MON-FRI'.")
    ] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="TIME", help="Interval: 90s, 15m, 6h, 1d.")] = None,
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin.")
    ] = "UTC",
    tag: Annotated[str | None, typer.Option("--tag", help="Tag of the messages.")] = None,
    missed: Annotated[
        str, typer.Option("--missed", metavar="once|never", help="Whether missed times fire once, together, or never.")
    ] = "once",
    replace: Annotated[bool, typer.Option("--replace", help="Replace a different schedule of this name.")] = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Store a schedule, which sends BODY to TOPIC. The same definition again changes nothing."""
    added = add(
        name,
        topic=topic,
        body=None if body is None else body.encode(),
        cron=cron,
        every=None if every is None else seconds_of(every),
        timezone=timezone,
        tag=tag,
        missed=missed,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # checked there
        replace=replace,
        dry_run=dry_run,
        name_servers=name_server,
        **WAITING,
    )
    if dry_run:
        is_stored = added in schedules(name_servers=name_server, **WAITING)
        output.show_one(row(added) | {"state": "stored already" if is_stored else "would be stored"}, as_json=as_json)
        return
    output.show_one(row(added), as_json=as_json)
    if not as_json and not is_running(name_server):
        print(NO_SCHEDULER)


def remove_schedule(name: Name, dry_run: DryRun = False, name_server: NameServer = LOCAL) -> None:
    """Remove a schedule. Its waiting timer is ignored."""
    remove(name, dry_run=dry_run, name_servers=name_server, **WAITING)
    print(f"{'would remove' if dry_run else 'removed'} schedule {name}")


def row(one: Schedule) -> dict[str, Any]:
    """Facts of a schedule."""
    return {
        "name": one.name,
        "cron": one.times.cron,
        "every_seconds": one.times.every_seconds,
        "timezone": one.times.timezone,
        "topic": one.topic,
        "tag": one.tag,
        "body": one.body,
        "missed": one.missed,
        "next_at": one.next_at,
        "last_at": one.last_at,
        "error": one.error,
    }


def is_running(name_server: str) -> bool:
    """Whether any scheduler is a member of its group."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        try:
            return bool(admin.group_members(GROUP))
        except GroupNotFoundError:
            return False


def seconds_of(text: str) -> float:
    """Reads an interval.

    Raises:
        CommandError: The text is not a number with a unit.

    Examples:
        >>> seconds_of("15m")
        900.0
    """
    found = re.fullmatch(r"(\d{1,12})(s|m|h|d)", text.strip())
    if found is None:
        raise CommandError(f"--every: not an interval: {text}", ExitCode.USAGE, "write 90s, 15m, 6h or 1d")
    return int(found[1]) * UNITS_MS[found[2]] / 1000

"""`rocketpy offset`: show, set."""

from typing import Annotated

import typer

from rocketpy import Admin, MessageQueue, OffsetError, RocketPyError
from rocketpy.cli.group import check_consumes, existing, queue_row
from rocketpy.cli.masters import masters
from rocketpy.cli.missing import check_missing
from rocketpy.cli.narrow import by_topic
from rocketpy.cli.options import FIGURES, LOCAL, WAITING, DryRun, Json, NameServer, start_of
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode, code_of

Group = Annotated[str, typer.Argument(metavar="GROUP")]
RANGE_HINT = (
    "`rocketpy offset show GROUP` shows the range of each queue; --beyond allows an offset before the first message"
)


def show(
    group: Group,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Show the offset of a group in each queue, with the range of the queue."""
    with Admin(name_servers=name_server, **FIGURES) as admin, existing(group):
        progress = admin.group_lag(group, topic, partial=True)
        rows = [{**queue_row(row), "min_offset": admin.min_offset(row.queue)} for row in progress]
    columns = ("topic", "broker_name", "queue_id", "min_offset", "committed_offset", "max_offset", "lag")
    shown = [{name: row[name] for name in columns} for row in rows]
    empty = f"{group} has no offsets at {name_server} yet"
    narrow = by_topic(shown, *columns[1:])
    output.show(shown, as_json=as_json, title=group, empty=empty, in_blocks=True, narrow=narrow)
    check_missing(progress.missing, f"offsets of {group}")


def set_offset(
    group: Group,
    topic: Annotated[str, typer.Option("--topic", help="Topic of the queues.")],
    queue: Annotated[list[int], typer.Option("--queue", min=0, metavar="ID", help="Queue; may be repeated.")],
    to: Annotated[
        str, typer.Option("--to", metavar="WHERE", help="Offset, earliest, latest, a time (ISO 8601), or -10m.")
    ],
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", metavar="BROKER", help="Name or HOST:PORT of the queues' broker, if the topic has several."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Set even while the group has members, whose next commit replaces it.")
    ] = False,
    beyond: Annotated[
        bool,
        typer.Option("--beyond", help="Allow an offset before the first message."),
    ] = False,
    new_topic: Annotated[
        bool, typer.Option("--new-topic", help="Set even if the group does not consume this topic yet.")
    ] = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Set the offset that a group reads next in single queues. Members must be stopped, unless forced."""
    target = int(to) if to.isdecimal() else start_of(to, "--to")
    rows: list[dict[str, object]] = []
    failed: RocketPyError | None = None
    with Admin(name_servers=name_server, **WAITING) as admin, existing(group):
        queues = queues_of(admin, topic, broker, queue)
        if not new_topic:
            check_consumes(admin, group, topic)
        for one in queues:
            row = {"broker_name": one.broker_name, "queue_id": one.queue_id}
            try:
                change = admin.set_offset(group, one, target, force=force, beyond=beyond, dry_run=dry_run)
            except RocketPyError as error:
                if not rows and len(queues) == 1:
                    raise hinted_range(error) from error
                failed = failed or error
                rows.append({**row, "before": None, "after": None, "state": str(error)})
                continue
            state = "would change" if dry_run else "changed"
            rows.append({**row, "before": change.before, "after": change.after, "state": state})
    output.show(rows, as_json=as_json, title=f"{group} on {topic}", empty="")
    if failed is not None:
        raise CommandError(str(failed), code_of(failed), failed.hint) from failed


def hinted_range(error: RocketPyError) -> RocketPyError | CommandError:
    """Returns an error with a hint that names the option for offsets outside of a queue."""
    if not isinstance(error, OffsetError):
        return error
    return CommandError(str(error), ExitCode.NOT_FOUND, RANGE_HINT)


def queues_of(admin: Admin, topic: str, broker: str | None, ids: list[int]) -> list[MessageQueue]:
    """Returns queues of a topic at one broker.

    Raises:
        CommandError: The topic has several brokers and none is given, or no such queue; or the broker does not exist.
    """
    known = admin.queues(topic)
    if broker is not None:
        [(broker, _)] = masters(admin, broker)
    brokers = sorted({one.broker_name for one in known})
    if broker is None and len(brokers) > 1:
        text = f"topic {topic} has queues at several brokers: {', '.join(brokers)}"
        raise CommandError(text, ExitCode.USAGE, "name one with --broker BROKER")
    at = {one.queue_id: one for one in known if broker in (None, one.broker_name)}
    missing = [str(number) for number in ids if number not in at]
    if missing:
        place = f" at broker {broker}" if broker else ""
        hint = f"`rocketpy topic describe {topic}` shows the queues"
        raise CommandError(f"topic {topic} has no readable queue {', '.join(missing)}{place}", ExitCode.NOT_FOUND, hint)
    return [at[number] for number in dict.fromkeys(ids)]

"""`rocketpy topic`: update, perm, move."""

import json
import sys
from typing import Annotated

import typer

from rocketpy import Admin, MoveStep, RocketPyError
from rocketpy.admin.drain_calls import ROUTE_SECONDS
from rocketpy.base.text import printable
from rocketpy.cli.change_output import show_changes
from rocketpy.cli.options import LOCAL, WAITING, Broker, DryRun, Json, NameServer
from rocketpy.cli.topic import MAX_QUEUES, Name, existing, pairs
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode

PERMISSIONS = {"r": (True, False), "w": (False, True), "rw": (True, True), "none": (False, False)}
"""Whether a topic is readable and writable, by the word of users."""
NUMBERS = {"4": "r", "2": "w", "6": "rw"}
"""Numbers of mqadmin."""


def update(
    topic: Name,
    queues: Annotated[
        int | None, typer.Option("--queues", min=1, max=MAX_QUEUES, help="Number of read and write queues.")
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option("--write-queues", min=1, max=MAX_QUEUES, help="Number of write queues.")
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="NAME=VALUE", help="Set an attribute; NAME= removes it. May be repeated."),
    ] = None,
    broker: Broker = None,
    force: Annotated[bool, typer.Option("--force", help="Remove queues even if they hold messages.")] = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Change queues or attributes of a topic at each of its brokers. `topic create` adds brokers."""
    attributes = pairs(attribute or [])
    if queues is None and write_queues is None and not attributes:
        raise CommandError("no setting is given", ExitCode.USAGE, "for example --queues 16; --help lists the settings")
    with Admin(name_servers=name_server, **WAITING) as admin, existing(topic, name_server):
        changes = admin.update_topic(
            topic,
            queues,
            write_queues=write_queues,
            attributes=attributes,
            broker=broker,
            force=force,
            dry_run=dry_run,
        )
    show_changes(changes, f"topic {topic}", dry_run=dry_run, as_json=as_json)


def perm(
    topic: Name,
    permission: Annotated[str, typer.Argument(metavar="PERM", help="r, w, rw or none; or 4, 2, 6 as in mqadmin.")],
    broker: Broker = None,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Change whether consumers may read a topic and producers may send to it, at each of its brokers."""
    word = NUMBERS.get(permission, permission.lower())
    if word not in PERMISSIONS:
        hint = "write r (read only), w, rw or none; or 4, 2 or 6"
        raise CommandError(f"PERM is not a permission: {permission}", ExitCode.USAGE, hint)
    readable, writable = PERMISSIONS[word]
    with Admin(name_servers=name_server, **WAITING) as admin, existing(topic, name_server):
        changes = admin.update_topic(topic, readable=readable, writable=writable, broker=broker, dry_run=dry_run)
    show_changes(changes, f"topic {topic}", dry_run=dry_run, as_json=as_json)


def move(
    topic: Name,
    source: Annotated[str, typer.Option("--from", metavar="BROKER", help="Broker that has the topic.")],
    target: Annotated[str, typer.Option("--to", metavar="BROKER", help="Broker that receives the topic.")],
    settle: Annotated[
        float,
        typer.Option(
            "--settle", min=0, metavar="SECONDS", help="Time without a send after which clients have followed."
        ),
    ] = ROUTE_SECONDS,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="Maximum time of the move.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Remove messages that no group consumes.")] = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Move a topic to another broker under load: create it there, let groups read the rest here, then remove it here.

    An interrupted move continues when the command runs again. --json prints one object per line.
    """
    again = f"`rocketpy topic move {topic} --from {source} --to {target}` continues"
    shown: tuple[int, str] | None = None
    with Admin(name_servers=name_server, **WAITING) as admin, existing(topic, name_server):
        try:
            for step in admin.move_topic(
                topic, source, target, settle=settle, timeout=timeout, force=force, dry_run=dry_run
            ):
                if as_json:
                    print(json.dumps(output.plain(step)), flush=True)
                elif dry_run or step.state != "waiting" or shown != (step.number, step.state):
                    print(printable(move_text(step)), flush=True)
                shown = step.number, step.state
        except (RocketPyError, KeyboardInterrupt):
            if shown is not None:
                print(printable(f"the move stopped in step {shown[0]} of 5; {again}"), file=sys.stderr)
            raise


def move_text(step: MoveStep) -> str:
    """Returns the line of a step."""
    rests = "".join(
        f"; group {one.group}: {output.counted(one.lag, 'message')}, {output.counted(one.members, 'live member')}"
        for one in step.rests
    )
    waiting = f"; {output.counted(step.waiting, 'message')} wait for a time or a transaction" if step.waiting else ""
    return f"{step.number}. {step.step} ({step.state}): {step.detail}{rests}{waiting}"

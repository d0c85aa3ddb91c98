"""`rocketpy broker`: drain, undrain, clean. `rocketpy broker DIR` starts a broker: see `serve`."""

import json
import sys
from typing import Annotated

import typer

from rocketpy import Admin, CleanedPart, DrainStep, RocketPyError
from rocketpy.admin.drain_calls import ROUTE_SECONDS
from rocketpy.base.text import printable
from rocketpy.cli.masters import masters
from rocketpy.cli.options import LOCAL, WAITING, DryRun, Json, NameServer, Yes, confirm
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode

Name = Annotated[str, typer.Argument(metavar="BROKER", help="Name or HOST:PORT; `rocketpy cluster list` shows both.")]
SHOWN_EVERY = 5.0
"""Seconds between two lines of the same state."""
KINDS_HINT = "add --files, --topics or --offsets, with --dry-run to see the leftovers first"


def drain(
    broker: Name,
    quiet: Annotated[
        float,
        typer.Option(
            "--quiet", min=0, metavar="SECONDS", help="Time without a send after which clients have followed."
        ),
    ] = ROUTE_SECONDS,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="Maximum time of the drain.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Drain even if no other broker accepts messages of some topics.")
    ] = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Make a broker read only, wait until clients have followed and groups have caught up, then allow the stop.

    An interrupted drain continues when the command runs again. `broker undrain` ends it. --json prints one object per
    line.
    """
    last: DrainStep | None = None
    with Admin(name_servers=name_server, **WAITING) as admin:
        if dry_run:
            show_plan(admin, broker, as_json)
            return
        try:
            shown_at = -SHOWN_EVERY
            for step in admin.drain_broker(broker, quiet=quiet, timeout=timeout, force=force):
                is_new = last is None or step.state != last.state or bool(step.writes)
                last = step
                if as_json:
                    print(json.dumps(output.plain(step)), flush=True)
                elif is_new or step.seconds - shown_at >= SHOWN_EVERY:
                    print(printable(drain_text(step, quiet)), flush=True)
                    shown_at = step.seconds
        except (RocketPyError, KeyboardInterrupt):
            if last is not None and last.state != "drained":
                print(printable(stopped_text(last)), file=sys.stderr)
            raise


def show_plan(admin: Admin, broker: str, as_json: bool) -> None:
    """Prints the permission before and after a drain."""
    [(broker_name, address)] = masters(admin, broker)
    now = int(admin.broker_config(address).get("brokerPermission", "6"))
    facts = {
        "broker_name": broker_name,
        "address": address,
        "permission": now,
        "permission_after": now & ~2,
        "state": "would be read only" if now & 2 else "read only already",
    }
    output.show_one(facts, as_json=as_json)


def stopped_text(step: DrainStep) -> str:
    """Returns the line about a drain that ended early."""
    name = step.broker_name
    return (
        f"broker {name} stays read only: `rocketpy broker drain {name}` continues, "
        f"`rocketpy broker undrain {name}` restores permission {step.permission}"
    )


def drain_text(step: DrainStep, quiet: float) -> str:
    """Returns the lines of a step."""
    name, at = step.broker_name, f"{step.seconds:3.0f} s"
    if step.state == "lowered":
        return f"{at}: broker {name} is read only (permission before: {step.permission}); clients learn it within 30 s"
    if step.state == "producers":
        writes = "; ".join(
            f"{output.counted(one.messages, 'message')} to topic {one.topic}, the newest from {one.client}"
            for one in step.writes
        )
        return f"{at}: {writes or f'no send for {step.quiet_seconds:.0f} of {quiet:g} s'}"
    rests = [
        f"group {one.group}, topic {one.topic}: {output.counted(one.lag, 'message')}, "
        f"{output.counted(one.members, 'live member')}"
        for one in step.rests
    ]
    if step.state == "consumers":
        return f"{at}: waiting for " + "; ".join(rests)
    lines = [f"{at}: broker {name} ({step.address}) may be stopped; clients use the other brokers"]
    lines += [f"left in its store until it starts again: {rest}" for rest in rests]
    if step.waiting:
        waiting = output.counted(step.waiting, "message")
        lines.append(f"left in its store until it starts again: {waiting} that wait for a time or a transaction")
    return "\n".join(lines)


def undrain(broker: Name, dry_run: DryRun = False, name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """Give a drained broker the permission that it had before the drain."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        [(broker_name, address)] = masters(admin, broker)
        before = int(admin.broker_config(address).get("brokerPermission", "6"))
        after = admin.undrain_broker(broker, dry_run=dry_run)
    facts = {"broker_name": broker_name, "address": address, "permission_before": before, "permission": after}
    state = "would change" if dry_run else "changed"
    if before == after:
        state = "not drained" if after & 2 else "read only, as before the drain"
    output.show_one({**facts, "state": state}, as_json=as_json)


def state_of(part: CleanedPart) -> str:
    """Returns the state of leftovers. Brokers do not report which files and topics they removed."""
    done = "removed" if part.kind == "offsets" else "removed, if any"
    return done if part.is_removed else f"would be {done}"


def clean(
    brokers: Annotated[
        list[str] | None, typer.Argument(metavar="[BROKER...]", help="Names or HOST:PORT. Default: all masters.")
    ] = None,
    files: Annotated[bool, typer.Option("--files", help="Files past their retention, at any hour.")] = False,
    topics: Annotated[
        bool, typer.Option("--topics", help="Consume queues of topics that the broker does not have.")
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Offsets of groups or topics that the broker does not have.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Remove leftovers of brokers: expired files, unused topics, unused offsets."""
    kinds = {"files": files, "topics": topics, "offsets": offsets}
    if not any(kinds.values()):
        raise CommandError("no kind of leftover is given", ExitCode.USAGE, KINDS_HINT)
    with Admin(name_servers=name_server, **WAITING) as admin:
        places = [masters(admin, one)[0] for one in brokers] if brokers else masters(admin)
        names = [name for name, _ in places]
        if not dry_run:
            chosen = " and ".join(name for name, is_given in kinds.items() if is_given)
            confirm(f"remove leftover {chosen} of {', '.join(names)}?", yes=yes)
        found = [part for name in names for part in admin.clean_broker(name, **kinds, dry_run=dry_run)]
    rows = [
        {
            "broker_name": one.broker_name,
            "kind": one.kind,
            "found": one.found,
            "state": one.error or state_of(one),
        }
        for one in found
    ]
    output.show(rows, as_json=as_json, empty=f"no leftovers at {', '.join(names)}")
    failed = sorted({f"{one.kind} of {one.broker_name}" for one in found if one.error is not None})
    if failed:
        hint = "correct the cause that the row names, then run the command again"
        raise CommandError(f"not removed: {', '.join(failed)}", ExitCode.REFUSED, hint)

"""`rocketpy quota`: list, set, remove."""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal

import typer

from rocketpy import Admin, Quota, RocketPyError
from rocketpy.cli.change_output import AGAIN
from rocketpy.cli.masters import masters
from rocketpy.cli.options import LOCAL, WAITING, Broker, DryRun, Json, NameServer
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode

Scope = Annotated[Literal["topic", "group", "address", "user"], typer.Argument(metavar="topic|group|address|user")]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A topic, group, address or user; ord*, 10.0.0.0/8, or * for each one."),
]
LIMITS = ("send_messages", "send_bytes", "pull_messages", "pull_bytes", "connections")
"""Columns of limits."""


def limit(flag: str, text: str) -> Any:
    """Returns the option of a limit."""
    return typer.Option(flag, min=1, metavar="N", help=text)


def list_quotas(broker: Broker = None, name_server: NameServer = LOCAL, as_json: Json = False) -> None:
    """List the quotas of all brokers, with rates of the last second, and requests that waited or were rejected."""

    def listed(admin: Admin, name: str, address: str) -> Iterator[dict[str, Any]]:
        for use in admin.quotas(address):
            row = row_of(name, use.quota)
            [facts] = output.rows_of([use])
            facts.pop("quota")
            yield row | facts if as_json else narrow(row) | used(facts)

    rows, failed = at_each(name_server, broker, listed)
    output.show(rows, as_json=as_json, empty=f"no quotas at {name_server}", in_blocks=True)
    check_failed(failed, "quotas are unknown")


def set_quota(
    scope: Scope,
    name: Name,
    send_messages: Annotated[int | None, limit("--send-messages", "Messages to send per second.")] = None,
    send_bytes: Annotated[int | None, limit("--send-bytes", "Bytes to send per second.")] = None,
    pull_messages: Annotated[int | None, limit("--pull-messages", "Messages to receive per second.")] = None,
    pull_bytes: Annotated[int | None, limit("--pull-bytes", "Bytes to receive per second.")] = None,
    connections: Annotated[int | None, limit("--connections", "Open connections of an address.")] = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Set a quota, or replace it, at each master. It counts at once, and for each name by itself.

    A send over quota waits up to a second, then its producer gets a busy error and tries again. A consumer over quota
    waits. Limits that are not given are removed from an earlier quota of the name.
    """
    quota = Quota(scope, name, send_messages, send_bytes, pull_messages, pull_bytes, connections)

    def changed(admin: Admin, broker_name: str, address: str) -> Iterator[dict[str, Any]]:
        earlier = [use.quota for use in admin.quotas(address) if (use.quota.scope, use.quota.name) == (scope, name)]
        if not dry_run:
            admin.set_quota(address, quota)
        row = row_of(broker_name, quota)
        yield row | {"before": ", ".join(map(text_of, earlier)) or None, "changed": not dry_run}

    rows, failed = at_each(name_server, broker, changed)
    show_change(rows, as_json=as_json)
    check_failed(failed, f"quota of {scope} {name} is not set")


def remove(
    scope: Scope,
    name: Name,
    broker: Broker = None,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Remove a quota from each master that has it. Requests that wait for it continue at once."""

    def removed(admin: Admin, broker_name: str, address: str) -> Iterator[dict[str, Any]]:
        for quota in [use.quota for use in admin.quotas(address)]:
            if (quota.scope, quota.name) == (scope, name):
                if not dry_run:
                    admin.remove_quota(address, scope, name)
                yield row_of(broker_name, quota) | {"changed": not dry_run}

    rows, failed = at_each(name_server, broker, removed)
    if not rows and not failed:
        hint = "`rocketpy quota list` shows the quotas"
        raise CommandError(f"no quota of {scope} {name} is set", ExitCode.NOT_FOUND, hint)
    show_change(rows, as_json=as_json)
    check_failed(failed, f"quota of {scope} {name} is not removed")


def at_each(
    name_server: str, broker: str | None, call: Callable[[Admin, str, str], Iterable[dict[str, Any]]]
) -> tuple[list[dict[str, Any]], dict[str, RocketPyError]]:
    """Calls a function for each master, or for one broker. Returns the rows, and the errors by broker.

    Raises:
        RocketPyError: All brokers failed: the first error.
    """
    rows: list[dict[str, Any]] = []
    failed: dict[str, RocketPyError] = {}
    with Admin(name_servers=name_server, **WAITING) as admin:
        known = masters(admin, broker)
        for name, address in known:
            try:
                rows += call(admin, name, address)
            except RocketPyError as error:
                failed[name] = error
    if len(failed) == len(known):
        raise next(iter(failed.values()))
    return rows, failed


def check_failed(failed: dict[str, RocketPyError], text: str) -> None:
    """Names the brokers that failed.

    Raises:
        CommandError: A broker failed.
    """
    if failed:
        causes = "; ".join(f"{name}: {error}" for name, error in failed.items())
        raise CommandError(f"{text} at {', '.join(failed)} ({causes})", ExitCode.UNAVAILABLE, AGAIN)


def row_of(broker_name: str, quota: Quota) -> dict[str, Any]:
    """Returns the columns of a quota."""
    limits = {name: getattr(quota, name) for name in LIMITS}
    return {"broker_name": broker_name, "scope": quota.scope, "name": quota.name} | limits


def text_of(quota: Quota) -> str:
    """Returns the limits as one text.

    Examples:
        >>> text_of(Quota("topic", "orders", send_messages=10, pull_bytes=5))
        'send_messages 10, pull_bytes 5'
    """
    return ", ".join(f"{name} {limit}" for name, limit in quota.limits.items())


def narrow(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the first columns of a table: the quota without the limits that it does not have."""
    limits = text_of(Quota(row["scope"], row["name"], **{name: row[name] for name in LIMITS}))
    return {"broker": row["broker_name"], "quota": f"{row['scope']} {row['name']}", "limits": limits}


def used(facts: dict[str, Any]) -> dict[str, Any]:
    """Returns the columns of a table that show the use of a quota: only rates that are not 0."""
    rates = [f"{name.removesuffix('_per_second')}/s {facts[name]}" for name in facts if name.endswith("_second")]
    now = ", ".join(rate for rate in rates if not rate.endswith(" 0"))
    return {"now": now or None} | {name: facts[name] for name in ("waiting", "throttled", "rejected")}


def show_change(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Prints the changed quotas."""
    extra = ("before", "changed")
    shown = rows if as_json else [narrow(row) | {key: row[key] for key in extra if key in row} for row in rows]
    output.show(shown, as_json=as_json, empty="no quota was changed", in_blocks=True)

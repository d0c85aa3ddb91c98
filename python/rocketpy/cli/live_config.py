"""`rocketpy config`: list, set, unset, for running brokers and name servers."""

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy import Admin, ConfigUpdate, ConfigValue, RefusedError, _rocketpy
from rocketpy.admin.config_calls import check_spellings, unknown_key
from rocketpy.base.text import printable
from rocketpy.cli.options import LOCAL, WAITING, DryRun, Json, NameServer
from rocketpy.cli.serve import settings_of
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode

Server = Annotated[
    str, typer.Argument(metavar="SERVER", help="Name or HOST:PORT of a broker, or HOST:PORT of a name server.")
]


def list_keys(
    server: Server,
    name_server: NameServer = LOCAL,
    origin: Annotated[bool, typer.Option("--origin", help="Show the layer of each value, and its file.")] = False,
    as_json: Json = False,
) -> None:
    """List the keys of a running broker or name server with their values.

    Below the table are Apache's keys without an effect, if a file may have them. A key with `*` waits for a restart.
    """
    with Admin(name_servers=name_server, **WAITING) as admin:
        values = admin.config(server)
    if as_json:
        output.show(output.rows_of(values), as_json=True, empty="")
        return
    used = [row_of(one, origin) for one in values if one.is_used]
    unused = [one.key for one in values if not one.is_used]
    title = f"{output.counted(len(used), 'key')} of {server}"
    output.show(used, as_json=False, title=title, empty=f"no keys at {server}")
    if unused:
        print(f"without effect ({output.counted(len(unused), 'key')} of Apache's): {' '.join(unused)}")


def set_keys(
    server: Server,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Keys with their new values.")],
    name_server: NameServer = LOCAL,
    at_restart: Annotated[
        bool, typer.Option("--at-restart", help="Accept keys that take effect at the next start.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Set live values of a running broker or name server, all or none: at once, and after restarts.

    They override file and environment; the command line of the server overrides them.
    """
    changes = settings_of(pairs, "`rocketpy config set BROKER fileReservedTime=24`")
    check_spellings(pair.partition("=")[0] for pair in pairs)
    with Admin(name_servers=name_server, **WAITING) as admin, misspelt(changes):
        update = admin.set_config(server, changes, at_restart=at_restart, dry_run=dry_run)
    show(update, dry_run=dry_run, as_json=as_json)


def unset_keys(
    words: Annotated[
        list[str], typer.Argument(metavar="[SERVER] KEY...", help="Server and keys; with --store only keys.")
    ],
    name_server: NameServer = LOCAL,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="PATH", help="Store of a stopped broker, or a file of live values."),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove live values: the value of the lower layer is in force at once.

    With --store, remove them while no server runs, such as those that a start cannot use.
    """
    if store is not None:
        unset_offline(store, words, dry_run=dry_run, as_json=as_json)
        return
    if len(words) < 2:
        raise CommandError(
            f"a key is missing: {words[0]}", ExitCode.USAGE, "write `rocketpy config unset SERVER KEY`, or add --store"
        )
    with Admin(name_servers=name_server, **WAITING) as admin, misspelt(words[1:]):
        update = admin.unset_config(words[0], words[1:], dry_run=dry_run)
    show(update, dry_run=dry_run, as_json=as_json)


@contextmanager
def misspelt(keys: Iterable[str]) -> Generator[None]:
    """Turns the refusal of a key that does not exist into wrong usage, as in `config explain`."""
    try:
        yield
    except RefusedError as error:
        if unknown_key(error, keys) is None:
            raise
        raise CommandError(str(error), ExitCode.USAGE, error.hint) from error


def unset_offline(store: Path, keys: list[str], *, dry_run: bool, as_json: bool) -> None:
    """Removes live values from the files of a store that no server uses."""
    if not store.exists():
        raise CommandError(f"no such store: {store}", ExitCode.NOT_FOUND, "check the path")
    removed = _rocketpy.config_unset(str(store), keys, dry_run)
    rows = [{"key": key, "removed": value, "file": file} for file, key, value in removed]
    output.show(rows, as_json=as_json, title=title_of(dry_run, "removed"), empty="nothing removed")


def show(update: ConfigUpdate, *, dry_run: bool, as_json: bool) -> None:
    """Prints the changed keys, and the note of the server on standard error."""
    if as_json:
        output.show_one(output.plain(update), as_json=True)
        return
    rows = [row_of(one, origin=True) for one in update.values]
    output.show(rows, as_json=False, title=title_of(dry_run, "changed"), empty="nothing changed")
    if update.note:
        print(f"note: {printable(update.note)}", file=sys.stderr)


def title_of(dry_run: bool, done: str) -> str:
    """Returns the title of a change."""
    return "dry run, nothing changed" if dry_run else done


def row_of(one: ConfigValue, origin: bool) -> dict[str, Any]:
    """Returns the row of a key."""
    waits = one.needs_restart and one.is_live and one.origin != "live"
    row: dict[str, Any] = {"key": f"{one.key}*" if waits else one.key, "value": text_of(one.value)}
    if waits:
        row["value"] = f"{row['value']} (next start: {one.live_value})"
    if origin:
        row["origin"] = one.origin if one.source is None else f"{one.origin} {one.source}"
    return row


def text_of(value: bool | int | str | tuple[str, ...] | None) -> str:
    """Returns a value as a configuration file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ";".join(value)
    return "" if value is None else str(value)

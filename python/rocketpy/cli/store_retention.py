"""`rocketpy store retention`: files that a server would remove from a store folder, and the reasons."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy import store
from rocketpy.cli.options import Json
from rocketpy.cli.store import Folder, Log
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode


def retention(
    folder: Folder,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the files to remove and the reasons; change nothing.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Configuration of its server: TOML, or broker.conf.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A configuration key; may be repeated.")
    ] = None,
    ask: Annotated[
        bool,
        typer.Option(
            "--ask", help="Plan as if an administrator had requested removal of expired files now, at any hour."
        ),
    ] = False,
    commit_log: Log = None,
    as_json: Json = False,
) -> None:
    """Show the log files that the server would remove now, the minimum offsets that would move, and the reasons."""
    if not dry_run:
        raise CommandError(
            "only --dry-run is supported: the server removes files by itself", ExitCode.USAGE, "add --dry-run"
        )
    plan = store.retention(folder, commit_log=commit_log, config=config, settings=pairs(settings or []), ask=ask)
    if as_json:
        output.show_one(output.plain(plan), as_json=True)
        return
    facts: dict[str, Any] = {
        "log": f"{plan.log_files:,} files, {plan.log_bytes:,} bytes",
        "removed": f"{len(plan.removals):,} files, {sum(one.size_bytes for one in plan.removals):,} bytes",
        "kept": "no files" if plan.kept is None else f"from {plan.kept.path}: {plan.kept.reason}",
        "messages": "accepted" if plan.refusal is None else f"refused: {plan.refusal}",
    }
    facts |= {f"disk of {one.path}": f"{one.used_percent} % full" for one in plan.folders}
    output.show_one(facts, as_json=False)
    rows = [
        {"file": one.path, "bytes": one.size_bytes, "written_at": one.written_at, "rule": one.rule, "why": one.reason}
        for one in plan.removals
    ]
    output.show(rows, as_json=False, empty=f"no files to remove from {folder}")
    if plan.aged_queues:
        output.show(
            [queue_row(one) for one in plan.aged_queues],
            as_json=False,
            title="queues whose minimum offset moves",
            empty=f"no minimum offset moves in {folder}",
        )


def queue_row(queue: store.AgedQueue) -> dict[str, Any]:
    """Returns the table row of a queue."""
    return {
        "queue": f"{queue.topic}-{queue.queue_id}",
        "min_offset": queue.min_offset,
        "new_min_offset": queue.new_min_offset,
        "why": queue.reason,
    }


def pairs(settings: list[str]) -> dict[str, str]:
    """Splits `KEY=VALUE` texts."""
    split = [setting.partition("=") for setting in settings]
    if any(not key or not equals for key, equals, _ in split):
        raise CommandError("--set must be KEY=VALUE", ExitCode.USAGE, "for example --set fileReservedTime=48")
    return {key: value for key, _, value in split}

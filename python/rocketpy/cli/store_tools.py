"""`rocketpy store verify`, `repair`, `snapshot`, `diff`, `cut`, `export`, `import`: check, mend and copy folders."""

import contextlib
import json
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy import store
from rocketpy.base.text import printable
from rocketpy.cli.options import Json
from rocketpy.cli.store import Folder, From, Log, To
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.commandline.selection import moment
from rocketpy.store.tools import OnProgress

SHOWN = 20
"""Maximum number of problems on a terminal. JSON contains all that the report lists."""

Topics = Annotated[list[str] | None, typer.Option("--topic", help="Only this topic; may be repeated.")]
TargetLog = Annotated[
    Path | None,
    typer.Option("--target-commit-log", metavar="DIR", help="Commit log folder of DST; --commit-log is that of SRC."),
]
Skip = Annotated[bool, typer.Option("--skip-damage", help="Skip damaged records, and count them.")]


@contextlib.contextmanager
def bar(title: str) -> Generator[OnProgress, None, None]:
    """Shows a progress bar of bytes, if standard error is a terminal."""
    with output.byte_progress() as progress:
        task = progress.add_task(title, total=None)

        def on_progress(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield on_progress


def verify(folder: Folder, commit_log: Log = None, as_json: Json = False) -> None:
    """Check all records, consume queues, the index and the files of waiting messages. Exit code 1: problems found."""
    with bar("checking") as on_progress:
        report = store.verify(folder, commit_log=commit_log, on_progress=on_progress)
    if as_json:
        output.show_one(output.plain(report) | {"is_sound": report.is_sound}, as_json=True)
    else:
        facts = {name: value for name, value in output.plain(report).items() if name != "problems"}
        output.show_one(facts, as_json=False)
        output.show(
            [problem_row(one) for one in report.problems[:SHOWN]], as_json=False, empty=f"no problems found in {folder}"
        )
        if report.problem_count > SHOWN:
            print(f"... and {report.problem_count - SHOWN:,} more; --json lists them")
    if not report.is_sound:
        raise CommandError(
            f"problems found: {report.problem_count}",
            ExitCode.FAILURE,
            f"run `rocketpy store repair {folder}` to see the planned repair; it changes nothing",
        )


def problem_row(problem: store.Problem) -> dict[str, Any]:
    """Returns the table row of a problem."""
    queue = "" if problem.topic is None else f"{problem.topic}-{problem.queue_id} {problem.queue_offset}"
    return {
        "kind": problem.kind.replace("_", " "),
        "file": problem.path,
        "offset": problem.file_offset,
        "queue": queue,
        "found": problem.found,
        "expected": problem.expected,
    }


def repair(
    folder: Folder,
    apply: Annotated[bool, typer.Option("--apply", help="Make the changes. Without it, nothing is changed.")] = False,
    commit_log: Log = None,
    as_json: Json = False,
) -> None:
    """Plan the repair of a damaged store. --apply carries out the plan and keeps removed bytes in DIR/repair-TIME."""
    with bar("repairing" if apply else "looking") as on_progress:
        done = store.repair(folder, apply=apply, commit_log=commit_log, on_progress=on_progress)
    show_repair(done, as_json=as_json, empty=f"nothing to repair in {folder}")


def show_repair(done: store.Repair, *, as_json: bool, empty: str) -> None:
    """Prints the actions, done or planned."""
    if as_json:
        output.show_one(output.plain(done), as_json=True)
        return
    output.show([action_row(action) for action in done.actions], as_json=False, empty=empty)
    if done.kept_in is not None:
        print(f"done; removed bytes are kept in {done.kept_in}")
    elif done.actions:
        print("nothing was changed; --apply makes the changes")


def action_row(action: store.RepairAction) -> dict[str, Any]:
    """Returns the table row of an action."""
    place = "" if action.topic is None else f"{action.topic}-{action.queue_id} {action.queue_offset}"
    return {
        "action": action.action.replace("_", " "),
        "file": action.path,
        "offset": action.file_offset,
        "bytes": action.size_bytes,
        "reason": action.reason or place,
    }


def snapshot(
    folder: Folder,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A new or empty folder.")],
    commit_log: Log = None,
    as_json: Json = False,
) -> None:
    """Make a consistent copy while the server runs: complete log files are hard links, the rest is copied."""
    with bar("copying") as on_progress:
        made = store.snapshot(folder, target, commit_log=commit_log, on_progress=on_progress)
    output.show_one(output.plain(made), as_json=as_json)


def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="Folder of a store, such as a master's.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Folder of another store, such as its slave's.")],
    commit_log: Log = None,
    target_log: Annotated[
        Path | None,
        typer.Option("--target-commit-log", metavar="DIR", help="Commit log folder of B; --commit-log is that of A."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find where the logs of two stores diverge. Exit code 1: they diverge, or have no range in common."""
    with bar("comparing") as on_progress:
        found = store.diff(first, second, commit_log=commit_log, second_commit_log=target_log, on_progress=on_progress)
    if as_json:
        output.show_one(output.plain(found), as_json=True)
    else:
        print(SAYS[found.relation].format(a=first, b=second, at=found.common_end))
        rows = [log_row(path, log) for path, log in ((first, found.first), (second, found.second))]
        output.show(rows, as_json=False, empty=f"no logs in {first} and {second}")
        if found.last_common is not None:
            print(f"last common record: {record_text(found.last_common)}")
    if found.relation in ("diverged", "apart"):
        raise CommandError(
            f"the logs diverge at {found.common_end}"
            if found.relation == "diverged"
            else "the logs have no range in common",
            ExitCode.FAILURE,
            f"keep the store with the messages you need; `rocketpy store cut FOLDER --at {found.common_end} --apply` "
            "cuts the other one back to the common part, so that it can become the slave"
            if found.relation == "diverged"
            else "keep the store with the messages you need; start the other broker as its slave, with an empty folder",
        )
    for path, log in ((first, found.first), (second, found.second)):
        if log.damaged_at is not None:
            raise CommandError(
                f"{path} is damaged or incomplete at {log.damaged_at}: compared up to there",
                ExitCode.FAILURE,
                f"run `rocketpy store verify {path}`",
            )


def cut(
    folder: Folder,
    at: Annotated[int, typer.Option(metavar="OFFSET", help="New end of the log, as reported by `store diff`.")],
    apply: Annotated[bool, typer.Option("--apply", help="Make the changes. Without it, nothing is changed.")] = False,
    commit_log: Log = None,
    as_json: Json = False,
) -> None:
    """Cut the log of a stopped broker where it diverges from another log. --apply keeps the rest in DIR/repair-TIME."""
    with bar("cutting" if apply else "looking") as on_progress:
        done = store.cut(folder, at, apply=apply, commit_log=commit_log, on_progress=on_progress)
    show_repair(done, as_json=as_json, empty=f"the log ends at {at}")


SAYS = {
    "equal": "the logs are equal, up to {at}",
    "first_is_beginning": "{a} is a beginning of {b}, up to {at}",
    "second_is_beginning": "{b} is a beginning of {a}, up to {at}",
    "diverged": "the logs diverge at {at}",
    "apart": "the logs have no range in common",
}
"""Description of each relation between two logs."""


def log_row(path: Path, log: store.DiffLog) -> dict[str, Any]:
    """Returns the table row of a log."""
    return {
        "folder": str(path),
        "start": log.start,
        "end": log.end,
        "own_records": log.own_records,
        "own_bytes": log.own_bytes,
        "first_own": record_text(log.first_own) if log.first_own else None,
    }


def record_text(record: store.DiffRecord) -> str:
    """Describes a record in one line."""
    place = f"{printable(record.topic)}-{record.queue_id} {record.queue_offset}"
    stored = "at an invalid time" if record.stored_at is None else record.stored_at.isoformat()
    return f"{place} at {record.physical_offset}, stored {stored}"


def export_messages(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Folder of the store.")],
    target: Annotated[
        Path,
        typer.Argument(metavar="DST", help="Folder of the new store, also if its name ends in .jsonl: new or empty."),
    ],
    topic: Topics = None,
    queue: Annotated[list[int] | None, typer.Option("--queue", help="Only this queue; may be repeated.")] = None,
    start: From = None,
    end: To = None,
    skip: Skip = False,
    commit_log: Log = None,
    target_commit_log: TargetLog = None,
    as_json: Json = False,
) -> None:
    """Copy messages into a new store folder. For a file of JSON lines or Parquet, use `store dump --format`."""
    with bar("exporting") as on_progress:
        report = store.export_messages(
            source,
            target,
            topics=topic or (),
            queues=queue,
            stored_from=None if start is None else moment(start, "--from"),
            stored_before=None if end is None else moment(end, "--to"),
            fail_on_damage=not skip,
            commit_log=commit_log,
            target_commit_log=target_commit_log,
            on_progress=on_progress,
        )
    show_transfer(report, target, as_json=as_json)
    output.check_rejected("message", report.rejections, report.rejected)


def import_messages(
    source: Annotated[
        Path,
        typer.Argument(metavar="SRC", help="Folder of another store, a file of JSON lines, or - for standard input."),
    ],
    target: Annotated[Path, typer.Argument(metavar="DST", help="Folder of the store; must not be open in a server.")],
    topic: Topics = None,
    skip: Skip = False,
    commit_log: Log = None,
    target_commit_log: TargetLog = None,
    as_json: Json = False,
) -> None:
    """Append the messages of another store, or JSON lines as `store dump --format jsonl` prints them, to a store."""
    if source.is_dir():
        with bar("importing") as on_progress:
            report = store.import_messages(
                source,
                target,
                topics=topic or (),
                fail_on_damage=not skip,
                commit_log=commit_log,
                target_commit_log=target_commit_log,
                on_progress=on_progress,
            )
    else:
        wanted = set(topic or ())
        rows = (row for row in json_lines(source) if not wanted or row.get("topic") in wanted)
        report = store.import_messages(rows, target, target_commit_log=target_commit_log)
    show_transfer(report, target, as_json=as_json)
    output.check_rejected("message", report.rejections, report.rejected)


def show_transfer(report: store.TransferReport, target: Path, *, as_json: bool) -> None:
    """Shows the result of an export or import, and the store folder that it wrote."""
    facts = output.plain(report)
    if not as_json:
        facts = {"store_folder": str(target)} | facts
        facts["passed_over"] = f"{output.counted(report.passed_over, 'record')} that are not user messages"
        facts["left_out"] = output.counted(report.left_out, "damaged record")
    output.show_one(facts, as_json=as_json)


SOURCE_HINT = (
    "name a store folder, or a file of JSON lines as `rocketpy store dump FOLDER --format jsonl` prints them; "
    "lines before an invalid line are imported"
)
"""Hint for an invalid source of an import."""


def json_lines(source: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects of a file of JSON lines."""
    with contextlib.ExitStack() as stack:
        file = sys.stdin.buffer if str(source) == "-" else stack.enter_context(source.open("rb"))
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or nested too deeply
                raise CommandError(
                    f"line {number} of {source} is not JSON: {error}", ExitCode.USAGE, SOURCE_HINT
                ) from None
            if not isinstance(row, dict):
                raise CommandError(f"line {number} of {source} is not an object", ExitCode.USAGE, SOURCE_HINT)
            yield row

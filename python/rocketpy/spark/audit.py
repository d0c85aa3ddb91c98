"""The job `audit`: checks that all messages are stored, once, in order, and the same as elsewhere.

`spark-submit spark/audit.py --path data --topic flights` runs it by itself.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.spark import audit_checks as checks
from rocketpy.spark import job
from rocketpy.spark.picture import GREEN, GREY, ORANGE, RED, Bar, draw_bars, drawn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketpy.spark.audit_checks import Check

VERDICT_COLORS = {"ok": GREEN, "noted": ORANGE, "fault": RED}


class Question(StrEnum):
    """Check that needs nothing to compare with."""

    GAPS = "gaps"
    DUPLICATES = "duplicates"
    ORDER = "order"


Questions = Annotated[
    list[Question] | None,
    typer.Option(
        "--check", help="Run only this check; may be repeated. Gaps cost a scan, others a sort. Default: all."
    ),
]
By = Annotated[
    str,
    typer.Option("--by", metavar="KEY", help=f"Identity of a message: {checks.ID_HELP}."),
]
Journal = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        help="Receipts that a producer recorded: .csv with a header, .parquet, or JSON lines. Columns msg_id and, "
        "where known, topic, queue_id, queue_offset.",
    ),
]
OtherPath = Annotated[
    Path | None, typer.Option("--against-path", metavar="FOLDER", help="Another store to compare with.")
]
OtherServer = Annotated[
    str | None, typer.Option("--against-name-server", metavar="HOST:PORT", help="Another cluster to compare with.")
]
OtherTopics = Annotated[
    list[str] | None, typer.Option("--against-topic", help="Topics there, if they have other names; may be repeated.")
]


LENIENT = {"fail_on_data_loss": False, "null_unreadable_bodies": True}
"""Options of the data source: damage is left out, and a body that does not decompress is null."""


def run(
    spark: "SparkSession",
    source: dict[str, object],
    *,
    questions: Collection[Question] = tuple(Question),
    by: str = "id",
    against: dict[str, object] | None = None,
    journal: Path | None = None,
    out: Path | None = None,
) -> "list[Check]":
    """Runs every check that the arguments allow.

    Args:
        spark: The session.
        source: Options of the data source.
        questions: Checks that need nothing to compare with.
        by: Identity of a message.
        against: Options of another store.
        journal: Receipts that a producer recorded.
        out: Folder for a table of each check with findings.

    Returns:
        The results.

    Raises:
        InvalidArgumentError: The journal has no ids.
    """
    # What cannot be read is a gap. The other questions are about what can be read.
    lenient = {**source, **LENIENT}
    done: list[Check] = []
    with job.caches() as keep:
        if Question.GAPS in questions:
            with job.progress(spark, "gaps"):
                done += checks.check_queues(spark, lenient, keep)
        if Question.DUPLICATES in questions:
            with job.progress(spark, "duplicates"):
                done.append(checks.check_duplicates(spark, lenient, by, keep))
        if Question.ORDER in questions:
            with job.progress(spark, "order"):
                done += checks.check_order(spark, lenient, keep)
        if against is not None:
            with job.progress(spark, "the other store"):
                done += checks.check_against(spark, lenient, {**against, **LENIENT}, by, keep)
        if journal is not None:
            with job.progress(spark, "the journal"):
                done += checks.check_journal(spark, lenient, journal, keep)
        for one in done:
            if one.found and one.rows is not None:
                job.save(one.rows, out, one.name.replace(" ", "_").replace(":", "_"))
    return [replace(one, rows=None) for one in done]


def audit(
    topics: job.Topics = [],  # noqa: B006  # typer reads it
    path: job.StorePath = None,
    name_server: job.NameServer = None,
    since: job.Since = None,
    until: job.Until = None,
    questions: Questions = None,
    by: By = "id",
    against_path: OtherPath = None,
    against_name_server: OtherServer = None,
    against_topics: OtherTopics = None,
    journal: Journal = None,
    out: job.Out = None,
    dry_run: job.DryRun = False,
    as_json: job.Json = False,
) -> None:
    """Look for gaps, duplicates and broken order; compare a store with another one, or with a producer's journal.

    Ends with exit code 9 when something is missing, differs or is out of order.
    """
    checks.check_key(by)
    source = job.source_of(path, name_server, topics, since, until)
    against = None
    if against_path is not None or against_name_server is not None:
        against = job.source_of(against_path, against_name_server, against_topics or topics, since, until)
    if journal is not None and not journal.exists():
        raise CommandError(f"no such file: {journal}", ExitCode.NOT_FOUND)
    folder = job.new_folder(out)
    if dry_run:
        job.show_plan("audit", source, as_json=as_json)
        return
    with job.session("audit") as spark:
        done = run(
            spark, source, questions=questions or tuple(Question), by=by, against=against, journal=journal, out=folder
        )
    output.show([row_of(one) for one in done], as_json=as_json, empty="no questions")
    if folder is not None:
        drawn(lambda: draw_checks(done, folder / "audit.png"))
    faults = [one.name for one in done if one.verdict == "fault"]
    if faults:
        hint = "--out FOLDER writes all findings" if folder is None else f"all findings are in {folder}"
        raise CommandError(f"faults found: {', '.join(faults)}", ExitCode.MISMATCH, hint)


def draw_checks(done: "Sequence[Check]", path: Path) -> None:
    """Draws the results, as PNG.

    Args:
        done: The results.
        path: File to write.
    """
    found = [Bar(one.name, one.found, VERDICT_COLORS[one.verdict]) for one in done]
    panels = {"looked at": [Bar(one.name, one.looked_at, GREY) for one in done], "found": found}
    draw_bars("orange: noted, red: fault", panels, path, scale="symlog")  # one fault of millions is seen


def row_of(check: "Check") -> dict[str, Any]:
    """Returns the row of a check in the report."""
    return {
        "check": check.name,
        "looked_at": check.looked_at,
        "found": check.found,
        "verdict": check.verdict,
        "example": check.example,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job from a command line.

    Args:
        arguments: Command line; default: that of the process.

    Returns:
        The exit code.
    """
    return job.run_command("audit", audit, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

"""Shared parts of the jobs: options, the session, a dry run, progress, and a report."""

import os
import re
import sys
import tempfile
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rocketpy.base.clock import monotonic
from rocketpy.base.names import check_folder
from rocketpy.commandline import output
from rocketpy.commandline.commands import guarded, run_app
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.spark.batches import parts_of, place_of, reader_of
from rocketpy.spark.session import context_of, no_pyspark, refuse_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

StorePath = Annotated[
    Path | None, typer.Option("--path", metavar="FOLDER", help="Folder of a store; its server may run or not.")
]
NameServer = Annotated[
    str | None,
    typer.Option("--name-server", "-n", metavar="HOST:PORT[,HOST:PORT]", help="Name servers of a cluster."),
]
Topics = Annotated[list[str], typer.Option("--topic", "-t", help="Topic to read; may be repeated.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only messages stored at or after this time, or -10m.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only messages stored before this time.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="Folder for results as Parquet; must not exist.")
]
OutWithPicture = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="Folder for tables (Parquet) and pictures; must not exist."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the planned reads and actions, then exit.")]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.001, metavar="N", help="Maximum number of messages per second, in total."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

Keep: TypeAlias = "Callable[[DataFrame], DataFrame]"
"""Caches a table until the job has saved its findings: `caches`."""

IS_SUBMITTED = "PYSPARK_GATEWAY_PORT" in os.environ
"""Whether spark-submit started this process and has set up Java and the workers' Python."""
RAISED = re.compile(r"(?!org\.|java\.|py4j\.|pyspark\.)[a-z_][\w.]*\.\w+(Error|Exception)\b|[A-Z]\w+Error: ")
"""Line of a Python traceback with the exception."""
TICK_SECONDS = 0.3
"""Interval between updates of the progress bar."""


def run_command(name: str, command: Callable[..., None], arguments: Sequence[str] | None) -> int:
    """Runs the command line of a job: each failure ends in its lines `error:` and `hint:` and its exit code.

    Args:
        name: Name of the job.
        command: Function whose parameters are the options.
        arguments: Command line; default: that of the process.

    Returns:
        The exit code, as the command `rocketpy` has them.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(guarded(_explained(command)))
    return run_app(app, name, arguments)


def _explained(command: Callable[..., None]) -> Callable[..., None]:
    """Converts an error of Spark to one line; the traceback of a worker has its reason at the end."""
    from functools import wraps

    @wraps(command)
    def run(**options: Any) -> None:
        try:
            from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
            from pyspark.errors import PySparkException
        except ImportError as missing:
            raise no_pyspark() from missing

        try:
            command(**options)
        except (PySparkException, Py4JJavaError) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reasons = [line for line in lines if RAISED.match(line)] or lines[:1]
            raise CommandError(f"query failed: {reasons[-1]}", ExitCode.FAILURE, _kept(str(error))) from error

    return run


def _kept(text: str) -> str:
    """Writes the whole error of Spark, with its traces of Java and Python, to a file, and says where."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="backslashreplace", prefix="rocketpy-job-", suffix=".log", delete=False
        ) as file:
            file.write(text)
    except OSError as error:
        return f"cannot write the whole error to a file: {error}; set TMPDIR to a folder with free space"
    return f"the whole error is in {file.name}"


def source_of(
    path: Path | None,
    name_server: str | None,
    topics: Sequence[str],
    since: str | None = None,
    until: str | None = None,
    **more: object,
) -> dict[str, object]:
    """Returns the options of the data source for those of a command line.

    Args:
        path: Folder of a store.
        name_server: Name servers of a cluster.
        topics: Topics; at least one.
        since: Time of the first message.
        until: Time after the last message.
        more: Other options; None omits an option.

    Raises:
        CommandError: The source or the topic is missing.
    """
    if (path is None) == (name_server is None):
        raise CommandError("give --path or --name-server", ExitCode.USAGE)
    if not topics:
        raise CommandError("give a --topic", ExitCode.USAGE)
    return {
        "path": path,
        "name_server": name_server,
        "topics": list(topics),
        "starting_time": since,
        "ending_time": until,
        **more,
    }


def new_folder(out: Path | None) -> Path | None:
    """Checks the folder for results, before anything is read.

    Raises:
        CommandError: The folder exists.
        InvalidArgumentError: The folder is an address.
    """
    if out is not None:
        check_folder("--out", out)
    if out is not None and out.exists():
        raise CommandError(f"{out} exists", ExitCode.USAGE, "choose another folder: results are not mixed")
    return None if out is None else out.absolute()


@contextmanager
def session(name: str) -> "Generator[SparkSession]":
    """The session of a job. One that ran before stays; else it ends with the job.

    Raises:
        NotSupportedError: Sessions of this process are of Spark Connect.
        RocketPyError: PySpark is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise no_pyspark() from missing

    from rocketpy.spark.session import prepare

    refuse_connect()
    before = SparkSession.getActiveSession()
    if not IS_SUBMITTED:
        prepare()
    spark = SparkSession.builder.appName(name).getOrCreate()
    if before is None:
        spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


def plan_rows(options: Mapping[str, object]) -> list[dict[str, object]]:
    """Returns the planned reads, as a row for each queue.

    Args:
        options: As for `map_batches`.

    Returns:
        Rows with topic, broker_name, queue_id, start, end, messages and about_bytes.
    """
    found: dict[tuple[str, str | None, int], list[tuple[int, int, int]]] = defaultdict(list)
    for partition in reader_of(options).partitions():
        for part in parts_of(partition.value):
            found[place_of(part)].append((part.start, part.end, part.estimated_bytes))
    return [
        {
            "topic": topic,
            "broker_name": broker_name,
            "queue_id": queue_id,
            "start": min(start for start, _, _ in parts),
            "end": max(end for _, end, _ in parts),
            "messages": sum(end - start for start, end, _ in parts),
            "about_bytes": sum(size for _, _, size in parts),
        }
        for (topic, broker_name, queue_id), parts in sorted(found.items(), key=lambda one: (one[0][0], str(one[0])))
    ]


def show_plan(would: str, options: Mapping[str, object], *, as_json: bool) -> None:
    """Prints the plan of a dry run; no session is started.

    Args:
        would: Description of the job's action.
        options: Options of the data source.
        as_json: Whether to print JSON instead of a table.
    """
    rows = plan_rows(options)
    output.show(
        rows, as_json=as_json, title=f"dry run: {would}", empty=f"dry run: {would}, but there is nothing to read"
    )


@contextmanager
def progress(spark: "SparkSession", what: str) -> Generator[None]:
    """Shows the progress of tasks: a bar on a terminal, then a line; both on standard error.

    Under spark-submit it shows nothing: Spark has a bar of its own there, and puts this process's standard error into
    its standard output, where a report is.

    Args:
        spark: The session whose queries run inside.
        what: Description of the queries.
    """
    context = context_of(spark)
    group = f"rocketpy-{uuid.uuid4()}"
    context.setJobGroup(group, what)
    began, over = monotonic(), threading.Event()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
        console=output.STDERR,
        transient=True,
        disable=IS_SUBMITTED or not output.STDERR.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=None)

        def follow() -> None:
            while not over.wait(TICK_SECONDS):
                done, total = tasks_of(spark, group)
                bar.update(task, completed=done, total=total or None)

        thread = threading.Thread(target=follow, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            done, _ = tasks_of(spark, group)
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # its hint knows no end
    say(f"{what}: {output.counted(done, 'task')} in {monotonic() - began:.1f} s")


def say(line: str) -> None:
    """Reports a step on standard error; under spark-submit nothing.

    Args:
        line: Description of the step.
    """
    if not IS_SUBMITTED:
        output.STDERR.print(line, markup=False, highlight=False)


def warn_unreadable(count: int, outcome: str) -> None:
    """Reports on standard error how many bodies do not decompress, also under spark-submit.

    Args:
        count: Number of bodies; nothing is reported for 0.
        outcome: Treatment of their messages.
    """
    if count:
        bodies = "1 body does" if count == 1 else f"{count:,} bodies do"
        print(f"warning: {bodies} not decompress: {outcome}", file=sys.stderr)


def tasks_of(spark: "SparkSession", group: str) -> tuple[int, int]:
    """Returns the number of completed tasks of a job group, and of all its tasks so far."""
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage_id in info.stageIds if info else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                done, total = done + stage.numCompletedTasks, total + stage.numTasks
    return done, total


@contextmanager
def caches() -> Generator[Keep]:
    """Gives a function that caches a table until the end of the block; the session may go on after the job."""
    kept: list[DataFrame] = []

    def keep(frame: "DataFrame") -> "DataFrame":
        kept.append(frame.cache())
        return kept[-1]

    try:
        yield keep
    finally:
        for frame in kept:
            with suppress(Exception):  # a session that has ended has no caches
                frame.unpersist()


def save(frame: "DataFrame", out: Path | None, name: str) -> None:
    """Writes a table as Parquet, if a folder is given.

    Args:
        frame: The table.
        out: The folder.
        name: Name of the table.
    """
    if out is not None:
        frame.write.parquet(str(out / f"{name}.parquet"))


def rows_of(frame: "DataFrame", most: int | None = None) -> list[dict[str, Any]]:
    """Returns the rows of a small table as mappings.

    Args:
        frame: The table.
        most: Maximum number of rows; None for all.
    """
    return [row.asDict() for row in (frame.collect() if most is None else frame.take(most))]

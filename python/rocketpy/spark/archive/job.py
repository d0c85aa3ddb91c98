"""The job `archive`: copies topics into Parquet files or a Delta table by topic and day, every message exactly once.

`spark-submit spark/archive.py --name-server 127.0.0.1:9876 --topic flights --out archive` copies what came since the
last run. Files and offsets are committed together (`rocketpy.spark.archive.manifest`), so a job that was killed at any
moment is simply started again. See docs/spark-jobs.md.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketpy.base.names import check_folder, column_list, text_list
from rocketpy.commandline import output
from rocketpy.errors import InvalidArgumentError, OffsetError, RocketPyError, TopicNotFoundError
from rocketpy.message import MessageQueue
from rocketpy.spark import job
from rocketpy.spark.archive.files import Failure, NullBodies, join_files, write_partitions
from rocketpy.spark.archive.manifest import Archive, ArchiveError, ArchiveFile, Manifest, gaps
from rocketpy.spark.archive.parquet import ParquetArchive
from rocketpy.spark.columns import DEFAULT, TYPES, check_columns, struct
from rocketpy.spark.fingerprint import differences, fingerprints
from rocketpy.spark.offsets import Offsets, tree_of
from rocketpy.spark.options import ReadOptions, parse_options, seconds_of
from rocketpy.spark.patience import DEFAULT_RETRY_SECONDS, T, again
from rocketpy.spark.picture import draw_archive, drawn
from rocketpy.spark.session import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

ROUND_MESSAGES = 5_000_000
"""Messages between two commits, which a killed job archives again."""
COMPACT_FILES = 16
FILE_BYTES = 256 << 20
UNNAMED = "broker"
"""Name of the broker of a store, where none is given."""
NEEDED = ("topic", "broker_name", "queue_id", "queue_offset", "stored_at")
"""Columns by which an archive identifies its messages."""
RENEWED_HINT = "the topic was deleted and created again, or lost messages: archive it to another folder"


class ArchiveFormat(StrEnum):
    """Format of an archive."""

    PARQUET = "parquet"
    """Parquet files, and a manifest with their names."""
    DELTA = "delta"
    """Table of Delta Lake; needs `deltalake`."""


Out = Annotated[
    Path, typer.Option("--out", metavar="FOLDER", help="Folder of the archive: the same for driver and workers.")
]
Format = Annotated[ArchiveFormat, typer.Option("--format", help="Parquet files, or a table of Delta Lake.")]
BrokerName = Annotated[
    str,
    typer.Option(
        "--broker-name", metavar="NAME", help="With --path: name of the broker, which a store does not contain."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="A,B,...", help="Columns to keep; default: the first twelve of a read."),
]
RoundMessages = Annotated[int, typer.Option("--round-messages", min=1, help="Messages between two commits.")]
CompactFiles = Annotated[
    int,
    typer.Option(
        "--compact-files", min=0, help="Minimum number of small files of a topic and day to join; 0 for never."
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option("--picture", metavar="FILE", dir_okay=False, help="File for a chart of the archive, as PNG."),
]
RetryTimeout = Annotated[
    str, typer.Option("--retry-timeout", metavar="TIME", help="Timeout for retries while brokers are unreachable.")
]


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """Options of an archive job.

    Attributes:
        out: Folder of the archive: local, or on a file system that all workers share.
        topics: Topics to archive; at least one.
        name_server: `host:port` of each name server, joined by `;`; or None.
        path: Store folder; or None.
        format: "parquet" for Parquet files, "delta" for a Delta table.
        broker_name: With a path: name of the broker, which a store does not contain.
        columns: Columns to keep; those in `NEEDED` are always kept.
        round_messages: Messages between two commits.
        compact_files: Minimum number of small files of one topic and day to join; 0 for never.
        file_bytes: Size of joined files.
        retry_seconds: Timeout for retries while brokers are unreachable, in seconds.

    Raises:
        InvalidArgumentError: The folder is an address, such as one of an object store.
        TypeError: Topics or columns are not lists of texts.
    """

    out: str
    topics: tuple[str, ...]
    name_server: str | None = None
    path: str | None = None
    format: ArchiveFormat | str = ArchiveFormat.PARQUET
    broker_name: str = UNNAMED
    columns: tuple[str, ...] = DEFAULT
    round_messages: int = ROUND_MESSAGES
    compact_files: int = COMPACT_FILES
    file_bytes: int = FILE_BYTES
    retry_seconds: float = DEFAULT_RETRY_SECONDS

    def __post_init__(self) -> None:
        check_folder("out", self.out)
        text_list("topics", self.topics, "a list of names")
        column_list(self.columns)

    def source(self) -> dict[str, str]:
        """Options of the data source, with the source of the messages."""
        if (self.path is None) == (self.name_server is None):
            raise InvalidArgumentError("give either the path of a store or the name_server of a cluster")
        if self.path is not None:
            return {"path": self.path, "broker_name": self.broker_name}
        return {"name_server": self.name_server or ""}

    def read_options(self) -> ReadOptions:
        """Checked options of the data source."""
        return parse_options({**self.source(), "topics": ",".join(self.topics)})

    def schema(self) -> "StructType":
        """Columns of the messages, as Spark has them."""
        wanted = {*NEEDED, *check_columns(self.columns)}
        return struct([name for name in TYPES if name in wanted])

    def archive(self) -> Archive:
        """The archive in `out`."""
        if ArchiveFormat(self.format) is ArchiveFormat.PARQUET:
            return ParquetArchive(self.out)
        from pyspark.sql.pandas.types import to_arrow_schema

        from rocketpy.spark.archive.delta import DeltaArchive

        return DeltaArchive(self.out, to_arrow_schema(self.schema(), timezone="UTC"))


def bounds(options: ArchiveOptions) -> tuple[Offsets, Offsets]:
    """Returns the current bounds of the queues.

    Args:
        options: Options of the job.

    Returns:
        The queue offset of the oldest message, and the one after the newest, by queue.

    Raises:
        TopicNotFoundError: A topic does not exist, or has no queues now.
    """
    starts: Offsets = {}
    ends: Offsets = {}
    if options.path is not None:
        from rocketpy.store import StoreReader

        known = {one.name: one for one in StoreReader(options.path).topics()}
        for topic in options.topics:
            if topic not in known:
                raise TopicNotFoundError(f"the store has no topic: {topic}")
            for one in known[topic].queues:
                queue = MessageQueue(topic, options.broker_name, one.queue_id)
                starts[queue], ends[queue] = one.min_offset, one.max_offset
        return starts, ends
    from rocketpy.admin.admin import Admin

    with Admin(options.name_server) as admin:
        for topic in options.topics:
            infos = admin.describe_topic(topic).queues
            if not infos:
                raise TopicNotFoundError(f"topic has no queue at any broker: {topic}", retryable=True)
            for info in infos:
                starts[info.queue], ends[info.queue] = info.min_offset, info.max_offset
    return starts, ends


def next_round(done: Offsets, starts: Offsets, ends: Offsets, messages: int) -> tuple[Offsets, Offsets]:
    """Selects the messages to archive next.

    Args:
        done: Queue offset after the last archived message; queues that are not named are new.
        starts: Oldest queue offset now.
        ends: Queue offset after the newest message that is to be archived.
        messages: Approximate number of messages; each queue in proportion, and at least one of each.

    Returns:
        First queue offset, and the one to stop before, of each queue with messages.

    Raises:
        OffsetError: Retention removed messages that are not archived, or a queue ends before the archived messages.

    Examples:
        >>> a, b = MessageQueue("t", "x", 0), MessageQueue("t", "x", 1)
        >>> begins, stops = next_round({a: 10}, {a: 0, b: 5}, {a: 110, b: 305}, 100)
        >>> (begins[a], stops[a]), (begins[b], stops[b])
        ((10, 35), (5, 80))
    """
    begins = {queue: done.get(queue, starts[queue]) for queue in ends}
    for queue, at in begins.items():
        if at < starts[queue]:
            raise OffsetError(f"{starts[queue] - at} messages of {queue} were removed before they were archived")
        if at > ends[queue]:
            raise OffsetError(
                f"{queue} ends at {ends[queue]}, the archive at {at}",
                hint=RENEWED_HINT,
            )
    waiting = {queue: ends[queue] - at for queue, at in begins.items() if at < ends[queue]}
    share = min(1.0, messages / max(1, sum(waiting.values())))
    stops = {queue: begins[queue] + max(1, int(left * share)) for queue, left in waiting.items()}
    return {queue: begins[queue] for queue in stops}, stops


def check_queues(options: ArchiveOptions, done: Manifest, starts: Offsets, ends: Offsets) -> None:
    """Checks that queues are the archived ones: by the last archived message of each, with one pull per queue.

    A queue whose last archived message was removed by retention is not checked.

    Args:
        options: Options of the job.
        done: Queue offset after the last archived message.
        starts: Oldest queue offset now.
        ends: Queue offset after the newest message.

    Raises:
        ArchiveError: A queue disappeared after the start of the job. A retry may find it.
        OffsetError: Another message is at the offset, or a store no longer contains a queue.
    """
    if away := sorted(ends.keys() - starts.keys()):
        raise ArchiveError(f"queues missing: {', '.join(map(str, away))}", retryable=True)
    if options.path is not None:  # of a cluster, the broker of a queue may just be away
        for queue in sorted(done.ends.keys() - ends.keys()):
            if queue.topic in options.topics and queue.broker_name == options.broker_name:
                raise OffsetError(
                    f"{queue} no longer exists, but the archive ends at {done.ends[queue]}", hint=RENEWED_HINT
                )
    last = {
        queue: done.ends[queue]
        for queue in done.previous.keys() & ends.keys()
        if starts[queue] < done.ends[queue] <= ends[queue]
    }
    for text in differences(done.previous, fingerprints(options.read_options(), last), last).values():
        raise OffsetError(text, hint=RENEWED_HINT)


def manifest_of(archive: Archive, options: ArchiveOptions, queues: Iterable[MessageQueue]) -> Manifest:
    """Returns the newest state of an archive to continue. Changes nothing.

    Args:
        archive: The archive.
        options: Options of the job.
        queues: All queues of the topics.

    Raises:
        InvalidArgumentError: The folder holds something else. Or it has a topic from a store without the name of the
            broker, and the options name the broker, or vice versa: all messages would be archived again.
    """
    archived = {topic: archive.queues(topic) for topic in options.topics}
    manifest = archive.manifest({*queues, *chain.from_iterable(archived.values())})
    for topic in options.topics:
        held = {queue.broker_name for queue in archived[topic]}
        named = {queue.broker_name for queue in queues if queue.topic == topic}
        if held and not held & named and UNNAMED in held | named:
            names = " or ".join(sorted(held))
            where = f"give --broker-name {names}" if options.path is not None else "read it by --path again"
            raise InvalidArgumentError(
                f"the archive has topic {topic} of broker {names}, not of {', '.join(sorted(named))}",
                hint=f"{where}, or another --out; otherwise all messages are archived twice",
            )
    return manifest


class ArchiveJob:
    """Archives topics with a session of Spark.

    Args:
        spark: Classic Spark session, not one of Spark Connect.
        options: Options of the job.
        told: Callback that receives a line of text for each step.
    """

    def __init__(self, spark: "SparkSession", options: ArchiveOptions, told: Callable[[str], object] = print) -> None:
        self._context = context_of(spark)
        self._options = options
        self._told = told
        self._archive = options.archive()
        self.unreadable_bodies = 0
        """Number of messages of this run whose body does not decompress, and is null in the archive."""

    def run(self) -> Manifest:
        """Archives all messages up to the current ends of the queues, and joins small files.

        Returns:
            The newest manifest.

        Raises:
            ArchiveError: Another job writes the archive, or the messages read are not the requested ones. Retry.
            InvalidArgumentError: The folder holds something else, or the topics by another name of the broker.
            OffsetError: Messages were lost before they were archived.
            RocketPyError: A broker or a store cannot be read.
        """
        with self._archive.locked():
            _, ends = self._patiently(partial(bounds, self._options))
            manifest = manifest_of(self._archive, self._options, ends)
            begun = manifest.rows
            total = sum(end - manifest.ends.get(queue, 0) for queue, end in ends.items())
            while True:
                fresh = self._patiently(partial(self._round, manifest, ends))
                if fresh is None:
                    break
                manifest = fresh
                self._told(f"version {manifest.number}: {manifest.rows - begun:,} messages of at most {total:,}")
            return self._compact(manifest)

    def _patiently(self, call: Callable[[], T]) -> T:
        def told(error: RocketPyError, seconds: float) -> None:
            self._told(f"trying again for {seconds:g} s: {error}")

        return again(call, self._options.retry_seconds, unsure=True, told=told)

    def _round(self, manifest: Manifest, ends: Offsets) -> Manifest | None:
        """Archives some messages and commits them. None if there are none left."""
        starts, _ = bounds(self._options)
        check_queues(self._options, manifest, starts, ends)
        begins, stops = next_round(manifest.ends, starts, ends, self._options.round_messages)
        if not stops:
            return None
        # Before the messages are read: if a topic is made anew meanwhile, the next round notices it.
        previous = fingerprints(self._options.read_options(), stops)
        idle = {queue: start for queue, start in starts.items() if queue not in stops}
        problems = [f"{queue}: no message before {stops[queue]}" for queue in stops.keys() - previous.keys()]
        files, unreadable = ([], 0) if problems else self._written({**idle, **begins}, {**idle, **stops})
        problems = problems or gaps(stops, begins, files)
        if problems:
            text = f"what was read is not what was asked for: {'; '.join(problems)}"
            raise ArchiveError(text, retryable=True)  # a queue may have been made meanwhile
        appended = self._archive.append(manifest, files, stops, previous)
        self.unreadable_bodies += unreadable
        return appended

    def _written(self, begins: Offsets, stops: Offsets) -> tuple[list[ArchiveFile], int]:
        """Writes the files of a round; returns them with the number of null bodies."""
        from rocketpy.spark.source import RocketPyDataSource

        options = {
            **self._options.source(),
            "topics": ",".join(self._options.topics),
            "starting_offsets": json.dumps(tree_of(begins)),
            "ending_offsets": json.dumps(tree_of(stops)),
            "null_unreadable_bodies": "true",
        }
        reader = RocketPyDataSource(options).reader(self._options.schema())
        partitions = list(reader.partitions())
        staged = str(self._archive.staged)

        def write(mine: Iterable["InputPartition"]) -> Iterator[ArchiveFile | Failure | NullBodies]:
            return write_partitions(reader, staged, mine)

        files: list[ArchiveFile] = []
        unreadable = 0
        for one in self._context.parallelize(partitions, max(1, len(partitions))).mapPartitions(write).collect():
            if isinstance(one, Failure):
                raise ArchiveError(one.text, retryable=one.retryable)
            if isinstance(one, NullBodies):
                unreadable += one.count
            else:
                files.append(one)
        return files, unreadable

    def _compact(self, manifest: Manifest) -> Manifest:
        """Joins small files of the same topic and day, where there are many."""
        groups = small_files(manifest.files, self._options.compact_files, self._options.file_bytes)
        if not groups:
            return manifest
        fresh = self._archive.compact(manifest, groups, self._options.file_bytes, self._joined)
        self._told(f"version {fresh.number}: {len(manifest.files)} files became {len(fresh.files)}")
        return fresh

    def _joined(self, groups: Sequence[Sequence[ArchiveFile]]) -> list[ArchiveFile]:
        folder, staged = str(self._archive.folder), str(self._archive.staged)

        def join(mine: Iterable[Sequence[ArchiveFile]]) -> Iterator[ArchiveFile]:
            return (join_files(folder, staged, group) for group in mine)

        return self._context.parallelize(groups, len(groups)).mapPartitions(join).collect()


def small_files(files: Iterable[ArchiveFile], fewest: int, file_bytes: int) -> list[tuple[ArchiveFile, ...]]:
    """Selects files to join.

    Args:
        files: Files of an archive.
        fewest: Minimum number of small files of one topic and day to join; 0 for never.
        file_bytes: Target size; files of at least half of it are not small.

    Returns:
        Groups of at least two files of one topic and day.
    """
    by_day: dict[tuple[str, str], list[ArchiveFile]] = defaultdict(list)
    for one in files:
        if one.size_bytes < file_bytes // 2:
            by_day[one.topic, one.day].append(one)
    groups: list[tuple[ArchiveFile, ...]] = []
    for small in by_day.values():
        if not 0 < fewest <= len(small):
            continue
        group: list[ArchiveFile] = []
        for one in small:
            group.append(one)
            if sum(each.size_bytes for each in group) >= file_bytes:
                groups.append(tuple(group))
                group = []
        if len(group) > 1:
            groups.append(tuple(group))
    return [group for group in groups if len(group) > 1]


def plan_rows(options: ArchiveOptions) -> list[dict[str, object]]:
    """Returns the messages that a run would archive, as a row for each queue. Changes nothing.

    Args:
        options: Options of the job.

    Raises:
        InvalidArgumentError: The folder holds something else, or the topics by another name of the broker.
        OffsetError: Messages were lost before they were archived.
    """
    starts, ends = bounds(options)
    manifest = manifest_of(options.archive(), options, ends)
    check_queues(options, manifest, starts, ends)
    begins, stops = next_round(manifest.ends, starts, ends, sum(ends.values()) + 1)
    return [
        {
            "topic": queue.topic,
            "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
            "start": begins[queue],
            "end": stop,
            "messages": stop - begins[queue],
        }
        for queue, stop in sorted(stops.items())
    ]


def archive(
    out: Out,
    topics: job.Topics = [],  # noqa: B006  # typer reads it
    path: job.StorePath = None,
    name_server: job.NameServer = None,
    format: Format = ArchiveFormat.PARQUET,
    broker_name: BrokerName = UNNAMED,
    columns: Columns = None,
    round_messages: RoundMessages = ROUND_MESSAGES,
    compact_files: CompactFiles = COMPACT_FILES,
    retry_timeout: RetryTimeout = "3m",
    picture: Picture = None,
    dry_run: job.DryRun = False,
    as_json: job.Json = False,
) -> None:
    """Copy topics into Parquet files or a Delta table by topic and day, every message exactly once.

    Each run copies the messages since the last one. After a kill, start the job again.
    """
    job.source_of(path, name_server, topics)
    options = ArchiveOptions(
        out=str(out),
        topics=tuple(dict.fromkeys(topics)),
        name_server=name_server,
        path=None if path is None else str(path),
        format=format,
        broker_name=broker_name,
        columns=DEFAULT if columns is None else tuple(name.strip() for name in columns.split(",")),
        round_messages=round_messages,
        compact_files=compact_files,
        retry_seconds=seconds_of("--retry-timeout", retry_timeout),
    )
    if dry_run:
        output.show(
            plan_rows(options),
            as_json=as_json,
            title=f"dry run: archive to {out}",
            empty=f"dry run: {out} has every message",
        )
        return
    with job.session("archive") as spark:
        archiving = ArchiveJob(spark, options, job.say)
        manifest = archiving.run()
    if picture is not None:
        drawn(lambda: draw_archive(manifest.files, picture))
    facts = {
        "messages": manifest.rows,
        "files": len(manifest.files),
        "version": manifest.number,
        "out": str(out),
        "unreadable_bodies": archiving.unreadable_bodies,
    }
    output.show_one(facts, as_json=as_json)
    job.warn_unreadable(archiving.unreadable_bodies, "null in the archive")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job from a command line.

    Args:
        arguments: Command line; default: that of the process.

    Returns:
        The exit code.
    """
    return job.run_command("archive", archive, arguments)

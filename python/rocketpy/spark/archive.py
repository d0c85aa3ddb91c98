"""The job `archive`: copies topics into Parquet files by topic and day, every message exactly once.

`spark-submit spark/archive.py --name-server 127.0.0.1:9876 --topic flights --out archive` copies what came since the
last run. The offsets are part of the archive (`rocketpy.spark.archive_manifest`), so a job that was killed at any
moment is simply started again. See docs/spark.md.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from rocketpy.errors import InvalidArgumentError, OffsetError, RocketPyError, TopicNotFoundError
from rocketpy.message import MessageQueue
from rocketpy.spark.archive_files import Failure, join_files, write_partitions
from rocketpy.spark.archive_manifest import Archive, ArchiveError, ArchiveFile, Manifest, gaps
from rocketpy.spark.brokers import Ends, Found, again
from rocketpy.spark.columns import DEFAULT, TYPES, ddl
from rocketpy.spark.session import context_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition

ROUND_MESSAGES = 5_000_000
"""Messages between two commits: what a killed job does again."""
COMPACT_FILES = 16
FILE_BYTES = 256 << 20
NEEDED = ("topic", "broker_name", "queue_id", "queue_offset", "stored_at")
"""Columns without which an archive does not know what it holds."""


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """What to archive, and how.

    Attributes:
        out: Folder of the archive: local, or on a file system that all workers share.
        topics: At least one topic.
        name_server: `host:port` of each name server, joined by `;`; or None.
        path: Store folder; or None.
        broker_name: With a path: name of the broker, which a store does not know.
        columns: Columns to keep; those in `NEEDED` always are.
        round_messages: Messages between two commits.
        compact_files: Number of small files of one topic and day from which they are joined; 0 for never.
        file_bytes: Size of joined files.
        retry_seconds: How long the job goes on trying while brokers cannot be reached.
    """

    out: str
    topics: tuple[str, ...]
    name_server: str | None = None
    path: str | None = None
    broker_name: str = "broker"
    columns: tuple[str, ...] = DEFAULT
    round_messages: int = ROUND_MESSAGES
    compact_files: int = COMPACT_FILES
    file_bytes: int = FILE_BYTES
    retry_seconds: float = 180.0

    def source(self) -> dict[str, str]:
        """The options of the data source that say where to read."""
        if (self.path is None) == (self.name_server is None):
            raise InvalidArgumentError("give either the path of a store or the name_server of a cluster")
        if self.path is not None:
            return {"path": self.path, "broker_name": self.broker_name}
        return {"name_server": self.name_server or ""}


def bounds(options: ArchiveOptions) -> tuple[Ends, Ends]:
    """Asks where the queues begin and end now.

    Args:
        options: Of the job.

    Returns:
        The queue offset of the oldest message, and the one after the newest, by queue.

    Raises:
        TopicNotFoundError: A topic does not exist.
    """
    starts: Ends = {}
    ends: Ends = {}
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
    from rocketpy.admin import Admin

    with Admin(options.name_server) as admin:
        for topic in options.topics:
            for info in admin.describe_topic(topic).queues:
                starts[info.queue], ends[info.queue] = info.min_offset, info.max_offset
    return starts, ends


def next_round(done: Ends, starts: Ends, ends: Ends, messages: int) -> tuple[Ends, Ends]:
    """Chooses what to archive next.

    Args:
        done: Queue offset after the last archived message; queues that are not named are new.
        starts: Oldest queue offset now.
        ends: Queue offset after the newest message that is to be archived.
        messages: How many to take, about; each queue in proportion, and at least one of each.

    Returns:
        First queue offset, and the one to stop before, of each queue that has something.

    Raises:
        OffsetError: Retention removed messages that are not archived, or a queue ends before what is archived.

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
                hint="the topic was deleted and created again, or lost messages: archive it to another folder",
            )
    waiting = {queue: ends[queue] - at for queue, at in begins.items() if at < ends[queue]}
    share = min(1.0, messages / max(1, sum(waiting.values())))
    stops = {queue: begins[queue] + max(1, int(left * share)) for queue, left in waiting.items()}
    return {queue: begins[queue] for queue in stops}, stops


class ArchiveJob:
    """Archives topics with a session of Spark.

    Args:
        spark: The session. It must be a classic one, not one of Spark Connect.
        options: What to do.
        told: Called with a line of text for each step.
    """

    def __init__(self, spark: SparkSession, options: ArchiveOptions, told: Callable[[str], object] = print) -> None:
        self._context = context_of(spark)
        self._options = options
        self._told = told
        self._archive = Archive(options.out)

    def run(self) -> Manifest:
        """Archives what is there now, and joins small files.

        Returns:
            The newest manifest.

        Raises:
            ArchiveError: Another job writes the archive, or what was read is not what was asked for. Start it again.
            OffsetError: Messages that are not archived are gone.
            RocketPyError: A broker or a store cannot be read.
        """
        with self._archive.locked():
            _, ends = self._patiently(partial(bounds, self._options))
            manifest = self._archive.manifest()
            begun = manifest.rows
            total = sum(end - manifest.ends.get(queue, 0) for queue, end in ends.items())
            while True:
                fresh = self._patiently(partial(self._round, manifest, ends))
                if fresh is None:
                    break
                manifest = fresh
                self._told(f"manifest {manifest.number}: {manifest.rows - begun:,} messages of at most {total:,}")
            return self._compact(manifest)

    def _patiently(self, call: Callable[[], Found]) -> Found:
        def told(error: RocketPyError) -> None:
            self._told(f"trying again: {error}")

        return again(call, self._options.retry_seconds, told)

    def _round(self, manifest: Manifest, ends: Ends) -> Manifest | None:
        """Archives some messages and commits them. None if there are none left."""
        starts, _ = bounds(self._options)
        begins, stops = next_round(manifest.ends, starts, ends, self._options.round_messages)
        if not stops:
            return None
        idle = {queue: start for queue, start in starts.items() if queue not in stops}
        files = self._written({**idle, **begins}, {**idle, **stops})
        problems = gaps(stops, begins, files)
        if problems:
            text = f"what was read is not what was asked for: {'; '.join(problems)}"
            raise ArchiveError(text, retryable=True)  # a queue may have been made meanwhile
        fresh = Manifest(manifest.number + 1, {**manifest.ends, **stops}, manifest.files + tuple(files))
        self._archive.commit(fresh)
        return fresh

    def _written(self, begins: Ends, stops: Ends) -> list[ArchiveFile]:
        from pyspark.sql.types import StructType

        from rocketpy.spark.source import RocketPyDataSource

        kept = tuple(name for name in TYPES if name in {*NEEDED, *self._options.columns})
        options = {
            **self._options.source(),
            "topics": ",".join(self._options.topics),
            "starting_offsets": _offsets_text(begins),
            "ending_offsets": _offsets_text(stops),
        }
        reader = RocketPyDataSource(options).reader(cast("StructType", StructType.fromDDL(ddl(kept))))
        partitions = list(reader.partitions())
        staged = str(self._archive.staged)

        def write(mine: Iterable[InputPartition]) -> Iterator[ArchiveFile | Failure]:
            return write_partitions(reader, staged, mine)

        files: list[ArchiveFile] = []
        for one in self._context.parallelize(partitions, max(1, len(partitions))).mapPartitions(write).collect():
            if isinstance(one, Failure):
                raise ArchiveError(one.text, retryable=one.retryable)
            files.append(one)
        return files

    def _compact(self, manifest: Manifest) -> Manifest:
        """Joins small files of the same topic and day, where there are many."""
        groups = small_files(manifest.files, self._options.compact_files, self._options.file_bytes)
        if not groups:
            return manifest
        folder, staged = str(self._archive.folder), str(self._archive.staged)

        def join(mine: Iterable[tuple[ArchiveFile, ...]]) -> Iterator[ArchiveFile]:
            return (join_files(folder, staged, group) for group in mine)

        joined = self._context.parallelize(groups, len(groups)).mapPartitions(join).collect()
        gone = {one.name for group in groups for one in group}
        files = tuple(one for one in manifest.files if one.name not in gone) + tuple(joined)
        fresh = replace(manifest, number=manifest.number + 1, files=files)
        if fresh.rows != manifest.rows:
            raise ArchiveError(f"{fresh.rows} messages after joining files, {manifest.rows} before")
        self._archive.commit(fresh)
        self._told(f"manifest {fresh.number}: {len(gone)} files joined to {len(joined)}")
        return fresh


def small_files(files: Iterable[ArchiveFile], fewest: int, file_bytes: int) -> list[tuple[ArchiveFile, ...]]:
    """Chooses files to join.

    Args:
        files: Of an archive.
        fewest: Number of small files of one topic and day from which they are joined; 0 for never.
        file_bytes: Size that is aimed at; a file of half of it is not small.

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


def _offsets_text(offsets: Ends) -> str:
    """Offsets as the data source takes them."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in offsets.items():
        tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return json.dumps(tree)


def plan_text(options: ArchiveOptions) -> str:
    """Says what a run would do. Changes nothing.

    Args:
        options: Of the job.

    Raises:
        OffsetError: Messages that are not archived are gone.
    """
    starts, ends = bounds(options)
    done = Archive(options.out).manifest()
    begins, stops = next_round(done.ends, starts, ends, sum(ends.values()) + 1)
    lines = [f"{queue}: offsets {begins[queue]} to {to}" for queue, to in sorted(stops.items())]
    total = sum(to - begins[queue] for queue, to in stops.items())
    return "\n".join([*lines, f"{total:,} messages to archive, {done.rows:,} are in {options.out}"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the job from a command line.

    Args:
        arguments: Default: those of the process.
    """
    parser = argparse.ArgumentParser(
        prog="archive.py", description="Copies topics into Parquet files by topic and day, every message exactly once."
    )
    parser.add_argument("--name-server", help="host:port of a cluster's name server")
    parser.add_argument("--path", help="folder of a store, in place of a name server")
    parser.add_argument("--broker-name", default="broker", help="with --path: its broker (default: %(default)s)")
    parser.add_argument("--topic", action="append", required=True, help="a topic; may be given several times")
    parser.add_argument("--out", required=True, help="folder of the archive, the same for all workers")
    parser.add_argument("--columns", help="columns to keep, joined by commas (default: the first twelve of a read)")
    parser.add_argument(
        "--round-messages", type=int, default=ROUND_MESSAGES, help="messages between two commits (default: %(default)s)"
    )
    parser.add_argument(
        "--compact-files",
        type=int,
        default=COMPACT_FILES,
        help="join small files of a topic and day when there are this many; 0 for never (default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    given = parser.parse_args(arguments)
    if (given.path is None) == (given.name_server is None):
        parser.error("give --path or --name-server")
    options = ArchiveOptions(
        out=given.out,
        topics=tuple(dict.fromkeys(given.topic)),
        name_server=given.name_server,
        path=given.path,
        broker_name=given.broker_name,
        columns=tuple(given.columns.split(",")) if given.columns else DEFAULT,
        round_messages=given.round_messages,
        compact_files=given.compact_files,
    )
    if given.dry_run:
        print(plan_text(options))
        return
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("archive").getOrCreate()
    try:
        manifest = ArchiveJob(spark, options, lambda line: print(line, flush=True)).run()
    finally:
        spark.stop()
    print(f"{manifest.rows:,} messages in {len(manifest.files)} files of {given.out}")

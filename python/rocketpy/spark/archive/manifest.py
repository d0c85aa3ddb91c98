"""Archives of any format: their files, and the offsets up to which they hold every message."""

from __future__ import annotations

import fcntl
import json
import os
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from rocketpy.errors import DamagedDataError, RocketPyError
from rocketpy.message import MessageQueue
from rocketpy.spark.fingerprint import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from rocketpy.spark.offsets import Offsets

    Join: TypeAlias = Callable[[Sequence[Sequence["ArchiveFile"]]], Sequence["ArchiveFile"]]
    """Makes one staged file of each group of files."""


class ArchiveError(RocketPyError):
    """An archive cannot be written; the text contains the cause. Committed files stay unchanged."""


@dataclass(frozen=True, slots=True)
class Covered:
    """The messages of one queue in one file."""

    broker_name: str
    queue_id: int
    first: int
    """Queue offset of the first message."""
    last: int
    """Queue offset of the last."""
    rows: int


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file of an archive."""

    name: str
    """Name of the file; of one in a Delta table, its path as the table has it."""
    topic: str
    day: str
    """Day at which the broker stored the messages, in UTC, such as 2026-11-27."""
    rows: int
    size_bytes: int
    covered: tuple[Covered, ...]
    """Messages of the file, by queue; empty for a file in a Delta table, which does not store them."""

    @property
    def place(self) -> str:
        """Path in the archive, as Spark writes partitions.

        Examples:
            >>> ArchiveFile("rocketpy-1.parquet", "%RETRY%g", "2026-11-27", 0, 0, ()).place
            'topic=%25RETRY%25g/day=2026-11-27/rocketpy-1.parquet'
        """
        return f"topic={quote(self.topic, safe='')}/day={self.day}/{self.name}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A state of an archive."""

    number: int = 0
    ends: Offsets = field(default_factory=dict)
    """Queue offset after the last archived message, by queue."""
    files: tuple[ArchiveFile, ...] = ()
    previous: Mapping[MessageQueue, Fingerprint] = field(default_factory=dict)
    """Last archived message, by queue; without queues that only an older version archived."""

    @property
    def names(self) -> set[str]:
        """Names of the files."""
        return {one.name for one in self.files}

    @property
    def rows(self) -> int:
        """Messages in the archive."""
        return sum(one.rows for one in self.files)

    def text(self) -> str:
        """The manifest as JSON."""
        ends = [(queue.topic, queue.broker_name, queue.queue_id, end) for queue, end in sorted(self.ends.items())]
        previous = [
            (queue.topic, queue.broker_name, queue.queue_id, *times) for queue, times in sorted(self.previous.items())
        ]
        files = [asdict(one) for one in self.files]
        return json.dumps({"v": 1, "number": self.number, "ends": ends, "previous": previous, "files": files})

    @classmethod
    def of(cls, text: str) -> Manifest:
        """Reads what `text` wrote.

        Raises:
            DamagedDataError: The text is not a manifest of this version.
        """
        try:
            tree = json.loads(text)
            if tree["v"] != 1:
                raise DamagedDataError(f"a manifest of another version: {tree['v']}")
            ends = {MessageQueue(topic, broker, queue): end for topic, broker, queue, end in tree["ends"]}
            files = tuple(
                replace(ArchiveFile(**one), covered=tuple(Covered(**part) for part in one["covered"]))
                for one in tree["files"]
            )
            previous = {
                MessageQueue(topic, broker, queue): Fingerprint(*times)
                for topic, broker, queue, *times in tree.get("previous", [])
            }
            return cls(tree["number"], ends, files, previous)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise DamagedDataError(f"not a manifest: {error}") from error


class Archive(ABC):
    """The folder of an archive. One job at a time changes it.

    Args:
        folder: Local, or on a file system that all workers share.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self.own = self.folder / "_rocketpy"
        self.staged = self.own / "staged"

    @contextmanager
    def locked(self) -> Generator[None]:
        """Locks the archive, and cleans up after a killed job.

        Raises:
            ArchiveError: Another job runs.
            InvalidArgumentError: The folder holds something else.
            DamagedDataError: A committed file is gone.
        """
        self.staged.mkdir(parents=True, exist_ok=True)
        with (self.own / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ArchiveError(
                    f"another job writes this archive: {self.folder}", retryable=True, hint="start one job at a time"
                ) from None
            self.settle()
            yield

    @abstractmethod
    def manifest(self, queues: Iterable[MessageQueue]) -> Manifest:
        """Returns the newest state, empty for a new archive. Changes nothing.

        Args:
            queues: Queues whose ends are requested; the state may contain more.

        Raises:
            InvalidArgumentError: The folder holds something else.
        """

    @abstractmethod
    def queues(self, topic: str) -> set[MessageQueue]:
        """Returns the queues of a topic with archived messages; may include more queues of the same brokers.

        Args:
            topic: The topic.
        """

    @abstractmethod
    def append(
        self,
        manifest: Manifest,
        files: Sequence[ArchiveFile],
        ends: Offsets,
        previous: Mapping[MessageQueue, Fingerprint],
    ) -> Manifest:
        """Adds files, and the offsets up to which they hold every message, in one commit. On return it is durable.

        Args:
            manifest: The newest state.
            files: Files that are staged and durable.
            ends: Queue offset after the last message, by queue.
            previous: Last message of the same queues.

        Returns:
            The new state.

        Raises:
            ArchiveError: Another job was faster. Nothing changed.
        """

    @abstractmethod
    def compact(
        self, manifest: Manifest, groups: Sequence[Sequence[ArchiveFile]], file_bytes: int, join: Join
    ) -> Manifest:
        """Joins files, in one commit or several.

        Args:
            manifest: The newest state.
            groups: Files of one topic and day each.
            file_bytes: Target size of a file.
            join: Function that joins files, for formats without compaction.

        Returns:
            The new state.

        Raises:
            ArchiveError: Another job was faster.
        """

    @abstractmethod
    def settle(self) -> None:
        """Cleans up after a killed job.

        Raises:
            InvalidArgumentError: The folder holds something else. Nothing changed.
        """

    def move_to_places(self, files: Iterable[ArchiveFile]) -> None:
        """Moves staged files to their places. On return their entries are durable."""
        touched: set[Path] = set()
        for one in files:
            path = self.folder / one.place
            path.parent.mkdir(parents=True, exist_ok=True)
            (self.staged / one.name).rename(path)
            touched |= {path.parent, path.parent.parent, self.folder}
        for folder in touched:
            sync(folder)


def gaps(ends: Offsets, starts: Offsets, files: Iterable[ArchiveFile]) -> list[str]:
    """Compares the messages of files with the requested ones.

    Args:
        ends: Queue offset after the last message, by queue.
        starts: First queue offset, by queue.
        files: All files that were written for them.

    Returns:
        A sentence for each queue with missing or duplicate messages; empty without findings.
    """
    found: dict[MessageQueue, list[Covered]] = {}
    for one in files:
        for part in one.covered:
            found.setdefault(MessageQueue(one.topic, part.broker_name, part.queue_id), []).append(part)
    problems = []
    for queue, end in ends.items():
        start, parts = starts[queue], found.pop(queue, [])
        rows = sum(part.rows for part in parts)
        outside = [part for part in parts if part.first < start or part.last >= end]
        if rows != end - start or outside:
            problems.append(f"{queue}: {rows} messages for offsets {start} to {end}")
    return problems + [f"{queue}: not asked for" for queue in found]


def sync(path: Path) -> None:
    """Makes a file, or the entries of a folder, durable."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

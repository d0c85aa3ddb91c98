"""The manifest of an archive: which files it consists of, and the offsets up to which they hold every message.

# Layout

    out/topic=flights/day=2026-11-27/rocketpy-<id>.parquet     the archive
    out/_rocketpy/manifest-00000012.json                       its newest manifest, complete by itself
    out/_rocketpy/staged/rocketpy-<id>.parquet                 written, not committed or not moved yet
    out/_rocketpy/lock                                         locked by the job that runs

A file becomes part of the archive by the manifest that names it, together with the offsets that it covers, and moves to
its place after that. What a killed job left is put in order by the next one.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from rocketpy.errors import DamagedDataError, RocketPyError
from rocketpy.message import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from rocketpy.spark.offsets import Offsets

KEPT = 2
"""Manifests that are kept: the newest, and the one before it for a look by hand."""


class ArchiveError(RocketPyError):
    """An archive cannot be written; the text says why. What is committed stays as it is."""


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
    topic: str
    day: str
    """Day at which the broker stored the messages, in UTC, such as 2026-11-27."""
    rows: int
    size_bytes: int
    covered: tuple[Covered, ...]

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
    """By queue, the queue offset after the last archived message."""
    files: tuple[ArchiveFile, ...] = ()

    @property
    def rows(self) -> int:
        """Messages in the archive."""
        return sum(one.rows for one in self.files)

    def text(self) -> str:
        """The manifest as JSON."""
        ends = [(queue.topic, queue.broker_name, queue.queue_id, end) for queue, end in sorted(self.ends.items())]
        return json.dumps({"v": 1, "number": self.number, "ends": ends, "files": [asdict(one) for one in self.files]})

    @classmethod
    def of(cls, text: str) -> Manifest:
        """Reads what `text` wrote.

        Raises:
            DamagedDataError: It is no manifest of this version.
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
            return cls(tree["number"], ends, files)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedDataError(f"not a manifest: {error}") from error


class Archive:
    """The folder of an archive. One job at a time changes it.

    Args:
        folder: Local, or on a file system that all workers share.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self._own = self.folder / "_rocketpy"
        self.staged = self._own / "staged"

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keeps other jobs out, and puts in order what a killed one left.

        Raises:
            ArchiveError: Another job runs.
            DamagedDataError: A committed file is gone.
        """
        self.staged.mkdir(parents=True, exist_ok=True)
        with (self._own / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ArchiveError(f"another job writes this archive: {self.folder}", retryable=True) from None
            self._settle(self.manifest())
            yield

    def manifest(self) -> Manifest:
        """The newest manifest; an empty one where there is none."""
        paths = self._manifests()
        return Manifest.of(paths[-1].read_text()) if paths else Manifest()

    def commit(self, manifest: Manifest) -> None:
        """Makes a manifest the newest. On return it is durable and its files are at their places.

        Args:
            manifest: Its number is one more than that of the newest. New files are staged and durable.

        Raises:
            ArchiveError: There is a manifest of this number: another job wrote it. Nothing changed.
        """
        path = self._own / f"manifest-{manifest.number:08}.json"
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        with fresh.open("w") as file:
            file.write(manifest.text())
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.staged)
        try:
            path.hardlink_to(fresh)  # fails where a rename would replace
        except FileExistsError:
            raise ArchiveError(f"another job wrote {path.name}", retryable=True) from None
        finally:
            fresh.unlink()
        sync_folder(self._own)
        self._settle(manifest)

    def _manifests(self) -> list[Path]:
        return sorted(path for path in self._own.glob("manifest-*.json") if re.fullmatch(r"manifest-\d+", path.stem))

    def _settle(self, manifest: Manifest) -> None:
        """Moves committed files to their places, and removes what the manifest does not name."""
        places = {one.place: one for one in manifest.files}
        for path in self.folder.glob("topic=*/day=*/rocketpy-*.parquet"):
            if str(path.relative_to(self.folder)) not in places:
                path.unlink()
        touched = set()
        for place, one in places.items():
            path, staged = self.folder / place, self.staged / one.name
            if staged.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                staged.rename(path)
                touched.add(path.parent)
            elif not path.exists():
                raise DamagedDataError(f"a file of the archive is gone: {path}")
        for path in self.staged.iterdir():
            path.unlink()
        for path in (*self._manifests()[:-KEPT], *self._own.glob("*.tmp")):
            path.unlink()
        for folder in touched:
            for above in (folder, folder.parent, self.folder):
                sync_folder(above)


def gaps(ends: Offsets, starts: Offsets, files: Iterable[ArchiveFile]) -> list[str]:
    """Compares what files hold with what they should hold.

    Args:
        ends: Queue offset after the last message, by queue.
        starts: First queue offset, by queue.
        files: All files that were written for them.

    Returns:
        A sentence for each queue of which messages are missing or there twice; empty if all is well.
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


def sync_folder(folder: Path) -> None:
    """Makes the entries of a folder durable."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

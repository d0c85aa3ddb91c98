"""Archives of Parquet files, with a manifest that lists the files.

# Layout

    out/topic=flights/day=2026-11-27/rocketpy-<id>.parquet     the archive
    out/topic=!text/day=1970-01-01/schema.parquet              no rows; all columns of the archive
    out/_common_metadata                                       all columns of the archive
    out/_rocketpy/manifest-00000012.json                       its newest manifest, complete by itself
    out/_rocketpy/staged/rocketpy-<id>.parquet                 written, not committed or not moved yet
    out/_rocketpy/lock                                         locked by the job that runs

A file becomes part of the archive by the manifest that names it, together with the offsets that it covers, and moves to
its place after that. What a killed job left is put in order by the next one.

Spark, pyarrow and pandas guess the type of `topic` from the names of folders: `topic=007` would be the number 7. The
folder of the file without rows makes it text, because its name is not a number, a date or a topic. Runs may keep
different columns. Spark takes the columns of `_common_metadata`, pyarrow and pandas those of the first file: that is
the file without rows, as `!` sorts before each character of a topic.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketpy.errors import DamagedDataError, InvalidArgumentError
from rocketpy.spark.archive.files import union_schema
from rocketpy.spark.archive.manifest import Archive, ArchiveError, Manifest, sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rocketpy.message import MessageQueue
    from rocketpy.spark.archive.manifest import ArchiveFile, Join
    from rocketpy.spark.fingerprint import Fingerprint
    from rocketpy.spark.offsets import Offsets

SCHEMA_PLACE = "topic=!text/day=1970-01-01/schema.parquet"
"""Place of the file without rows. Older versions leave it alone."""
COMMON_METADATA = "_common_metadata"
KEPT = 2
"""Number of manifests to keep: the newest one, and its predecessor for manual inspection."""


class ParquetArchive(Archive):
    """A folder with Parquet files.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        self._described, self._common = self.folder / SCHEMA_PLACE, self.folder / COMMON_METADATA

    def manifest(self, queues: Iterable[MessageQueue] = ()) -> Manifest:
        """Returns the newest manifest, empty for a new archive."""
        if (self.folder / "_delta_log").exists():
            raise InvalidArgumentError(
                f"a table of Delta Lake, not an archive of Parquet files: {self.folder}",
                hint='use --format delta (format="delta"), or another --out',
            )
        paths = self._manifests()
        return Manifest.of(paths[-1].read_text()) if paths else Manifest()

    def queues(self, topic: str) -> set[MessageQueue]:
        """Those in the newest manifest."""
        return {queue for queue in self.manifest().ends if queue.topic == topic}

    def append(
        self,
        manifest: Manifest,
        files: Sequence[ArchiveFile],
        ends: Offsets,
        previous: Mapping[MessageQueue, Fingerprint],
    ) -> Manifest:
        """Commits a manifest with files and offsets added."""
        fresh = Manifest(
            manifest.number + 1,
            {**manifest.ends, **ends},
            (*manifest.files, *files),
            {**manifest.previous, **previous},
        )
        self.commit(fresh)
        return fresh

    def compact(
        self, manifest: Manifest, groups: Sequence[Sequence[ArchiveFile]], file_bytes: int, join: Join
    ) -> Manifest:
        """Commits a manifest with files joined."""
        gone = {one.name for group in groups for one in group}
        files = (*(one for one in manifest.files if one.name not in gone), *join(groups))
        fresh = replace(manifest, number=manifest.number + 1, files=files)
        if fresh.rows != manifest.rows:
            raise ArchiveError(f"{fresh.rows} messages after joining files, {manifest.rows} before")
        self.commit(fresh)
        return fresh

    def commit(self, manifest: Manifest) -> None:
        """Makes a manifest the newest. On return it is durable and its files are at their places.

        Args:
            manifest: Manifest with the next number. New files are staged and durable.

        Raises:
            ArchiveError: A manifest of this number exists: another job wrote it. Nothing changed.
        """
        path = self.own / f"manifest-{manifest.number:08}.json"
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        with fresh.open("w") as file:
            file.write(manifest.text())
            file.flush()
            os.fsync(file.fileno())
        sync(self.staged)
        if staged := [self.staged / one.name for one in manifest.files if (self.staged / one.name).exists()]:
            self._describe(staged)
        try:
            path.hardlink_to(fresh)  # fails where a rename would replace
        except FileExistsError:
            raise ArchiveError(f"another job wrote {path.name}", hint="start one job at a time") from None
        finally:
            fresh.unlink()
        sync(self.own)
        self.settle()

    def settle(self) -> None:
        """Moves committed files to their places, and removes files that the newest manifest does not list."""
        places = {one.place: one for one in self.manifest().files}
        for path in self.folder.glob("topic=*/day=*/rocketpy-*.parquet"):
            if str(path.relative_to(self.folder)) not in places:
                path.unlink()
        self.move_to_places(one for one in places.values() if (self.staged / one.name).exists())
        for place in places:
            if not (self.folder / place).exists():
                raise DamagedDataError(f"file of the archive is missing: {self.folder / place}")
        for path in (*self.staged.iterdir(), *self._manifests()[:-KEPT], *self.own.glob("*.tmp")):
            path.unlink()
        if places and not (self._described.exists() and self._common.exists()):
            self._describe([self.folder / place for place in places])  # an archive of an older version

    def _describe(self, files: Sequence[Path]) -> None:
        """Writes the columns of the archive for its readers, if the columns changed."""
        import pyarrow.parquet as pq

        known = [self._described] if self._described.exists() and self._common.exists() else []
        schema = union_schema([*known, *files])
        if known and schema.names == pq.read_schema(self._described).names:
            return
        self._described.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(schema.empty_table(), self.staged / self._described.name)
        pq.write_metadata(schema, self.staged / self._common.name)
        # The first one is compared above: it comes last, so that a run that was killed is repeated.
        for path in (self._common, self._described):
            sync(self.staged / path.name)
            (self.staged / path.name).replace(path)
        for folder in (self._described.parent, self._described.parent.parent, self.folder):
            sync(folder)

    def _manifests(self) -> list[Path]:
        return sorted(path for path in self.own.glob("manifest-*.json") if re.fullmatch(r"manifest-\d+", path.stem))

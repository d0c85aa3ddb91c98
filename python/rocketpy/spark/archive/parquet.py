"""Archives of Parquet files, with a manifest that lists the files.

# Layout

    out/topic=flights/day=2026-11-27/rocketpy-<id>.parquet     the archive
    out/_rocketpy/manifest-00000012.json                       its newest manifest, complete by itself
    out/_rocketpy/staged/rocketpy-<id>.parquet                 written, not committed or not moved yet
    out/_rocketpy/lock                                         locked by the job that runs

A file becomes part of the archive by the manifest that names it, together with the offsets that it covers, and moves to
its place after that. What a killed job left is put in order by the next one.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketpy.errors import DamagedDataError, InvalidArgumentError
from rocketpy.spark.archive.manifest import Archive, ArchiveError, Manifest, sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rocketpy.message import MessageQueue
    from rocketpy.spark.archive.manifest import ArchiveFile, Join
    from rocketpy.spark.fingerprint import Fingerprint
    from rocketpy.spark.offsets import Offsets

KEPT = 2
"""Number of manifests to keep: the newest one, and its predecessor for manual inspection."""


class ParquetArchive(Archive):
    """A folder with Parquet files."""

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

    def _manifests(self) -> list[Path]:
        return sorted(path for path in self.own.glob("manifest-*.json") if re.fullmatch(r"manifest-\d+", path.stem))

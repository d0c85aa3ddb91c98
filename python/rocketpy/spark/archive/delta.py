"""An archive as a table of Delta Lake: one commit adds files and the offsets up to which they hold every message.

# Layout

    out/_delta_log/00000000000000000012.json                   commits of the table
    out/topic=flights/day=2026-11-27/rocketpy-<id>.parquet     the archive, if a commit names it
    out/_rocketpy/staged/rocketpy-<id>.parquet                 written, not committed
    out/_rocketpy/lock                                         locked by the job that runs

The end of each queue is an application transaction (`txn`) of the table, and so are both times of its last message.
Delta keeps the newest one of each id, also in checkpoints. Of two commits at the same time with the same id it refuses
the second.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from rocketpy.errors import InvalidArgumentError, RocketPyError
from rocketpy.message import MessageQueue
from rocketpy.spark.archive.files import ROW_GROUP_ROWS
from rocketpy.spark.archive.manifest import Archive, ArchiveError, ArchiveFile, Manifest, sync
from rocketpy.spark.fingerprint import Fingerprint

try:
    from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.transaction import AddAction
except ImportError as missing:
    raise RocketPyError("deltalake is not installed", hint='pip install "rocketpy-mq[delta]"') from missing

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from pathlib import Path

    from rocketpy.spark.archive.manifest import Join
    from rocketpy.spark.offsets import Offsets

PARTITION_COLUMNS = ["topic", "day"]


class DeltaArchive(Archive):
    """A folder with a Delta table.

    Args:
        folder: The folder.
        schema: Schema of the messages, with the column topic. The table has a column day as well.
    """

    def __init__(self, folder: str | Path, schema: pa.Schema) -> None:
        super().__init__(folder)
        self._schema = schema.append(pa.field("day", pa.date32()))

    def manifest(self, queues: Iterable[MessageQueue]) -> Manifest:
        """The newest version of the table."""
        if any(self.own.glob("manifest-*.json")):
            raise InvalidArgumentError(
                f"an archive of Parquet files, not of Delta Lake: {self.folder}",
                hint='use --format parquet (format="parquet"), or another --out',
            )
        if not DeltaTable.is_deltatable(str(self.folder)):
            return Manifest()
        with _explained("read"):
            table = DeltaTable(self.folder)
            self._check_columns(table)
            ends = {
                queue: end for queue in queues if (end := table.transaction_version(_transaction_id(queue))) is not None
            }
            previous = {queue: last for queue in ends if (last := _last_message(table, queue)) is not None}
            actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        files = tuple(
            ArchiveFile(
                name=one["path"],
                topic=one["partition.topic"],
                day=str(one["partition.day"]),
                rows=one["num_records"] or 0,
                size_bytes=one["size_bytes"],
                covered=(),
            )
            for one in actions
        )
        return Manifest(table.version(), ends, files, previous)

    def queues(self, topic: str) -> set[MessageQueue]:
        """Those up to the last number, of the first and the last broker of each file.

        Others compact the table too, and keep this much of what it holds.
        """
        if not DeltaTable.is_deltatable(str(self.folder)):
            return set()
        with _explained("read"):
            actions = pa.table(DeltaTable(self.folder).get_add_actions(flatten=True)).to_pylist()
        mine = [one for one in actions if one["partition.topic"] == topic]
        names = {one[end] for one in mine for end in ("min.broker_name", "max.broker_name") if one.get(end)}
        last = max((one.get("max.queue_id") or 0 for one in mine), default=0)
        return {MessageQueue(topic, name, queue_id) for name in names for queue_id in range(last + 1)}

    def append(
        self,
        manifest: Manifest,
        files: Sequence[ArchiveFile],
        ends: Offsets,
        previous: Mapping[MessageQueue, Fingerprint],
    ) -> Manifest:
        """Commits files and offsets as one version of the table."""
        self.move_to_places(files)
        transactions = [Transaction(_transaction_id(queue), end) for queue, end in ends.items()]
        for queue, times in previous.items():
            transactions += map(Transaction, _previous_ids(queue), times)
        try:
            with _explained("write"):
                # Of this version: an offset that another job committed later makes the commit fail.
                DeltaTable(self.folder, version=manifest.number).create_write_transaction(
                    [self._add_action(one) for one in files],
                    mode="append",
                    schema=self._schema,
                    partition_by=PARTITION_COLUMNS,
                    commit_properties=CommitProperties(app_transactions=transactions),
                )
        except ArchiveError:
            if not self._has_committed(files, ends):
                raise
        return self._durable(manifest, {**manifest.ends, **ends})

    def _has_committed(self, files: Sequence[ArchiveFile], ends: Offsets) -> bool:
        """Whether a commit succeeded although it reported an error.

        Storage can lose the response of a commit. The library then tries again, and its own commit conflicts with it.
        """
        fresh = self.manifest(ends)
        is_named = {one.place for one in files} <= {unquote(name) for name in fresh.names}
        return is_named and all(fresh.ends.get(queue) == end for queue, end in ends.items())

    def compact(
        self, manifest: Manifest, groups: Sequence[Sequence[ArchiveFile]], file_bytes: int, join: Join
    ) -> Manifest:
        """Joins files by Delta's own compaction, and removes those that were replaced a week ago (by default)."""
        with _explained("compact"):
            table = DeltaTable(self.folder)
            for topic, day in sorted({(group[0].topic, group[0].day) for group in groups}):
                table.optimize.compact(
                    partition_filters=[("topic", "=", topic), ("day", "=", day)],
                    target_size=file_bytes,
                    writer_properties=WriterProperties(compression="ZSTD", max_row_group_size=ROW_GROUP_ROWS),
                )
            table.vacuum(dry_run=False, full=True)
        return self._durable(manifest, manifest.ends)

    def settle(self) -> None:
        """Removes staged files of a killed job, and creates the table if it does not exist.

        Files that a killed job moved to their places and did not commit are left to vacuum.
        """
        self.manifest(())
        for path in self.staged.iterdir():
            path.unlink()
        if not DeltaTable.is_deltatable(str(self.folder)):
            with _explained("create"):
                DeltaTable.create(self.folder, self._schema, partition_by=PARTITION_COLUMNS)
            self._durable(Manifest(-1), ())

    def _check_columns(self, table: DeltaTable) -> None:
        there = [field.name for field in table.schema().fields]
        if there != self._schema.names or table.metadata().partition_columns != PARTITION_COLUMNS:
            raise ArchiveError(
                f"the table {self.folder} has the columns {', '.join(there)}, not {', '.join(self._schema.names)}",
                hint="the columns of a table cannot change: use the same columns, or archive to another folder",
            )

    def _add_action(self, one: ArchiveFile) -> AddAction:
        stat = (self.folder / one.place).stat()
        least = {name: min(getattr(part, field) for part in one.covered) for name, field in _LEAST.items()}
        most = {name: max(getattr(part, field) for part in one.covered) for name, field in _MOST.items()}
        stats = {"numRecords": one.rows, "minValues": least, "maxValues": most}
        values = {"topic": one.topic, "day": one.day}
        return AddAction(one.place, stat.st_size, values, round(stat.st_mtime * 1000), True, json.dumps(stats))

    def _durable(self, before: Manifest, queues: Iterable[MessageQueue]) -> Manifest:
        """Makes the versions since `before` durable, which the library does not, and returns the newest one.

        Checkpoints too: readers begin with the one that `_last_checkpoint` names, whole or not.
        """
        fresh, log = self.manifest(queues), self.folder / "_delta_log"
        files = {self.folder / unquote(name) for name in fresh.names - before.names}
        commits = [log / f"{version:020}.json" for version in range(before.number + 1, fresh.number + 1)]
        for path in (*files, *{file.parent for file in files}, *commits, *log.glob("*checkpoint*"), log):
            sync(path)
        return fresh


_LEAST = {"broker_name": "broker_name", "queue_id": "queue_id", "queue_offset": "first"}
_MOST = {**_LEAST, "queue_offset": "last"}
"""Columns of which Delta's readers know the range in each file, and the field of `Covered` for the range."""


def _transaction_id(queue: MessageQueue) -> str:
    return f"rocketpy-archive:{queue}"


def _last_message(table: DeltaTable, queue: MessageQueue) -> Fingerprint | None:
    """None in a table that only an older version wrote."""
    stored_at, born_at = (table.transaction_version(one) for one in _previous_ids(queue))
    return None if stored_at is None or born_at is None else Fingerprint(stored_at, born_at)


def _previous_ids(queue: MessageQueue) -> list[str]:
    return [f"rocketpy-archive-{name}:{queue}" for name in Fingerprint._fields]


@contextmanager
def _explained(what: str) -> Generator[None]:
    """Turns the library's errors into those of an archive."""
    try:
        yield
    except CommitFailedError as error:
        raise ArchiveError(
            f"another job wrote this table at the same time: {error}", hint="start one job at a time"
        ) from error
    except DeltaError as error:
        raise ArchiveError(f"cannot {what} the table: {error}") from error

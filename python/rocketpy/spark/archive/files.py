"""Writes and joins the Parquet files of an archive, in the workers."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpy.errors import DamagedDataError, RocketPyError
from rocketpy.spark.archive.manifest import ArchiveFile, Covered
from rocketpy.spark.batches import arrow_type
from rocketpy.spark.columns import TYPES
from rocketpy.spark.pull import null_bodies

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.datasource import DataSourceReader, InputPartition

ROW_GROUP_ROWS = 65_536
UNKNOWN_DAY = "1970-01-01"
"""Day of a message whose store time is not one that readers can represent."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Error of a worker that could not do its part."""

    text: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class NullBodies:
    """Number of messages of a worker whose body does not decompress."""

    count: int


@dataclass(slots=True)
class Writing:
    """File that is being written."""

    path: Path
    writer: pq.ParquetWriter
    topic: str
    day: str
    rows: int = 0
    covered: dict[tuple[str, int], Covered] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Appends rows of its topic and day, those of each queue in their order."""
        self.writer.write_table(rows.drop_columns(["topic"]), row_group_size=ROW_GROUP_ROWS)
        self.rows += rows.num_rows
        summed = rows.group_by(["broker_name", "queue_id"]).aggregate(
            [("queue_offset", "min"), ("queue_offset", "max"), ("queue_offset", "count_distinct")]
        )
        for one in summed.to_pylist():
            key = (one["broker_name"] or "", one["queue_id"])
            first, last, count = (one[f"queue_offset_{what}"] for what in ("min", "max", "count_distinct"))
            known = self.covered.get(key, Covered(*key, first, last, 0))
            self.covered[key] = Covered(*key, min(known.first, first), max(known.last, last), known.rows + count)

    def finished(self) -> ArchiveFile:
        """Closes the file. On return it is durable, but for the entry in its folder."""
        self.writer.close()
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        parts = tuple(self.covered[key] for key in sorted(self.covered))
        return ArchiveFile(self.path.name, self.topic, self.day, self.rows, self.path.stat().st_size, parts)


def begin(staged: Path, topic: str, day: str, schema: pa.Schema) -> Writing:
    """Opens a new file.

    Args:
        staged: Folder for the file.
        topic: Topic of the rows.
        day: Day of the rows.
        schema: Schema of the rows, with the topic.
    """
    import pyarrow.parquet as pq

    path = staged / f"rocketpy-{uuid.uuid4().hex}.parquet"
    kept = schema.remove(schema.get_field_index("topic"))
    dictionaries = [name for name in ("broker_name", "tag") if name in kept.names]
    writer = pq.ParquetWriter(path, kept, compression="zstd", use_dictionary=dictionaries)  # pyright: ignore[reportArgumentType]
    return Writing(path, writer, topic, day)


def write_partitions(
    reader: DataSourceReader, staged: str, partitions: Iterable[InputPartition]
) -> Iterator[ArchiveFile | Failure | NullBodies]:
    """Writes the messages of partitions of a read, with a file for each topic and day.

    Args:
        reader: Reader of the data source, with the columns topic, broker_name, queue_id, queue_offset and stored_at.
        staged: Folder for the files.
        partitions: Partitions of the reader.

    Yields:
        The files, and the number of null bodies if there are any; or a failure, after which the files must not be used.
    """
    try:
        for partition in partitions:
            yield from _write_partition(reader, Path(staged), partition)
    except RocketPyError as error:
        yield Failure(f"{type(error).__name__}: {error}", error.retryable or error.may_have_been_applied)


def _write_partition(
    reader: DataSourceReader, staged: Path, partition: InputPartition
) -> Iterator[ArchiveFile | NullBodies]:
    import pyarrow as pa
    import pyarrow.compute as pc

    opened: dict[tuple[str, str], Writing] = {}
    unreadable = 0
    for batch in reader.read(partition):
        unreadable += null_bodies(batch)
        rows = pa.Table.from_batches([batch])
        days = pc.fill_null(rows["stored_at"].cast(pa.date32()).cast(pa.string()), UNKNOWN_DAY)
        pairs = pa.table({"topic": rows["topic"], "day": days}).group_by(["topic", "day"]).aggregate([]).to_pylist()
        for pair in pairs:
            key = (pair["topic"], pair["day"])
            if key not in opened:
                opened[key] = begin(staged, *key, rows.schema)
            mine = rows
            if len(pairs) > 1:
                mine = rows.filter(pc.and_(pc.equal(rows["topic"], key[0]), pc.equal(days, key[1])))
            opened[key].add(mine)
    for one in opened.values():
        yield one.finished()
    if unreadable:
        yield NullBodies(unreadable)


def union_schema(paths: Iterable[Path]) -> pa.Schema:
    """Returns the columns that any of some files has, in the order of a read: runs may keep different columns.

    Args:
        paths: Files of an archive.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = {field.name: field.type for path in paths for field in pq.read_schema(path)}
    types = {name: arrow_type(kind) for name, kind in TYPES.items()}  # those of a file have numbers of its own fields
    return pa.schema([(name, kind) for name, kind in (types | found | types).items() if name in found])


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Adds the columns that rows lack, as nulls, and orders them as in the schema."""
    import pyarrow as pa

    columns = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


def join_files(folder: str, staged: str, group: Sequence[ArchiveFile]) -> ArchiveFile:
    """Joins several files of the same topic and day.

    Args:
        folder: Folder of the archive.
        staged: Folder for the new file.
        group: Files to join; each queue's messages keep their order if they are in order in the files.

    Raises:
        DamagedDataError: The number of rows differs from the manifest.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = group[0]
    joined: Writing | None = None
    schema = union_schema(Path(folder) / one.place for one in group)
    for one in sorted(group, key=lambda one: [(part.broker_name, part.queue_id, part.first) for part in one.covered]):
        source = pq.ParquetFile(Path(folder) / one.place)
        for batch in source.iter_batches(batch_size=ROW_GROUP_ROWS):
            rows = _with_columns(pa.Table.from_batches([batch]), schema)
            rows = rows.append_column("topic", pa.repeat(first.topic, rows.num_rows))
            joined = joined or begin(Path(staged), first.topic, first.day, rows.schema)
            joined.add(rows)
    wanted = sum(one.rows for one in group)
    if joined is None or joined.rows != wanted:
        raise DamagedDataError(
            f"files of topic {first.topic}, {first.day}, do not have the {wanted} rows of the manifest"
        )
    return joined.finished()

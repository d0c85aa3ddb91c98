"""The data source `rocketpy`: readers for store folders and clusters, a stream reader and a sink for clusters."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rocketpy.spark.columns import DEFAULT, check_columns, chosen_columns, ddl
from rocketpy.spark.options import ReadOptions, parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from rocketpy.spark.part import Groupings
    from rocketpy.store import StoreRange


class RocketPyDataSource(DataSource):
    """Reads messages as rows: `spark.read.format("rocketpy")` and `spark.readStream.format("rocketpy")`.

    Options (also in camelCase) are those of `rocketpy.spark.options.ReadOptions`.

    Spark 4.3 hands a Python source neither the columns nor the filters of a query, and its filter push-down mixes the
    scans of one DataFrame up. So columns are chosen by the option or by a schema, and messages by options. What a
    DataFrame reads is fixed when it is planned: call `load()` again to see newer messages.
    """

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format`."""
        return "rocketpy"

    @cached_property
    def read_options(self) -> ReadOptions:
        """The checked options. Relative times count from the first access."""
        return parse_options(self.options)

    def schema(self) -> str:
        """Schema of the rows when the user gave none."""
        options = parse_options(self.options, kind=None)
        if options.columns is not None:
            return ddl(check_columns(options.columns))
        return ddl([name for name in DEFAULT if options.include_properties or name != "properties"])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Creates the reader.

        Args:
            schema: Schema from `schema`, or with columns selected by the user.
        """
        options = self.read_options
        return RocketPyReader(options, chosen_columns(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Creates the reader of a stream.

        Args:
            schema: Schema from `schema`, or with columns selected by the user.
        """
        from rocketpy.spark.stream import RocketPyStreamReader

        return RocketPyStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Creates the batch writer; see `rocketpy.spark.sink.writers`."""
        from rocketpy.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Creates the stream writer."""
        from rocketpy.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)


class StorePartition(InputPartition):
    """Ranges of a store, and the identity of the store."""

    def __init__(self, ranges: tuple[StoreRange, ...], marks: dict[str, bytes]) -> None:
        super().__init__(ranges)
        self.marks = marks


class RocketPyReader(DataSourceReader):
    """Plans on the driver, reads in the workers: columns, or with `groupings` sums of them."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], groupings: Groupings = ()) -> None:
        self.read_options = options
        self.columns = columns
        self.groupings = groupings

    def partitions(self) -> list[InputPartition]:
        """Fixes the bounds of every partition."""
        options = self.read_options
        if options.path is not None:
            from rocketpy.spark.identity import store_marks
            from rocketpy.spark.store import plan_store

            planned = plan_store(options)  # says what is wrong with the folder
            marks = store_marks(options)
            return [StorePartition(ranges, marks) for ranges in planned]
        from rocketpy.spark.cluster import plan_cluster

        return [InputPartition(parts) for parts in plan_cluster(options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Reads one partition.

        Args:
            partition: Entry of `partitions`; Spark passes an empty one if there are none, and Spark 4.1 None.
        """
        if partition is None or partition.value is None:
            return iter(())
        if isinstance(partition, StorePartition):
            from rocketpy.spark.store import read_store

            return read_store(
                self.read_options, self.columns, partition.value, partition.marks, groupings=self.groupings
            )
        from rocketpy.spark.cluster import read_cluster

        return read_cluster(self.read_options, self.columns, partition.value, groupings=self.groupings)

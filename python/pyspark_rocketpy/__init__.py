"""What Spark looks for: every importable module `pyspark_*` with a `DefaultSource`.

One such module that fails to import hides all of them from Spark, so this one cannot fail: it loads the package only
when the source is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from pyspark.sql.datasource import DataSource
except Exception:  # a broken PySpark is not this module's to report
    DataSource = object  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

    from rocketpy.spark.source import RocketPyDataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """`spark.read.format("rocketpy")`; see `rocketpy.spark.source.RocketPyDataSource`."""

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return "rocketpy"

    def _source(self) -> RocketPyDataSource:
        from rocketpy.spark.source import RocketPyDataSource

        return RocketPyDataSource(self.options)

    def schema(self) -> str:
        """Schema of the rows when the user gave none."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Makes the batch reader."""
        return self._source().reader(schema)

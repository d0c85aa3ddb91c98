"""What Spark looks for: every importable module `pyspark_*` with a `DefaultSource`.

One such module that fails to import hides all of them from Spark, so this one cannot fail: it loads the package only
when the source is used.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from rocketpy_mq import check_installation, installation_conflict

try:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader
except Exception:  # a broken PySpark is not this module's to report
    DataSource = DataSourceStreamReader = object  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from rocketpy.spark.source import RocketPyDataSource

__all__ = ["DefaultSource"]


@contextmanager
def without_traceback() -> Generator[None, None, None]:
    """Lets an error of RocketPy's reach the user without the traceback of the Spark worker, which ends with it.

    Raises:
        ImportError: The package `rocketpy` of this worker is not RocketPy's, or does not run here.
    """
    try:
        check_installation()
        from rocketpy.errors import RocketPyError
    except ImportError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
    try:
        yield
    except RocketPyError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def refuse(what: str, hint: str) -> NoReturn:
    """Raises the error for what the data source does not do."""
    with without_traceback():
        from rocketpy.errors import NotSupportedError

        raise NotSupportedError(f"format rocketpy {what}", hint=hint)


class NoStream(DataSourceStreamReader):
    """Refuses when the query asks for its first offset: Spark hides what `streamReader` itself raises."""

    def read(self, partition: object) -> NoReturn:
        """Refuses the stream."""
        refuse("has streams with Spark 4.2 or newer", 'pip install "pyspark>=4.2", or read batches with spark.read')

    def initialOffset(self) -> NoReturn:
        """Refuses the stream."""
        self.read(None)


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
        with without_traceback():
            return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Makes the batch reader."""
        with without_traceback():
            return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Makes the reader of a stream, or one that refuses."""
        if installation_conflict() is not None:
            return NoStream()
        try:
            import pyspark.sql.streaming.datasource  # noqa: F401  # is there since 4.2
        except ImportError:
            return NoStream()
        return self._source().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Makes the batch writer."""
        with without_traceback():
            return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Makes the stream writer."""
        with without_traceback():
            return self._source().streamWriter(schema, overwrite)

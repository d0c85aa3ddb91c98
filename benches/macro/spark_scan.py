"""Spark on ``local[2]`` scanning a store by its path, against the same batches from memory (the ceiling)."""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import rocketpy
from rocketpy.spark.columns import DEFAULT, ddl
from rocketpy.spark.session import local_session

TOPIC = "bench"
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not have this file

BODY_BYTES = 1024
ROWS = 800_000
QUEUES = 2


class Ceiling(DataSource):
    """Yields one prepared record batch repeatedly: the highest rate that Spark's Python interface allows."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return self.options["ddl"]

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(self.options["batch"], int(self.options["rows"]))


class CeilingReader(DataSourceReader):
    def __init__(self, path: str, rows: int):
        self.path, self.rows = path, rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(index) for index in range(QUEUES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_file(self.path) as file:
            batch = file.get_batch(0)
        for _ in range(self.rows // QUEUES // batch.num_rows):
            yield batch


def fill(store: str) -> None:
    body = bytes(range(256)) * (BODY_BYTES // 256)
    with rocketpy.Server(store) as server:
        with server.admin() as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        with server.producer("bench") as producer:
            for _ in range(ROWS // 10_000):
                producer.send_many([rocketpy.Message(TOPIC, body, tag="a", keys=["k"]) for _ in range(10_000)])


def seconds(frame: DataFrame) -> float:
    started_at = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started_at


def figures() -> dict[str, dict[str, float | str]]:
    """The ratio of the two, interleaved."""
    with tempfile.TemporaryDirectory(prefix="rocketpy-bench-") as folder:
        store = str(Path(folder, "store"))
        fill(store)
        spark = local_session("rocketpy-bench")
        try:
            ratio, rate = compare(spark, store, Path(folder))
        finally:
            spark.stop()
    return {
        "Spark scan by path, 1 KiB bodies, against the ceiling": {
            "value": ratio,
            "unit": "of the ceiling",
            "target": ">= 0.85",
            "gigabytes_per_s": rate,
        }
    }


def compare(spark: SparkSession, store: str, folder: Path) -> tuple[float, float]:
    def load() -> DataFrame:
        return spark.read.format("rocketpy").option("path", store).option("topic", TOPIC).load()

    schema = load().schema
    sample = rocketpy.StoreReader(store).scan(TOPIC)
    batch = pa.RecordBatchReader.from_stream(sample).read_next_batch()
    if not to_arrow_schema(schema, timezone="UTC").equals(batch.schema):
        raise RuntimeError("the scan's Arrow schema is not the data source's")
    path = folder / "batch.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    spark.dataSource.register(Ceiling)
    options = {"ddl": ddl(DEFAULT), "batch": str(path), "rows": str(ROWS)}

    def ceiling() -> DataFrame:
        return spark.read.format("ceiling").options(**options).load()

    pairs = [(seconds(load()), seconds(ceiling())) for _ in range(9)][4:]  # the first ones warm the JVM up
    ours = statistics.median(one for one, _ in pairs)
    return statistics.median(other / one for one, other in pairs), ROWS * BODY_BYTES / ours / 1e9


if __name__ == "__main__":
    for name, figure in figures().items():
        print(name, figure)

"""Functions that run in the workers that read the messages, before data is sent to Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rocketpy.base.names import check_type
from rocketpy.errors import InvalidArgumentError
from rocketpy.spark.columns import DEFAULT, check_columns, ddl_type
from rocketpy.spark.options import parse_options
from rocketpy.spark.part import QueuePart
from rocketpy.spark.session import cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rocketpy.spark.part import Groupings
    from rocketpy.spark.source import RocketPyReader
    from rocketpy.store import QueueRange, StoreRange

    Share: TypeAlias = Sequence[StoreRange | QueuePart]
    """What one worker reads."""
    OfShare: TypeAlias = Callable[[Share, Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def map_batches(
    spark: SparkSession,
    fn: Callable[[pa.RecordBatch], pa.RecordBatch | None],
    schema: StructType | str,
    *,
    columns: Sequence[str] | None = None,
    **options: object,
) -> DataFrame:
    """Reads messages and runs a function on each batch in the worker that read it; only its result is sent to Spark.

    A UDF behind `spark.read.format("rocketpy")` gets rows that crossed to Spark and back. This function gets the batch
    as the scan made it. It pays where less comes out than goes in: counts, sums, a few fields of large bodies.

    It runs as Spark's `mapInArrow` and so needs pandas and pyarrow: the extra `spark` brings both. The range to read is
    fixed by this call. When a task is tried again, its batches come again.

    Args:
        spark: The session.
        fn: Function that receives a batch of about 1 MiB and returns a batch with the columns of `schema` in any order,
            or None for no rows. Spark sends the function to the workers.
        schema: Schema of the result, as a struct or as DDL such as "carrier string, flights bigint".
        columns: Columns of the batch, in the order wanted; default: the first twelve.
        options: Options of the data source: `path=` or `name_server=`, `topic=`, `starting_time=` and so on. Texts, or
            values of Python: a `Path`, a `datetime`, a bool, a number, a list of topics, a mapping of offsets.

    Returns:
        The rows that the function returned.

    Raises:
        OptionError: An option or a column is unknown or malformed.
        RocketPyError: The topic, store or cluster does not exist. Errors of the function end the query.

    Examples:
        In a Spark session::

            def sizes(batch):
                return pyarrow.record_batch({"bytes": pyarrow.compute.binary_length(batch.column("body"))})

            map_batches(spark, sizes, "bytes int", columns=["body"], path="data", topic="flights")
    """

    def each(_share, batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            made = fn(batch)
            if made is not None:
                yield made

    return map_shares(spark, each, schema, DEFAULT if columns is None else columns, options)


def map_shares(
    spark: SparkSession,
    fn: OfShare,
    schema: StructType | str,
    columns: Sequence[str],
    options: Mapping[str, object],
    *,
    groupings: Groupings = (),
) -> DataFrame:
    """Runs a function on all messages that a worker reads, as `map_batches` does on each batch.

    Args:
        spark: The session.
        fn: Function that receives the plan for the worker, and the batches.
        schema: Schema of the result.
        columns: Columns of the batches.
        options: As for `map_batches`.
        groupings: Groups to aggregate by: then the batches are sums.

    Returns:
        The rows that the function yielded.

    Raises:
        OptionError: As for `map_batches`.
    """
    from pyspark.sql.types import StructType

    struct = cast("StructType", StructType.fromDDL(schema)) if isinstance(schema, str) else schema
    reader = reader_of(options, columns, min_partitions=cores(spark), groupings=groupings)
    parts = reader.partitions()
    if not parts:
        return spark.createDataFrame([], struct)

    def read_and_run(numbers):  # type: ignore[no-untyped-def]  # a nested function travels to the workers by value
        from pyspark.sql.pandas.types import to_arrow_schema

        from rocketpy.spark.batches import conformed

        promised = to_arrow_schema(struct, timezone="UTC")
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                part = parts[number]
                yield from conformed(fn(part.value, reader.read(part)), promised)

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read_and_run, struct)


def scan(spark: SparkSession, *, columns: Sequence[str] | None = None, **options: object) -> DataFrame:
    """Reads messages as rows, as `spark.read.format("rocketpy")`, in a partition for each task that the cluster runs.

    Args:
        spark: The session.
        columns: As for `map_batches`.
        options: As for `map_batches`; `min_partitions=` overrides the number of tasks.

    Returns:
        The messages available now: call `scan` again for newer messages.

    Raises:
        AnalysisException: An option or a column is unknown or malformed.

    Examples:
        In a Spark session::

            scan(spark, name_server="127.0.0.1:9876", topic="flights").groupBy("tag").count().show()
    """
    texts = option_texts(options, cores(spark))
    if columns is not None:
        texts["columns"] = ",".join(columns)
    return spark.read.format("rocketpy").options(**texts).load()


def reader_of(
    options: Mapping[str, object],
    columns: Sequence[str] = ("topic",),
    *,
    min_partitions: int | None = None,
    groupings: Groupings = (),
) -> RocketPyReader:
    """The data source's reader for options of Python values.

    Args:
        options: As for `map_batches`.
        columns: Columns to read.
        min_partitions: Default for the option of this name.
        groupings: Groups to aggregate by, instead of columns.
    """
    from rocketpy.spark.source import RocketPyReader

    texts = option_texts(options, min_partitions)
    return RocketPyReader(parse_options(texts), check_columns(columns), groupings)


def parts_of(share: Share) -> Iterator[QueueRange | QueuePart]:
    """The parts of queues that a worker reads."""
    for piece in share:
        if isinstance(piece, QueuePart):
            yield piece
        else:
            yield from piece.parts


def place_of(part: QueueRange | QueuePart) -> tuple[str, str | None, int]:
    """Topic, broker name (None in a store folder) and number of the queue of a part."""
    if isinstance(part, QueuePart):
        return part.queue.topic, part.queue.broker_name, part.queue.queue_id
    return part.topic, None, part.queue_id


def option_texts(options: Mapping[str, object], min_partitions: int | None = None) -> dict[str, str]:
    """Converts options to texts for Spark.

    Args:
        options: Values by name; None leaves an option out.
        min_partitions: Default for the option of this name.

    Returns:
        Texts, with absolute folders because workers have another working folder.

    Examples:
        >>> option_texts({"topics": ["a", "b"], "verify": False, "min_partitions": 4, "tags": None})
        {'topics': 'a,b', 'verify': 'false', 'min_partitions': '4'}
        >>> option_texts({"starting_offsets": {"flights": {0: 17}}})
        {'starting_offsets': '{"flights": {"0": 17}}'}
    """
    folders = {"path", "commit_log_path", "commitLogPath"}
    texts = {}
    for name, value in options.items():
        if value is None:
            continue
        texts[name] = str(Path(str(value)).absolute()) if name in folders else _text(value)
    if min_partitions is not None and not {"min_partitions", "minPartitions"} & texts.keys():
        texts["min_partitions"] = str(min_partitions)
    return texts


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.astimezone().isoformat()
        case Mapping():
            return json.dumps(value)
        case list() | tuple():
            return ",".join(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
        case _:
            return str(value)


def arrow_type(kind: str) -> pa.DataType:
    """Returns the Arrow type for a type name of Spark; a worker has no session that could read DDL."""
    import pyarrow as pa

    return {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", "UTC"),
        "binary": pa.binary(),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }[kind]


def ddl_of(kinds: Mapping[str, str]) -> str:
    """Writes a schema as DDL for Spark.

    Args:
        kinds: Spark's types by column.

    Examples:
        >>> ddl_of({"group": "string", "lag": "bigint"})
        '`group` string, `lag` bigint'
    """
    return ", ".join(f"`{name}` {ddl_type(kind)}" for name, kind in kinds.items())


def batch_of(rows: Sequence[Mapping[str, object]], kinds: Mapping[str, str]) -> pa.RecordBatch:
    """Creates a batch of rows.

    Args:
        rows: Values by column.
        kinds: As for `ddl_of`.
    """
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(
        list(rows), schema=pa.schema([(name, arrow_type(kind)) for name, kind in kinds.items()])
    )


def conformed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Converts the batches of a function to the form that its schema promises.

    Args:
        batches: Batches that the function returned.
        schema: Schema that the function promises.

    Yields:
        Batches with its columns in its order.

    Raises:
        InvalidArgumentError: A batch has other columns.
        TypeError: A returned value is not a batch.
    """
    import pyarrow as pa

    names = schema.names
    for batch in batches:
        check_type("what the function returns", batch, pa.RecordBatch, "a pyarrow.RecordBatch or None")
        if sorted(batch.schema.names) != sorted(names):
            raise InvalidArgumentError(
                f"the function returned the columns {', '.join(batch.schema.names)}",
                hint=f"the schema promises {', '.join(names)}",
            )
        yield batch.select(names).cast(schema)

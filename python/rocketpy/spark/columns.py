"""The columns of a scan in Spark, with the names, order and types of the Rust builder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.spark.options import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

    from rocketpy.spark.options import ReadOptions

TYPES = {
    "topic": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "broker_name": "string",
    "tag": "string",
    "keys": "string",
    "body": "binary",
    "properties": "map<string,string>",
    "born_at": "timestamp",
    "stored_at": "timestamp",
    "msg_id": "string",
    "reconsume_times": "int",
    "physical_offset": "bigint",
    "offset_msg_id": "string",
    "born_host": "string",
    "store_host": "string",
    "flag": "int",
    "sys_flag": "int",
    "body_crc": "int",
    "prepared_transaction_offset": "bigint",
    "size_bytes": "int",
    "born_at_ms": "bigint",
    "stored_at_ms": "bigint",
}
"""Every column and its Spark type. The first twelve are read by default."""

DEFAULT = tuple(TYPES)[:12]
"""The default columns."""


def keys_of(column: str) -> Column:
    """Returns the keys in a column of keys, as an array: only U+0020 separates them, as in `Message.keys`.

    Args:
        column: Name of the column.
    """
    from pyspark.sql import functions as sql

    return sql.filter(sql.split(column, " "), lambda key: key != sql.lit(""))


def check_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Checks selected columns.

    Args:
        names: Column names, in the order wanted.

    Returns:
        The same names.

    Raises:
        OptionError: A name is unknown or given twice.
    """
    for name in names:
        if name not in TYPES:
            raise OptionError(f"unknown column: {name}{nearest(name, TYPES)}")
    if len(set(names)) != len(names):
        raise OptionError(f"a column is named twice: {', '.join(names)}")
    return tuple(names)


def ddl(names: Sequence[str]) -> str:
    """Writes the schema of the given columns as DDL for Spark.

    Times are `timestamp_ltz`: `spark.sql.timestampType` decides what `timestamp` means.

    Args:
        names: Checked column names.

    Returns:
        Such as "topic string, queue_id int".

    Examples:
        >>> ddl(["topic", "stored_at"])
        'topic string, stored_at timestamp_ltz'
    """
    return ", ".join(f"{name} {ddl_type(TYPES[name])}" for name in names)


def ddl_type(kind: str) -> str:
    """Returns the type as DDL that no setting of the session changes.

    Args:
        kind: A type that columns have.
    """
    return "timestamp_ltz" if kind == "timestamp" else kind


def struct(names: Sequence[str]) -> StructType:
    """Creates the schema that `ddl` writes, without a session.

    Args:
        names: Checked column names.

    Returns:
        A nullable field for each.
    """
    return struct_of({name: TYPES[name] for name in names})


def struct_of(kinds: Mapping[str, str]) -> StructType:
    """Creates a schema without a session, which Spark needs for DDL.

    Args:
        kinds: The fields' names and types, of those that columns have.

    Returns:
        A nullable field for each.
    """
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(name, spark_type(kind)) for name, kind in kinds.items()])


def spark_type(kind: str) -> DataType:
    """Spark's type of this name.

    Args:
        kind: A type that columns have.
    """
    from pyspark.sql import types

    of_spark = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "binary": types.BinaryType(),
        "timestamp": types.TimestampType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    }
    return of_spark[kind]


def names_of_schema(schema: StructType) -> tuple[str, ...]:
    """Returns the columns of a schema from the user or from Spark.

    Args:
        schema: Schema whose fields are known columns with their own types.

    Returns:
        The names in the order of the schema.

    Raises:
        OptionError: A field is unknown, or has another type than the column.
    """
    names = check_columns(schema.fieldNames())
    for field in schema.fields:
        if field.dataType.simpleString() != TYPES[field.name]:
            raise OptionError(
                f"column {field.name} is of type {TYPES[field.name]}, not {field.dataType.simpleString()}; "
                "read it as it is and cast it"
            )
        if not field.nullable:
            raise OptionError(f"column {field.name} cannot be declared NOT NULL")
    return names


def chosen_columns(options: ReadOptions, schema: StructType) -> tuple[str, ...]:
    """Returns the columns of a read.

    Args:
        options: Options, which may select columns.
        schema: Schema of the read.

    Raises:
        OptionError: The two differ, or a field is not a column.
    """
    names = names_of_schema(schema)
    if options.columns is not None and names != options.columns:
        raise OptionError(f"the schema and the option columns differ: {', '.join(names)}")
    return names

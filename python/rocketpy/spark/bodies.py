"""Decodes message bodies inside Spark's Python workers, a batch at a time and without a Python object per message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rocketpy.base.names import check_type
from rocketpy.errors import RocketPyError
from rocketpy.spark.options import OptionError
from rocketpy.spark.session import no_pyspark
from rocketpy.spark.udf import arrow_udf

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


HINT = 'decode(..., on_error="null") makes it null, and error_column= says what is wrong with each'
"""Result for a body that does not decode."""


class DecodeError(RocketPyError, ValueError):
    """A body does not match the schema. The body is stored as it was sent: a retry fails again."""


def decode(
    schema: StructType | str | None = None, *, on_error: str = "null", error_column: str | None = None
) -> Callable[[str | Column], Column]:
    """Makes a UDF that decodes bodies: JSON objects to a struct, or UTF-8 to text.

    It is an Arrow UDF: whole batches cross to the worker and back. Fields that the schema does not name are skipped,
    and fields that a body does not have become null. `rocketpy.spark.bodies.json_columns` says which JSON becomes which
    type; a number with a fraction does not fit an integer.

    Args:
        schema: Fields of the JSON objects, as a struct or as DDL such as "carrier string, hour int" (which needs a
            session); None for text.
        on_error: Result for a body that does not decode: "null", or "fail" to end the job.
        error_column: Name of one more field of the struct, with the error of a body that does not decode. The other
            fields are null then, and the struct is not.

    Returns:
        The UDF; call it with a column of bodies.

    Raises:
        OptionError: `on_error` is neither, or `error_column` is given without a schema, with "fail", or names a field.
        RocketPyError: PySpark 4.1 or newer is not installed.

    Examples:
        In a Spark session::

            flight = decode("carrier string, hour int, dep_delay double")
            messages.select(flight("body").alias("flight")).select("flight.*")

            flight = decode("carrier string, hour int", error_column="wrong")
            messages.select("queue_offset", flight("body").alias("flight")).where("flight.wrong is not null")
    """
    try:
        from pyspark.sql.types import StringType, StructField, StructType
    except ImportError as missing:
        raise no_pyspark() from missing

    if on_error not in ("null", "fail"):
        raise OptionError(f"on_error must be null or fail, not: {on_error}")
    strict = on_error == "fail"
    struct = cast("StructType", StructType.fromDDL(schema)) if isinstance(schema, str) else schema
    if error_column is not None and (struct is None or strict or error_column in struct.names):
        raise OptionError("error_column must name a new field of a schema, with on_error null")
    result: DataType = StringType() if struct is None else struct
    if struct is not None and error_column is not None:
        fields = [StructField(field.name, field.dataType) for field in struct.fields]
        result = StructType([*fields, StructField(error_column, StringType())])
    return arrow_udf(_to_text(strict) if struct is None else _to_struct(struct, strict, error_column), result)


def _to_text(strict: bool) -> Any:
    def decode_to_text(bodies):  # type: ignore[no-untyped-def]
        from rocketpy.spark.bodies import decode_text

        return decode_text(bodies, strict=strict)

    return decode_to_text


def _to_struct(struct: StructType, strict: bool, error_column: str | None) -> Any:
    def decode_to_struct(bodies):  # type: ignore[no-untyped-def]
        from pyspark.sql.pandas.types import to_arrow_type

        from rocketpy.spark.bodies import decode_json

        return decode_json(bodies, to_arrow_type(struct, timezone="UTC"), strict=strict, error_column=error_column)

    return decode_to_struct


def decode_text(bodies: pa.Array, *, strict: bool = False) -> pa.Array:
    r"""Decodes UTF-8.

    Args:
        bodies: Bodies as an array of binary.
        strict: Whether a body that is not UTF-8 is an error; else it becomes null.

    Returns:
        Array of string, of the same length.

    Raises:
        DecodeError: A body is not UTF-8, and `strict`.

    Examples:
        >>> import pyarrow
        >>> decode_text(pyarrow.array([b"gr\xc3\xbcn", b"\xff"])).to_pylist()
        ['grün', None]
    """
    import pyarrow as pa

    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid as error:
        if len(bodies) > 1:  # finds one bad body among many in a few steps
            middle = len(bodies) // 2
            return pa.concat_arrays([decode_text(half, strict=strict) for half in (bodies[:middle], bodies[middle:])])
        if strict:
            raise DecodeError("body is not UTF-8", hint=HINT) from error
        return pa.nulls(1, pa.string())


def decode_json(
    bodies: pa.Array, struct: pa.StructType, *, strict: bool = False, error_column: str | None = None
) -> pa.Array:
    """Decodes one JSON object per body, as `json_columns` does it.

    Args:
        bodies: Bodies as an array of binary.
        struct: Fields to decode.
        strict: Whether a body that is not an object of these fields is an error; else it becomes null.
        error_column: Name of a last field, with the error of a body. The object is then not null.

    Returns:
        Array of the struct, of the same length.

    Raises:
        DecodeError: A body does not decode, and `strict`.

    Examples:
        >>> import pyarrow
        >>> bodies = pyarrow.array([b'{"a": 1, "b": 2}', b"oh", b'{"a": null}'])
        >>> decode_json(bodies, pyarrow.struct([("a", pyarrow.int32())])).to_pylist()
        [{'a': 1}, None, {'a': None}]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    objects, errors = json_columns(bodies.cast(pa.binary()), struct)
    if strict and errors.null_count < len(errors):
        row = pc.index(errors.is_valid(), True).as_py()
        raise DecodeError(f"body is not JSON of the given schema: {errors[row]}", hint=HINT)
    if error_column is None:
        return objects
    return pa.StructArray.from_arrays(
        [*(objects.field(place) for place in range(struct.num_fields)), errors],
        names=[*(field.name for field in struct), error_column],
        mask=pc.and_(objects.is_null(), errors.is_null()),
    )


def json_columns(bodies: pa.Array, fields: pa.StructType | pa.Schema) -> tuple[pa.StructArray, pa.StringArray]:
    """Decodes one JSON object per body to typed columns, in Rust and without the interpreter lock.

    Names that no field has are skipped; a field whose name is not there is null. Booleans come from `true` and `false`,
    integers from numbers without a fraction, floats from numbers (and `NaN`, `Infinity`, `-Infinity`, as Python writes
    them), decimals from numbers and texts of numbers that they hold exactly, dates from texts such as `2024-01-02` and
    from numbers of days since 1970, timestamps from texts such as `2024-01-02T03:04:05.123456Z` (UTC without a zone),
    both of the years 0001 to 9999, text and binary from texts, lists from lists, structs from objects, and maps with
    texts as keys from objects too.

    A short list of objects without fields makes a null for each field of each object. So the objects in the lists and
    maps of a body have at most 1,048,576 fields together, there or not, or as many as the body has bytes if that is
    more.

    Args:
        bodies: Bodies as an array of binary.
        fields: Fields to decode.

    Returns:
        The objects, and the error of each body that does not decode, whose object is null. A null body, and the body
        `null`, is null without an error.

    Raises:
        InvalidArgumentError: A field has another type, or the bodies have; or the objects in the lists and maps of all
            bodies have more than 134,217,728 fields together, and more than the bodies have bytes.
        TypeError: The bodies are not a `pyarrow.Array`, or the fields not a type or schema of pyarrow.

    Examples:
        >>> import pyarrow
        >>> bodies = pyarrow.array([b'{"a": 1, "b": 2}', b'{"a": "x"}', None])
        >>> objects, errors = json_columns(bodies, pyarrow.struct([("a", pyarrow.int32())]))
        >>> objects.to_pylist()
        [{'a': 1}, None, None]
        >>> errors.to_pylist()
        [None, 'a: expected int, found a text', None]
    """
    import pyarrow as pa

    from rocketpy._rocketpy import json_columns as decoded
    from rocketpy.base.arrow import pyarrow_batch

    check_type("bodies", bodies, pa.Array, "a pyarrow.Array")
    check_type("fields", fields, pa.DataType | pa.Schema, "a pyarrow.StructType or a pyarrow.Schema")
    batch = pyarrow_batch(decoded(bodies, fields))
    return batch.column("value"), batch.column("error")

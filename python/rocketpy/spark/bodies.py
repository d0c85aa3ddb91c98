"""Decodes message bodies inside Spark's Python workers, a batch at a time and without a Python object per message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketpy.errors import RocketPyError
from rocketpy.spark.options import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


HINT = 'decode(..., on_error="null") makes it null'
"""For bodies that do not decode."""


class DecodeError(RocketPyError, ValueError):
    """A body is not what the schema says. It is as it was sent: a retry fails again."""


def decode(schema: StructType | str | None = None, *, on_error: str = "null") -> Callable[[str | Column], Column]:
    """Makes a UDF that decodes bodies: JSON objects to a struct, or UTF-8 to text.

    It is an Arrow UDF: whole batches cross to the worker and back. Fields that the schema does not name are
    skipped, and fields that a body does not have become null. A number with a fraction does not fit an integer.

    Args:
        schema: Fields of the JSON objects, as a struct or as DDL such as "carrier string, hour int" (which needs a
            session); None for text.
        on_error: Result for a body that does not decode: "null", or "fail" to end the job.

    Returns:
        The UDF; call it with a column of bodies.

    Raises:
        OptionError: `on_error` is neither.
        RocketPyError: PySpark 4.1 or newer is not installed.

    Examples:
        In a Spark session::

            flight = decode("carrier string, hour int, dep_delay double")
            messages.select(flight("body").alias("flight")).select("flight.*")
    """
    try:
        from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # not in Spark's stubs
        from pyspark.sql.types import StringType, StructType
    except ImportError as missing:
        raise RocketPyError("PySpark is not installed", hint='pip install "rocketpy-mq[spark]"') from missing

    if on_error not in ("null", "fail"):
        raise OptionError(f"on_error must be null or fail, not: {on_error}")
    strict = on_error == "fail"
    struct = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    make_udf: Any = arrow_udf  # its stub wants the type of the function
    udf: Callable[[str | Column], Column] = make_udf(
        _to_text(strict) if struct is None else _to_struct(struct, strict),
        returnType=StringType() if struct is None else struct,
    )
    return udf


# Spark reads the hints of a UDF, and wants none. A nested function travels to the workers by value.


def _to_text(strict: bool) -> Any:
    def decode_to_text(bodies):  # type: ignore[no-untyped-def]
        from rocketpy.spark.bodies import decode_text

        return decode_text(bodies, strict=strict)

    return decode_to_text


def _to_struct(struct: DataType, strict: bool) -> Any:
    def decode_to_struct(bodies):  # type: ignore[no-untyped-def]
        from pyspark.sql.pandas.types import to_arrow_type

        from rocketpy.spark.bodies import decode_json

        return decode_json(bodies, to_arrow_type(struct, timezone="UTC"), strict=strict)

    return decode_to_struct


def decode_text(bodies: pa.Array, *, strict: bool = False) -> pa.Array:
    r"""Decodes UTF-8.

    Args:
        bodies: Array of binary.
        strict: Whether a body that is not UTF-8 is an error, or null.

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
        if len(bodies) > 1:
            return _halves(bodies, lambda half: decode_text(half, strict=strict))
        if strict:
            raise DecodeError(f"a body is not UTF-8: {_start(bodies)}", hint=HINT) from error
        return pa.nulls(1, pa.string())


def decode_json(bodies: pa.Array, struct: pa.StructType, *, strict: bool = False) -> pa.Array:
    """Decodes one JSON object per body.

    Args:
        bodies: Array of binary.
        struct: The fields to take.
        strict: Whether a body that is not such an object is an error, or null.

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

    if len(bodies) == 0:
        return pa.nulls(0, struct)
    try:
        return _read_json(bodies, struct)
    except pa.ArrowInvalid as error:
        if len(bodies) > 1:
            return _halves(bodies, lambda half: decode_json(half, struct, strict=strict))
        if strict:
            text = f"a body is not JSON of the given schema ({error}): {_start(bodies)}"
            raise DecodeError(text, hint=HINT) from error
        return pa.nulls(1, struct)


def _read_json(bodies: pa.Array, struct: pa.StructType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json

    # One object per line, each wrapped: an empty body, or one of several objects, cannot shift the rows after it.
    head, tail, null = (pa.scalar(text, bodies.type) for text in (b'{"v":', b"}", b"null"))
    lines = pc.binary_join_element_wise(head, bodies.fill_null(null), tail, pa.scalar(b"", bodies.type))
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    text = pc.binary_join(whole, pa.scalar(b"\n", bodies.type))[0].as_buffer()
    table = pyarrow.json.read_json(
        pa.BufferReader(text),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([("v", struct)]), unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != len(bodies):
        raise pa.ArrowInvalid(f"{len(bodies)} bodies hold {table.num_rows} objects")
    return table.column("v").combine_chunks()


def _halves(bodies: pa.Array, decode_half: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Decodes each half separately, which finds one bad body among many in a few steps."""
    import pyarrow as pa

    middle = len(bodies) // 2
    return pa.concat_arrays([decode_half(bodies[:middle]), decode_half(bodies[middle:])])


def _start(bodies: pa.Array) -> str:
    body = bodies[0].as_py()
    return repr(body[:80]) + ("..." if len(body) > 80 else "")

"""Decoding of bodies, without Spark."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from rocketpy.spark.bodies import DecodeError, decode, decode_json, decode_text
from rocketpy.spark.options import OptionError

STRUCT = pa.struct([("a", pa.int32()), ("b", pa.float64()), ("c", pa.string()), ("l", pa.list_(pa.int64()))])


def decoded(*bodies):
    return decode_json(pa.array(bodies, pa.binary()), STRUCT).to_pylist()


def test_fields_are_taken_by_name_and_missing_ones_are_null():
    assert decoded(b'{"c": "x", "unknown": {"deep": [1]}, "a": 1}', b"{}", b' {"l": [1, 2], "b": 2}\n') == [
        {"a": 1, "b": None, "c": "x", "l": None},
        {"a": None, "b": None, "c": None, "l": None},
        {"a": None, "b": 2.0, "c": None, "l": [1, 2]},
    ]


@pytest.mark.parametrize(
    "bad", [b"", b"oh", b"[1]", b'{"a": "1"}', b'{"a": 1.5}', b'{"a": 1', b'{"a":1}{"a":2}', b'{"a":1}}\n{"v":{"a":2}']
)
def test_a_bad_body_is_null_and_its_neighbours_stay_in_their_rows(bad):
    bodies = [b'{"a": %d}' % number for number in range(50)]
    bodies[17] = bodies[33] = bad
    numbers = [row and row["a"] for row in decoded(*bodies)]
    assert numbers == [None if number in (17, 33) else number for number in range(50)]


def test_an_empty_body_beside_a_double_one_does_not_shift_the_rows():
    assert [row and row["a"] for row in decoded(b"", b'{"a":1}{"a":2}', b'{"a":3}')] == [None, None, 3]


def test_null_bodies_and_json_null_are_null():
    assert decoded(None, b"null", b'{"a":1}')[:2] == [None, None]


def test_nothing_decodes_to_nothing():
    assert decode_json(pa.array([], pa.binary()), STRUCT).type == STRUCT


def test_strict_says_what_is_wrong_and_shows_no_body():
    with pytest.raises(DecodeError, match=r"not JSON of the given schema: (?!.*oh)"):
        decode_json(pa.array([b"{}", b"oh", b"{}"], pa.binary()), STRUCT, strict=True)
    with pytest.raises(DecodeError, match="not UTF-8"):
        decode_text(pa.array([b"a", b"\xff"], pa.binary()), strict=True)


def test_an_error_column_says_what_is_wrong_and_the_object_is_there():
    bodies = pa.array([b'{"a": 1}', b'{"a": "x"}', None, b"null"], pa.binary())
    struct = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    made = decode_json(bodies, struct, error_column="wrong")
    made.validate(full=True)
    assert made.to_pylist() == [
        {"a": 1, "wrong": None},
        {"a": None, "wrong": "a: expected int, found a text"},
        None,
        None,
    ]


def test_text_is_utf8_or_null():
    bodies = pa.array(["grün".encode(), b"\xff", None, b""], pa.binary())
    assert decode_text(bodies).to_pylist() == ["grün", None, None, ""]


def test_what_to_do_on_errors_is_checked_at_once():
    with pytest.raises(OptionError, match="on_error"):
        decode("a int", on_error="ignore")


@pytest.mark.parametrize(
    ("fields", "on_error"), [(None, "null"), (["a"], "fail"), (["a", "wrong"], "null")], ids=["text", "fail", "taken"]
)
def test_an_error_column_needs_a_place(fields, on_error):
    schema = fields and StructType([StructField(name, StringType()) for name in fields])
    with pytest.raises(OptionError, match="error_column"):
        decode(schema, on_error=on_error, error_column="wrong")

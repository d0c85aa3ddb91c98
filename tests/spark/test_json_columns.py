"""JSON to columns: what pyarrow's reader makes of one body at a time, or an error where it fails."""

import json
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.json
import pytest

import rocketpy
from rocketpy.spark.bodies import json_columns

TIME = pa.timestamp("us", "UTC")
LEAVES = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.decimal128(38, 0),
    pa.string(),
    pa.binary(),
    pa.date32(),
    TIME,
    pa.timestamp("us"),
    pa.timestamp("ms"),
    pa.null(),
]
INTEGERS = ["0", "-0", "1", "-7", "127", "128", "-32769", "2147483648", "9223372036854775807", "9223372036854775808"]
NUMBERS = [
    *INTEGERS,
    "1.0",
    "1.5",
    "1.25",
    "1.255",
    "1e2",
    "1E-2",
    "999.99",
    "1000",
    "12345678901234567890.5",
    "1e-400",
]
NO_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e400", "01", "+1", ".5", "0x1"]
TEXTS = ["", "x", "gr\u00fcn", "\U0001f600", 'a"b\\c/\n', "\u0000", "1", "1.25", "-1e1", ".5", "5.", "+1", " 1", "true"]
TIMES = [
    "2024-01-02",
    "2024-01-02T03",
    "2024-01-02T03Z",
    "2024-01-02 03:04+01",
    "2024-01-02T03:04:05Z",
    "2024-01-02T03:04:05.1",
    "2024-01-02T03:04:05.123456-05:30",
    "2024-01-02T03:04:05.1234567",
    "2024-01-02T03:04:05+0100",
    "1969-12-31T23:59:59.999Z",
    "2024-02-30",
    "2024-1-2",
    "2024-01-02T24:00:00",
    "2024-01-02Z",
]


def made_by_pyarrow(body, struct):
    """What pyarrow's reader makes of one body; None where it fails, or what it made is not valid."""
    text = b'{"v":' + body + b"}"
    parse = pyarrow.json.ParseOptions(explicit_schema=pa.schema([("v", struct)]), unexpected_field_behavior="ignore")
    try:
        table = pyarrow.json.read_json(pa.BufferReader(text), parse_options=parse)
        made = table["v"].combine_chunks()
        made.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return made if table.num_rows == 1 else None


def random_type(rng, depth):
    kind = rng.random()
    if depth and kind < 0.15:
        item = random_type(rng, depth - 1)
        return pa.list_(pa.string() if pa.types.is_null(item) else item)  # pyarrow fails on lists of nothing but null
    if depth and kind < 0.3:
        return random_struct(rng, depth - 1)
    return rng.choice(LEAVES)


def random_struct(rng, depth=2):
    names = rng.sample(["a", "b", "c", "gr\u00fcn", "d e"], rng.randint(1, 4))
    return pa.struct([(name, random_type(rng, depth)) for name in names])


def fitting(rng, kind):
    """JSON of a value that mostly fits."""
    if rng.random() < 0.08:
        return "null"
    if pa.types.is_struct(kind):
        return random_object(rng, kind)
    if pa.types.is_list(kind):
        return f"[{', '.join(value(rng, kind.value_type) for _ in range(rng.randint(0, 3)))}]"
    if pa.types.is_map(kind):
        entries = [(key, value(rng, kind.item_type)) for key in rng.sample(TEXTS, rng.randint(0, 3))]
        return "{" + ", ".join(f"{json.dumps(key)}: {text}" for key, text in entries) + "}"
    if pa.types.is_boolean(kind):
        return rng.choice(["true", "false"])
    if pa.types.is_timestamp(kind):
        return json.dumps(rng.choice(TIMES))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return json.dumps(rng.choice(TEXTS), ensure_ascii=rng.random() < 0.5)
    if pa.types.is_decimal(kind) and rng.random() < 0.5:
        return json.dumps(rng.choice(TEXTS))
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return rng.choice(INTEGERS[:4])
    return rng.choice(NUMBERS) if not pa.types.is_null(kind) else "null"


def value(rng, kind):
    if rng.random() < 0.94:
        return fitting(rng, kind)
    anything = rng.choice([*NUMBERS, *NO_NUMBERS, "true", "null", "[]", "{}", "[1, {}]", '"x"', "nul", "}", ""])
    # Texts of dates and infinity in single precision are new.
    return "null" if anything == '"x"' and pa.types.is_date(kind) else anything


def random_object(rng, struct):
    fields = [(field.name, value(rng, field.type)) for field in struct if rng.random() < 0.97]
    if rng.random() < 0.3:
        fields.append(("other", value(rng, rng.choice(LEAVES)).replace("1e400", "1e40")))  # too large to skip, there
    if rng.random() < 0.01 and fields:
        fields.append(fields[0])
    rng.shuffle(fields)
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in fields) + "}"


@pytest.mark.parametrize("seed", range(60))
def test_columns_are_those_of_pyarrow(seed):
    rng = random.Random(seed)
    struct = random_struct(rng)
    bodies = [value(rng, struct).encode() for _ in range(60)]
    objects, errors = json_columns(pa.array(bodies, pa.binary()), struct)
    objects.validate(full=True)
    assert objects.type == struct
    for row, body in enumerate(bodies):
        expected = made_by_pyarrow(body, struct)
        if expected is None:
            assert errors[row].is_valid, (body, struct)
            assert not objects[row].is_valid
        else:
            assert not errors[row].is_valid, (body, struct, errors[row])
            assert repr(objects[row].as_py()) == repr(expected[0].as_py()), (body, struct)


def test_what_comes_out_is_mostly_neither_all_right_nor_all_wrong():
    """The generator of the test above must not degenerate."""
    right = wrong = 0
    for seed in range(60):
        rng = random.Random(seed)
        struct = random_struct(rng)
        _, errors = json_columns(pa.array([value(rng, struct).encode() for _ in range(60)], pa.binary()), struct)
        right += errors.null_count
        wrong += len(errors) - errors.null_count
    assert min(right, wrong) > 600


def test_dates_are_texts_too_and_a_decimal_is_never_more_than_its_precision():
    struct = pa.struct([("day", pa.date32()), ("price", pa.decimal128(5, 2))])
    bodies = [b'{"day": "2024-01-02", "price": "999.99"}', b'{"day": 19724, "price": 1000}']
    objects, errors = json_columns(pa.array(bodies), struct)
    assert str(objects[0].as_py()["day"]) == "2024-01-02"
    assert objects[0].as_py()["price"] == Decimal("999.99")
    assert errors.to_pylist() == [None, "price: not of type decimal(5,2): 1000"]


def random_type_with_maps(rng, depth=3):
    item = random_type_with_maps(rng, depth - 1) if depth else rng.choice([pa.int64(), pa.string(), pa.bool_()])
    return rng.choice([pa.map_(pa.string(), item), pa.list_(item), pa.struct([("a", item), ("b", pa.int64())])])


def of_python(kind, read):
    """What Python's reader made of a body, with the fields of the type."""
    if read is None:
        return None
    if pa.types.is_map(kind):
        return {key: of_python(kind.item_type, item) for key, item in read.items()}
    if pa.types.is_list(kind):
        return [of_python(kind.value_type, item) for item in read]
    if pa.types.is_struct(kind):
        return {field.name: of_python(field.type, read.get(field.name)) for field in kind}
    return read


@pytest.mark.parametrize("seed", range(20))
def test_maps_are_those_of_python(seed):
    rng = random.Random(seed)
    struct = pa.struct([("v", random_type_with_maps(rng)), ("m", pa.map_(pa.string(), pa.int64()))])
    bodies = [value(rng, struct).encode() for _ in range(60)]
    objects, errors = json_columns(pa.array(bodies, pa.binary()), struct)
    objects.validate(full=True)
    assert objects.type == struct
    assert 20 < errors.null_count < 60
    for body, made, error in zip(bodies, objects, errors, strict=True):
        if error.is_valid:
            assert not made.is_valid
        else:
            assert made.as_py(maps_as_pydicts="strict") == of_python(struct, json.loads(body)), (body, struct)


def test_a_list_of_empty_objects_does_not_take_all_memory():
    struct = pa.struct([("items", pa.list_(pa.struct([(f"f{number}", pa.int64()) for number in range(1000)])))])
    bodies = [b'{"items": [' + b", ".join([b"{}"] * count) + b"]}" for count in (1_000, 1_000_000, 0)]
    objects, errors = json_columns(pa.array(bodies), struct)
    assert objects.is_valid().to_pylist() == [True, False, True]
    assert errors[1].as_py() == "items: the items of the body have too many fields together"
    assert objects.nbytes < 20 << 20


def test_text_of_other_bytes_is_an_error():
    """pyarrow hands the bytes out as if they were text."""
    objects, errors = json_columns(
        pa.array([b'{"a": "\xff"}', b'{"b": "\xff", "a": "x"}']), pa.struct([("a", pa.string())])
    )
    assert objects.to_pylist() == [None, {"a": "x"}]
    assert "unicode" in errors[0].as_py()


def test_a_slice_and_a_schema_do_as_well():
    bodies = pa.array([b"{}", b'{"a": 1}', None, b'{"a": 2}', b"oh"])
    objects, errors = json_columns(bodies[1:4], pa.schema([("a", pa.int16())]))
    assert objects.to_pylist() == [{"a": 1}, None, {"a": 2}]
    assert errors.null_count == 3


def test_other_bodies_and_types_are_refused():
    struct = pa.struct([("a", pa.int32())])
    with pytest.raises(rocketpy.InvalidArgumentError, match="bodies are binary, not Utf8"):
        json_columns(pa.array(["{}"]), struct)
    with pytest.raises(rocketpy.InvalidArgumentError, match="JSON bodies do not support: map<int,string>"):
        json_columns(pa.array([b"{}"]), pa.struct([("m", pa.map_(pa.int32(), pa.string()))]))
    with pytest.raises(rocketpy.InvalidArgumentError, match="struct or a schema"):
        json_columns(pa.array([b"{}"]), pa.int32())
    for bodies in ([b"{}"], pa.chunked_array([[b"{}"]])):
        with pytest.raises(TypeError, match=r"bodies must be a pyarrow\.Array, not"):
            json_columns(bodies, struct)
    with pytest.raises(TypeError, match=r"fields must be a pyarrow\.StructType or a pyarrow\.Schema, not str"):
        json_columns(pa.array([b"{}"]), "a int")

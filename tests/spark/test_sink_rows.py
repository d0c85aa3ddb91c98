"""Messages of rows, made without Spark."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from rocketpy.spark.sink.rows import READ_BEFORE, ROW_PROPERTY, Place, RowMaker, WriteError

BODIES = ("body", pa.array([b"x"]))


def made(*columns):
    batch = pa.RecordBatch.from_arrays([values for _, values in columns], [name for name, _ in columns])
    return RowMaker(Place("w", 0, 0), {"topic": "t"}, with_ids=False).rows(batch)


def at(moment, zone="UTC"):
    return "deliver_at", pa.array([moment], pa.timestamp("us", zone))


@pytest.mark.parametrize("year", [1970, 1971, 2026, 5500, 9999])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", None])
def test_a_timestamp_column_has_any_delivery_time_of_the_calendar(year, zone):
    moment = datetime(year, 6, 1, 12, 0, 0, 123_000, UTC)
    (row,) = made(BODIES, at(moment if zone else moment.replace(tzinfo=None), zone))
    assert row.message.deliver_at == moment.timestamp()


@pytest.mark.parametrize(
    "micros",
    [
        pytest.param(253_402_214_400_000_000, id="9999-12-31"),
        568_971_820_800_000_000,
        -1_000_000,
        -(2**62),
        2**62,
        pytest.param(2**63 - 1, id="greatest of Spark"),
    ],
)
def test_delivery_time_outside_the_calendar_names_its_row_and_microseconds(micros):
    said = r"row 0 .*deliver_at must be from 1970-01-01 and before 9999-12-31, microseconds since 1970: "
    with pytest.raises(WriteError, match=said) as refused:
        made(BODIES, at(micros))
    assert int(str(refused.value).rpartition(": ")[2]) == pytest.approx(micros, abs=1)
    assert refused.value.hint is None


def test_the_hint_on_reserved_properties_belongs_to_rows_that_have_them():
    def properties(name, value):
        return "properties", pa.array([[(name, value)]], pa.map_(pa.string(), pa.string()))

    with pytest.raises(WriteError) as refused:
        made(BODIES, properties("UNIQ_KEY", "7F"))
    assert refused.value.hint == READ_BEFORE
    with pytest.raises(WriteError, match="reserved for the system") as refused:
        made(BODIES, properties("reserved for the system\x01", "v"))
    assert refused.value.hint != READ_BEFORE


def test_a_row_that_was_read_keeps_what_rules_of_new_messages_reject():
    properties = [("UNIQ_KEY", "7F"), ("TAGS", " x "), ("KEYS", "a\tb  c"), ("p", "a\x01b")]
    columns = [BODIES, ("properties", pa.array([properties], pa.map_(pa.string(), pa.string())))]

    def message(*more):
        batch = pa.RecordBatch.from_arrays(
            [one for _, one in [*columns, *more]], [name for name, _ in [*columns, *more]]
        )
        (row,) = RowMaker(Place("w", 0, 0), {"topic": "t"}, with_ids=True, drops_reserved=True).rows(batch)
        return row.message

    for more in ([], [("tag", pa.array([" x "])), ("keys", pa.array(["a\tb  c"]))]):
        copy = message(*more)
        own = {name: value for name, value in copy.properties.items() if name != ROW_PROPERTY}
        assert (copy.tag, copy.keys, own["p"]) == (" x ", ("a\tb", "c"), "a\x01b")
        assert "UNIQ_KEY" not in own
        assert ROW_PROPERTY in copy.properties
    with pytest.raises(WriteError, match="row 0 of partition 0"):
        message(("tag", pa.array([" y "])))

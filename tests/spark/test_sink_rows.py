"""Messages of rows, made without Spark."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from rocketpy.spark.sink.rows import READ_BEFORE, Place, RowMaker, WriteError

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
    ("micros", "text"),
    [
        (568_971_820_800_000_000, "20000-01-01 00:00:00.000000Z"),
        (-1_000_000, "1969-12-31 23:59:59.000000Z"),
        (-(2**62), None),
        (2**62, None),
    ],
)
def test_a_delivery_time_outside_the_calendar_is_named_as_a_time(micros, text):
    with pytest.raises(WriteError, match=r"row 0 .*deliver_at must be from 1970 to 9999: ") as refused:
        made(BODIES, at(micros))
    assert text is None or str(refused.value).endswith(text)
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

from datetime import UTC, datetime, timedelta

import pytest

from rocketpy.cli.options import start_of
from rocketpy.console.exits import CommandError
from rocketpy.console.selection import moment


def test_a_moment_is_iso_or_how_long_ago():
    assert moment("2013-01-01T05:00:00+00:00") == datetime(2013, 1, 1, 5, tzinfo=UTC)
    assert moment("1357016400") == moment("2013-01-01T05:00:00+00:00")
    assert moment("2013-01-01T05:00") == moment("20130101T05") == datetime(2013, 1, 1, 5).astimezone()
    assert moment("20130101") == moment("2013-01-01")
    then = moment("-10m")
    ago = datetime.now(UTC) - then
    assert timedelta(minutes=10) <= ago < timedelta(minutes=11)


@pytest.mark.parametrize("text", ["yesterday", "-10", "10m", "", "2013-13-01"])
def test_anything_else_is_refused(text: str):
    with pytest.raises(CommandError, match="not a point in time"):
        moment(text)


def test_milliseconds_are_refused_with_the_unit():
    with pytest.raises(CommandError, match="seconds") as refused:
        moment("1357016400000")
    assert "divide by 1000" in refused.value.hint


def test_an_offset_is_no_place_to_begin_and_a_date_of_eight_digits_is():
    for offset in ("0", "5", "9999999"):
        with pytest.raises(CommandError, match="not a start position"):
            start_of(offset)
    assert start_of("20130101") == start_of("2013-01-01")
    assert start_of("1357016400") == start_of("2013-01-01T05:00:00Z")

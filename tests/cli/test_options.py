from datetime import UTC, datetime, timedelta

import pytest

from rocketpy.cli.options import start_of
from rocketpy.cli.store import span
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.commandline.selection import moment


def test_a_moment_is_iso_or_how_long_ago():
    assert moment("2013-01-01T05:00:00+00:00", "--from") == datetime(2013, 1, 1, 5, tzinfo=UTC)
    assert moment("1357016400", "--from") == moment("2013-01-01T05:00:00+00:00", "--from")
    assert (
        moment("2013-01-01T05:00", "--from") == moment("20130101T05", "--from") == datetime(2013, 1, 1, 5).astimezone()
    )
    assert moment("20130101", "--from") == moment("2013-01-01", "--from")
    then = moment("-10m", "--from")
    ago = datetime.now(UTC) - then
    assert timedelta(minutes=10) <= ago < timedelta(minutes=11)


@pytest.mark.parametrize("text", ["yesterday", "-10", "10m", "", "2013-13-01"])
def test_anything_else_is_refused(text: str):
    with pytest.raises(CommandError, match="not a point in time"):
        moment(text, "--from")


@pytest.mark.parametrize("text", ["20000-01-01", "568971820800", "1" * 5000, "nan", "1e400"])
def test_a_time_out_of_range_names_its_option(text: str):
    with pytest.raises(CommandError, match=r"^--deliver-at: "):
        moment(text, "--deliver-at")
    with pytest.raises(CommandError, match=r"^--from: "):
        start_of(text, "--from")


def test_an_age_of_any_length_reaches_the_beginning():
    assert moment(f"-{'1' * 5000}d", "--from").timestamp() == 0


def test_an_offset_out_of_range_is_wrong_usage():
    for text in (f"{2**63}:", f":{'1' * 5000}", "\u00b2:"):
        with pytest.raises(CommandError) as refused:
            span(text)
        assert refused.value.code is ExitCode.USAGE


def test_milliseconds_are_refused_with_the_unit():
    with pytest.raises(CommandError, match="seconds") as refused:
        moment("1357016400000", "--from")
    assert "divide by 1000" in refused.value.hint


def test_an_offset_is_no_place_to_begin_and_a_date_of_eight_digits_is():
    for offset in ("0", "5", "9999999"):
        with pytest.raises(CommandError, match="not a start position"):
            start_of(offset, "--from")
    assert start_of("20130101", "--from") == start_of("2013-01-01", "--from")
    assert start_of("1357016400", "--from") == start_of("2013-01-01T05:00:00Z", "--from")

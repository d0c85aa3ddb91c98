from datetime import UTC, datetime, timedelta

import pytest

from rocketpy.cli.exits import CommandError
from rocketpy.cli.options import moment


def test_a_moment_is_iso_or_how_long_ago():
    assert moment("2013-01-01T05:00:00+00:00") == datetime(2013, 1, 1, 5, tzinfo=UTC)
    assert moment("1357016400000") == moment("2013-01-01T05:00:00+00:00")
    then = moment("-10m")
    ago = datetime.now(UTC) - then
    assert timedelta(minutes=10) <= ago < timedelta(minutes=11)


@pytest.mark.parametrize("text", ["yesterday", "-10", "10m", ""])
def test_anything_else_is_refused(text: str):
    with pytest.raises(CommandError, match="not a point in time"):
        moment(text)

"""How long errors that may pass are waited out, on a clock of the test's own."""

import pytest

from rocketpy.errors import RocketPyError
from rocketpy.spark import patience
from rocketpy.spark.patience import Patience, again

AWAY = RocketPyError("away", retryable=True)
UNSURE = RocketPyError("no answer", may_have_been_applied=True)


class Clock:
    """Stands in for the module `time`: only sleeping lets it go on."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(patience, "monotonic", clock.monotonic)
    return clock


def failing(error):
    def call():
        raise error

    return call


def test_pauses_double_up_to_a_limit_until_the_time_is_over(clock):
    told = []
    with pytest.raises(RocketPyError, match="away"):
        again(failing(AWAY), 10, told=lambda error, seconds: told.append((str(error), seconds)))
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0]
    assert told == [("away", 10)]


def test_the_time_starts_anew_after_a_success(clock):
    waiting = Patience(1, first_pause=0.6)
    assert waiting.next_pause() == 0.6
    clock.sleep(0.6)
    waiting.progressed()
    assert not waiting.is_failing
    assert waiting.next_pause() == 0.6
    clock.sleep(1)
    assert waiting.next_pause() is None


def test_an_error_of_unknown_outcome_is_tried_again_only_where_the_caller_says_so(clock):
    with pytest.raises(RocketPyError, match="no answer"):
        again(failing(UNSURE), 1)
    assert clock.pauses == []
    with pytest.raises(RocketPyError, match="no answer"):
        again(failing(UNSURE), 1, unsure=True)
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8]
    with pytest.raises(RocketPyError, match="never"):
        again(failing(RocketPyError("never")), 1, unsure=True)


def test_without_time_nothing_is_tried_again(clock):
    told = []
    with pytest.raises(RocketPyError, match="away"):
        again(failing(AWAY), 0, told=lambda error, _: told.append(error))
    assert (clock.pauses, told) == ([], [])

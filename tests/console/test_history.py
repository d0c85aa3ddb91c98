"""History of figures: means, gaps, tiers and the memory limit."""

from rocketpy.console.history import SERIES_BYTES, History

KEY = ("topic", "orders", "in")
NOW = 1_700_000_000.0


def test_values_of_one_step_become_their_mean():
    history = History()
    for value in (1.0, 2.0, 6.0):
        history.add(KEY, value, NOW)
    points = history.read(KEY, "1h", NOW)
    assert points.values[-1] == 3.0
    assert points.step == 10
    assert len(points.values) == 360
    assert points.times[-1] == NOW // 10 * 10


def test_missing_steps_are_gaps_and_old_steps_leave():
    history = History()
    history.add(KEY, 1.0, NOW)
    history.add(KEY, 2.0, NOW + 30)
    assert history.read(KEY, "1h", NOW + 30).values[-4:] == (1.0, None, None, 2.0)
    assert history.read(KEY, "1h", NOW + 40).values[-5:] == (1.0, None, None, 2.0, None)
    later = history.read(KEY, "1h", NOW + 4000)
    assert set(later.values) == {None}
    history.add(KEY, 5.0, NOW + 4000)
    assert [one for one in history.read(KEY, "1h", NOW + 4000).values if one is not None] == [5.0]
    assert [one for one in history.read(KEY, "6h", NOW + 4000).values if one is not None] == [1.5, 5.0]


def test_a_clock_that_is_set_back_adds_nothing():
    history = History()
    history.add(KEY, 1.0, NOW)
    history.add(KEY, 9.0, NOW - 100)
    assert [one for one in history.read(KEY, "1h", NOW).values if one is not None] == [1.0]


def test_unknown_series_and_spans_are_gaps():
    history = History()
    assert set(history.read(KEY, "1h", NOW).values) == {None}
    assert history.read(KEY, "forever", NOW).step == 10
    history.add(KEY, None, NOW)
    history.add(KEY, float("nan"), NOW)
    assert len(history) == 0


def test_quiet_series_have_one_tier_and_begin_with_the_first_movement():
    history = History()
    history.add(KEY, 0.0, NOW, tiers=1)
    assert len(history) == 0
    history.add(KEY, 1.0, NOW, tiers=1)
    assert history.bytes == SERIES_BYTES + 360 * 4
    assert history.read(KEY, "6h", NOW).values[-1] == 1.0
    assert history.read(KEY, "1h", NOW).step == 60


def test_the_quietest_series_go_first_at_the_limit():
    history = History(max_bytes=3 * (SERIES_BYTES + 360 * 4))
    for place, name in enumerate("abcd"):
        history.add(("topic", name), 1.0, NOW + place, tiers=1)
        history.add(("topic", "a"), 1.0, NOW + place, tiers=1)
    assert history.dropped == 1
    assert history.read(("topic", "b"), "6h", NOW + 3).values.count(None) == 360
    assert history.read(("topic", "a"), "6h", NOW + 3).values.count(None) < 360
    history.forget(("topic",))
    assert (len(history), history.bytes) == (0, 0)

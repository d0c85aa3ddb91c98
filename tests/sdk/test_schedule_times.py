"""Times of cron texts and intervals, above all where a clock is set forward or back."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

import rocketpy
from rocketpy.schedule.times import Times, times_of

BERLIN = "Europe/Berlin"
"""02:00 becomes 03:00 on 2026-03-29; 03:00 becomes 02:00 on 2026-10-25."""


def local(text, zone=BERLIN, fold=0):
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


def following(cron, start_ms, count, zone=BERLIN):
    """Next times in UTC, each computed from the one before, as a scheduler does."""
    times, found = Times(cron, None, zone), []
    for _ in range(count):
        start_ms = times.after(start_ms)
        found.append(datetime.fromtimestamp(start_ms / 1000, UTC).strftime("%d %H:%M"))
    return found


def test_a_time_in_the_gap_fires_once_right_after_it():
    assert following("30 2 * * *", local("2026-03-28T12:00"), 2) == ["29 01:00", "30 00:30"]  # 03:00 CEST


def test_times_in_the_gap_and_at_its_end_fire_once_together():
    assert following("0,30 2,3 * * *", local("2026-03-28T12:00"), 4) == ["29 01:00", "29 01:30", "30 00:00", "30 00:30"]


def test_a_time_in_the_overlap_fires_once_at_its_first_occurrence():
    assert following("30 2 * * *", local("2026-10-24T12:00"), 2) == ["25 00:30", "26 01:30"]  # 02:30 CEST, 02:30 CET


@pytest.mark.parametrize("begun", [("2026-10-25T02:10", 1), ("2026-10-25T02:30", 0), ("2026-10-25T02:40", 1)])
def test_a_time_of_the_overlap_does_not_come_again_in_its_second_hour(begun):
    assert following("30 2 * * *", local(begun[0], fold=begun[1]), 1) == ["26 01:30"]


def test_texts_with_a_star_follow_elapsed_time():
    assert following("*/30 * * * *", local("2026-03-29T01:30"), 3) == ["29 01:00", "29 01:30", "29 02:00"]
    assert following("0 * * * *", local("2026-10-25T01:30"), 4) == ["25 00:00", "25 01:00", "25 02:00", "25 03:00"]


def test_a_zone_without_changes_and_one_with_half_an_hour():
    assert following("0 9 * * MON", local("2026-03-28T12:00", "Asia/Kolkata"), 1, "Asia/Kolkata") == ["30 03:30"]
    lord_howe = "Australia/Lord_Howe"  # set back by 30 minutes at 02:00 on 2026-04-05
    assert following("45 1 * * *", local("2026-04-04T12:00", lord_howe), 2, lord_howe) == ["04 14:45", "05 15:15"]


def test_days_with_a_gap_at_midnight_and_days_after_a_change_by_half_an_hour_have_all_their_times():
    beirut = "Asia/Beirut"  # 00:00 becomes 01:00 on 2025-03-30
    assert following("*/30 1 * * SUN", local("2025-03-29T12:00", beirut), 2, beirut) == ["29 22:00", "29 22:30"]
    lord_howe = "Australia/Lord_Howe"
    back = following("*/20 0 * * *", local("2026-04-05T12:00", lord_howe), 3, lord_howe)
    assert back == ["05 13:30", "05 13:50", "05 14:10"]
    forward = following("*/20 0 * * *", local("2026-10-04T12:00", lord_howe), 3, lord_howe)
    assert forward == ["04 13:00", "04 13:20", "04 13:40"]


@pytest.mark.parametrize("cron", ["*/20 * * * *", "5 */2 * * *", "*/15 1-2 * * *"])
@pytest.mark.parametrize(
    ("zone", "day"),
    [
        (BERLIN, "2026-03-28"),
        (BERLIN, "2026-10-24"),
        ("Asia/Beirut", "2026-03-28"),
        ("Australia/Lord_Howe", "2026-04-04"),
        ("Australia/Lord_Howe", "2026-10-03"),
    ],
)
def test_texts_with_a_star_have_each_minute_whose_local_time_they_name(zone, day, cron):
    every_minute = range(local(f"{day}T00:00", zone), local(f"{day}T00:00", zone) + 2 * 86_400_000, 60_000)
    minute, hour = cron.split()[:2]
    named = [
        at for at in every_minute if is_named(minute, wall(at, zone).minute) and is_named(hour, wall(at, zone).hour)
    ]
    times, found = Times(cron, None, zone), []
    at = times.after(every_minute[0] - 1000)
    while at <= every_minute[-1]:
        found.append(at)
        at = times.after(at)
    assert found == named


def wall(at_ms, zone):
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone))


def is_named(field, number):
    if field.startswith("*"):
        return number % int(field[2:] or 1) == 0
    first, *last = (int(one) for one in field.split("-"))
    return first <= number <= (last or [first])[0]


@pytest.mark.parametrize("cron", ["30 2 * * *", "0 * * * *", "*/7 * * * *", "0,30 2,3 * * *"])
@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25", "2026-07-01"])
def test_the_latest_time_is_the_last_of_those_that_follow_each_other(cron, day):
    times = Times(cron, None, BERLIN)
    first = times.after(local(f"{day}T00:00") - 86_400_000)
    for now in range(first, local(f"{day}T06:00"), 17 * 60_000):
        expected, follows = first, times.after(first)
        while follows <= now:
            expected, follows = follows, times.after(follows)
        latest = times.latest(first, now)
        assert first <= latest <= now
        assert times.after(latest) > now
        assert latest == expected


def test_an_interval_keeps_its_rhythm():
    times = times_of(None, timedelta(minutes=1), "UTC")
    assert times.after(1_000) == 61_000
    assert times.latest(61_000, 200_000) == 181_000
    assert times.latest(61_000, 60_000) == 61_000


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "either cron= or every="),
        ({"cron": "* * * * *", "every": 5}, "either cron= or every="),
        ({"cron": "* * * *"}, "five fields"),
        ({"cron": "0 0 3 * * *"}, "five fields"),
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "0 0 31 2 *"}, "Bad day-of-month"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "unknown time zone: 'Mars/Olympus'"),
        ({"cron": "* * * * *", "timezone": "../etc"}, "unknown time zone"),
        ({"every": 0.5}, "whole seconds"),
        ({"every": 0}, "whole seconds"),
        ({"every": 60, "timezone": BERLIN}, "timezone is for cron texts only"),
    ],
)
def test_wrong_times_are_named(given, text):
    with pytest.raises(rocketpy.InvalidArgumentError, match=text):
        times_of(given.get("cron"), given.get("every"), given.get("timezone", "UTC"))

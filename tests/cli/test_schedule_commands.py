"""Schedules, from the command line."""

import json

import pytest

from rocketpy.schedule import Scheduler


@pytest.fixture
def name(topic: str) -> str:
    """A name of its own: the server is shared."""
    return f"{topic}-schedule"


def test_schedules_are_added_listed_and_removed(rocketpy, name: str, topic: str):
    given = ["schedule", "add", name, topic, "go", "--cron", "0  3 * * MON-FRI", "--timezone", "Europe/Berlin"]
    added = json.loads(rocketpy(*given, "--tag", "PDF", "--missed", "never", "--json").stdout)
    (listed,) = [one for one in json.loads(rocketpy("schedule", "list", "--json").stdout) if one["name"] == name]
    assert listed == added
    assert added.pop("next_at").endswith(":00:00+00:00")
    assert added == {
        "name": name,
        "cron": "0 3 * * MON-FRI",
        "every_seconds": None,
        "timezone": "Europe/Berlin",
        "topic": topic,
        "tag": "PDF",
        "body": "go",
        "missed": "never",
        "last_at": None,
        "error": None,
    }
    assert rocketpy("schedule", "remove", name).stdout == f"removed schedule {name}\n"
    assert name not in rocketpy("schedule", "list").stdout
    assert f"no such schedule: {name}" in rocketpy("schedule", "remove", name, code=3).stderr


def test_another_definition_is_a_conflict_until_it_replaces(rocketpy, name: str, topic: str):
    rocketpy("schedule", "add", name, topic, "--every", "15m")
    refused = rocketpy("schedule", "add", name, topic, "--every", "1d", code=7).stderr
    assert "stored: every 0:15:00" in refused
    assert "given: every 1 day, 0:00:00" in refused
    assert "--replace" in refused
    replaced = rocketpy("schedule", "add", name, topic, "--every", "1d", "--replace", "--json").stdout
    assert json.loads(replaced)["every_seconds"] == 86_400
    rocketpy("schedule", "remove", name)


def test_a_list_says_when_nobody_fires(rocketpy, server, name: str, topic: str):
    assert "no scheduler runs now" in rocketpy("schedule", "add", name, topic, "--every", "6h").stdout
    assert "no scheduler runs now" in rocketpy("schedule", "list").stdout
    with Scheduler(server.name_server, api_timeout=60):
        while "no scheduler runs now" in rocketpy("schedule", "list").stdout:
            pass
    rocketpy("schedule", "remove", name)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--every", "15"], "--every: not an interval: 15"),
        (["--cron", "* * *"], "cron text must have five fields: '* * *'"),
        (["--cron", "* * * * *", "--timezone", "Mars"], "unknown time zone: 'Mars'"),
        ([], "a schedule has either cron= or every="),
    ],
)
def test_wrong_times_are_named_with_the_way_out(rocketpy, given: list[str], text: str):
    refused = rocketpy("schedule", "add", "report", "reports", *given, code=2).stderr
    assert text in refused
    assert "hint: " in refused

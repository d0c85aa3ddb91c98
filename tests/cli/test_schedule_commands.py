"""Schedules, from the command line."""

import json

import pytest

from rocketpy import Admin, schedule
from rocketpy.schedule import Scheduler
from rocketpy.schedule.journal import GROUP
from waiting import wait_until

PATIENT = {"api_timeout": 60}


@pytest.fixture
def name(topic: str) -> str:
    """A name of its own: the server is shared."""
    return f"{topic}-schedule"


def test_a_schedule_of_a_missing_topic_is_stored_with_a_warning(rocketpy, server, name: str, topic: str):
    added = rocketpy("schedule", "add", name, f"{topic}s", "--every", "1d", "--json")
    said = f"topic {topic}s of schedule {name} does not exist: did you mean {topic}? If not, create it with "
    assert added.stderr.startswith(said)
    assert json.loads(added.stdout)["topic"] == f"{topic}s"
    assert rocketpy("schedule", "add", name, topic, "--every", "1d", "--replace").stderr == ""
    rocketpy("schedule", "remove", name)


def test_schedules_are_added_listed_and_removed(rocketpy, server, name: str, topic: str):
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
    assert "no scheduler runs now" in rocketpy("schedule", "list").stdout
    with Scheduler(server.name_server, **PATIENT), Admin(server.name_server) as admin:
        wait_until(lambda: admin.group_members(GROUP), "the scheduler is a member")
        assert "no scheduler runs now" not in rocketpy("schedule", "list").stdout
    assert rocketpy("schedule", "remove", name).stdout == f"removed schedule {name}\n"
    assert f"no such schedule: {name}" in rocketpy("schedule", "remove", name, code=3).stderr


def test_another_definition_is_a_conflict_until_it_replaces(rocketpy, server, name: str, topic: str):
    schedule.add(name, topic=topic, every=900, name_servers=server.name_server, **PATIENT)
    refused = rocketpy("schedule", "add", name, topic, "--every", "1d", code=7).stderr
    assert "stored: every 0:15:00" in refused
    assert "given: every 1 day, 0:00:00" in refused
    assert "--replace" in refused
    replaced = rocketpy("schedule", "add", name, topic, "--every", "1d", "--replace", "--json").stdout
    assert json.loads(replaced)["every_seconds"] == 86_400
    schedule.remove(name, name_servers=server.name_server, **PATIENT)


def test_an_interval_without_a_unit_is_refused(rocketpy):
    refused = rocketpy("schedule", "add", "report", "reports", "--every", "15", code=2).stderr
    assert "--every: not an interval: 15" in refused
    assert "hint: write 90s, 15m, 6h or 1d" in refused

"""`rocketpy audit`: lines of all files of the log, filtered, and names of others that do no harm to a terminal."""

import json
from pathlib import Path
from typing import Any

import pytest

import rocketpy
from closed_server import ADMIN, USERS_ON
from rocketpy.testing import SMALL_FILES, fresh_name
from waiting import wait_until


def line(time: str, user: str | None, action: str, result: str, **values: Any) -> str:
    fixed = {"from": "10.0.0.1:5000", "code": 10, "request": "SEND_MESSAGE", "resource": "Topic:orders"}
    return json.dumps({"time": time, "user": user, **fixed, "action": action, "result": result, **values}) + "\n"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with three files of the log, of which the last one has a line that was cut off."""
    log = tmp_path / "log" / "audit.log"
    log.parent.mkdir()
    hostile = "bil\x1b[2Jling\n\u202ex"
    log.with_name("audit.log.10").write_text(line("2026-01-01T00:00:00.000Z", "old", "Pub", "denied: no policy"))
    log.with_name("audit.log.2").write_text(line("2026-01-02T00:00:00.000Z", hostile, "Pub,Sub", "denied: no policy"))
    log.with_name("audit.log.bak").write_text("not a file of the log\n")
    log.write_text(
        line("2026-01-03T00:00:00.000Z", "admin", "Create", "admitted")
        + line("2026-01-04T00:00:00.000Z", "admin", "Get", "admitted, the answer has passwords")
        + line("2026-01-05T00:00:00.000Z", None, "", "980 denied requests of this address left out")
        + line("2026-01-06T00:00:00.000Z", "left out", "Pub", "denied: User:left out is not found.")
        + '{"time": "2026-01-07T'
    )
    return tmp_path


def test_lines_of_all_files_are_shown_oldest_first_with_fixed_results(command, store: Path):
    ran = command("audit", str(store), "--json")
    rows = json.loads(ran.stdout)
    assert [row["time"][:10] for row in rows] == [f"2026-01-0{day}" for day in range(1, 7)]
    assert [row["result"] for row in rows] == ["denied", "denied", "admitted", "admitted", "left-out", "denied"]
    assert [row["reason"] for row in rows][2:4] == [None, "the answer has passwords"]
    assert rows[0]["reason"] == "no policy"
    assert "1 line" in ran.stderr
    assert json.loads(command("audit", str(store / "log" / "audit.log"), "--json").stdout) == rows


@pytest.mark.parametrize(
    ("options", "days"),
    [
        (("--user", "admin"), [3, 4]),
        (("--action", "sub"), [2]),
        (("--result", "denied"), [1, 2, 6]),
        (("--result", "left-out"), [5]),
        (("--since", "2026-01-04T00:00:00Z", "--result", "admitted"), [4]),
        (("--count", "2"), [5, 6]),
    ],
)
def test_lines_are_filtered(command, store: Path, options: tuple[str, ...], days: list[int]):
    rows = json.loads(command("audit", str(store), *options, "--json").stdout)
    assert [int(row["time"][8:10]) for row in rows] == days


def test_names_of_others_are_escaped_on_a_terminal(command, store: Path):
    shown = command("audit", str(store), "--result", "denied").stdout
    assert r"bil\x1b[2Jling\n\u202ex" in shown
    assert "\x1b[2J" not in shown
    assert "\u202e" not in shown


def test_missing_log_is_an_error_with_the_way_out(command, tmp_path: Path):
    assert "authenticationEnabled=true" in command("audit", str(tmp_path), code=3).stderr


def test_rotated_file_alone_is_read(command, store: Path):
    (store / "log" / "audit.log").unlink()
    assert len(json.loads(command("audit", str(store), "--json").stdout)) == 2
    assert "no such requests" in command("audit", str(store), "--user", "nobody").stdout


def test_log_of_a_server_is_read(command, tmp_path: Path):
    settings = {**SMALL_FILES, **USERS_ON}
    with rocketpy.Server(tmp_path / "store", settings=settings) as server:
        names = server.name_servers
        user, topic = fresh_name("user"), fresh_name("topic")
        with rocketpy.Admin(names, credentials=ADMIN) as admin:
            admin.create_user(user, "a secret of the user")
            admin.create_topic(topic, queues=1)
        other = rocketpy.Credentials(user, "a secret of the user")
        with rocketpy.Admin(names, credentials=other) as admin, pytest.raises(rocketpy.AccessDeniedError):
            admin.describe_topic(topic)

        def rows(*options: str) -> list[dict[str, Any]]:
            log = tmp_path / "store" / "log" / "audit.log"
            return json.loads(command("audit", str(log), *options, "--json").stdout)

        wait_until(lambda: rows("--user", user, "--result", "denied"), "the denial")
        denied = rows("--user", user, "--result", "denied")
        assert {row["resource"] for row in denied} == {f"Topic:{topic}"}
        assert "no matched policies" in denied[0]["reason"]
        assert not denied[0]["reason"].startswith("denied")
        changes = rows("--result", "admitted", "--action", "create")
        assert {row["resource"] for row in changes} == {f"Topic:{topic}"}

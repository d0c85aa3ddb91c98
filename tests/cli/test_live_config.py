"""`rocketpy config list`, `set` and `unset`: at running servers, and in a store that no server can start on."""

import itertools
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from rocketpy import Admin, RocketPyError
from waiting import wait_until


@pytest.fixture
def where(server) -> dict[str, str]:
    return {"name_server": server.ready["name_server"]}


def rows(text: str) -> dict[str, dict]:
    return {row["key"]: row for row in json.loads(text)}


def set_again_and_again(running, acknowledged: list[int]) -> None:
    """Sets a live value to 1, 2, 3 and so on until the server is gone."""
    with Admin(running.ready["name_server"], api_timeout=60) as admin:
        try:
            for hours in itertools.count(1):
                admin.update_broker_config(running.ready["broker"], {"fileReservedTime": hours})
                acknowledged.append(hours)
        except RocketPyError:
            return


def test_keys_are_set_and_unset_at_a_running_broker(command, server, where: dict[str, str]):
    checked = command("config", "set", "broker-a", "fileReservedTime=24", "--dry-run", **where)
    assert "dry run" in checked.stdout
    assert "24" in checked.stdout
    changed = command("config", "set", "broker-a", "file_reserved_time=24", "--json", **where)
    (value,) = json.loads(changed.stdout)["values"]
    assert (value["key"], value["value"], value["origin"]) == ("fileReservedTime", 24, "live")
    table = command("config", "list", "broker-a", "--origin", **where).stdout
    assert any("fileReservedTime" in line and "24" in line and "live" in line for line in table.splitlines())
    assert "sendMessageThreadPoolNums" in table.rsplit("without effect", 1)[1]
    listed = rows(command("config", "list", server.ready["broker"], "--json", **where).stdout)
    assert (listed["fileReservedTime"]["default"], listed["maxTopics"]["needs_restart"]) == (72, True)
    assert listed["sendMessageThreadPoolNums"]["is_used"] is False
    command("config", "unset", "broker-a", "fileReservedTime", **where)
    listed = rows(command("config", "list", "broker-a", "--json", **where).stdout)
    assert (listed["fileReservedTime"]["value"], listed["fileReservedTime"]["origin"]) == (72, "default")


def test_keys_are_set_at_a_name_server(command, where: dict[str, str]):
    address = where["name_server"]
    command("config", "set", address, "orderMessageEnable=true", name_server=address)
    listed = rows(command("config", "list", address, "--json", name_server=address).stdout)
    assert (listed["orderMessageEnable"]["value"], listed["orderMessageEnable"]["origin"]) == (True, "live")
    command("config", "unset", address, "orderMessageEnable", name_server=address)


@pytest.mark.parametrize(
    ("line", "code", "says", "hint"),
    [
        ("set broker-a noSuchKey=1", 2, "noSuchKey", "`rocketpy config list SERVER` lists the keys"),
        ("set broker-a fileReservdTime=1", 2, "fileReservdTime", "did you mean fileReservedTime?"),
        ("set broker-a fileReservedTime=many", 2, "fileReservedTime", "config show"),
        ("set broker-a fileReservedTime=1 maxTopics=40", 5, "--at-restart", "config show"),
        ("set broker-a brokerName=b", 5, "brokerName", "config show"),
        ("set no-such-broker fileReservedTime=1", 3, "no-such-broker", "cluster list"),
        ("set broker-a fileReservedTime", 2, "KEY=VALUE", "`rocketpy config set BROKER fileReservedTime=24`"),
        ("set broker-a fileReservedTime=1 file_reserved_time=1", 2, "fileReservedTime and file_reserved_time", "once"),
        ("set broker-a fileReservedTime=1 fileReservedTime=2", 2, "the same key: fileReservedTime", "once"),
        ("unset broker-a", 2, "a key is missing", "config unset SERVER KEY"),
        ("unset broker-a fileReservdTime", 2, "fileReservdTime", "did you mean fileReservedTime?"),
        ("unset --store no-such-folder fileReservedTime", 3, "no-such-folder", "check the path"),
    ],
)
def test_wrong_changes_are_errors_and_change_nothing(
    command, where: dict[str, str], line: str, code: int, says: str, hint: str
):
    result = command("config", *line.split(), code=code, **where)
    error, way_out = result.stderr.splitlines()
    assert says in error
    assert hint in way_out
    listed = rows(command("config", "list", "broker-a", "--json", **where).stdout)
    assert listed["fileReservedTime"]["value"] == 72


def test_a_key_with_control_characters_is_refused_without_them(command, where: dict[str, str]):
    result = command("config", "set", "broker-a", "a\x1b[2Jb=1", code=None, **where)
    assert "\x1b" not in result.stderr


def test_kill_during_a_write_leaves_a_whole_file_and_a_bad_value_is_removed_offline(command, start, tmp_path: Path):
    file, store = tmp_path / "broker.conf", tmp_path / "store"
    file.write_text(f"listenPort=0\nnameServerPort=0\nfileReservedTime=48\nstorePathRootDir={store}\n")
    running = start("server", "-c", str(file))  # the file names the folder
    where = {"name_server": running.ready["name_server"]}
    command("config", "set", "broker-a", "fileReservedTime=24", "maxTopics=40", "--at-restart", **where)
    in_use = command("config", "unset", "--store", str(store), "maxTopics", code=None)
    assert in_use.stderr.startswith("error: cannot change the live values")
    live = store / "config" / "live.properties"
    acknowledged: list[int] = []
    writer = threading.Thread(target=set_again_and_again, args=(running, acknowledged))
    writer.start()
    wait_until(lambda: len(acknowledged) > 20, "values are acknowledged", process=running.process)
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    writer.join()
    running = start("server", "-c", str(file))
    where = {"name_server": running.ready["name_server"]}
    listed = rows(command("config", "list", "broker-a", "--json", **where).stdout)
    assert listed["maxTopics"]["value"] == 40
    assert listed["fileReservedTime"]["value"] - acknowledged[-1] in {0, 1}, "the last answered change, or the next"
    command("config", "unset", "broker-a", "fileReservedTime", **where)
    listed = rows(command("config", "list", "broker-a", "--json", **where).stdout)
    assert (listed["fileReservedTime"]["value"], listed["fileReservedTime"]["origin"]) == (48, "file")
    running.stop()

    with live.open("a") as lines:
        lines.write("maxGroups=1\n")
    failed = command("server", "-c", str(file), code=None)
    assert "maxGroups" in failed.stderr
    assert str(live) in failed.stderr
    repair = failed.stderr.split("`")[1].split()
    assert repair[:3] == ["rocketpy", "config", "unset"]
    command(*repair[1:], "--dry-run")
    command(*repair[1:])
    start("server", "-c", str(file)).stop()
    assert live.read_text().endswith("maxTopics=40\n")


def test_a_server_without_a_folder_names_the_key(command, tmp_path: Path):
    file = tmp_path / "broker.conf"
    file.write_text("listenPort=0\n")
    result = command("server", "-c", str(file), code=2)
    assert "storePathRootDir" in result.stderr

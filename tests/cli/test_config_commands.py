"""`rocketpy config`: values with their origin, what a key means, what differs."""

import json
import os
from pathlib import Path

import pytest


@pytest.fixture
def bare() -> dict[str, str]:
    """The environment without variables that are configuration."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ROCKETPY_", "NAMESRV_ADDR"))}


@pytest.fixture
def command(command, bare: dict[str, str]):
    """Runs a command line that sees no configuration variables of the surrounding run, only those in `variables`."""

    def run(*arguments: str, variables: dict[str, str] | None = None, **options):
        return command(*arguments, env=bare | (variables or {}), **options)

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=from-file\nlistenPort=1234\nfileReservedTime=48\nsendMessageThreadPoolNums=4\n")
    return path


def values(text: str) -> dict[str, dict]:
    return {row["key"]: row for row in json.loads(text)}


def test_each_value_is_shown_with_the_layer_that_set_it(command, file: Path):
    variables = {"ROCKETPY_LISTEN_PORT": "2345", "ROCKETPY_REGION_ID": "r1"}
    line = ("config", "show", "--config", str(file), "--set", "regionId=r2", "--format", "json")
    result = command(*line, variables=variables)
    found = values(result.stdout)
    assert (found["brokerName"]["value"], found["brokerName"]["origin"]) == ("from-file", f"file {file}")
    assert (found["listenPort"]["value"], found["listenPort"]["origin"]) == (
        2345,
        "environment ROCKETPY_LISTEN_PORT",
    )
    assert (found["regionId"]["value"], found["regionId"]["origin"]) == ("r2", "command line")
    assert found["traceOn"] == {"key": "traceOn", "value": True, "default": True, "origin": "default"}
    assert found["mappedFileSizeCommitLog"] == {
        "key": "mappedFileSizeCommitLog", "value": 1 << 30, "default": 64 << 20, "origin": f"Apache's default {file}",
    }  # fmt: skip
    assert found["namesrvAddr"]["value"] == []
    assert found["readyFile"]["value"] is None
    assert "sendMessageThreadPoolNums" in result.stderr, "what has no meaning here is named"
    table = command("config", "show", "--config", str(file)).stdout
    assert any("fileReservedTime" in line and "48" in line and str(file) in line for line in table.splitlines())


def test_a_shown_configuration_can_be_read_again(command, file: Path, tmp_path: Path):
    line = ("config", "show", "--config", str(file), "--set", r"regionId=a\b", "--format", "properties")
    shown = command(*line)
    again = tmp_path / "again.conf"
    again.write_text(shown.stdout)
    assert "#traceOn=true" in shown.stdout.splitlines(), "a default is a comment: it may be another one some day"
    found = values(command("config", "show", "--config", str(again), "--format", "json").stdout)
    given = {name: row["value"] for name, row in found.items() if row["origin"] != "default"}
    assert given == {
        "brokerName": "from-file", "listenPort": 1234, "fileReservedTime": 48, "regionId": r"a\b",
        "mappedFileSizeCommitLog": 1 << 30,
    }  # fmt: skip


def test_a_key_is_explained_in_any_spelling(command):
    facts = json.loads(command("config", "explain", "flush_interval_commit_log", "--json").stdout)
    assert facts["key"] == "flushIntervalCommitLog"
    assert (facts["unit"], facts["default"], facts["bounds"]) == ("milliseconds", "500", "from 1 to 86400000")
    assert facts["apache"] == "has the same default"
    assert facts["changes_while_running"] is False
    assert facts["description"].endswith(".")
    text = command("config", "explain", "bindAddress").stdout
    assert "0.0.0.0" in text
    assert "STOP, REFUSE" in command("config", "explain", "onFailedFlush").stdout
    assert "enabledAppendPropCRC" in command("config", "explain", "recordCheck").stdout


def test_keys_that_are_not_used_are_explained_too(command):
    assert "migrateAuthFromV1Enabled" in command("config", "explain", "aclEnable").stdout
    assert "does not exist here" in command("config", "explain", "sendMessageThreadPoolNums").stdout
    assert "index in the folder of storePathRootDir" in command("config", "explain", "storePathIndex").stdout
    facts = json.loads(command("config", "explain", "mapedFileSizeCommitLog", "--json").stdout)
    assert facts["key"] == "mappedFileSizeCommitLog", "an older spelling"


def test_a_file_of_a_guide_is_read(command, tmp_path: Path):
    file = tmp_path / "broker.conf"
    text = "\ufeffbrokerIP1=[::1]\nstorePathRootDir=/data\nabortFile=/data/abort\nfileReservedTime=5d\n"
    text += "flushDiskType=sync_flush\nsendMessageThreadPoolNums=128\nmapedFileSizeConsumeQueue=300000\n"
    file.write_text(text, encoding="utf-8")
    shown = command("config", "show", "--config", str(file), "--format", "json")
    found = {name: row["value"] for name, row in values(shown.stdout).items()}
    assert (found["brokerIP1"], found["fileReservedTime"], found["flushDiskType"]) == ("::1", 120, "SYNC_FLUSH")
    assert found["mappedFileSizeConsumeQueue"] == 300_000
    assert shown.stderr == "ignored keys: sendMessageThreadPoolNums\n"


def test_each_error_of_a_file_has_a_line_and_a_hint(command, tmp_path: Path):
    file = tmp_path / "broker.conf"
    file.write_text("aclEnable=true\nmetricsInDelta=true\nlistenPrt=1\nabortFile=/elsewhere/abort\n")
    error = command("config", "show", "--config", str(file), code=2).stderr
    lines = error.splitlines()
    assert lines[0] == "error: 4 settings are invalid:"
    assert [line.startswith("    hint: ") for line in lines[1:9]] == [False, True] * 4
    assert lines[2] == "    hint: write aclEnable=false, or remove the key"
    assert "duplicationEnable" not in error
    assert "storePathRootDir=/elsewhere" in error


def test_an_unknown_key_names_the_nearest(command):
    error = command("config", "explain", "flushDiskTyp", code=2).stderr
    assert "hint: write flushDiskType, or remove the key; `rocketpy config explain flushDiskType`" in error


def test_only_what_differs_from_the_defaults_is_listed(command, file: Path):
    line = ("config", "diff", "--config", str(file), "--set", "traceOn=true", "--set", "maxTopics=50", "--json")
    found = values(command(*line).stdout)
    assert set(found) == {"brokerName", "listenPort", "fileReservedTime", "maxTopics", "mappedFileSizeCommitLog"}
    assert found["fileReservedTime"]["default"] == 72
    assert "nothing differs" in command("config", "diff").stdout


def test_two_files_are_compared(command, file: Path, tmp_path: Path):
    other = tmp_path / "other.toml"
    other.write_text('brokerName = "from-file"\nlistenPort = 99\n')
    rows = values(command("config", "diff", str(file), str(other), "--json").stdout)
    assert set(rows) == {"listenPort", "fileReservedTime", "mappedFileSizeCommitLog"}
    assert (rows["listenPort"][str(file)], rows["listenPort"][str(other)]) == (1234, 99)
    command("config", "diff", str(file), code=2)


def test_a_bad_configuration_ends_with_its_hint(command, tmp_path: Path):
    assert "no such configuration file" in command("config", "show", "--config", str(tmp_path / "no"), code=3).stderr
    assert "listenPort" in command("config", "show", "--set", "listenPort=x", code=2).stderr

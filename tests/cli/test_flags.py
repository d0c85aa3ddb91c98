"""The server commands have two parsers; one table feeds both, and these tests hold them together."""

import re
from pathlib import Path

import pytest

import rocketpy
from rocketpy.cli import main, serve
from rocketpy.cli.cluster import new_folder
from rocketpy.cli.config import load
from rocketpy.cli.flags import BROKER_PORT, COMMANDS, NAME_SERVER_PORT
from rocketpy.commandline.exits import ExitCode


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_every_flag_of_the_table(command, name: str):
    text = command(name, "--help", env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}).stdout
    for flag in COMMANDS[name].flags:
        assert flag.name in text
        assert re.sub(r"\s+", " ", flag.help)[:30] in re.sub(r"[\s│]+", " ", text)


def test_a_flag_that_was_not_given_is_left_to_the_configuration():
    options = serve.parse(["server", "data"])
    assert options == {
        "dir": Path("data"), "host": None, "port": None, "name_server_port": None, "secure": None, "config": None,
        "set": [], "console": None, "console_listen": None,
        "ready_file": None, "log_file": None, "log_file_bytes": None, "log_files": None, "log_format": None,
    }  # fmt: skip


def test_the_ports_that_help_names_are_those_of_the_table_of_keys():
    keys = {key["name"]: key["default"] for key in load(None, [], environment=False)}
    ports = [keys["listenPort"], keys["nameServerPort"]]
    assert [BROKER_PORT.default, NAME_SERVER_PORT.default] == ports


def test_every_flag_is_parsed():
    options = serve.parse(
        ["broker", "data", "--name-server", "a:1,b:2", "--host", "::1", "--port", "0", "--config", "broker.conf",
         "--role", "slave", "--broker-id", "1", "--broker-name", "a",
         "--set", "a=1", "--set", "b=2=3", "--ready-file", "ready",
         "--log-file", "log", "--log-file-bytes", "4096", "--log-files", "3", "--log-format", "json"]
    )  # fmt: skip
    assert options == {
        "dir": Path("data"), "name_server": "a:1,b:2", "host": "::1", "port": 0, "config": Path("broker.conf"),
        "role": "slave", "broker_id": 1, "broker_name": "a", "set": ["a=1", "b=2=3"], "ready_file": Path("ready"),
        "log_file": Path("log"), "log_file_bytes": 4096, "log_files": 3, "log_format": "json",
    }  # fmt: skip
    assert serve.settings_of(options["set"]) == {"a": "1", "b": "2=3"}


def test_a_secret_on_the_command_line_is_refused_with_the_way_out():
    with pytest.raises(rocketpy.RocketPyError) as refused:
        serve.settings_of(['initAuthenticationUser={"username":"a","password":"hush"}'])
    assert "initAuthenticationUser" in str(refused.value)
    assert "hush" not in str(refused.value)
    assert "ROCKETPY_INIT_AUTHENTICATION_USER" in str(refused.value.hint)


def test_short_flags_are_those_of_mqbroker_and_the_folder_may_be_left_to_the_configuration():
    options = serve.parse(["broker", "-c", "broker.conf", "-n", "a:1;b:2"])
    assert (options["dir"], options["config"], options["name_server"]) == (None, Path("broker.conf"), "a:1;b:2")


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("broker drian", "drian (did you mean drain?)", "`rocketpy broker drain BROKER` is the command"),
        ("broker -n 127.0.0.1:1 drain", "drain", "`rocketpy broker drain BROKER` is the command"),
        ("--timeout 5 broker Undrian", "Undrian (did you mean undrain?)", "`rocketpy broker undrain BROKER`"),
        ("server status", "status", "`rocketpy status` shows the cluster"),
        ("--timeout 5 server stop", "stop", "Ctrl-C or SIGTERM stops a server"),
        ("cluster up 2m", "2m", "`rocketpy cluster up DIR --topology 2m` is the command"),
    ],
)
def test_a_word_that_is_probably_a_command_is_not_a_new_folder(
    line: str, error: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == ExitCode.USAGE
    shown = capsys.readouterr().err.splitlines()
    assert shown[0].startswith("error: ")
    assert shown[0].endswith(f": {error}")
    assert shown[1].startswith(f"hint: {hint}")
    assert shown[1].endswith(f"write ./{line.split()[-1]}")
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_or_a_path_is_never_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for text in ("./drian", "main", "store", "data"):
        assert serve.parse(["broker", text])["dir"] == Path(text)
    Path("drian").mkdir()
    Path("2m").mkdir()
    assert serve.parse(["broker", "drian"])["dir"] == Path("drian")
    assert new_folder("2m") == new_folder("./2m") == Path("2m")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("server", "DIR"),
        ("server data --prot 1", "did you mean --port?"),
        ("server data --port x", "port"),
        ("broker data --name-server", "--name-server"),
        ("server data --set flushDiskType", "KEY=VALUE"),
        ("server data --log-files 0", "1 to 1000: 0"),
        ("server data --log-file-bytes 1", "4096"),
        ("server data --log-format xml", "text, json: xml"),
        ("topic", "a command is missing"),
        ("topic creat orders", "did you mean 'create'"),
        ("topic create", "TOPIC"),
        ("topic create orders --queues many", "--queues"),
        ("topic create orders --queuess 3", "--queues"),
        ("produce orders --format xml", "--format"),
        ("consume orders --from yesterday", "yesterday"),
        ("store dump", "DIR"),
        ("config diff one", "two files"),
        ("message query orders", "--key"),
        ("no-such-command", "no-such-command"),
    ],
)
def test_wrong_usage_of_any_command_is_an_error_and_a_hint(command, line: str, says: str):
    result = command(*line.split(), code=2)
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert says.lower() in error.lower()
    assert hint.startswith("hint: ")

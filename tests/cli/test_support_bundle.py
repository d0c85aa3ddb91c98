"""`rocketpy support-bundle`: what it contains, what it hides, and what may be missing."""

import json
import os
import signal
import tarfile
from pathlib import Path

import pytest

import rocketpy as sdk
from rocketpy import Message
from rocketpy.cli.support_bundle import Bundle, add_members, server_of
from rocketpy.commandline.secrets import masked, masked_arguments, masked_lines, masked_text, masked_toml

SECRET = "hush0e5c2a97d14b46f3"


def files_of(archive: Path) -> dict[str, str]:
    """Texts of an archive by path, without the folder."""
    with tarfile.open(archive) as opened:
        return {member.name.partition("/")[2]: opened.extractfile(member).read().decode() for member in opened}


def test_a_planted_secret_is_nowhere_in_the_archive_and_the_rest_is(command, tmp_path: Path):
    token = tmp_path / f"{SECRET}.txt"
    token.write_text(SECRET)
    config, log = tmp_path / "broker.conf", tmp_path / "broker.log"
    config.write_text(
        f"brokerName=broker-a\naccessKey = {SECRET} and {SECRET}\nnamesrvAddr=redis://me:{SECRET}@host/0\n"
        f'initAuthenticationUser={{"username":"me","password":"{SECRET}"}}\n'
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----\n"
    )
    log.write_text(
        f'first line\ntook 5 ms user="me" secretKey={SECRET}, and {SECRET}\nsent {{\\"token\\": \\"{SECRET}\\"}}\n'
        f"authorization: Bearer {SECRET}\nlast line\n"
    )
    secrets = {"ROCKETPY_HA_TOKEN_FILE": str(token), "ROCKETPY_PASSWORD": SECRET, "ROCKETPY_BROKER_NAME": "broker-a"}
    archive = tmp_path / "bundle.tar.gz"
    with sdk.Server(tmp_path / "store", settings={"haTokenFile": str(token)}) as server:
        with server.admin() as admin, server.producer("filler") as producer:
            admin.create_topic("orders", queues=1)
            producer.send(Message("orders", SECRET.encode(), keys=[SECRET], properties={"a": SECRET}))
            assert SECRET in admin.broker_config(admin.brokers()[0].addresses[0])["haTokenFile"]
        line = ["support-bundle", str(archive), "--config", str(config), "--log", str(log), "--lines", "4"]
        done = command(*line, name_server=server.name_server, env={**os.environ, **secrets})
    files = files_of(archive)
    assert [path for path, text in files.items() if SECRET in text] == []
    assert SECRET not in done.stdout + done.stderr
    assert archive.stat().st_mode & 0o777 == 0o600
    # The rest is there.
    assert "brokerName=broker-a\naccessKey = ***\n" in files["configuration/broker.conf"]
    assert 'user="me"' in files["logs/broker.log"]
    assert "last line" in files["logs/broker.log"]
    assert "first line" not in files["logs/broker.log"], "--lines"
    assert json.loads(files["environment.json"])["ROCKETPY_BROKER_NAME"] == "broker-a"
    settings = json.loads(files["brokers/broker-a-0/configuration.json"])
    assert (settings["haTokenFile"], settings["brokerName"]) == ("***", "broker-a")
    assert json.loads(files["brokers/broker-a-0/figures.json"])["brokerVersion"] == 479
    assert json.loads(files["versions.json"])["rocketpy"] == sdk.__version__
    (topic,) = (one for one in json.loads(files["topics.json"]) if one["name"] == "orders")
    assert topic["messages"] == 1
    assert json.loads(files["status.json"])["errors"] == []
    assert json.loads(files["doctor.json"])["disk"]["status"]
    assert set(files) == {line.partition(": ")[0] for line in files["contents.txt"].splitlines()} & set(files)


def test_a_broker_that_hangs_is_named_and_the_rest_is_collected(start, command, tmp_path: Path):
    names = start("namesrv", "--port", "0")
    address = names.ready["name_server"]
    broker = start("broker", str(tmp_path / "store"), "--port", "0", "--name-server", address)
    archive = tmp_path / "bundle.tar.gz"
    broker.process.send_signal(signal.SIGSTOP)
    try:
        line = ["--timeout", "1", "support-bundle", str(archive), "--log", str(tmp_path), "--json"]
        result = json.loads(command(*line, name_server=address).stdout)
    finally:
        broker.process.send_signal(signal.SIGCONT)
    files = files_of(archive)
    assert "timed out" in result["missing"]["brokers/broker-a-0/figures.json"]
    assert "not requested" in result["missing"]["brokers/broker-a-0/configuration.json"]
    assert result["contents"].keys() == files.keys()
    assert "brokers/broker-a-0/figures.json: " in files["contents.txt"].partition("Not included:")[2]
    assert f"logs/{broker.log.name}" in files
    (server,) = (one for one in json.loads(files["threads.json"]) if one["pid"] == broker.process.pid)
    assert {thread["state"] for thread in server["threads"]} == {"T"}, "stopped"
    assert "timed out" in json.loads(files["status.json"])["brokers"][0]["error"]


def test_a_bundle_without_a_cluster_has_the_machine(command, tmp_path: Path):
    archive = tmp_path / "bundle.tar.gz"
    result = json.loads(command("support-bundle", str(archive), "--json", name_server="127.0.0.1:1").stdout)
    assert "127.0.0.1:1" in result["missing"]["status.json"]
    assert {"versions.json", "doctor.json", "environment.json"} <= files_of(archive).keys()
    assert f"{archive} already exists" in command("support-bundle", str(archive), code=2).stderr


def test_pipes_and_devices_are_missing_parts(command, tmp_path: Path):
    pipe, log, big = tmp_path / "pipe.log", tmp_path / "some.log", tmp_path / "big.conf"
    os.mkfifo(pipe)
    log.write_text("a line\n")
    with big.open("wb") as stream:
        stream.truncate(1 << 40)  # a sparse file
    logs = ["--log", str(pipe), "--log", "/dev/zero", "--log", str(tmp_path)]
    configs = ["--config", str(pipe), "--config", "/dev/zero", "--config", str(tmp_path), "--config", str(big)]
    line = ["support-bundle", str(tmp_path / "bundle.tar.gz"), *logs, *configs, "--json"]
    told = json.loads(command(*line, name_server="127.0.0.1:1").stdout)
    missing = told["missing"]
    for path in ("logs/pipe.log", "logs/2-pipe.log", "logs/zero", "configuration/pipe.log", "configuration/zero"):
        assert missing[path].startswith("not a regular file: /"), path
    assert missing[f"configuration/{tmp_path.name}"] == f"not a regular file: {tmp_path}"
    assert missing["configuration/big.conf"] == f"configuration exceeds 1 MiB: {big}"
    assert "logs/some.log" in told["contents"]


def test_a_missing_target_folder_is_refused_before_the_work(command, tmp_path: Path):
    refused = command("support-bundle", str(tmp_path / "none" / "bundle.tar.gz"), name_server="127.0.0.1:1", code=3)
    assert refused.stderr.startswith(f"error: no such folder: {tmp_path / 'none'}\n")


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"--set accessKey=abc,{SECRET}", "--set accessKey=***"),
        (f"secretKey=abc;{SECRET} next", "secretKey=***"),
        (f'secret=Some("a {SECRET}")', "secret=***"),
        (f"# password: a {SECRET}", "# password: ***"),
        (f"run --password {SECRET}", "run --password ***"),
        (f"passphrase={SECRET}", "passphrase=***"),
        (f"DB_PWD={SECRET}", "DB_PWD=***"),
        (f"'name': 'a', 'apiToken': '{SECRET}'", "'name': 'a', 'apiToken': ***"),
        (f"https://{SECRET}@host/path", "https://***@host/path"),
        (f"-----BEGIN PRIVATE KEY-----\n{SECRET}", "***"),
        ("group tokenizer: no members", "group tokenizer: no members"),
        ("accessKey=\nbrokerName=a", "accessKey=\nbrokerName=a"),
        (f"https://user:{SECRET}@host/path", "https://user:***@host/path"),
        ("took 5 ms broker=a topic=orders", "took 5 ms broker=a topic=orders"),
    ],
)
def test_secrets_are_masked_by_their_names(text: str, hidden: str):
    assert masked_text(text) == hidden


KEY_BLOCK = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"privateKey={KEY_BLOCK}\nname=a", "privateKey=***\nname=a"),
        (f"accessKey=abc;\\\n  {SECRET}\\\n{SECRET}\nname=a", "accessKey=***\nname=a"),
        ("accessKey=\nbrokerName=a", "accessKey=\nbrokerName=a"),
        (f"password: |\n  a\n\n  {SECRET}\nname: a", "password: ***\nname: a"),
        (f"- tokens:\n  - {SECRET}\n  - {SECRET}\n  name: a", "- tokens:***\n  name: a"),
        (f"secret: {{a: b,\n{SECRET}: c}}\nname: a", "secret: ***\nname: a"),
        (f'secret="a\n{SECRET}"\nname=a', "secret=***\nname=a"),
        (f"[secrets]\na = {SECRET}\n[other]\nb = 1 2", "[secrets]\na = ***\n[other]\nb = 1 2"),
    ],
)
def test_all_lines_of_a_secret_in_a_configuration_are_masked(text: str, hidden: str):
    assert masked_lines(text) == hidden


def test_values_of_toml_are_masked_as_parsed():
    text = f'secret = """\na\n{SECRET}\n"""\ntokens = [\n"{SECRET}",\n"{SECRET}",\n]\nname = "a"\n'
    assert json.loads(masked_toml(text)) == {"secret": "***", "tokens": "***", "name": "a"}


def test_a_command_line_is_masked_by_argument():
    command = ["rocketpy", "--set", f"secret=a b\n{SECRET}", "--token", SECRET, f"https://{SECRET}@host", "--port", "0"]
    hidden = ["rocketpy", "--set", "secret=***", "--token", "***", "https://***@host", "--port", "0"]
    assert masked_arguments(command) == masked(masked_arguments(command)) == hidden


def test_members_have_their_versions_and_stacks(server, topic: str):
    group, bundle = f"keys-{topic}", Bundle("name")
    with (
        sdk.Admin(server.name_server, api_timeout=60) as admin,
        sdk.Consumer(group, topic, name_servers=server.name_server) as consumer,
    ):
        add_members(bundle, admin)
    (found,) = [row for row in json.loads(bundle.files["members.json"]) if row["group"] == group]
    assert found["subscriptions"] == [{"topic": topic, "tags": "*"}], "the name of the group resembles that of a secret"
    assert (found["language"], found["client_version"]) == ("PYTHON", f"rocketpy {sdk.__version__}")
    stacks = bundle.files["stacks.txt"].decode()
    assert f"group {group}, member {consumer.client_id}:" in stacks
    assert "in add_members" in stacks


def test_a_failed_write_leaves_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bundle = Bundle("name")
    bundle.add("a", "text", "text")
    monkeypatch.setitem(bundle.files, "b", 5)  # the size of the file cannot be read
    with pytest.raises(TypeError):
        bundle.write(tmp_path / "bundle.tar.gz")
    assert list(tmp_path.iterdir()) == []


def test_a_thread_that_ends_during_the_read_leaves_the_others(tmp_path: Path):
    for name in ("1", "2"):
        (tmp_path / "7/task" / name).mkdir(parents=True)
    (tmp_path / "7/cmdline").write_bytes(b"rocketpy\0broker\0")
    (tmp_path / "7/task/1/stat").write_text("1 (main) S " + "0 " * 20)
    (tmp_path / "7/task/1/wchan").write_text("0")
    assert [thread["name"] for thread in server_of(tmp_path / "7")["threads"]] == ["main"]

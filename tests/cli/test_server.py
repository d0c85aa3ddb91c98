import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ports import free_port
from waiting import wait_until


def test_the_ready_file_names_the_process_and_both_addresses(start, tmp_path: Path, command):
    server = start("server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0")
    assert set(server.ready) == {"pid", "name_server", "broker"}
    assert server.ready["pid"] == server.process.pid
    for address in (server.ready["name_server"], server.ready["broker"]):
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5):
            pass
    assert not list(tmp_path.glob("*.tmp")), "the ready file was renamed into place"


def test_given_ports_are_used(start, tmp_path: Path):
    port, name_server_port = free_port(), free_port()
    server = start("server", str(tmp_path / "store"), "--port", str(port), "--name-server-port", str(name_server_port))
    assert server.ready["broker"] == f"127.0.0.1:{port}"
    assert server.name_server == f"127.0.0.1:{name_server_port}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order_and_the_next_start_finds_everything(start, tmp_path: Path, command, number):
    store = tmp_path / "store"
    server = start("server", str(store), "--port", "0", "--name-server-port", "0")
    command("produce", "orders", stdin="one\ntwo\n", name_server=server.name_server)
    server.process.send_signal(number)
    assert server.process.wait(90) == 0, server.log.read_text()
    assert not (store / "abort").exists()
    again = start("server", str(store), "--port", "0", "--name-server-port", "0")
    result = command("consume", "orders", name_server=again.name_server)
    assert sorted(result.stdout.split()) == ["one", "two"]


def test_a_stop_that_is_cut_off_ends_with_an_error_and_a_hint(tmp_path: Path):
    ready = tmp_path / "ready"
    store = str(tmp_path / "store")
    arguments = ["server", store, "--port", "0", "--name-server-port", "0", "--ready-file", str(ready)]
    no_time = (
        "import sys, rocketpy.servers.server, rocketpy.cli.serve as serve; rocketpy.servers.server.STOP_SECONDS = 0; "
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", no_time + "sys.exit(serve.run(sys.argv[1:]))", *arguments],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_until(ready.exists, "the server accepts", process=process)
        process.terminate()
        _, log = process.communicate(timeout=90)
    finally:
        process.kill()
    # The log goes on meanwhile.
    error, hint = (line for line in log.splitlines() if line.startswith(("error: ", "hint: ")))
    assert (process.returncode, error) == (5, "error: server stop timed out before everything was closed, after 0 s")
    assert hint.startswith("hint: the next start recovers")


def test_after_kill_minus_nine_nothing_acknowledged_is_missing(start, tmp_path: Path, command):
    store = tmp_path / "store"
    server = start("server", str(store), "--port", "0", "--name-server-port", "0")
    lines = [f"message {number}" for number in range(5000)]
    command("produce", "orders", stdin="\n".join(lines), name_server=server.name_server)
    server.process.kill()
    server.process.wait()
    assert (store / "abort").exists()
    again = start("server", str(store), "--port", "0", "--name-server-port", "0")
    result = command("consume", "orders", name_server=again.name_server)
    assert sorted(result.stdout.splitlines()) == sorted(lines)


def test_a_name_server_and_a_broker_apart_serve_a_client(start, tmp_path: Path, command):
    namesrv = start("namesrv", "--port", "0")
    assert namesrv.ready["broker"] is None
    broker = start("broker", str(tmp_path / "store"), "--name-server", namesrv.name_server, "--port", "0")
    assert broker.ready["broker"]
    command("produce", "orders", stdin="one\n", name_server=namesrv.name_server)
    assert command("consume", "orders", name_server=namesrv.name_server).stdout == "one\n"


def test_commands_for_a_name_server_without_a_broker_fail_and_name_the_way_out(start, command):
    name_server = start("namesrv", "--port", "0").name_server
    for arguments in (
        ["group", "create", "g"],
        ["topic", "list"],
        ["topic", "create", "orders"],
        ["consume", "orders"],
    ):
        error, hint = command(*arguments, name_server=name_server, code=3).stderr.splitlines()[-2:]
        assert error == f"error: no broker is registered at the name server: {name_server}"
        assert "rocketpy broker --name-server" in hint


def test_settings_of_file_and_command_line_reach_the_server(start, tmp_path: Path, command):
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=from-file\nbrokerClusterName=from-file\ndefaultTopicQueueNums=3\n")
    server = start(
        "server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0", "--config", str(config),
        "--set", "brokerName=from-command-line",
    )  # fmt: skip
    command("topic", "create", "orders", "--queues", "1", name_server=server.name_server)
    described = json.loads(command("topic", "describe", "orders", "--json", name_server=server.name_server).stdout)
    assert [row["broker_name"] for row in described] == ["from-command-line"]


def test_a_flag_wins_over_its_key_and_the_folder_over_all(start, tmp_path: Path):
    port, other = free_port(), tmp_path / "other"
    server = start(
        "server", str(tmp_path / "store"), "--port", str(port), "--name-server-port", "0", "--host", "127.0.0.1",
        "--set", "listenPort=1", "--set", "NAME_SERVER_PORT=1", "--set", f"storePathRootDir={other}",
        "--set", "bindAddress=192.0.2.1",
    )  # fmt: skip
    assert server.ready["broker"] == f"127.0.0.1:{port}"
    assert (tmp_path / "store" / "commitlog").is_dir()
    assert not other.exists()


def failed(command, *arguments: str, code: int, **options) -> str:
    """Runs a command that must fail, and returns its error line; a hint is the last line."""
    error, hint = command(*arguments, code=code, **options).stderr.splitlines()[-2:]
    assert error.startswith("error: ")
    assert re.match(r"hint: \S", hint)
    return error


def test_a_port_in_use_is_named(command, tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        arguments = ["server", str(tmp_path / "store"), "--port", port, "--name-server-port", "0"]
        assert port in failed(command, *arguments, code=7)
        hint = command(*arguments, code=7).stderr.splitlines()[-1]
        assert "--port" in hint
        assert "--name-server-port" not in hint


def test_a_store_that_another_process_holds_is_named(start, command, tmp_path: Path):
    store = str(tmp_path / "store")
    start("server", store, "--port", "0", "--name-server-port", "0")
    assert store in failed(command, "server", store, "--port", "0", "--name-server-port", "0", code=7)


def test_a_file_in_place_of_the_store_folder_is_named(command, tmp_path: Path):
    path = tmp_path / "store"
    path.write_text("not a folder")
    error = command("server", str(path), "--port", "0", "--name-server-port", "0", code=None).stderr
    assert str(path) in error
    assert "hint: " in error


def test_an_unknown_key_names_the_nearest(command, tmp_path: Path):
    error = command("server", str(tmp_path / "store"), "--set", "flushDiskTyp=SYNC_FLUSH", code=2).stderr
    assert "hint: write flushDiskType, or remove the key; `rocketpy config explain flushDiskType`" in error
    error = command("server", str(tmp_path / "store"), "--set", "foo=1", code=2).stderr
    assert "`rocketpy config show` lists the keys" in error, "nothing looks like it"


def test_a_damaged_checkpoint_and_a_log_file_that_was_cut_off_are_named_as_damage(start, command, tmp_path: Path):
    store = tmp_path / "store"
    arguments = ["server", str(store), "--port", "0", "--name-server-port", "0"]
    server = start(*arguments, "--set", "mappedFileSizeCommitLog=1048576")
    command("produce", "t", stdin="one\n", name_server=server.name_server)
    assert server.stop() == 0
    checkpoint, log = store / "checkpoint", store / "commitlog" / f"{0:020}"
    kept = checkpoint.read_bytes()
    checkpoint.write_bytes(b"garbage" + kept[7:])
    error = command(*arguments, code=8).stderr
    assert "checkpoint is damaged, its time of" in error
    assert "move it away after `rocketpy store verify`" in error
    checkpoint.unlink()
    assert start(*arguments).stop() == 0, "the way out that the hint names"
    os.truncate(log, 1000)
    error = command(*arguments, code=8).stderr
    assert "the file was truncated: restore it" in error


def test_a_key_that_asks_for_what_is_not_there_is_refused_by_name(command, tmp_path: Path):
    error = failed(command, "server", str(tmp_path / "store"), "--set", "aclEnable=true", code=2)
    assert "ACL 1.0" in error
    assert "authenticationEnabled" in error


def test_a_broker_that_knows_no_name_server_says_how_to_name_one(command, tmp_path: Path):
    result = command("broker", str(tmp_path / "store"), "--port", "0", code=2)
    assert "--name-server" in result.stderr.splitlines()[-1]


def test_the_log_goes_to_standard_error_as_the_variable_chooses(start, tmp_path: Path):
    server = start(
        "server",
        str(tmp_path / "store"),
        "--port",
        "0",
        "--name-server-port",
        "0",
        "--set",
        "redeleteHangedFileInterval=120000",
        *("--set", "brokerIP2=10.0.0.2", "--set", "configBlackList=configBlackList;brokerConfigPath"),
    )
    server.stop()
    assert "limit of open files" in server.log.read_text()
    assert " WARN rocketpy_server::limits" not in server.log.read_text(), "the limit was not requested"
    [warning] = [line for line in server.log.read_text().splitlines() if "configuration keys ignored" in line]
    for key in ("redeleteHangedFileInterval", "brokerIP2", "configBlackList"):
        assert key in warning, "Apache's keys without a meaning are listed in one warning"


def test_a_log_that_cannot_be_written_stops_nothing(start, tmp_path: Path, command):
    ports = ("--port", "0", "--name-server-port", "0")
    server = start("server", str(tmp_path / "store"), *ports, stderr=Path("/dev/full"))
    for later in (("--delay", "0.2"), ("--delay-level", "1")):
        command("produce", "orders", *later, stdin="later", name_server=server.name_server)
    consumed = command("consume", "orders", "--follow", "--count", "2", name_server=server.name_server)
    assert consumed.stdout.splitlines() == ["later"] * 2
    assert server.stop() == 0


def test_a_filter_of_the_log_that_cannot_be_read_is_named(start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROCKETPY_LOG", "a=b=c")
    server = start("server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0")
    server.stop()
    assert 'ROCKETPY_LOG="a=b=c"' in server.log.read_text()
    assert "broker started" in server.log.read_text(), "info is taken"


def test_a_configuration_file_that_is_not_there_is_named(command, tmp_path: Path):
    missing = str(tmp_path / "broker.conf")
    error = command("server", str(tmp_path / "store"), "--config", missing, code=3).stderr
    assert missing in error


def test_server_commands_start_without_typer_and_rich(tmp_path: Path):
    program = (
        "import sys, signal, threading, time, os; from rocketpy.cli import main\n"
        f"store, ready = {str(tmp_path / 'store')!r}, {str(tmp_path / 'ready')!r}\n"
        "def stop():\n"
        "    while not os.path.exists(ready): time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Thread(target=stop, daemon=True).start()\n"
        "code = main(['server', store, '--port', '0', '--name-server-port', '0', '--ready-file', ready])\n"
        "print(code, sorted({'typer', 'rich', 'pydantic'} & set(sys.modules)))"
    )
    result = subprocess.run([os.sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert result.stdout.splitlines()[-1] == "0 []", result.stderr


def test_a_client_without_a_server_says_which_address_it_tried(command):
    address = f"127.0.0.1:{free_port()}"
    assert address in failed(command, "topic", "list", name_server=address, code=4)


def test_a_second_broker_of_one_name_is_warned_of_once(start, tmp_path: Path):
    first = start("server", str(tmp_path / "a"), "--port", "0", "--name-server-port", "0")
    second = start("broker", str(tmp_path / "b"), "--port", "0", "--name-server", first.name_server)

    def said(server, text: str) -> int:
        return server.log.read_text().count(text)

    wait_until(lambda: said(second, "registration at name server failed"))
    time.sleep(2.5)  # it tries again after 0.5 and 1 s more
    assert said(second, "registration at name server failed") == 1
    assert said(first, "registration refused") == 1


def test_a_variable_for_clients_is_no_warning_of_a_server(start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:9")
    ports = ("--port", "0", "--name-server-port", "0")
    assert "ignored" not in start("server", str(tmp_path / "a"), *ports).log.read_text()
    meant = start("server", str(tmp_path / "b"), *ports, "--set", "namesrvAddr=127.0.0.1:9")
    assert "namesrvAddr ignored" in meant.log.read_text()

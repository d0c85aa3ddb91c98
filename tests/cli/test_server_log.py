"""Log file of the server commands: form of its lines, rotation, SIGHUP, and disks that are full."""

import json
import signal
from pathlib import Path

import pytest

from waiting import wait_until

PORTS = ("--port", "0", "--name-server-port", "0")
SMALL = ("--set", "mappedFileSizeCommitLog=1048576")


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", ["server", "namesrv"])
def test_each_line_is_a_json_object_with_message_and_fields(start, tmp_path: Path, name: str):
    log, token = tmp_path / "server.log", tmp_path / "token"
    token.write_text("a-secret-of-this-test\n")
    arguments = [str(tmp_path / "store"), *PORTS, *SMALL, "--set", f"haTokenFile={token}", "--set", "haListenPort=0"]
    server = start(
        name, *(arguments if name == "server" else PORTS[:2]), "--log-file", str(log), "--log-format", "json",
        prefix=["env", "ROCKETPY_LOG=trace"],
    )  # fmt: skip
    assert server.stop() == 0
    lines = lines_of(log)
    stopped = next(line for line in lines if line["fields"]["message"] == "server stopped")
    assert (stopped["level"], stopped["target"]) == ("INFO", "rocketpy_server::process")
    assert isinstance(stopped["fields"]["took_ms"], int)
    assert "server stopped" not in server.log.read_text(), "standard error has no log lines"
    assert "a-secret-of-this-test" not in log.read_text()


def test_full_log_files_are_renamed_and_the_oldest_removed(start, tmp_path: Path, command):
    log = tmp_path / "server.log"
    server = start(
        "server", str(tmp_path / "store"), *PORTS, *SMALL,
        "--log-file", str(log), "--log-file-bytes", "4096", "--log-files", "2", prefix=["env", "ROCKETPY_LOG=trace"],
    )  # fmt: skip
    second = log.with_name("server.log.2")

    def has_rotated() -> bool:
        command("produce", "orders", stdin="one\n", name_server=server.name_server)
        return second.exists()

    wait_until(has_rotated, "two renamed log files")
    assert server.stop() == 0
    files = sorted(tmp_path.glob("server.log*"))
    assert [path.name for path in files] == ["server.log", "server.log.1", "server.log.2"]
    assert all(path.read_text().endswith("\n") for path in files), "no line is divided"


def test_sighup_opens_the_log_file_again(start, tmp_path: Path):
    log, moved = tmp_path / "server.log", tmp_path / "yesterday.log"
    server = start("server", str(tmp_path / "store"), *PORTS, *SMALL, "--log-file", str(log))
    log.rename(moved)
    server.process.send_signal(signal.SIGHUP)
    wait_until(log.exists, "the new log file", process=server.process)
    assert server.stop() == 0
    assert "server stopped" in log.read_text()
    assert "server stopped" not in moved.read_text()


def test_full_disk_of_the_log_file_stops_nothing(start, tmp_path: Path, command):
    server = start("server", str(tmp_path / "store"), *PORTS, *SMALL, "--log-file", "/dev/full")
    command("produce", "orders", stdin="one\n", name_server=server.name_server)
    assert command("consume", "orders", name_server=server.name_server).stdout == "one\n"
    assert server.stop() == 0
    assert "server stopped" in server.log.read_text(), "lines go to standard error"


def test_log_file_that_cannot_be_opened_is_named(command, tmp_path: Path):
    missing = tmp_path / "missing/server.log"
    result = command("server", str(tmp_path / "store"), *PORTS, "--log-file", str(missing), code=None)
    assert f"cannot open the log file: no such file or folder, cannot open: {missing}" in result.stderr.splitlines()[0]
    assert not (tmp_path / "store").exists()

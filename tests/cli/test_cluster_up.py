"""`rocketpy cluster up`: the deployments as processes of this machine."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from rocketpy.demo.failover import run
from rocketpy.demo.flights import Flights, load
from waiting import wait_until

STOP_SECONDS = 120


@contextlib.contextmanager
def up(
    executable: list[str], folder: Path, topology: str, end: signal.Signals = signal.SIGINT
) -> Iterator[tuple[subprocess.Popen, dict[str, dict]]]:
    """The command while it runs, and its processes by name; ended by Ctrl-C, or another signal."""
    out, err = folder.with_suffix(".out"), folder.with_suffix(".err")
    command = [*executable, "cluster", "up", str(folder), "--topology", topology, "--json"]
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, start_new_session=True)
    try:
        wait_until(lambda: out.read_text().endswith("]\n"), f"it is up: {err.read_text()}", process=process)
        rows = {row["process"]: row for row in json.loads(out.read_text())}
        yield process, rows
        process.send_signal(end)
        assert process.wait(STOP_SECONDS) == 0, err.read_text()
        assert not any(is_running(row["pid"]) for row in rows.values())
    finally:
        process.kill()
        process.wait()
        for row in json.loads(out.read_text() or "[]"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(row["pid"], signal.SIGKILL)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_masters_with_slaves_come_up_and_keep_their_data_and_ports(executable, command, tmp_path: Path):
    folder = tmp_path / "cluster"
    with up(executable, folder, "2m-2s-sync") as (_, processes):
        assert list(processes) == ["namesrv", "broker-a", "broker-b", "broker-a-s", "broker-b-s"]
        names = processes["namesrv"]["address"]
        command("topic", "create", "orders", name_server=names)
        command("produce", "orders", stdin="one\ntwo\n", name_server=names)
        for line in ("cluster list", "ha status", "status"):
            table = [row for row in command(*line.split(), name_server=names).stdout.splitlines() if row[0] in "┏┃│"]
            assert max(len(row) for row in table) <= 80, line
        status = json.loads(command("ha", "status", "--json", name_server=names).stdout)
        assert {(row["broker_name"], row["broker_id"]) for row in status} == {("broker-a", 1), ("broker-b", 1)}
    refused = command("cluster", "up", str(folder), "--topology", "2m", code=7).stderr
    assert "holds a deployment 2m-2s-sync" in refused
    assert "hint: name another folder, or give --topology 2m-2s-sync" in refused
    with up(executable, folder, "2m-2s-sync") as (process, again):
        assert {name: row["address"] for name, row in again.items()} == {
            name: row["address"] for name, row in processes.items()
        }
        os.kill(again["broker-b"]["pid"], signal.SIGKILL)
        err = folder.with_suffix(".err")
        wait_until(lambda: "broker-b exited with code -9" in err.read_text(), "its end is told", process=process)
        read = command("consume", "orders", "--from", "earliest", "--max", "2", name_server=names).stdout
        assert sorted(body for body in ("one", "two") if body in read) == ["one", "two"], "from the slave too"


def test_a_deployment_that_runs_is_named_and_left_alone(executable, command, tmp_path: Path):
    folder = tmp_path / "cluster"
    with up(executable, folder, "single", signal.SIGHUP) as (process, _):
        refused = command("cluster", "up", str(folder), "--topology", "single", code=7).stderr
        assert refused.splitlines() == [
            f"error: deployment in {folder} is already running (process {process.pid})",
            "hint: stop it, or name another folder",
        ]
        assert (folder / "namesrv.ready.json").exists()


def test_what_a_killed_command_left_is_named(executable, command, tmp_path: Path):
    folder = tmp_path / "cluster"
    command_line = [*executable, "cluster", "up", str(folder), "--topology", "single", "--json"]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        rows = json.loads("".join(iter(process.stdout.readline, "]\n")) + "]")
        process.kill()
    try:
        refused = command("cluster", "up", str(folder), "--topology", "single", code=7).stderr
        pids = sorted(row["pid"] for row in rows)
        assert refused.splitlines() == [
            f"error: processes of an earlier `cluster up` of {folder} are still running: {', '.join(map(str, pids))}",
            f"hint: stop them: `kill {' '.join(map(str, pids))}`",
        ]
    finally:
        for row in rows:
            os.kill(row["pid"], signal.SIGKILL)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--topology", "3m"], "single, 2m, 2m-2s-async, 2m-2s-sync"),
        (["--set", "flush"], "expected KEY=VALUE: flush"),
        ([], "folder is not empty"),
    ],
)
def test_what_cannot_come_up_is_named(command, tmp_path: Path, arguments: list[str], says: str):
    (tmp_path / "something").touch()
    assert says in command("cluster", "up", str(tmp_path), *arguments, code=None).stderr


def test_a_master_that_is_lost_while_flights_are_published_loses_none(tmp_path: Path):
    """The first flights of `make demo-cluster`."""
    whole = load()
    flights = Flights(whole.frame.head(8000), whole.airlines, whole.airports)
    journal = run(tmp_path / "cluster", Console(stderr=True), flights)
    notes = {step.what: step for step in journal.steps}
    assert notes["publish the flights"].rows == 8000
    assert "0 lost" in notes["read to the end"].note
    assert notes["compare the delays of each carrier"].rows == 8000

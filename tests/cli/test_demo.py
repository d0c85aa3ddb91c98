"""The main job on the real data."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from rocketpy.cli import demo as command_module
from rocketpy.commandline.exits import SIGNALS
from rocketpy.demo.departures import Mismatch
from rocketpy.demo.journal import Journal
from rocketpy.demo.run import MARK, is_locked, program
from rocketpy.spark.java import bundled_java, system_java
from waiting import wait_until

AIRPORTS = 1_458
PART = """
import sys
from dataclasses import replace
from rocketpy.cli import main
from rocketpy.demo import run

whole = run.load()
run.load = lambda: replace(whole, frame=whole.frame[::12])
run.analyse = lambda *_: None
sys.exit(main(sys.argv[1:]))
"""
"""The command `rocketpy` with every twelfth flight, and without Spark in the demo."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a shell that did not activate the environment, with a mark for what starts in it."""
    return {**os.environ, "PATH": path_without_this_environment(), "DEMO_TEST": str(tmp_path)}


def test_the_demo_publishes_reads_kills_and_recovers_a_part_of_the_flights(environment: dict[str, str], tmp_path: Path):
    """Their delays by Spark: tests/spark/test_flight_delays.py. The soak run takes all flights, and the stream."""
    printed = demo([sys.executable, "-P", "-c", PART], environment, tmp_path)
    assert figures(r"publish the flights\s*│ ([\d,]+)", printed) == [28_065]
    [compared] = figures(r"compare with the receipts\s*│ ([\d,]+)", printed)
    assert compared >= 28_065 + AIRPORTS


@pytest.mark.soak
@pytest.mark.timeout(1600)
def test_the_demo_holds_every_comparison(executable: list[str], environment: dict[str, str], tmp_path: Path):
    if (system_java() or bundled_java()) is None:
        pytest.skip("no Java 17 or newer")
    printed = demo(executable, environment, tmp_path)
    assert figures(r"publish the flights\s*│ ([\d,]+)", printed) == [336_776]
    [compared] = figures(r"compare with the receipts\s*│ ([\d,]+)", printed)
    assert compared >= 336_776 + AIRPORTS
    assert printed.count("equal to pandas") == 8, "three ways and the stream, each said and in the closing table"
    assert figures(r"the stream's table: ([\d,]+) in .*equal to pandas and to the batch", printed) == [28_135]
    counted, published = figures(r"the table counts ([\d,]+) of ([\d,]+)", printed)
    assert counted <= published < 28_135, "killed before all was published"
    assert (tmp_path / "demo" / "delays.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "demo" / "delays.parquet").glob("*.parquet"))


def demo(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """Runs the demo to its end, and then what it says to try next; returns what it printed."""
    files = folder / "demo"
    result = subprocess.run(
        [*command, "demo", str(files)], env=environment, capture_output=True, text=True, timeout=1500
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    wait_until(lambda: not descendants(folder), "the workers of the killed query end")
    assert "every comparison held" in result.stdout
    assert not (files / "store" / "abort").exists(), "the server was stopped in order"
    run_printed_commands(result.stdout, folder, environment)
    return result.stdout


def figures(said: str, printed: str) -> list[int]:
    found = re.search(said, printed)
    assert found is not None, printed
    return [int(figure.replace(",", "")) for figure in found.groups()]


def path_without_this_environment() -> str:
    """`PATH` of a shell that did not activate the environment."""
    ours = Path(sys.executable).parent
    return os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != ours)


def run_printed_commands(printed: str, folder: Path, environment: dict[str, str]) -> None:
    """Runs what the demo says to try next: first what needs no server, then its server, then the rest."""
    lines = [line.strip() for line in printed.split("What to try next")[1].splitlines() if "rocketpy " in line]
    (at,) = [number for number, line in enumerate(lines) if " server " in line]
    shell("\n".join(lines[:at]), environment)
    ready = folder / "next.json"
    free_ports = {"ROCKETPY_LISTEN_PORT": "0", "ROCKETPY_NAME_SERVER_PORT": "0"}
    line = "exec " + lines[at].split("#")[0] + f" --ready-file {ready}"
    server = subprocess.Popen(["sh", "-c", line], env={**environment, **free_ports}, stdout=subprocess.DEVNULL)
    try:
        wait_until(ready.exists, "the server accepts", process=server)
        there = {"NAMESRV_ADDR": json.loads(ready.read_text())["name_server"]}
        came = shell("\n".join(lines[at + 1 :]), {**environment, **there})
        assert '"topic": "flights"' in came
        assert "maintenance" in came
    finally:
        server.terminate()
        assert server.wait(90) == 0


def shell(script: str, environment: dict[str, str]) -> str:
    ended = subprocess.run(["sh", "-ec", script], env=environment, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, f"{script}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.mark.parametrize("is_active", [True, False], ids=["activated", "not activated"])
def test_the_command_to_try_next_is_what_the_shell_finds(monkeypatch: pytest.MonkeyPatch, is_active: bool):
    ours = str(Path(sys.executable).parent)
    path = path_without_this_environment()
    monkeypatch.setenv("PATH", f"{ours}{os.pathsep}{path}" if is_active else path)
    monkeypatch.chdir(Path(sys.prefix).parent)
    command = program()
    assert (command == "rocketpy") is is_active
    assert shell(f"{command} --version", dict(os.environ)).startswith("rocketpy ")


def test_a_mismatch_has_its_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    from rocketpy.commandline.exits import reported
    from rocketpy.demo import run

    def lose_one(*_: object) -> None:
        raise Mismatch("group maintenance got 336,775 of 336,776 messages")

    monkeypatch.setattr(run, "run", lose_one)
    monkeypatch.setattr("rocketpy.spark.java.prepare_java", lambda: "java")
    with pytest.raises(SystemExit) as end, reported():
        command_module.demo(tmp_path)
    assert end.value.code == 9
    assert "336,775" in capsys.readouterr().err


def test_a_folder_with_something_else_in_it_is_left_alone(command, tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("years of work")
    result = command("demo", str(tmp_path), code=7)
    assert str(tmp_path) in result.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_the_store_of_a_server_that_still_runs_is_left_alone(command, start, tmp_path: Path):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / MARK).touch()
    server = start("server", str(folder / "store"), "--port", "0", "--name-server-port", "0")
    result = command("demo", str(folder), code=7)
    assert "is still running" in result.stderr
    assert (folder / "store" / "lock").exists()
    assert server.stop() == 0
    assert not is_locked(folder / "store" / "lock")


def test_the_closing_table_is_there_as_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    from rocketpy.demo import run

    def short(_folder: Path, console: Console) -> Journal:
        journal = Journal(console)
        with journal.step("count") as step:
            step.rows, step.note = 3, "all"
        console.print(journal.table())
        return journal

    monkeypatch.setattr(run, "run", short)
    monkeypatch.setattr("rocketpy.spark.java.prepare_java", lambda: "java")
    handlers = [signal.getsignal(number) for number in SIGNALS]
    command_module.demo(tmp_path, as_json=True)
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert (facts["folder"], len(facts["steps"])) == (str(tmp_path), 1)
    assert (facts["steps"][0]["what"], facts["steps"][0]["rows"], facts["steps"][0]["note"]) == ("count", 3, "all")
    assert "What was done" in said.err
    command_module.demo(tmp_path)
    said = capsys.readouterr()
    assert "What was done" in said.out
    assert not said.err
    assert [signal.getsignal(number) for number in SIGNALS] == handlers


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_a_signal_ends_the_demo_and_its_server(executable: list[str], tmp_path: Path, number, code):
    ready = tmp_path / "demo" / "store.ready.json"
    before = signal.signal(number, signal.SIG_DFL)  # where the tests run under nohup, the demo would ignore SIGHUP
    process = subprocess.Popen(
        [*executable, "demo", str(tmp_path / "demo")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    signal.signal(number, before)
    try:
        wait_until(ready.exists, "the server accepts", process=process)
        process.send_signal(number)
        assert process.wait(20) == code
        assert process.stderr.read() == f"stopped by {number.name} before completion\n".encode()
        with pytest.raises(ProcessLookupError):
            os.kill(server_of(ready), 0)
    finally:
        process.kill()
        process.stderr.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(server_of(ready), signal.SIGKILL)


ENDLESS_SPARK_JOB = """
import sys, time
from pathlib import Path
from rocketpy.cli.demo import ended_by_signals
from rocketpy.commandline.exits import reported
from rocketpy.demo.delays import spark_session

folder = Path(sys.argv[1])

def never(batches):
    (folder / "at work").touch()
    time.sleep(1000)
    yield from batches

with reported(), ended_by_signals(), spark_session(folder) as spark:
    spark.range(10).mapInArrow(never, "id long").toPandas()
"""


@pytest.mark.parametrize(
    ("number", "to_group", "code"),
    [
        pytest.param(signal.SIGINT, True, 130, id="Ctrl-C", marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, False, 143, id="SIGTERM to the process"),
        pytest.param(signal.SIGTERM, True, 143, id="SIGTERM to the group", marks=pytest.mark.soak),
    ],
)
def test_a_signal_in_a_step_of_spark_ends_all_with_one_line(tmp_path: Path, number, to_group, code):
    if (system_java() or bundled_java()) is None:
        pytest.skip("no Java 17 or newer")
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS_SPARK_JOB)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"DEMO_TEST": str(tmp_path)},
    )
    try:
        wait_until((tmp_path / "at work").exists, "a worker runs", process=process)
        assert len(descendants(tmp_path)) >= 3, "Java and its Python workers are seen"
        (os.killpg if to_group else os.kill)(process.pid, number)
        said = process.communicate(timeout=50)[1]
        assert (process.returncode, said) == (code, f"stopped by {number.name} before completion\n")
        wait_until(lambda: not descendants(tmp_path), "workers end when they find Java gone")
    finally:
        for each in descendants(tmp_path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()


def descendants(folder: Path) -> list[int]:
    """Process ids of what has the mark of this test in its environment."""
    mark = f"DEMO_TEST={folder}".encode()
    found = []
    for process in Path("/proc").iterdir():  # a glob fails when a process ends meanwhile
        with contextlib.suppress(OSError):
            if process.name.isdigit() and mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def server_of(ready: Path) -> int:
    """Process id of the server that was started last."""
    return json.loads(ready.read_text())["pid"]

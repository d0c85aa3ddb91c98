"""What the jobs share: dry runs, errors, progress, and spark-submit."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rocketpy
import spark_jobs
from rocketpy.spark import (
    archive,
    audit,
    dlq_triage,
    flight_delays,
    lag_report,
    replay,
    topic_profile,
    trace_latency,
)
from rocketpy.spark.archive.job import ArchiveOptions
from rocketpy.testing import fresh_name

ROOT = Path(__file__).parents[2]
JOBS = (archive, audit, dlq_triage, lag_report, replay, topic_profile, trace_latency)


@pytest.fixture(scope="module")
def flights(rocketpy_server):
    topic = fresh_name("flights")
    spark_jobs.send_flights(rocketpy_server, topic, 200)
    return topic


def test_a_dry_run_needs_no_java(flights, rocketpy_server):
    command = [sys.executable, ROOT / "spark" / "audit.py", "--topic", flights, "--path", rocketpy_server.path]
    environment = {"PATH": "", "PYTHONPATH": ":".join(sys.path)}
    planned = subprocess.run(
        [*command, "--dry-run", "--json"], capture_output=True, text=True, timeout=600, check=True, env=environment
    )
    rows = json.loads(planned.stdout)
    assert sum(row["messages"] for row in rows) == sum(row["end"] - row["start"] for row in rows) == 200
    assert all(row["about_bytes"] > 0 for row in rows)


@pytest.mark.parametrize("job", [audit, flight_delays], ids=lambda job: job.__name__.rpartition(".")[2])
def test_without_pyspark_a_job_says_what_to_install(job, tmp_path):
    for name in ("pyspark", "py4j"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}')")
    command = [sys.executable, "-m", job.__name__, "--path", tmp_path, "--topic", "flights", "--out", tmp_path / "out"]
    environment = {"PYTHONPATH": ":".join([str(tmp_path), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    said = 'error: PySpark is not installed\nhint: pip install "rocketpy-mq[spark]"\n'
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


@pytest.mark.parametrize("address", ["s3://bucket/out", "hdfs://host:8020/out", "file:///out", "s3a:/bucket"])
@pytest.mark.parametrize("job", [archive, audit, flight_delays, topic_profile], ids=lambda job: job.__name__[15:])
def test_an_address_is_no_folder(job, address, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        code = job.main(["--path", "data", "--topic", "flights", "--out", address])
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr().err
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert f"out must be the path of a folder, not an address of {address.partition(':')[0]}\n" in said
    with pytest.raises(rocketpy.InvalidArgumentError, match="out must be the path"):
        ArchiveOptions(address, ("t",))


def test_spark_submit_runs_a_job_and_ends_with_its_code(flights, rocketpy_server, tmp_path):
    group = fresh_name("unread")
    with rocketpy_server.admin() as admin:
        admin.create_group(group)
        admin.reset_offsets(group, flights, rocketpy.Start.EARLIEST)
    command = [
        *(Path(sys.executable).with_name("spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
        *(ROOT / "spark" / "lag_report.py", "--name-server", rocketpy_server.name_server, "--group", group),
        *("--retention-hours", "1", "--json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path, check=False)
    assert done.returncode == 9, done.stderr
    (row,), end = json.JSONDecoder().raw_decode(done.stdout)
    assert (row["group"], row["lag"], row["verdict"]) == (group, 200, "at risk")
    assert done.stdout[end:].lstrip().startswith("error: unread messages are lost or at risk")


@pytest.mark.parametrize("job", [*JOBS, flight_delays], ids=lambda job: job.__name__.rpartition(".")[2])
def test_each_job_runs_as_a_module(job):
    asked = [sys.executable, "-m", job.__name__, "--help"]
    assert "--name-server" in subprocess.run(asked, capture_output=True, text=True, timeout=600, check=True).stdout


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__.rpartition(".")[2])
def test_each_job_has_a_script_help_and_a_section_in_the_docs(job, capsys):
    name = job.__name__.rpartition(".")[2]
    assert f"from rocketpy.spark.{name} import main" in (ROOT / "spark" / f"{name}.py").read_text()
    assert job.main(["--help"]) == 0
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    section = (ROOT / "docs" / "spark-jobs.md").read_text().split(f"\n## `{name}`")[1].split("\n## ")[0]
    assert f"spark-submit spark/{name}.py" in section
    assert set(re.findall(r"(?<=`)--[a-z][a-z-]+", section)) <= options | {"--keys"}
    assert job.main(["--no-such-option"]) == 2
    assert "no such option" in capsys.readouterr().err.lower()


def test_a_job_that_a_program_calls_leaves_its_log_levels_alone(spark):
    assert audit.main(["--topic", "flights", "--path", "no-such-folder"]) != 0
    assert logging.getLogger("rocketpy.client").level == logging.NOTSET


def test_a_query_that_fails_ends_in_one_line(spark, flights, rocketpy_server, tmp_path, capsys):
    target = fresh_name("target")
    with rocketpy_server.admin() as admin:
        admin.create_topic(target, queues=1)
    here = ("--topic", flights, "--path", rocketpy_server.path, "--to-name-server", rocketpy_server.name_server)
    code, text = spark_jobs.run(replay.main, capsys, *here, "--to-topic", target, "--where", "colour = 'red'")
    assert code == 1
    assert "error: query failed: [UNRESOLVED_COLUMN" in text
    assert "Traceback" not in text
    named = re.search(r"hint: the whole error is in (\S+)", text)
    assert named
    whole = Path(named[1])
    assert "UNRESOLVED_COLUMN" in whole.read_text()
    whole.unlink()


def test_progress_counts_the_tasks_of_the_job(spark, flights, rocketpy_server, capsys):
    given = ["--topic", flights, "--path", str(rocketpy_server.path), "--no-keys"]
    assert topic_profile.main(given) == 0
    counted = re.search(r"^profile: (\d+) tasks in [\d.]+ s$", capsys.readouterr().err, re.MULTILINE)
    assert counted
    assert int(counted[1]) >= 2
    assert spark.range(3).count() == 3, "the session goes on after the job"

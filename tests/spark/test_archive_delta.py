"""The job `archive` with `--format delta`: a table that any reader of Delta Lake reads, and its commits."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from packaging.requirements import Requirement
from pyspark.sql.types import StructType

import rocketpy
from rocketpy import InvalidArgumentError
from rocketpy.spark.archive import delta as archive_delta
from rocketpy.spark.archive.delta import DeltaArchive
from rocketpy.spark.archive.job import ArchiveFormat, ArchiveJob, ArchiveOptions, main
from rocketpy.spark.archive.manifest import ArchiveError
from rocketpy.spark.columns import DEFAULT, TYPES, ddl, struct

BODIES = [b"message %d" % number for number in range(300)]


def quiet(_line):
    pass


def rows(out):
    return DeltaTable(out).to_pyarrow_table()


def bodies(out):
    return Counter(rows(out)["body"].to_pylist())


def files(out):
    return len(DeltaTable(out).file_uris())


@pytest.fixture
def options(topic, send, rocketpy_server, tmp_path):
    send(topic, BODIES)
    return ArchiveOptions(
        str(tmp_path / "out"),
        (topic,),
        name_server=rocketpy_server.name_server,
        format=ArchiveFormat.DELTA,
        round_messages=120,
        compact_files=0,
    )


def test_every_message_is_there_once_and_a_second_run_adds_what_came(spark, options, send):
    (topic,) = options.topics
    manifest = ArchiveJob(spark, options, quiet).run()
    assert (manifest.rows, manifest.number, DeltaTable(options.out).version()) == (300, 3, 3)
    table = rows(options.out)
    assert set(table.column_names) == {*DEFAULT, "day"}
    assert DeltaTable(options.out).metadata().partition_columns == ["topic", "day"]
    assert pc.unique(table["topic"]).to_pylist() == [topic]
    assert table["day"].to_pylist() == [at.date() for at in table["stored_at"].to_pylist()]
    places = set(zip(table["queue_id"].to_pylist(), table["queue_offset"].to_pylist(), strict=True))
    assert len(places) == table.num_rows == 300
    assert bodies(options.out) == dict.fromkeys(BODIES, 1)
    of_a_queue = DeltaTable(options.out).to_pyarrow_dataset().to_table(filter=pc.field("queue_id") == 1)
    assert of_a_queue.num_rows == 100, "the ranges of the files are right"
    send(topic, [b"later"])
    again = ArchiveJob(spark, options, quiet).run()
    assert (again.rows, again.number) == (301, manifest.number + 1)
    assert ArchiveJob(spark, options, quiet).run() == again
    assert bodies(options.out) == dict.fromkeys([*BODIES, b"later"], 1)


def test_small_files_are_joined_and_the_offsets_stay(spark, options):
    several = ArchiveJob(spark, options, quiet).run()
    assert files(options.out) == len(several.files) >= 3
    joined = ArchiveJob(spark, replace(options, compact_files=2), quiet).run()
    assert (files(options.out), joined.rows, joined.ends) == (1, 300, several.ends)
    assert bodies(options.out) == dict.fromkeys(BODIES, 1)
    assert ArchiveJob(spark, replace(options, compact_files=2), quiet).run() == joined
    before = DeltaTable(options.out, version=several.number).to_pyarrow_table()
    assert before.num_rows == 300, "a reader of the version before still finds its files"


def test_topics_whose_names_are_not_paths_have_folders_too(spark, options, send, rocketpy_server):
    topic = "100%|" + options.topics[0]
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=3)
    send(topic, BODIES)
    manifest = ArchiveJob(spark, replace(options, topics=(topic,), compact_files=2), quiet).run()
    assert manifest.rows == 300
    assert files(options.out) == 1
    assert pc.unique(rows(options.out)["topic"]).to_pylist() == [topic]


def test_the_offsets_outlive_the_log_of_the_table(spark, options, send):
    ArchiveJob(spark, options, quiet).run()
    DeltaTable(options.out).create_checkpoint()
    for path in sorted(Path(options.out, "_delta_log").glob("*.json"))[:-1]:
        path.unlink()  # as Delta does a month later with those before a checkpoint
    send(options.topics[0], [b"later"])
    assert ArchiveJob(spark, options, quiet).run().rows == 301
    assert bodies(options.out) == dict.fromkeys([*BODIES, b"later"], 1)


def test_what_a_commit_wrote_is_flushed_to_disk(spark, options, monkeypatch):
    """That the job asks for it: what a power cut leaves cannot be shown here."""
    with options.archive().locked():
        DeltaTable(options.out).alter.set_table_properties({"delta.checkpointInterval": "1"})
    log, flushed = Path(options.out, "_delta_log"), set()
    before = set(log.iterdir()) - {log / "_last_checkpoint"}
    monkeypatch.setattr(archive_delta, "sync", flushed.add)
    manifest = ArchiveJob(spark, options, quiet).run()
    written = set(log.iterdir()) - before
    assert {path.name for path in written} > {"_last_checkpoint", f"{manifest.number:020}.checkpoint.parquet"}
    assert flushed >= written | {log, *(Path(options.out, one.name) for one in manifest.files)}


def test_what_a_killed_job_staged_or_moved_is_not_in_the_table(spark, options):
    manifest = ArchiveJob(spark, options, quiet).run()
    archive = options.archive()
    one = Path(options.out, manifest.files[0].name)
    shutil.copy(one, archive.staged / "rocketpy-staged.parquet")
    shutil.copy(one, one.with_name("rocketpy-moved.parquet"))
    assert ArchiveJob(spark, options, quiet).run() == manifest
    assert bodies(options.out) == dict.fromkeys(BODIES, 1)
    assert list(archive.staged.iterdir()) == []


def test_of_two_jobs_at_the_same_time_one_is_refused_or_loses(spark, options, send, monkeypatch):
    """Another machine does not see the lock: its job loses when it commits, and the table has each message once."""
    job = ArchiveJob(spark, options, quiet)
    with options.archive().locked(), pytest.raises(ArchiveError, match="another job writes this archive"):
        job.run()
    append = DeltaArchive.append

    def overtaken(self, manifest, files, *ends):
        same = [replace(one, name=f"rocketpy-same-{number}.parquet") for number, one in enumerate(files)]
        for one, other in zip(files, same, strict=True):
            shutil.copy(self.staged / one.name, self.staged / other.name)
        append(self, manifest, same, *ends)
        return append(self, manifest, files, *ends)

    monkeypatch.setattr(DeltaArchive, "append", overtaken)
    with pytest.raises(ArchiveError, match=r"another job wrote this table at the same time: .*Concurrent transaction"):
        job.run()
    monkeypatch.undo()
    assert job.run().rows == 300
    assert bodies(options.out) == dict.fromkeys(BODIES, 1)


def test_a_commit_whose_response_was_lost_counts_as_committed(spark, options, monkeypatch):
    commit, lost = DeltaTable.create_write_transaction, []

    def respond_not(self, *given, **named):
        commit(self, *given, **named)
        lost.append(self.version())
        raise CommitFailedError("Concurrent transaction: the same id")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", respond_not)
    assert ArchiveJob(spark, options, quiet).run().rows == 300
    assert len(lost) == 3, "each round has a commit"
    assert bodies(options.out) == dict.fromkeys(BODIES, 1)

    def fail(self, *given, **named):
        raise CommitFailedError("not written")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", fail)
    other = replace(options, out=f"{options.out}-other")
    with pytest.raises(ArchiveError, match="not written"):
        ArchiveJob(spark, other, quiet).run()


def test_of_two_compactions_of_one_version_the_second_fails(tmp_path):
    """deltalake 1.6.4 to 1.6.6 commit both, and each row is there twice."""
    out = str(tmp_path / "table")
    for number in range(4):
        write_deltalake(out, pa.table({"row": list(range(10 * number, 10 * number + 10))}), mode="append")
    first, second = DeltaTable(out), DeltaTable(out)
    first.optimize.compact()
    with pytest.raises(CommitFailedError):
        second.optimize.compact()
    assert sorted(rows(out)["row"].to_pylist()) == list(range(40))


def test_versions_of_deltalake_that_duplicate_rows_are_excluded():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (wanted,) = [one for one in project["optional-dependencies"]["delta"] if one.startswith("deltalake")]
    allowed = Requirement(wanted).specifier
    versions = ("1.6.3", "1.6.4", "1.6.5", "1.6.6", "1.6.7")
    assert [version for version in versions if version in allowed] == ["1.6.3", "1.6.7"]


def test_maintenance_of_the_table_at_the_same_time_does_not_matter(spark, options, monkeypatch):
    append = DeltaArchive.append

    def overtaken(self, *given):
        DeltaTable(self.folder).optimize.compact()
        return append(self, *given)

    monkeypatch.setattr(DeltaArchive, "append", overtaken)
    assert ArchiveJob(spark, options, quiet).run().rows == 300
    assert bodies(options.out) == dict.fromkeys(BODIES, 1)


def test_a_folder_with_something_else_is_refused_and_stays_as_it_is(spark, options, tmp_path):
    def content(folder):
        return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*.parquet"))}

    parquet = replace(options, format=ArchiveFormat.PARQUET, out=str(tmp_path / "parquet"))
    columns = replace(options, columns=("body",))
    for made, asked, error, said in (
        (options, replace(options, format=ArchiveFormat.PARQUET), InvalidArgumentError, "a table of Delta Lake, not"),
        (parquet, replace(parquet, format=ArchiveFormat.DELTA), InvalidArgumentError, "Parquet files, not of Delta"),
        (options, columns, ArchiveError, "has the columns topic, .*, not topic, queue_id"),
    ):
        ArchiveJob(spark, made, quiet).run()
        before = content(Path(made.out))
        with pytest.raises(error, match=said):
            ArchiveJob(spark, asked, quiet).run()
        assert content(Path(made.out)) == before


def test_the_command_line_has_the_format(spark, options, capsys):
    given = ["--name-server", str(options.name_server), "--topic", *options.topics, "--out", options.out]
    assert main([*given, "--format", "delta", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 300
    assert bodies(options.out) == dict.fromkeys(BODIES, 1)
    assert main([*given, "--format", "delta", "--dry-run"]) == 0
    assert "has every message" in capsys.readouterr().out
    for more in (["--dry-run"], []):
        assert main([*given, *more]) == 2
        error, hint = capsys.readouterr().err.splitlines()
        assert error.startswith("error: a table of Delta Lake, not an archive of Parquet files")
        assert hint.startswith("hint: use --format delta ")
    with pytest.raises(rocketpy.RocketPyError, match="unknown column: boddy"):
        replace(options, columns=("boddy",)).archive()


def test_a_dry_run_starts_no_session(topic, send, rocketpy_server, tmp_path):
    send(topic, BODIES)
    where = ["--path", rocketpy_server.path, "--topic", topic, "--out", tmp_path / "out", "--format", "delta"]
    command = [sys.executable, Path(__file__).parents[2] / "spark" / "archive.py", *where, "--dry-run", "--json"]
    environment = {"PATH": "", "PYTHONPATH": ":".join(sys.path)}  # no Java
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(row["messages"] for row in json.loads(done.stdout)) == 300
    assert not (tmp_path / "out").exists()


def test_the_schema_without_a_session_is_that_of_the_scan(spark):
    assert struct(list(TYPES)) == StructType.fromDDL(ddl(list(TYPES)))


def test_without_deltalake_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.delitem(sys.modules, "rocketpy.spark.archive.delta")
    with pytest.raises(rocketpy.RocketPyError, match="deltalake is not installed") as missing:
        ArchiveOptions("out", ("t",), format="delta").archive()
    assert missing.value.hint == 'pip install "rocketpy-mq[delta]"'
    with pytest.raises(ValueError, match="'iceberg' is not a valid ArchiveFormat"):
        ArchiveOptions("out", ("t",), format="iceberg").archive()

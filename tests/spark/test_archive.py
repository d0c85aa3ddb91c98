"""The job `archive`: what is in its files, what a second run adds, and what it makes of the traces of a killed one."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas
import pyarrow.dataset
import pytest
from deltalake import DeltaTable

import rocketpy
import spark_jobs
from rocketpy.spark.archive.job import (
    ArchiveFormat,
    ArchiveJob,
    ArchiveOptions,
    main,
    next_round,
    plan_rows,
    small_files,
)
from rocketpy.spark.archive.manifest import ArchiveError, ArchiveFile, Covered, Manifest, gaps
from rocketpy.spark.archive.parquet import ParquetArchive
from rocketpy.spark.fingerprint import Fingerprint
from rocketpy.testing import fresh_name

BODIES = [b"message %d" % number for number in range(300)]


def archived(spark, out):
    return spark.read.parquet(str(out))


def bodies(spark, out):
    return Counter(bytes(row.body) for row in archived(spark, out).select("body").collect())


def quiet(_line):
    pass


@pytest.fixture
def options(topic, send, door, tmp_path):
    send(topic, BODIES)
    return ArchiveOptions(str(tmp_path / "out"), (topic,), round_messages=120, **door)


def test_every_message_is_there_once_by_topic_and_day_and_a_second_run_adds_what_came(
    spark, options, send, rocketpy_server
):
    (topic,) = options.topics
    manifest = ArchiveJob(spark, options, quiet).run()
    assert (manifest.rows, manifest.number > 2) == (300, True)
    rows = archived(spark, options.out).collect()
    assert {row.topic for row in rows} == {topic}
    assert {row.day for row in rows} == {row.stored_at.date() for row in rows}
    by_place = {(row.queue_id, row.queue_offset): row for row in rows}
    assert len(by_place) == len(rows) == 300
    assert Counter(bytes(row.body) for row in rows) == dict.fromkeys(BODIES, 1)
    send(topic, [b"later 300"])
    again = ArchiveJob(spark, options, quiet).run()
    assert (again.rows, again.number) == (301, manifest.number + 1)
    assert ArchiveJob(spark, options, quiet).run() == again
    assert bodies(spark, options.out) == dict.fromkeys([*BODIES, b"later 300"], 1)


def test_small_files_are_joined_and_nothing_changes(spark, options):
    several = ArchiveJob(spark, ArchiveOptions(**{**as_dict(options), "compact_files": 0}), quiet).run()
    assert len(several.files) >= 3
    one = ArchiveJob(spark, ArchiveOptions(**{**as_dict(options), "compact_files": 2}), quiet).run()
    assert (len(one.files), one.rows, one.ends) == (1, 300, several.ends)
    assert bodies(spark, options.out) == dict.fromkeys(BODIES, 1)
    files = [path.name for path in Path(options.out).rglob("rocketpy-*.parquet")]
    assert files == [one.files[0].name]
    assert small_files(one.files, 2, 1 << 20) == []


NAMES = ["007", "7", "1e3", "2026-11-28"]
"""Topics whose names are not numbers or dates."""


def read_topics(reader, spark, out):
    if reader == "spark":
        return [row.topic for row in spark.read.parquet(str(out)).select("topic").collect()]
    if reader == "pyarrow":
        return pyarrow.dataset.dataset(out, partitioning="hive").to_table(columns=["topic"])["topic"].to_pylist()
    return pandas.read_parquet(out)["topic"].tolist()


@pytest.mark.parametrize("reader", ["spark", "pyarrow", "pandas"])
@pytest.mark.parametrize("names", [NAMES, ["2026-11-28"]], ids=["all", "date"])
def test_a_topic_is_text_for_every_reader(spark, tmp_path, reader, names):
    store, out = tmp_path / "store", tmp_path / "out"
    with rocketpy.Server(store) as server, server.admin() as admin, server.producer("p") as producer:
        for name in names:
            admin.create_topic(name, queues=1)
            producer.send(rocketpy.Message(name, b"x"))
    assert ArchiveJob(spark, ArchiveOptions(str(out), tuple(names), path=str(store)), quiet).run().rows == len(names)
    assert sorted(read_topics(reader, spark, out)) == sorted(names)
    for path in (out / "topic=!text" / "day=1970-01-01" / "schema.parquet", out / "_common_metadata"):
        path.unlink()  # as an older version left it
    ArchiveJob(spark, ArchiveOptions(str(out), tuple(names), path=str(store)), quiet).run()
    assert sorted(read_topics(reader, spark, out)) == sorted(names)


def test_columns_that_differ_between_runs_are_all_there(spark, options, send):
    (topic,) = options.topics
    first, second = (
        ArchiveOptions(**{**as_dict(options), "columns": columns, "compact_files": 0})
        for columns in (("body", "born_at"), ("body", "tag", "flag", "properties"))
    )
    ArchiveJob(spark, first, quiet).run()
    send(topic, [b"later %d" % number for number in range(30)])
    several = ArchiveJob(spark, second, quiet).run()
    for step in ("before", "after"):
        frame = archived(spark, options.out)
        assert {"body", "born_at", "tag", "flag", "properties", "topic", "day"} <= set(frame.columns), step
        assert frame.where("tag is null").count() == frame.where("born_at is not null").count() == 300
        table = pyarrow.dataset.dataset(options.out, partitioning="hive").to_table()
        assert set(table.column_names) == set(frame.columns)
        assert table["flag"].null_count == 300
        assert set(pandas.read_parquet(options.out).columns) == set(frame.columns)
        if step == "before":
            joined = ArchiveJob(spark, replace(second, compact_files=2), quiet).run()
            assert (joined.rows, len(joined.files) < len(several.files)) == (330, True)


def as_dict(options):
    return {name: getattr(options, name) for name in ArchiveOptions.__slots__}


def test_what_a_killed_job_left_is_put_in_order(spark, options, send):
    """Files that were written and not committed, committed and not moved, and replaced by a joined one."""
    manifest = ArchiveJob(spark, options, quiet).run()
    archive = ParquetArchive(options.out)
    moved = archive.folder / manifest.files[0].place
    (archive.staged / "rocketpy-orphan.parquet").write_bytes(moved.read_bytes())
    (moved.parent / "rocketpy-replaced.parquet").write_bytes(moved.read_bytes())
    (archive.folder / "_rocketpy" / "manifest-00000099.7.tmp").write_text("half")
    moved.rename(archive.staged / moved.name)
    assert ArchiveJob(spark, options, quiet).run() == manifest
    assert bodies(spark, options.out) == dict.fromkeys(BODIES, 1)
    assert list(archive.staged.iterdir()) == []


def test_a_second_job_and_a_second_commit_are_refused(spark, options):
    archive = ParquetArchive(options.out)
    with archive.locked():
        with pytest.raises(ArchiveError, match="another job writes this archive") as refused:
            ArchiveJob(spark, options, quiet).run()
        assert refused.value.hint == "start one job at a time"
        archive.commit(Manifest(1))
        with pytest.raises(ArchiveError, match=r"another job wrote manifest-00000001\.json"):
            archive.commit(Manifest(1))


def test_a_committed_file_that_is_gone_is_an_error(spark, options):
    manifest = ArchiveJob(spark, options, quiet).run()
    (Path(options.out) / manifest.files[0].place).unlink()
    with pytest.raises(rocketpy.DamagedDataError, match="file of the archive is missing"):
        ArchiveJob(spark, options, quiet).run()


def test_a_dry_run_says_what_it_would_do_and_makes_nothing(options, capsys):
    (topic,) = options.topics
    where = ["--path", options.path] if options.path else ["--name-server", options.name_server]
    assert main([*where, "--topic", topic, "--out", options.out, "--dry-run", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["queue_id"], row["start"], row["end"], row["messages"]) for row in rows] == [
        (queue_id, 0, 100, 100) for queue_id in range(3)
    ]
    assert not Path(options.out).exists()


def test_messages_that_are_gone_before_they_were_archived_end_the_job(spark, options, rocketpy_server):
    (topic,) = options.topics
    ArchiveJob(spark, options, quiet).run()
    with rocketpy_server.admin() as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, queues=3)
    gone = (rocketpy.OffsetError, rocketpy.TopicNotFoundError)
    with pytest.raises(gone, match=r"ends at 0, the archive at 100|no topic"):
        plan_rows(options)
    queue = rocketpy.MessageQueue("t", "b", 0)
    with pytest.raises(rocketpy.OffsetError, match="7 messages of t@b#0 were removed before they were archived"):
        next_round({queue: 3}, {queue: 10}, {queue: 20}, 100)


def test_a_text_is_no_list_of_topics_or_columns():
    with pytest.raises(TypeError, match="topics must be a list of names, not: 'flights'"):
        ArchiveOptions("out", "flights", path="data")
    with pytest.raises(TypeError, match="columns must be a list of names, not: 'body'"):
        ArchiveOptions("out", ("flights",), path="data", columns="body")


def test_rows_that_are_missing_or_there_twice_are_found():
    queue = rocketpy.MessageQueue("t", "b", 0)

    def file(first, last, rows):
        return ArchiveFile("f", "t", "2026-01-01", rows, 1, (Covered("b", 0, first, last, rows),))

    assert gaps({queue: 20}, {queue: 10}, [file(10, 14, 5), file(15, 19, 5)]) == []
    for files in ([file(10, 14, 5)], [file(10, 19, 10), file(12, 12, 1)], [file(9, 18, 10)], [file(11, 20, 10)]):
        assert gaps({queue: 20}, {queue: 10}, files) == [
            f"t@b#0: {sum(one.rows for one in files)} messages for offsets 10 to 20"
        ]
    assert gaps({}, {}, [file(0, 0, 1)]) == ["t@b#0: not asked for"]


def test_a_manifest_comes_back_as_it_was_written():
    queue = rocketpy.MessageQueue("%RETRY%g", "b", 1)
    one = ArchiveFile("f.parquet", queue.topic, "2026-01-01", 3, 100, (Covered("b", 1, 0, 2, 3),))
    manifest = Manifest(4, {queue: 3}, (one,), {queue: Fingerprint(5, 6)})
    assert Manifest.of(manifest.text()) == manifest
    for text in ("", "{}", "[" * 100_000, '{"v": 2}', json.dumps({"v": 1, "number": 1, "ends": [1], "files": []})):
        with pytest.raises(rocketpy.DamagedDataError):
            Manifest.of(text)


@pytest.mark.soak  # of the jobs, test_job.py submits one in the gate
def test_spark_submit_runs_the_installed_module(topic, send, rocketpy_server, tmp_path):
    send(topic, BODIES)
    submit = Path(sys.executable).with_name("spark-submit")
    conf = ["spark.ui.enabled=false", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    command = [submit, "--master", "local[2]", *(part for one in conf for part in ("--conf", one))]
    command += [rocketpy.spark.archive.__file__, "--name-server", rocketpy_server.name_server, "--topic", topic]
    done = subprocess.run(
        [*command, "--out", tmp_path / "out", "--json"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["messages"], facts["version"]) == (300, 1)


@pytest.mark.parametrize("format", ArchiveFormat)
def test_the_flights_are_in_an_archive_as_they_were_sent(spark, rocketpy_server, tmp_path, capsys, format):
    topic, sent = fresh_name("flights"), spark_jobs.flights()
    receipts = spark_jobs.send_flights(rocketpy_server, topic)
    out = tmp_path / "out"
    where = ("--name-server", rocketpy_server.name_server, "--topic", topic, "--out", out, "--format", format)
    picture = tmp_path / "archive.png"
    code, facts = spark_jobs.run(
        main, capsys, *where, "--round-messages", 700, "--compact-files", 2, "--picture", picture
    )
    assert (code, facts["messages"], facts["files"]) == (0, len(sent), 1)
    columns = ["queue_id", "queue_offset", "msg_id", "tag", "body"]
    if format == ArchiveFormat.DELTA:
        rows = DeltaTable(out).to_pyarrow_table(columns=columns).to_pylist()
    else:
        rows = [row.asDict() for row in archived(spark, out).select(columns).collect()]
    found = {(row["queue_id"], row["queue_offset"]): (row["msg_id"], row["tag"], bytes(row["body"])) for row in rows}
    assert len(rows) == len(found)
    assert picture.read_bytes().startswith(b"\x89PNG")
    flights = zip(receipts, sent.carriers, sent.bodies, strict=True)
    assert found == {
        (one.queue.queue_id, one.queue_offset): (one.msg_id, carrier, body) for one, carrier, body in flights
    }


@pytest.mark.parametrize("format", ArchiveFormat)
def test_an_archive_that_names_its_broker_is_not_continued_without_the_name(
    spark, topic, send, rocketpy_server, tmp_path, format
):
    send(topic, BODIES)
    path, name_server = str(rocketpy_server.path), rocketpy_server.name_server
    by_name = ArchiveOptions(str(tmp_path / "named"), (topic,), name_server=name_server, format=format)
    unnamed = ArchiveOptions(str(tmp_path / "unnamed"), (topic,), path=path, format=format)
    ends = ArchiveJob(spark, by_name, quiet).run().ends
    ArchiveJob(spark, unnamed, quiet).run()
    (broker_name,) = {queue.broker_name for queue in ends}
    mixed = {
        f"give --broker-name {broker_name}, or another --out": replace(by_name, name_server=None, path=path),
        "read it by --path again, or another --out": replace(unnamed, name_server=name_server, path=None),
        "give --broker-name broker, or another --out": replace(unnamed, broker_name=broker_name),
    }
    for hint, options in mixed.items():
        for refused in (lambda: ArchiveJob(spark, options, quiet).run(), lambda: plan_rows(options)):  # noqa: B023
            with pytest.raises(rocketpy.InvalidArgumentError, match=f"the archive has topic {topic} of bro") as error:
                refused()
            assert error.value.hint.startswith(hint)
    assert plan_rows(replace(by_name, name_server=None, path=path, broker_name=broker_name)) == []
    other = plan_rows(replace(by_name, name_server=None, path=path, broker_name="another"))
    assert sum(row["messages"] for row in other) == 300, "the store of another broker is added"

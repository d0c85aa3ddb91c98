"""Foreign values (`foreign.py`) before Spark, every command and every job: all read the same, and nothing stops."""

import datetime
import json
import os
import subprocess
import sys
import tempfile

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as sql
from wire import give_up

import rocketpy
import rocketpy.store
import spark_jobs
from commands import command
from foreign import (
    COLUMNS,
    READ,
    UNKNOWN_TIMES,
    Foreign,
    assert_read,
    drawn_messages,
    expected,
    foreign_messages,
    foreign_server,
    of_message,
    of_row,
    own,
    pairs,
    patch_times,
    send_foreign,
)
from rocketpy.base.arrow import pyarrow_batch
from rocketpy.spark import audit, dlq_triage, lag_report, replay, topic_profile, trace_latency
from rocketpy.spark.archive.job import ArchiveFormat, ArchiveJob, ArchiveOptions
from waiting import wait_for_files

TOPIC, GROUP, TARGET, REPLAYED = "foreign", "foreign-group", "foreign-target", "foreign-replayed"
LETTERS = f"%DLQ%{GROUP}"
TRACES, TRACED = "foreign-traces", "FOREIGN-TRACED"
MESSAGES = foreign_messages() + drawn_messages()

pytestmark = pytest.mark.usefixtures("chance")  # prints the seed of the drawn messages


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with foreign_server(tmp_path_factory.mktemp("foreign") / "store", TOPIC, GROUP, MESSAGES) as server:
        with server.admin() as admin:
            for name in (TARGET, REPLAYED):
                admin.create_topic(name, queues=1)
            for name in (TOPIC, LETTERS):
                wait_for_files(server.path, admin.queues(name)[0], len(MESSAGES))
            admin.create_topic(TRACES, queues=1)
            traces = [
                Foreign(f"trace_{name}", pairs(("KEYS", TRACED)), body=trace(at_ms).encode())
                for name, at_ms in UNKNOWN_TIMES.items()
            ]
            send_foreign(server, TRACES, traces)
            wait_for_files(server.path, admin.queues(TRACES)[0], len(traces))
        yield server


def trace(at_ms: int) -> str:
    """Records of a send and of a delivery; a tab is part of a key."""
    sent = ("Pub", at_ms, "r", "g", TOPIC, TRACED, "T", "a\tb c", "h:1", 1, 2, 0, "ID", "true", "h:2")
    began = ("SubBefore", -at_ms - 1, "r", "g", f"R{at_ms}", TRACED, 0, "k")
    return "".join("\x01".join(map(str, record)) + "\x02" for record in (sent, began))


EXPECTED = {one.msg_id: expected(one) for one in MESSAGES}


def by_spark(**door):
    def read(server, spark):
        options = {name: str(getattr(server, attribute)) for name, attribute in door.items()}
        frame = spark.read.format("rocketpy").options(topic=TOPIC, columns=",".join(COLUMNS), **options).load()
        return by_id(frame.collect())

    return read


def by_id(rows):
    found = {}
    for facts in (row.asDict() for row in rows):
        if facts["born_at"] is not None:
            facts["born_at"] = facts["born_at"].astimezone(datetime.UTC)
        found[facts["msg_id"]] = of_row(facts)
    return found


def by_stream(**door):
    """A stream that reads what is there, in batches, and ends."""

    def read(server, spark):
        options = {name: str(getattr(server, attribute)) for name, attribute in door.items()}
        rows = []
        with tempfile.TemporaryDirectory() as checkpoint:
            frame = spark.readStream.format("rocketpy").options(topic=TOPIC, columns=",".join(COLUMNS), **options)
            writer = frame.load().writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
            query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            assert query.awaitTermination(300)
        return by_id(rows)

    return read


READERS = {
    "spark_path": by_spark(path="path"),
    "spark_cluster": by_spark(name_server="name_server"),
    "stream_path": by_stream(path="path"),
    "stream_cluster": by_stream(name_server="name_server"),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_reads_foreign_values_the_same(server, spark, reader):
    assert_read(READERS[reader](server, spark), EXPECTED)


COMMANDS = {
    "consume": ("consume", TOPIC, "--format", "json", "-n"),
    "consume_group": ("consume", TOPIC, "--format", "json", "--group", "foreign-command", "-n"),
    "store_dump": ("store", "dump", "PATH", "--topic", TOPIC, "--json"),
    "dlq_export": ("dlq", "export", GROUP, "-n"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_print_every_message_as_json(server, name):
    arguments = [server.path if one == "PATH" else one for one in COMMANDS[name]]
    if arguments[-1] == "-n":
        arguments.append(server.name_server)
    code, out, err = command(*arguments)
    assert code == 0, err
    rows = {row["msg_id"]: row for row in map(json.loads, out.splitlines())}
    assert rows.keys() == EXPECTED.keys()
    for msg_id, facts in EXPECTED.items():
        row = rows[msg_id]
        born_at = row["born_at"] and datetime.datetime.fromisoformat(row["born_at"])
        found = (row["tag"], row["keys"], own(row["properties"]), born_at, row["born_at_ms"])
        assert found == tuple(facts[name] for name in ("tag", "keys", "properties", "born_at", "born_at_ms")), msg_id


@pytest.mark.parametrize(
    "arguments",
    [
        ("store", "stat", "PATH"),
        ("store", "dump", "PATH", "--topic", TOPIC),
        ("topic", "describe", TOPIC, "-n", "NAMES"),
        ("group", "lag", GROUP, "-n", "NAMES"),
        ("dlq", "list", "-n", "NAMES"),
        ("dlq", "show", GROUP, "-n", "NAMES"),
        ("message", "query", TOPIC, "--key", "c", "-n", "NAMES"),
        ("message", "query", TOPIC, "--unique-key", "FOREIGN-born_largest", "-n", "NAMES"),
    ],
    ids=lambda arguments: "_".join(part for part in arguments[:2]),
)
def test_commands_print_tables(server, arguments):
    if arguments[:2] == ("group", "lag"):
        with server.consumer(GROUP, TOPIC, start="earliest") as consumer:
            assert consumer.poll(timeout=20)
            consumer.commit()
    known = {"PATH": server.path, "NAMES": server.name_server}
    code, out, err = command(*(known.get(one, one) for one in arguments))
    assert (code, bool(out)) == (0, True), err


JOBS = {
    "audit": (audit.main, ("--by", "keys")),
    "topic_profile": (topic_profile.main, ()),
    "trace_latency": (trace_latency.main, ("--trace-topic", TRACES)),
}


@pytest.mark.parametrize("door", ["path", "name_server"])
@pytest.mark.parametrize("name", JOBS)
def test_jobs_read_every_message(server, spark, capsys, tmp_path, name, door):
    main, more = JOBS[name]
    where = ["--path", server.path] if door == "path" else ["--name-server", server.name_server]
    code, facts = spark_jobs.run(main, capsys, *where, "--topic", TOPIC, *more, "--out", tmp_path / "out")
    assert code == 0, facts


@pytest.mark.parametrize("name", ["lag_report", "dlq_triage"])
def test_jobs_of_groups_read_every_message(server, spark, capsys, tmp_path, name):
    with server.consumer(GROUP, TOPIC, start="earliest") as consumer:
        consumer.poll(1, timeout=20)
        consumer.commit()
    main, more = {"lag_report": (lag_report.main, ()), "dlq_triage": (dlq_triage.main, ("--sample", "100"))}[name]
    code, facts = spark_jobs.run(
        main, capsys, "--name-server", server.name_server, *more, "--group", GROUP, "--out", tmp_path / "out"
    )
    assert code == 0, facts


def test_a_trace_of_any_times_is_read(server):
    with server.admin() as admin:
        found = admin.trace(TRACED, trace_topic=TRACES)
    assert {one.at for one in found.sends} == {None}
    assert {one.keys for one in found.sends} == {("a\tb", "c")}
    code, out, err = command("message", "trace", TRACED, "--trace-topic", TRACES, "-n", server.name_server)
    assert (code, "stored" in out) == (0, True), err


@pytest.mark.parametrize("format", ArchiveFormat)
def test_an_archive_holds_every_message(server, spark, tmp_path, format):
    out = tmp_path / "out"
    options = ArchiveOptions(str(out), (TOPIC,), path=str(server.path), columns=tuple(COLUMNS), format=format)
    assert ArchiveJob(spark, options, lambda _line: None).run().rows == len(MESSAGES)
    if format is ArchiveFormat.PARQUET:
        found = by_id(spark.read.parquet(options.out).collect())
    else:
        found = {row["msg_id"]: of_row(row) for row in DeltaTable(options.out).to_pyarrow_table().to_pylist()}
    assert_read(found, EXPECTED)


MARKS = {"rocketpyOriginMsgId", "rocketpyOriginTopic", "rocketpyResentFrom"}


def copies_in(server, topic):
    """Tag, keys, own properties, flag and body of the messages of a topic, by the id of the original."""
    with server.admin() as admin:
        (info,) = admin.describe_topic(topic).queues
    with rocketpy.RangeReader(info.queue, info.min_offset, info.max_offset, name_servers=server.name_server) as reader:
        messages = [message for found in reader.messages() for message in found]
    copies = {message.properties["rocketpyOriginMsgId"]: of_message(message) for message in messages}
    for facts in copies.values():
        facts["properties"] = {name: value for name, value in facts["properties"].items() if name not in MARKS}
    return copies


COPIED = [name for name in READ if not name.startswith("born")]


def assert_copies(copies, expected=EXPECTED):
    assert copies.keys() == expected.keys()
    for msg_id, facts in expected.items():
        assert {name: copies[msg_id][name] for name in COPIED} == {name: facts[name] for name in COPIED}, msg_id


def test_dead_letters_are_resent_as_they_were_stored(server):
    code, out, err = command("dlq", "resend", GROUP, "--to", TARGET, "--yes", "--json", "-n", server.name_server)
    assert (code, json.loads(out)["sent"]) == (0, len(MESSAGES)), err
    assert_copies(copies_in(server, TARGET))


def test_a_replay_copies_what_was_stored(server, spark, capsys):
    code, facts = spark_jobs.run(
        replay.main, capsys, "--path", server.path, "--topic", TOPIC, "--to-topic", REPLAYED,
        "--to-name-server", server.name_server,
    )  # fmt: skip
    assert (code, facts["messages"], facts["rejected"]) == (0, len(MESSAGES), 0), facts
    assert_copies(copies_in(server, REPLAYED))


def test_rows_that_were_read_are_written_again_as_they_were_stored(server, spark):
    """By the sink, which has no column for flags."""
    with server.admin() as admin:
        admin.create_topic("foreign-written", queues=1)
    read = spark.read.format("rocketpy").options(
        path=str(server.path), topic=TOPIC, columns="msg_id,body,tag,keys,properties"
    )
    mark = sql.create_map(sql.lit("rocketpyOriginMsgId"), "msg_id")
    rows = read.load().select("body", "tag", "keys", sql.map_concat("properties", mark).alias("properties"))
    options = {"name_server": server.name_server, "topic": "foreign-written", "drop_reserved_properties": "true"}
    rows.write.format("rocketpy").mode("append").options(**options, progress_topic="").save()
    copies = copies_in(server, "foreign-written")
    assert_copies(copies, {msg_id: {**facts, "flag": 0} for msg_id, facts in EXPECTED.items()})


def test_a_dump_is_imported_as_it_was_stored(server, tmp_path):
    dumped, store = tmp_path / "dump.jsonl", tmp_path / "imported"
    code, _, err = command("store", "dump", server.path, "--topic", TOPIC, "--format", "jsonl", "--output", dumped)
    assert code == 0, err
    code, out, err = command("store", "import", dumped, store, "--json")
    assert (code, json.loads(out)["messages"]) == (0, len(MESSAGES)), err
    batches = rocketpy.store.records(store, topics=[TOPIC], columns=COLUMNS)
    rows = [row for batch in batches for row in pyarrow_batch(batch).to_pylist()]
    assert {row["msg_id"]: of_row(row) for row in rows} == EXPECTED


def padded(text: bytes, size: int) -> bytes:
    """Properties of this size, each of at most 1,000 bytes."""
    for number in range(31):
        left = size - len(text) - len(f"p{number}") - 2
        text += pairs((f"p{number}", "x" * min(left, 1000))) if left > 0 else b""
    return text


LONG = Foreign("too_long", padded(b"", 30_158))
"""Accepted, up to 30,207 bytes with its id; too long with the properties that a copy adds."""


def test_a_message_that_cannot_be_copied_is_named_counted_and_skipped(server, spark, capsys):
    topic, group = "foreign-long", "foreign-long-group"
    with server.admin() as admin:
        for name in (topic, "foreign-long-target"):
            admin.create_topic(name, queues=1)
        give_up(server.broker, group, *send_foreign(server, topic, (MESSAGES[0], LONG, MESSAGES[1])))
        wait_for_files(server.path, admin.queues(topic)[0], 3)
    code, out, err = command(
        "dlq", "resend", group, "--to", "foreign-long-target", "--yes", "--json", "-n", server.name_server
    )
    facts = json.loads(out)
    assert (code, facts["sent"], [one["msg_id"] for one in facts["rejected"]]) == (11, 2, [LONG.msg_id]), err
    assert f"rejected: {LONG.msg_id}: " in err
    assert "error: 1 dead letter rejected and skipped" in err
    code, facts = spark_jobs.run(
        replay.main, capsys, "--path", server.path, "--topic", topic, "--to-topic", "foreign-long-target",
        "--to-name-server", server.name_server,
    )  # fmt: skip
    assert (code, facts["messages"], facts["rejected"]) == (11, 2, 1), facts
    assert LONG.msg_id in facts["rejections"][0]


def test_an_import_skips_what_the_store_cannot_take(tmp_path):
    rows = [{"topic": "t", "body": "a"}, {"topic": "t", "body": "b", "properties": {"p": "x" * 40_000}},
            {"topic": "t", "body": "c"}]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, out, err = command("store", "import", tmp_path / "rows.jsonl", tmp_path / "store", "--json")
    facts = json.loads(out)
    assert (code, facts["messages"], facts["rejected"]) == (11, 2, 1), err
    assert facts["rejections"][0].startswith("row 2: properties exceed")


def test_store_times_that_are_not_times_stop_nothing(spark, capsys, tmp_path):
    """Another broker stored them: the log of a stopped server is changed."""
    store = tmp_path / "store"
    times = list(UNKNOWN_TIMES.values())
    with rocketpy.Server(store, settings={"enabledAppendPropCRC": "false"}) as server:
        with server.admin() as admin, server.producer("foreign") as producer:
            admin.create_topic("t", queues=1)
            receipts = producer.send_many([rocketpy.Message("t", b"%d" % number) for number in range(len(times) + 1)])
        offsets = [int(receipt.offset_msg_id[16:], 16) for receipt in receipts]
    patch_times(store, list(zip(offsets, times, strict=False)))
    for arguments in (("store", "stat", store), ("store", "dump", store, "--json"), ("store", "verify", store)):
        code, _, err = command(*arguments)
        assert code == 0, (arguments, err)
    for main in (audit.main, topic_profile.main):
        code, facts = spark_jobs.run(main, capsys, "--path", store, "--topic", "t", "--out", tmp_path / main.__module__)
        assert code in (0, 9), facts  # clock steps are found
    options = ArchiveOptions(str(tmp_path / "out"), ("t",), path=str(store), columns=tuple(COLUMNS))
    assert ArchiveJob(spark, options, lambda _line: None).run().rows == len(times) + 1
    rows = spark.read.parquet(options.out).orderBy("queue_offset").collect()
    assert [row.stored_at_ms for row in rows][:-1] == times
    assert [row.stored_at is None for row in rows] == [True] * len(times) + [False]
    assert {str(row.day) for row in rows[:-1]} == {"1970-01-01"}
    with rocketpy.Server(store) as server, server.consumer("g", "t", start="earliest") as consumer:
        messages = []
        while len(messages) <= len(times):
            messages += consumer.poll(timeout=20)
        assert [message.stored_at for message in messages][:-1] == [None] * len(times)


@pytest.mark.parametrize("streams", [">/dev/full", ">&-"])
def test_a_job_whose_standard_output_cannot_be_written_is_an_error(server, streams):
    """A dry run, so that no session starts."""
    job = [sys.executable, "-m", "rocketpy.spark.audit", "--dry-run", "--topic", TOPIC, "--path", str(server.path)]
    ended = subprocess.run(
        ["bash", "-c", f'"$@" {streams}', "-", *job], capture_output=True, text=True, timeout=300, check=False
    )
    check_lost_output(ended.returncode, ended.stderr)


def check_lost_output(code: int, error: str) -> None:
    assert code == 5, error
    assert "error: cannot write standard output: " in error
    assert error.count("error: ") == error.count("hint: ") == 1, error
    assert "Traceback" not in error
    assert "Exception ignored" not in error


def test_a_job_with_a_session_whose_standard_output_is_full_is_an_error(server, spark, monkeypatch, capfd):
    """Prints its report after its queries; the descriptor of this process is full meanwhile."""
    monkeypatch.setattr(sys, "argv", ["audit", "--topic", TOPIC, "--path", str(server.path)])
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))  # set back after the test
    before, full = os.dup(1), os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, 1)
    try:
        code = audit.main()
    finally:
        os.dup2(before, 1)
        os.close(before)
        os.close(full)
    check_lost_output(code, capfd.readouterr().err)

"""Bodies that do not decompress (`unreadable.py`) before Spark and every job: none ends a job for other messages."""

import json
import tempfile

import pytest

import rocketpy
from rocketpy.spark import audit, dlq_triage, lag_report, replay, topic_profile, trace_latency
from rocketpy.spark.archive import job as archive
from unreadable import BODIES, MESSAGES, READABLE, UNREADABLE, send_unreadable, unreadable_server

TOPIC, GROUP, TARGET, RESENT, TRACES = (
    "unreadable", "unreadable-group", "unreadable-target", "unreadable-resent", "unreadable-traces",
)  # fmt: skip
REJECTED = "body does not decompress"
DOORS = {"path": ("path", "--path"), "cluster": ("name_server", "--name-server")}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with unreadable_server(tmp_path_factory.mktemp("unreadable") / "store", TOPIC, GROUP) as server:
        with server.admin() as admin:
            for name in (TARGET, RESENT):
                admin.create_topic(name, queues=1)
        send_unreadable(server, TRACES)
        yield server


def bodies_of(rows):
    return {row["msg_id"]: None if row["body"] is None else bytes(row["body"]).decode() for row in rows}


def options_of(server, door):
    name, _ = DOORS[door]
    return {name: str(getattr(server, name)), "topic": TOPIC, "columns": "msg_id,body"}


@pytest.mark.parametrize("door", DOORS)
def test_a_read_fails_skips_or_gives_null_as_its_options_say(server, spark, door):
    def read(**more):
        return bodies_of(spark.read.format("rocketpy").options(**options_of(server, door), **more).load().collect())

    with pytest.raises(Exception, match="cannot decompress the body of message 1 of"):
        read()
    assert read(fail_on_data_loss="false").keys() == READABLE
    assert read(null_unreadable_bodies="true") == BODIES
    assert read(null_unreadable_bodies="true", fail_on_data_loss="false") == BODIES


def test_a_stream_gives_null(server, spark):
    rows = []
    with tempfile.TemporaryDirectory() as checkpoint:
        frame = spark.readStream.format("rocketpy").options(**options_of(server, "path"), null_unreadable_bodies="true")
        writer = frame.load().writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
    assert bodies_of(rows) == BODIES


def run(main, capsys, server, *arguments, door="cluster"):
    """Runs a job; returns its exit code, its JSON and its standard error."""
    name, option = DOORS[door]
    capsys.readouterr()
    code = main([option, str(getattr(server, name)), *map(str, arguments), "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out), printed.err


@pytest.mark.parametrize(("door", "by"), [("cluster", "id"), ("path", "body")])
def test_an_audit_finds_no_gap_and_compares_bodies_as_stored(server, spark, capsys, tmp_path, door, by):
    name, _ = DOORS[door]
    code, checks, err = run(
        audit.main, capsys, server, "--topic", TOPIC, "--by", by, f"--against-{name.replace('_', '-')}",
        getattr(server, name), door=door,
    )  # fmt: skip
    assert code == 0, err
    found = {one["check"]: (one["looked_at"], one["found"]) for one in checks}
    assert found["gaps"] == (len(MESSAGES), 0)
    compared = len(MESSAGES) if by == "id" else len(READABLE)
    assert found["another body in the other store"] == (compared, 0)


def test_a_profile_counts_every_message(server, spark, capsys):
    code, (profile,), err = run(topic_profile.main, capsys, server, "--topic", TOPIC, door="path")
    assert (code, profile["messages"]) == (0, len(MESSAGES)), err


def test_latencies_are_measured_without_unreadable_traces(server, spark, capsys):
    code, rows, err = run(trace_latency.main, capsys, server, "--topic", TOPIC, "--trace-topic", TRACES)
    assert (code, [row["count"] for row in rows if row["measure"] == "stored"]) == (0, [len(MESSAGES)]), err
    assert f"warning: {len(UNREADABLE)} bodies do not decompress: these traces are left out" in err


def test_a_lag_report_names_the_messages_behind(server, spark, capsys):
    with server.consumer("unreadable-lag", TOPIC, start="earliest") as consumer:
        assert consumer.poll(1, timeout=60)
        consumer.commit()
    code, (row,), err = run(lag_report.main, capsys, server, "--group", "unreadable-lag")
    assert (code, row["lag"]) == (0, len(MESSAGES) - 1), err


def test_a_triage_counts_and_shows_every_dead_letter_and_resends_the_readable_ones(server, spark, capsys, tmp_path):
    code, facts, err = run(
        dlq_triage.main, capsys, server, "--group", GROUP, "--sample", 100, "--resend", "--to", RESENT,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert code == 11, err
    (kind,) = facts["kinds"]
    assert (kind["messages"], kind["unreadable_bodies"]) == (len(MESSAGES), len(UNREADABLE))
    assert {row["msg_id"]: row["body"] for row in facts["sample"]} == BODIES
    assert bodies_of(spark.read.parquet(str(tmp_path / "out" / "dead_letters.parquet")).collect()) == BODIES
    assert (facts["resent"]["sent"], facts["resent"]["rejected"]) == (len(READABLE), len(UNREADABLE))
    assert f"warning: {len(UNREADABLE)} bodies do not decompress: null" in err
    assert err.count(f"rejected: {GROUP}: ") == len(UNREADABLE)


def test_a_replay_rejects_the_unreadable_messages_and_sends_the_others(server, spark, capsys):
    code, facts, err = run(
        replay.main, capsys, server, "--topic", TOPIC, "--to-topic", TARGET, "--to-name-server", server.name_server,
    )  # fmt: skip
    assert (code, facts["messages"], facts["rejected"]) == (11, len(READABLE), len(UNREADABLE)), err
    assert all(REJECTED in one for one in facts["rejections"])
    assert {one.split(":")[0] for one in facts["rejections"]} == UNREADABLE


def test_an_archive_has_every_message_and_counts_the_null_bodies(server, spark, capsys, tmp_path):
    out = tmp_path / "out"
    code, facts, err = run(archive.main, capsys, server, "--topic", TOPIC, "--out", out, door="path")
    assert (code, facts["messages"], facts["unreadable_bodies"]) == (0, len(MESSAGES), len(UNREADABLE)), err
    assert f"warning: {len(UNREADABLE)} bodies do not decompress: null in the archive" in err
    assert bodies_of(spark.read.parquet(str(out)).collect()) == BODIES


def test_rows_with_null_bodies_are_rejected_by_the_sink(server, spark):
    frame = spark.read.format("rocketpy").options(**options_of(server, "path"), null_unreadable_bodies="true").load()
    options = {"name_server": server.name_server, "topic": TARGET}
    with pytest.raises(Exception, match="its body is null"):
        frame.select("body").write.format("rocketpy").mode("append").options(**options, progress_topic="").save()


def test_an_aggregate_decompresses_nothing(server, spark):
    from rocketpy.spark import aggregate

    (row,) = aggregate(spark, ["topic"], path=server.path, topic=TOPIC).collect()
    assert row.messages == len(MESSAGES)
    assert isinstance(row.bytes, int)
    assert rocketpy.StoreReader(server.path).topics()

"""The job `lag_report`, on groups that are behind."""

from pathlib import Path

import pytest

import rocketpy
import spark_jobs
from rocketpy import store
from rocketpy.spark.lag_report import main
from rocketpy.testing import fresh_name


@pytest.fixture
def behind(rocketpy_server):
    """A group that read 500 of 2000 flights in two queues."""
    topic, group = fresh_name("lagging"), fresh_name("slow")
    receipts = spark_jobs.send_flights(rocketpy_server, topic, queues=2)
    with rocketpy_server.consumer(group, topic, start=rocketpy.Start.EARLIEST) as consumer:
        read = 0
        while read < 500:
            read += len(consumer.poll(500 - read))
        consumer.commit()
    return group, topic, receipts


def test_a_group_that_is_behind_has_hours_left(spark, behind, rocketpy_server, tmp_path, capsys):
    group, topic, receipts = behind
    given = ("--name-server", rocketpy_server.name_server, "--group", group)
    code, (row,) = spark_jobs.run(main, capsys, *given, "--out", tmp_path / "report")
    assert code == 0
    assert (row["group"], row["topic"], row["lag"], row["gone"]) == (group, topic, len(receipts) - 500, 0)
    assert row["verdict"] == "ok"
    assert 71 < row["hours_left"] <= 72
    assert row["needed_per_hour"] == pytest.approx(1500 / 72, rel=0.02)
    queues = spark.read.parquet(str(tmp_path / "report" / "queues.parquet")).collect()
    assert sum(queue.lag for queue in queues) == 1500
    assert (tmp_path / "report" / "lag.png").read_bytes().startswith(b"\x89PNG")
    places = {(one.queue.queue_id, one.queue_offset) for one in receipts}
    messages = {
        (one.queue_id, one.queue_offset): one.stored_at
        for one in spark.read.format("rocketpy").options(path=str(rocketpy_server.path), topic=topic).load().collect()
    }
    assert messages.keys() == places
    with rocketpy_server.admin() as admin:
        unread = [
            messages[one.queue.queue_id, one.committed_offset or 0] for one in admin.group_lag(group, topic) if one.lag
        ]
    assert sorted(queue.oldest_unread_at for queue in queues) == sorted(unread)


def test_unread_messages_that_go_soon_end_with_a_code(spark, behind, rocketpy_server, capsys):
    group, topic, _ = behind
    given = ("--name-server", rocketpy_server.name_server, "--group", group)
    code, (row,) = spark_jobs.run(main, capsys, *given, "--retention-hours", 11)
    assert (code, row["verdict"]) == (9, "at risk")
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, attributes={"retention.hours": "13"})
    code, (row,) = spark_jobs.run(main, capsys, *given, "--retention-hours", 11)
    assert (code, row["verdict"]) == (0, "ok")  # the topic's own time wins
    code, rows = spark_jobs.run(main, capsys, *given, "--queues")
    assert [row["queue"].partition("@")[0] for row in rows] == [topic] * len(rows)


@pytest.mark.parametrize("option", ["--retention-hours", "--alarm-hours"])
@pytest.mark.parametrize("hours", ["1e300", "1000001", "1e400", "nan", "-1"])
def test_hours_that_no_broker_keeps_are_wrong_usage(option, hours, capsys):
    assert main(["--name-server", "127.0.0.1:1", f"{option}={hours}"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert option in error
    assert hint.startswith("hint: ")


def test_messages_that_went_unread_are_counted(spark, rocketpy_server_factory, tmp_path, capsys):
    server = rocketpy_server_factory(tmp_path / "old", settings={"mappedFileSizeCommitLog": 1 << 20})
    with server.admin() as admin, server.producer("p") as producer:
        admin.create_topic("t", queues=1)
        admin.create_group("slow")
        producer.send_many([rocketpy.Message("t", b"x" * 1000) for _ in range(3000)])
        admin.reset_offsets("slow", "t", rocketpy.Start.EARLIEST)
    server.stop()
    min(Path(server.path, "commitlog").iterdir()).unlink()
    assert store.repair(server.path, apply=True).actions  # queues begin behind it, as after retention
    server.start()
    with server.admin() as admin:
        (queue,) = admin.describe_topic("t").queues
    assert queue.min_offset > 0
    code, (row,) = spark_jobs.run(main, capsys, "--name-server", server.name_server)
    assert (code, row["verdict"]) == (9, "gone")
    assert (row["gone"], row["lag"]) == (queue.min_offset, 3000 - queue.min_offset)


def test_a_dry_run_reads_no_message_and_a_group_that_is_not_there_is_named(behind, rocketpy_server, capsys):
    group, _, _ = behind
    given = ("--name-server", rocketpy_server.name_server)
    code, rows = spark_jobs.run(main, capsys, *given, "--group", group, "--dry-run")
    assert code == 0
    assert sum(row["lag"] for row in rows) == 1500
    code, text = spark_jobs.run(main, capsys, *given, "--group", "nobody")
    assert code == 3
    assert "nobody" in text

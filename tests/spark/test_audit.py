"""The job `audit`, on real flights and on stores that are not as they should be."""

import dataclasses
import datetime
from pathlib import Path

import pandas
import pytest

import rocketpy
import spark_jobs
from rocketpy import store
from rocketpy.admin.dead_letters import ORIGIN_ID
from rocketpy.spark import job
from rocketpy.spark.audit import main
from rocketpy.spark.audit import run as audit
from rocketpy.spark.audit_checks import read_journal
from rocketpy.testing import fresh_name

BORN = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def flights(rocketpy_server):
    topic = fresh_name("audited")
    return topic, spark_jobs.send_flights(rocketpy_server, topic)


def verdicts(report):
    return {row["check"]: (row["verdict"], row["looked_at"], row["found"]) for row in report}


def imported(path, rows):
    """A store of these messages, in one queue each unless they say another."""
    store.import_messages([{"topic": "t", "body": "x", **row} for row in rows], path)
    return path


def test_a_topic_that_is_as_it_should_be(spark, flights, rocketpy_server, tmp_path, capsys):
    topic, receipts = flights
    noted, out = spark_jobs.journal(receipts, tmp_path / "journal.jsonl"), tmp_path / "report"
    code, report = spark_jobs.run(
        main, capsys, "--topic", topic, "--name-server", rocketpy_server.name_server, "--journal", noted, "--out", out
    )
    assert [one.name for one in out.iterdir()] == ["audit.png"], "there is nothing to note in tables"
    count = spark_jobs.FLIGHTS
    assert verdicts(report) == {
        "gaps": ("ok", count, 0),
        "clock steps back": ("ok", count, 0),
        "duplicates by id": ("ok", count, 0),
        "order keys in several queues": ("ok", count, 0),
        "order within an order key": ("ok", count, 0),
        "acknowledged and missing": ("ok", count, 0),
        "acknowledged and elsewhere": ("ok", count, 0),
        "stored and not in the journal": ("ok", count, 0),
        "journal lines without an id": ("ok", count, 0),
    }
    assert code == 0


def test_a_journal_finds_what_was_lost_moved_or_never_acknowledged(spark, flights, rocketpy_server, tmp_path, capsys):
    topic, receipts = flights
    wrong = [
        dataclasses.replace(receipts[0], msg_id="F" * 32),
        dataclasses.replace(receipts[1], queue_offset=10_000),
        *receipts[2:-3],
    ]
    noted = spark_jobs.journal(wrong, tmp_path / "journal.jsonl")
    out = tmp_path / "report"
    given = ("--topic", topic, "--path", rocketpy_server.path, "--journal", noted, "--out", out, "--check", "gaps")
    code, report = spark_jobs.run(main, capsys, *given)
    assert code == 9
    found = verdicts(report)
    assert found["acknowledged and missing"] == ("fault", len(wrong), 1)
    assert found["acknowledged and elsewhere"] == ("fault", len(wrong), 1)
    assert found["stored and not in the journal"] == ("noted", spark_jobs.FLIGHTS, 4)
    assert (out / "audit.png").read_bytes().startswith(b"\x89PNG")
    (lost,) = spark.read.parquet(str(out / "acknowledged_and_missing.parquet")).collect()
    assert lost.msg_id == "F" * 32
    (moved,) = spark.read.parquet(str(out / "acknowledged_and_elsewhere.parquet")).collect()
    assert (moved.queue_offset, moved.stored_queue_offset) == (10_000, receipts[1].queue_offset)


def journal_rows(receipts):
    return [
        {
            "msg_id": one.msg_id,
            "topic": one.queue.topic,
            "queue_id": one.queue.queue_id,
            "queue_offset": one.queue_offset,
        }
        for one in receipts
    ]


def written_by_pandas(rows, file):
    """With its index, and with floats in columns where a number is missing."""
    frame = pandas.DataFrame(rows)
    match file.suffix:
        case ".csv":
            frame.to_csv(file, encoding="utf-8-sig" if "mark" in file.stem else "utf-8")
        case ".parquet":
            frame.to_parquet(file)
        case _:
            frame.to_json(file, orient="records", lines=True)
    return file


@pytest.mark.parametrize("name", ["journal.csv", "mark.csv", "journal.parquet", "journal.jsonl"])
def test_null_in_a_journal_says_nothing(flights, rocketpy_server, tmp_path, capsys, name):
    topic, receipts = flights
    rows = journal_rows(receipts)
    for row in rows[:10]:
        row["topic"] = None
    for row in rows[5:20]:
        row["queue_id"] = row["queue_offset"] = None
    rows.append(dict.fromkeys(rows[0]))  # a send that failed
    noted = written_by_pandas(rows, tmp_path / name)
    given = ("--topic", topic, "--path", rocketpy_server.path, "--journal", noted, "--check", "gaps")
    code, report = spark_jobs.run(main, capsys, *given)
    found = verdicts(report)
    assert found["acknowledged and missing"] == ("ok", len(receipts), 0)
    assert found["acknowledged and elsewhere"] == ("ok", len(receipts), 0)
    assert found["stored and not in the journal"] == ("ok", spark_jobs.FLIGHTS, 0)
    assert found["journal lines without an id"] == ("noted", len(rows), 1)
    assert code == 0


def test_a_journal_with_a_column_of_nulls_alone_says_nothing_of_it(flights, rocketpy_server, tmp_path, capsys):
    topic, receipts = flights
    rows = [{**row, "topic": None, "queue_offset": float("nan")} for row in journal_rows(receipts)]
    noted = written_by_pandas(rows, tmp_path / "journal.parquet")
    given = ("--topic", topic, "--path", rocketpy_server.path, "--journal", noted, "--check", "gaps")
    code, report = spark_jobs.run(main, capsys, *given)
    assert {name: found for name, (_, _, found) in verdicts(report).items() if found} == {}
    assert code == 0


def test_an_offset_that_is_not_a_whole_number_is_named(flights, rocketpy_server, tmp_path, capfd):
    topic, receipts = flights
    rows = [{**row, "queue_offset": "3.5"} for row in journal_rows(receipts)[:1]]
    noted = written_by_pandas(rows, tmp_path / "journal.csv")
    given = ["--topic", topic, "--path", str(rocketpy_server.path), "--journal", str(noted), "--check", "gaps"]
    assert main(given) == 2
    assert (
        f"queue_offset in the journal is not a whole number: 3.5 (msg_id {receipts[0].msg_id})"
        in capfd.readouterr().err
    )


def test_a_damaged_record_is_a_gap(spark, rocketpy_server_factory, tmp_path, capsys):
    server = rocketpy_server_factory(tmp_path / "damaged", settings={"mappedFileSizeCommitLog": 1 << 20})
    with server.admin() as admin, server.producer("audit") as producer:
        admin.create_topic("t", queues=1)
        producer.send_many([rocketpy.Message("t", b"message %d." % number) for number in range(20)])
    server.stop()
    (log,) = Path(server.path, "commitlog").iterdir()
    log.write_bytes(log.read_bytes().replace(b"message 7.", b"Message 7."))
    code, report = spark_jobs.run(main, capsys, "--topic", "t", "--path", server.path, "--check", "gaps")
    assert verdicts(report)["gaps"] == ("fault", 20, 1)
    assert "first_offset 7, end_offset 8" in report[0]["example"]
    assert code == 9


def test_duplicates_and_broken_order_are_found(spark, tmp_path, capsys):
    def row(key, minute, host="10.0.0.1:1", queue=0, **more):
        born_at = (BORN + datetime.timedelta(minutes=minute)).isoformat()
        properties = {"__SHARDINGKEY": key, **more}
        return {"queue_id": queue, "properties": properties, "born_at": born_at, "born_host": host, "keys": key}

    path = imported(
        tmp_path / "store",
        [
            row("a", 1),
            row("a", 3),
            row("b", 2),  # another key: earlier is right
            row("a", 2),  # out of order
            row("a", 1, host="10.0.0.2:1"),  # another producer
            row("b", 5, queue=1),  # the key has two queues
            row("c", 1, **{ORIGIN_ID: "F1"}),
            row("c", 2, **{ORIGIN_ID: "F1"}),  # the same message, sent again
        ],
    )
    code, report = spark_jobs.run(main, capsys, "--topic", "t", "--path", path)
    found = verdicts(report)
    assert found["duplicates by id"] == ("noted", 8, 1)
    assert found["order keys in several queues"] == ("noted", 8, 1)
    assert found["order within an order key"] == ("fault", 8, 1)
    assert "order_key a" in report[4]["example"]
    assert "queue_offset 3" in report[4]["example"]
    assert code == 9
    _, report = spark_jobs.run(main, capsys, "--topic", "t", "--path", path, "--by", "keys", "--check", "duplicates")
    assert verdicts(report) == {"duplicates by keys": ("noted", 8, 3 + 1 + 1)}


def test_two_stores_are_compared_message_by_message(spark, tmp_path, capsys):
    def rows(*bodies):
        return [{"body": body, "properties": {"number": str(number)}} for number, body in enumerate(bodies) if body]

    first = imported(tmp_path / "first", rows("a", "b", "c", "d", "d"))
    second = imported(tmp_path / "second", rows("a", "B", None, "d", "d", "e"))
    given = ("--topic", "t", "--path", first, "--against-path", second, "--by", "property:number", "--check", "gaps")
    code, report = spark_jobs.run(main, capsys, *given)
    found = verdicts(report)
    assert found["missing in the other store"] == ("fault", 5, 1)
    assert found["another body in the other store"] == ("fault", 5, 1)
    assert found["only in the other store"] == ("noted", 5, 1)
    assert code == 9
    code, report = spark_jobs.run(
        main, capsys, "--topic", "t", "--path", first, "--against-path", first, "--by", "place", "--check", "gaps"
    )
    assert {verdict for verdict, _, _ in verdicts(report).values()} == {"ok"}
    assert code == 0


def test_a_journal_is_read_once(spark, tmp_path):
    journal = tmp_path / "journal.csv"
    journal.write_text("msg_id,queue_offset\nA,1\n,\n")
    with job.caches() as keep:
        lines, _ = read_journal(spark, journal, keep)
        assert lines.count() == 2
        journal.unlink()
        assert lines.where("msg_id is null").count() == 1


def test_an_audit_leaves_no_cached_table_in_the_session(spark, flights, rocketpy_server, tmp_path):
    topic, receipts = flights
    spark.catalog.clearCache()
    source = {"topic": topic, "name_server": rocketpy_server.name_server}
    audit(spark, source, against=source, journal=Path(spark_jobs.journal(receipts, tmp_path / "journal.jsonl")))
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()

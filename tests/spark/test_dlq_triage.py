"""The job `dlq_triage`, on flights that a group gave up."""

import collections

import pytest
from wire import give_up

import rocketpy
import spark_jobs
from rocketpy.spark.dlq_triage import main
from rocketpy.testing import fresh_name
from waiting import wait_until

DEAD = 30


@pytest.fixture(scope="module")
def dead(rocketpy_server):
    """A group and the receipts of the flights that it gave up."""
    topic, group = fresh_name("flown"), fresh_name("giving-up")
    receipts = spark_jobs.send_flights(rocketpy_server, topic, DEAD)
    for number, receipt in enumerate(receipts):
        give_up(rocketpy_server.broker, group, receipt, error=f"ValueError: no aircraft {number}")
    with rocketpy_server.admin() as admin:

        def are_there():
            return [one.count for one in admin.dead_letter_groups() if one.group == group] == [DEAD]

        wait_until(are_there, "the dead letters")
    return group, topic, receipts


def read(server, topic):
    with server.admin() as admin:
        infos = admin.describe_topic(topic).queues
    found = []
    for info in infos:
        with rocketpy.RangeReader(
            info.queue, info.min_offset, info.max_offset, name_servers=server.name_server
        ) as reader:
            found += [message for messages in reader.messages() for message in messages]
    return found


def test_dead_letters_are_counted_by_kind_and_age_and_some_are_shown(spark, dead, rocketpy_server, tmp_path, capsys):
    group, topic, _ = dead
    sent = spark_jobs.flights(DEAD)
    carriers = collections.Counter(sent.carriers)
    given = ("--name-server", rocketpy_server.name_server, "--group", group)
    code, report = spark_jobs.run(main, capsys, *given, "--sample", 2, "--out", tmp_path / "letters")
    assert code == 0
    assert {row["tag"]: row["messages"] for row in report["kinds"]} == carriers
    for row in report["kinds"]:
        assert (row["group"], row["origin_topic"], row["reason"]) == (group, topic, "GIVEN_UP")
        assert (row["error_type"], row["newest_error"].split(": ")[0]) == ("ValueError", "ValueError")
        assert row["last_hour"] == row["last_3_days"] == row["messages"]
    shown = collections.Counter(one["tag"] for one in report["sample"])
    assert shown == {tag: min(2, count) for tag, count in carriers.items()}
    assert all(one["error"].startswith("ValueError: no aircraft ") for one in report["sample"])
    assert all(one["body"].startswith('{"year":2013') for one in report["sample"])
    assert report["resent"] is None
    stored = spark.read.parquet(str(tmp_path / "letters" / "dead_letters.parquet")).collect()
    assert sorted(bytes(row.body) for row in stored) == sorted(sent.bodies)
    assert (tmp_path / "letters" / "dead_letters.png").read_bytes().startswith(b"\x89PNG")


def test_those_that_are_chosen_are_sent_again_once(spark, dead, rocketpy_server, tmp_path, capsys):
    group, topic, receipts = dead
    sent = spark_jobs.flights(DEAD)
    target = fresh_name("second-chance")
    with rocketpy_server.admin() as admin:
        admin.create_topic(target, queues=1)
    key = sent.aircraft[3]
    chosen = sorted(
        body
        for body, pair in zip(sent.bodies, zip(sent.aircraft, sent.numbers, strict=True), strict=True)
        if key in pair
    )
    given = ("--name-server", rocketpy_server.name_server, "--group", group, "--resend", "--to", target)
    code, report = spark_jobs.run(main, capsys, *given, "--key", key, "--topic", topic, "--out", tmp_path / "resent")
    assert code == 0
    rejected = {"rejected": 0, "rejections": []}
    assert report["resent"] == {"sent": len(chosen), "sent_before": 0, "without_origin": 0, **rejected}
    assert sum(row["messages"] for row in report["kinds"]) == len(chosen)
    assert sorted(message.body for message in read(rocketpy_server, target)) == chosen
    rows = spark.read.parquet(str(tmp_path / "resent" / "resent.parquet")).collect()
    by_id = {receipt.msg_id: body for receipt, body in zip(receipts, sent.bodies, strict=True)}
    assert sorted(by_id[row.msg_id] for row in rows) == chosen
    code, report = spark_jobs.run(main, capsys, *given, "--sample", 0)
    assert report["resent"] == {"sent": DEAD - len(chosen), "sent_before": len(chosen), "without_origin": 0, **rejected}
    assert sorted(message.body for message in read(rocketpy_server, target)) == sorted(sent.bodies)


def test_a_dry_run_sends_nothing_and_wrong_options_are_named(dead, rocketpy_server, capsys):
    group, topic, _ = dead
    given = ("--name-server", rocketpy_server.name_server, "--group", group)
    code, rows = spark_jobs.run(main, capsys, *given, "--resend", "--dry-run")
    assert (code, sum(row["messages"] for row in rows)) == (0, DEAD)
    assert len(read(rocketpy_server, topic)) == DEAD
    for wrong, code, text in [
        (("--rate", 5), 2, "--rate is valid only with --resend"),
        (("--group", "nobody"), 3, "no such group: nobody"),
        (("--resend", "--to", "nowhere"), 3, "nowhere"),
    ]:
        ended, printed = spark_jobs.run(main, capsys, *given, *wrong)
        assert ended == code
        assert text in printed


def test_a_group_that_gave_up_nothing_has_an_empty_report(spark, dead, rocketpy_server, capsys):
    content = fresh_name("content")
    with rocketpy_server.admin() as admin:
        admin.create_group(content)
    given = ("--name-server", rocketpy_server.name_server, "--group", content)
    none = {"kinds": [], "sample": [], "resent": None}
    assert spark_jobs.run(main, capsys, *given) == (0, none)
    none["resent"] = {"sent": 0, "sent_before": 0, "without_origin": 0, "rejected": 0, "rejections": []}
    assert spark_jobs.run(main, capsys, *given, "--resend") == (0, none)
    assert spark_jobs.run(main, capsys, *given, "--dry-run") == (0, [])
    assert main(list(given)) == 0
    assert capsys.readouterr().out == f"no dead letters of {content} at {rocketpy_server.name_server}\n"
    code, report = spark_jobs.run(main, capsys, *given, "--group", dead[0])
    assert (code, {row["group"] for row in report["kinds"]}) == (0, {dead[0]})

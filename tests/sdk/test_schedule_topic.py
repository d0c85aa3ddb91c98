"""The topic of schedules has one queue: others are refused, reported or ignored; members without it stand by."""

import logging
import re
from dataclasses import replace

import pytest
from test_schedule import HOUR, add, fired, hourly, lag, scheduler, stored, wait_for_firing, with_topic

import rocketpy
from rocketpy import schedule
from rocketpy.cli import app
from rocketpy.commandline.exits import ExitCode
from rocketpy.schedule import scheduler as acting
from rocketpy.schedule.journal import TOPIC, Journal
from rocketpy.schedule.ledger import Ledger, add_record
from rocketpy.schedule.times import times_of
from rocketpy.testing import PATIENCE_SECONDS
from waiting import wait_until

PATIENT = {"api_timeout": PATIENCE_SECONDS}


@pytest.fixture
def server(rocketpy_server_factory):
    return with_topic(rocketpy_server_factory())


def test_a_topic_of_several_queues_is_refused(server):
    with server.admin() as admin:
        admin.create_topic(TOPIC, queues=2)
    for call in (lambda: add(server, every=HOUR), lambda: stored(server), lambda: scheduler(server)):
        with pytest.raises(rocketpy.InvalidArgumentError, match="must have one queue at one broker, not 2"):
            call()


def test_the_hint_for_several_queues_keeps_the_schedules(server, capsys):
    first = add(server, every=HOUR).next_at
    with server.admin() as admin:
        admin.create_topic(TOPIC, queues=2)
    with pytest.raises(rocketpy.InvalidArgumentError, match="not 2") as refused:
        stored(server)
    (command,) = re.findall("`rocketpy (.*?)`", refused.value.hint)
    assert app.run([*command.split(), "--name-server", server.name_server]) == 0, capsys.readouterr().err
    assert stored(server)["report"].next_at == first


def test_a_running_scheduler_reports_a_topic_that_grew_and_continues_with_its_queue(server, monkeypatch, caplog):
    monkeypatch.setattr(acting, "CLOCK_SECONDS", 0.5)
    caplog.set_level(logging.INFO, "rocketpy")
    first = add(server, every=HOUR).next_at
    with scheduler(server), server.admin() as admin:
        wait_until(lambda: "this process fires 0 schedules" in caplog.text)
        admin.create_topic(TOPIC, queues=4)
        reported = f"topic {TOPIC} must have one queue at one broker, not 4; schedules fire until this process ends"
        wait_until(lambda: reported in caplog.text)
        assert f"`rocketpy topic create {TOPIC} --queues 1 --broker " in caplog.text
        server.advance(HOUR)
        with server.consumer("readers", "reports") as consumer:
            assert [message.keys[0] for message in consumer.poll(1, PATIENCE_SECONDS)] == hourly(first, [0])
    with pytest.raises(rocketpy.InvalidArgumentError, match="not 4"):
        scheduler(server)


def test_schedules_fire_while_no_name_server_answers(tmp_path, monkeypatch, caplog, rocketpy_settings):
    monkeypatch.setattr(acting, "CLOCK_SECONDS", 0.1)
    checks = lambda: caplog.text.count("cannot be checked, schedules still fire")  # noqa: E731
    with rocketpy.NameServer() as names:
        address = names.name_server
        with (
            rocketpy.Broker(tmp_path / "store", name_servers=address, settings=rocketpy_settings),
            rocketpy.Admin(address, **PATIENT) as admin,
        ):
            admin.create_topic("reports", queues=1)
            schedule.add("report", every=1, topic="reports", name_servers=address, **PATIENT)
            with (
                rocketpy.Consumer("readers", "reports", name_servers=address) as consumer,
                schedule.Scheduler(address, **PATIENT),
            ):
                assert consumer.poll(1, PATIENCE_SECONDS)
                names.close()
                wait_until(lambda: checks() > 1)
                consumer.poll(32, 0)
                assert consumer.poll(1, PATIENCE_SECONDS)
    assert "scheduler failed" not in caplog.text


def test_a_scheduler_ignores_records_in_other_queues_of_a_topic_that_grew(server, monkeypatch):
    first = add(server, every=HOUR).next_at
    with Journal(server.name_server, PATIENT) as journal, server.producer("strangers") as producer:
        queue = journal.made_queue()
        definition = journal.read(queue, Ledger()).entries["report"].definition
        sooner = replace(definition, times=times_of(None, HOUR // 2, "UTC"))
        journal.admin.create_topic(TOPIC, queues=2)
        other = rocketpy.MessageQueue(TOPIC, queue.broker_name, 1)
        producer.send(add_record(TOPIC, "stray", "1", sooner, replace=False), queue=other)
    monkeypatch.setattr(Journal, "queue", lambda journal: queue)  # the topic grows right after the check
    with scheduler(server):
        wait_until(lambda: not lag(server), "the records of both queues are read")
        server.advance(HOUR)
        wait_for_firing(server, first)
    assert fired(server) == hourly(first, [0])


@pytest.mark.parametrize("arguments", [[], ["--queues", "2"]])
def test_the_topic_command_refuses_several_queues_for_schedules(server, capsys, arguments):
    assert app.run(["topic", "create", TOPIC, *arguments, "--name-server", server.name_server]) == ExitCode.USAGE
    assert f"error: topic {TOPIC} must have one queue" in capsys.readouterr().err
    assert not stored(server)


def test_a_scheduler_without_the_queue_reports_standby_and_no_warning(server, caplog):
    caplog.set_level(logging.INFO, "rocketpy")

    def texts(part):
        return [record for record in caplog.records if part in record.getMessage()]

    with scheduler(server):
        wait_until(lambda: texts("this process fires 0 schedules"))
        with scheduler(server):
            wait_until(lambda: texts("member owns no queue: standby"))
    assert {record.levelname for record in texts("member owns no queue")} == {"INFO"}
    assert not texts("members outnumber queues")

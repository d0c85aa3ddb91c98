"""Schedules at a real broker, whose clock the tests advance."""

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

import rocketpy
from rocketpy import schedule
from rocketpy.schedule import ledger
from rocketpy.schedule import scheduler as acting
from rocketpy.schedule.journal import GROUP, TOPIC, Journal
from rocketpy.schedule.ledger import Tick, tick_record
from rocketpy.testing import PATIENCE_SECONDS, drain
from waiting import wait_until

HOUR = 3600
PATIENT = {"api_timeout": PATIENCE_SECONDS}


@pytest.fixture
def server(rocketpy_server_factory):
    """A server of its own: all schedulers of a cluster share one topic."""
    return with_topic(rocketpy_server_factory())


def with_topic(server):
    with server.admin() as admin:
        admin.create_topic("reports", queues=1)
    return server


def add(server, name="report", **given):
    servers = iter([server.name_server])  # several clients use what can be read once
    return schedule.add(name, **{"topic": "reports", **given}, name_servers=servers, **PATIENT)


def remove(server, name="report"):
    schedule.remove(name, name_servers=server.name_server, **PATIENT)


def stored(server):
    return {one.name: one for one in schedule.schedules(name_servers=server.name_server, **PATIENT)}


def scheduler(server):
    return schedule.Scheduler(server.name_server, **PATIENT)


def key(at, name="report"):
    return f"{name}@{at.strftime('%Y-%m-%dT%H:%M:%SZ')}"


def wait_for_firing(server, at, name="report"):
    wait_until(lambda: stored(server)[name].last_at == at, f"{name} fires for {at}")


def fired(server, topic="reports"):
    """Keys of all messages of a topic, in their order."""
    with server.consumer(rocketpy.testing.fresh_name("auditor"), topic, allow_missing_topic=True) as consumer:
        return [message.keys[0] for message in drain(consumer)]


def hourly(first, numbers, name="report"):
    return [key(first + timedelta(hours=n), name) for n in numbers]


def test_each_time_is_one_message_with_name_and_time_as_its_key(server):
    first = add(server, every=HOUR, body=b"daily", tag="PDF").next_at
    with scheduler(server), server.consumer("readers", "reports") as consumer:
        for n in range(2):
            server.advance(HOUR)
            wait_for_firing(server, first + timedelta(hours=n))
        messages = drain(consumer)
    assert [one.keys[0] for one in messages] == hourly(first, range(2))
    assert {(one.body, one.tag) for one in messages} == {(b"daily", "PDF")}
    assert messages[0].properties["rocketpySchedule"] == "report"
    assert int(messages[0].properties["rocketpyScheduledAt"]) == first.timestamp() * 1000


def test_a_cron_text_fires_at_the_local_time_of_its_zone(server):
    at = add(server, cron="0 3 * * *", timezone="Europe/Berlin").next_at
    assert at.astimezone(ZoneInfo("Europe/Berlin")).strftime("%H:%M") == "03:00"
    with scheduler(server):
        server.advance(24 * HOUR)
        wait_for_firing(server, at)
    assert fired(server) == [key(at)]


def lag(server):
    """Number of records that the schedulers have not read yet."""
    with server.admin() as admin:
        queues = admin.queues(TOPIC)
        return sum(admin.next_offset(one) - (admin.committed_offset(GROUP, one) or 0) for one in queues)


@pytest.mark.parametrize(("missed", "fires"), [("once", [0, 3, 4]), ("never", [0, 4])])
def test_missed_times_fire_once_or_never(server, missed, fires):
    first = add(server, every=HOUR, missed=missed).next_at
    with scheduler(server):
        server.advance(HOUR)
        wait_for_firing(server, first)
    server.advance(3.5 * HOUR)  # no scheduler runs
    with scheduler(server):
        wait_until(lambda: stored(server)["report"].next_at == first + timedelta(hours=4), "missed times are decided")
        server.advance(HOUR / 2)
        wait_for_firing(server, first + timedelta(hours=4))
    assert fired(server) == hourly(first, fires)


def test_a_time_beyond_the_maximum_delay_of_the_broker_is_reached_by_several_timers(rocketpy_server_factory):
    server = with_topic(rocketpy_server_factory(settings={"timerMaxDelaySec": 60}))
    first = add(server, every=HOUR).next_at
    with scheduler(server):
        for _ in range(2):
            before = records(server, "tick")
            server.advance(HOUR / 2)
            wait_until(lambda before=before: records(server, "tick") > before, "a timer comes")
        server.advance(60)
        wait_for_firing(server, first)
    assert fired(server) == [key(first)]
    assert records(server, "tick") >= 3


def records(server, tag):
    """Number of records with a tag in the topic of the schedules."""
    with server.admin() as admin:
        (queue,) = admin.queues(TOPIC)
        end = admin.max_offset(queue)
    with rocketpy.RangeReader(queue, 0, end, tags=tag, name_servers=server.name_server) as reader:
        return sum(len(messages) for messages in reader.messages())


def test_the_same_definition_again_changes_nothing(server):
    one = add(server, every=HOUR, body=b"a")
    assert add(server, every=timedelta(hours=1), body=b"a") == one
    assert add(server, every=HOUR, body=b"a", replace=True) == one
    assert records(server, "add") == 1


def test_two_definitions_under_one_name_are_an_error_that_shows_both(server):
    add(server, every=HOUR, body=b"first")
    with pytest.raises(rocketpy.ScheduleConflictError) as conflict:
        add(server, cron="0 3 * * *", timezone="Europe/Berlin", body=b"second")
    assert "every 1:00:00, topic reports, body b'first'" in str(conflict.value)
    assert "cron '0 3 * * *' in Europe/Berlin, topic reports, body b'second'" in str(conflict.value)
    assert stored(server)["report"].body == b"first"


def test_a_replaced_definition_fires_no_more_although_its_timer_waits(server):
    add(server, every=HOUR, body=b"first")
    with scheduler(server):
        wait_until(lambda: waiting_timers(server) == 1, "the timer waits")
        at = add(server, every=2 * HOUR, replace=True, body=b"second").next_at
        wait_until(lambda: waiting_timers(server) == 2, "the timer of the new definition waits")
        server.advance(2 * HOUR)
        wait_for_firing(server, at)
    assert fired(server) == [key(at)]


def waiting_timers(server):
    with server.admin() as admin:
        (broker,) = admin.brokers()
        return int(admin.broker_figures(broker.addresses[0])["timersWaiting"])


def test_a_removed_schedule_fires_no_more_although_its_timer_waits(server):
    add(server, every=HOUR)
    other = add(server, "other", every=HOUR).next_at
    with scheduler(server):
        wait_until(lambda: waiting_timers(server) == 2, "the timers wait")
        remove(server)
        server.advance(HOUR)
        wait_for_firing(server, other, "other")
    assert set(stored(server)) == {"other"}
    assert fired(server) == [key(other, "other")]
    with pytest.raises(rocketpy.ScheduleNotFoundError, match="no such schedule: report"):
        remove(server)


def test_of_several_that_add_at_the_same_time_the_first_definition_counts(server):
    add(server, "other", every=HOUR)  # the topic exists
    barrier, results = threading.Barrier(4), []

    def run(body):
        barrier.wait()
        try:
            results.append(add(server, every=HOUR, body=body).body)
        except rocketpy.ScheduleConflictError as error:
            results.append(str(error))

    threads = [threading.Thread(target=run, args=[b"%d" % (n % 2)]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    body = stored(server)["report"].body
    assert results.count(body) == 2
    assert sum(isinstance(one, str) for one in results) == 2


def test_effects_that_are_carried_out_twice_fire_once(server, monkeypatch):
    once = acting.Owner.act
    monkeypatch.setattr(acting.Owner, "act", lambda owner, effect: (once(owner, effect), once(owner, effect)))
    first = add(server, every=HOUR).next_at
    with scheduler(server):
        for n in range(2):
            server.advance(HOUR)
            wait_for_firing(server, first + timedelta(hours=n))
    assert fired(server) == hourly(first, range(2))


def test_processes_that_all_take_themselves_for_the_owner_fire_once(server, monkeypatch):
    def assigned(group, topic, **options):
        with server.admin() as admin:
            return rocketpy.Consumer.assign(group, admin.queues(topic), **options)

    monkeypatch.setattr(acting, "Consumer", assigned)
    first = add(server, every=HOUR).next_at
    with scheduler(server), scheduler(server):
        for n in range(2):
            server.advance(HOUR)
            wait_for_firing(server, first + timedelta(hours=n))
        wait_until(lambda: records(server, "fire") == 4, "both decided each time; the first decision counts")
    assert fired(server) == hourly(first, range(2))


def test_a_duplicate_of_a_timer_message_fires_nothing(server):
    first = add(server, every=HOUR).next_at
    with scheduler(server):
        server.advance(HOUR)
        wait_for_firing(server, first)
        with Journal(server.name_server, {}) as journal, server.producer("duplicates") as producer:
            queue = journal.made_queue()
            entry = journal.read(queue, acting.Ledger()).entries["report"]
            at_ms = int(first.timestamp() * 1000)
            producer.send(tick_record(TOPIC, entry, Tick(at_ms, at_ms)), queue=queue)
        server.advance(HOUR)
        wait_for_firing(server, first + timedelta(hours=1))
    assert fired(server) == hourly(first, range(2))
    assert records(server, "fire") == 2


def test_a_group_that_lost_its_offsets_fires_nothing_again(server):
    first = add(server, every=HOUR).next_at
    for n in range(2):
        with scheduler(server):
            server.advance(HOUR)
            wait_for_firing(server, first + timedelta(hours=n))
        with server.admin() as admin:
            admin.reset_offsets(GROUP, TOPIC, rocketpy.Start.EARLIEST, force=True)
    with scheduler(server):
        wait_until(lambda: not lag(server), "all records are read again")
    assert fired(server) == hourly(first, range(2))


def test_a_lost_timer_is_armed_again_when_a_scheduler_starts(server, monkeypatch):
    first = add(server, every=HOUR).next_at
    with monkeypatch.context() as patch:
        patch.setattr(acting.Owner, "act", lambda owner, effect: None)
        with scheduler(server):
            wait_until(lambda: not lag(server), "the definition is read")
    monkeypatch.setattr(ledger, "OVERDUE_MS", -2 * HOUR * 1000)
    with scheduler(server):
        server.advance(HOUR)
        wait_for_firing(server, first)


def test_schedules_survive_a_restart_of_the_broker(server):
    first = add(server, every=HOUR).next_at
    with scheduler(server):
        wait_until(lambda: waiting_timers(server) == 1, "the timer waits")
        server.stop()
        server.start()
        server.advance(HOUR)
        wait_for_firing(server, first)
        server.advance(HOUR)
        wait_for_firing(server, first + timedelta(hours=1))
    assert fired(server) == hourly(first, range(2))


def test_after_the_topic_of_the_schedules_was_deleted_they_can_be_added_again(server):
    add(server, every=HOUR)
    with scheduler(server):
        wait_until(lambda: waiting_timers(server) == 1, "the timer waits")
        with server.admin() as admin:
            admin.delete_topic(TOPIC)
        at = add(server, every=2 * HOUR).next_at
        assert set(stored(server)) == {"report"}
        server.advance(2 * HOUR)
        wait_for_firing(server, at)
    assert fired(server) == [key(at)]


def test_a_firing_waits_for_its_topic_and_the_list_shows_the_error(rocketpy_server_factory):
    server = with_topic(rocketpy_server_factory(settings={"autoCreateTopicEnable": False}))
    first = add(server, every=HOUR, topic="later").next_at
    other = add(server, "other", every=HOUR).next_at
    with scheduler(server):
        server.advance(HOUR)
        wait_for_firing(server, other, "other")
        server.advance(10)
        wait_until(lambda: "later" in (stored(server)["report"].error or ""), "the error is stored")
        with server.admin() as admin:
            admin.create_topic("later", queues=1)
        server.advance(HOUR / 2)
        wait_for_firing(server, first)
    assert fired(server, "later") == [key(first)]
    assert stored(server)["report"].error is None


def test_a_timer_that_the_broker_refuses_is_shown_and_the_other_schedules_fire(server, monkeypatch):
    monkeypatch.setattr(Journal, "hop_ms", lambda *_: 10 * 24 * HOUR * 1000)  # the limit was lowered meanwhile
    add(server, "far", every=9 * 24 * HOUR)
    first = add(server, every=HOUR).next_at
    with scheduler(server):
        wait_until(lambda: "timerMaxDelaySec" in (stored(server)["far"].error or ""), "the error is stored")
        server.advance(HOUR)
        wait_for_firing(server, first)


BAD_PARTS = [
    {"times": {"cron": "bad * * * *", "every_seconds": None}},
    {"times": {"cron": "0 3 * * *", "every_seconds": None, "timezone": "Mars/Olympus"}},
    {"times": {"every_seconds": 0}},
    {"times": {"every_seconds": 1.5}},
    {"topic": 5},
    {"missed": "twice"},
]


def test_a_record_that_nobody_can_read_is_skipped(server):
    first = add(server, every=HOUR).next_at
    with server.producer("strangers") as producer:
        for tag, body in [("add", b"{"), ("tick", b'{"name": "report"}'), ("fire", b"7"), (None, b"text")]:
            producer.send(rocketpy.Message(TOPIC, body, tag=tag))
        for part in BAD_PARTS:
            times = {"cron": None, "every_seconds": 60, "timezone": "UTC", **part.get("times", {})}
            given = {"topic": "reports", "body": "eA==", "tag": None, "missed": "once", **part, "times": times}
            record = {"name": "bad", "id": "bad", "definition": given, "replace": False}
            producer.send(rocketpy.Message(TOPIC, json.dumps(record).encode(), tag="add"))
    with scheduler(server):
        server.advance(HOUR)
        wait_for_firing(server, first)


@pytest.mark.parametrize("ahead", [HOUR, 10 * 24 * HOUR], ids=["an hour", "beyond the limit of timers"])
def test_schedules_continue_after_the_clock_of_the_broker_was_set_back(tmp_path, caplog, ahead):
    with rocketpy.testing.PatientServer(tmp_path / "store") as server:
        with_topic(server)
        add(server, "good", every=2)
        with scheduler(server):
            server.advance(ahead)
            wait_until(lambda: stored(server)["good"].last_at, "an interval fires ahead")
        cron = add(server, "cron", cron="* * * * *").next_at
        add(server, "ahead", every=2)
    with rocketpy.testing.PatientServer(tmp_path / "store") as server, scheduler(server):
        now = datetime.now(UTC)
        assert now < cron - timedelta(minutes=30)
        for name in ("good", "ahead"):
            wait_until(lambda name=name: is_between(stored(server)[name].last_at, now, cron), f"{name} continues")
        wait_until(lambda: stored(server)["cron"].next_at < now + timedelta(minutes=30), "the cron text continues")
        assert stored(server)["ahead"].error is None
    assert "clock of the broker was set back: schedule good continues at" in caplog.text


def is_between(at, first, last):
    return at is not None and first <= at < last


def test_in_asyncio_the_event_loop_runs_while_a_scheduler_closes(server):
    first = add(server, every=HOUR).next_at

    async def main():
        async with schedule.Scheduler(server.name_server, **PATIENT):
            server.advance(HOUR)
            await asyncio.to_thread(wait_for_firing, server, first)
            running = asyncio.create_task(asyncio.sleep(0))
        assert running.done()  # a close that blocks the loop leaves it pending

    asyncio.run(main())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"name": "a b"}, "not a name of a schedule: 'a b'"),
        ({"missed": "twice"}, "missed must be 'once' or 'never', not 'twice'"),
        ({"body": b"x" * 65_537}, "body of a schedule exceeds 65536 bytes: 65537"),
        ({"topic": "a/b"}, "topic"),
    ],
)
def test_wrong_definitions_are_named(given, text):
    with pytest.raises(rocketpy.InvalidArgumentError, match=text):
        schedule.add(**{"name": "report", "topic": "reports", "every": HOUR, **given}, name_servers="127.0.0.1:1")


def test_without_the_parser_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)
    with pytest.raises(rocketpy.RocketPyError, match="cronsim is not installed") as missing:
        schedule.add("report", cron="0 3 * * *", topic="reports", name_servers="127.0.0.1:1")
    assert missing.value.hint == 'pip install "rocketpy-mq[schedule]"'


def test_the_first_time_of_an_interval_is_one_interval_from_now(server):
    before = datetime.now(UTC)
    assert timedelta(0) <= add(server, every=HOUR).next_at - before - timedelta(hours=1) < timedelta(minutes=5)

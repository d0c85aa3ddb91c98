"""`exactly_once`: rows are half messages until the driver has recorded its decision. Tasks and drivers without Spark.

Shows that nothing of an undecided batch is seen, and that a driver that ends at any point leaves what a repetition, or
the answer to a broker's question, brings to the same end. Kills under Spark are in `test_sink_kills.py`.
"""

import logging
import shlex
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

import rocketpy
from rocketpy.errors import InvalidArgumentError, NotSupportedError, TopicNotFoundError, TransactionOverError
from rocketpy.spark.options import OptionError
from rocketpy.spark.sink import client as sink_client
from rocketpy.spark.sink import commit as sink_commit
from rocketpy.spark.sink import progress as sink_progress
from rocketpy.spark.sink.answers import Answers
from rocketpy.spark.sink.commit import finish, give_up
from rocketpy.spark.sink.halves import roll_back_halves
from rocketpy.spark.sink.options import DECISION_TOPIC, parse_sink_options
from rocketpy.spark.sink.progress import Progress
from rocketpy.spark.sink.rows import Place, WriteError
from rocketpy.spark.sink.writers import TaskSink, batch_writer
from rocketpy.testing import drain, fresh_name
from waiting import wait_until

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
SOON = {"transactionTimeOut": 200, "transactionCheckInterval": 200}


class Sink:
    """Runs of one query, each with a client of its own as a process has."""

    def __init__(self, server, *, decisions=None):
        self.server, self.topic = server, fresh_name("once")
        topic = decisions or fresh_name("decisions")
        with server.admin() as admin:
            admin.create_topic(self.topic, queues=2)
            admin.create_topic(topic, queues=1)
        self.given = {"name_server": server.name_server, "topic": self.topic}
        if decisions is None:
            self.given["progress_topic"] = topic
        self.turn("on")
        self.write = fresh_name("query")

    def turn(self, exactly_once, **options):
        """Starts the query again, with `exactly_once` on or off."""
        self.new_process()
        self.options = parse_sink_options({**self.given, "exactlyOnce": str(exactly_once == "on"), **options})

    def new_process(self):
        for client in sink_client._clients.values():
            client.close()
        sink_client._clients.clear()

    def client(self):
        return sink_client.sink_client(self.options)

    def task(self, partition, numbers, batch=0):
        bodies = [b"%d" % number for number in numbers]
        keys = [str(number % 3) for number in numbers]
        columns = [pa.array(bodies, pa.binary()), pa.array(keys)]
        batches = iter([pa.record_batch(columns, names=["body", "order_key"])])
        return TaskSink(self.options, Place(self.write, batch, partition), 0, {}).write(batches)

    def tasks(self, batch=0):
        return [self.task(partition, range(partition * 100, partition * 100 + 100), batch) for partition in (0, 1)]

    def progress(self):
        return Progress(self.client())

    def fate(self):
        return self.progress().fate(self.write, 0)

    def halves(self, written):
        """The half messages of a task."""
        records = self.progress().halves(self.write, 0, self.fate(), [written.attempt])
        return [half for halves in records for half in halves]

    def record_the_decision(self, written):
        """As a driver that ends right behind it."""
        self.progress().decide(self.write, 0, {one.attempt: one.halves for one in written})

    def answered(self):
        """What brokers hear of all half messages of the query when they ask."""
        assert self.client().transactions.ends_once(self.topic)
        answers = Answers(self.client())
        with self.server.admin() as admin:
            (halves,) = admin.queues(HALF_TOPIC)
            end = admin.next_offset(halves)
        with rocketpy.RangeReader(halves, 0, end, name_servers=self.server.name_server) as reader:
            asked = [message for messages in reader.messages() for message in messages]  # those of other tests too
        mine = [message for message in asked if self.write in message.properties.get("ROCKETPY_ROW", "")]
        return Counter(answers(message) for message in mine)

    def seen(self):
        with self.server.consumer(fresh_name("readers"), self.topic) as consumer:
            return [(message.order_key, int(message.body)) for message in drain(consumer)]

    def stored(self):
        with self.server.admin() as admin:
            return sum(admin.next_offset(queue) for queue in admin.queues(self.topic))


@pytest.fixture
def sink(rocketpy_server):
    made = Sink(rocketpy_server)
    yield made
    made.new_process()


def each_once(seen):
    assert Counter(number for _, number in seen) == dict.fromkeys(range(200), 1)


def each_once_in_order(seen):
    each_once(seen)
    for partition in (range(100), range(100, 200)):
        for key in "012":
            numbers = [number for order_key, number in seen if order_key == key and number in partition]
            assert numbers == sorted(numbers), "rows of a key keep their order"


def test_rows_are_there_once_the_batch_is_committed_and_a_repetition_adds_none(sink):
    written = sink.tasks()
    assert sink.stored() == 0
    finish(sink.options, written)
    each_once_in_order(sink.seen())
    sink.new_process()
    again = sink.tasks()
    assert [(one.sent, one.skipped) for one in again] == [(0, 100)] * 2
    finish(sink.options, again)
    each_once_in_order(sink.seen())


def test_attempts_that_no_decision_names_are_never_seen(sink):
    sink.tasks()  # a driver that ends before its decision
    sink.new_process()
    lost = sink.task(0, range(100))  # a task whose answer never came
    written = sink.tasks()
    give_up(sink.options, [lost, None])
    for half in sink.halves(lost):
        with pytest.raises(TransactionOverError, match="it was rolled back"):
            sink.client().transactions.resume(half).commit()
    finish(sink.options, written)
    each_once_in_order(sink.seen())
    assert sink.answered() == {rocketpy.Decision.COMMIT: 200, rocketpy.Decision.ROLLBACK: 300}


@pytest.mark.parametrize("committed", [0, 70])
def test_a_driver_that_ends_between_decision_and_commits_leaves_them_to_the_repetition(sink, committed):
    written = sink.tasks()
    sink.record_the_decision(written)
    for half in sink.halves(written[0])[:committed]:
        sink.client().transactions.resume(half).commit()
    sink.new_process()
    again = sink.task(0, range(200))  # on another machine a batch may have other partitions
    assert (again.sent, again.skipped, again.halves) == (0, 200, 0)
    assert sink.stored() == committed
    finish(sink.options, [again])
    each_once_in_order(sink.seen())
    assert [one.sent + one.skipped for one in sink.tasks()] == [100, 100]
    finish(sink.options, sink.tasks())
    each_once_in_order(sink.seen())


def test_a_repetition_without_rows_commits_what_was_decided(sink):
    sink.record_the_decision(sink.tasks())
    sink.new_process()
    finish(sink.options, [sink.task(0, [])])
    each_once_in_order(sink.seen())
    finish(sink.options, [sink.task(0, [], batch=1)])
    fate = sink.progress().fate(sink.write, 1)
    assert (fate.attempts, fate.decided_at) == (None, None), "a batch that never had rows leaves no record"


@pytest.fixture(params=[None, DECISION_TOPIC], ids=["one progress topic", "the default ones"])
def turning(rocketpy_server, request):
    made = Sink(rocketpy_server, decisions=request.param)
    yield made
    made.new_process()


def sent_at_once(sink, batch):
    """Writes a batch, and returns how many rows were there before its commit."""
    before = sink.stored()
    written = sink.tasks(batch)
    at_once = sink.stored() - before
    finish(sink.options, written)
    assert sink.stored() == before + 200
    return at_once


def test_a_batch_that_was_begun_with_exactly_once_is_finished_with_it(turning):
    once, first = turning.options, turning.tasks()
    turning.turn("off")
    again = turning.tasks()
    assert turning.stored() == 0
    finish(turning.options, again)
    with pytest.raises(WriteError, match="decided by another run"):
        finish(once, first)  # of a driver that was taken for dead
    each_once_in_order(turning.seen())
    assert sent_at_once(turning, batch=1) == 200


@pytest.mark.parametrize("rows", [range(200), []], ids=["its rows", "no row"])
def test_a_batch_that_was_decided_with_exactly_once_is_committed_without(turning, rows):
    written = turning.tasks()
    turning.record_the_decision(written)
    for half in turning.halves(written[0])[:70]:
        turning.client().transactions.resume(half).commit()
    turning.turn("off")
    again = turning.task(0, rows)
    assert (again.sent, again.skipped, turning.stored()) == (0, len(rows), 70)
    finish(turning.options, [again])
    each_once_in_order(turning.seen())


def test_a_batch_that_was_begun_without_exactly_once_is_finished_without(turning):
    turning.turn("off")
    turning.task(0, range(100))  # the driver ends before the task of the other partition
    turning.turn("on")
    again = turning.tasks()
    assert [(one.sent, one.skipped) for one in again] == [(0, 100), (100, 0)]
    finish(turning.options, again)
    each_once_in_order(turning.seen())
    assert sent_at_once(turning, batch=1) == 0


@pytest.mark.parametrize(("first", "then"), [("on", "off"), ("off", "on")])
def test_a_batch_that_is_done_is_not_written_with_the_other_setting(turning, first, then):
    turning.turn(first)
    finish(turning.options, turning.tasks())
    turning.turn(then)
    again = turning.tasks()
    assert [(one.sent, one.skipped) for one in again] == [(0, 100)] * 2
    finish(turning.options, again)
    each_once_in_order(turning.seen())


def test_exactly_once_is_turned_on_and_off_again_by_the_same_processes(turning):
    """What a process knows of the records that it looked through must not hide those that came since."""
    for batch, setting in enumerate(["off", "on", "off", "on", "off"]):
        options = parse_sink_options({**turning.given, "exactlyOnce": str(setting == "on")})
        if batch:  # begun with the setting before
            turning.task(0, range(100), batch)
        turning.options = options
        finish(options, turning.tasks(batch))
    assert Counter(number for _, number in turning.seen()) == dict.fromkeys(range(200), 5)


def test_rows_that_wait_are_refused_in_a_batch_that_was_begun_with_exactly_once(sink):
    sink.tasks()
    sink.turn("off", delay="1s")
    with pytest.raises(WriteError, match="begun with exactly_once, which does not support delay") as refused:
        sink.tasks()
    assert "without delay" in refused.value.hint


def test_tasks_of_one_batch_with_both_settings_are_refused(sink):
    written = sink.tasks()
    other = replace(sink.options, exactly_once=False)
    with pytest.raises(WriteError, match="two runs began"):
        finish(sink.options, [written[0], replace(written[1], begun_with=other)])
    assert sink.stored() == 0


def test_the_first_decision_on_a_batch_counts(sink):
    first, second = sink.tasks(), sink.tasks()
    sink.record_the_decision(first)
    with pytest.raises(WriteError, match="decided by another run"):
        finish(sink.options, second)
    give_up(sink.options, second)
    give_up(sink.options, first)  # Spark does so after a failed commit: what is decided stays
    finish(sink.options, sink.tasks())
    each_once_in_order(sink.seen())


def test_a_decision_that_is_stored_after_its_driver_gave_up_still_counts(sink):
    written = sink.tasks()
    give_up(sink.options, written)  # the commit failed: all tasks are done, and no decision is there yet
    sink.record_the_decision(written)
    assert [one.sent for one in sink.tasks()] == [0, 0]
    finish(sink.options, sink.tasks())
    each_once_in_order(sink.seen())


@pytest.mark.parametrize("setting", ["on", "off"])
def test_a_late_record_of_a_driver_taken_for_dead_hides_no_decision(sink, setting):
    sink.turn(setting)
    finish(sink.options, sink.tasks())
    sink.turn("on")
    written = sink.tasks(batch=1)
    progress = sink.progress()
    attempts = {one.attempt: one.halves for one in written}
    progress.decide(sink.write, 1, attempts)
    progress.finish(sink.write, 0, sink.fate().decided_at)
    assert progress.fate(sink.write, 1).attempts == attempts
    finish(sink.options, sink.tasks(batch=1))
    assert Counter(number for _, number in sink.seen()) == dict.fromkeys(range(200), 2)


@pytest.mark.parametrize("setting", ["on", "off"])
def test_a_decision_that_comes_after_its_batch_was_over_does_not_count(sink, setting):
    zombie = sink.tasks()
    if setting == "on":  # the batch had no rows when it was repeated, and the next one has
        finish(sink.options, sink.tasks(batch=1))
    else:
        sink.progress().finish(sink.write, 0)  # as without exactly_once
    sink.record_the_decision(zombie)
    assert (sink.fate().attempts, sink.fate().decided_at) == ({}, None)
    with pytest.raises(WriteError, match="decided by another run"):
        finish(sink.options, zombie)
    decided = 200 if setting == "on" else 0
    assert sink.answered() == Counter({rocketpy.Decision.COMMIT: decided, rocketpy.Decision.ROLLBACK: 200})
    assert sink.stored() == decided


def test_half_messages_are_committed_a_record_at_a_time(sink, monkeypatch):
    monkeypatch.setattr(sink_progress, "HALVES_IN_A_RECORD", 30)
    read, sizes, record, commit = [], [], Progress._record, sink_commit.commit_halves

    def counted(client, halves):
        sizes.append(len(halves))
        assert read.count("halves") == len(sizes), "a record is read once those before it are committed"
        return commit(client, halves)

    monkeypatch.setattr(Progress, "_record", lambda self, message: read.append(message.tag) or record(self, message))
    monkeypatch.setattr(sink_commit, "commit_halves", counted)
    written = sink.tasks()
    sink.progress().note_halves(Place(sink.write, 0, 0), written[0].attempt, sink.halves(written[0]))  # stored twice
    read.clear()
    finish(sink.options, written)
    assert sizes == [30, 30, 30, 10] * 2
    each_once_in_order(sink.seen())


def test_half_messages_of_several_queues_are_rolled_back_at_the_same_time(sink, monkeypatch):
    written, both, met, resume = sink.tasks(), threading.Barrier(2), set(), rocketpy.TransactionProducer.resume
    halves = [half for one in written for half in sink.halves(one)]
    assert len({half.queue for half in halves}) == 2

    def meet(producer, receipt):
        if receipt.queue not in met:
            met.add(receipt.queue)
            both.wait(300)
        return resume(producer, receipt)

    monkeypatch.setattr(rocketpy.TransactionProducer, "resume", meet)
    roll_back_halves(sink.client(), halves)
    for half in halves:
        with pytest.raises(TransactionOverError, match="it was rolled back"):
            sink.client().transactions.resume(half).commit()


def test_half_messages_of_another_group_are_not_taken_for_lost(sink):
    written = sink.tasks()
    own = sink.options
    sink.turn("on", producer_group=fresh_name("others"), retry_timeout="0s")
    with pytest.raises(rocketpy.RefusedError, match="belongs to another group"):
        finish(sink.options, written)
    sink.new_process()
    sink.options = own
    assert not sink.fate().is_lossy
    finish(own, sink.tasks())
    each_once_in_order(sink.seen())


def test_where_half_messages_are_is_read_only_to_end_them(sink, monkeypatch):
    written, read, record = sink.tasks(), [], Progress._record
    monkeypatch.setattr(Progress, "_record", lambda self, message: read.append(message.tag) or record(self, message))
    assert sink.answered() == {rocketpy.Decision.UNKNOWN: 200}
    assert set(read) == {"begun"}
    sink.record_the_decision(written)
    read.clear()
    assert sink.progress().earlier(Place(sink.write, 0, 1), {}).is_decided
    assert read == ["decided", "begun", "begun"]
    assert len(sink.halves(written[1])) == 100
    assert read[3:] == ["decided", "begun", "begun", "halves", "halves"]


def test_brokers_learn_of_a_decision_when_they_ask_and_no_query_runs(rocketpy_server_factory, tmp_path):
    server = rocketpy_server_factory(tmp_path / "asking", settings=SOON)
    sink = Sink(server)
    written = sink.tasks()
    sink.record_the_decision(written)
    sink.new_process()
    sink.client().transactions  # noqa: B018  # a process of the sink that is there, and does nothing
    wait_until(lambda: sink.stored() == 200, "the brokers ask")
    each_once(sink.seen())
    finish(sink.options, sink.tasks())
    each_once(sink.seen())
    sink.new_process()


def test_rows_that_a_broker_gave_up_before_the_decision_are_sent_again(rocketpy_server_factory, tmp_path):
    server = rocketpy_server_factory(tmp_path / "strict", settings={**SOON, "transactionCheckMax": 1})
    sink = Sink(server)
    written = sink.tasks()
    wait_until(lambda: given_up(server) == 200, "the broker gives up")
    with pytest.raises(WriteError, match="gave 200 rows") as failed:
        finish(sink.options, written)
    assert "transactionCheckMax" in failed.value.hint
    assert sink.stored() == 0
    with pytest.raises(WriteError, match="lost rows meanwhile"):
        finish(sink.options, written)  # of tasks that did not know of the loss
    sink.new_process()
    again = sink.tasks()
    assert [one.sent for one in again] == [100, 100]
    sink.new_process()  # a driver that ends before it records that the batch is done
    again = sink.tasks()
    assert [(one.sent, one.skipped) for one in again] == [(0, 100)] * 2
    finish(sink.options, again)
    each_once(sink.seen())
    sink.new_process()


def test_half_messages_of_a_batch_with_a_recorded_loss_are_rolled_back(sink):
    """Its tasks send what is missing anew: a half message that a broker still asks for would come twice."""
    sink.record_the_decision(sink.tasks())
    sink.progress().note_loss(sink.write, 0, 200)
    assert sink.answered() == {rocketpy.Decision.ROLLBACK: 200}
    again = sink.tasks()
    assert [one.sent for one in again] == [100, 100]
    finish(sink.options, again)
    each_once(sink.seen())


def given_up(server):
    topics = rocketpy.StoreReader(server.path).topics()
    return sum(queue.max_offset for topic in topics if topic.name == GIVEN_UP for queue in topic.queues)


def test_a_missing_topic_of_decisions_fails_at_once_and_names_the_command_that_creates_it(sink, caplog):
    missing = fresh_name("missing")
    sink.turn("on", progress_topic=missing, retry_timeout="5s")
    with pytest.raises(TopicNotFoundError, match=missing) as refused:
        sink.task(0, range(100))
    tries = [record for record in caplog.records if record.name == "rocketpy.spark"]
    assert (refused.value.retryable, tries) == (False, [])
    program, *arguments = shlex.split(refused.value.hint.split("`")[1])
    assert program == "rocketpy"
    subprocess.run([sys.executable, "-m", "rocketpy", *arguments], check=True, timeout=300)
    finish(sink.options, sink.tasks())
    each_once(sink.seen())


class WhenTriedAgain(logging.Handler):
    """Does something once a call fails and is to be tried again."""

    def __init__(self, action):
        super().__init__()
        self.actions = [action]

    def emit(self, record):
        if "retrying" in record.getMessage() and self.actions:
            self.actions.pop()()


def test_a_topic_of_decisions_that_was_there_is_waited_for(sink):
    sink.tasks()
    log, topic = logging.getLogger("rocketpy.spark"), sink.options.progress_topic
    with sink.server.admin() as admin:
        admin.delete_topic(topic)
        handler = WhenTriedAgain(lambda: admin.create_topic(topic, queues=1))
        log.addHandler(handler)
        try:
            assert sink.task(0, range(100), batch=1).sent == 100
        finally:
            log.removeHandler(handler)
    assert handler.actions == []


def test_what_does_not_go_with_it_is_refused_by_name(sink, rocketpy_server, rocketpy_server_factory, tmp_path):
    from pyspark.sql.types import StructType

    body = StructType().add("body", "binary")
    options = {"name_server": rocketpy_server.name_server, "topic": sink.topic, "exactlyOnce": "true"}
    with pytest.raises(OptionError, match="needs a progress_topic"):
        batch_writer({**options, "progress_topic": ""}, body, False)
    with pytest.raises(InvalidArgumentError, match="needs a write_id"):
        batch_writer(options, body, False)
    with pytest.raises(OptionError, match="delay is not supported with exactly_once"):
        batch_writer({**options, "delay": "3s"}, body, False)
    with pytest.raises(NotSupportedError, match="has 2 queues") as refused:
        batch_writer({**options, "progress_topic": sink.topic, "write_id": "w"}, body, False)
    assert "one queue at one broker" in refused.value.hint
    off = Sink(rocketpy_server_factory(tmp_path / "off", settings={"rejectTransactionMessage": True}))
    with pytest.raises(NotSupportedError, match="does not accept transactions"):
        off.tasks()
    assert off.stored() == 0

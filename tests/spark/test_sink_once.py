"""`exactly_once`: rows are half messages until the driver has recorded its decision. Tasks and drivers without Spark.

Shows that nothing of an undecided batch is seen, and that a driver that ends at any point leaves what a repetition, or
the answer to a broker's question, brings to the same end. Kills under Spark are in `test_sink_kills.py`.
"""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

import rocketpy
from rocketpy.errors import InvalidArgumentError, NotSupportedError, TopicNotFoundError
from rocketpy.spark import sink_client, sink_progress
from rocketpy.spark.options import OptionError
from rocketpy.spark.sink import TaskSink, batch_writer, finish, give_up
from rocketpy.spark.sink_options import parse_sink_options
from rocketpy.spark.sink_progress import Progress
from rocketpy.spark.sink_rows import Place, WriteError
from rocketpy.testing import drain, fresh_name
from waiting import wait_until

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
SOON = {"transactionTimeOut": 200, "transactionCheckInterval": 200}


class Sink:
    """Runs of one query, each with a client of its own as a process has."""

    def __init__(self, server, **options):
        self.server, self.topic, decisions = server, fresh_name("once"), fresh_name("decisions")
        with server.admin() as admin:
            admin.create_topic(self.topic, queues=2)
            admin.create_topic(decisions, queues=1)
        given = {"name_server": server.name_server, "topic": self.topic, "progress_topic": decisions}
        self.options = parse_sink_options({**given, "exactlyOnce": "true", **options})
        self.write = fresh_name("query")

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
        return Progress(self.client(), self.options.progress_topic)

    def fate(self):
        return self.progress().fate(self.write, 0)

    def halves(self, written):
        """The half messages of a task."""
        return self.progress().halves(self.write, 0, self.fate(), [written.attempt])

    def record_the_decision(self, written):
        """As a driver that ends right behind it."""
        self.progress().decide(self.write, 0, {one.attempt: one.halves for one in written})

    def answered(self):
        """What brokers hear of all half messages of the query when they ask."""
        assert self.client().transactions.ends_once(self.topic)
        answers = sink_progress.Answers(self.client())
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
        with pytest.raises(rocketpy.RefusedError, match="it was rolled back"):
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
    fate = Progress(sink.client(), sink.options.progress_topic).fate(sink.write, 1)
    assert (fate.attempts, fate.decided_at) == (None, None), "a batch that never had rows leaves no record"


def test_a_decided_batch_is_not_taken_for_written_without_exactly_once(sink):
    sink.record_the_decision(sink.tasks())
    sink.new_process()
    once, sink.options = sink.options, replace(sink.options, exactly_once=False)
    with pytest.raises(WriteError, match="decided and not committed"):
        sink.task(0, range(100))
    sink.options = once
    finish(once, sink.tasks())
    sink.options = replace(once, exactly_once=False)
    finish(sink.options, sink.tasks())
    each_once_in_order(sink.seen())
    sink.new_process()


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


def test_a_late_record_of_a_driver_taken_for_dead_hides_no_decision(sink):
    finish(sink.options, sink.tasks())
    written = sink.tasks(batch=1)
    progress = sink.progress()
    attempts = {one.attempt: one.halves for one in written}
    progress.decide(sink.write, 1, attempts)
    progress.finish(sink.write, 0, sink.fate().decided_at)
    assert progress.fate(sink.write, 1).attempts == attempts
    finish(sink.options, sink.tasks(batch=1))
    assert Counter(number for _, number in sink.seen()) == dict.fromkeys(range(200), 2)


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


def test_what_does_not_go_with_it_is_refused_by_name(sink, rocketpy_server, rocketpy_server_factory, tmp_path):
    from pyspark.sql.types import StructType

    body = StructType().add("body", "binary")
    options = {"name_server": rocketpy_server.name_server, "topic": sink.topic, "exactlyOnce": "true"}
    with pytest.raises(OptionError, match="needs a progress_topic"):
        batch_writer({**options, "progress_topic": ""}, body, False)
    with pytest.raises(InvalidArgumentError, match="needs a write_id"):
        batch_writer(options, body, False)
    with pytest.raises(OptionError, match="delay does not go with exactly_once"):
        batch_writer({**options, "delay": "3s"}, body, False)
    for topic, error, said in (
        (fresh_name("missing"), TopicNotFoundError, "one queue at one broker"),
        (sink.topic, NotSupportedError, "one queue at one broker"),
    ):
        other = parse_sink_options({**options, "progress_topic": topic, "retry_timeout": "0s"})
        with pytest.raises(error) as refused:
            Progress(sink_client.sink_client(other), topic).ends()
        assert said in refused.value.hint
    off = Sink(rocketpy_server_factory(tmp_path / "off", settings={"rejectTransactionMessage": True}))
    with pytest.raises(NotSupportedError, match="takes no transactions"):
        off.tasks()
    assert off.stored() == 0

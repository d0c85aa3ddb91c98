"""A forked child: the parent's objects raise a clear error there and never hang, and keep working in the parent.

Each test forks in a process of its own, so that the test runner is not what is forked. A child that hangs is killed
after a few minutes and its test fails.
"""

import pytest

PARENT = """
import gc, os, signal, sys, tempfile, time, warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork")  # which is the point here
import rocketpy
from rocketpy import Message, Start
from rocketpy.testing import PatientServer

def in_child(work):
    "Runs work in a forked child that ends as Python ends; gives its exit code."
    pid = os.fork()
    if pid == 0:
        signal.alarm(200)
        work()
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)

def refused(use):
    try:
        use()
    except rocketpy.ForkedError as error:
        assert "fork" in str(error) and str(os.getpid()) in str(error), error
        assert error.hint and not error.retryable
    else:
        raise AssertionError("it was not refused")

store = sys.argv[1]
server = PatientServer(store, settings={"mappedFileSizeCommitLog": 1 << 24}).start()
name_server = server.name_server
admin = server.admin()
for name in ("topic", "other", "ids", "busy", "pool"):
    admin.create_topic(name, queues=2)
producer = server.producer("ingest")
queue = producer.send(Message("topic", b"before")).queue
consumer = server.consumer("report", "topic", start=Start.EARLIEST)
assert consumer.poll(timeout=60)
"""

END = """
producer.send(Message("topic", b"after"))
assert [message.body for message in consumer.poll(timeout=60)] == [b"after"]
consumer.commit()
consumer.close(); producer.close(); admin.close(); server.stop()
print("parent continues")
"""


@pytest.fixture
def run(child, tmp_path):
    """Runs source between the making of the parent's objects and a last use of them."""

    def run(source):
        ended = child(PARENT + source + END, str(tmp_path / "store"))
        assert ended.stdout == "parent continues\n", ended.stdout + ended.stderr
        assert (ended.returncode, ended.stderr) == (0, "")

    return run


@pytest.fixture
def run_in_child(run):
    """Runs the body of a function in a forked child of the parent."""
    return lambda body: run(f"\ndef work():\n{body}\nassert in_child(work) == 0\n")


def test_every_use_in_the_child_is_refused(run_in_child):
    run_in_child(
        """
    for use in (
        lambda: producer.send(Message("topic", b"text")),
        lambda: producer.send_many([Message("topic", b"text")]),
        lambda: producer.submit(Message("topic", b"text")),
        lambda: producer.send_oneway(Message("topic", b"text")),
        lambda: producer.flush(1),
        lambda: consumer.poll(timeout=60),
        lambda: next(consumer),
        lambda: next(consumer.batches()),
        lambda: consumer.fetch_columns(),
        consumer.commit,
        consumer.positions,
        consumer.assignment,
        lambda: consumer.seek(queue, 0),
        admin.topics,
        lambda: server.name_server,
        lambda: server.producer("late"),
        server.check,
        server.stop,
    ):
        refused(use)
"""
    )


def test_waits_for_futures_of_the_parent_are_refused(run):
    run(
        """
with server.producer("late", linger=60) as late:
    future = late.submit(Message("other", b"in flight"))
    def work():
        for use in (future.result, lambda: future.result(60), future.exception):
            refused(use)
        assert not future.done()
    assert in_child(work) == 0
    late.flush(60)
    assert future.result(60).queue.topic == "other"
"""
    )


def test_a_transaction_is_ended_by_the_process_that_began_it(run):
    run(
        """
options = {"name_servers": [name_server], "send_timeout": 60}
with rocketpy.TransactionProducer("payers", lambda message: rocketpy.Decision.UNKNOWN, **options) as payers:
    paid, other = payers.transaction(Message("other", b"paid")), payers.transaction(Message("other", b"other"))
    def work():
        for use in (paid.rollback, other.commit, lambda: payers.transaction(Message("other", b"text"))):
            refused(use)
        payers.close()
    assert in_child(work) == 0
    paid.commit()
    other.rollback()
with server.consumer("payees", "other", start=Start.EARLIEST) as payees:
    assert [message.body for message in payees.poll(timeout=60)] == [b"paid"]
"""
    )


def test_closing_in_the_child_leaves_the_parents_alone(run_in_child):
    run_in_child(
        """
    consumer.close()
    producer.close()
    admin.close()
    server.close()
"""
    )


def test_closing_clients_of_a_loop_in_the_child_leaves_the_parents_alone(run):
    """Parent and child share what the loop waits with: what the child stops watching, the parent no longer sees."""
    run(
        """
import asyncio

async def main():
    options = {"name_servers": [name_server], "send_timeout": 60}
    async with rocketpy.AsyncProducer("loop", **options) as mine:
        await mine.send(Message("other", b"before"))

        def work():
            try:
                mine.close().send(None)
            except StopIteration:
                pass

        assert in_child(work) == 0
        await asyncio.wait_for(mine.send(Message("other", b"after")), 60)

asyncio.run(main())
"""
    )


def test_dropping_in_the_child_does_not_hang(run_in_child):
    run_in_child(
        """
    global producer, consumer, admin, server
    del producer, consumer, admin, server
    gc.collect()
"""
    )


def test_a_child_that_does_nothing_ends(run_in_child):
    run_in_child("    pass\n")


def test_a_child_makes_clients_of_its_own(run_in_child):
    run_in_child(
        """
    with rocketpy.Producer("child", name_servers=[name_server], send_timeout=60) as mine:
        mine.send(Message("other", b"from the child"))
    with rocketpy.Consumer("child", "other", name_servers=[name_server], start=Start.EARLIEST, api_timeout=60) as mine:
        assert [message.body for message in mine.poll(timeout=60)] == [b"from the child"]
"""
    )


def test_a_child_reads_the_store_and_serves_one_of_its_own(run_in_child):
    run_in_child(
        """
    while not sum(queue.max_offset for topic in rocketpy.StoreReader(store).topics() for queue in topic.queues):
        pass  # the queue's file gets its entry a moment after the message was received
    assert sum(batch.num_rows for batch in rocketpy.StoreReader(store).scan("topic")) == 1
    with tempfile.TemporaryDirectory() as mine, PatientServer(mine) as own, own.producer("child") as sender:
        with own.admin() as its_admin:
            its_admin.create_topic("topic")
        assert sender.send(Message("topic", b"text")).queue_offset == 0
"""
    )


def test_parent_and_children_make_different_message_ids(run):
    run(
        """
def work():
    with rocketpy.Producer("child", name_servers=[name_server], send_timeout=60) as mine:
        mine.send_many([Message("ids", b"text") for _ in range(100)])

children = [os.fork() for _ in range(1)]
if children == [0]:
    signal.alarm(200)
    work()
    sys.exit(0)
with rocketpy.Producer("parent", name_servers=[name_server], send_timeout=60) as mine:
    mine.send_many([Message("ids", b"text") for _ in range(100)])
assert os.waitpid(children[0], 0)[1] == 0
with server.consumer("ids", "ids", start=Start.EARLIEST) as reader:
    ids = set()
    while len(ids) < 200:
        messages = reader.poll(timeout=60)
        assert messages, len(ids)
        ids |= {message.msg_id for message in messages}
"""
    )


def test_a_fork_while_other_threads_send_and_wait(run):
    run(
        """
import threading
stop = threading.Event()
running = threading.Barrier(3)  # a fork in the middle of another thread's import hangs any Python program

def send():
    producer.submit(Message("busy", b"text"))
    running.wait()
    while not stop.is_set():  # a hundred at a time: a slow disk is not to decide how long a child waits for its send
        for outcome in [producer.submit(Message("busy", b"text")) for _ in range(100)]:
            outcome.result()

def wait():
    with server.consumer("busy", "topic") as reader:
        running.wait()
        while not stop.is_set():
            reader.poll(timeout=0.1)

threads = [threading.Thread(target=send, daemon=True), threading.Thread(target=wait, daemon=True)]
for thread in threads:
    thread.start()
running.wait()

def work():
    refused(lambda: producer.submit(Message("topic", b"text")))
    with rocketpy.Producer("child", name_servers=[name_server], send_timeout=60) as mine:
        mine.send(Message("other", b"from the child"))
    gc.collect()

for n in range(20):
    code = in_child(work)
    assert code == 0, (n, code)
stop.set()
for thread in threads:
    thread.join()
producer.flush()
"""
    )


def test_a_process_pool_by_fork(run):
    run(
        """
import multiprocessing

def count(n):
    with rocketpy.Producer(f"pool-{n}", name_servers=[name_server], send_timeout=60) as mine:
        return len(mine.send_many([Message("pool", b"text") for _ in range(10)]))

with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(count, range(4)) == [10] * 4
"""
    )


def test_a_push_consumer_works_in_the_parent_only(run):
    run(
        """
import threading
seen, pushed = [], server.push_consumer("pushers")

@pushed.on("other")
def handle(message):
    seen.append(message.body)

pushed.start()

def wait_for(body):
    producer.send(Message("other", body))
    deadline = time.monotonic() + 60
    while body not in seen:
        assert time.monotonic() < deadline
        time.sleep(0.01)

wait_for(b"before")

def work():
    refused(pushed.stats)
    refused(pushed.state)
    pushed.stop()

assert in_child(work) == 0
wait_for(b"after")
pushed.stop()
"""
    )

"""One file of marks, several processes: they race, they are killed, they fork, they wait for each other."""

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from test_interrupt import assert_wakes

import rocketpy
from rocketpy.dedup import Dedup, SqliteStore
from rocketpy.testing import fresh_name
from waiting import wait_until

RACERS = 3
KEYS = 500
"""Enough for the later processes to catch up with the first one: what is done takes them less time than it took it."""
RACER = """
import contextlib, sys, rocketpy
from rocketpy.dedup import Dedup, SqliteStore

once = Dedup("billing", SqliteStore(sys.argv[1], busy_timeout=100, durable=False), key=str)
ran = []
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(sys.argv[2])):
    with contextlib.suppress(rocketpy.InProgressError):
        once(ran.append)(n)
once.store.close()
print(*ran)
"""
CONSUMER = """
import sys, rocketpy
from rocketpy.dedup import Dedup

path, effects, name_server, group, topic = sys.argv[1:]

@Dedup("billing", path, lease=1)
def work(message):
    with open(effects, "ab") as file:
        file.write(message.body)
    if message.body == b"b":
        print("at work", flush=True)
        sys.stdin.read()

with rocketpy.Consumer(group, topic, name_servers=name_server, api_timeout=60) as consumer:
    for message in consumer:
        work(message)
"""
WORKER = """
import sys
from rocketpy.dedup import Dedup

@Dedup("billing", sys.argv[1], key=str, lease=float(sys.argv[2]))
def work(message):
    print("at work", flush=True)
    sys.stdin.read()

work("a")
"""


def start(source, *arguments):
    command = [sys.executable, "-W", "error", "-c", source, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "done.db"


def test_of_processes_that_race_for_a_message_exactly_one_runs_it(path):
    racers = [start(RACER, path, KEYS) for _ in range(RACERS)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:  # none has opened the file yet: they also race to make it
        racer.stdin.write("go\n")
        racer.stdin.flush()
    ran = [racer.communicate(timeout=300)[0].split() for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * RACERS
    assert sorted(int(n) for one in ran for n in one) == list(range(KEYS))


def kill_at_work(path, lease):
    """Kills a process in the middle of its work. Returns when its lease ends."""
    worker = start(WORKER, path, lease)
    assert worker.stdout.readline() == "at work\n"
    worker.send_signal(signal.SIGKILL)
    worker.communicate(timeout=300)
    with contextlib.closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT at_ms FROM rocketpy_marks").fetchone()[0] / 1000


def test_what_a_killed_process_left_is_refused_while_its_lease_lasts(path):
    ends_at = kill_at_work(path, lease=3600)
    with SqliteStore(path) as store:
        with pytest.raises(rocketpy.InProgressError) as refused:
            Dedup("billing", store, key=str)(pytest.fail)("a")
        assert refused.value.lease_ends_at.timestamp() == ends_at
        ran = []
        Dedup("billing", store, key=str, clock=lambda: ends_at)(ran.append)("a")
    assert ran == ["a"]


def test_what_a_killed_process_left_is_taken_over_when_its_lease_ends(path):
    ends_at = kill_at_work(path, lease=0.5)
    began = []

    def taken_over():
        with contextlib.suppress(rocketpy.InProgressError):
            once(lambda _: began.append(time.time()))("a")
        return began

    with Dedup("billing", path, key=str) as once:
        wait_until(taken_over, "the lease ends")
        once(pytest.fail)("a")
    assert began[0] >= ends_at - 0.001
    assert len(began) == 1


def test_what_a_killed_consumer_had_done_is_not_done_again_and_what_it_was_at_is(
    rocketpy_server, producer, rocketpy_topic, path, tmp_path
):
    effects, group = tmp_path / "effects", fresh_name()
    queue = producer.queues(rocketpy_topic)[0]
    for body in (b"a", b"b", b"c"):
        producer.send(rocketpy.Message(rocketpy_topic, body), queue=queue)
    killed = start(CONSUMER, path, effects, rocketpy_server.name_server, group, rocketpy_topic)
    assert killed.stdout.readline() == "at work\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=300)
    assert effects.read_bytes() == b"ab"

    def append(message):
        with effects.open("ab") as file:
            file.write(message.body)

    def is_settled(message):
        with contextlib.suppress(rocketpy.InProgressError):
            once(append)(message)
            return True

    with Dedup("billing", path) as once, rocketpy_server.consumer(group, rocketpy_topic) as consumer:
        messages = consumer.messages()
        for body in (b"a", b"b", b"c"):  # nothing was committed: all of them come again
            message = next(messages)
            assert message.body == body
            wait_until(lambda message=message: is_settled(message), "the lease ends")
    assert effects.read_bytes() == b"abbc"  # a: done. b: the process died between its effect and its mark


@pytest.fixture
def locked(path):
    """A file on which another connection keeps a transaction open."""
    with SqliteStore(path) as store:
        store.purge("billing", 0, 1)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield holder


def test_a_lock_that_stays_is_an_error_that_says_what_to_do(path, locked):
    with SqliteStore(path, busy_timeout=0.2) as store:
        with pytest.raises(rocketpy.DedupStoreError, match=r"locked by another process for 0\.2 s") as refused:
            Dedup("billing", store, key=str)(pytest.fail)("a")
        assert refused.value.retryable
        assert not refused.value.may_have_been_applied
        assert "busy_timeout" in refused.value.hint
        assert str(path) in str(refused.value)
        locked.execute("COMMIT")
        Dedup("billing", store, key=str)(lambda _: None)("a")


def test_ctrl_c_ends_the_wait_for_a_lock(path, locked):
    with SqliteStore(path, busy_timeout=60) as store:
        assert_wakes(lambda: Dedup("billing", store, key=str)(pytest.fail)("a"))


@pytest.mark.parametrize("kind", ["folder", "text", "missing"])
def test_a_path_that_is_no_database_is_an_error_that_names_it(tmp_path, kind):
    path = tmp_path / "missing" / "done.db" if kind == "missing" else tmp_path / "done.db"
    if kind == "folder":
        path.mkdir()
    if kind == "text":
        path.write_text("this is not a database, and long enough to be one: " * 20)
    with SqliteStore(path) as store, pytest.raises(rocketpy.DedupStoreError, match=r"done\.db") as refused:
        store.begin("billing", "a", "x", 0, 1)
    assert refused.value.hint
    assert not refused.value.retryable


def test_done_work_is_flushed_unless_told_otherwise(tmp_path):
    levels = []
    for durable in (True, False):
        with SqliteStore(tmp_path / "done.db", durable=durable) as store:
            store.finish("billing", "a", "x", 0)
            levels += store._file.execute("PRAGMA synchronous").fetchone()
            levels += store._file.execute("PRAGMA journal_mode").fetchone()
    assert levels == [2, "wal", 1, "wal"]


FORKING = """
import os, signal, sys, rocketpy
from rocketpy.dedup import Dedup

def in_child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(200)
        work()
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

once = Dedup("billing", sys.argv[1], key=str)
ran = []
assert in_child(lambda: once(ran.append)("a")) == 0
once(ran.append)("a")
once(ran.append)("b")
assert ran == ["b"]

def refused():
    try:
        once(ran.append)("c")
    except rocketpy.ForkedError as error:
        assert str(os.getpid()) in str(error) and error.hint
    else:
        raise AssertionError
    os._exit(0)  # as multiprocessing ends its children: Python 3.13 warns of the parent's file at the end of Python

assert in_child(refused) == 0
once(ran.append)("c")
once.close()
print(ran)
"""


def test_a_fork_before_the_first_use_is_fine_and_a_later_one_is_refused(child, path):
    ended = child(FORKING, str(path))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "['b', 'c']\n"


def test_an_open_one_is_closed_when_python_ends(child, path):
    source = """
    import sys
    from rocketpy.dedup import Dedup
    once = Dedup("billing", sys.argv[1], key=str)
    once(print)("a")
    """
    ended = child(source, str(path))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "a\n", "")
    assert sorted(one.name for one in path.parent.iterdir()) == ["done.db", "script.py"]  # no log of SQLite's is left

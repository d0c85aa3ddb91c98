"""Log records of clients in Python's `logging`, under `rocketpy.client`.

The end of a process, forks and what Python shows without any configuration are tested in processes of their own.
"""

from __future__ import annotations

import contextlib
import logging

import pytest

import rocketpy
from rocketpy import Message, Start, store
from rocketpy.testing import SMALL_FILES, PatientServer, fresh_name
from waiting import wait_until

CLIENT = logging.getLogger("rocketpy.client")
UNANSWERED = "name server did not answer"


class Kept(logging.Handler):
    """Keeps records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def having(self, text: str) -> list[logging.LogRecord]:
        return [record for record in list(self.records) if text in record.getMessage()]


@pytest.fixture
def kept():
    """What arrives at `rocketpy.client` during one test."""
    handler = Kept()
    CLIENT.addHandler(handler)
    yield handler
    CLIENT.removeHandler(handler)
    CLIENT.setLevel(logging.NOTSET)


def fail_to_connect(port: int) -> None:
    """Asks a name server that is not there, which makes one warning for each client."""
    with rocketpy.Admin(name_servers=f"127.0.0.1:{port}") as admin:
        for _ in range(2):
            with pytest.raises(rocketpy.ConnectionFailedError):
                admin.topics()


def test_a_warning_names_its_place_and_its_facts(kept, free_port):
    fail_to_connect(free_port)
    wait_until(lambda: kept.having(f"127.0.0.1:{free_port}"))
    record = kept.having(f"127.0.0.1:{free_port}")[0]
    assert (record.name, record.levelno, record.filename) == ("rocketpy.client", logging.WARNING, "api.rs")
    assert record.getMessage().startswith(f'{UNANSWERED} address="127.0.0.1:{free_port}"')
    assert record.threadName == "rocketpy-logs"


def test_a_table_that_is_read_from_its_backup_is_a_warning_of_the_store(tmp_path):
    handler, logger = Kept(), logging.getLogger("rocketpy.store")
    logger.addHandler(handler)
    try:
        target = tmp_path / "store"
        store.import_messages([{"topic": "orders", "body": b"x"}], target)
        table = target / "config" / "topics.json"
        table.with_name("topics.json.bak").write_bytes(table.read_bytes())
        table.write_text("{")
        assert store.import_messages([{"topic": "more", "body": b"x"}], target).new_topics == ("more",)
        wait_until(lambda: handler.having("using its backup"))
    finally:
        logger.removeHandler(handler)
    [record] = handler.having("using its backup")
    assert (record.name, record.levelno) == ("rocketpy.store", logging.WARNING)
    assert str(table) in record.getMessage()


def test_a_client_follows_a_level_that_was_set_just_before_it(kept, free_port):
    for level in (logging.CRITICAL, logging.NOTSET):  # both within the interval at which levels are read
        CLIENT.setLevel(level)
        fail_to_connect(free_port)
    wait_until(lambda: kept.having(f"127.0.0.1:{free_port}"))
    assert len(kept.having(f"127.0.0.1:{free_port}")) == 1


def test_a_level_that_is_set_later_works(kept, rocketpy_server):
    group = fresh_name("later")
    with rocketpy_server.producer(group):
        pass
    CLIENT.setLevel(logging.DEBUG)

    def is_heard() -> bool:
        with rocketpy_server.producer(group):
            return bool(kept.having(group) and kept.having("client started"))

    wait_until(is_heard, "records of both levels")
    record = kept.having(group)[0]
    assert (record.name, record.levelno) == ("rocketpy.client.producer", logging.INFO)
    assert kept.having("client started")[0].levelno == logging.DEBUG


def test_an_automatic_commit_that_fails_is_heard_of_and_its_end_too(kept, tmp_path):
    topic = fresh_name("commits")
    with PatientServer(tmp_path / "store", settings=SMALL_FILES) as server:
        ports = {"port": int(server.broker.split(":")[1]), "name_server_port": int(server.name_server.split(":")[1])}
        with server.producer("ingest") as producer:
            producer.send_many([Message(topic, b"text") for _ in range(10)])
        options = {"start": Start.EARLIEST, "auto_commit": 0.02, "api_timeout": 1}
        consumer = rocketpy.Consumer("report", topic, name_servers=server.name_server, **options)
        assert consumer.poll(1, timeout=60)
    consumer.poll(1, timeout=0)  # what the first poll returned may now be committed
    wait_until(lambda: kept.having("automatic commit failed"))
    record = kept.having("automatic commit failed")[0]
    assert (record.name, record.levelno) == ("rocketpy.client.consumer", logging.WARNING)
    with PatientServer(tmp_path / "store", settings=SMALL_FILES, **ports):
        wait_until(lambda: kept.having("automatic commit recovered"))
        assert len(kept.having("automatic commit failed")) == 1, "it failed many times within a minute"
        with contextlib.suppress(rocketpy.RocketPyError):  # a commit may still be under way
            consumer.close()


FAIL = """
import logging, rocketpy, sys, time
def fail():
    admin = rocketpy.Admin(name_servers="127.0.0.1:" + sys.argv[1])
    try:
        admin.topics()
    except rocketpy.ConnectionFailedError:
        pass
"""


def test_python_shows_warnings_of_a_program_that_configures_nothing_and_ends_at_once(child, free_port):
    ended = child(FAIL + "fail()\n", str(free_port))
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.startswith(UNANSWERED), ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_level_above_silences_it(child, free_port):
    ended = child(FAIL + "logging.getLogger('rocketpy').setLevel(logging.CRITICAL)\nfail()\n", str(free_port))
    assert (ended.returncode, ended.stderr) == (0, "")


SLOW = """
import threading
class Slow(logging.Handler):
    entered, go_on, texts, made_at = threading.Event(), threading.Event(), [], []
    def emit(self, record):
        self.entered.set()
        self.go_on.wait()
        self.made_at.append(record.created)
        self.texts.append(record.getMessage())
slow = Slow()
logging.getLogger("rocketpy.client").addHandler(slow)
fail()
slow.entered.wait()
"""


def test_what_a_slow_handler_leaves_no_room_for_is_counted(child, free_port):
    source = """
for _ in range(1199):
    fail()
slow.go_on.set()
def dropped():
    return sum(int(text.rpartition(" ")[2]) for text in slow.texts if "dropped: " in text)
while dropped() + sum(sys.argv[1] in text for text in slow.texts) < 1200:
    time.sleep(0.01)
print(dropped() > 0, dropped() + sum(sys.argv[1] in text for text in slow.texts))
"""
    ended = child(FAIL + SLOW + source, str(free_port))
    assert (ended.returncode, ended.stdout) == (0, "True 1200\n"), ended.stderr


def test_records_that_no_logger_wants_take_no_room(child, free_port):
    source = """
for _ in range(1200):
    rocketpy.Admin(name_servers="127.0.0.1:" + sys.argv[1]).close()  # logs both, below WARNING
fail()
slow.go_on.set()
while len(slow.texts) < 2:
    time.sleep(0.01)
print(*[sys.argv[1] in text for text in slow.texts])
"""
    ended = child(FAIL + SLOW + source, str(free_port))
    assert (ended.returncode, ended.stdout) == (0, "True True\n"), ended.stderr


def test_a_record_has_the_time_at_which_it_was_made(child, free_port):
    source = """
fail()
before = time.time()
slow.go_on.set()
while len(slow.texts) < 2:
    time.sleep(0.01)
print(*[before - 60 < made_at <= before for made_at in slow.made_at])
"""
    ended = child(FAIL + SLOW + source, str(free_port))
    assert (ended.returncode, ended.stdout) == (0, "True True\n"), ended.stderr


def test_a_filter_that_raises_takes_no_other_record_along(child, free_port):
    source = """
class Raises(logging.Filter):
    count = 0
    def filter(self, record):
        self.count += 1
        if self.count == 1:
            raise ValueError("a filter of the user")
        return True
logging.getLogger("rocketpy.client").addFilter(Raises())
for _ in range(3):
    fail()
slow.go_on.set()
while len(slow.texts) < 3:
    time.sleep(0.01)
print(len(slow.texts))
"""
    ended = child(FAIL + SLOW + source, str(free_port))
    assert (ended.returncode, ended.stdout) == (0, "3\n"), ended.stderr
    assert "a filter of the user" in ended.stderr


def test_a_forked_child_has_records_of_its_own(child, free_port):
    source = """
import os, warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork")
logging.basicConfig(format="%(process)d %(message)s")
fail()
pid = os.fork()
fail()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
print(os.getpid())
"""
    ended = child(FAIL + source, str(free_port))
    assert ended.returncode == 0, ended.stderr
    of = [line.split()[0] for line in ended.stderr.splitlines() if UNANSWERED in line]
    in_child, in_parent = ended.stdout.split()
    assert (of.count(in_parent), of.count(in_child)) == (2, 1), ended.stderr


def test_the_end_of_python_leaves_records_for_which_it_has_no_time(child, free_port):
    """Python 3.11 aborts when a thread of ours is in the middle of Python code at its end."""
    source = """
class Computing(logging.Handler):
    def emit(self, record):
        until = time.monotonic() + 0.02
        while time.monotonic() < until:
            pass
logging.getLogger("rocketpy.client").addHandler(Computing())
for _ in range(300):
    fail()
slow.go_on.set()
"""
    ended = child(FAIL + SLOW + source, str(free_port))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_handler_that_never_returns_does_not_hold_up_the_end_of_python(child, free_port):
    source = """
import threading
entered = threading.Event()
class Stuck(logging.Handler):
    def emit(self, record):
        entered.set()
        threading.Event().wait()
    def acquire(self):
        "logging.shutdown would wait for the lock of any handler that hangs."
    def release(self):
        pass
logging.getLogger().addHandler(Stuck())
fail()
entered.wait()
"""
    ended = child(FAIL + source, str(free_port))
    assert (ended.returncode, ended.stderr) == (0, "")

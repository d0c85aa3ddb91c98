"""The mark of done work in the transaction of the work: both are there, or none is."""

import asyncio
import contextlib
import re
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

import rocketpy
from rocketpy.dedup import Dedup, TransactionStore
from rocketpy.testing import fresh_name


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "books.db"
    with contextlib.closing(sqlite3.connect(path)) as books, books:
        books.execute("CREATE TABLE payments (amount INTEGER)")
        TransactionStore(books).create_table()
    return path


@pytest.fixture
def books(path):
    with contextlib.closing(sqlite3.connect(path)) as books:
        yield books


@pytest.fixture
def once(books):
    return Dedup("billing", TransactionStore(books), key=str)


def paid(path):
    """What everybody sees: what is committed."""
    with contextlib.closing(sqlite3.connect(path)) as other:
        return [amount for (amount,) in other.execute("SELECT amount FROM payments ORDER BY rowid")]


def pay(books, amount=10):
    books.execute("INSERT INTO payments VALUES (?)", (amount,))


def test_the_work_and_its_mark_are_committed_together(once, books, path):
    charge = once(lambda _: pay(books))
    with books:
        charge("a")
        assert books.in_transaction
        assert paid(path) == []
    assert paid(path) == [10]
    with books:
        charge("a")
    assert paid(path) == [10]


def test_a_rollback_takes_the_mark_back_too(once, books, path):
    charge = once(lambda _: pay(books))
    charge("a")
    books.rollback()
    with books:
        charge("a")
    assert paid(path) == [10]


def test_work_that_failed_leaves_no_mark_even_if_its_transaction_is_committed(once, books, path):
    def fail(_):
        raise ValueError

    with books:
        with pytest.raises(ValueError):
            once(fail)("a")
        pay(books, 1)
    with books:
        once(lambda _: pay(books))("a")
    assert paid(path) == [1, 10]


def test_work_that_ended_its_transaction_itself_is_left_without_one(once, books):
    def work(_):
        with books:
            raise ValueError

    with pytest.raises(ValueError):
        once(work)("a")
    assert not books.in_transaction


def test_a_process_that_dies_before_its_commit_leaves_no_mark(once, books, path):
    source = """
import sqlite3, sys
from rocketpy.dedup import Dedup, TransactionStore
books = sqlite3.connect(sys.argv[1])
with books, Dedup("billing", TransactionStore(books), key=str).claim("a") as claim:
    assert not claim.already_done
    books.execute("INSERT INTO payments VALUES (99)")
    print("at work", flush=True)
    sys.stdin.read()
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", source, path], stdin=pipe, stdout=pipe, text=True) as worker:
        assert worker.stdout.readline() == "at work\n"
        books.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(sqlite3.OperationalError, match="locked"):  # an error of the driver, as it is
            once.claim("a").__enter__()
        books.rollback()
        worker.send_signal(signal.SIGKILL)
    with books:
        once(lambda _: pay(books))("a")
    assert paid(path) == [10]


class Late:
    """A connection to whose transaction a row of another one comes between its query and its insert.

    As in databases whose writers do not wait for each other: sqlite3's do.
    """

    def __init__(self, books, between):
        self.books, self.between = books, between

    def cursor(self):
        return self

    def execute(self, statement, parameters):
        if statement.startswith("INSERT"):
            self.between()
        self.found = self.books.execute(statement, parameters)
        self.description, self.rowcount = self.found.description, self.found.rowcount

    def fetchone(self):
        return self.found.fetchone()

    def close(self):
        pass


def test_work_that_another_transaction_has_just_done_is_to_be_tried_again(once, books, path):
    def first():
        with contextlib.closing(sqlite3.connect(path)) as other, other:
            Dedup("billing", TransactionStore(other), key=str)(lambda _: pay(other))("a")

    second = Dedup("billing", TransactionStore(Late(books, first), paramstyle="qmark"), key=str)
    with pytest.raises(rocketpy.InProgressError, match="another transaction") as refused:
        second(pytest.fail)("a")
    assert refused.value.retryable
    assert refused.value.lease_ends_at is None
    assert isinstance(refused.value.__cause__, sqlite3.IntegrityError)
    books.rollback()
    with books:
        once(pytest.fail)("a")
    assert paid(path) == [10]


def test_a_connection_that_commits_each_statement_is_refused_before_anything_is_written(path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as books:
        once = Dedup("billing", TransactionStore(books), key=str)
        with pytest.raises(rocketpy.InvalidArgumentError, match="commits each statement") as refused:
            once(pytest.fail)("a")
        assert "begin a transaction" in refused.value.hint
        assert books.execute("SELECT count(*) FROM rocketpy_done").fetchone() == (0,)
        books.execute("BEGIN")
        once(lambda _: pay(books))("a")
        books.execute("COMMIT")
    assert paid(path) == [10]


def test_a_driver_that_tells_only_its_autocommit_is_believed(books):
    connection = Late(books, lambda: None)
    connection.autocommit = True
    store = TransactionStore(connection, paramstyle="qmark")
    with pytest.raises(rocketpy.InvalidArgumentError, match="commits each statement"):
        Dedup("billing", store, key=str)(pytest.fail)("a")
    connection.autocommit = False
    assert Dedup("billing", store, key=str)(str)("a") == "a"


def test_each_thread_may_have_a_connection_of_its_own(path):
    local = threading.local()

    def connection():
        if not hasattr(local, "books"):
            local.books = sqlite3.connect(path, timeout=60)
        return local.books

    once = Dedup("billing", TransactionStore(connection), key=str)

    def work():
        for n in range(20):
            with connection():
                connection().execute("BEGIN IMMEDIATE")
                once(lambda n: pay(connection(), int(n)))(n)
        local.books.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paid(path) == list(range(20))


def test_an_async_handler_uses_the_connection_in_its_own_thread(once, books, path):
    @once
    async def charge(_):
        pay(books)

    async def run():
        for _ in range(2):
            with books:
                await charge("a")

    asyncio.run(run())
    assert paid(path) == [10]


class Translating:
    """A connection to sqlite3 whose cursors take parameters of another style, as other drivers do."""

    def __init__(self, books, style):
        self.books, self.style = books, style
        self.statements = []

    @property
    def in_transaction(self):
        return self.books.in_transaction

    isolation_level = ""

    def cursor(self):
        return TranslatingCursor(self)


class TranslatingCursor:
    def __init__(self, connection):
        self.connection, self.cursor = connection, connection.books.cursor()
        self.fetchone, self.close = self.cursor.fetchone, self.cursor.close

    @property
    def description(self):
        return self.cursor.description

    @property
    def rowcount(self):
        return self.cursor.rowcount

    def execute(self, statement, parameters=()):
        self.connection.statements.append(statement)
        if self.connection.style == "format":
            assert type(parameters) is tuple
            statement = statement.replace("%s", "?")
        if self.connection.style == "pyformat" and parameters:
            statement %= {name: f":{name}" for name in parameters}
        if self.connection.style == "numeric":
            assert type(parameters) is tuple
            statement = re.sub(r":\d", "?", statement)
        self.cursor.execute(statement, parameters)


@pytest.mark.parametrize(
    ("style", "place"),
    [("qmark", "= ?"), ("numeric", "= :2"), ("named", "= :msg_key"), ("format", "= %s"), ("pyformat", "= %(msg_key)s")],
)
def test_every_paramstyle(books, path, style, place):
    connection = Translating(books, style)
    store = TransactionStore(connection, paramstyle=style)
    store.create_table()
    once = Dedup("billing", store, key=str, keep=0, clock=lambda: 1000)
    with books:
        assert [once(lambda _: "ran")(key) for key in "aba"] == ["ran", "ran", None]
        with pytest.raises(ZeroDivisionError):
            once(lambda _: 1 / 0)("c")
    assert any(statement.endswith(f"msg_key {place}") for statement in connection.statements)
    late = Dedup("billing", store, key=str, keep=0, clock=lambda: 1001)
    assert late.purge() == 2
    assert late.purge() == 0


def test_marks_are_purged_when_asked_and_only_old_ones_of_that_name(books):
    store = TransactionStore(books)
    now = [1_000_000]
    once = Dedup("billing", store, key=str, keep=100, clock=lambda: now[0])
    other = Dedup("audit", store, key=str, keep=100, clock=lambda: now[0])
    with books:
        for n in range(1500):
            once(str)(n)
        other(str)("a")
        now[0] += 101
        once(str)("new")
    with books:
        assert once.purge() == 1500
    assert books.execute("SELECT name, msg_key FROM rocketpy_done ORDER BY name").fetchall() == [
        ("audit", "a"),
        ("billing", "new"),
    ]


def test_the_table_may_have_another_name_and_a_schema(books):
    books.execute("ATTACH ':memory:' AS side")
    store = TransactionStore(books, table="side.done_work")
    store.create_table()
    with books:
        assert Dedup("billing", store, key=str)(lambda _: 1)("a") == 1
    assert books.execute("SELECT count(*) FROM side.done_work").fetchone() == (1,)


class Unknown:
    def cursor(self):
        return self

    def close(self):
        pass


@pytest.mark.parametrize(
    ("arguments", "kind", "named"),
    [
        ({"table": "done; DROP TABLE payments"}, rocketpy.InvalidArgumentError, "not the name of a table"),
        ({"table": ""}, rocketpy.InvalidArgumentError, "not the name of a table"),
        ({"paramstyle": "%s"}, rocketpy.InvalidArgumentError, "one of qmark, numeric"),
        ({"connection": "books.db"}, TypeError, "connection"),
    ],
)
def test_bad_arguments_are_refused_by_name(books, arguments, kind, named):
    with pytest.raises(kind, match=named):
        TransactionStore(**{"connection": books, **arguments})


def test_a_driver_that_does_not_say_its_paramstyle_is_an_error_that_says_how_to():
    with pytest.raises(rocketpy.InvalidArgumentError, match=r"test_dedup_transaction\.Unknown") as refused:
        Dedup("billing", TransactionStore(Unknown()), key=str)(pytest.fail)("a")
    assert "paramstyle=" in refused.value.hint


def test_what_a_server_delivers_twice_is_booked_once(rocketpy_server, producer, rocketpy_topic, books, path):
    for amount in (10, 20, 30):
        message = rocketpy.Message(rocketpy_topic, b"%d" % amount)
        producer.send(message, msg_id=producer.send(message).msg_id)
    once = Dedup("billing", TransactionStore(books))

    @once
    def charge(message):
        pay(books, int(message.body))

    with rocketpy_server.consumer(fresh_name(), rocketpy_topic) as consumer:
        seen = 0
        while seen < 6:
            for message in consumer.poll(timeout=60):
                with books:
                    charge(message)
                seen += 1
        consumer.commit()
    assert sorted(paid(path)) == [10, 20, 30]

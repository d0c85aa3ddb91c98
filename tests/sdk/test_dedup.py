"""Work is done once although its message comes twice: the decorator over its stores, and the path with a server."""

import contextlib
import logging
import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

import rocketpy
from rocketpy.dedup import Dedup, MappingStore, Mark, SqliteStore, Store, message_key
from rocketpy.testing import fresh_name

LEASE = 10


class Clock:
    """A wall clock that the test sets."""

    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["sqlite", "mapping"])
def store(request, tmp_path):
    if request.param == "mapping":
        yield MappingStore()
    else:
        with SqliteStore(tmp_path / "done.db", durable=False) as store:
            yield store


@pytest.fixture
def once(store, clock):
    return Dedup("billing", store, key=str, lease=LEASE, clock=clock)


def test_a_duplicate_runs_nothing_and_returns_none(once):
    ran = []

    @once
    def work(message):
        """Adds it."""
        ran.append(message)
        return len(ran)

    assert [work("a"), work("b"), work("a"), work("b")] == [1, 2, None, None]
    assert ran == ["a", "b"]
    assert (work.__name__, work.__doc__) == ("work", "Adds it.")


def test_work_of_two_names_is_apart(store):
    ran = []
    for name in ("billing", "audit"):
        Dedup(name, store, key=str)(ran.append)("a")
    assert ran == ["a", "a"]


def test_an_exception_removes_the_mark_so_that_the_retry_runs(once):
    outcomes = [ValueError("no"), KeyboardInterrupt(), "done"]

    @once
    def work(_):
        outcome = outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    with pytest.raises(ValueError, match="no"):
        work("a")
    with pytest.raises(KeyboardInterrupt):
        work("a")
    assert [work("a"), work("a")] == ["done", None]


def test_work_under_a_lease_is_refused_until_the_lease_ends_and_then_taken_over(once, clock):
    ran = []
    with once.claim("a") as claim:
        assert not claim.already_done
        clock.now += LEASE - 0.001
        with pytest.raises(rocketpy.InProgressError, match=r"billing holds the lease on a until 2023-11-14") as refused:
            once(ran.append)("a")
        assert refused.value.retryable
        assert refused.value.lease_ends_at == datetime.fromtimestamp(clock.now + 0.001, UTC)
        assert "retry later" in refused.value.hint
        assert ran == []
        clock.now += 0.001
        once(ran.append)("a")
    assert ran == ["a"]
    once(ran.append)("a")
    assert ran == ["a"]


def test_a_worker_that_lost_its_lease_is_told_so(once, clock, caplog):
    with once.claim("a") as slow:
        clock.now += LEASE
        with once.claim("a"):
            with pytest.raises(rocketpy.InProgressError, match="another worker took it"):
                slow.renew()
        with pytest.raises(rocketpy.InProgressError):
            slow.renew()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("rocketpy.dedup", logging.WARNING)
    assert "may have run twice" in record.message


def test_an_exception_of_a_worker_that_lost_its_lease_does_not_undo_what_the_other_did(once, clock, store):
    def late(message):
        clock.now += LEASE
        once(str)(message)
        raise ValueError

    with pytest.raises(ValueError):
        once(late)("a")
    assert store.begin("billing", "a", "x", int(clock.now * 1000), 0) == Mark(None, int(clock.now * 1000))


def test_renew_moves_the_end_of_the_lease(once, clock):
    with once.claim("a") as claim:
        for _ in range(3):
            clock.now += LEASE - 1
            claim.renew()
        with pytest.raises(rocketpy.InProgressError):
            once.claim("a").__enter__()
    with pytest.raises(rocketpy.ClosedError):
        claim.renew()


def test_a_claim_is_for_one_block_at_a_time(once):
    with once.claim("a") as claim, pytest.raises(rocketpy.InvalidArgumentError, match="in use"), claim:
        pass


def test_a_clock_that_is_set_back_makes_others_wait_longer_and_one_set_forward_ends_leases(once, clock):
    once.claim("dead").__enter__()  # its worker never ends
    clock.now -= 3600
    with pytest.raises(rocketpy.InProgressError) as refused:
        once.claim("dead").__enter__()
    assert refused.value.lease_ends_at == datetime.fromtimestamp(clock.now + 3600 + LEASE, UTC)
    clock.now += 2 * 3600
    with once.claim("dead") as claim:
        assert not claim.already_done


def test_old_marks_are_removed_so_that_the_table_has_a_bound(store, clock):
    once = Dedup("billing", store, key=str, lease=LEASE, keep=timedelta(seconds=1000), clock=clock)
    other = Dedup("audit", store, key=str, lease=LEASE, keep=3600 * 24 * 365, clock=clock)
    other(lambda _: None)("a")
    work = once(lambda _: None)
    once.claim("dead").__enter__()
    for n in range(3000):
        clock.now += 1
        work(n)
    assert 1000 <= marks(store, "billing") <= 1500
    clock.now += 2000
    assert once.purge() >= 1000
    assert marks(store, "billing") == 0
    assert marks(store, "audit") == 1


def marks(store, name):
    if isinstance(store, MappingStore):
        return sum(place[0] == name for place in store.marks)
    with contextlib.closing(sqlite3.connect(store._path)) as file:
        return file.execute("SELECT count(*) FROM rocketpy_marks WHERE name = ?", (name,)).fetchone()[0]


@pytest.mark.parametrize("seed", range(5))
def test_every_store_follows_the_same_rules(tmp_path, seed):
    choice = random.Random(seed)
    model = MappingStore()
    now = 0
    with SqliteStore(tmp_path / "done.db", durable=False) as real:
        for _ in range(400):
            now += choice.randrange(3)
            name, key, owner = choice.choice("pq"), choice.choice("abc"), choice.choice("xyz")
            call, arguments = choice.choice(
                [
                    ("begin", (name, key, owner, now, now + choice.randrange(1, 6))),
                    ("finish", (name, key, owner, now)),
                    ("renew", (name, key, owner, now + 5)),
                    ("release", (name, key, owner)),
                    ("purge", (name, now - 10, 10)),
                ]
            )
            said = [getattr(store, call)(*arguments) for store in (model, real)]
            if call == "release":
                continue
            assert said[0] == said[1], (call, arguments)
        with contextlib.closing(sqlite3.connect(tmp_path / "done.db")) as file:
            rows = file.execute("SELECT name, key, owner, at_ms FROM rocketpy_marks").fetchall()
    assert {(name, key): Mark(owner, at_ms) for name, key, owner, at_ms in rows} == model.marks


def test_threads_share_it(once):
    ran = []
    work = once(ran.append)

    def try_all(_):
        for n in range(50):
            with contextlib.suppress(rocketpy.InProgressError):
                work(n)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(try_all, range(8)))
    assert sorted(ran) == list(range(50))


def test_a_mark_that_cannot_be_removed_does_not_hide_the_error_of_the_work(tmp_path, caplog):
    def work(_):
        store.close()
        raise ValueError("the work's")

    with SqliteStore(tmp_path / "done.db") as store, pytest.raises(ValueError, match="the work's"):
        Dedup("billing", store, key=str)(work)("a")
    assert "until its lease expires" in caplog.text


def test_work_whose_mark_cannot_be_written_says_that_it_was_done(tmp_path):
    with SqliteStore(tmp_path / "done.db") as store:
        once = Dedup("billing", store, key=str)
        with pytest.raises(rocketpy.DedupStoreError) as failed, once.claim("a"):
            with contextlib.closing(sqlite3.connect(tmp_path / "done.db")) as file:
                file.execute("DROP TABLE rocketpy_marks")
        assert failed.value.may_have_been_applied
    assert str(tmp_path) in str(failed.value)


def generator(message):
    yield message


async def async_generator(message):
    yield message


@pytest.mark.parametrize("handler", [None, generator, async_generator, lambda: None, lambda _, more: None])
def test_what_is_no_handler_of_one_message_is_refused(once, handler):
    with pytest.raises(TypeError, match="a handler"):
        once(handler)


@pytest.mark.parametrize(
    ("arguments", "kind", "named"),
    [
        ({"name": ""}, rocketpy.InvalidArgumentError, "name"),
        ({"name": "n" * 256}, rocketpy.InvalidArgumentError, "name"),
        ({"name": 3}, TypeError, "name"),
        ({"store": 3}, TypeError, "path"),
        ({"key": "a"}, TypeError, "key"),
        ({"lease": 0}, rocketpy.InvalidArgumentError, "lease"),
        ({"lease": -1}, rocketpy.InvalidArgumentError, "lease"),
        ({"lease": float("nan")}, rocketpy.InvalidArgumentError, "lease"),
        ({"lease": "60"}, TypeError, "lease"),
        ({"keep": True}, TypeError, "keep"),
    ],
)
def test_bad_arguments_are_refused_by_name(tmp_path, arguments, kind, named):
    with pytest.raises(kind, match=named):
        Dedup(**{"name": "billing", "store": tmp_path / "done.db", **arguments})


@pytest.mark.parametrize(
    ("key", "kind"), [(3, TypeError), (b"a", TypeError), ("", ValueError), ("k" * 256, ValueError)]
)
def test_a_key_that_is_none_is_refused_before_the_work(key, kind):
    once = Dedup("billing", MappingStore(), key=lambda _: key)
    with pytest.raises(kind, match="key must"):
        once(pytest.fail)("message")


def test_a_closed_one_runs_nothing(tmp_path):
    with Dedup("billing", tmp_path / "done.db", key=str) as once:
        once(lambda _: None)("a")
    with pytest.raises(rocketpy.ClosedError):
        once(pytest.fail)("b")
    assert once.store.closed
    with SqliteStore(tmp_path / "done.db") as store:
        Dedup("billing", store).close()
        assert not store.closed


def test_a_store_of_ones_own(once):
    class Counting(MappingStore):
        def begin(self, *arguments):
            calls.append(arguments[:2])
            return super().begin(*arguments)

    calls = []
    assert issubclass(Counting, Store)
    Dedup("billing", Counting(), key=str)(lambda _: None)("a")
    assert calls == [("billing", "a")]


def consumed(server, group, topic, handler, count):
    """Gives the next messages of a group to a handler and commits."""
    with server.consumer(group, topic) as consumer:
        seen = 0
        while seen < count:
            for message in consumer.poll(timeout=60):
                handler(message)
                seen += 1
        consumer.commit()


def test_a_message_that_was_sent_twice_has_its_effect_once(rocketpy_server, producer, rocketpy_topic, tmp_path):
    queue = producer.queues(rocketpy_topic)[0]
    first = producer.send(rocketpy.Message(rocketpy_topic, b"10"), queue=queue)
    again = producer.send(rocketpy.Message(rocketpy_topic, b"10"), queue=queue, msg_id=first.msg_id)
    producer.send(rocketpy.Message(rocketpy_topic, b"7"), queue=queue)
    assert again.queue_offset == first.queue_offset + 1
    with Dedup("billing", tmp_path / "done.db") as once:
        paid, seen = [], []
        charge = once(lambda message: paid.append(int(message.body)))

        def handle(message):
            seen.append(message.msg_id)
            charge(message)

        consumed(rocketpy_server, fresh_name(), rocketpy_topic, handle, 3)
        assert (paid, seen.count(first.msg_id)) == ([10, 7], 2)
        consumed(rocketpy_server, fresh_name(), rocketpy_topic, handle, 3)  # all of them again, by another group
    assert paid == [10, 7]
    assert len(seen) == 6


def test_the_key_is_the_id_of_a_dead_letters_first_life(rocketpy_server, producer, rocketpy_topic):
    first = producer.send(rocketpy.Message(rocketpy_topic, b"once"))
    resent = rocketpy.Message(rocketpy_topic, b"once", properties={"rocketpyOriginMsgId": first.msg_id})
    assert producer.send(resent).msg_id != first.msg_id
    keys = []
    consumed(rocketpy_server, fresh_name(), rocketpy_topic, lambda message: keys.append(message_key(message)), 2)
    assert keys == [first.msg_id] * 2

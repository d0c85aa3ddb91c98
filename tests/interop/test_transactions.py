"""Transactions that outlive their producer and their broker, each killed, and in one open format.

Shows that another producer of the group ends what a dead one left, that a broker asks again after a kill, that
RocketPy's producer works with Apache's broker as with its own, and that each broker knows from the other's store which
half messages are open. RocketPy also continues a store of Apache 4.9.7, with its delayed messages. That Apache 4.9.7
continues a store of RocketPy is not tested here.
Says nothing of power loss.
"""

import contextlib
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketpy
import sdk
import stored_answers
from apache_processes import apache_cluster
from peers import Go, Java, lines, rocketpy_server, running, set_up_apache_4_9, stop
from ports import free_port
from rocketpy import Decision, Message
from waiting import wait_until

TOPIC = "paid"
GROUP = "payers"
SOON = {"transactionTimeOut": 1000, "transactionCheckInterval": 1000}
FLAGS = [f"--set={key}={value}" for key, value in SOON.items()]


@contextlib.contextmanager
def payer(address: str, committed: set[str]) -> Iterator[rocketpy.TransactionProducer]:
    """A member of the group that knows of these that they are committed."""

    def check(message: rocketpy.ReceivedMessage) -> Decision:
        return Decision.COMMIT if message.body.decode() in committed else Decision.UNKNOWN

    with rocketpy.TransactionProducer(GROUP, check, name_servers=[address], send_timeout=30) as producer:
        producer.send(Message("plain", b"tells the broker of the producer"))
        yield producer


def work(producer: rocketpy.TransactionProducer, prefix: str) -> None:
    """Transactions of all ends, and without one."""
    for end in ("open", "asked"):
        producer.transaction(Message(TOPIC, f"{prefix}-{end}".encode()))
    with producer.transaction(Message(TOPIC, f"{prefix}-committed".encode(), tag="A", keys=["k"])):
        pass
    producer.transaction(Message(TOPIC, f"{prefix}-rolled back".encode())).rollback()


def came(address: str, group: str, wanted: set[str]) -> Counter[str]:
    return Counter(message.body.decode() for message in sdk.came(address, TOPIC, group, wanted))


def rocketpy_ends(store: Path, home: Path, apaches: set[str], ours: set[str], *flags: str) -> None:
    """RocketPy asks for what is open in a store, and ends it with that; kills it."""
    with rocketpy_server(home, *FLAGS, *flags, store=store, clean=False) as address:
        with payer(address, {"a-open", "r-asked"}) as producer:
            work(producer, "r")
            # Apache stored the open one again before each question, and may have marked none of its copies.
            assert came(address, "two", apaches | ours) == Counter(apaches | ours)


def test_what_was_open_at_apache_when_it_was_recorded_is_ended_at_rocketpy(tmp_path: Path):
    """As the test of the soak run below, with the store that Apache left."""
    apaches, ours = ({f"{prefix}-{end}" for end in ("asked", "committed")} for prefix in "ar")
    answers = stored_answers.unpack("transactions", tmp_path)
    assert answers == {"version": "5.5.0", "came": sorted(apaches)}
    flags = stored_answers.OLD_STORE
    rocketpy_ends(tmp_path / "store", tmp_path / "rocketpy", apaches | {"a-open"}, ours, *flags)


@pytest.mark.soak
def test_what_is_open_at_one_broker_is_ended_at_the_other(java: Java, tmp_path: Path):
    apaches, ours = ({f"{prefix}-{end}" for end in ("asked", "committed")} for prefix in "ar")
    with apache_cluster(java, tmp_path, SOON, [TOPIC, "plain"]) as address:
        with payer(address, {"a-asked"}) as producer:
            work(producer, "a")
            for later in ({"delay_level": 1}, {"delay": 0.1}):
                with pytest.raises(rocketpy.NotSupportedError, match="Apache's lose the message"):
                    producer.transaction(Message(TOPIC, b"a-later", **later))
            assert came(address, "one", apaches).keys() == apaches
    answers = {"version": "5.5.0", "came": sorted(apaches)}
    if stored_answers.RECORDS:
        stored_answers.record("transactions", tmp_path / "store", answers)
    assert stored_answers.unpack("transactions", tmp_path / "recorded") == answers

    apaches.add("a-open")
    rocketpy_ends(tmp_path / "store", tmp_path / "rocketpy", apaches, ours)
    ours.add("r-open")
    with apache_cluster(java, tmp_path, SOON, [TOPIC, "plain"]) as address:
        with payer(address, {"r-open"}):
            assert came(address, "three", apaches | ours).keys() == apaches | ours


@pytest.mark.parametrize(
    ("clean", "level_s"),
    [pytest.param(True, 14, id="stopped", marks=pytest.mark.soak), pytest.param(False, 5, id="killed")],
)
def test_what_waits_and_what_is_open_at_apache_4_9_goes_on_at_rocketpy(tmp_path: Path, clean: bool, level_s: int):
    """Delayed messages come once and not before their time, open transactions end as the answers say.

    An orderly stop of Apache takes more than five seconds, so messages wait longer for their delivery by RocketPy.
    "Never" of what is rolled back: not before all others have come and ended.
    """
    settings = SOON | {"messageDelayLevel": f"1s {level_s}s"}
    waiting = {f"waits-{number}" for number in range(20)}
    asked: list[str] = []
    answers: dict[str, Decision] = {}

    def check(message: rocketpy.ReceivedMessage) -> Decision:
        asked.append(message.body.decode())
        return answers.get(asked[-1], Decision.UNKNOWN)

    def member(address: str) -> rocketpy.TransactionProducer:
        return rocketpy.TransactionProducer(GROUP, check, name_servers=[address], send_timeout=30)

    with (
        apache_cluster(set_up_apache_4_9(), tmp_path, settings, [TOPIC, "plain"], clean) as address,
        member(address) as producer,
    ):
        producer.send(Message("plain", b"tells the broker of the producer"))
        work(producer, "a")
        producer.send(Message(TOPIC, b"delivered", delay_level=1))
        at_apache = came(address, "one", {"a-committed", "delivered"})
        assert at_apache == Counter(["a-committed", "delivered"])
        # Apache stores an open one again before each question.
        wait_until(lambda: min(asked.count("a-open"), asked.count("a-asked")) >= 2, "two questions of Apache")
        for body in waiting:
            producer.send(Message(TOPIC, body.encode(), delay_level=2))

    asked.clear()
    answers |= {"a-asked": Decision.COMMIT, "a-open": Decision.ROLLBACK}
    began_ms = time.time_ns() // 1_000_000
    flags = [f"--set={key}={value}" for key, value in settings.items()]
    with (
        rocketpy_server(tmp_path / "rocketpy", *flags, store=tmp_path / "store") as address,
        rocketpy.Admin(address) as admin,
    ):
        with member(address):
            wait_until(lambda: ended(admin) == (1, 1), "the ends of both")
        found = sdk.came(address, TOPIC, "two", waiting | {"a-asked"})
    assert Counter(asked) == Counter(answers.keys())
    counts = Counter(message.body.decode() for message in found)
    if not clean:  # Apache's progress is ten seconds old after a kill
        counts["delivered"] = 1
    assert counts == at_apache + Counter([*waiting, "a-asked"])
    for message in found:
        if message.body.decode() in waiting:
            assert message.stored_at_ms >= max(began_ms, message.born_at_ms + level_s * 1000), message


def ended(admin: rocketpy.Admin) -> tuple[int, int]:
    """How many were committed and rolled back since the broker's start."""
    [one] = admin.brokers()
    figures = admin.broker_figures(one.addresses[0])
    return int(figures["transactionsCommitted"]), int(figures["transactionsRolledBack"])


def test_acknowledged_ends_hold_over_kills_and_what_is_open_is_asked_for_again(tmp_path: Path):
    """A broker is killed again and again: a question has no answer yet, an end was acknowledged just before.

    Each committed message comes once, none that was rolled back; the questions stop when all have ended. The late
    answer is given before the next start or after it, in turns. How soon a broker knows a producer again that sends
    nothing is not shown.
    """
    ports = ("--port", str(free_port()), "--name-server-port", str(free_port()))
    soon = [f"--set={key}=100" for key in SOON]
    lives = 6
    asked: list[str] = []
    ends: dict[str, Decision] = {}
    hold = threading.Event()

    def check(message: rocketpy.ReceivedMessage) -> Decision:
        body = message.body.decode()
        asked.append(body)
        if body.startswith("asked") and body not in ends:
            hold.wait()
        return ends.get(body, Decision.UNKNOWN)

    def broker() -> contextlib.AbstractContextManager[str]:
        return rocketpy_server(tmp_path, *soon, *ports, clean=False)

    with contextlib.ExitStack() as kept:
        for life in range(lives):
            answer = Decision.COMMIT if life % 4 < 2 else Decision.ROLLBACK
            with broker() as address:
                if not life:
                    producer = kept.enter_context(
                        rocketpy.TransactionProducer(GROUP, check, name_servers=[address], send_timeout=30)
                    )
                hold.set()  # the answers of the former life
                hold.clear()
                producer.transaction(Message(TOPIC, f"open-{life}".encode()))
                producer.transaction(Message(TOPIC, f"asked-{life}".encode()))
                wait_until(lambda body=f"asked-{life}": body in asked, "the question")
                committed, rolled_back = (
                    producer.transaction(Message(TOPIC, f"{end}-{life}".encode()))
                    for end in ("committed", "rolled back")
                )
                if life % 2:
                    committed.commit()
                    rolled_back.rollback()
                else:
                    rolled_back.rollback()
                    committed.commit()
            ends[f"asked-{life}"] = answer
            if life % 2:
                hold.set()
        asked.clear()
        with broker() as address:
            hold.set()
            producer.send(Message("plain", b"tells the broker of the producer"))
            opened = {f"open-{life}" for life in range(lives)}
            wait_until(lambda: opened <= set(asked), "questions for all that is open")
            ends |= {body: Decision.COMMIT if int(body[-1]) % 2 else Decision.ROLLBACK for body in opened}
            producer.transaction(Message(TOPIC, b"marker"))
            wait_until(lambda: asked[-8:] == 8 * ["marker"], "the end of all other questions")
            wanted = {f"committed-{life}" for life in range(lives)}
            wanted |= {body for body, end in ends.items() if end is Decision.COMMIT}
            assert came(address, "reader", wanted) == Counter(wanted)


def until(process: subprocess.Popen, *wanted: dict[str, str]) -> None:
    """Reads what a member prints until all of these were there."""
    missing = list(wanted)
    for line in lines(process):
        missing = [one for one in missing if one != line]
        if not missing:
            return
    raise AssertionError(f"the member ended without {missing}")


def test_half_messages_outlive_their_producer_and_their_broker(java: Java, go: Go, tmp_path: Path):
    """Every message that is committed comes once, and no other.

    A Java producer is killed while one transaction is under way, the answer for another is due, and a third one is left
    open; a Go producer of the same group ends them. Another Java producer lives on while the broker is killed: one
    transaction is under way, and one open. Chance decides whether its answer for the former arrives.
    """
    ports = ("--port", str(free_port()), "--name-server-port", str(free_port()))

    def broker():
        return rocketpy_server(tmp_path, *FLAGS, *ports, clean=False)

    def member(address: str, *keys: str):
        return running(java.command("Members", tmp_path / "payer", "payer", address, TOPIC, GROUP, *keys))

    kept = contextlib.ExitStack()
    first = {"committed-0", "hanging-2", "mute-6"}
    with broker() as address, rocketpy.Admin(address) as admin:
        admin.create_topic(TOPIC)
        with member(address, *first, "rolled-1", "open-3") as dies:
            until(dies, *({"half": key} for key in (*first, "rolled-1", "open-3")), {"asked": "mute-6"})
        takes_over = go.start_driver(tmp_path, "asked", address, TOPIC, "3", GROUP)
        until(takes_over, {"asked": "hanging-2"}, {"asked": "mute-6"}, {"asked": "open-3"})
        first.add(f"{GROUP}-0")  # of the Go driver itself
        wait_until(lambda: ended(admin) == (len(first), 2), "the ends that Go tells")
        stop(takes_over)
        stays = kept.enter_context(member(address, "hanging-4", "open-5"))
        until(stays, {"half": "hanging-4"}, {"half": "open-5"}, {"asked": "open-5"})

    with kept, broker() as address, rocketpy.Admin(address) as admin:
        assert stays.stdin is not None
        stays.stdin.write("commit\n")
        stays.stdin.flush()
        wait_until(lambda: ended(admin) == (2, 0), "the ends that Java tells", process=stays)
        wanted = first | {"hanging-4", "open-5"}
        assert came(address, "reader", wanted) == Counter(wanted)

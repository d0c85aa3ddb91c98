"""Transactions in one open format: what was left open at one broker is ended at the other, after a kill.

Shows that RocketPy's producer works with Apache's broker as with its own, and that each broker knows from the other's
store which half messages are open. Says nothing of power loss.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketpy
import sdk
from peers import Java, apache_cluster, rocketpy_server
from rocketpy import Decision, Message

TOPIC = "paid"
GROUP = "payers"
SOON = {"transactionTimeOut": 1000, "transactionCheckInterval": 1000}


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
        producer.begin(Message(TOPIC, f"{prefix}-{end}".encode()))
    with producer.begin(Message(TOPIC, f"{prefix}-committed".encode(), tag="A", keys=["k"])):
        pass
    producer.begin(Message(TOPIC, f"{prefix}-rolled back".encode())).rollback()


def came(address: str, group: str, wanted: set[str]) -> Counter[str]:
    return Counter(message.body.decode() for message in sdk.came(address, TOPIC, group, wanted))


def test_what_is_open_at_one_broker_is_ended_at_the_other(java: Java, tmp_path: Path):
    flags = [word for key, value in SOON.items() for word in ("--set", f"{key}={value}")]
    apaches, ours = ({f"{prefix}-{end}" for end in ("asked", "committed")} for prefix in "ar")
    with apache_cluster(java, tmp_path, SOON, [TOPIC, "plain"]) as address:
        with payer(address, {"a-asked"}) as producer:
            work(producer, "a")
            for later in ({"delay_level": 1}, {"delay": 0.1}):
                with pytest.raises(rocketpy.NotSupportedError, match="Apache's lose the message"):
                    producer.begin(Message(TOPIC, b"a-later", **later))
            assert came(address, "one", apaches).keys() == apaches

    apaches.add("a-open")
    with rocketpy_server(tmp_path / "rocketpy", *flags, store=tmp_path / "store", clean=False) as address:
        with payer(address, {"a-open", "r-asked"}) as producer:
            work(producer, "r")
            # Apache stored the open one again before each question, and may have marked none of its copies.
            assert came(address, "two", apaches | ours) == Counter(apaches | ours)

    ours.add("r-open")
    with apache_cluster(java, tmp_path, SOON, [TOPIC, "plain"]) as address:
        with payer(address, {"r-open"}):
            assert came(address, "three", apaches | ours).keys() == apaches | ours

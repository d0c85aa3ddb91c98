"""Reads of a cluster in which a broker accepts connections and answers nothing."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import rocketpy
import rocketpy.testing
from ports import free_port
from rocketpy import Message, RequestTimeoutError
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

AWAY = "127.0.0.2"
"""Address at which the second broker is registered, and where another socket listens."""
SHORT = {"api_timeout": 1.5, "connect_timeout": 1.5}
SENT = 8


class Silent:
    """A socket that accepts connections, reads what arrives, and answers nothing."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_server((AWAY, port))
        self._accepted: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self._accepted.append(self.socket.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        self.socket.close()
        for one in self._accepted:
            one.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketpy.Server]:
    """Two brokers with messages, a group and dead letters; then `broker-b` is one that answers nothing."""
    folder, port = tmp_path_factory.mktemp("cluster"), free_port(1)
    small: dict[str, Any] = dict(rocketpy.testing.SMALL_FILES)
    other: dict[str, Any] = {**small, "brokerName": "broker-b", "listenPort": port}
    with ExitStack() as stack:
        server = stack.enter_context(rocketpy.Server(folder / "a", settings=small))
        names = server.name_server
        with rocketpy.Broker(folder / "b", name_servers=names, port=port, settings=other), server.admin() as admin:
            admin.create_topic("orders", queues=2)
            admin.create_group("mailer")
            admin.reset_offsets("mailer", "orders", "earliest")
            admin.create_topic("%DLQ%mailer", queues=1)
            with server.producer("filler") as producer:
                for topic in ("orders", "%DLQ%mailer"):
                    for queue in admin.queues(topic):
                        for number in range(SENT // 4):
                            producer.send(Message(topic, b"text", keys=[f"key-{number}"]), queue=queue)
            wait_until(lambda: len(admin.query_messages("orders", "key-0")) == 4)
        stack.enter_context(
            rocketpy.Broker(folder / "b", name_servers=names, port=port, settings={**other, "brokerIP1": AWAY})
        )
        stack.callback(Silent(port).close)
        with server.admin() as admin:
            wait_until(lambda: f"{AWAY}:{port}" in [one.addresses[0] for one in admin.brokers()])
        yield server


@pytest.fixture
def admin(cluster: rocketpy.Server) -> Iterator[rocketpy.Admin]:
    with cluster.admin(**SHORT) as admin:
        yield admin


def test_the_status_of_the_others_is_known(admin: rocketpy.Admin):
    found = admin.status()
    here, away = found.brokers
    assert (here.error, here.answered_at is not None) == (None, True)
    assert (away.broker_name, away.disk_used, away.answered_at) == ("broker-b", None, None)
    assert "timed out" in away.error
    assert [(one.broker_name, one.address) for one in found.missing] == [("broker-b", away.address)]
    assert found.errors == ()
    assert found.delayed == 0
    (group,) = found.groups
    assert (group.name, group.topics, group.error) == ("mailer", ("orders",), None)
    assert (group.lag, group.dead_letters, group.missing) == (SENT // 2, SENT // 4, ("broker-b",))


def test_asyncio_has_the_same_status(cluster: rocketpy.Server, admin: rocketpy.Admin):
    async def main() -> rocketpy.ClusterStatus:
        async with rocketpy.AsyncAdmin(cluster.name_server, **SHORT) as twin:
            with pytest.raises(RequestTimeoutError):
                await twin.groups()
            return await twin.status()

    assert asyncio.run(main()).groups == admin.status().groups


def test_changes_are_made_at_the_others(admin: rocketpy.Admin):
    here, away = admin.update_group("mailer", retries=7)
    assert (here.broker_name, here.before, here.after, here.error) == ("broker-a", 16, 7, None)
    assert (away.broker_name, away.before, away.after) == ("broker-b", None, 7)
    assert "timed out" in away.error
    assert [one.broker_name for one in admin.update_group("mailer", retries=7)] == ["broker-b"]
    settings = admin.group_settings("mailer", partial=True)
    assert [(one.broker_name, one.retries) for one in settings] == [("broker-a", 7)]
    assert [one.broker_name for one in settings.missing] == ["broker-b"]
    with pytest.raises(RequestTimeoutError, match="settings of group mailer at broker-b are unknown"):
        admin.group_settings("mailer")
    (away,) = admin.update_topic("orders", writable=True)
    assert (away.broker_name, "timed out" in away.error) == ("broker-b", True)


def test_reads_that_want_all_brokers_name_the_one_that_does_not_answer(admin: rocketpy.Admin):
    calls = (admin.groups, partial(admin.group_lag, "mailer"), partial(admin.describe_topic, "orders"))
    with ThreadPoolExecutor(len(calls)) as pool:
        for asked in [pool.submit(call) for call in calls]:
            with pytest.raises(RequestTimeoutError, match=AWAY):
                asked.result()


READS = {
    "groups": ((), lambda found: [one.name for one in found] == ["mailer"]),
    "group_lag": (("mailer",), lambda found: sum(one.lag for one in found) == SENT // 2),
    "group_members": (("mailer",), lambda found: found == []),
    "describe_group": (("mailer",), lambda found: found == []),
    "producer_connections": (("filler",), lambda found: found == []),
    "dead_letter_groups": ((), lambda found: [(one.group, one.count) for one in found] == [("mailer", SENT // 4)]),
    "query_messages": (("orders", "key-0"), lambda found: len(found) == 2),
    "describe_topic": (("orders",), lambda found: {one.queue.broker_name for one in found.queues} == {"broker-a"}),
}


def test_a_partial_read_has_what_the_others_know(admin: rocketpy.Admin):
    def read(call: str) -> Any:
        return getattr(admin, call)(*READS[call][0], partial=True)

    with ThreadPoolExecutor(len(READS)) as pool:
        answers = dict(zip(READS, pool.map(read, READS), strict=True))
    for call, found in answers.items():
        assert READS[call][1](found), (call, found)
        (missing,) = found.missing
        assert missing.broker_name == "broker-b", call
        assert "timed out" in missing.error, call


def test_topics_and_members_are_those_of_the_others(admin: rocketpy.Admin):
    topics = admin.topic_status(["orders", "there-is-no-such-topic"])
    assert [(one.name, one.messages, one.groups, one.missing) for one in topics] == [
        ("orders", SENT // 2, ("mailer",), ("broker-b",))
    ]
    assert [one.broker_name for one in topics.missing] == ["broker-b"]
    assert [one.broker_name for one in admin.running_members("mailer").missing] == ["broker-b"]
    retries = admin.waiting_retries("mailer")
    assert (retries.messages, retries.is_complete, len(retries.missing)) == (0, False, 1)


def test_dead_letters_of_the_others_come_before_the_error(admin: rocketpy.Admin):
    letters = admin.dead_letters("mailer")
    assert [next(letters).message.body for _ in range(SENT // 4)] == [b"text"] * (SENT // 4)
    with pytest.raises(RequestTimeoutError, match="dead letters of group mailer at broker-b are unknown"):
        next(letters)


def test_a_message_at_a_broker_that_answers_is_found_by_its_id(cluster: rocketpy.Server, admin: rocketpy.Admin):
    with cluster.producer("filler", **SHORT) as producer:
        (queue, *_) = (one for one in admin.queues("orders") if one.broker_name == "broker-a")
        receipt = producer.send(Message("orders", b"found"), queue=queue)
    found: list[rocketpy.ReceivedMessage | None] = []

    def is_found() -> bool:
        try:
            found.append(admin.message("orders", receipt.msg_id))
        except RequestTimeoutError:  # not in the index yet: the other broker may have it
            return False
        return found[-1] is not None

    wait_until(is_found)
    assert found[-1].body == b"found"
    assert admin.view_message(receipt.offset_msg_id).body == b"found"

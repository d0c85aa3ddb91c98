"""Denied clients: the error comes at once, is final, and its hint grants all that the call needs."""

from __future__ import annotations

import asyncio
import functools
import re
from typing import TYPE_CHECKING, Any

import pytest

import rocketpy
from rocketpy.testing import fresh_name
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from closed_server import ClosedServer

GRANT = re.compile(r"`rocketpy acl grant (\S+) '?(\S+?)'? (\S+)`")


class Case:
    """A topic, a group and a user without any right."""

    def __init__(self, server: ClosedServer) -> None:
        self.server = server
        self.topic, self.group = fresh_name("topic"), fresh_name("group")
        self.user = server.new_user()
        self.options: dict[str, Any] = {"name_servers": server.name_servers, "credentials": self.user}
        with server.admin() as admin:
            admin.create_topic(self.topic, queues=1)

    def grant(self, *policies: tuple[str, str]) -> None:
        with self.server.admin() as admin:
            for resource, actions in policies:
                admin.grant(self.user.access_key, resource, actions)

    def send_as_admin(self) -> None:
        with self.server.producer("shop") as producer:
            producer.send(rocketpy.Message(self.topic, b"text"))

    def admin(self) -> rocketpy.Admin:
        return rocketpy.Admin(**self.options)


@pytest.fixture
def case(closed_server: ClosedServer) -> Case:
    return Case(closed_server)


def send(case: Case) -> None:
    with rocketpy.Producer("shop", **case.options) as producer:
        producer.send(rocketpy.Message(case.topic, b"text"))


def consume(case: Case) -> None:
    rocketpy.Consumer(case.group, case.topic, **case.options).close()


def push(case: Case) -> None:
    consumer = rocketpy.PushConsumer(case.group, **case.options)
    consumer.on(case.topic)(print)
    consumer.start().close()


def read_range(case: Case) -> None:
    queue = rocketpy.MessageQueue(case.topic, "broker-a", 0)
    case.send_as_admin()
    with rocketpy.RangeReader(queue, 0, 1, **case.options) as reader:
        assert [one.num_rows for one in reader] == [1]


def create_topic(case: Case) -> None:
    with case.admin() as admin:
        admin.create_topic(f"{case.topic}-new", queues=1)


def delete_topic(case: Case) -> None:
    with case.admin() as admin:
        admin.delete_topic(case.topic)


def create_group(case: Case) -> None:
    with case.admin() as admin:
        admin.create_group(case.group)


def describe_topic(case: Case) -> None:
    with case.admin() as admin:
        admin.describe_topic(case.topic)


@pytest.mark.parametrize(
    "call",
    [send, consume, push, read_range, create_topic, delete_topic, create_group, describe_topic],
    ids=lambda call: call.__name__,
)
def test_hint_of_a_denial_grants_all_that_the_call_needs(case: Case, call: Callable[[Case], None]):
    with pytest.raises(rocketpy.AccessDeniedError) as caught:
        call(case)
    assert not caught.value.retryable
    policies = GRANT.findall(str(caught.value.hint))
    assert {user for user, _, _ in policies} == {case.user.access_key}, caught.value.hint
    case.grant(*[(resource, actions) for _, resource, actions in policies])
    call(case)


@pytest.mark.parametrize("missing", ["Group", "Topic"])
def test_consumers_without_a_right_raise_at_their_start(case: Case, missing: str):
    case.grant((f"Topic:{case.topic}", "Pub" if missing == "Topic" else "Sub"))
    if missing == "Topic":
        case.grant((f"Group:{case.group}", "Sub"))
    names = f"Topic:{case.topic}.*Group:{case.group} Sub"
    with pytest.raises(rocketpy.AccessDeniedError) as caught:
        consume(case)
    assert re.search(names, str(caught.value.hint)), caught.value.hint
    consumer = rocketpy.PushConsumer(case.group, **case.options)
    consumer.on(case.topic)(print)
    with pytest.raises(rocketpy.AccessDeniedError):
        consumer.run()

    async def by_asyncio() -> None:
        with pytest.raises(rocketpy.AccessDeniedError):
            async with rocketpy.AsyncConsumer(case.group, case.topic, **case.options):
                pass
        pushed = rocketpy.AsyncPushConsumer(case.group, **case.options)
        pushed.on(case.topic)(print)
        with pytest.raises(rocketpy.AccessDeniedError):
            await pushed.run()

    asyncio.run(by_asyncio())


def denial_of(consumer: rocketpy.Consumer[bytes] | rocketpy.PushConsumer) -> str | None:
    return consumer.state().denied


def poll_for_ever(consumer: rocketpy.Consumer[bytes]) -> None:
    while True:
        consumer.poll(timeout=60)


def test_revoked_right_is_an_error_of_poll_state_and_health(case: Case):
    policies = [(f"Topic:{case.topic}", "Sub"), (f"Group:{case.group}", "Sub")]
    case.grant(*policies)
    push_group = fresh_name("push")
    case.grant((f"Group:{push_group}", "Sub"))
    pushed = rocketpy.PushConsumer(push_group, **case.options)
    pushed.on(case.topic)(print)
    with rocketpy.Consumer(case.group, case.topic, **case.options) as consumer, pushed:
        assert consumer.poll(timeout=0.1) == []
        assert rocketpy.health.check(consumer, pushed).ok
        with case.server.admin() as admin:
            admin.revoke(case.user.access_key, f"Topic:{case.topic}")
        case.send_as_admin()  # ends the pulls that wait at the broker; the next ones are denied
        with pytest.raises(rocketpy.AccessDeniedError):
            poll_for_ever(consumer)
        for one in (consumer, pushed):
            wait_until(functools.partial(denial_of, one), "the denial")
            [problem] = rocketpy.health.check(one).problems
            assert f"Topic:{case.topic}" in problem
        case.grant(*policies)  # for the commits at the end


def test_denied_sends_of_all_kinds_are_not_tried_again(case: Case):
    with (
        rocketpy.Producer("shop", **case.options) as producer,
        rocketpy.TransactionProducer("shop-tx", lambda _: rocketpy.Decision.UNKNOWN, **case.options) as transactions,
    ):
        message = rocketpy.Message(case.topic, b"text")
        calls: list[Callable[[], Any]] = [
            lambda: producer.send(message),
            lambda: producer.submit(message).result(60),
            lambda: producer.send_many([message, message]),
            lambda: transactions.transaction(message),
        ]
        case.grant((f"Topic:{case.topic}", "Get"))  # the route is known, the send is denied
        for call in calls:
            with pytest.raises(rocketpy.RocketPyError) as caught:
                call()
            assert "has no permission" in str(caught.value)
            assert "attempts" not in str(caught.value)


def test_topic_that_a_user_cannot_create_is_missing(case: Case):
    topic = f"{case.topic}-missing"
    case.grant((f"Topic:{topic}", "Pub"))
    with rocketpy.Producer("shop", send_timeout=5, **case.options) as producer:
        with pytest.raises(rocketpy.TopicNotFoundError):
            producer.send(rocketpy.Message(topic, b"text"))


def test_bad_signature_names_the_user_and_where_its_secret_is(closed_server: ClosedServer):
    wrong = rocketpy.Credentials("admin", "of somebody else")
    with closed_server.admin(credentials=wrong) as admin, pytest.raises(rocketpy.AccessDeniedError) as caught:
        admin.topics()
    hint = str(caught.value.hint)
    for part in ("the user admin", "--credentials", "ROCKETPY_CREDENTIALS", "ROCKETPY_SECRET_KEY"):
        assert part in hint
    assert "user update NAME" not in hint
    assert "of somebody else" not in f"{caught.value}{hint}"

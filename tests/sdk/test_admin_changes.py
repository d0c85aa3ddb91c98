"""Changes of settings, offsets, messages and leftovers by `Admin`, on two brokers that the tests of this file share."""

import asyncio
import itertools
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import rocketpy
from rocketpy import Admin, Broker, Message, PushConsumer
from rocketpy.admin import drain_calls
from rocketpy.testing import fresh_name
from rocketpy.testkit import SMALL_FILES
from waiting import wait_until

BROKERS = ("first", "second")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    """Two masters at one name server."""
    folder = tmp_path_factory.mktemp("brokers")
    with ExitStack() as servers:
        names = servers.enter_context(rocketpy.NameServer())
        yield {
            name: servers.enter_context(
                Broker(folder / name, name_servers=names.name_server, settings={**SMALL_FILES, "brokerName": name})
            )
            for name in BROKERS
        }


@pytest.fixture(scope="module")
def admin(brokers: dict[str, Broker]) -> Iterator[Admin]:
    with Admin(brokers["first"].name_servers, api_timeout=60) as admin:
        wait_until(lambda: len(admin.brokers()) == len(BROKERS), "both brokers are registered")
        yield admin


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drains and moves look each 50 ms."""
    monkeypatch.setattr(drain_calls, "PACE_SECONDS", 0.05)


def servers(brokers: dict[str, Broker]) -> list[str]:
    return brokers["first"].name_servers


def changed(changes: list[rocketpy.SettingChange]) -> set[tuple]:
    assert [one.error for one in changes] == [None] * len(changes)
    return {(one.broker_name, one.setting, one.before, one.after) for one in changes}


def stored(brokers: dict[str, Broker], admin: Admin, topic: str, *bodies: str, **options) -> list[rocketpy.Receipt]:
    """Sends messages, and waits until the index has them."""
    with rocketpy.Producer("senders", name_servers=servers(brokers), send_timeout=60) as producer:
        receipts = [producer.send(Message(topic, body.encode(), **options)) for body in bodies]
    wait_until(lambda: admin.message(topic, receipts[-1].msg_id), "the index has the message")
    return receipts


def test_settings_of_a_topic_change_at_each_broker_and_a_dry_run_changes_none(admin: Admin):
    topic = fresh_name("update")
    admin.create_topic(topic, queues=2, attributes={"retention.hours": "24"})
    wanted = {"writable": False, "attributes": {"retention.hours": "12"}}
    expected = {
        change
        for name in BROKERS
        for change in ((name, "writable", True, False), (name, "retention.hours", "24", "12"))
    }
    assert changed(admin.update_topic(topic, **wanted, dry_run=True)) == expected
    assert all(one.writable for one in admin.describe_topic(topic).brokers)
    assert changed(admin.update_topic(topic, **wanted)) == expected
    assert admin.update_topic(topic, **wanted) == []
    described = admin.describe_topic(topic).brokers
    assert [(one.writable, one.attributes, one.read_queues) for one in described] == [
        (False, {"retention.hours": "12"}, 2)
    ] * 2
    assert changed(admin.update_topic(topic, 4, broker="second", writable=True)) == {
        ("second", "read_queues", 2, 4), ("second", "write_queues", 2, 4), ("second", "writable", False, True),
    }  # fmt: skip
    with pytest.raises(rocketpy.TopicNotFoundError):
        admin.update_topic(fresh_name("missing"), 4)
    with pytest.raises(rocketpy.BrokerNotFoundError, match="third"):
        admin.update_topic(topic, 4, broker="third")
    with pytest.raises(rocketpy.InvalidArgumentError, match="read_queues must be 1 or more"):
        admin.update_topic(topic, 0)


def test_a_refused_setting_is_told_by_broker_and_queues_with_messages_stay(brokers, admin: Admin):
    topic = fresh_name("refused")
    admin.create_topic(topic, queues=2, broker="first")
    (change,) = admin.update_topic(topic, attributes={"retention.hours": "never"})
    assert (change.broker_name, change.setting) == ("first", "retention.hours")
    assert change.error is not None
    assert "never" in change.error
    stored(brokers, admin, topic, *"abcd")
    with pytest.raises(rocketpy.InvalidArgumentError, match="the removed queues hold"):
        admin.update_topic(topic, 1)
    assert changed(admin.update_topic(topic, 1, force=True)) == {
        ("first", "read_queues", 2, 1), ("first", "write_queues", 2, 1)
    }  # fmt: skip


def test_a_topic_of_a_read_only_broker_keeps_its_own_permission(admin: Admin, brokers):
    topic = fresh_name("drained")
    admin.create_topic(topic, queues=1, broker="second")
    admin.update_broker_config(brokers["second"].broker, {"brokerPermission": 4})
    try:
        wait_until(lambda: not admin.describe_topic(topic).brokers[0].writable, "the route is read only")
        assert changed(admin.update_topic(topic, 2)) == {
            ("second", "read_queues", 1, 2), ("second", "write_queues", 1, 2)
        }  # fmt: skip
        admin.create_topic(topic, 3, broker="second")
    finally:
        admin.update_broker_config(brokers["second"].broker, {"brokerPermission": 6})
    wait_until(lambda: admin.describe_topic(topic).brokers[0].writable, "the topic is writable again")


def test_settings_of_a_group_change_where_it_is_and_bad_values_change_nothing(admin: Admin):
    group = fresh_name("group")
    admin.create_group(group)
    expected = {change for name in BROKERS for change in ((name, "retries", 16, 3), (name, "enabled", True, False))}
    assert changed(admin.update_group(group, retries=3, enabled=False, dry_run=True)) == expected
    assert changed(admin.update_group(group, retries=3, enabled=False)) == expected
    assert admin.update_group(group, retries=3, enabled=False) == []
    assert changed(admin.update_group(group, enabled=True, broker="first")) == {("first", "enabled", False, True)}
    with pytest.raises(rocketpy.InvalidArgumentError, match="retry_queues must be from 0 to 16384: -1"):
        admin.update_group(group, retry_queues=-1)
    with pytest.raises(TypeError, match="tries is not a setting of a group"):
        admin.update_group(group, tries=3)  # type: ignore[call-arg]
    with pytest.raises(rocketpy.GroupNotFoundError):
        admin.update_group(fresh_name("missing"), retries=3)
    with pytest.raises(rocketpy.BrokerNotFoundError, match="third"):
        admin.update_group(group, retries=3, broker="third")
    assert changed(admin.update_group(group, retries=3, enabled=True)) == {("second", "enabled", False, True)}


def test_settings_of_a_group_are_known_at_each_broker_that_has_it(admin: Admin):
    group = fresh_name("group")
    admin.create_group(group)
    assert [(one.broker_name, one.enabled, one.retries) for one in admin.group_settings(group)] == [
        ("first", True, 16), ("second", True, 16)
    ]  # fmt: skip
    changes = {"enabled": False, "broadcast": False, "retries": 3, "retry_queues": 2, "notify_members": False,
               "ordered": True, "timeout_minutes": 5}  # fmt: skip
    admin.update_group(group, broker="second", **changes)
    first, second = admin.group_settings(group)
    assert (first.enabled, first.ordered, second.address) == (True, False, admin.brokers()[1].addresses[0])
    assert {name: getattr(second, name) for name in changes} == changes
    with pytest.raises(rocketpy.GroupNotFoundError):
        admin.group_settings(fresh_name("missing"))


def test_the_plan_of_a_reset_has_the_offsets_of_the_reset_and_stores_none(brokers, admin: Admin):
    topic, group = fresh_name("plan"), fresh_name("group")
    admin.create_topic(topic, queues=1)
    admin.create_group(group)
    stored(brokers, admin, topic, "1", "2", "3")
    queues = admin.queues(topic)
    wait_until(lambda: sum(map(admin.max_offset, queues)) == 3, "all are readable")
    for where in ("latest", "earliest"):
        plan = admin.plan_reset(group, topic, where)
        assert [one.queue for one in plan] == queues
        assert [one.before for one in plan] == [admin.committed_offset(group, queue) for queue in queues]
        assert {one.queue: one.after for one in plan} == admin.reset_offsets(group, topic, where)
        assert sum(one.after for one in plan) == (3 if where == "latest" else 0)
    with pytest.raises(rocketpy.GroupNotFoundError):
        admin.plan_reset(fresh_name("missing"), topic, "latest")
    with pytest.raises(rocketpy.TopicNotFoundError):
        admin.plan_reset(group, fresh_name("missing"), "latest")
    with rocketpy.Consumer(group, topic, name_servers=servers(brokers)) as consumer:
        wait_until(consumer.assignment, "the member has its queues")
        with pytest.raises(rocketpy.GroupConflictError):
            admin.plan_reset(group, topic, "latest")
        assert len(admin.plan_reset(group, topic, "latest", force=True)) == 2


def test_an_offset_is_set_within_the_queue_of_a_stopped_group(brokers, admin: Admin):
    topic, group = fresh_name("offsets"), fresh_name("reader")
    admin.create_topic(topic, queues=1, broker="first")
    queue = stored(brokers, admin, topic, *"abc")[0].queue
    with pytest.raises(rocketpy.GroupNotFoundError):
        admin.set_offset(group, queue, 1)
    admin.create_group(group)
    plan = admin.set_offset(group, queue, 2, dry_run=True)
    assert (plan.before, plan.after, admin.committed_offset(group, queue)) == (None, 2, None)
    assert admin.set_offset(group, queue, 2) == plan
    assert admin.committed_offset(group, queue) == 2
    assert admin.set_offset(group, queue, "earliest").after == 0
    assert admin.set_offset(group, queue, "latest").after == 3
    with pytest.raises(rocketpy.OffsetError, match="4"):
        admin.set_offset(group, queue, 4)
    with pytest.raises(rocketpy.OffsetError):
        admin.set_offset(group, queue, 4, dry_run=True)
    with pytest.raises(rocketpy.InvalidArgumentError, match="system"):
        admin.set_offset("CID_RMQ_SYS_TRANS", queue, 1)
    with rocketpy.Consumer(group, topic, name_servers=servers(brokers)) as consumer:
        wait_until(consumer.assignment, "the member has the queue")
        with pytest.raises(rocketpy.GroupConflictError):
            admin.set_offset(group, queue, 1)
        assert admin.set_offset(group, queue, 1, force=True, dry_run=True).before == 3


def test_a_message_is_sent_again_once_byte_for_byte(brokers, admin: Admin):
    topic, other = fresh_name("source"), fresh_name("target")
    admin.create_topic(topic, queues=1, broker="first")
    admin.create_topic(other, queues=1, broker="second")
    body = bytes(range(256)) * 40
    with rocketpy.Producer("senders", name_servers=servers(brokers)) as producer:
        message = Message(topic, body, tag="t", keys=["k"], order_key="o", properties={"colour": "red"})
        msg_id = producer.send(message).msg_id
    wait_until(lambda: admin.message(topic, msg_id), "the index has the message")
    assert admin.resend_message(topic, msg_id, to=other, dry_run=True).receipt is None
    sent = admin.resend_message(topic, msg_id, to=other)
    assert sent.receipt is not None
    wait_until(lambda: admin.message(other, sent.receipt.msg_id), "the index has the copy")
    copy = admin.message(other, sent.receipt.msg_id)
    assert copy is not None
    assert (copy.body, copy.tag, copy.keys, copy.order_key) == (body, "t", ("k",), "o")
    assert copy.properties["colour"] == "red"
    assert (copy.properties["rocketpyOriginTopic"], copy.properties["rocketpyOriginMsgId"]) == (topic, msg_id)
    second = admin.resend_message(topic, msg_id, to=other)
    assert (second.sent_before, second.receipt) == (True, None)
    assert admin.resend_message(topic, msg_id, to=other, again=True).receipt is not None
    with pytest.raises(rocketpy.RefusedError, match=r"no message of topic .* has id") as missing:
        admin.resend_message(topic, "0" * 32)
    assert missing.value.code == 22
    with pytest.raises(rocketpy.TopicNotFoundError):
        admin.resend_message(topic, msg_id, to=fresh_name("missing"))
    with pytest.raises(rocketpy.GroupNotFoundError):
        admin.resend_message(topic, msg_id, group=fresh_name("missing"))


def test_a_message_goes_again_to_one_group_by_its_retry_topic_or_at_once(brokers, admin: Admin):
    topic, group, others = fresh_name("again"), fresh_name("wanted"), fresh_name("others")
    admin.create_topic(topic, queues=1, broker="first")
    seen: dict[str, list[bytes]] = {group: [], others: []}
    with ExitStack() as members:
        for name in seen:
            member = PushConsumer(name, name_servers=servers(brokers))
            member.on(topic)(lambda message, name=name: seen[name].append((message.topic, message.body)))
            members.enter_context(member)
        (receipt,) = stored(brokers, admin, topic, "once")
        wait_until(lambda: all(seen.values()), "both groups have the message")
        result = admin.consume_directly(topic, receipt.msg_id, group)
        assert (result.result, result.error) == ("success", None)
        assert seen[group] == [(topic, b"once")] * 2
        sent = admin.resend_message(topic, receipt.msg_id, group=group)
        assert sent.topic == f"%RETRY%{group}"
        wait_until(lambda: len(seen[group]) == 3, "the group has the copy")
        assert seen == {group: [(topic, b"once")] * 3, others: [(topic, b"once")]}
        with pytest.raises(rocketpy.RefusedError, match="nobody"):
            admin.consume_directly(topic, receipt.msg_id, group, client_id="nobody")
    wait_until(lambda: not admin.group_members(group), "the member has left")
    with pytest.raises(rocketpy.RefusedError, match="has no live member"):
        admin.consume_directly(topic, receipt.msg_id, group)


def test_unused_offsets_are_removed_and_those_in_use_stay(tmp_path: Path):
    with rocketpy.Server(tmp_path, settings=SMALL_FILES) as server, server.admin() as admin:
        admin.create_topic("orders", queues=1)
        admin.create_group("billing")
        with server.producer("senders") as producer:
            queue = producer.send(Message("orders", b"one")).queue
        admin.set_offset("billing", queue, 1)
    file = tmp_path / "config/consumerOffset.json"
    unused = '"offsetTable":{"orders@gone":{0:1},"deleted@billing":{0:5},"orders@CID_RMQ_SYS_X":{0:1},'
    file.write_text(file.read_text().replace('"offsetTable":{', unused))
    with rocketpy.Server(tmp_path, settings=SMALL_FILES) as server, server.admin() as admin:
        found = [
            ("broker-a", "offsets", "offsets of group gone, which does not exist, in orders"),
            ("broker-a", "offsets", "offsets in topic deleted, which does not exist, of billing"),
        ]
        plan = admin.clean_broker("broker-a", offsets=True, dry_run=True)
        assert [(one.broker_name, one.kind, one.found) for one in plan] == found
        done = admin.clean_broker(server.broker, offsets=True)
        assert [(one.found, one.is_removed, one.error) for one in done] == [(text, True, None) for *_, text in found]
        assert admin.clean_broker("broker-a", offsets=True) == []
        (files,) = admin.clean_broker("broker-a", files=True)
        assert (files.is_removed, files.error) == (True, None)
        assert files.found.startswith("files older than 72 hours; the oldest message is of 20")
        assert admin.committed_offset("billing", queue) == 1
        with pytest.raises(rocketpy.BrokerNotFoundError, match="broker-b"):
            admin.clean_broker("broker-b", files=True)
    left = set(re.findall(r'"([^"]+@[^"]+)":', file.read_text()))
    assert left == {"orders@billing", "orders@CID_RMQ_SYS_X"}


def test_the_twin_for_event_loops_changes_the_same(brokers, admin: Admin):
    topic = fresh_name("async")
    admin.create_topic(topic, queues=1)

    async def main() -> tuple[list[rocketpy.SettingChange], list[str]]:
        async with rocketpy.AsyncAdmin(servers(brokers), api_timeout=60) as twin:
            changes = await twin.update_topic(topic, 2, dry_run=True)
            plan = [step.step async for step in twin.move_topic(topic, "first", "second", dry_run=True)]
            return changes, plan

    changes, plan = asyncio.run(main())
    assert len(changes) == 4
    assert plan == ["create", "close", "quiet", "consume", "remove"]


def test_a_topic_moves_under_load_and_loses_nothing(brokers, admin: Admin):
    topic, group = fresh_name("moving"), fresh_name("mover")
    admin.create_topic(topic, queues=2, broker="first", attributes={"retention.hours": "24"})
    seen: list[bytes] = []
    sent: list[bytes] = []
    stop = threading.Event()

    def send() -> None:
        for number in itertools.count():  # each client reads the route at its start, others every 30 s
            with rocketpy.Producer("movers", name_servers=servers(brokers), instance_name=f"{number}") as producer:
                for _ in range(50):
                    if stop.is_set():
                        return
                    sent.append(b"%d" % len(sent))
                    producer.send(Message(topic, sent[-1], delay=0.5 if len(sent) % 10 == 0 else None))

    def member() -> PushConsumer:
        consumer = PushConsumer(group, name_servers=servers(brokers))
        consumer.on(topic)(lambda message: seen.append(message.body))
        return consumer

    def poll() -> None:
        with rocketpy.Consumer(fresh_name("pollers"), topic, name_servers=servers(brokers), auto_commit=1) as consumer:
            while not stop.is_set():
                consumer.poll(timeout=0.2)  # raises no error, also when the source has no topic any more

    with ThreadPoolExecutor(2) as pool, member():
        sender, poller = pool.submit(send), pool.submit(poll)
        try:
            wait_until(lambda: len(seen) > 20, "the load runs")
            admin.update_group(group, retries=5)
            plan = list(admin.move_topic(topic, "first", "second", settle=1, dry_run=True))
            assert [one.state for one in plan] == ["planned"] * 5
            assert not any(one.broker_name == "second" for one in admin.describe_topic(topic).brokers)
            moving = admin.move_topic(topic, "first", "second", settle=1)
            states = [(one.step, one.state) for one in itertools.islice(moving, 3)]
            moving.close()  # interrupted: the next call continues
            assert states == [("create", "done"), ("close", "done"), ("quiet", "waiting")]
            resumed = list(admin.move_topic(topic, "first", "second", settle=1))
            assert [one.step for one in resumed if one.state == "done"] == [one.step for one in plan]
            (place,) = admin.describe_topic(topic).brokers
            assert (place.broker_name, place.read_queues, place.writable) == ("second", 2, True)
            assert admin.update_group(group, broker="second", retries=5, dry_run=True) == [], "groups move too"
            assert place.attributes == {"retention.hours": "24"}
            count = len(sent)
            wait_until(lambda: len(sent) > count + 50, "sends continue at the target")
        finally:
            stop.set()
        sender.result()
        poller.result()
    with member():  # a new member reads the route at once, others within 30 s
        wait_until(lambda: set(seen) == set(sent), "every message was consumed")
    again = list(admin.move_topic(topic, "first", "second", settle=0))
    assert {one.state for one in again} == {"done"}


def test_a_move_that_would_lose_messages_is_refused(brokers, admin: Admin):
    topic, group = fresh_name("unread"), fresh_name("asleep")
    admin.create_topic(topic, queues=1, broker="first")
    (receipt,) = stored(brokers, admin, topic, "one")
    with pytest.raises(rocketpy.RefusedError, match=f"no group consumes topic {topic}: 1 messages"):
        list(admin.move_topic(topic, "first", "second", settle=0))
    admin.create_group(group)
    admin.set_offset(group, receipt.queue, 0)
    with pytest.raises(rocketpy.RequestTimeoutError, match="are not consumed after 0 s"):
        list(admin.move_topic(topic, "first", "second", settle=0, timeout=0))
    admin.set_offset(group, receipt.queue, 1)
    assert list(admin.move_topic(topic, "first", "second", settle=0))[-1].step == "remove"
    for arguments, error, text in [
        (("TBW102", "first", "second"), rocketpy.InvalidArgumentError, "belongs to the system"),
        ((topic, "first", "first"), rocketpy.InvalidArgumentError, "the same broker"),
        ((topic, "first", "third"), rocketpy.BrokerNotFoundError, "third"),
        ((fresh_name("missing"), "first", "second"), rocketpy.TopicNotFoundError, "is not at broker first"),
    ]:
        with pytest.raises(error, match=text):
            list(admin.move_topic(*arguments))


def test_a_drain_notices_every_kind_of_send_and_no_delivery_of_the_broker(brokers, admin: Admin):
    topic = fresh_name("senders")
    admin.create_topic(topic, queues=1, broker="second")
    options = {"name_servers": servers(brokers), "send_timeout": 60}
    with (
        rocketpy.Producer("senders", **options) as producer,
        rocketpy.TransactionProducer("payers", lambda _: rocketpy.Decision.UNKNOWN, **options) as payer,
    ):
        queue = producer.send(Message(topic, b"knows the route")).queue
        payer.send(Message(topic, b"knows the route"))
        drain = admin.drain_broker("second", quiet=600, force=True)
        assert next(drain).permission == 6

        def is_noticed(messages: int) -> bool:
            writes = [(one.topic, one.messages) for step in itertools.islice(drain, 2) for one in step.writes]
            assert writes in ([], [(topic, messages)])
            return bool(writes)

        try:
            assert not is_noticed(0)
            for message in (Message(topic, b"plain"), Message(topic, b"timer", delay=3600)):
                producer.send(message, queue=queue)
                wait_until(lambda: is_noticed(1), f"{message.body!r} is noticed")
            with payer.transaction(Message(topic, b"paid"), queue=queue):
                pass
            wait_until(lambda: is_noticed(1), "the transaction is noticed")
            before = admin.max_offset(queue)
            producer.send(Message(topic, b"soon", delay=1), queue=queue)
            wait_until(lambda: is_noticed(1), "the timer is noticed")
            while admin.max_offset(queue) == before:  # the delivery of the broker is not a send
                assert not is_noticed(0)
            assert not is_noticed(0)
        finally:
            drain.close()
            assert admin.undrain_broker("second") == 6

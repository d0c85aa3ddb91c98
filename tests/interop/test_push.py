"""RocketPy's push consumer at Apache's broker 5.5.0 as at RocketPy's, and beside a Java member in its group."""

import logging
from collections import Counter

import pytest

import rocketpy
from peers import Java, finish, mqadmin
from sdk import fresh, messages, send
from waiting import wait_until


@pytest.fixture(params=["rocketpy", "apache"])
def address(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(f"{request.param}_address")


def made(address: str, queues: int) -> tuple[str, str]:
    """A topic, and a group that is there before its first member."""
    topic, group = fresh("push"), fresh("pushers")
    with rocketpy.Admin(address) as admin:
        admin.create_topic(topic, queues=queues)
    return topic, group


def committed(address: str, group: str, topic: str) -> int:
    with rocketpy.Admin(address) as admin:
        return sum(row.committed_offset or 0 for row in admin.group_lag(group, topic))


def test_retries_and_dead_letters(address: str):
    topic, group = made(address, 2)
    send(address, messages(topic, 10, "one", "TagA"))
    calls = []
    consumer = rocketpy.PushConsumer(group, name_servers=[address], max_retries=2, api_timeout=60)

    @consumer.on(topic, tags="TagA")
    def handle(message):
        calls.append((message.keys[0], message.reconsume_times))
        assert message.topic == topic
        if message.keys[0] in ("one-1", "one-4"):
            raise rocketpy.Reject
        if message.keys[0] == "one-2" and message.reconsume_times == 0:
            raise rocketpy.Retry(delay_level=1)
        if message.keys[0] == "one-3":
            raise ValueError("never")

    with consumer:
        wait_until(lambda: consumer.stats().dead == 3)
        wait_until(lambda: committed(address, group, topic) == 10)
    counts = Counter(key for key, _ in calls)
    assert counts == Counter({f"one-{i}": 1 for i in range(10)}) + Counter({"one-2": 1, "one-3": 2})
    assert [times for key, times in calls if key == "one-3"] == [0, 1, 2]
    with rocketpy.Admin(address) as admin:
        dead = {letter.message.keys[0] for letter in admin.dead_letters(group)}
    assert dead == {"one-1", "one-3", "one-4"}


def test_in_order_with_a_message_that_is_tried_in_its_place_and_one_that_is_given_up(address: str):
    topic, group = made(address, 1)
    send(address, messages(topic, 6, "one"))
    calls = []
    consumer = rocketpy.PushConsumer(
        group, name_servers=[address], ordered=True, retry_pause=0.1, max_retries=1, api_timeout=60
    )

    @consumer.on(topic)
    def handle(message):
        calls.append((message.queue_offset, message.reconsume_times))
        if message.queue_offset == 2 or (message.queue_offset == 4 and message.reconsume_times == 0):
            raise ValueError("not now")

    with consumer:
        wait_until(lambda: committed(address, group, topic) == 6)
    assert calls == [(0, 0), (1, 0), (2, 0), (2, 1), (3, 0), (4, 0), (4, 1), (5, 0)]
    with rocketpy.Admin(address) as admin:
        assert [letter.message.keys[0] for letter in admin.dead_letters(group)] == ["one-2"]


def test_java_and_python_share_the_queues_of_a_group(java: Java, address: str, home):
    topic, group = made(address, 4)
    calls, told = [], set()
    consumer = rocketpy.PushConsumer(
        group,
        name_servers=[address],
        api_timeout=60,
        on_assigned=lambda _, queues: told.update(queues),
        on_revoked=lambda _, queues: told.difference_update(queues),
    )
    consumer.on(topic)(lambda message: calls.append(message.keys[0]))

    def share() -> int:
        assigned = consumer.state().assigned
        return sum(queue.topic == topic for queue in assigned) if told == set(assigned) else 0

    with consumer:
        wait_until(lambda: share() == 4)
        other = java.start_driver(home, "push", address, topic, "20", group)
        wait_until(lambda: share() == 2, process=other)
        send(address, messages(topic, 40, "one"))
        theirs = [one["keys"] for one in finish(other)]
        wait_until(lambda: committed(address, group, topic) == 40)
    assert {*calls, *theirs} == {f"one-{i}" for i in range(40)}
    assert len(calls) == len({*calls})  # what Java had may come here too: it commits now and then
    assert told == set()


def test_another_client_with_the_same_id_is_told(address: str, caplog):
    """Clients of one process that name their name servers differently are as those of two processes."""
    (topic, group), (other_topic, other_group) = made(address, 2), made(address, 1)
    same = {"instance_name": group, "client_ip": "host", "api_timeout": 60, "start": "earliest"}
    with (
        caplog.at_level(logging.WARNING, "rocketpy"),
        rocketpy.Consumer(group, topic, name_servers=address, **same) as first,
        rocketpy.Consumer(group, topic, name_servers=address.replace("127.0.0.1", "localhost"), **same) as second,
    ):
        wait_until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
        with rocketpy.Consumer(other_group, other_topic, name_servers=address, **same):  # has a heartbeat sent
            wait_until(lambda: "another client of the group has the same client id" in caplog.text)


def test_each_member_of_a_broadcast_gets_all_messages_and_goes_on_where_it_was(address: str, home):
    topic, group = made(address, 2)
    got: dict[str, list[str]] = {"one": [], "two": []}

    def member(name: str) -> rocketpy.PushConsumer:
        options = {"broadcast": True, "offsets_folder": home, "instance_name": name, "api_timeout": 60}
        consumer = rocketpy.PushConsumer(group, name_servers=[address], **options)
        consumer.on(topic)(lambda message: got[name].append(message.keys[0]))
        return consumer

    with member("one"), member("two"):
        send(address, messages(topic, 10, "first"))
        wait_until(lambda: [len(keys) for keys in got.values()] == [10, 10])
    send(address, messages(topic, 2, "second"))
    with member("one"):
        wait_until(lambda: len(got["one"]) == 12)
    assert sorted(got["one"]) == sorted([*got["two"], "second-0", "second-1"])


def test_apaches_tools_look_at_a_push_consumer_and_give_it_a_message(java: Java, address: str, home):
    topic, group = made(address, 2)
    calls = []
    consumer = rocketpy.PushConsumer(group, name_servers=[address], api_timeout=60)

    @consumer.on(topic)
    def handle(message):
        calls.append(message.keys[0])
        if len(calls) > 4:
            raise ValueError("not again")

    with consumer:
        first, *_ = send(address, messages(topic, 4, "one"))
        wait_until(lambda: committed(address, group, topic) == 4)
        told = mqadmin(java, home, address, "consumerStatus", "-g", group, "-i", consumer.client_id)
        place = ["-t", topic, "-i", first.offset_msg_id, "-g", group, "-d", consumer.client_id]
        directly = mqadmin(java, home, address, "queryMsgById", *place)
        assert consumer.stats().sent_back == 0
        assert committed(address, group, topic) == 4
    assert calls[4:] == ["one-0"]
    for said in ("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY", topic, f"%RETRY%{group}"):
        assert said in told
    assert "CR_THROW_EXCEPTION" in directly
    assert "ValueError: not again" in directly

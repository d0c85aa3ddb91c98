"""How members of a group share queues: each strategy with several members in one process and in processes."""

import asyncio
import logging
import subprocess
import sys
import threading

import pytest

import rocketpy
from rocketpy import Balance, MessageQueue
from rocketpy.testing import fresh_name
from waiting import wait_until

ALL = list(range(8))
THREAD = "rocketpy-balance"


@pytest.fixture
def group():
    return fresh_name("balanced")


@pytest.fixture
def topic(rocketpy_server):
    """A topic of eight queues."""
    topic = fresh_name("shared")
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=8)
    return topic


@pytest.fixture
def join(rocketpy_server, group, topic):
    """Makes members whose client ids sort by `name`, and closes those that are left at the end."""
    members = []

    def join(name, balance, topic=topic):
        member = rocketpy_server.consumer(
            group, topic, balance=balance, instance_name=name, client_ip="host", handover_timeout=0
        )
        members.append(member)
        return member

    yield join
    for member in members:
        member.close()


def numbers(consumer):
    return [queue.queue_id for queue in consumer.assignment()]


def wait_for_shares(members, shares):
    wait_until(lambda: [numbers(member) for member in members] == shares, f"shares {shares}")


def nobody_asks():
    return THREAD not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    ("balance", "shares"),
    [
        ("average", [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (Balance.CIRCLE, [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (Balance.nearest_room({"": "east"}, {"": "west"}, inner="circle"), [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (Balance.nearest_room({"": "here"}, {"host@a": "here", "": "there"}), [ALL, [], []]),
    ],
    ids=["average", "circle", "no room", "nearest room"],
)
def test_members_share_by_the_rule_and_take_over_from_those_that_leave(join, balance, shares):
    members = [join(name, balance) for name in "abc"]
    wait_for_shares(members, shares)
    for member in members[1:]:
        member.close()
    wait_for_shares(members[:1], [ALL])


def test_a_consistent_hash_moves_only_the_queues_of_the_member_that_leaves(rocketpy_server, join):
    topic = fresh_name("many")
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=64)  # enough for each member to get some

    def share_all(*members):
        return sorted(number for member in members for number in numbers(member)) == list(range(64))

    first, second, third = (join(name, Balance.CONSISTENT_HASH, topic) for name in "abc")
    wait_until(lambda: numbers(first) and numbers(second) and numbers(third) and share_all(first, second, third))
    before = [set(numbers(member)) for member in (first, third)]
    second.close()
    wait_until(lambda: share_all(first, third))
    assert all(old <= set(numbers(member)) for old, member in zip(before, (first, third), strict=True))


def test_a_configured_member_reads_its_queues_and_no_others(rocketpy_server, join, topic, caplog):
    with rocketpy_server.admin() as admin:
        queues = admin.queues(topic)
    missing = MessageQueue(topic, queues[0].broker_name, 99)
    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        first = join("a", Balance.by_configuration([queues[2], missing, queues[5]]))
        second = join("b", Balance.by_configuration(queues[6:]))
        wait_for_shares([first, second], [[2, 5], [6, 7]])
        wait_until(lambda: f"no such queue: {missing}" in caplog.text)
    with pytest.raises(rocketpy.InvalidArgumentError, match="topic that is not read: elsewhere@b#0"):
        join("c", Balance.by_configuration([MessageQueue("elsewhere", "b", 0)]))


def test_a_broker_without_a_room_in_its_name_is_not_read_by_rooms(join):
    member = join("a", Balance.machine_room(["east"]))
    wait_until(lambda: member.state().brokers)  # of a start, or of the members that a round asks for
    assert member.assignment() == []


def test_members_without_a_room_keep_what_they_have_and_the_log_says_whose_it_is(join, caplog):
    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        member = join("a", Balance.nearest_room({"": "east"}, {"10.1.": "east"}))
        wait_until(lambda: f"no room is known of client {member.client_id}" in caplog.text)
    assert member.assignment() == []


def test_a_function_shares_queues_out_in_a_thread_of_its_own(join, group, topic):
    calls, threads = [], set()

    def even_or_odd(*asked):
        calls.append(asked)
        threads.add(threading.current_thread().name)
        _, client_id, queues, members = asked
        return (queue for queue in queues if queue.queue_id % 2 == members.index(client_id))

    first, second = join("a", even_or_odd), join("b", even_or_odd)
    wait_for_shares([first, second], [[0, 2, 4, 6], [1, 3, 5, 7]])
    of_group, client_id, queues, members = calls[-1]
    assert (of_group, [(queue.topic, queue.queue_id) for queue in queues]) == (group, [(topic, n) for n in ALL])
    assert members == sorted([first.client_id, second.client_id])
    assert client_id in members
    assert threads == {THREAD}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ZeroDivisionError("no plan"), "no plan"),
        (SystemExit(3), "SystemExit: 3"),
        ([MessageQueue("other", "b", 1)], "returned a queue outside topic"),
        (7, "'int' object is not iterable"),
    ],
    ids=["raises", "exits", "stranger", "no list"],
)
def test_a_function_that_fails_is_told_once_and_the_queues_stay(join, caplog, fault, said):
    state, failures = {"fault": None}, []

    def plan(group, client_id, queues, members):
        if state["fault"] is None:
            return queues[: 2 + 2 * len(failures)]
        failures.append(members)
        if isinstance(state["fault"], BaseException):
            raise state["fault"]
        return state["fault"]

    def traces():
        return [record.exc_text or "" for record in caplog.records if "failed for topic" in record.getMessage()]

    member = join("a", plan)
    wait_for_shares([member], [[0, 1]])
    with caplog.at_level(logging.ERROR, "rocketpy.client"):
        state["fault"] = fault
        join("b", "average").close()  # the group shares again
        wait_until(lambda: len(failures) > 2, "it is asked again each second")
    assert numbers(member) == [0, 1]
    [trace] = traces()
    assert said in trace
    assert "Traceback" in trace
    del failures[1:]
    state["fault"] = None
    wait_for_shares([member], [[0, 1, 2, 3]])


def test_a_function_that_hangs_holds_up_neither_polls_nor_the_end(rocketpy_server, producer, group, topic):
    entered, leave = threading.Event(), threading.Event()
    is_first = iter([True])

    def plan(group, client_id, queues, members):
        if next(is_first, False):
            return queues
        entered.set()
        leave.wait(60)
        return queues

    with rocketpy_server.consumer(group, topic, balance=plan) as consumer:
        wait_for_shares([consumer], [ALL])
        with rocketpy_server.consumer(group, topic):
            assert entered.wait(60)
        producer.send_many([rocketpy.Message(topic, b"%d" % n) for n in range(20)])
        bodies = set()
        wait_until(lambda: bodies.update(one.body for one in consumer.poll()) or len(bodies) == 20)
        consumer.commit()
    assert not leave.is_set()
    leave.set()
    wait_until(nobody_asks)


def test_the_thread_of_a_function_ends_with_its_consumer(rocketpy_server, group, topic):
    def plan(group, client_id, queues, members):
        return queues

    with rocketpy_server.consumer(group, topic, balance=plan):
        assert not nobody_asks()
    assert nobody_asks()
    with pytest.raises(rocketpy.TopicNotFoundError):
        rocketpy_server.consumer(group, fresh_name("missing"), balance=plan)
    assert nobody_asks()

    async def read():
        servers = rocketpy_server.name_servers
        async with rocketpy.AsyncConsumer(group, topic, name_servers=servers, balance=plan, start="latest") as reader:
            return numbers(reader)

    assert asyncio.run(read()) == ALL
    wait_until(nobody_asks)


def test_what_is_no_balance_is_refused_by_name(rocketpy_server, topic):
    async def plan(group, client_id, queues, members): ...

    for wrong, error, said in [
        ("sticky", rocketpy.InvalidArgumentError, "not a balance: sticky"),
        (7, TypeError, "option balance must be a rocketpy.Balance"),
        (plan, TypeError, "not a coroutine function"),
        (Balance.consistent_hash(0), rocketpy.InvalidArgumentError, "virtual nodes from 1 to 1000"),
    ]:
        with pytest.raises(error, match=said):
            rocketpy_server.consumer("wrong", topic, balance=wrong)
    for make in (
        lambda: Balance.by_configuration([]),
        lambda: Balance.machine_room([]),
        lambda: Balance.nearest_room({}, {"": "east"}),
    ):
        with pytest.raises(rocketpy.InvalidArgumentError, match="must not be empty"):
            make()


MEMBER = """
import sys, rocketpy
server, group, topic, name = sys.argv[1:]
with rocketpy.Consumer(
    group, topic, name_servers=server, balance="circle", instance_name=name, client_ip="host", handover_timeout=0
) as member:
    print("in", flush=True)
    while True:
        for message in member.poll(timeout=0.2):
            print(message.queue.queue_id, flush=True)
        member.commit()
"""


def test_processes_share_by_circle_and_take_over_from_one_that_is_killed(rocketpy_server, producer, group, topic, join):
    arguments = [rocketpy_server.name_server, group, topic, "b"]
    command = [sys.executable, "-c", MEMBER, *arguments]
    here = join("a", "circle")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as there:
        try:
            assert there.stdout.readline() == "in\n"
            wait_for_shares([here], [[0, 2, 4, 6]])
            for queue in sorted(producer.queues(topic)):
                producer.send(rocketpy.Message(topic, b"it"), queue=queue)
            assert sorted(int(there.stdout.readline()) for _ in range(4)) == [1, 3, 5, 7]
            got = []
            wait_until(lambda: got.extend(one.queue.queue_id for one in here.poll()) or len(got) == 4)
            assert sorted(got) == [0, 2, 4, 6]
        finally:
            there.kill()
    wait_for_shares([here], [ALL])

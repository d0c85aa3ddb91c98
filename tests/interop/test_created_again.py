"""A topic that is deleted and created again under live push consumers of Apache's Java clients 5.5.0 and 4.9.8.

Shows that no message of the later topic is skipped, whether that is shorter or longer than the members' offsets.
CREATED_AGAIN_ROUNDS says how often each is tried; one round takes about half a minute. The gate runs the first round.
"""

import os

import pytest

from peers import Java, finish
from rocketpy import Admin
from sdk import fresh, messages, send
from waiting import wait_until

ROUNDS = int(os.environ.get("CREATED_AGAIN_ROUNDS", "2"))


def committed(address: str, group: str, topic: str) -> int:
    with Admin(address) as admin:
        return sum(row.committed_offset or 0 for row in admin.group_lag(group, topic))


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.soak) for number in range(1, ROUNDS))])
def test_a_live_push_consumer_reads_all_of_the_later_topic(each_java: Java, rocketpy_address: str, home, number: int):
    topic, group = fresh("created-again"), fresh("created-again")
    before, after = 120, (50, 200)[number % 2]  # the pipe has room for the lines of the earlier topic
    with Admin(rocketpy_address) as admin:
        admin.create_topic(topic, queues=2)
        send(rocketpy_address, messages(topic, before, "old"))
        reader = each_java.start_driver(home, "push", rocketpy_address, topic, str(before + after), group)
        wait_until(
            lambda: committed(rocketpy_address, group, topic) == before,
            "the members have committed the earlier topic",
            process=reader,
        )
        admin.delete_topic(topic)
        admin.create_topic(topic, queues=2)
        send(rocketpy_address, messages(topic, after, "new"))
        lines = finish(reader)
    expected = [f"old-{i}" for i in range(before)] + [f"new-{i}" for i in range(after)]
    assert sorted(line["body"] for line in lines) == sorted(expected)

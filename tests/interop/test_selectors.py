"""Selectors at two brokers of Apache, of which one dies."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import rocketpy
from apache_processes import apache_servers, launch_apache_broker
from peers import accepts, make_topic
from rocketpy.testing import fresh_name
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from peers import Java

TOPIC = "selected"
COUNT = 20
"""Single sends, and as many submitted: each of four queues has its turn."""
OPTIONS = {"send_timeout": 60, "api_timeout": 60}


def brokers_of(producer: rocketpy.Producer) -> list[str]:
    """Where each of many messages went, sent one after the other and side by side."""
    alone = [producer.send(rocketpy.Message(TOPIC, b"x")) for _ in range(COUNT)]
    futures = [producer.submit(rocketpy.Message(TOPIC, b"x")) for _ in range(COUNT)]
    return [receipt.queue.broker_name for receipt in (*alone, *(future.result(60) for future in futures))]


@pytest.mark.soak
def test_what_is_sent_to_two_brokers_of_apache_goes_to_the_one_that_is_left(java: Java, tmp_path: Path):
    with apache_servers(java, tmp_path / "left", {"brokerName": "left"}, [TOPIC]) as (address, left):
        right, port = launch_apache_broker(java, tmp_path / "right", address, {"brokerName": "right"})
        try:
            wait_until(lambda: accepts(port), "the other broker", process=right)
            wait_until(lambda: make_topic(port, TOPIC), "its topic", process=right)
            with rocketpy.Admin(address, api_timeout=60) as admin:
                wait_until(lambda: len(admin.describe_topic(TOPIC).brokers) == 2, "both in the route", process=right)
            with ExitStack() as stack:
                in_turn, by_latency = (
                    stack.enter_context(
                        rocketpy.Producer(fresh_name(name), name_servers=address, selector=name, **OPTIONS)
                    )
                    for name in ("round_robin", "least_latency")
                )
                alone = [in_turn.send(rocketpy.Message(TOPIC, b"x")).queue for _ in range(COUNT)]
                assert set(Counter(alone).values()) == {COUNT // 4}, "each queue in its turn"
                assert set(brokers_of(in_turn)) == {"left", "right"}
                assert set(brokers_of(by_latency)) <= {"left", "right"}, "it may leave out a slow one"
                left.kill()
                left.wait()
                for producer in (in_turn, by_latency):
                    assert set(brokers_of(producer)) == {"right"}
        finally:
            right.kill()
            right.wait()

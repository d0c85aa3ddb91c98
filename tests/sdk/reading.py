"""Reads what tests sent."""

import rocketpy
from rocketpy import Start


def read_all(server, topic, count, **options):
    with server.consumer(rocketpy.testing.fresh_name("reader"), topic, start=Start.EARLIEST, **options) as consumer:
        messages = []
        while len(messages) < count:
            batch = consumer.poll(1000, timeout=60)
            assert batch, f"{len(messages)} of {count} messages within 60 s"
            messages += batch
        assert consumer.poll(timeout=0.1) == []
    return messages

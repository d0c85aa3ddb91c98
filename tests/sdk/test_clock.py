"""A clock that is set forth and back by hours, in a process of its own with clients and broker."""

STEPS = """
import threading, time
from collections import Counter

import rocketpy
from rocketpy import _rocketpy, Message
from rocketpy.testkit import temporary_server

HOURS_MS = 3_600_000
seen, ids, stopped = Counter(), Counter(), threading.Event()

with temporary_server() as server, server.push_consumer("group", start="earliest", handler_timeout=30) as consumer:
    with server.admin() as admin:
        admin.create_topic("topic", queues=4)
    ordered = server.push_consumer("ordered", start="earliest", ordered=True)
    consumer.on("topic")(lambda message: seen.update([("plain", message.msg_id)]))
    ordered.on("topic")(lambda message: seen.update([("ordered", message.msg_id)]))

    def send():
        with server.producer("sender", linger=0.001) as producer:
            while not stopped.is_set():
                futures = [producer.submit(Message("topic", b"text")) for _ in range(100)]
                ids.update(future.result(60).msg_id for future in futures)

    with consumer.start(), ordered:
        sender = threading.Thread(target=send)
        sender.start()
        for by in (5, -6, 1, -24, 24, -3, 3) * 2:
            before = len(ids)
            _rocketpy.move_clock(by * HOURS_MS)
            while len(ids) < before + 500:
                time.sleep(0.001)
                assert sender.is_alive()
        stopped.set()
        sender.join()
        while len(seen) < 2 * len(ids):
            time.sleep(0.01)
        stats = consumer.stats(), ordered.stats()
assert set(ids.values()) == set(seen.values()) == {1}
assert all((one.failed, one.timed_out) == (0, 0) for one in stats), stats
"""


def test_neither_time_limits_nor_ids_go_by_a_clock_that_is_set(child):
    ended = child(STEPS)
    assert ended.returncode == 0, ended.stderr

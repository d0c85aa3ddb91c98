"""Push consumers in order: one message of a queue at a time, and none overtakes one that failed."""

import logging
import threading
import time

from pushing import committed, dead_letters

import rocketpy
from waiting import wait_until

QUICK = {"ordered": True, "retry_pause": 0.05}


def send_by_key(server, topic, keys, count):
    """Numbers of each key, in order, in one queue each."""
    with server.producer("push-senders") as producer:
        for number in range(count):
            for key in range(keys):
                producer.send(rocketpy.Message(topic, b"%d" % number, order_key=f"key {key}"))


def test_each_queue_keeps_its_order_and_a_failed_message_is_tried_in_its_place(server, topic, group, caplog):
    send_by_key(server, topic, 8, 20)
    calls, running, together = [], [], []
    consumer = server.push_consumer(group, **QUICK)

    @consumer.on(topic)
    def handle(message):
        running.append(message.queue)
        together.append(running.copy())
        time.sleep(0.002)
        running.remove(message.queue)
        calls.append((message.queue, message.queue_offset, message.reconsume_times))
        if message.body == b"7" and message.reconsume_times < 2:
            raise ValueError("not yet")

    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        wait_until(lambda: committed(server, group, topic) == 160)
    assert all(len(queues) == len(set(queues)) for queues in together), "one at a time in each queue"
    assert any(len(queues) > 1 for queues in together), "queues side by side"
    for queue in {queue for queue, _, _ in calls}:
        offsets = [(offset, times) for of, offset, times in calls if of == queue]
        assert offsets == sorted(offsets), "nothing overtakes"
        assert [offset for offset, times in offsets if times == 0] == list(range(len(set(dict(offsets)))))
    assert sum(times == 2 for _, _, times in calls) == 8
    assert "not yet" in caplog.text
    assert consumer.stats().sent_back == consumer.stats().dead == 0


def test_a_message_that_fails_too_often_makes_way_as_a_dead_letter(server, topic, group):
    send_by_key(server, topic, 1, 6)
    calls, consumer = [], server.push_consumer(group, max_retries=2, **QUICK)

    @consumer.on(topic)
    def handle(message):
        calls.append((int(message.body), message.reconsume_times))
        if message.body == b"1":
            raise ValueError("never")
        if message.body == b"3":
            raise rocketpy.Reject
        if message.body == b"4" and message.reconsume_times == 0:
            raise rocketpy.Retry(after=0.5)

    with consumer:
        began = time.monotonic()
        wait_until(lambda: committed(server, group, topic) == 6)
        assert time.monotonic() - began > 0.5
    assert calls == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (4, 0), (4, 1), (5, 0)]
    assert dead_letters(server, group) == [b"1", b"3"]


def test_batches_in_order(server, topic, group):
    send_by_key(server, topic, 1, 50)
    calls, consumer = [], server.push_consumer(group, **QUICK)

    @consumer.on(topic, batch=16)
    def handle(messages):
        calls.append([int(message.body) for message in messages])
        if 20 in calls[-1] and messages[0].reconsume_times == 0:
            raise ValueError("the whole batch")

    with consumer:
        wait_until(lambda: committed(server, group, topic) == 50)
    failed = next(index for index, numbers in enumerate(calls) if 20 in numbers)
    assert calls[failed] == calls[failed + 1], "the same again"
    del calls[failed]
    assert [number for numbers in calls for number in numbers] == list(range(50))


def test_a_queue_keeps_its_order_when_it_goes_to_another_member(server, topic, group):
    send_by_key(server, topic, 8, 40)
    calls, lock = [], threading.Lock()
    members = [server.push_consumer(group, handover_timeout=60, **QUICK) for _ in range(2)]

    def handle(name):
        def note(message):
            with lock:
                calls.append((message.queue, message.queue_offset, name))
            time.sleep(0.01)

        return note

    for name, member in enumerate(members):
        member.on(topic)(handle(name))
    with members[0]:
        wait_until(lambda: len(calls) > 40)
        with members[1]:
            wait_until(lambda: committed(server, group, topic) == 320)
    assert {name for _, _, name in calls} == {0, 1}
    for queue in {queue for queue, _, _ in calls}:
        offsets = [offset for of, offset, _ in calls if of == queue]
        assert offsets == list(range(len(offsets))), "each once, and in order"


def test_a_member_that_stops_gives_its_locks_back(server, topic, group):
    """What nobody gives back is free after a minute."""
    send_by_key(server, topic, 4, 2)
    for body in (b"0", b"1"):
        seen, consumer = [], server.push_consumer(group, **QUICK)

        @consumer.on(topic)
        def handle(message, seen=seen, body=body):
            seen.append(message.body)
            if message.body != body:
                raise rocketpy.Retry(after=3600)

        began = time.monotonic()
        with consumer:
            wait_until(lambda seen=seen, body=body: seen.count(body) == 4)
        assert time.monotonic() - began < 20
    assert committed(server, group, topic) == 8

"""Other threads run while a producer checks and compresses."""

import random
import threading
import time

import pytest

import rocketpy
from rocketpy import Message

MANY = 200_000
TRIES = 20


def least_stall(call):
    """Longest time in which another thread did not run, as a part of the call: the least of some tries.

    A busy machine stops threads too, but not for most of the call in every try. A call that keeps the interpreter lock
    does.
    """
    longest, ended = [0.0], threading.Event()

    def tick():
        last = time.perf_counter()
        while not ended.is_set():
            now = time.perf_counter()
            longest[0] = max(longest[0], now - last)
            last = now

    thread = threading.Thread(target=tick)
    thread.start()
    least = 1.0
    try:
        for _ in range(TRIES):
            longest[0] = 0.0
            began = time.perf_counter()
            call()
            least = min(least, longest[0] / (time.perf_counter() - began))
            if least < 0.5:
                break
    finally:
        ended.set()
        thread.join()
    return least


def test_other_threads_run_while_a_body_is_compressed(rocketpy_server, rocketpy_topic):
    words = [random.randbytes(7) for _ in range(1000)]
    body = b"".join(random.choices(words, k=(4 << 20) // 7))
    message = Message(rocketpy_topic, body)
    with rocketpy_server.producer("stall", compression_level=9) as producer:
        assert least_stall(lambda: producer.send(message)) < 0.5
        assert least_stall(lambda: producer.send_oneway(message)) < 0.5


def test_other_threads_run_while_many_messages_are_checked(producer, rocketpy_topic):
    messages = [Message(rocketpy_topic, b"text", tag="UA") for _ in range(MANY)]
    messages.append(Message(rocketpy_topic, b"text", properties={"TRAN_MSG": "true"}))

    producer.send(messages[0])  # from now on the route is known: nothing waits for it

    def refused():
        with pytest.raises(rocketpy.NotSupportedError):
            producer.send_many(messages)

    assert least_stall(refused) < 0.5

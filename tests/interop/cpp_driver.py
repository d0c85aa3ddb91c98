"""Drives Apache's C++ client (PyPI ``rocketmq`` 0.4.4) from the interoperability tests.

Runs in an environment of its own, because the package shares its import name with others. One command a run, one
JSON object a line on standard output, exit code 0 only when all that was asked for happened::

    cpp_driver.py send|batch|oneway NAMESRV TOPIC COUNT PREFIX [TAG] [BODY_BYTES]
    cpp_driver.py push NAMESRV TOPIC COUNT GROUP [EXPRESSION]

Message i of a producer has body PREFIX-i (padded with dots to BODY_BYTES), key PREFIX-i and the property
``origin`` = ``cpp``.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator

from rocketmq.client import Message, Producer, PushConsumer

TIMEOUT_SECONDS = 60


def messages(topic: str, count: int, prefix: str, tag: str, body_bytes: int) -> Iterator[Message]:
    for i in range(count):
        text = f"{prefix}-{i}"
        message = Message(topic)
        message.set_keys(text)
        if tag:
            message.set_tags(tag)
        message.set_body(text.ljust(body_bytes, "."))
        message.set_property("origin", "cpp")
        yield message


def produce(command: str, name_server: str, topic: str, count: str, prefix: str, tag: str = "", body_bytes: str = "0"):
    producer = Producer("interop-cpp-producer")
    producer.set_namesrv_addr(name_server)
    producer.start()
    todo = list(messages(topic, int(count), prefix, tag, int(body_bytes)))
    if command == "batch":
        results = [producer.send_batch(todo)]
    elif command == "oneway":
        results = [producer.send_sync(todo[0])]  # a route and a connection first: one-way reports nothing
        for message in todo[1:]:
            producer.send_oneway(message)
    else:
        results = [producer.send_sync(message) for message in todo]
    for result in results:
        print(json.dumps({"status": result.status.name, "msg_id": result.msg_id, "queue_offset": result.offset}))
    producer.shutdown()


def push(name_server: str, topic: str, count: str, group: str, expression: str = "*"):
    wanted, seen, done = int(count), 0, threading.Event()

    def on_message(message):
        nonlocal seen
        line = {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "msg_id": message.id,
            "tag": (message.tags or b"").decode() or None,
            "keys": (message.keys or b"").decode() or None,
            "body": message.body.decode(),
            "origin": (message.get_property("origin") or b"").decode() or None,
        }
        print(json.dumps(line), flush=True)
        seen += 1
        if seen >= wanted:
            done.set()

    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(name_server)
    consumer.set_thread_count(1)
    consumer.subscribe(topic, on_message, expression)
    consumer.start()
    if not done.wait(TIMEOUT_SECONDS):
        sys.exit(f"still missing: {wanted - seen}")
    consumer.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "push":
        push(*sys.argv[2:])
    else:
        produce(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # the library's own exit handlers may hang after a shutdown

"""Drives Apache's C++ client (PyPI ``rocketmq`` 0.4.4) from the interoperability tests.

Runs in an environment of its own, because the package shares its import name with others. One command a run, one
JSON object a line on standard output, exit code 0 only when all that was asked for happened::

    cpp_driver.py send|batch|oneway|keyed|levels NAMESRV TOPIC COUNT PREFIX [TAG] [BODY_BYTES]
    cpp_driver.py push|orderly|fail NAMESRV TOPIC COUNT GROUP [EXPRESSION]
    cpp_driver.py member NAMESRV TOPIC HANGS GROUP

Message i of a producer has body PREFIX-i (padded with dots to BODY_BYTES), key PREFIX-i and the property
``origin`` = ``cpp``; with ``keyed`` it goes to queue i % 3, with ``levels`` it has the delay level i + 1. ``fail``
handles no message and ends by SIGTERM. ``member`` prints that it "began" a message, and "ended" it, in order, until it
is killed; it does not come to an end with those whose number is HANGS.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import _CConsumeStatus, dll

TIMEOUT_SECONDS = 120


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


def sign(client: Producer | PushConsumer) -> None:
    """Signs requests as the user that the environment names, if it does."""
    if name := os.environ.get("ROCKETPY_TEST_ACCESS_KEY"):
        client.set_session_credentials(name, os.environ["ROCKETPY_TEST_SECRET_KEY"], "")


def produce(command: str, name_server: str, topic: str, count: str, prefix: str, tag: str = "", body_bytes: str = "0"):
    producer = Producer("interop-cpp-producer")
    producer.set_namesrv_addr(name_server)
    sign(producer)
    producer.start()
    todo = list(messages(topic, int(count), prefix, tag, int(body_bytes)))
    if command == "levels":
        for level, message in enumerate(todo, 1):
            message.set_delay_time_level(level)
    if command == "batch":
        results = [producer.send_batch(todo)]
    elif command == "oneway":
        results = [producer.send_sync(todo[0])]  # a route and a connection first: one-way reports nothing
        for message in todo[1:]:
            producer.send_oneway(message)
    elif command == "keyed":
        results = [producer.send_orderly(message, number % 3) for number, message in enumerate(todo)]
    else:
        results = [producer.send_sync(message) for message in todo]
    for result in results:
        print(json.dumps({"status": result.status.name, "msg_id": result.msg_id, "queue_offset": result.offset}))
    producer.shutdown()


def consume(command: str, name_server: str, topic: str, count: str, group: str, expression: str = "*"):
    wanted, seen, done = int(count), 0, threading.Event()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # in the library's threads too

    def on_message(message: RecvMessage) -> bool:
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
        if command == "fail" or (command == "orderly" and fails_once(line["body"])):
            return False
        seen += 1
        if seen >= wanted:
            done.set()
        return True

    consumer = PushConsumer(group, orderly=command == "orderly")
    consumer.set_namesrv_addr(name_server)
    sign(consumer)
    consumer.set_thread_count(1)
    consumer.set_message_batch_max_size(1)
    subscribe(consumer, topic, on_message, expression)
    consumer.start()
    if command == "fail":
        if signal.sigtimedwait([signal.SIGTERM], TIMEOUT_SECONDS) is None:
            sys.exit("nobody ended the driver")
    elif not done.wait(TIMEOUT_SECONDS):
        sys.exit(f"still missing: {wanted - seen}")
    consumer.shutdown()


def work(_command: str, name_server: str, topic: str, hangs: str, group: str):
    printing = threading.Lock()

    def tell(what: str, message: RecvMessage) -> None:
        key = (message.keys or b"").decode()
        at_ms = time.time_ns() // 1_000_000
        with printing:
            print(json.dumps({what: key, "queue_id": message.queue_id, "at_ms": at_ms}), flush=True)

    def on_message(message: RecvMessage) -> bool:
        tell("began", message)
        if (message.keys or b"").endswith(f"-{hangs}".encode()):
            threading.Event().wait()
        tell("ended", message)
        return True

    consumer = PushConsumer(group, orderly=True)
    consumer.set_namesrv_addr(name_server)
    consumer.set_thread_count(8)
    consumer.set_message_batch_max_size(1)
    subscribe(consumer, topic, on_message, "*")
    consumer.start()
    threading.Event().wait(2 * TIMEOUT_SECONDS)
    sys.exit("nobody ended the driver")


failed: set[str] = set()


def fails_once(body: str) -> bool:
    """Whether this is the first time that message 4 comes."""
    if not body.endswith("-4") or body in failed:
        return False
    failed.add(body)
    return True


def subscribe(consumer: PushConsumer, topic: str, handles: Callable[[RecvMessage], bool], expression: str) -> None:
    """As ``PushConsumer.subscribe``, whose callback cannot fail: raised through ctypes, an error becomes a success."""

    def on_message(_consumer, handle) -> int:
        handled = handles(RecvMessage(handle))
        return (_CConsumeStatus.CONSUME_SUCCESS if handled else _CConsumeStatus.RECONSUME_LATER).value

    ffi_check(dll.Subscribe(consumer._handle, topic.encode(), expression.encode()))
    consumer._register_callback(on_message)


if __name__ == "__main__":
    if sys.argv[1] in ("push", "orderly", "fail"):
        consume(*sys.argv[1:])
    elif sys.argv[1] == "member":
        work(*sys.argv[1:])
    else:
        produce(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # the library's own exit handlers may hang after a shutdown

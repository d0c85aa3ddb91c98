"""Apache's C++ client (PyPI `rocketmq`), for `turn.main`."""

import threading
from collections.abc import Callable, Iterator

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage, SendResult, SendStatus

from turn import IN_FLIGHT, PATIENCE_S, Turn, main

BATCH_BYTES, PROPERTY_BYTES = 4096, 100
"""It compresses a batch of more bytes, properties included, which no broker can read."""


def made(turn: Turn) -> Message:
    message = Message(turn.topic)
    message.set_body(turn.body)
    return message


def producing(turn: Turn, load: Callable[[Producer], None]) -> None:
    producer = Producer("bench")
    producer.set_namesrv_addr(turn.address)
    producer.start()
    load(producer)
    producer.shutdown()


def one(turn: Turn) -> None:
    producing(turn, lambda producer: turn.call(lambda: producer.send_sync(made(turn))))


def callbacks(turn: Turn) -> None:
    """It keeps one callback of each message for good, and looks through all of them: the longer, the slower."""

    def load(producer: Producer) -> None:
        room = threading.Semaphore(IN_FLIGHT)  # it sets no limit itself
        stored = 0

        def delivered(result: SendResult) -> None:
            nonlocal stored
            stored += result.status == SendStatus.OK
            room.release()

        def failed(_error: Exception) -> None:
            room.release()

        def send(count: int) -> int:
            nonlocal stored
            stored = 0
            for _ in range(count):
                room.acquire()
                producer.send_async(made(turn), delivered, failed)
            for _ in range(IN_FLIGHT):
                if not room.acquire(timeout=PATIENCE_S):
                    raise RuntimeError("an answer is missing")
            room.release(IN_FLIGHT)
            return stored

        turn.send(send)

    producing(turn, load)


def many(turn: Turn) -> None:
    size = max(1, BATCH_BYTES // (len(turn.body) + PROPERTY_BYTES))

    def load(producer: Producer) -> None:
        def send(count: int) -> int:
            stored = 0
            for first in range(0, count, size):
                messages = [made(turn) for _ in range(min(size, count - first))]
                stored += len(messages) * (producer.send_batch(messages).status == SendStatus.OK)
            return stored

        turn.send(send)

    producing(turn, load)


def message(turn: Turn) -> None:
    """A pull consumer keeps no offsets at the broker."""
    consumer = PullConsumer(turn.group)
    consumer.set_namesrv_addr(turn.address)
    consumer.start()

    def lengths() -> Iterator[int]:
        for received in consumer.pull(turn.topic):
            yield len(received.body)

    turn.read(lengths())
    consumer.shutdown()


def handlers(turn: Turn) -> None:
    handle = turn.handle()

    def handler(received: RecvMessage) -> None:
        handle(received.body)

    consumer = PushConsumer(turn.group)
    consumer.set_namesrv_addr(turn.address)
    consumer.subscribe(turn.topic, handler)
    consumer.start()
    turn.wait_for_handlers()
    consumer.shutdown()


if __name__ == "__main__":
    main({"one": one, "futures": callbacks, "many": many, "message": message, "handlers": handlers})

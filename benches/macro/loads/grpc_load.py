"""Apache's gRPC client (PyPI `rocketmq-python-client`), for `turn.main`. Its address is that of a proxy."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SendReceipt,
    SimpleConsumer,
)

from turn import IN_FLIGHT, PATIENCE_S, Turn, forever, main, some

BATCH = 32
"""Most messages of one call that a broker allows."""
INVISIBLE_S = 60


def configuration(turn: Turn) -> ClientConfiguration:
    return ClientConfiguration(turn.address, Credentials(), request_timeout=PATIENCE_S)


def made(turn: Turn) -> Message:
    message = Message()
    message.topic, message.body = turn.topic, turn.body
    return message


def producing(turn: Turn, load: Callable[[Producer], None]) -> None:
    producer = Producer(configuration(turn), [turn.topic])
    producer.startup()
    load(producer)
    producer.shutdown()


def one(turn: Turn) -> None:
    producing(turn, lambda producer: turn.call(lambda: producer.send(made(turn))))


def futures(turn: Turn) -> None:
    def load(producer: Producer) -> None:
        room = threading.Semaphore(IN_FLIGHT)  # it sets no limit itself

        def send(count: int) -> int:
            stored = 0

            def delivered(future: Future[SendReceipt]) -> None:
                nonlocal stored
                stored += future.exception() is None
                room.release()

            for _ in range(count):
                room.acquire()
                producer.send_async(made(turn)).add_done_callback(delivered)
            for _ in range(IN_FLIGHT):
                if not room.acquire(timeout=PATIENCE_S):
                    raise RuntimeError("an answer is missing")
            room.release(IN_FLIGHT)
            return stored

        turn.send(send)

    producing(turn, load)


def receiving(turn: Turn, load: Callable[[SimpleConsumer], None]) -> None:
    consumer = SimpleConsumer(configuration(turn), turn.group, {turn.topic: FilterExpression()})
    consumer.startup()
    if not consumer._init_settings_event.wait(PATIENCE_S):  # it does not wait itself, and the proxy then refuses it
        raise RuntimeError("the proxy did not answer")
    load(consumer)
    consumer.shutdown()


def message(turn: Turn) -> None:
    """A message is acknowledged before the next is asked for: there is no way without."""

    def load(consumer: SimpleConsumer) -> None:
        def lengths() -> Iterator[int]:
            while True:
                for received in consumer.receive(1, INVISIBLE_S):
                    yield len(received.body)
                    consumer.ack(received)

        turn.read(lengths())

    receiving(turn, load)


def batches(turn: Turn) -> None:
    def load(consumer: SimpleConsumer) -> None:
        def take() -> tuple[int, int]:
            received = consumer.receive(BATCH, INVISIBLE_S)
            for one in received:
                consumer.ack_async(one)
            return some([len(one.body) for one in received])

        turn.read_batches(forever(take))

    receiving(turn, load)


class Listener(MessageListener):
    def __init__(self, handle: Callable[[bytes], None]) -> None:
        self.handle = handle

    def consume(self, message: Message) -> ConsumeResult:
        self.handle(message.body)
        return ConsumeResult.SUCCESS


def handlers(turn: Turn) -> None:
    consumer = PushConsumer(configuration(turn), turn.group, Listener(turn.handle()), {turn.topic: FilterExpression()})
    consumer.startup()
    turn.wait_for_handlers()
    consumer.shutdown()


if __name__ == "__main__":
    main({"one": one, "futures": futures, "message": message, "batches": batches, "handlers": handlers})

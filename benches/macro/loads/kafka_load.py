"""confluent-kafka, for `turn.main`. A broker acknowledges from the page cache, with all in-sync replicas: itself."""

import asyncio
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.aio import AIOProducer

from turn import PATIENCE_S, Turn, forever, main, some


def settings(turn: Turn) -> dict[str, object]:
    return {"bootstrap.servers": turn.address, "acks": "all", "queue.buffering.max.messages": 1_000_000}


def flush(producer: Producer) -> None:
    if left := producer.flush(PATIENCE_S):
        raise RuntimeError(f"{left} messages were not acknowledged")


def one(turn: Turn) -> None:
    """`produce` and `flush`, which waits for the callback; without the wait for more messages."""
    producer = Producer(settings(turn) | {"linger.ms": 0})

    def send() -> None:
        producer.produce(turn.topic, turn.body)
        flush(producer)

    turn.call(send)


def callbacks(turn: Turn) -> None:
    producer = Producer(settings(turn))

    def send(count: int) -> int:
        stored = 0

        def delivered(error: KafkaError | None, _message: Message) -> None:
            nonlocal stored
            stored += error is None

        for _ in range(count):
            while True:
                try:
                    producer.produce(turn.topic, turn.body, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        flush(producer)
        return stored

    turn.send(send)


def in_asyncio(turn: Turn) -> None:
    asyncio.run(tasks(turn))


async def tasks(turn: Turn) -> None:
    """By default it sends when 1,000 messages wait or after 1 s, and looks for outcomes only when it sends.

    Tasks that wait for outcomes then send 1,000 messages a second; with these settings, a hundred times as many.
    """
    async with AIOProducer(settings(turn) | {"linger.ms": 1}, batch_size=250, buffer_timeout=0.005) as producer:

        async def poll() -> None:
            while True:
                await producer.poll(0.1)

        async def send() -> bool:
            delivered = await producer.produce(turn.topic, turn.body)
            return (await delivered).error() is None

        poller = asyncio.create_task(poll())
        await turn.send_in_tasks(send)
        poller.cancel()


def many(turn: Turn) -> None:
    """`produce` without callbacks, then `flush`. `produce_batch` wants a dict for each message, and is no faster."""
    producer = Producer(settings(turn))

    def send(count: int) -> int:
        for _ in range(count):
            while True:
                try:
                    producer.produce(turn.topic, turn.body)
                    break
                except BufferError:
                    producer.poll(0.1)
        flush(producer)
        return count

    turn.send(send)


def opened(turn: Turn) -> Consumer:
    consumer = Consumer({"bootstrap.servers": turn.address, "group.id": turn.group, "auto.offset.reset": "earliest"})
    consumer.subscribe([turn.topic])
    return consumer


def message(turn: Turn) -> None:
    consumer = opened(turn)

    def lengths() -> Iterator[int]:
        while True:
            yield len(consumer.poll(PATIENCE_S).value())

    turn.read(lengths())
    consumer.close()


def batches(turn: Turn) -> None:
    consumer, size = opened(turn), turn.at_most(1000)
    turn.read_batches(forever(lambda: some([len(one.value()) for one in consumer.consume(size, PATIENCE_S)])))
    consumer.close()


if __name__ == "__main__":
    main(
        {
            "one": one,
            "futures": callbacks,
            "asyncio": in_asyncio,
            "many": many,
            "message": message,
            "batches": batches,
        }
    )

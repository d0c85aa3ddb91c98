"""RocketPy, for `turn.main`. Commits every 5 s, as the client of Kafka does by default."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

import rocketpy
from rocketpy import AsyncProducer, Consumer, Message, Producer, PushConsumer
from turn import PATIENCE_S, Turn, forever, main, some

CHUNK = 20_000
LINGER, LINGER_IN_ASYNCIO = 0.005, 0.001
"""Seconds: the default of confluent-kafka, and what its load in asyncio has."""
COMMIT_S = 5.0


def one(turn: Turn) -> None:
    with Producer("bench", name_servers=turn.address) as producer:
        turn.call(lambda: producer.send(Message(turn.topic, turn.body)))


def futures(turn: Turn) -> None:
    with Producer("bench", name_servers=turn.address, linger=LINGER) as producer:

        def send(count: int) -> int:
            stored = 0

            def delivered(future: Future[rocketpy.Receipt]) -> None:
                nonlocal stored
                stored += future.exception() is None

            for _ in range(count):
                producer.submit(Message(turn.topic, turn.body)).add_done_callback(delivered)
            producer.flush(timeout=PATIENCE_S)
            return stored

        turn.send(send)


def in_asyncio(turn: Turn) -> None:
    asyncio.run(tasks(turn))


async def tasks(turn: Turn) -> None:
    async with AsyncProducer("bench", name_servers=turn.address, linger=LINGER_IN_ASYNCIO) as producer:

        async def send() -> bool:
            return (await producer.send(Message(turn.topic, turn.body))).status == rocketpy.SendStatus.SEND_OK

        await turn.send_in_tasks(send)


def send_many(turn: Turn) -> None:
    with Producer("bench", name_servers=turn.address) as producer:

        def send(count: int) -> int:
            sizes = (min(CHUNK, count - first) for first in range(0, count, CHUNK))
            return sum(len(producer.send_many([Message(turn.topic, turn.body) for _ in range(size)])) for size in sizes)

        turn.send(send)


def opened(turn: Turn) -> Consumer:
    return Consumer(turn.group, turn.topic, name_servers=turn.address, auto_commit=COMMIT_S)


def message(turn: Turn) -> None:
    with opened(turn) as consumer:
        turn.read(len(one.body) for one in consumer.messages(idle_timeout=PATIENCE_S))


def batches(turn: Turn) -> None:
    size = turn.at_most(1000)
    with opened(turn) as consumer:
        turn.read_batches(forever(lambda: some([len(one.body) for one in consumer.poll(size, PATIENCE_S)])))


def fetch_arrow(turn: Turn) -> None:
    import pyarrow.compute

    size = turn.at_most(100_000)

    def take() -> tuple[int, int]:
        batch = consumer.fetch_arrow(size, PATIENCE_S)
        return batch.num_rows, pyarrow.compute.sum(pyarrow.compute.binary_length(batch["body"])).as_py() or 0

    with opened(turn) as consumer:
        turn.read_batches(forever(take))


def with_handler(turn: Turn, handler: Callable[[rocketpy.ReceivedMessage], object]) -> None:
    consumer = PushConsumer(turn.group, name_servers=turn.address)
    consumer.on(turn.topic)(handler)
    with consumer:
        turn.wait_for_handlers()


def handlers(turn: Turn) -> None:
    handle = turn.handle()
    with_handler(turn, lambda message: handle(message.body))


def async_handlers(turn: Turn) -> None:
    handle = turn.handle()

    async def handler(message: rocketpy.ReceivedMessage) -> None:
        handle(message.body)

    with_handler(turn, handler)


if __name__ == "__main__":
    main(
        {
            "one": one,
            "futures": futures,
            "asyncio": in_asyncio,
            "many": send_many,
            "message": message,
            "batches": batches,
            "handlers": handlers,
            "async-handlers": async_handlers,
            "arrow": fetch_arrow,
        }
    )

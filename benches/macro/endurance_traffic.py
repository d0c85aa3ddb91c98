"""Steady traffic of an endurance run: senders of every kind, at fixed rates, and the readers of their messages."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import rocketpy
from endurance_ledger import Ledger, Reader, Stream, parsed
from rocketpy import Decision, Message, RocketPyError

STEADY, ORDERED, DELAYED, TRANSACTIONS, TICKS = TOPICS = ("steady", "ordered", "delayed", "transactions", "ticks")
RATES = {
    "single": 40.0,
    "submitted": 80.0,
    "batched": 120.0,
    "asyncio": 30.0,
    "poison": 0.5,
    "visitors": 2.0,
    "ordered": 10.0,
    "delayed": 6.0,
    "transactions": 6.0,
}
"""Messages per second of each stream."""
BATCH = 20
LARGE_EVERY, LARGE_BYTES = 97, 8192
"""Every 97th body is compressed."""
FLAKY_EVERY = 211
"""Every 211th message of a push group fails once."""
RECALLED_EVERY = 8
MAX_RETRIES = 2
PATIENCE = {"api_timeout": 60.0}
SENDS = {"api_timeout": 60.0, "send_timeout": 60.0}


class Run(Protocol):
    """What every worker of the client process uses."""

    name_server: str
    ledger: Ledger
    folder: Path
    recent: deque[tuple[float, int]]

    def is_sending(self, pause: float) -> bool:
        """Waits; False once senders are to stop."""
        ...

    def is_minute_over(self) -> bool:
        """Waits for the next minute of the run; False once senders are to stop."""
        ...

    def is_reading(self) -> bool: ...


class Pace:
    """Waits so that steps have a fixed rate, without a burst after a stall."""

    def __init__(self, run: Run, per_second: float) -> None:
        self._run, self._step, self._next = run, 1 / per_second, time.monotonic()

    def holds(self) -> bool:
        now = time.monotonic()
        self._next = max(self._next + self._step, now)
        return self._run.is_sending(self._next - now)

    async def holds_async(self) -> bool:
        now = time.monotonic()
        self._next = max(self._next + self._step, now)
        await asyncio.sleep(self._next - now)
        return self._run.is_sending(0)


def message(topic: str, stream: Stream, number: int, **options: object) -> Message:
    size = LARGE_BYTES if number % LARGE_EVERY == 0 else 100 + number % 400
    keys = f"{stream.name}-{number}"
    return Message(topic, stream.body(number, size), tag=stream.name, keys=keys, **options)  # type: ignore[arg-type]


def send_single(run: Run) -> None:
    stream, pace = run.ledger.streams["single"], Pace(run, RATES["single"])
    with rocketpy.Producer("singles", name_servers=run.name_server, trace=True, **SENDS) as producer:
        while pace.holds():
            number = stream.next()
            try:
                producer.send(message(STEADY, stream, number))
            except RocketPyError as error:
                run.ledger.happened(f"single: {type(error).__name__}")
                continue
            stream.acknowledge(number)
            run.recent.append((time.time(), number))


def send_ordered(run: Run) -> None:
    stream, pace = run.ledger.streams["ordered"], Pace(run, RATES["ordered"])
    with rocketpy.Producer("ordered", name_servers=run.name_server, **SENDS) as producer:
        while pace.holds():
            number = stream.next()
            try:
                producer.send(message(ORDERED, stream, number, order_key=str(number % 16)))
            except RocketPyError as error:
                run.ledger.happened(f"ordered: {type(error).__name__}")
                continue
            stream.acknowledge(number)


def send_submitted(run: Run) -> None:
    stream, pace = run.ledger.streams["submitted"], Pace(run, RATES["submitted"] / 5)
    with rocketpy.Producer("submitters", name_servers=run.name_server, **SENDS) as producer:
        while pace.holds():
            numbers = [stream.next() for _ in range(5)]
            sent = [producer.submit(message(STEADY, stream, number)) for number in numbers]
            for number, future in zip(numbers, sent, strict=True):
                try:
                    future.result(timeout=120)
                except RocketPyError as error:
                    run.ledger.happened(f"submitted: {type(error).__name__}")
                else:
                    stream.acknowledge(number)


def send_batches(run: Run) -> None:
    stream, pace = run.ledger.streams["batched"], Pace(run, RATES["batched"] / BATCH)
    with rocketpy.Producer("batches", name_servers=run.name_server, **SENDS) as producer:
        while pace.holds():
            numbers = [stream.next() for _ in range(BATCH)]
            try:
                producer.send_many([message(STEADY, stream, number) for number in numbers])
            except RocketPyError as error:
                run.ledger.happened(f"batched: {type(error).__name__}")
                continue
            for number in numbers:
                stream.acknowledge(number)


def send_poison(run: Run) -> None:
    """Messages that every handler rejects: they end in the dead letters."""
    stream, pace = run.ledger.streams["poison"], Pace(run, RATES["poison"])
    with rocketpy.Producer("poisoners", name_servers=run.name_server, **SENDS) as producer:
        while pace.holds():
            number = stream.next()
            try:
                producer.send(message(STEADY, stream, number))
            except RocketPyError as error:
                run.ledger.happened(f"poison: {type(error).__name__}")
                continue
            stream.acknowledge(number)


def send_delayed(run: Run) -> None:
    """By delay level, delay and delivery time; every eighth is recalled."""
    stream, pace = run.ledger.streams["delayed"], Pace(run, RATES["delayed"])
    with rocketpy.Producer("delayers", name_servers=run.name_server, **SENDS) as producer:
        while pace.holds():
            number = stream.next()
            match number % RECALLED_EVERY:
                case 0:
                    when: dict[str, object] = {"delay": 30.0}
                case 1 | 2 | 3:
                    when = {"delay_level": 1 + number % 7}
                case 4 | 5:
                    when = {"delay": 1.0 + number % 20}
                case _:
                    when = {"deliver_at": time.time() + 2.0 + number % 15}
            try:
                receipt = producer.send(message(DELAYED, stream, number, **when))
                if number % RECALLED_EVERY == 0:
                    producer.recall(receipt)
                    stream.forbid(number)
                    continue
            except RocketPyError as error:
                run.ledger.happened(f"delayed: {type(error).__name__}")
                continue
            stream.acknowledge(number)


def planned(number: int) -> Decision:
    return Decision.ROLLBACK if number % 10 in (6, 7, 9) else Decision.COMMIT


def send_transactions(run: Run) -> None:
    """Commits, rollbacks, and (8 and 9 of ten) transactions left open for the check-back."""
    stream, pace = run.ledger.streams["transactions"], Pace(run, RATES["transactions"])

    def check(half: rocketpy.ReceivedMessage) -> Decision:
        run.ledger.happened("check-backs")
        return planned(parsed(half)[1])

    with rocketpy.TransactionProducer("payers", check, name_servers=run.name_server, **SENDS) as producer:
        while pace.holds():
            number = stream.next()
            decision = planned(number)
            try:
                transaction = producer.transaction(message(TRANSACTIONS, stream, number))
                if decision is Decision.COMMIT:
                    stream.acknowledge(number)  # the check-back says the same
                else:
                    stream.forbid(number)
                if number % 10 >= 8:
                    continue
                if decision is Decision.COMMIT:
                    transaction.commit()
                else:
                    transaction.rollback()
            except RocketPyError as error:
                run.ledger.happened(f"transactions: {type(error).__name__}")
        waits = time.monotonic() + 30
        while time.monotonic() < waits and run.is_reading():  # for the check-backs of the last ones
            time.sleep(0.5)


def handler_of(run: Run, reader: Reader, *, fails: bool) -> Callable[[rocketpy.ReceivedMessage], None]:
    """Handler that counts messages; some fail, by their numbers."""

    def handle(received: rocketpy.ReceivedMessage) -> None:
        stream, number = parsed(received)
        if fails and stream == "poison":
            raise ValueError("poison")
        if fails and number % FLAKY_EVERY == 0 and received.reconsume_times == 0:
            run.ledger.happened("handlers that failed")
            raise ValueError("first attempt")
        reader.receive(stream, number)

    return handle


def push_member(run: Run, group: str, reader: Reader, topic: str, **options: object) -> rocketpy.PushConsumer:
    """Member of a group with handlers; use it with `with`."""
    given = {"concurrency": 4, "max_retries": MAX_RETRIES, **PATIENCE, **options}
    member = rocketpy.PushConsumer(group, name_servers=run.name_server, **given)  # type: ignore[arg-type]
    member.on(topic)(handler_of(run, reader, fails=group == "push"))
    return member


def broadcast_member(run: Run, name: str, reader: Reader) -> rocketpy.PushConsumer:
    offsets = run.folder / "offsets"
    options = {"broadcast": True, "instance_name": name, "offsets_folder": offsets}
    return push_member(run, "broadcast", reader, STEADY, **options)


def poll(run: Run, group: str, reader: Reader, topic: str, seconds: float = float("inf")) -> None:
    """Reads as a member of a group until the end, or for some seconds."""
    until = time.monotonic() + seconds
    with rocketpy.Consumer(group, topic, name_servers=run.name_server, **PATIENCE) as consumer:
        while run.is_reading() and time.monotonic() < until:
            try:
                messages = consumer.poll(500, timeout=0.5)
                for received in messages:
                    reader.receive(*parsed(received))
                if messages:
                    consumer.commit()
            except RocketPyError as error:
                run.ledger.happened(f"poll: {type(error).__name__}")


def poll_ticks(run: Run) -> None:
    """Counts messages of schedules."""
    with rocketpy.Consumer("clerks", TICKS, name_servers=run.name_server, auto_commit=True, **PATIENCE) as consumer:
        while run.is_reading():
            run.ledger.happened("messages of schedules", len(consumer.poll(500, timeout=0.5)))


async def _send(run: Run, producer: rocketpy.AsyncProducer) -> None:
    stream, pace = run.ledger.streams["asyncio"], Pace(run, RATES["asyncio"])
    while await pace.holds_async():
        number = stream.next()
        try:
            await producer.send(message(STEADY, stream, number))
        except RocketPyError as error:
            run.ledger.happened(f"asyncio: {type(error).__name__}")
            continue
        stream.acknowledge(number)


async def _receive(run: Run, consumer: rocketpy.AsyncConsumer, reader: Reader) -> None:
    while run.is_reading():
        try:
            messages = await consumer.poll(500, timeout=0.5)
            for received in messages:
                reader.receive(*parsed(received))
            if messages:
                await consumer.commit()
        except RocketPyError as error:
            run.ledger.happened(f"asyncio poll: {type(error).__name__}")


def use_asyncio(run: Run, reader: Reader) -> None:
    """Sends and receives in an event loop."""

    async def both() -> None:
        async with (
            rocketpy.AsyncProducer("asyncio", name_servers=run.name_server, **SENDS) as producer,
            rocketpy.AsyncConsumer("asyncio-poll", STEADY, name_servers=run.name_server, **PATIENCE) as consumer,
        ):
            await asyncio.gather(_send(run, producer), _receive(run, consumer, reader))

    asyncio.run(both())

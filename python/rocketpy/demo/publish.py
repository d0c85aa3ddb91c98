"""Sends the flights, and the airports while the server is killed; keeps the receipts."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from rocketpy import Message, Producer, Receipt, RocketPyError
from rocketpy.demo.departures import Mismatch
from rocketpy.demo.flights import Flights

CHUNK_MESSAGES = 10_000


@dataclass
class Acknowledged:
    """Receipts of one topic: these messages must never be lost.

    Attributes:
        queue_ids: Queue of each message.
        offsets: Queue offset of each message.
        msg_ids: Unique key of each message.
    """

    queue_ids: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    msg_ids: list[str] = field(default_factory=list)

    def add(self, receipts: Iterable[Receipt]) -> None:
        """Adds receipts in the order of their messages."""
        for receipt in receipts:
            self.queue_ids.append(receipt.queue.queue_id)
            self.offsets.append(receipt.queue_offset)
            self.msg_ids.append(receipt.msg_id)

    def __len__(self) -> int:
        return len(self.msg_ids)


def publish_flights(producer: Producer, flights: Flights, topic: str, advance: Callable[[int], None]) -> Acknowledged:
    """Sends every flight, an aircraft's departures in order.

    Args:
        producer: Producer to send with.
        flights: Flights to send.
        topic: Topic of the messages.
        advance: Callback that receives the number of messages acknowledged since the last call.

    Returns:
        All receipts.
    """
    acknowledged = Acknowledged()
    for messages in flights.messages(topic, CHUNK_MESSAGES):
        acknowledged.add(producer.send_many(messages))
        advance(len(messages))
    return acknowledged


class AirportSender:
    """Sends the airports one by one, each waiting for its receipt, in a thread of its own.

    Attributes:
        acknowledged: Receipts so far.
    """

    def __init__(self, producer: Producer, flights: Flights, topic: str) -> None:
        """Prepares the messages; `start` sends them.

        Args:
            producer: Producer to send with, before and after the server is killed.
            flights: Data whose airports are sent.
            topic: Topic of the messages.
        """
        self.acknowledged = Acknowledged()
        self._halfway = threading.Event()
        self._producer = producer
        self._messages = list(airport_messages(flights, topic))
        self._thread = threading.Thread(target=self._send_until_it_fails, name="airports", daemon=True)

    def __len__(self) -> int:
        return len(self._messages)

    def start(self) -> None:
        """Starts sending."""
        self._thread.start()

    def _send_until_it_fails(self) -> None:
        # The server is killed during this; messages without a receipt are sent again later.
        with contextlib.suppress(RocketPyError):
            self.send_the_rest()

    def wait_for_half(self) -> None:
        """Waits until half of the airports are acknowledged.

        Raises:
            Mismatch: Sending ended before that, although the server was not killed.
        """
        while not self._halfway.wait(0.1):
            if not self._thread.is_alive():
                raise Mismatch(f"sending ended after {len(self.acknowledged):,} airports while the server ran")

    def send_the_rest(self) -> int:
        """Sends messages without a receipt. A message whose receipt was lost is stored twice (at-least-once delivery).

        Returns:
            Number of messages sent.
        """
        rest = self._messages[len(self.acknowledged) :]
        for message in rest:
            self.acknowledged.add([self._producer.send(message)])
            if len(self.acknowledged) * 2 >= len(self):
                self._halfway.set()
        return len(rest)

    def join(self) -> None:
        """Waits until the thread ends: the server was killed, or all airports are sent."""
        self._thread.join()


def airport_messages(flights: Flights, topic: str) -> Iterator[Message]:
    """Yields one JSON message per airport."""
    text = cast("str", flights.airports.to_json(orient="records", lines=True))
    for code, line in zip(flights.airports["faa"], text.encode().splitlines(), strict=True):
        yield Message(topic, line, keys=[code])

"""Two consumer groups that read the flights at the same time, each checking its messages."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rocketpy import Consumer, Start
from rocketpy.config import PATIENT
from rocketpy.demo.departures import Departures, Mismatch
from rocketpy.demo.flights import Flights

MAINTENANCE = "maintenance"
HUB = "hub-aa-ua"
HUB_CARRIERS = ("UA", "AA")
POLL_MESSAGES = 4000
POLL_SECONDS = 0.5
PATIENCE_POLLS = 240
"""Number of empty polls in a row after which missing messages count as lost."""
SURPLUS_SECONDS = 0.3
"""Time for which a group that has all messages waits for a surplus message."""


@dataclass(frozen=True)
class Read:
    """Messages that the two groups received.

    Attributes:
        maintenance: Number of messages of the group of all flights.
        stopped_at: Number of messages of that group when it was stopped halfway.
        hub: Number of messages of the group of two carriers.
    """

    maintenance: int
    stopped_at: int
    hub: int


class Readers:
    """Runs the two groups against one topic."""

    def __init__(self, flights: Flights, topic: str, name_server: str) -> None:
        """Prepares the checks.

        Args:
            flights: Flights that were sent.
            topic: Topic of the flights.
            name_server: Address of the name server.
        """
        self.all_flights = Departures(flights)
        self.hub_flights = Departures(flights, HUB_CARRIERS)
        self._topic = topic
        self._name_servers = [name_server]
        self._stopping = threading.Event()

    def run(self, advance: Callable[[str, int], None]) -> Read:
        """Reads all messages.

        Args:
            advance: Callback that receives a group and the number of messages that it got since the last call.

        Returns:
            The numbers of messages.

        Raises:
            Mismatch: A message is missing, duplicate, out of order or unknown.
        """
        with ThreadPoolExecutor(2, thread_name_prefix="group") as pool:
            try:
                hub = pool.submit(self._read, HUB, " || ".join(HUB_CARRIERS), self.hub_flights, None, advance)
                maintenance = pool.submit(self._maintain, advance)
                stopped_at = maintenance.result()
                hub.result()
            finally:
                self._stopping.set()
        return Read(self.all_flights.seen, stopped_at, self.hub_flights.seen)

    def _maintain(self, advance: Callable[[str, int], None]) -> int:
        half = self.all_flights.expected // 2
        self._read(MAINTENANCE, "*", self.all_flights, half, advance)
        stopped_at = self.all_flights.seen
        self._read(MAINTENANCE, "*", self.all_flights, None, advance)  # continues from its last commit
        return stopped_at

    def _read(
        self, group: str, tags: str, check: Departures, until: int | None, advance: Callable[[str, int], None]
    ) -> None:
        enough = check.expected if until is None else until
        polls = 0
        with Consumer(
            group, self._topic, name_servers=self._name_servers, tags=tags, start=Start.EARLIEST, **PATIENT
        ) as consumer:
            while check.seen < enough and not self._stopping.is_set():
                batch = consumer.poll(max_messages=POLL_MESSAGES, timeout=POLL_SECONDS)
                polls = 0 if batch else polls + 1
                if polls > PATIENCE_POLLS:
                    raise Mismatch(f"group {group} got {check.seen:,} of {enough:,} messages")
                for message in batch:
                    check.see(message.body)
                consumer.commit()
                advance(group, len(batch))
            if until is None and consumer.poll(max_messages=1, timeout=SURPLUS_SECONDS):
                raise Mismatch(f"group {group} got more messages than were sent")

"""Topic of the records of all schedules, and how they are read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rocketpy.admin.admin import Admin
from rocketpy.base.clock import monotonic
from rocketpy.base.names import name_server_list
from rocketpy.consuming.reader import RangeReader
from rocketpy.errors import BrokerNotFoundError, InvalidArgumentError, OffsetError, RocketPyError, TopicNotFoundError
from rocketpy.schedule.ledger import DAY_MS, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rocketpy.config import ClientOptions
    from rocketpy.message import MessageQueue, ReceivedMessage

TOPIC = "rocketpy_schedules"
"""Topic of the records. It has one queue, whose order decides between processes."""
GROUP = "rocketpy_schedulers"
"""Consumer group and producer group of the schedulers. Its producers answer check-backs."""
EDITORS = "rocketpy_schedule_editors"
"""Producer group of `add` and `remove`."""
SETTLE_SECONDS = 60.0
"""Maximum wait until an acknowledged record can be read, usually a few milliseconds."""
FIRST_PAUSE, MAX_PAUSE = 0.002, 0.1
ONE_QUEUE = f"rocketpy topic create {TOPIC} --queues 1 --broker"


class Journal:
    """Reads the records of all schedules.

    Args:
        name_servers: `host:port` of each name server.
        options: Options of the clients.
    """

    def __init__(self, name_servers: Iterable[str] | str | None, options: ClientOptions) -> None:
        self.name_servers, self.options = name_server_list(name_servers), options
        self.admin = Admin(self.name_servers, **options)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.close()

    def queue(self) -> MessageQueue | None:
        """The queue of the records; None if the topic does not exist.

        Raises:
            InvalidArgumentError: The topic has several queues, between which no order exists.
        """
        try:
            queues = self.admin.queues(TOPIC)
        except TopicNotFoundError:
            return None
        if len(queues) != 1:
            names = sorted({queue.broker_name for queue in queues})
            hint = f"`{ONE_QUEUE} {names[0]}` removes the other queues, which hold no schedules"
            if len(names) > 1:
                hint = f"`rocketpy topic delete {TOPIC}`, then `{ONE_QUEUE} {names[0]}`; add the schedules again"
            raise InvalidArgumentError(f"topic {TOPIC} must have one queue at one broker, not {len(queues)}", hint=hint)
        return queues[0]

    def made_queue(self) -> MessageQueue:
        """The queue of the records. In a cluster of one broker name the topic is created if it is missing.

        Raises:
            InvalidArgumentError: The topic has several queues, or is missing in a cluster of several broker names.
        """
        if (queue := self.queue()) is not None:
            return queue
        self.check_one_broker()
        self.admin.create_topic(TOPIC, queues=1, write_queues=1)
        queue = self.queue()
        if queue is None:
            raise TopicNotFoundError(f"topic {TOPIC} was deleted", retryable=True)
        return queue

    def check_one_broker(self) -> None:
        """Checks that the topic can be created by itself.

        Raises:
            InvalidArgumentError: The cluster has several broker names.
        """
        names = sorted({broker.broker_name for broker in self.admin.brokers()})
        if len(names) > 1:
            problem = f"topic {TOPIC} does not exist, and the cluster has several brokers: {', '.join(names)}"
            raise InvalidArgumentError(problem, hint=f"choose one: `{ONE_QUEUE} {names[0]}`")

    def hop_ms(self, queue: MessageQueue) -> int:
        """Maximum delay of a tick: within the broker's limit, and within half of the time that records are kept.

        A record of a removal is then kept for longer than a tick of the removed schedule waits.
        """
        brokers = [one for one in self.admin.brokers() if one.broker_name == queue.broker_name]
        if not brokers or 0 not in brokers[0].addresses:
            raise BrokerNotFoundError(f"broker {queue.broker_name} of topic {TOPIC} has no master", retryable=True)
        config = self.admin.broker_config(brokers[0].addresses[0])
        kept_ms = int(config["fileReservedTime"]) * 3_600_000
        return max(1000, min(int(config["timerMaxDelaySec"]) * 1000 - 1000, kept_ms // 2, DAY_MS))

    def read(self, queue: MessageQueue, ledger: Ledger, until: int | None = None) -> Ledger:
        """Applies the records of the queue to a ledger, without their effects.

        Args:
            queue: The queue.
            ledger: An empty ledger.
            until: Offset to stop before; default: the current end.

        Returns:
            The ledger.
        """
        end = self.admin.next_offset(queue) if until is None else until
        self._settle(queue, end)
        for message in self._messages(queue, end):
            ledger.apply(message)
        return ledger

    def _messages(self, queue: MessageQueue, end: int) -> Iterator[ReceivedMessage]:
        at = 0
        while (at := max(at, self.admin.min_offset(queue))) < end:
            try:
                with RangeReader(queue, at, end, name_servers=self.name_servers, **self.options) as reader:
                    for messages in reader.messages():
                        for message in messages:
                            yield message
                            at = message.queue_offset + 1
                return
            except OffsetError:  # retention removed the beginning meanwhile
                if self.admin.min_offset(queue) <= at:
                    raise

    def _settle(self, queue: MessageQueue, end: int) -> None:
        """Waits until the messages before an offset can be read."""
        deadline, pause = monotonic() + SETTLE_SECONDS, FIRST_PAUSE
        while self.admin.max_offset(queue) < end:
            if monotonic() >= deadline:
                raise RocketPyError(f"messages of {queue} before {end} do not become readable", retryable=True)
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)

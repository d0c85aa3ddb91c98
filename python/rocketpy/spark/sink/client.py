"""One client for all sink tasks of a worker process."""

from __future__ import annotations

import os
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from rocketpy.admin.admin import Admin
from rocketpy.consuming.reader import RangeReader
from rocketpy.producing.producer import Producer
from rocketpy.producing.transaction import TransactionProducer
from rocketpy.spark.sink.answers import Answers

if TYPE_CHECKING:
    from rocketpy.config import Tags
    from rocketpy.message import MessageQueue
    from rocketpy.spark.offsets import Offsets
    from rocketpy.spark.sink.options import SinkOptions


MOST_CLIENTS = 4
"""Maximum number of clients of one worker process, one for each set of options."""

_numbers = count()
_clients: dict[tuple[int, str], SinkClient] = {}
"""Clients by process and options: a fork must not use the clients of its parent."""


class SinkClient:
    """Producers and an administration that share their connections. The process keeps them until it ends.

    The producer never resends messages that may be stored: the sink reads the topic first.
    """

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.known_topics: set[str] = set()
        """Topics that this process has seen. If one is not found any more, its broker is away."""
        self.looked_to: dict[tuple[str, str], Offsets] = {}
        """Offset by progress topic and write of another sink, up to which no record concerns its next batches."""
        shared: dict[str, Any] = {"instance_name": f"spark-sink-{os.getpid()}-{next(_numbers)}"} | options.any_client
        self._shared = shared
        self.admin = Admin(options.name_servers, **shared)
        arguments = shared | dict(options.client)
        arguments["retries"] = 2 if options.progress_topic is None else 0
        self.producer = Producer(options.producer_group, name_servers=options.name_servers, **arguments)
        self.recorder = Producer(
            f"{options.producer_group}-progress", name_servers=options.name_servers, retries=2, **shared
        )
        """Sends records: they may be stored twice, and are not under the limits that the user sets for rows."""
        self._arguments = arguments

    @cached_property
    def transactions(self) -> TransactionProducer:
        """Sends half messages. From its first use on this process answers what brokers ask its group."""
        options = self.options
        group = f"{options.producer_group}-{options.progress_topic}"  # whoever is asked knows the decisions
        answer = Answers(self)
        return TransactionProducer(group, answer, name_servers=options.name_servers, check_threads=1, **self._arguments)

    def range_reader(self, queue: MessageQueue, start: int, end: int, tags: Tags) -> RangeReader:
        """Opens a part of a queue."""
        return RangeReader(queue, start, end, tags=tags, name_servers=self.options.name_servers, **self._shared)

    def close(self) -> None:
        """Closes all clients."""
        if "transactions" in self.__dict__:
            self.transactions.close()
        self.recorder.close()
        self.producer.close()
        self.admin.close()


def sink_client(options: SinkOptions) -> SinkClient:
    """The client of this process for some options."""
    user = options.client.get("credentials")
    key = (os.getpid(), f"{options!r} {hash(user)}")  # the text of a user lacks its secret
    if key not in _clients:
        while len(_clients) >= MOST_CLIENTS:
            _clients.pop(next(iter(_clients))).close()
        _clients[key] = SinkClient(options)
    return _clients[key]

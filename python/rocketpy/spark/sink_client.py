"""One client for all sink tasks of a worker process."""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

from rocketpy.admin import Admin
from rocketpy.producer import Producer
from rocketpy.reader import RangeReader

if TYPE_CHECKING:
    from rocketpy.message import MessageQueue
    from rocketpy.spark.sink_options import SinkOptions


_numbers = count()


class SinkClient:
    """A producer and an administration that share their connections. The process keeps them until it ends.

    The producer never sends again by itself what may be stored: the sink reads first whether it is.
    """

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.known_topics: set[str] = set()
        """Topics that took a message of this process: where one is missing now, its broker is away."""
        shared: dict[str, Any] = {"instance_name": f"spark-sink-{os.getpid()}-{next(_numbers)}"} | options.any_client
        self._shared = shared
        self.admin = Admin(options.name_servers, **shared)
        arguments = shared | dict(options.client)
        if options.progress_topic is not None:
            arguments["retries"] = 0
        self.producer = Producer(options.producer_group, name_servers=options.name_servers, **arguments)

    def range_reader(self, queue: MessageQueue, start: int, end: int) -> RangeReader:
        """Opens a part of a queue."""
        return RangeReader(queue, start, end, name_servers=self.options.name_servers, **self._shared)

    def close(self) -> None:
        """Closes both."""
        self.producer.close()
        self.admin.close()


def sink_client(options: SinkOptions) -> SinkClient:
    """The client of this process for some options."""
    return _client(os.getpid(), _Key(options))


class _Key:
    """Options as a key: they hold mappings."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self._text = repr(options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


@lru_cache(maxsize=4)
def _client(_process: int, key: _Key) -> SinkClient:
    return SinkClient(key.options)

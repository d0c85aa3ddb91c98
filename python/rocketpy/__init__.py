"""RocketPy: a message broker in a Python wheel, compatible with Apache RocketMQ on the wire and on disk.

Importing it does nothing: each name loads its module when it is first used.

Examples:
    >>> import rocketpy, tempfile
    >>> with tempfile.TemporaryDirectory() as folder, rocketpy.Server(folder) as server:
    ...     with server.producer("ingest") as producer:
    ...         _ = producer.send(rocketpy.Message("flights", b"UA1545 EWR-IAH", tag="UA", order_key="N14228"))
    ...     with server.consumer("report", "flights", tags="UA || AA", start=rocketpy.Start.EARLIEST) as consumer:
    ...         for message in consumer.poll(max_messages=10, timeout=60):
    ...             print(message.tag, message.body)
    ...         consumer.commit()
    UA b'UA1545 EWR-IAH'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketpy import errors as errors
    from rocketpy._rocketpy import ArrowBatch, Scan, __version__
    from rocketpy.admin import Admin, BrokerInfo, GroupInfo, QueueInfo, QueueLag, TopicBroker, TopicInfo
    from rocketpy.config import Compression, Duration, Instant, SendStatus, Start
    from rocketpy.consumer import Consumer, OffsetMove
    from rocketpy.errors import (
        AccessDeniedError,
        BrokerBusyError,
        BrokerNotFoundError,
        ClosedError,
        ConfigError,
        ConnectionFailedError,
        ConnectionLostError,
        DamagedDataError,
        DiskFullError,
        ForkedError,
        GroupConflictError,
        InvalidArgumentError,
        MessageTooLargeError,
        NotAStoreError,
        NotSupportedError,
        OffsetError,
        PartlySentError,
        PortInUseError,
        ProtocolError,
        RefusedError,
        RequestTimeoutError,
        RocketPyError,
        ServerError,
        StoreError,
        StoreLockedError,
        TopicNotFoundError,
    )
    from rocketpy.message import Message, MessageQueue, Receipt, ReceivedMessage
    from rocketpy.producer import Producer, Receipts
    from rocketpy.reader import RangeReader
    from rocketpy.server import Broker, NameServer, Server
    from rocketpy.store import QueueRange, StoredQueue, StoredTopic, StoreRange, StoreReader

__all__ = [
    "AccessDeniedError",
    "Admin",
    "ArrowBatch",
    "Broker",
    "BrokerBusyError",
    "BrokerInfo",
    "BrokerNotFoundError",
    "ClosedError",
    "Compression",
    "ConfigError",
    "ConnectionFailedError",
    "ConnectionLostError",
    "Consumer",
    "DamagedDataError",
    "DiskFullError",
    "Duration",
    "ForkedError",
    "GroupConflictError",
    "GroupInfo",
    "Instant",
    "InvalidArgumentError",
    "Message",
    "MessageQueue",
    "MessageTooLargeError",
    "NameServer",
    "NotAStoreError",
    "NotSupportedError",
    "OffsetError",
    "OffsetMove",
    "PartlySentError",
    "PortInUseError",
    "Producer",
    "ProtocolError",
    "QueueInfo",
    "QueueLag",
    "QueueRange",
    "RangeReader",
    "Receipt",
    "Receipts",
    "ReceivedMessage",
    "RefusedError",
    "RequestTimeoutError",
    "RocketPyError",
    "Scan",
    "SendStatus",
    "Server",
    "ServerError",
    "Start",
    "StoreError",
    "StoreLockedError",
    "StoreRange",
    "StoreReader",
    "StoredQueue",
    "StoredTopic",
    "TopicBroker",
    "TopicInfo",
    "TopicNotFoundError",
    "__version__",
    "errors",
]

_HOMES = {
    "ArrowBatch": "_rocketpy",
    "Scan": "_rocketpy",
    "__version__": "_rocketpy",
    "Admin": "admin",
    "BrokerInfo": "admin",
    "GroupInfo": "admin",
    "QueueInfo": "admin",
    "QueueLag": "admin",
    "TopicBroker": "admin",
    "TopicInfo": "admin",
    "Compression": "config",
    "Duration": "config",
    "Instant": "config",
    "SendStatus": "config",
    "Start": "config",
    "Consumer": "consumer",
    "OffsetMove": "consumer",
    "Message": "message",
    "MessageQueue": "message",
    "Receipt": "message",
    "ReceivedMessage": "message",
    "Producer": "producer",
    "Receipts": "producer",
    "RangeReader": "reader",
    "Broker": "server",
    "NameServer": "server",
    "Server": "server",
    "QueueRange": "store",
    "StoreRange": "store",
    "StoreReader": "store",
    "StoredQueue": "store",
    "StoredTopic": "store",
}
"""Module of every name; those that end in `Error` are in `errors`."""


def __getattr__(name: str) -> Any:
    if name in ("errors", "store"):
        return import_module(f"rocketpy.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'rocketpy' has no attribute {name!r}")
    value = getattr(import_module(f"rocketpy.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

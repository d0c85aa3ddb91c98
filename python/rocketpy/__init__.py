"""RocketPy: a message broker in a Python wheel, compatible with Apache RocketMQ on the wire and on disk.

Importing it does nothing: each name loads its module when it is first used.

Examples:
    >>> import rocketpy, tempfile
    >>> with tempfile.TemporaryDirectory() as folder, rocketpy.Server(folder) as server:
    ...     with server.producer("ingest") as producer:
    ...         _ = producer.send(rocketpy.Message("flights", b"UA1545 EWR-IAH", tag="UA", order_key="N14228"))
    ...     with server.consumer("report", "flights", tags="UA || AA", start=rocketpy.Start.EARLIEST) as consumer:
    ...         for message in consumer.poll(max_messages=10, timeout=5):
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

_NAMES = {
    "_rocketpy": ("ArrowBatch", "Scan", "__version__"),
    "admin": ("Admin", "BrokerInfo", "GroupInfo", "QueueInfo", "QueueLag", "TopicBroker", "TopicInfo"),
    "config": ("Compression", "Duration", "Instant", "SendStatus", "Start"),
    "consumer": ("Consumer", "OffsetMove"),
    "errors": (
        "AccessDeniedError",
        "BrokerBusyError",
        "BrokerNotFoundError",
        "ClosedError",
        "ConfigError",
        "ConnectionFailedError",
        "ConnectionLostError",
        "DamagedDataError",
        "DiskFullError",
        "ForkedError",
        "GroupConflictError",
        "InvalidArgumentError",
        "MessageTooLargeError",
        "NotAStoreError",
        "NotSupportedError",
        "OffsetError",
        "PartlySentError",
        "PortInUseError",
        "ProtocolError",
        "RefusedError",
        "RequestTimeoutError",
        "RocketPyError",
        "ServerError",
        "StoreError",
        "StoreLockedError",
        "TopicNotFoundError",
    ),
    "message": ("Message", "MessageQueue", "Receipt", "ReceivedMessage"),
    "producer": ("Producer", "Receipts"),
    "reader": ("RangeReader",),
    "server": ("Broker", "NameServer", "Server"),
    "store": ("QueueRange", "StoreRange", "StoreReader", "StoredQueue", "StoredTopic"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [  # noqa: PLE0604 (computed from the one table)
    *sorted(_MODULES),
    "errors",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("rocketpy.errors")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'rocketpy' has no attribute {name!r}")
    value = getattr(import_module(f"rocketpy.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""RocketPy: a message broker in a Python wheel, compatible with Apache RocketMQ on the wire and on disk.

The import loads almost nothing: each name loads its module at its first use. Platforms and interpreters that are not
supported raise an `ImportError`, and so does the distribution `rocketpy`, a rocket trajectory simulator, in the same
environment.

Examples:
    >>> import rocketpy, tempfile
    >>> with tempfile.TemporaryDirectory() as folder, rocketpy.Server(folder) as server:
    ...     with server.producer("ingest") as producer:
    ...         _ = producer.send(rocketpy.Message("flights", b"UA1545 EWR-IAH", tag="UA", order_key="N14228"))
    ...     with server.consumer("report", "flights", tags="UA || AA") as consumer:
    ...         for message in consumer.poll(max_messages=10, timeout=60):
    ...             print(message.tag, message.body)
    ...         consumer.commit()
    UA b'UA1545 EWR-IAH'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rocketpy.base.interpreter import check_interpreter  # rocketpy.base checks for a second distribution

if TYPE_CHECKING:
    # What `_NAMES` says, for type checkers; tests/sdk/test_names.py compares the two.
    from rocketpy import errors as errors
    from rocketpy import health as health
    from rocketpy._rocketpy import ArrowBatch as ArrowBatch
    from rocketpy._rocketpy import Scan as Scan
    from rocketpy._rocketpy import __version__ as __version__
    from rocketpy.admin.accounts import *
    from rocketpy.admin.admin import *
    from rocketpy.admin.answers import *
    from rocketpy.admin.changes import *
    from rocketpy.admin.cluster import *
    from rocketpy.admin.dead_letters import *
    from rocketpy.admin.drains import *
    from rocketpy.admin.inventory import *
    from rocketpy.admin.live_config import *
    from rocketpy.admin.quotas import *
    from rocketpy.admin.replication import *
    from rocketpy.admin.status import *
    from rocketpy.admin.trace import *
    from rocketpy.admin.waiting import *
    from rocketpy.aio.admin import *
    from rocketpy.aio.consumer import *
    from rocketpy.aio.producer import *
    from rocketpy.aio.push import *
    from rocketpy.config import Backoff as Backoff
    from rocketpy.config import Compression as Compression
    from rocketpy.config import Duration as Duration
    from rocketpy.config import Instant as Instant
    from rocketpy.config import SendStatus as SendStatus
    from rocketpy.config import Start as Start
    from rocketpy.consuming.balance import Balance as Balance
    from rocketpy.consuming.consumer import *
    from rocketpy.consuming.push import *
    from rocketpy.consuming.reader import *
    from rocketpy.errors import *
    from rocketpy.message import *
    from rocketpy.producing.producer import *
    from rocketpy.producing.receipts import *
    from rocketpy.producing.transaction import *
    from rocketpy.security import *
    from rocketpy.servers.server import *
    from rocketpy.stats import *
    from rocketpy.store import QueueRange as QueueRange
    from rocketpy.store import StoredQueue as StoredQueue
    from rocketpy.store import StoredTopic as StoredTopic
    from rocketpy.store import StoreRange as StoreRange
    from rocketpy.store import StoreReader as StoreReader

_NAMES = {
    "_rocketpy": ("ArrowBatch", "Scan", "__version__"),
    "admin.accounts": ("AccountServer", "Policy", "User"),
    "admin.admin": ("Admin",),
    "admin.answers": ("Answers", "ConsumerRunningInfo", "MemberQueue", "MissingBroker"),
    "admin.changes": ("CleanedPart", "DirectResult", "OffsetChange", "ResentMessage", "SettingChange"),
    "admin.cluster": (
        "BrokerHealth", "BrokerInfo", "GroupBroker", "GroupInfo", "GroupMember", "ProducerConnection", "QueueInfo",
        "QueueLag", "TopicBroker", "TopicInfo"
    ),
    "admin.dead_letters": ("DeadLetter", "DeadLetterFilter", "DeadLetterGroup", "Resent"),
    "admin.drains": ("DrainStep", "GroupRest", "MoveStep", "TopicWrites"),
    "admin.inventory": (
        "CountRate", "GroupConfig", "MessageConsumer", "ProducerGroup", "QueueDelay", "TopicConfig", "TrafficRate"
    ),
    "admin.live_config": ("ConfigUpdate", "ConfigValue"),
    "admin.quotas": ("Quota", "QuotaUse"),
    "admin.replication": ("Epoch", "HaStatus", "RefusedSlave", "SlaveInfo"),
    "admin.status": ("BrokerStatus", "ClusterStatus", "GroupStatus", "TopicStatus", "WaitingRetries"),
    "admin.trace": ("MessageTrace", "TracedDelivery", "TracedRecall", "TracedSend", "TracedTransaction"),
    "admin.waiting": ("OpenTransaction", "OpenTransactions", "WaitingMessage", "WaitingMessages"),
    "aio.admin": ("AsyncAdmin",),
    "aio.consumer": ("AsyncConsumer",),
    "aio.producer": ("AsyncProducer",),
    "aio.push": ("AsyncPushConsumer",),
    "config": ("Backoff", "Compression", "Duration", "Instant", "SendStatus", "Start"),
    "consuming.balance": ("Balance",),
    "consuming.consumer": ("BrokerContact", "Consumer", "ConsumerState", "OffsetMove"),
    "consuming.push": ("PushConsumer", "Reject", "Retry"),
    "consuming.reader": ("RangeReader",),
    "errors": (
        "AccessDeniedError", "AssertionFailedError", "BrokerBusyError", "BrokerNotFoundError", "ClosedError",
        "ConfigError", "ConnectionFailedError", "ConnectionLostError", "DamagedDataError", "DecodeError",
        "DedupStoreError", "DiskFullError", "ForkedError", "GroupConflictError", "GroupNotFoundError",
        "InProgressError", "InvalidArgumentError", "MessageTooLargeError", "NotAStoreError", "NotSupportedError",
        "OffsetError", "PartlySentError", "PortInUseError", "ProtocolError", "RefusedError", "RequestTimeoutError",
        "RocketPyError", "ScheduleConflictError", "ScheduleNotFoundError", "ServerError", "StoreError",
        "StoreLockedError", "TopicNotFoundError", "TransactionOverError"
    ),
    "message": ("Message", "MessageQueue", "Receipt", "ReceivedMessage"),
    "producing.producer": ("Producer",),
    "producing.receipts": ("Receipts",),
    "producing.transaction": ("Decision", "Transaction", "TransactionProducer"),
    "security": ("Credentials", "Tls"),
    "servers.server": ("Broker", "NameServer", "Server"),
    "stats": ("ConsumerStats", "Latency", "ProducerStats", "PushStats", "QueueStats", "Traffic"),
    "store": ("QueueRange", "StoreRange", "StoreReader", "StoredQueue", "StoredTopic"),
}  # fmt: skip
"""Public names by module."""
_MODULES = ("codec", "dedup", "errors", "health", "schedule", "store")
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

check_interpreter()

if not TYPE_CHECKING:
    __all__ = sorted([*_HOMES, "errors", "health"])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"rocketpy.{name}")
    if name not in _HOMES:
        from rocketpy.base.similar import did_you_mean  # only for an error

        meant = "" if name.startswith("_") else did_you_mean(name, _HOMES)
        raise AttributeError(f"module 'rocketpy' has no attribute {name!r}{meant}", name=name)
    value = getattr(import_module(f"rocketpy.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})

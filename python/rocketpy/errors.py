"""Exceptions of RocketPy, as one tree under `RocketPyError`.

Every error answers two questions: may the same call succeed later (`retryable`), and may the server have executed the
request despite the error (`may_have_been_applied`). Many also suggest a remedy (`hint`).

A wrong Python type stays a `TypeError`, as everywhere in Python.

Examples:
    >>> import rocketpy
    >>> try:
    ...     rocketpy.Message("a/b", b"text")
    ... except rocketpy.InvalidArgumentError as error:
    ...     print(error.retryable, error.may_have_been_applied)
    False False
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.producing.receipts import Receipts

__all__ = [
    "AccessDeniedError",
    "AssertionFailedError",
    "BrokerBusyError",
    "BrokerNotFoundError",
    "ClosedError",
    "ConfigError",
    "ConnectionFailedError",
    "ConnectionLostError",
    "DamagedDataError",
    "DecodeError",
    "DedupStoreError",
    "DiskFullError",
    "ForkedError",
    "GroupConflictError",
    "GroupNotFoundError",
    "InProgressError",
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
    "ScheduleConflictError",
    "ScheduleNotFoundError",
    "ServerError",
    "StoreError",
    "StoreLockedError",
    "TopicNotFoundError",
    "TransactionOverError",
]


class RocketPyError(Exception):
    """Root of all errors of this package.

    Attributes:
        code: Response code of the server, or the code that Apache's clients use for this failure; None without one.
        retryable: True when the same call may succeed later without a change of its arguments.
        may_have_been_applied: True when the server may have executed the request. A send that timed out may be stored.
        hint: Suggested remedy; None without one. Also shown below the traceback.
        msg_id: Unique key of the message whose send failed. `send(message, msg_id=error.msg_id)` repeats the send under
            the same id, by which consumers recognise the duplicate. None for other errors, and without an id.
        broker: Name of the broker of the last send attempt; None when no attempt was made.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        retryable: bool = False,
        may_have_been_applied: bool = False,
        hint: str | None = None,
        msg_id: str | None = None,
        broker: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.may_have_been_applied = may_have_been_applied
        self.hint = hint
        self.msg_id = msg_id
        self.broker = broker
        if hint:
            self.add_note(f"hint: {hint}")


class InvalidArgumentError(RocketPyError, ValueError):
    """A name, value, expression or option is invalid. Nothing was sent."""


class MessageTooLargeError(InvalidArgumentError):
    """The body, the properties or the whole request exceed their maximum size. Nothing was sent.

    For readers: the decompressed body exceeds `max_body_bytes`. The message is not returned; nothing is damaged.
    """


class NotSupportedError(RocketPyError):
    """This version, or the server, does not support the request. Nothing was stored."""


class ClosedError(RocketPyError):
    """The object was closed, or its server was stopped.

    A request that waited for its reply then may have been received; see `may_have_been_applied`.
    """


class ForkedError(RocketPyError):
    """The object was created before `os.fork()` and used in the child, where its threads and sockets do not exist."""


class RequestTimeoutError(RocketPyError, TimeoutError):
    """The server did not answer in time. A send may have been applied; see `may_have_been_applied`."""


class ConnectionFailedError(RocketPyError, ConnectionError):
    """The connection could not be established. Nothing was applied."""


class ConnectionLostError(RocketPyError, ConnectionError):
    """The connection ended before the answer. A send may have been applied; see `may_have_been_applied`."""


class TopicNotFoundError(RocketPyError, LookupError):
    """The topic does not exist, or none of its queues can be read or written. Retryable: the topic may appear."""


class BrokerNotFoundError(RocketPyError, LookupError):
    """No broker or cluster of that name has a usable address, or no broker is registered at all."""


class GroupConflictError(RocketPyError):
    """The group has live members that forbid the call, or another live member subscribes to other topics or tags.

    Members share the queues of a topic: with different subscriptions, each receives only a part of its messages. `poll`
    raises the error after each heartbeat (every 30 s) that reports a different subscription, and works in between.
    """


class OffsetError(RocketPyError, LookupError):
    """The offset is outside the queue, or the queue is not assigned to this consumer."""


class RefusedError(RocketPyError):
    """The server answered with an error code; `code` holds it."""


class GroupNotFoundError(RefusedError, LookupError):
    """The consumer group does not exist at any broker."""


class BrokerBusyError(RefusedError):
    """The broker is too busy for the request. A retry is safe."""


class AccessDeniedError(RefusedError):
    """The topic or the broker does not permit the operation."""


class TransactionOverError(RefusedError):
    """The transaction cannot end as requested: it ended otherwise, was given up, or its message is gone."""


class PartlySentError(RocketPyError):
    """Some messages of `send_many` were not acknowledged.

    Attributes:
        receipts: The outcome of every message, in the order of the messages: indexing returns the receipt, or raises
            the error of that message. None only when the error was not raised by `send_many`. Pickled with the error.
    """

    receipts: Receipts | None = None


class ProtocolError(RocketPyError):
    """The answer of a server violates the protocol."""


class DamagedDataError(RocketPyError):
    """Stored or received bytes do not match their checksum, length or compression."""


UNREADABLE_BODY = (DamagedDataError, MessageTooLargeError)
"""Errors of a body that does not decompress, or that exceeds its maximum size."""
UNKNOWN = (
    BrokerNotFoundError,
    ConnectionFailedError,
    ConnectionLostError,
    ProtocolError,
    RefusedError,
    RequestTimeoutError,
    TopicNotFoundError,
)
"""Errors that leave a part of an answer unknown. Misuse, such as a closed client, is raised."""


class ServerError(RocketPyError):
    """A server could not start, run, or stop in order."""


class ConfigError(ServerError, ValueError):
    """A configuration key is unknown, or its value is out of range."""


class PortInUseError(ServerError, OSError):
    """The address to listen on is already in use."""


class StoreError(RocketPyError, OSError):
    """A store folder cannot be opened, read or written."""


class AssertionFailedError(StoreError):
    """An assertion of the store failed: a defect of RocketPy. The store refuses writes; the next start recovers it."""


class NotAStoreError(StoreError):
    """The folder is not a store."""


class StoreLockedError(StoreError):
    """Another process has the store open."""


class DiskFullError(StoreError):
    """The disk has no room left."""


class InProgressError(RocketPyError):
    """Another worker holds the lease on the work of a message: it is running, or its process died. Nothing ran here.

    Attributes:
        lease_ends_at: Time at which the lease expires, in UTC. An earlier retry succeeds only if the worker has ended;
            a later one takes the work over. None without a lease: retry at once.
    """

    lease_ends_at: datetime | None = None


class DedupStoreError(RocketPyError):
    """Marks of finished work cannot be read or written.

    With `may_have_been_applied` the work was done, but its mark could not be stored: a retry repeats the work.
    Otherwise nothing ran.
    """


class ScheduleConflictError(RocketPyError):
    """Another definition is stored under the name of a schedule. The text shows both; nothing was changed."""


class ScheduleNotFoundError(RocketPyError, LookupError):
    """No schedule has this name."""


class DecodeError(RocketPyError, ValueError):
    """The body of a message does not decode by its codec, as text or as JSON. A retry does not help.

    Attributes:
        message: The received message. The consumer has passed it: the next `commit` covers it. None for a message to
            send.
    """

    message: ReceivedMessage | None = None

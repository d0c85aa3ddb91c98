"""Everything that RocketPy raises, as one tree under `RocketPyError`.

Every error answers two questions: may the same call succeed later (`retryable`), and may the server have done what
was asked although the error came back (`may_have_been_applied`). Many also say what the caller can do (`hint`).

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
        hint: What the caller can do; None without advice. Also shown below the traceback.
        msg_id: Of a send: unique key of the message. `send(message, msg_id=error.msg_id)` repeats it under the same
            id, by which consumers recognise the duplicate. None for other errors, and without an id.
        broker: Of a send: name of the broker of the last attempt; None when no attempt was made.
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
    """A name, a value, an expression or an option breaks its rules. Nothing was sent."""


class MessageTooLargeError(InvalidArgumentError):
    """A body, the properties, or the whole request are larger than they may be: nothing was sent.

    For readers: a body is larger than `max_body_bytes` when decompressed. It is not handed out; nothing is damaged.
    """


class NotSupportedError(RocketPyError):
    """This version, or the server, does not support the request. Nothing was stored."""


class ClosedError(RocketPyError):
    """The object was closed, or its server was stopped.

    A request that waited for its reply then may have been received; see `may_have_been_applied`.
    """


class ForkedError(RocketPyError):
    """The object was made before `os.fork()` and is used in the child, where its threads and sockets do not exist."""


class RequestTimeoutError(RocketPyError, TimeoutError):
    """No answer came in time. A send may have been applied; see `may_have_been_applied`."""


class ConnectionFailedError(RocketPyError, ConnectionError):
    """No connection could be made: nothing was applied."""


class ConnectionLostError(RocketPyError, ConnectionError):
    """The connection ended before the answer came. A send may have been applied; see `may_have_been_applied`."""


class TopicNotFoundError(RocketPyError, LookupError):
    """No such topic, or none of its queues can be read or written. Retryable: the topic may appear."""


class BrokerNotFoundError(RocketPyError, LookupError):
    """No broker, or no cluster, of that name has a usable address; or no broker at all is registered."""


class GroupConflictError(RocketPyError):
    """The group is in use in a way that forbids the call, or another live member subscribes to other topics or tags.

    Members share the queues of a topic: where they want different things, each gets only a part of what it wants.
    `poll` raises it after each heartbeat (every 30 s) that tells of such a member, and goes on in between.
    """


class OffsetError(RocketPyError, LookupError):
    """An offset is not there, or a queue is not assigned to this consumer."""


class RefusedError(RocketPyError):
    """The server answered with an error code; `code` holds it."""


class GroupNotFoundError(RefusedError, LookupError):
    """No broker has such a consumer group."""


class BrokerBusyError(RefusedError):
    """The broker is too busy for the request. A retry is safe."""


class AccessDeniedError(RefusedError):
    """The topic or the broker does not permit the operation."""


class TransactionOverError(RefusedError):
    """A transaction can never end as asked: it ended otherwise, was given up, or its message is gone."""


class PartlySentError(RocketPyError):
    """Some messages of `send_many` were not acknowledged.

    Attributes:
        receipts: The outcome of every message, in the order of the messages: indexing gives the receipt, or raises the
            error of that message. None only when the error did not come from `send_many`. They travel with the error.
    """

    receipts: Receipts | None = None


class ProtocolError(RocketPyError):
    """An answer does not follow the protocol."""


class DamagedDataError(RocketPyError):
    """Stored or received bytes do not match their checksum, length or compression."""


class ServerError(RocketPyError):
    """A server could not start, run, or stop in order."""


class ConfigError(ServerError, ValueError):
    """A configuration key is unknown, or its value is out of range."""


class PortInUseError(ServerError, OSError):
    """The address to listen on is taken."""


class StoreError(RocketPyError, OSError):
    """A store folder cannot be opened, read or written."""


class AssertionFailedError(StoreError):
    """An assertion of the store failed: a defect of RocketPy. The store refuses writes; the next start recovers it."""


class NotAStoreError(StoreError):
    """The folder is not a store."""


class StoreLockedError(StoreError):
    """Another process uses the store."""


class DiskFullError(StoreError):
    """The disk has no room left."""


class InProgressError(RocketPyError):
    """Another worker has the lease on the work of a message: it runs, or its process died. Nothing ran here.

    Attributes:
        lease_ends_at: When the lease ends, in UTC. Before that a retry is of use only if the worker has ended; after it
            the retry takes the work over. None where there is no lease: retry at once.
    """

    lease_ends_at: datetime | None = None


class DedupStoreError(RocketPyError):
    """The marks of work that is done cannot be read or written.

    With `may_have_been_applied` the work was done, and its mark could not be stored: a retry does it again. Otherwise
    nothing ran.
    """


class DecodeError(RocketPyError, ValueError):
    """The body of a message is not what its codec expects. A retry does not help.

    Attributes:
        message: The message. The consumer has gone past it: the next `commit` covers it.
    """

    message: ReceivedMessage | None = None

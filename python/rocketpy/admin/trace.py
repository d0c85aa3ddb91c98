"""Trace of a message, written by producers and consumers and read by `Admin.trace`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from rocketpy import _rocketpy
from rocketpy.base.instant import EPOCH, datetime_of
from rocketpy.errors import UNREADABLE_BODY, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from datetime import datetime

    from rocketpy._rocketpy import ReceivedMessage, TraceRecord

__all__ = ["MessageTrace", "TracedDelivery", "TracedRecall", "TracedSend", "TracedTransaction"]

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Default topic of traces."""


@dataclass(frozen=True, slots=True)
class TracedSend:
    """A send that a broker acknowledged."""

    at: datetime | None
    """Start of the send, by the clock of its client; None for a number before 1970 or after the year 9999."""
    group: str
    """Producer group."""
    client: str
    """Client id of the sender, or `host:port` of its connection: clients of Apache 5 do not write the id."""
    topic: str
    tag: str | None
    keys: tuple[str, ...]
    kind: str | None
    """`normal`, `half` (of a transaction), `commit`, `delay` or `order`; None for other kinds."""
    store_host: str
    """`host:port` of the broker that stored it."""
    offset_msg_id: str | None
    """Offset message id, for `Admin.view_message`; None from old clients."""
    body_bytes: int
    """Length of the body as sent, possibly compressed."""
    cost_ms: int
    """Milliseconds from the request to its answer."""
    success: bool
    """Whether the message was stored, flushed and replicated according to the broker's policy (SEND_OK)."""


@dataclass(frozen=True, slots=True)
class TracedDelivery:
    """A message that a consumer received."""

    began_at: datetime | None
    """Time at which the consumer received the message; None if that record is missing."""
    ended_at: datetime | None
    """Time at which the consumer finished the message: for a `Consumer`, its commit. None before, and from old
    clients."""
    group: str | None
    """Consumer group; None if an old client wrote only the end."""
    client: str
    """`host:port` of the consumer's connection."""
    retries: int | None
    """Number of earlier redeliveries; None if the record of the begin is missing."""
    cost_ms: int | None
    """Average milliseconds per message of those received together; None before the end."""
    success: bool | None
    """Whether the message counts as consumed; None before the end."""
    result: str | None
    """`success`, `timed out`, `exception`, `returned null` or `failed`; None before the end, and from old clients."""


@dataclass(frozen=True, slots=True)
class TracedTransaction:
    """End of the message's transaction, sent by its producer to the broker."""

    at: datetime | None
    group: str
    """Producer group."""
    client: str
    """`host:port` of the producer's connection."""
    store_host: str
    """`host:port` of the broker."""
    transaction_id: str | None
    state: str
    """`COMMIT_MESSAGE`, `ROLLBACK_MESSAGE` or `UNKNOW`."""
    from_check: bool
    """Whether the end answers a check-back of the broker."""


@dataclass(frozen=True, slots=True)
class TracedRecall:
    """A recall of the message before its time."""

    at: datetime | None
    group: str
    """Producer group."""
    client: str
    """`host:port` of the producer's connection."""
    success: bool
    """Whether the broker recalled the message."""


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """Trace of one message, each list the oldest first. Only clients with tracing enabled write records."""

    msg_id: str
    sends: tuple[TracedSend, ...]
    """Acknowledged sends; several if the message was sent again under its id."""
    deliveries: tuple[TracedDelivery, ...]
    """Deliveries to consumers."""
    transactions: tuple[TracedTransaction, ...]
    recalls: tuple[TracedRecall, ...]

    def __bool__(self) -> bool:
        """Whether anything was written."""
        return any(getattr(self, field.name) for field in fields(self)[1:])


def trace_of(msg_id: str, found: Iterable[ReceivedMessage]) -> MessageTrace:
    """Reads the trace of a message from trace messages. Duplicate records count once."""
    sends: dict[TracedSend, None] = {}
    transactions: dict[TracedTransaction, None] = {}
    recalls: dict[TracedRecall, None] = {}
    begins: dict[str, tuple[TraceRecord, str]] = {}
    ends: dict[str, tuple[TraceRecord, str]] = {}
    for message in found:
        try:
            records = _rocketpy.trace_records(message.body)
        except UNREADABLE_BODY:  # stored by another client: hides no other record
            continue
        for record in records:
            if record["msg_id"] != msg_id:
                continue
            client = message.born_host
            match record["step"]:
                case "sent":
                    sends[sent(record, client)] = None
                case "began":
                    begins[record["request_id"] or ""] = (record, client)
                case "ended":
                    ends[record["request_id"] or ""] = (record, client)
                case "transaction":
                    transactions[transaction(record, client)] = None
                case _:
                    recalls[recall(record, client)] = None
    deliveries = [delivery(begins.get(request), ends.get(request)) for request in begins | ends]
    return MessageTrace(
        msg_id,
        tuple(sorted(sends, key=lambda one: one.at or EPOCH)),
        tuple(sorted(deliveries, key=lambda one: one.began_at or one.ended_at or EPOCH)),
        tuple(sorted(transactions, key=lambda one: one.at or EPOCH)),
        tuple(sorted(recalls, key=lambda one: one.at or EPOCH)),
    )


def sent(record: TraceRecord, client: str) -> TracedSend:
    """A send of its record."""
    return TracedSend(
        at=datetime_of(record["at_ms"]),
        group=record["group"] or "",
        client=record["client_host"] or client,
        topic=record["topic"] or "",
        tag=record["tag"],
        keys=tuple(_rocketpy.split_keys(record["keys"] or "")),
        kind=record["kind"],
        store_host=record["store_host"] or "",
        offset_msg_id=record["offset_msg_id"],
        body_bytes=record["body_bytes"] or 0,
        cost_ms=record["cost_ms"] or 0,
        success=bool(record["success"]),
    )


def transaction(record: TraceRecord, client: str) -> TracedTransaction:
    """The end of a transaction of its record."""
    return TracedTransaction(
        at=datetime_of(record["at_ms"]),
        group=record["group"] or "",
        client=client,
        store_host=record["store_host"] or "",
        transaction_id=record["transaction_id"],
        state=record["state"] or "",
        from_check=bool(record["from_check"]),
    )


def recall(record: TraceRecord, client: str) -> TracedRecall:
    """A recall of its record."""
    return TracedRecall(datetime_of(record["at_ms"]), record["group"] or "", client, bool(record["success"]))


def delivery(began: tuple[TraceRecord, str] | None, ended: tuple[TraceRecord, str] | None) -> TracedDelivery:
    """A delivery of its two records, of which one may be missing."""
    begin, client = began or (None, "")
    end, ending_client = ended or (None, "")
    return TracedDelivery(
        began_at=datetime_of(begin["at_ms"] or None) if begin else None,
        ended_at=datetime_of(end["at_ms"] or None) if end else None,
        group=(begin and begin["group"]) or (end and end["group"]),
        client=client or ending_client,
        retries=begin["retries"] if begin else None,
        cost_ms=end["cost_ms"] if end else None,
        success=end["success"] if end else None,
        result=end["result"] if end else None,
    )


@contextmanager
def explained(trace_topic: str) -> Generator[None]:
    """Adds a hint to the error of a missing trace topic."""
    try:
        yield
    except TopicNotFoundError:
        raise TopicNotFoundError(
            f"trace topic {trace_topic} does not exist: no message was traced",
            hint="set trace=True for producers and consumers; a broker without autoCreateTopicEnable needs "
            "traceTopicEnable=true, or create a topic and name it as trace_topic",
        ) from None

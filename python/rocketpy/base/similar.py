"""Names that exist here for names that do not: those of other clients, and misspelt ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FOREIGN = {
    "AIOKafkaConsumer": ("AsyncConsumer",),
    "AIOKafkaProducer": ("AsyncProducer",),
    "DefaultLitePullConsumer": ("Consumer",),
    "DefaultMQProducer": ("Producer",),
    "DefaultMQPushConsumer": ("PushConsumer",),
    "KafkaAdminClient": ("Admin",),
    "KafkaConsumer": ("Consumer",),
    "KafkaProducer": ("Producer",),
    "ack": ("commit",),
    "acknowledge": ("commit",),
    "add_callback": ("add_done_callback",),
    "add_errback": ("add_done_callback",),
    "auto_commit_interval_ms": ("auto_commit",),
    "auto_offset_reset": ("start",),
    "basic_ack": ("commit",),
    "basic_consume": ("on",),
    "bootstrap_server": ("name_servers", "name-server"),
    "bootstrap_servers": ("name_servers", "name-server"),
    "brokers": ("name_servers",),
    "broker_list": ("name_servers", "name-server"),
    "batch_size": ("batch_bytes",),
    "client_id": ("instance_name",),
    "commitSync": ("commit",),
    "compression_type": ("compression",),
    "consumer_group": ("group",),
    "consume": ("poll",),
    "create_topics": ("create_topic",),
    "data": ("body",),
    "delete_topics": ("delete_topic",),
    "describe_topics": ("describe_topic",),
    "enable_auto_commit": ("auto_commit",),
    "from_beginning": ("from",),
    "get": ("result",),
    "getmany": ("poll",),
    "getone": ("poll",),
    "group_id": ("group",),
    "headers": ("properties",),
    "id": ("msg_id",),
    "key": ("order_key", "keys"),
    "linger_ms": ("linger",),
    "list_groups": ("groups",),
    "list_consumer_groups": ("groups",),
    "list_topics": ("topics",),
    "max_poll_records": ("max_messages",),
    "max_records": ("max_messages",),
    "max_messages": ("count",),
    "max_request_size": ("max_message_size",),
    "message_id": ("msg_id",),
    "namesrv_addr": ("name_servers",),
    "num_messages": ("max_messages",),
    "num_partitions": ("queues",),
    "offset": ("queue_offset",),
    "offsets_for_times": ("search_offset", "seek"),
    "partition_key": ("order_key",),
    "partition": ("queues", "queue_id", "queue.queue_id"),
    "partitions": ("queues",),
    "partitions_for": ("queues",),
    "partitions_for_topic": ("queues",),
    "payload": ("body",),
    "position": ("positions",),
    "producer_group": ("group",),
    "request_timeout_ms": ("attempt_timeout", "api_timeout"),
    "subscribe": ("on",),
    "timestamp": ("born_at_ms", "stored_at_ms"),
    "to_datetime": ("to",),
    "topic": ("queue.topic",),
    "topics": ("topic",),
    "value": ("body",),
    "value_deserializer": ("codec",),
}
"""Names here for the names of other clients. Command line flags have hyphens in place of underscores."""
REDELIVERY = "a handler that raises has its message redelivered; rocketpy.Reject moves it to the dead letters"
ADVICE = {
    "ack": "a consumer commits: commit(); the return of a handler acknowledges its message",
    "acks": "the broker's flushDiskType and inSyncReplicas decide when it answers; send_oneway waits for no answer",
    "alter": "create also changes a topic that exists",
    "asynchronous": "write wait=False",
    "basic_ack": "a consumer commits: commit(); the return of a handler acknowledges its message",
    "basic_consume": "the constructor subscribes: Consumer(group, topic)",
    "basic_nack": REDELIVERY,
    "basic_publish": "write send(rocketpy.Message(topic, body))",
    "begin_transaction": "use rocketpy.TransactionProducer",
    "callback": "write submit(message).add_done_callback(function); with asyncio, await send(message)",
    "commitAsync": "write commit(wait=False)",
    "commitSync": "a consumer commits: commit(); the return of a handler acknowledges its message",
    "consume": "write poll(max_messages, timeout) of a rocketpy.Consumer",
    "error": "errors are raised, not returned",
    "getmany": "write poll(max_messages, timeout) of a rocketpy.Consumer",
    "getone": "write poll(max_messages=1) of a rocketpy.Consumer",
    "headers": "write rocketpy.Message(topic, body, properties={...})",
    "heartbeat_interval_ms": "clients send heartbeats by themselves; no option sets the interval",
    "init_transactions": "use rocketpy.TransactionProducer",
    "key": "write rocketpy.Message(topic, body, order_key=...); keys= is for queries",
    "key_serializer": "an order_key is a str",
    "max_poll_interval_ms": "members keep their queues however long they process",
    "max_poll_records": "write poll(max_messages=...)",
    "nack": REDELIVERY,
    "offset": "receipts and received messages have queue_offset",
    "offsets": "write commit_offsets({queue: offset})",
    "on_delivery": "write submit(message).add_done_callback(function); with asyncio, await send(message)",
    "partition": "a queue is chosen by order_key= of the message, or by send(message, queue=...) from queues(topic)",
    "poll": "delivery needs no poll: send(message) waits for its receipt",
    "produce": "write send(rocketpy.Message(topic, body))",
    "replication_factor": "the slaves of a broker copy all of its topics",
    "seek_to_beginning": "write seek(queue, 'earliest')",
    "seek_to_end": "write seek(queue, 'latest')",
    "session_timeout_ms": "brokers notice missed heartbeats by themselves; no option sets the time",
    "submit": "write await send(message)",
    "subscribe": "the constructor subscribes: Consumer(group, topic)",
    "timeout_ms": "write timeout=, in seconds",
    "timestamp": "received messages have born_at and stored_at; deliver_at= of rocketpy.Message sets a delivery time",
    "timestamp_ms": "the client sets the time; deliver_at= of rocketpy.Message sets a delivery time",
    "value": "the body is the second argument: rocketpy.Message(topic, body)",
    "value_deserializer": "write codec=, such as rocketpy.codec.JsonCodec(Order), in a consumer",
    "value_serializer": "a body is bytes: encode it yourself, as in json.dumps(value).encode()",
}
"""Advice for names of other clients without an equivalent among the known names."""
MAX_NAMES = 10_000
"""Maximum number of names that a misspelt name is compared with."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Known name that is most similar to a misspelt one, whatever its case; None without one.

    Args:
        name: The misspelt name.
        known: Names that exist; those after the first 10,000 of similar length are left out.

    Examples:
        >>> nearest("mials", ["orders", "Mails"])
        'Mails'
    """
    most = max(2, len(name) // 2)  # no name with a greater difference in length is similar
    lower = {one.lower(): one for one in known if abs(len(one) - len(name)) <= most}
    if not lower:
        return None
    import difflib  # only for an error

    found = difflib.get_close_matches(name.lower(), list(lower)[:MAX_NAMES], 1)
    return lower[found[0]] if found else None


def meant(name: str, known: Iterable[str]) -> list[str]:
    """Known names for an unknown one: its equivalents here, or else the most similar name."""
    known = list(known)
    here = [one for one in FOREIGN.get(name.replace("-", "_"), ()) if one in known]
    near = None if here else nearest(name, known)
    return here if near is None else [near]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Clause that suggests a known name for an unknown one, or gives advice; empty without both.

    Args:
        name: The unknown name.
        known: Names that exist.

    Examples:
        >>> did_you_mean("bootstrap_servers", ["name_servers", "start"])
        ' (did you mean name_servers?)'
    """
    known = list(known)
    if name in ADVICE and not {*FOREIGN.get(name, ())} & {*known}:
        return f" ({ADVICE[name]})"
    names = meant(name, known)
    return f" (did you mean {' or '.join(names)}?)" if names else ""

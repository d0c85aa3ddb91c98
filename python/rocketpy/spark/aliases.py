"""Option names of Spark's Kafka source: the accepted ones, and the hints for those that are not supported."""

from __future__ import annotations

SAME = (
    "startingOffsets",
    "endingOffsets",
    "minPartitions",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxRecordsPerPartition",
    "assign",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsetsByTimestamp",
)
"""Names of Kafka's source that are names of this source as well, in the same spelling."""

ALIASES = {
    "subscribe": "topics",
    "subscribePattern": "topic_pattern",
    "startingTimestamp": "starting_time",
    "endingTimestamp": "ending_time",
    "includeHeaders": "include_properties",
}
"""Names of Kafka's source, and the names of the same options here."""

IN_MILLISECONDS = ("startingTimestamp", "endingTimestamp")
"""Aliases whose value is milliseconds since 1970."""

REFUSED = {
    "kafka.bootstrap.servers": "use name_server for the address of the cluster",
    "kafka.group.id": "no group is joined; commit to a group with progress_group, start from one with starting_group",
    "groupIdPrefix": "no group is joined; commit to a group with progress_group, start from one with starting_group",
    "kafkaConsumer.pollTimeoutMs": "client.api_timeout is the timeout of one request",
    "fetchOffset.numRetries": "retry_timeout is the time for which a read is retried",
    "fetchOffset.retryIntervalMs": "retry_timeout is the time for which a read is retried",
}
"""Options of Kafka's source that this source does not support, and their replacements."""

KAFKA_PREFIX = "kafka."
OTHER_KAFKA = "client options begin with client., such as client.api_timeout"
"""Hint for every other option that begins with the prefix."""


def refusal(key: str) -> str | None:
    """Returns the hint for an unsupported option of Kafka's source.

    Args:
        key: Name of the option, in any case.

    Returns:
        None for other options.

    Examples:
        >>> refusal("kafka.bootstrap.servers")
        'use name_server for the address of the cluster'
    """
    by_plain = {name.lower(): why for name, why in REFUSED.items()}
    found = by_plain.get(key.lower())
    if found is None and key.lower().startswith(KAFKA_PREFIX):
        return OTHER_KAFKA
    return found

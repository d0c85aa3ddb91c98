"""The option names of Spark's Kafka source: those that are taken, and what is said of those that cannot be."""

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
"""Other names, and what they are here."""

IN_MILLISECONDS = ("startingTimestamp", "endingTimestamp")
"""Aliases whose value is milliseconds since 1970."""

REFUSED = {
    "kafka.bootstrap.servers": "name_server says where the cluster is",
    "kafka.group.id": "no group is joined; progress_group names one to commit to, starting_group one to start from",
    "groupIdPrefix": "no group is joined; progress_group names one to commit to, starting_group one to start from",
    "kafkaConsumer.pollTimeoutMs": "client.api_timeout is the time for one request",
    "fetchOffset.numRetries": "retry_timeout says how long a read tries again",
    "fetchOffset.retryIntervalMs": "retry_timeout says how long a read tries again",
}
"""Options of Kafka's source that this source does not have, and what to write instead."""

KAFKA_PREFIX = "kafka."
OTHER_KAFKA = "client options begin with client., such as client.api_timeout"
"""What is said of every other option that begins with the prefix."""


def refusal(key: str) -> str | None:
    """Why an option of Kafka's source cannot be had, and what to write instead.

    Args:
        key: Name of the option, in any case.

    Returns:
        None for an option that is not one of these.

    Examples:
        >>> refusal("kafka.bootstrap.servers")
        'name_server says where the cluster is'
    """
    by_plain = {name.lower(): why for name, why in REFUSED.items()}
    found = by_plain.get(key.lower())
    if found is None and key.lower().startswith(KAFKA_PREFIX):
        return OTHER_KAFKA
    return found

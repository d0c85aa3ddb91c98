"""Progress of streams, for RocketMQ's tools and Spark's listeners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from rocketpy.base.names import name_server_list
from rocketpy.errors import GroupNotFoundError, NotSupportedError, OffsetError
from rocketpy.spark.offsets import BatchOffsets
from rocketpy.spark.options import NO_GROUP
from rocketpy.spark.patience import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rocketpy.message import MessageQueue


@dataclass(frozen=True, slots=True)
class StreamLag:
    """Lag of a query at the end of a batch."""

    query_id: str
    """Id of the query; it stays the same when the query is started again from its checkpoint."""
    query_name: str | None
    """Name that the user gave it."""
    batch_id: int
    """The batch."""
    queues: dict[MessageQueue, int]
    """Number of stored messages that were not read, by queue."""

    @property
    def total(self) -> int:
        """Messages of all queues."""
        return sum(self.queues.values())


def log_lag(lag: StreamLag) -> None:
    """Logs a lag: logger `rocketpy.spark`, level INFO.

    Args:
        lag: Lag of one query.
    """
    name = lag.query_name or lag.query_id
    logger.info("query %s, batch %d: %d messages behind", name, lag.batch_id, lag.total)


class LagListener(StreamingQueryListener):
    """Reports the lag of a query after each batch.

    Args:
        report: Callback that receives each lag, in a thread of Spark; the default logs it.

    Examples:
        In a Spark session::

            spark.streams.addListener(LagListener(lambda lag: gauge.set(lag.total)))
    """

    def __init__(self, report: Callable[[StreamLag], object] = log_lag) -> None:
        self._report = report

    def onQueryStarted(self, event: Any) -> None:
        """Does nothing: the lag is not known yet."""

    def onQueryIdle(self, event: Any) -> None:
        """Does nothing: the lag did not change."""

    def onQueryTerminated(self, event: Any) -> None:
        """Does nothing: the last lag was reported."""

    def onQueryProgress(self, event: Any) -> None:
        """Reports the lag of all sources of a query together.

        Args:
            event: Event from Spark.
        """
        progress = event.progress
        lags: dict[MessageQueue, int] = {}
        for source in progress.sources:
            here, latest = BatchOffsets.of_text(source.endOffset), BatchOffsets.of_text(source.latestOffset)
            if here is not None and latest is not None:
                lags |= {queue: max(0, end - here.end.get(queue, 0)) for queue, end in latest.end.items()}
        if lags:
            self._report(StreamLag(str(progress.id), progress.name, progress.batchId, lags))


def commit_group_offsets(
    query: Any, group: str, name_servers: Iterable[str] | str | None = None
) -> dict[MessageQueue, int]:
    """Commits the progress of a stream to a consumer group, so that `rocketpy group lag` and other tools show it.

    The option `progress_group` does it after each batch but the last: Spark tells a source of a batch when the next one
    begins. So call this after `awaitTermination`. What the query reads is decided by its checkpoint, not by the group.

    Args:
        query: A `StreamingQuery`, running or ended.
        group: Consumer group; created if missing.
        name_servers: `host:port` of each name server; default: the variable `NAMESRV_ADDR`.

    Returns:
        The committed offsets by queue: that of the next message to read. Empty before the first batch.

    Raises:
        NotSupportedError: The query reads a path.
        RocketPyError: The brokers cannot be reached, or refuse. A retry is safe.

    Examples:
        After a query has ended::

            query.awaitTermination()
            commit_group_offsets(query, "hourly-delays", "127.0.0.1:9876")
    """
    progress = query.lastProgress
    found: dict[MessageQueue, int] = {}
    for source in [] if progress is None else progress.sources:
        offsets = BatchOffsets.of_text(source.endOffset)
        found |= {} if offsets is None else offsets.end
    if any(not queue.broker_name for queue in found):
        raise NotSupportedError("the query reads a path: its offsets do not contain a broker", hint=NO_GROUP)
    return commit_offsets(group, found, name_server_list(name_servers), {})


def commit_offsets(
    group: str, offsets: Mapping[MessageQueue, int], name_servers: Iterable[str], client: Mapping[str, Any]
) -> dict[MessageQueue, int]:
    """Commits offsets to a group. Queues that no longer exist or do not hold their offset are skipped.

    Args:
        group: Consumer group; created if missing.
        offsets: Offset of the next message to read, by queue.
        name_servers: `host:port` of each.
        client: Options of the clients.

    Returns:
        The committed offsets.

    Raises:
        RocketPyError: The brokers cannot be reached, or refuse. A retry is safe.
    """
    from rocketpy.admin.admin import Admin

    with Admin(name_servers=name_servers, **client) as admin:
        there = {queue for topic in {queue.topic for queue in offsets} for queue in admin.queues(topic)}
        wanted = {queue: offset for queue, offset in offsets.items() if queue in there}
        if not wanted:
            return {}
        try:
            return _commit(group, wanted, name_servers, client)
        except GroupNotFoundError:
            admin.create_group(group)
        return _commit(group, wanted, name_servers, client)


def _commit(
    group: str, offsets: Mapping[MessageQueue, int], name_servers: Iterable[str], client: Mapping[str, Any]
) -> dict[MessageQueue, int]:
    from rocketpy.consuming.consumer import Consumer

    done: dict[MessageQueue, int] = {}
    with Consumer.assign(
        group, list(offsets), name_servers=name_servers, start="latest", prefetch_messages=1, pull_messages=1, **client
    ) as consumer:
        consumer.pause(*offsets)
        for queue, offset in offsets.items():
            try:
                consumer.seek(queue, offset)
            except OffsetError as error:
                logger.warning("progress not committed for group %s: %s", group, error)
                continue
            done[queue] = offset
        consumer.commit_offsets(done)
    return done

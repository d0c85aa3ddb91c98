"""Reading a store folder without a server and without a lock, also next to a running server or from a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy import _rocketpy
from rocketpy.base.instant import instant_ms
from rocketpy.base.names import check_unicode, column_list, grouping_lists, path_text
from rocketpy.store.reports import (
    DiffLog,
    DiffRecord,
    LogDiff,
    LogFacts,
    Mark,
    Problem,
    QueueFacts,
    Repair,
    RepairAction,
    Snapshot,
    StoreFacts,
    TopicFacts,
    TransferReport,
    VerifyReport,
    WaitingCounts,
)
from rocketpy.store.retention_plan import AgedQueue, FolderUsage, KeptFile, Removal, RetentionPlan, retention
from rocketpy.store.tools import (
    StoreRecords,
    cut,
    diff,
    export_messages,
    import_messages,
    records,
    repair,
    snapshot,
    stat,
    verify,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from rocketpy._rocketpy import ReceivedMessage, Scan
    from rocketpy.config import Instant, Tags

__all__ = [
    "AgedQueue",
    "DiffLog",
    "DiffRecord",
    "FolderUsage",
    "KeptFile",
    "LogDiff",
    "LogFacts",
    "LostRange",
    "Mark",
    "Problem",
    "QueueFacts",
    "QueueRange",
    "Removal",
    "Repair",
    "RepairAction",
    "RetentionPlan",
    "Snapshot",
    "StoreFacts",
    "StoreRange",
    "StoreReader",
    "StoreRecords",
    "StoredQueue",
    "StoredTopic",
    "TopicFacts",
    "TransferReport",
    "VerifyReport",
    "WaitingCounts",
    "cut",
    "diff",
    "export_messages",
    "import_messages",
    "records",
    "repair",
    "retention",
    "snapshot",
    "stat",
    "verify",
]

PART_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """Offsets of one queue of a store."""

    queue_id: int
    min_offset: int
    """Offset of the oldest message."""
    max_offset: int
    """Offset after the newest message."""


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic of a store."""

    name: str
    queues: tuple[StoredQueue, ...]
    """Sorted by number."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Part of one queue: queue offsets from `start` up to, but not including, `end`."""

    topic: str
    queue_id: int
    start: int
    end: int
    estimated_bytes: int
    """Estimated length of its records, from metadata only."""


@dataclass(frozen=True, slots=True)
class StoreRange:
    """Part of a topic for one worker: parts of several queues that are close together in the log.

    Plain data, which can be pickled. Its bounds are fixed: reading it twice returns the same rows.
    """

    parts: tuple[QueueRange, ...]
    """At most one part per queue, none of them empty."""

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self.parts[0].topic

    @property
    def estimated_bytes(self) -> int:
        """Estimated number of record bytes to read."""
        return sum(part.estimated_bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class LostRange:
    """Messages that a scan left out: queue offsets from `start` up to, but not including, `end`."""

    topic: str
    queue_id: int
    start: int
    end: int
    reason: str
    """Cause, such as the problem of a damaged record."""


class StoreReader:
    """Reads a store folder without a server and without a lock: a live store, a copy or a snapshot.

    Args:
        path: Folder of the store.
        commit_log: Folder of the log, if the broker's configuration sets `storePathCommitLog`.

    Raises:
        NotAStoreError: The folder is not a store, or its log is in another folder.

    Examples:
        >>> import rocketpy
        >>> store = getfixture("tmp_path") / "store"
        >>> with rocketpy.Server(store) as server, server.producer("ingest") as producer:
        ...     _ = producer.send_many([rocketpy.Message("flights", b"%d" % n) for n in range(10)])
        >>> reader = rocketpy.StoreReader(store)
        >>> ranges = reader.ranges("flights")
        >>> sum(batch.num_rows for part in ranges for batch in reader.scan(part, columns=["queue_offset", "body"]))
        10
    """

    __slots__ = ("_native", "_path")

    def __init__(self, path: str | os.PathLike[str], *, commit_log: str | os.PathLike[str] | None = None) -> None:
        self._path = path_text("path", path)
        self._native = _rocketpy.StoreReader(
            self._path, None if commit_log is None else path_text("commit_log", commit_log)
        )

    @property
    def path(self) -> str:
        """Folder of the store."""
        return self._path

    def topics(self) -> list[StoredTopic]:
        """Topics with messages in the store, sorted by name."""
        return self._native.topics()

    def topic(self, name: str) -> StoredTopic:
        """Topic with its queues. Reads no data of other topics.

        Args:
            name: The topic.

        Raises:
            TopicNotFoundError: The topic does not exist in the store. A topic without messages has no queues here.
        """
        check_unicode(name)
        return self._native.topic(name)

    def ranges(
        self,
        topic: str,
        *,
        queues: Iterable[int] | None = None,
        starts: Mapping[int, int] | None = None,
        ends: Mapping[int, int] | None = None,
        stored_from: Instant | None = None,
        stored_before: Instant | None = None,
        part_bytes: int = PART_BYTES,
        min_parts: int = 1,
        fail_on_data_loss: bool = True,
    ) -> list[StoreRange]:
        """Splits a topic into parts that workers can read concurrently, with the current bounds of its queues.

        Args:
            topic: The topic.
            queues: Restricts the result to these queues.
            starts: First queue offset, by queue; default: the oldest message.
            ends: Queue offset after the last message to read, by queue; default: the current end.
            stored_from: Restricts the result to messages stored at or after this point in time: a datetime, seconds
                since 1970, ISO 8601 text or `"-10m"`. Times without a time zone are local.
            stored_before: Restricts the result to messages stored before this point in time.
            part_bytes: Target size of a part, in bytes of records.
            min_parts: Minimum number of parts, if there are enough messages.
            fail_on_data_loss: Whether a start or an end outside its queue is an error; otherwise it is moved to the
                bounds of the queue.

        Raises:
            TopicNotFoundError: The topic does not exist in the store. A topic without messages returns no parts.
            OffsetError: A start or an end names a missing queue or is outside its queue, or a start is after its end.
            DamagedDataError: Files of consume queues are missing or damaged: the closed store had more entries.
        """
        check_unicode(topic)
        return self._native.ranges(
            topic,
            None if queues is None else list(queues),
            list((starts or {}).items()),
            list((ends or {}).items()),
            None if stored_from is None else instant_ms(stored_from),
            None if stored_before is None else instant_ms(stored_before),
            part_bytes,
            min_parts,
            fail_on_data_loss,
        )

    def query(
        self,
        topic: str,
        key: str,
        *,
        kind: Literal["key", "unique_key", "tag"] = "key",
        begin: Instant | None = None,
        end: Instant | None = None,
        max_messages: int | None = None,
        slots_and_entries: tuple[int, int] | None = None,
    ) -> list[ReceivedMessage]:
        """Messages of a topic with a given key, from the store's index files, in the order of the log.

        While a server writes, messages stored in the last second may not be found yet.

        Args:
            topic: The topic.
            key: Key, unique key or tag of the messages, according to `kind`.
            kind: `"key"`, `"unique_key"` (the `msg_id` of a receipt), or `"tag"`.
            begin: Restricts the result to messages stored at or after this point in time.
            end: Restricts the result to messages stored at or before this point in time.
            max_messages: Maximum number of messages; the newest are kept.
            slots_and_entries: `maxHashSlotNum` and `maxIndexNum` of the Apache broker that wrote the index, if they
                were set.

        Raises:
            NotAStoreError: The store has no index.
            DamagedDataError: An index file has another size, or a message is damaged.
        """
        check_unicode(topic, key)
        return self._native.query(
            topic,
            key,
            kind,
            -(2**63) if begin is None else instant_ms(begin),
            2**63 - 1 if end is None else instant_ms(end),
            max_messages,
            slots_and_entries,
        )

    def scan(
        self,
        what: str | StoreRange | Iterable[StoreRange],
        *,
        columns: Iterable[str] | None = None,
        groupings: Iterable[Iterable[str]] = (),
        tags: Tags = "*",
        stored_from: Instant | None = None,
        stored_before: Instant | None = None,
        batch_rows: int = 8192,
        batch_bytes: int = 1 << 20,
        broker_name: str | None = None,
        fail_on_data_loss: bool = True,
        verify: bool = True,
        max_body_bytes: int | None = None,
        null_unreadable_bodies: bool = False,
    ) -> Scan:
        """Reads messages into Arrow record batches.

        Args:
            what: A topic, or parts of topics as returned by `ranges`.
            columns: Names of columns, in the wanted order. Default: `topic, queue_id, queue_offset, broker_name, tag,
                keys, body, properties, born_at, stored_at, msg_id, reconsume_times`.
            groupings: Choices of groups by which messages are summed up, in place of rows. A choice is one or more of
                `topic`, `broker_name`, `queue_id`, `tag`, `key` (a message counts for each of its keys), `order_key`,
                `origin_topic`, `born_host`, `store_host`, `reconsume_times`, `minute`, `hour`, `day`, `size`. Batches
                have the columns `grouping` (the index of the choice), all groups, `messages`, `bytes`, `largest_bytes`,
                `first_stored_at` and `last_stored_at`. A group may appear in several batches.
            tags: Tags to read: `*` for all, `"UA || AA"` or `["UA", "AA"]`. Other messages are not read. See
                `rocketpy.config.Tags`.
            stored_from: With a topic, restricts the result to messages stored at or after this point in time.
            stored_before: With a topic, restricts the result to messages stored before this point in time.
            batch_rows: Maximum number of rows in a batch.
            batch_bytes: Size of bodies and properties, in bytes, at which a batch is full; at most 512 MiB.
            broker_name: Broker name in the rows; a store does not contain its own.
            fail_on_data_loss: Whether missing or damaged messages end the scan with an error; otherwise they are
                skipped and listed in `lost`, as `LostRange`.
            verify: Whether to compare the checksum of each record, or of its body if the record has none. Without it a
                damaged body is returned as if it were intact.
            max_body_bytes: Maximum size of a decompressed body in bytes. Default: 64 MiB, and above 16 MiB at most 100
                times the stored size.
            null_unreadable_bodies: Whether a body that does not decompress within the limit is null; otherwise its
                message counts as damaged.

        Returns:
            Batches, by iteration or by the Arrow PyCapsule interface: `pyarrow.table(scan)`, `polars.from_arrow(scan)`.
            Rows of a queue are in the order of the queue.

        Raises:
            TopicNotFoundError: The topic does not exist in the store. A topic without messages returns no parts.
            InvalidArgumentError: A column or a group is unknown, or the tags are invalid.
            DamagedDataError: Raised on iteration: a record is damaged. The error names the file, the position, and the
                found and expected values. A retry does not help.
        """
        if isinstance(what, str):
            ranges: Iterable[StoreRange] = self.ranges(
                what, stored_from=stored_from, stored_before=stored_before, fail_on_data_loss=fail_on_data_loss
            )
        elif stored_from is not None or stored_before is not None:
            raise TypeError("stored_from and stored_before require a topic: ranges already have bounds")
        else:
            ranges = [what] if isinstance(what, StoreRange) else what
        return self._native.scan(
            [part for one in ranges for part in one.parts],
            column_list(columns),
            grouping_lists(groupings),
            tags,
            batch_rows,
            batch_bytes,
            broker_name,
            fail_on_data_loss,
            verify,
            max_body_bytes,
            null_unreadable_bodies,
        )

    def __repr__(self) -> str:
        return f"StoreReader({self._path!r})"

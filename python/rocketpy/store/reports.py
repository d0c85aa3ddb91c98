"""Reports of the tools in `rocketpy.store`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from typing import Literal

__all__ = [
    "DiffLog",
    "DiffRecord",
    "LogDiff",
    "LogFacts",
    "Mark",
    "Problem",
    "QueueFacts",
    "Repair",
    "RepairAction",
    "Snapshot",
    "StoreFacts",
    "TopicFacts",
    "TransferReport",
    "VerifyReport",
    "WaitingCounts",
]


@dataclass(frozen=True, slots=True)
class Mark:
    """Durable state recorded in a checkpoint, by physical offsets."""

    generation: int
    log_to: int
    """End of the durable log."""
    queues_to: int
    """End of the records with durable consume queue entries."""
    verify_from: int
    """Start of the check at recovery."""
    checked_from: int | None
    """Start of the records with a checksum over all of their bytes."""
    index_to: int | None
    """End of the records with durable index entries."""
    closed: bool
    """Whether the store was closed with this checkpoint."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The commit log of a store."""

    folders: tuple[str, ...]
    """Folders of its files."""
    files: int
    """Number of files in all folders."""
    file_size_bytes: int
    start: int
    """First available byte."""
    end_of_files: int
    """End of the last file, which may not be fully written."""
    holes: tuple[tuple[int, int], ...]
    """Ranges of physical offsets whose files are missing between others: start and end."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """Queue of a store."""

    queue_id: int
    min_offset: int
    max_offset: int
    """Offset after the newest message."""
    first_stored_at: datetime | None
    last_stored_at: datetime | None
    estimated_bytes: int
    """Length of its records, estimated from a sample."""
    files: int
    holes: tuple[tuple[int, int], ...]
    """Ranges of queue offsets whose files are missing between others: start and end."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Topic of a store."""

    topic: str
    queues: tuple[QueueFacts, ...]

    @property
    def messages(self) -> int:
        """Number of available messages."""
        return sum(queue.max_offset - queue.min_offset for queue in self.queues)

    @property
    def estimated_bytes(self) -> int:
        """Length of its records, estimated from a sample."""
        return sum(queue.estimated_bytes for queue in self.queues)

    @property
    def first_stored_at(self) -> datetime | None:
        """Time at which the oldest message was stored."""
        return min((queue.first_stored_at for queue in self.queues if queue.first_stored_at), default=None)

    @property
    def last_stored_at(self) -> datetime | None:
        """Time at which the newest message was stored."""
        return max((queue.last_stored_at for queue in self.queues if queue.last_stored_at), default=None)


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """Facts about a store, without reading every record."""

    path: str
    is_locked: bool
    """Whether a process has the store open."""
    locked_by: int | None
    """Id of that process; None without one, or if it is this process."""
    has_abort_file: bool
    """Whether the store was not closed: a process has it open, or was killed."""
    log: LogFacts
    mark: Mark | None
    """Latest checkpoint; None if another program wrote last, or if none exists."""
    log_durable_at: datetime | None
    queues_durable_at: datetime | None
    topics: tuple[TopicFacts, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem of a store."""

    kind: str
    """`damaged_record`, `missing_log_files`, `log_starts_late`, `log_ends_early`, `bad_checkpoint`,
    `incomplete_queues`, `entry_without_record`, `entry_differs`, `record_without_entry`, `bad_file`,
    `index_entry_without_record`, `key_without_index_entry`, `index_differs`, `bad_progress`, `progress_ahead`,
    `bad_mark` or `timers_differ`."""
    path: str
    """Path of the file, or of the folder if the file is missing."""
    file_offset: int
    physical_offset: int | None
    size_bytes: int | None
    """Number of damaged or missing bytes."""
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    found: str
    expected: str


@dataclass(frozen=True, slots=True)
class WaitingCounts:
    """Numbers of waiting messages."""

    delayed: int = 0
    """Messages that wait for a delay level."""
    timers: int = 0
    """Messages that wait for their delivery time, including recalls."""
    half_messages: int = 0
    """Messages that wait for the end of their transaction."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of a check of a store."""

    path: str
    is_live: bool
    is_closed: bool
    has_mark: bool
    log_start: int
    log_end: int
    """End of the check: the end of the log, or the end of the dispatched records when the check began."""
    tail_bytes: int
    """Length of the torn tail after the end, which the next start truncates."""
    log_files: int
    records: int
    records_with_own_check: int
    queues: int
    entries: int
    filler_entries: int
    records_without_queue: int
    """Number of records whose topic was deleted."""
    records_to_dispatch: int
    records_without_entry: int
    """Number of prepared and rolled back transaction messages, and of records that fill repaired damage."""
    index_files: int
    index_entries: int
    waiting: WaitingCounts
    """Waiting messages, counted during the check."""
    problem_count: int
    problems: tuple[Problem, ...]
    """The first 10,000 problems."""

    @property
    def is_sound(self) -> bool:
        """Whether the store has no problems."""
        return self.problem_count == 0


@dataclass(frozen=True, slots=True)
class RepairAction:
    """Action of a repair."""

    action: str
    """`fill_with_record`, `end_file`, `make_file`, `cut_tail`, `blank_entry`, `rebuild_queues`, `rebuild_index`,
    `rebuild_timers` or `drop_checkpoint`."""
    path: str
    file_offset: int | None = None
    physical_offset: int | None = None
    size_bytes: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """Planned or completed repair."""

    path: str
    actions: tuple[RepairAction, ...]
    kept_in: str | None
    """Folder that keeps the removed bytes, with `manifest.json`; None for a preview."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Completed snapshot."""

    path: str
    log_start: int
    log_end: int
    """End of the log in the snapshot."""
    linked_files: int
    """Number of log files shared with the store."""
    copied_files: int
    copied_bytes: int
    queues: int
    entries: int
    metadata_files: int
    left_out: tuple[str, ...]
    """Parts of the store that are not in the snapshot. The index is rebuilt from the log."""


@dataclass(frozen=True, slots=True)
class DiffRecord:
    """Record of a log that differs from the other log."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    stored_at: datetime | None
    """Time at which the record was stored; None for a number before 1970 or after the year 9999."""


@dataclass(frozen=True, slots=True)
class DiffLog:
    """Log in a comparison of two."""

    start: int
    """First available byte."""
    end: int
    """End of the last record."""
    own_records: int
    """Number of records after the common part."""
    own_bytes: int
    first_own: DiffRecord | None
    """The first of these records."""
    damaged_at: int | None
    """Offset of the damage or missing file that ended the comparison; `verify` reports details."""


@dataclass(frozen=True, slots=True)
class LogDiff:
    """Difference between the logs of two stores, by physical offsets."""

    relation: Literal["equal", "first_is_beginning", "second_is_beginning", "diverged", "apart"]
    """`diverged`: both have their own records after a common offset. `apart`: the logs have no offset in common."""
    common_start: int
    common_end: int
    """End of the common part, which starts at `common_start`."""
    last_common: DiffRecord | None
    """Last common record."""
    first: DiffLog
    second: DiffLog


@dataclass(frozen=True, slots=True)
class TransferReport:
    """Result of an export or import of messages."""

    messages: int
    body_bytes: int
    topics: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of messages by topic."""
    waiting: WaitingCounts = field(default_factory=WaitingCounts)
    """Additional waiting messages, stored so that they continue to wait."""
    passed_over: int = 0
    """Number of records that are not user messages: of system topics, prepared, rolled back."""
    left_out: int = 0
    """Number of damaged records."""
    new_topics: tuple[str, ...] = ()
    """Topics added to the table of topics."""
    rejected: int = 0
    """Number of messages that the store cannot take, for their size, topic or queue, and that were skipped."""
    rejections: tuple[str, ...] = ()
    """The first 100 of them by name, each with the reason."""

"""What the tools of `rocketpy.store` report."""

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
    """What a checkpoint knows to be durable, by physical offsets."""

    generation: int
    log_to: int
    """The log, before this."""
    queues_to: int
    """The consume queues, for the records before this."""
    verify_from: int
    """Recovery checks from here."""
    checked_from: int | None
    """Every record from here on has a checksum of all of its bytes."""
    index_to: int | None
    """The index, for the records before this."""
    closed: bool
    """The store was closed with it."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The commit log of a store."""

    folders: tuple[str, ...]
    """Where its files are."""
    files: int
    """In all folders."""
    file_size_bytes: int
    start: int
    """First byte that is still there."""
    end_of_files: int
    """End of the last file, which may not be fully written."""
    holes: tuple[tuple[int, int], ...]
    """Physical offsets where files are missing between others: from, and before."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One queue of a store."""

    queue_id: int
    min_offset: int
    max_offset: int
    """After the newest message."""
    first_stored_at: datetime | None
    last_stored_at: datetime | None
    estimated_bytes: int
    """Length of its records, from a sample."""
    files: int
    holes: tuple[tuple[int, int], ...]
    """Queue offsets where files are missing between others: from, and before."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic of a store."""

    topic: str
    queues: tuple[QueueFacts, ...]

    @property
    def messages(self) -> int:
        """Messages that are there."""
        return sum(queue.max_offset - queue.min_offset for queue in self.queues)

    @property
    def estimated_bytes(self) -> int:
        """Length of its records, from a sample."""
        return sum(queue.estimated_bytes for queue in self.queues)

    @property
    def first_stored_at(self) -> datetime | None:
        """When the oldest message was stored."""
        return min((queue.first_stored_at for queue in self.queues if queue.first_stored_at), default=None)

    @property
    def last_stored_at(self) -> datetime | None:
        """When the newest message was stored."""
        return max((queue.last_stored_at for queue in self.queues if queue.last_stored_at), default=None)


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What a store holds, without reading every record."""

    path: str
    is_locked: bool
    """A process has it open."""
    locked_by: int | None
    """That process; None when there is none, or it is this one."""
    has_abort_file: bool
    """It was not closed: a process has it open, or was killed."""
    log: LogFacts
    mark: Mark | None
    """None when another program wrote last, or none ever did."""
    log_durable_at: datetime | None
    queues_durable_at: datetime | None
    topics: tuple[TopicFacts, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a store."""

    kind: str
    """`damaged_record`, `missing_log_files`, `log_starts_late`, `log_ends_early`, `bad_checkpoint`,
    `incomplete_queues`, `entry_without_record`, `entry_differs`, `record_without_entry`, `bad_file`,
    `index_entry_without_record`, `key_without_index_entry`, `index_differs`, `bad_progress`, `progress_ahead`,
    `bad_mark` or `timers_differ`."""
    path: str
    """The file, or the folder where no file is."""
    file_offset: int
    physical_offset: int | None
    size_bytes: int | None
    """Damaged or missing bytes."""
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    found: str
    expected: str


@dataclass(frozen=True, slots=True)
class WaitingCounts:
    """How many messages wait."""

    delayed: int = 0
    """For a delay level."""
    timers: int = 0
    """For their time; recalls among them."""
    half_messages: int = 0
    """For the end of their transaction."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a check of a store read and found."""

    path: str
    is_live: bool
    is_closed: bool
    has_mark: bool
    log_start: int
    log_end: int
    """Where the check ended: the end of the log, or of what a server had dispatched when the check began."""
    tail_bytes: int
    """Length of the torn tail after the end, which the next start cuts off."""
    log_files: int
    records: int
    records_with_own_check: int
    queues: int
    entries: int
    filler_entries: int
    records_without_queue: int
    """Their topic was deleted."""
    records_to_dispatch: int
    records_without_entry: int
    """Prepared and rolled back transaction messages, and records that fill repaired damage."""
    index_files: int
    index_entries: int
    waiting: WaitingCounts
    """Messages that wait, by what was read."""
    problem_count: int
    problems: tuple[Problem, ...]
    """The first 10,000."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem_count == 0


@dataclass(frozen=True, slots=True)
class RepairAction:
    """One thing that a repair does."""

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
    """What a repair does, or has done."""

    path: str
    actions: tuple[RepairAction, ...]
    kept_in: str | None
    """The folder that keeps what was taken away, with `manifest.json`; None for a preview."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that was made."""

    path: str
    log_start: int
    log_end: int
    """It holds the log before this."""
    linked_files: int
    """Log files that the store and the snapshot share."""
    copied_files: int
    copied_bytes: int
    queues: int
    entries: int
    metadata_files: int
    left_out: tuple[str, ...]
    """Parts of the store that are not in it. The index is rebuilt from the log."""


@dataclass(frozen=True, slots=True)
class DiffRecord:
    """A record of a log that differs from another one's."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class DiffLog:
    """One of two logs that are compared."""

    start: int
    """First byte that is still there."""
    end: int
    """Behind its last record."""
    own_records: int
    """Records behind those that both have."""
    own_bytes: int
    first_own: DiffRecord | None
    """The first of them."""
    damaged_at: int | None
    """Where damage or a missing file ends what could be compared; `verify` says more."""


@dataclass(frozen=True, slots=True)
class LogDiff:
    """Where the logs of two stores part, by physical offsets."""

    relation: Literal["equal", "first_is_beginning", "second_is_beginning", "parted", "apart"]
    """`parted`: both have records of their own behind the same place. `apart`: they have no place in common."""
    common_start: int
    common_end: int
    """They have the same between these two."""
    last_common: DiffRecord | None
    """The last record that both have."""
    first: DiffLog
    second: DiffLog


@dataclass(frozen=True, slots=True)
class TransferReport:
    """What went into a store, or out of one."""

    messages: int
    body_bytes: int
    topics: Mapping[str, int] = field(default_factory=dict[str, int])
    """Messages of each topic."""
    waiting: WaitingCounts = field(default_factory=WaitingCounts)
    """Messages that wait, beside those; stored where they wait again."""
    passed_over: int = 0
    """Records that are no message of a user: of system topics, prepared, rolled back."""
    left_out: int = 0
    """Damaged records."""
    new_topics: tuple[str, ...] = ()
    """Topics that were added to the table of topics."""

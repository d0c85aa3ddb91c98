"""Plan of the files that retention would remove from a store folder. Part of `rocketpy.store`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy import _rocketpy
from rocketpy.base.names import path_text

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from datetime import datetime, timedelta

__all__ = ["AgedQueue", "FolderUsage", "KeptFile", "Removal", "RetentionPlan", "retention"]


@dataclass(frozen=True, slots=True)
class Removal:
    """Log file to remove."""

    path: str
    start: int
    """Physical offset of its first byte."""
    size_bytes: int
    written_at: datetime
    """Time of the last write."""
    age: timedelta
    rule: str
    """`expired`, `disk full` or `total size`."""
    reason: str


@dataclass(frozen=True, slots=True)
class KeptFile:
    """Oldest log file that stays."""

    path: str
    start: int
    """Physical offset of its first byte: the new start of the log."""
    size_bytes: int
    written_at: datetime
    """Time of the last write."""
    reason: str


@dataclass(frozen=True, slots=True)
class AgedQueue:
    """Queue whose minimum offset moves, because its topic's retention is shorter than the log's.

    The log keeps the messages.
    """

    topic: str
    queue_id: int
    min_offset: int
    """Offset of its first message in the log. A running server may already have moved the minimum further."""
    new_min_offset: int
    """Offset of its first message within the retention time, or its end."""
    reason: str


@dataclass(frozen=True, slots=True)
class FolderUsage:
    """Folder of the store and its file system."""

    path: str
    used_percent: int
    """Usage of the file system, as `df` counts."""


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Actions of one retention round."""

    removals: tuple[Removal, ...]
    """Files to remove, oldest first."""
    kept: KeptFile | None
    """Oldest file that stays; None for an empty log."""
    aged_queues: tuple[AgedQueue, ...]
    """Queues with a new minimum offset, by topic and number."""
    folders: tuple[FolderUsage, ...]
    """Folders of the log, then the folder of the consume queues."""
    refusal: str | None
    """Reason for which messages would be refused; None if they would be accepted."""
    log_files: int
    log_bytes: int


def retention(
    path: str | os.PathLike[str],
    *,
    commit_log: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | None = None,
    settings: Mapping[str, object] | None = None,
    ask: bool = False,
) -> RetentionPlan:
    """Plans the files that a server would remove from its store folder now. Changes nothing, and takes no lock.

    The configuration decides on files of the log, the attribute `retention.hours` of topics on minimum offsets.

    Args:
        path: Folder of the store.
        commit_log: Folder of the log, or several separated by commas, if the broker's configuration sets
            `storePathCommitLog`.
        config: Configuration file of the server.
        settings: Configuration keys, such as `fileReservedTime` (hours), which override the file.
        ask: Whether to plan as if an administrator requested the removal of expired files now, at any hour.

    Raises:
        NotAStoreError: The folder is not a store, or its log is in another folder.
        DamagedDataError: Neither the table of topics nor its backup can be read, or a file of a queue is damaged.
        ConfigError: A key is unknown, or its value is not allowed.

    Examples:
        >>> import rocketpy
        >>> from rocketpy import store
        >>> folder = getfixture("tmp_path") / "store"
        >>> with rocketpy.Server(folder) as server, server.producer("ingest") as producer:
        ...     _ = producer.send(rocketpy.Message("flights", b"UA1545"))
        >>> plan = store.retention(folder)
        >>> plan.removals, plan.kept.reason
        ((), 'the last file always stays')
    """
    given = [(key, str(value)) for key, value in (settings or {}).items()]
    if commit_log is not None:
        given.append(("storePathCommitLog", path_text("commit_log", commit_log)))
    return _rocketpy.store_retention(
        path_text("path", path), None if config is None else path_text("config", config), given, ask
    )

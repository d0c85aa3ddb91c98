"""What retention would remove from a store folder, and why. Part of `rocketpy.store`."""

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
    """A file of the log that is removed."""

    path: str
    start: int
    """Physical offset of its first byte."""
    size_bytes: int
    written_at: datetime
    """When it was last written."""
    age: timedelta
    rule: str
    """`expired`, `disk full` or `total size`."""
    reason: str


@dataclass(frozen=True, slots=True)
class KeptFile:
    """The oldest file of the log that stays."""

    path: str
    start: int
    """Physical offset of its first byte: the log would begin there."""
    size_bytes: int
    written_at: datetime
    """When it was last written."""
    reason: str


@dataclass(frozen=True, slots=True)
class AgedQueue:
    """A queue whose minimum offset moves: its topic's retention is shorter than the log's, which keeps the messages."""

    topic: str
    queue_id: int
    min_offset: int
    """Its first message in the log. A running server may have moved on from it already."""
    new_min_offset: int
    """Its first message that is young enough, or its end."""
    reason: str


@dataclass(frozen=True, slots=True)
class FolderUsage:
    """A folder of the store and its file system."""

    path: str
    used_percent: int
    """How full the file system is, as `df` counts."""


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What one round of retention would do now."""

    removals: tuple[Removal, ...]
    """Oldest first."""
    kept: KeptFile | None
    """The oldest file that stays; None for an empty log."""
    aged_queues: tuple[AgedQueue, ...]
    """By topic and number."""
    folders: tuple[FolderUsage, ...]
    """Those of the log, then that of the consume queues."""
    refusal: str | None
    """Why messages would be refused; None when they would not."""
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
    """Plans what a server would remove from its store folder now, and why. Changes nothing, and takes no lock.

    Files of the log go by the configuration, minimum offsets move by the attribute `retention.hours` of topics.

    Args:
        path: The folder of the store.
        commit_log: The folder of its log, or several separated by commas, when its broker's configuration says
            `storePathCommitLog`.
        config: The configuration file of its server.
        settings: Configuration keys, as `fileReservedTime` (hours); they win over the file.
        ask: Whether to plan as if an administrator asked to remove expired files now, at any hour.

    Raises:
        NotAStoreError: The folder is not a store, or its log is elsewhere.
        DamagedDataError: The table of topics cannot be read, nor its backup; or a file of a queue is damaged.
        ConfigError: A key is not known, or its value is not allowed.

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

"""Tools for store folders, exported by `rocketpy.store`: facts, checks, repair, snapshots, export and import."""

from __future__ import annotations

import base64
import itertools
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rocketpy import _rocketpy
from rocketpy.base.instant import instant_ms, now_ms
from rocketpy.base.names import check_unicode, column_list, path_text
from rocketpy.errors import InvalidArgumentError, OffsetError, RocketPyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rocketpy._rocketpy import ArrowBatch, ImportedMessage
    from rocketpy.config import Instant
    from rocketpy.store.reports import LogDiff, Repair, Snapshot, StoreFacts, TransferReport, VerifyReport

__all__ = [
    "StoreRecords",
    "cut",
    "diff",
    "export_messages",
    "import_messages",
    "records",
    "repair",
    "snapshot",
    "stat",
    "verify",
]

Folder = str | os.PathLike[str]

ROWS_AT_ONCE = 1000


class OnProgress(Protocol):
    """Progress callback, called many times a second. An exception of the callback stops the tool."""

    def __call__(self, done: int, total: int, /) -> object: ...


def stat(path: Folder, *, commit_log: Folder | None = None) -> StoreFacts:
    """Reports facts about a store. Takes no lock and checks no record.

    Args:
        path: Folder of the store.
        commit_log: Folder of the log, if the broker's configuration sets `storePathCommitLog`.

    Raises:
        NotAStoreError: The folder is not a store.

    Examples:
        >>> import rocketpy, rocketpy.store
        >>> store = getfixture("tmp_path") / "store"
        >>> with rocketpy.Server(store) as server, server.producer("ingest") as producer:
        ...     _ = producer.send_many([rocketpy.Message("flights", b"%d" % n) for n in range(10)])
        >>> sum(topic.messages for topic in rocketpy.store.stat(store).topics)
        10
        >>> rocketpy.store.verify(store).is_sound
        True
    """
    return _rocketpy.store_facts(path_text("path", path), _optional(commit_log))


def verify(path: Folder, *, commit_log: Folder | None = None, on_progress: OnProgress | None = None) -> VerifyReport:
    """Checks every record, compares consume queues and index files with the log both ways, and checks the mark.

    Counts waiting messages, and checks their files: progress, marks of transactions, and wheel and log of the timers.

    Takes no lock. While a server runs, checks the records that were dispatched when the check began, and skips wheel
    and log of the timers.

    Args:
        path: Folder of the store.
        commit_log: Folder of the log, if it is not in the store folder.
        on_progress: Called with processed and total bytes.

    Raises:
        NotAStoreError: The folder is not a store. Problems of a store are reported, not raised.
    """
    return _rocketpy.store_verify(path_text("path", path), _optional(commit_log), on_progress)


def repair(
    path: Folder,
    *,
    apply: bool = False,
    commit_log: Folder | None = None,
    on_progress: OnProgress | None = None,
) -> Repair:
    """Repairs a damaged store so that a server can open it. Every intact record stays at its offset.

    Args:
        path: Folder of the store.
        apply: Whether to make the changes; otherwise only the plan is returned.
        commit_log: Folder of the log, if it is not in the store folder.
        on_progress: Called with processed and total bytes.

    Returns:
        The planned or completed actions. `kept_in` names the folder that keeps every removed byte.

    Raises:
        StoreLockedError: A server has the store open (with `apply`). Retry after it has stopped.
    """
    return _rocketpy.store_repair(path_text("path", path), _optional(commit_log), apply, on_progress)


def cut(
    path: Folder,
    at: int,
    *,
    apply: bool = False,
    commit_log: Folder | None = None,
    on_progress: OnProgress | None = None,
) -> Repair:
    """Truncates the log of a closed store, so that the store can become a slave of another log.

    The next start reads the whole remaining log, and rebuilds index and timers. Start the store as a slave: its delay
    levels, timers and transactions may be ahead of its log until it has copied those of its master.

    Args:
        path: Folder of the store.
        at: New end of the log as a physical offset, at the start of a record. `diff` reports it (`common_end`).
        apply: Whether to make the changes; otherwise only the plan is returned.
        commit_log: Folder of the log, if it is not in the store folder.
        on_progress: Called with processed and total bytes.

    Returns:
        The planned or completed actions. `kept_in` names the folder that keeps the removed bytes.

    Raises:
        InvalidArgumentError: No record starts at this offset.
        StoreError: A file of the log is missing.
        StoreLockedError: A server has the store open (with `apply`). Retry after it has stopped.
    """
    if not 0 <= at < 1 << 63:
        raise InvalidArgumentError(f"at must be from 0 to 2**63 - 1, not {at}")
    return _rocketpy.store_cut(path_text("path", path), at, _optional(commit_log), apply, on_progress)


def snapshot(
    path: Folder,
    target: Folder,
    *,
    commit_log: Folder | None = None,
    on_progress: OnProgress | None = None,
) -> Snapshot:
    """Creates a snapshot of a store, even while a server writes to it.

    The snapshot contains all messages that were readable at its start.

    Complete log files are hard links, other files are copied. `StoreReader` can read the snapshot, and a server can
    start with it.

    Args:
        path: Folder of the store.
        target: New or empty folder outside the store.
        commit_log: Folder of the log, if it is not in the store folder.
        on_progress: Called with processed and total bytes.

    Raises:
        InvalidArgumentError: The target is not empty, or is inside the store.
        StoreError: The server's checkpoint does not advance, or the disk is full. The target is then removed; a retry
            is safe.
    """
    return _rocketpy.store_snapshot(
        path_text("path", path), path_text("target", target), _optional(commit_log), on_progress
    )


def diff(
    first: Folder,
    second: Folder,
    *,
    commit_log: Folder | None = None,
    second_commit_log: Folder | None = None,
    on_progress: OnProgress | None = None,
) -> LogDiff:
    """Finds the offset at which the logs of two stores diverge, such as a master's and a slave's.

    Takes no lock and changes nothing.

    Args:
        first: Folder of the first store.
        second: Folder of the second store.
        commit_log: Folder of the first store's log, if it is not in the store folder.
        second_commit_log: The same for the second store.
        on_progress: Called with processed and total bytes.

    Raises:
        NotAStoreError: A folder is not a store. Damage is reported, not raised.
    """
    return _rocketpy.store_diff(
        (path_text("first", first), _optional(commit_log)),
        (path_text("second", second), _optional(second_commit_log)),
        on_progress,
    )


class StoreRecords:
    """Selected records of a store: iterate for Arrow batches, or call `raw` for the stored bytes.

    Each works only once.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _rocketpy.StoreRecords) -> None:
        self._native = native

    def __iter__(self) -> Iterator[ArrowBatch]:
        while (batch := self._native.next_batch()) is not None:
            yield batch

    def raw(self) -> Iterator[bytes]:
        """Yields the stored bytes of the records, in pieces of whole records."""
        while (piece := self._native.next_raw()) is not None:
            yield piece

    @property
    def left_out(self) -> int:
        """Number of damaged records skipped so far."""
        return self._native.state[0]

    @property
    def progress(self) -> tuple[int, int]:
        """Number of record bytes read so far, and an estimate of the total."""
        return self._native.state[1:]


def records(
    path: Folder,
    *,
    topics: str | Iterable[str] = (),
    queues: Iterable[int] | None = None,
    queue_offsets: tuple[int | None, int | None] = (None, None),
    physical_offsets: tuple[int | None, int | None] = (None, None),
    stored_from: Instant | None = None,
    stored_before: Instant | None = None,
    key: str | None = None,
    use_index: bool = True,
    columns: Iterable[str] | None = None,
    batch_rows: int = 8192,
    batch_bytes: int = 1 << 20,
    fail_on_damage: bool = True,
    verify: bool = True,
    commit_log: Folder | None = None,
    max_body_bytes: int | None = None,
) -> StoreRecords:
    """Selects records of a store: by queue when topics are named, otherwise in the order of the log.

    Args:
        path: Folder of the store.
        topics: Restricts the result to these topics. Without topics, records without a consume queue entry are
            included.
        queues: Restricts the result to these queues.
        queue_offsets: First offset, and offset after the last.
        physical_offsets: First offset, and offset after the last.
        stored_from: Restricts the result to records stored at or after this point in time.
        stored_before: Restricts the result to records stored before this point in time.
        key: Restricts the result to records with this key or unique key.
        use_index: Whether to find records of the key in the key index. Records after the end of the index are read from
            the log, and the whole log if the index may be incomplete. Without topics the index misses deleted topics,
            whose records are still in the log: pass False to include them.
        columns: Columns of the batches, as for `StoreReader.scan`.
        batch_rows: Maximum number of rows in a batch.
        batch_bytes: Size of bodies and properties, in bytes, at which a batch is full.
        fail_on_damage: Whether a damaged record, or a body that does not decompress within the limit, is an error;
            otherwise it is skipped and counted.
        verify: Whether to compare checksums.
        commit_log: Folder of the log, if it is not in the store folder.
        max_body_bytes: Maximum size of a decompressed body in bytes. Default: 64 MiB, and above 16 MiB at most 100
            times the stored size.

    Raises:
        TopicNotFoundError: The store has no message of a topic.
        OffsetError: The named topics have no message in one of the queues.
        InvalidArgumentError: A queue number is negative or not an int.
        DamagedDataError: Raised on iteration. A retry does not help.
    """
    return _records(
        path,
        topics,
        queues,
        queue_offsets,
        physical_offsets,
        (stored_from, stored_before),
        key,
        use_index,
        columns,
        batch_rows,
        batch_bytes,
        fail_on_damage,
        verify,
        commit_log,
        max_body_bytes,
    )


def _records(
    path: Folder,
    topics: str | Iterable[str],
    queues: Iterable[int] | None = None,
    queue_offsets: tuple[int | None, int | None] = (None, None),
    physical_offsets: tuple[int | None, int | None] = (None, None),
    stored: tuple[Instant | None, Instant | None] = (None, None),
    key: str | None = None,
    use_index: bool = True,
    columns: Iterable[str] | None = None,
    batch_rows: int = 8192,
    batch_bytes: int = 1 << 20,
    fail_on_damage: bool = True,
    verify: bool = True,
    commit_log: Folder | None = None,
    max_body_bytes: int | None = None,
    takes_waiting: bool = False,
) -> StoreRecords:
    """Implementation of `records`; for a transfer, with waiting messages."""
    topics = [topics] if isinstance(topics, str) else list(topics)
    numbers = _queue_numbers(queues)
    chosen = StoreRecords(
        _rocketpy.StoreRecords(
            path_text("path", path),
            _optional(commit_log),
            topics,
            numbers,
            queue_offsets,
            physical_offsets,
            (_ms(stored[0]), _ms(stored[1])),
            key,
            use_index,
            not fail_on_damage,
            verify,
            column_list(columns),
            batch_rows,
            batch_bytes,
            max_body_bytes,
            takes_waiting,
        )
    )
    for number in numbers or ():
        _check_queue(path, topics, number)
    return chosen


def _queue_numbers(queues: Iterable[int] | None) -> list[int] | None:
    """Checks queue numbers."""
    numbers = None if queues is None else list(queues)
    for number in numbers or ():
        if not 0 <= number < 1 << 31:
            raise InvalidArgumentError(f"not a queue number: {number}", hint="queues are numbered from 0")
    return numbers


def _check_queue(path: Folder, topics: list[str], number: int) -> None:
    """Refuses a queue that none of the topics has, which is a mistake and not an empty result."""
    folders = [folder for folder in (Path(path, "consumequeue", topic) for topic in topics) if folder.is_dir()]
    if folders and not any((folder / str(number)).is_dir() for folder in folders):
        there = sorted({int(one.name) for folder in folders for one in folder.iterdir() if one.name.isdigit()})
        raise OffsetError(
            f"the store holds no message in queue {number} of {', '.join(topics)}",
            hint=f"queues with messages: {', '.join(map(str, there))}",
        )


def export_messages(
    source: Folder,
    target: Folder,
    *,
    topics: str | Iterable[str] = (),
    queues: Iterable[int] | None = None,
    stored_from: Instant | None = None,
    stored_before: Instant | None = None,
    fail_on_damage: bool = True,
    commit_log: Folder | None = None,
    target_commit_log: Folder | None = None,
    on_progress: OnProgress | None = None,
) -> TransferReport:
    """Copies messages into a new store, with their topic, queue, tag, keys, properties and born time.

    Offsets and stored times are new. While a server runs, the current contents of the store are copied. Waiting
    messages of these topics and queues wait in the new store as well: messages with a delay level for the whole delay,
    timer messages until their time, half messages until the check-back of their producer.

    Args:
        source: Folder of the store, which is not locked.
        target: Folder of the new store: missing or empty.
        topics: Restricts the export to these topics.

        queues: Restricts the result to these queues.
        stored_from: Restricts the result to records stored at or after this point in time.
        stored_before: Restricts the result to records stored before this point in time.
        fail_on_damage: Whether a damaged record is an error; otherwise it is skipped and counted.
        commit_log: Folder of the source's log, if it is not in the source folder.
        target_commit_log: Folder of the target's log, or several separated by commas, if it is not in the target
            folder; missing or empty as well.
        on_progress: Called with processed and total bytes.

    Raises:
        InvalidArgumentError: The target is not empty, or is inside the source.
    """
    _check_apart(source, target)
    chosen = _records(
        source,
        topics,
        queues,
        stored=(stored_from, stored_before),
        fail_on_damage=fail_on_damage,
        commit_log=commit_log,
        takes_waiting=True,
    )
    transfer = _rocketpy.StoreTransfer(
        path_text("target", target),
        _optional(target_commit_log),
        path_text("source", source),
        _optional(commit_log),
        True,
    )
    return _transfer(chosen, transfer, on_progress)


def import_messages(
    source: Folder | Iterable[Mapping[str, Any]],
    target: Folder,
    *,
    topics: str | Iterable[str] = (),
    fail_on_damage: bool = True,
    commit_log: Folder | None = None,
    target_commit_log: Folder | None = None,
    on_progress: OnProgress | None = None,
) -> TransferReport:
    """Appends messages of another store, or rows of JSON lines, to a closed store.

    Args:
        source: Folder of another store; or rows in the format of `rocketpy store dump --json`: `topic` and `body` (or
            `body_base64`), and optionally `queue_id`, `properties`, `tag`, `keys`, `born_at` (or `born_at_ms`), `flag`,
            `born_host`, `reconsume_times`.
            Rows of system topics are passed over and counted.
        target: Folder of the store; created if missing, after the first row is checked.
        topics: Restricts the import from a store to these topics.
        fail_on_damage: Whether a damaged record is an error; otherwise it is skipped and counted.
        commit_log: Folder of the source's log, if it is not in the source folder.
        target_commit_log: Folder of the target's log, or several separated by commas, if its broker's configuration
            sets `storePathCommitLog`.
        on_progress: Called with processed and total bytes, for a store.

    Returns:
        A report of the imported messages, which are durable.

    Raises:
        StoreLockedError: A server has the store open.
        NotAStoreError: The target has consume queues, and its log is in another folder.
        InvalidArgumentError: The target is the source; or a row is invalid, named by its number from 1. Earlier rows
            were imported.
    """
    if isinstance(source, str | os.PathLike):
        _check_apart(source, target)
        chosen = _records(source, topics, fail_on_damage=fail_on_damage, commit_log=commit_log, takes_waiting=True)
        transfer = _rocketpy.StoreTransfer(
            path_text("target", target),
            _optional(target_commit_log),
            path_text("source", source),
            _optional(commit_log),
            False,
        )
        return _transfer(chosen, transfer, on_progress)
    rows = _messages(source)
    first = list(itertools.islice(rows, 1))  # an invalid source leaves no new folder behind
    transfer = _rocketpy.StoreTransfer(path_text("target", target), _optional(target_commit_log), None, None, False)
    gathered: list[ImportedMessage] = []
    try:
        for row in itertools.chain(first, rows):
            gathered.append(row)
            if len(gathered) == ROWS_AT_ONCE:
                transfer.append(gathered)
                gathered = []
    finally:
        transfer.append(gathered)
        report = transfer.finish()
    return report


def _check_apart(source: Folder, target: Folder) -> None:
    """Refuses a target that is the source or inside it, because the tool would read its own output."""
    own, other = Path(source).resolve(), Path(target).resolve()
    if other.is_relative_to(own):
        raise InvalidArgumentError(f"target must be outside the store: {other}", hint="name a separate folder")


def _transfer(
    chosen: StoreRecords, transfer: _rocketpy.StoreTransfer, on_progress: OnProgress | None
) -> TransferReport:
    try:
        transfer.append_records(chosen._native, on_progress)
    finally:
        report = transfer.finish()
    return report


def _messages(rows: Iterable[Mapping[str, Any]]) -> Iterator[ImportedMessage]:
    for number, row in enumerate(rows, 1):
        try:
            message = _message(row, number)
        except RecursionError:
            raise _bad_row(number, "is nested too deeply") from None
        yield message


def _message(row: Mapping[str, Any], number: int) -> ImportedMessage:
    """Converts a row to the dict that the store accepts."""
    topic, body = row.get("topic"), row.get("body", row.get("body_base64"))
    if not isinstance(topic, str) or not isinstance(body, str | bytes):
        raise _bad_row(number, f"needs a topic and a body: {str(dict(row))[:200]}")
    born_host = str(row.get("born_host", ""))
    try:
        check_unicode(topic, born_host)
        if isinstance(body, str):
            body = body.encode() if "body" in row else base64.b64decode(body, validate=True)
        properties = {str(name): str(value) for name, value in dict(row.get("properties") or {}).items()}
        if row.get("tag"):
            properties.setdefault("TAGS", str(row["tag"]))
        if row.get("keys"):
            keys = row["keys"]
            properties.setdefault("KEYS", keys if isinstance(keys, str) else " ".join(keys))
        born_at = row.get("born_at")
        moment = datetime.fromisoformat(born_at) if isinstance(born_at, str) else born_at
        # A number that is not a time has only its milliseconds.
        own_ms = _integer(row, number, "born_at_ms", -(2**63), 2**63 - 1) if row.get("born_at_ms") is not None else None
        born_at_ms = (now_ms() if own_ms is None else own_ms) if moment is None else instant_ms(moment)
        # A stored property has a value; an empty one is left out.
        stored = _rocketpy.store_properties([(name, value) for name, value in properties.items() if value])
    except (TypeError, ValueError, RocketPyError) as error:
        raise _bad_row(number, f"cannot be imported: {error}") from error
    return {
        "number": number,
        "topic": topic,
        "queue_id": _integer(row, number, "queue_id", 0),
        "flag": _integer(row, number, "flag", -(2**31)),
        "born_at_ms": born_at_ms,
        "born_host": born_host,
        "reconsume_times": _integer(row, number, "reconsume_times", -(2**31)),
        "body": body,
        "properties": stored,
    }


def _integer(row: Mapping[str, Any], number: int, field: str, least: int, most: int = 2**31 - 1) -> int:
    value = row.get(field, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _bad_row(
            number, f"has an invalid {field}: it must be a whole number from {least} to {most}, not {value!r}"
        )
    return value


def _bad_row(number: int, what: str) -> InvalidArgumentError:
    hint = "the rows before it are imported; continue with that row" if number > 1 else "no row is imported; correct it"
    return InvalidArgumentError(f"row {number} {what}", hint=hint)


def _optional(path: Folder | None) -> str | None:
    return None if path is None else path_text("commit_log", path)


def _ms(instant: Instant | None) -> int | None:
    return None if instant is None else instant_ms(instant)

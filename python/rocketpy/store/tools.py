"""Tools for store folders, all of `rocketpy.store`: facts, checks, repair, snapshots, messages out and in."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rocketpy import _rocketpy
from rocketpy.base.instant import instant_ms
from rocketpy.base.names import column_list, path_text
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
    """Called many times a second. An error that it raises stops the tool."""

    def __call__(self, done: int, total: int, /) -> object: ...


def stat(path: Folder, *, commit_log: Folder | None = None) -> StoreFacts:
    """Reports what a store holds. Takes no lock and checks no record.

    Args:
        path: The folder of the store.
        commit_log: The folder of its log, where the broker's configuration says `storePathCommitLog`.

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

    Counts the messages that wait, and checks the files that say so: progress, marks of transactions, and wheel and log
    of the timers.

    Takes no lock. Beside a running server, it checks what the server had dispatched when the check began, and leaves
    out wheel and log of the timers.

    Args:
        path: The folder of the store.
        commit_log: The folder of its log, if it is elsewhere.
        on_progress: Called with bytes done and total bytes.

    Raises:
        NotAStoreError: The folder is not a store. Problems of a store are in the report, not raised.
    """
    return _rocketpy.store_verify(path_text("path", path), _optional(commit_log), on_progress)


def repair(
    path: Folder,
    *,
    apply: bool = False,
    commit_log: Folder | None = None,
    on_progress: OnProgress | None = None,
) -> Repair:
    """Repairs a damaged store so that a server can open it. Every sound record stays in its place.

    Args:
        path: The folder of the store.
        apply: Whether to make the changes. Without it, only the plan is returned.
        commit_log: The folder of its log, if it is elsewhere.
        on_progress: Called with bytes done and total bytes.

    Returns:
        What is to be done, or was done. `kept_in` names the folder that keeps every removed byte.

    Raises:
        StoreLockedError: A server has the store open (with `apply`). A retry is safe once it is stopped.
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
    """Ends the log of a store that no server has open, so that the store can be the slave of another log.

    The next start reads all of the log that is left, and makes index and timers anew. Start it as a slave: its delay
    levels, timers and transactions may be further than its log until it has taken over those of its master.

    Args:
        path: The folder of the store.
        at: Where the log is to end, in bytes of the log: a record begins there. `diff` names it (`common_end`).
        apply: Whether to make the changes. Without it, only the plan is returned.
        commit_log: The folder of its log, if it is elsewhere.
        on_progress: Called with bytes done and total bytes.

    Returns:
        What is to be done, or was done. `kept_in` names the folder that keeps what was cut off.

    Raises:
        InvalidArgumentError: No record begins there.
        StoreError: A file of the log is missing.
        StoreLockedError: A server has the store open (with `apply`). A retry is safe once it is stopped.
    """
    if not 0 <= at < 1 << 63:
        raise InvalidArgumentError(f"at is {at}: a place in a log is 0 to 2**63 - 1")
    return _rocketpy.store_cut(path_text("path", path), at, _optional(commit_log), apply, on_progress)


def snapshot(
    path: Folder,
    target: Folder,
    *,
    commit_log: Folder | None = None,
    on_progress: OnProgress | None = None,
) -> Snapshot:
    """Makes a snapshot of a store, even while a server writes to it. It holds all that was readable when it began.

    Complete log files are hard links, the rest is copied. It opens with `StoreReader`, and a server may start on it.

    Args:
        path: The folder of the store.
        target: A folder that is new or empty, outside the store.
        commit_log: The folder of its log, if it is elsewhere.
        on_progress: Called with bytes done and total bytes.

    Raises:
        InvalidArgumentError: The target is not empty, or is inside the store.
        StoreError: The server's checkpoint does not advance, or the disk is full. The target is removed then; a retry
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
    """Finds where the logs of two stores part, such as a master's and a slave's. Takes no lock and changes nothing.

    Args:
        first: The folder of a store.
        second: The folder of another one.
        commit_log: The folder of the first one's log, if it is elsewhere.
        second_commit_log: The same for the second one.
        on_progress: Called with bytes done and total bytes.

    Raises:
        NotAStoreError: A folder is not a store. Damage is in the report, not raised.
    """
    return _rocketpy.store_diff(
        (path_text("first", first), _optional(commit_log)),
        (path_text("second", second), _optional(second_commit_log)),
        on_progress,
    )


class StoreRecords:
    """Selected records of a store: iterate for Arrow batches, or call `raw` for the stored bytes. Either works once."""

    __slots__ = ("_native",)

    def __init__(self, native: _rocketpy.StoreRecords) -> None:
        self._native = native

    def __iter__(self) -> Iterator[ArrowBatch]:
        while (batch := self._native.next_batch()) is not None:
            yield batch

    def raw(self) -> Iterator[bytes]:
        """The stored bytes of the records, in pieces of whole records."""
        while (piece := self._native.next_raw()) is not None:
            yield piece

    @property
    def left_out(self) -> int:
        """Damaged records that were left out so far."""
        return self._native.state[0]

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes of records read so far, and an estimate of the total."""
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
        path: The folder of the store.
        topics: Only these topics. Without any, records that are in no consume queue are included.
        queues: Only these queues.
        queue_offsets: From, and before.
        physical_offsets: From, and before.
        stored_from: Stored at or after this point in time.
        stored_before: Stored before this point in time.
        key: With this key, or this unique key.
        use_index: Whether to find records of the key in the key index. What the index does not cover is read from the
            log, and all of the log if the index may be incomplete. Without topics the index misses deleted topics,
            whose records are still in the log: pass False to read them too.
        columns: Columns of the batches, as `StoreReader.scan` knows them.
        batch_rows: Maximum rows in a batch.
        batch_bytes: Bytes of bodies and properties after which a batch is full.
        fail_on_damage: Whether a damaged record is an error. If not, it is skipped and counted.
        verify: Whether checksums are compared.
        commit_log: The folder of its log, if it is elsewhere.
        max_body_bytes: Largest body when decompressed. Default: 64 MiB, above 16 MiB at most a hundred times what
            is stored.

    Raises:
        TopicNotFoundError: The store holds no message of a topic.
        OffsetError: The named topics have no message in one of the queues.
        InvalidArgumentError: A queue number is negative or not an int.
        DamagedDataError: From the iteration. A retry gives the same.
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
    """`records`, and for a transfer also what waits."""
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
    """The numbers of queues, each one that a queue can have."""
    numbers = None if queues is None else list(queues)
    for number in numbers or ():
        if not 0 <= number < 1 << 31:
            raise InvalidArgumentError(f"not a queue number: {number}", hint="queues are numbered from 0")
    return numbers


def _check_queue(path: Folder, topics: list[str], number: int) -> None:
    """Refuses a queue that none of the topics has: it is a mistake, not an empty result."""
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

    Offsets and stored times are new. Beside a running server, it copies what the store holds now. Messages that wait,
    of these topics and queues, wait in the new store as well: a delay level from its beginning, a timer until its time,
    a half message until its producer is asked.

    Args:
        source: The folder of the store. No lock is taken.
        target: The folder of the new store: missing or empty.
        topics: Only these topics.
        queues: Only these queues.
        stored_from: Stored at or after this point in time.
        stored_before: Stored before this point in time.
        fail_on_damage: Whether a damaged record is an error. If not, it is skipped and counted.
        commit_log: The folder of the source's log, if it is elsewhere.
        target_commit_log: The folder of the target's log, or several separated by commas, if it is to be elsewhere:
            new or empty as well.
        on_progress: Called with bytes done and total bytes.

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
    """Appends messages of another store, or rows of JSON lines, to a store that no server has open.

    Args:
        source: The folder of another store; or rows as `rocketpy store dump --json` prints them: `topic` and `body` (or
            `body_base64`), and optionally `queue_id`, `properties`, `tag`, `keys`, `born_at`, `flag`,
            `born_host`, `reconsume_times`.
        target: The folder of the store; created if missing.
        topics: Only these topics of a store.
        fail_on_damage: Whether a damaged record is an error. If not, it is skipped and counted.
        commit_log: The folder of the source's log, if it is elsewhere.
        target_commit_log: The folder of the target's log, or several separated by commas, where its broker's
            configuration says `storePathCommitLog`.
        on_progress: Called with bytes done and total bytes, for a store.

    Returns:
        What was imported. Everything is durable.

    Raises:
        StoreLockedError: A server has the store open.
        NotAStoreError: The target has consume queues, and its log is elsewhere.
        InvalidArgumentError: The target is the source; or a row is bad, named by its number from 1. Earlier rows were
            imported.
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
    transfer = _rocketpy.StoreTransfer(path_text("target", target), _optional(target_commit_log), None, None, False)
    gathered: list[ImportedMessage] = []
    try:
        for number, row in enumerate(source, 1):
            gathered.append(_message(row, number))
            if len(gathered) == ROWS_AT_ONCE:
                transfer.append(gathered)
                gathered = []
    finally:
        transfer.append(gathered)
        report = transfer.finish()
    return report


def _check_apart(source: Folder, target: Folder) -> None:
    """Refuses a target that is the source or inside it: the tool would read messages that it has just written."""
    own, other = Path(source).resolve(), Path(target).resolve()
    if other.is_relative_to(own):
        raise InvalidArgumentError(
            f"the target is the store itself or is inside it: {other}", hint="name a folder of its own"
        )


def _transfer(
    chosen: StoreRecords, transfer: _rocketpy.StoreTransfer, on_progress: OnProgress | None
) -> TransferReport:
    try:
        transfer.append_records(chosen._native, on_progress)
    finally:
        report = transfer.finish()
    return report


def _message(row: Mapping[str, Any], number: int) -> ImportedMessage:
    """Makes a row into the dict that the store takes."""
    topic, body = row.get("topic"), row.get("body", row.get("body_base64"))
    if not isinstance(topic, str) or not isinstance(body, str | bytes):
        raise _bad_row(number, f"needs a topic and a body: {str(dict(row))[:200]}")
    try:
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
        born_at_ms = int(datetime.now(UTC).timestamp() * 1000) if moment is None else instant_ms(moment)
        # A stored property has a value; an empty one is left out.
        stored = _rocketpy.store_properties([(name, value) for name, value in properties.items() if value])
    except (TypeError, ValueError, RocketPyError) as error:
        raise _bad_row(number, f"cannot be imported: {error}") from error
    return {
        "topic": topic,
        "queue_id": _integer(row, number, "queue_id", 0),
        "flag": _integer(row, number, "flag", -(2**31)),
        "born_at_ms": born_at_ms,
        "born_host": str(row.get("born_host", "")),
        "reconsume_times": _integer(row, number, "reconsume_times", 0),
        "body": body,
        "properties": stored,
    }


def _integer(row: Mapping[str, Any], number: int, field: str, least: int) -> int:
    value = row.get(field, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
        raise _bad_row(
            number, f"has no good {field}, which must be a whole number from {least} to {2**31 - 1}: {value!r}"
        )
    return value


def _bad_row(number: int, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"row {number} {what}", hint="the rows before it are imported; go on with that row")


def _optional(path: Folder | None) -> str | None:
    return None if path is None else path_text("commit_log", path)


def _ms(instant: Instant | None) -> int | None:
    return None if instant is None else instant_ms(instant)

"""Identity of a store: records at the beginning of log files."""

from __future__ import annotations

import re
import socket
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpy.errors import NotAStoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rocketpy.spark.options import ReadOptions

HEAD_BYTES = 72
"""Size of the head of a record: its size, checksum, queue, offsets, both times and both hosts."""
HINT = "mount the same folder under the same path on every worker, or read by name_server"


def store_marks(options: ReadOptions) -> dict[str, bytes]:
    """The first record of the oldest and of the newest full file of a store's log, or of the only file.

    A live broker may be writing the first record of a newer file. So read the queues before: where they
    have a message, the first record of the log is whole.

    Args:
        options: Read options with a path.

    Returns:
        Head of the record, by name of the file; empty for a store without messages.
    """
    files = _files(options)
    oldest = list(islice(_marks(files), 1))
    newest = list(islice(_marks(reversed(files)), 2))
    return dict([*oldest, *newest[-1:]])


def check_store(options: ReadOptions, marks: Mapping[str, bytes]) -> None:
    """Checks that the path points to the store of the driver's plan or of a checkpoint.

    Files that retention removed in the meantime are ignored.

    Args:
        options: Read options with a path.
        marks: Result of `store_marks` at the time of the plan.

    Raises:
        NotAStoreError: The path holds no store, or another one.
    """
    folder = _log_folder(options)
    where = f"{options.path} on {socket.gethostname()}"
    if not folder.is_dir():
        raise NotAStoreError(f"the store of the driver's plan is missing: {where}", hint=HINT)
    here = {name: head for name in marks if (head := _head(folder / name))}
    is_other = any(head != marks[name] for name, head in here.items())
    if marks and not here:  # retention removes the oldest files first
        is_other = min((file.name for file in _files(options)), default="") <= max(marks)
    if is_other:
        raise NotAStoreError(f"the driver's plan is for another store than {where}", hint=HINT)


def _log_folder(options: ReadOptions) -> Path:
    return Path(options.commit_log_path or Path(options.path or "", "commitlog"))


def _files(options: ReadOptions) -> list[Path]:
    return sorted(file for file in _log_folder(options).iterdir() if re.fullmatch(r"\d{20}", file.name))


def _marks(files: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Names and heads of the files that have a record."""
    return ((file.name, head) for file in files if any(head := _head(file)))


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(HEAD_BYTES)
    except FileNotFoundError:  # removed by retention, perhaps a moment ago
        return b""

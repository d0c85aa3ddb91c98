"""`rocketpy store`: look into a store folder, with or without a server on it."""

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy import StoreReader
from rocketpy.cli import output
from rocketpy.cli.exits import CommandError, ExitCode
from rocketpy.cli.options import Json, Tags, moment

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the store.")]
Log = Annotated[
    Path | None,
    typer.Option("--commit-log", metavar="DIR", help="Folder of its log, where the broker sets storePathCommitLog."),
]


def stat(folder: Folder, commit_log: Log = None, as_json: Json = False) -> None:
    """Show what a store holds: files, topics, messages."""
    topics = [
        {
            "topic": topic.name,
            "queues": len(topic.queues),
            "messages": sum(queue.max_offset - queue.min_offset for queue in topic.queues),
        }
        for topic in StoreReader(folder, commit_log=commit_log).topics()
    ]
    logs, queues = files(commit_log or folder / "commitlog"), files(folder / "consumequeue")
    in_order = not (folder / "abort").exists()
    if as_json:
        whole = {"path": str(folder), "commit_log": logs, "consume_queues": queues, "stopped_in_order": in_order}
        output.show_one({**whole, "topics": topics}, as_json=True)
        return
    facts = {
        "commit_log": f"{logs['files']:,} files, {logs['bytes_on_disk']:,} bytes on disk",
        "consume_queues": f"{queues['files']:,} files, {queues['bytes_on_disk']:,} bytes on disk",
        "stopped_in_order": "yes" if in_order else "no: a server runs on it, or was killed",
    }
    output.show_one(facts, as_json=False)
    output.show(topics, as_json=False, empty="no messages")


def files(folder: Path) -> dict[str, int]:
    """Number of files below a folder and the room they take."""
    found = [path.stat() for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return {"files": len(found), "bytes_on_disk": sum(one.st_blocks * 512 for one in found)}


def dump(
    folder: Folder,
    topic: Annotated[str, typer.Option("--topic", help="Topic to print.")],
    queue: Annotated[list[int] | None, typer.Option("--queue", help="Only this queue; may be repeated.")] = None,
    tags: Tags = "*",
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Stored at or after: a time, or -10m.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Stored before: a time, or -10m.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Stop after this many.")] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare the checksum of each record.")] = True,
    commit_log: Log = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line instead of the bodies.")] = False,
) -> None:
    """Print the messages of a topic, queue by queue, read from the files. Needs the extra `arrow`."""
    reader = StoreReader(folder, commit_log=commit_log)
    ranges = reader.ranges(
        topic,
        queues=queue,
        stored_from=None if start is None else moment(start),
        stored_before=None if end is None else moment(end),
    )
    for number, row in enumerate(rows(reader.scan(ranges, tags=tags, verify=verify)), 1):
        line = json.dumps(printable(row)).encode() if as_json else row["body"]
        sys.stdout.buffer.write(line + b"\n")
        if number == limit:
            break
    sys.stdout.buffer.flush()


def rows(scan: Any) -> Iterator[dict[str, Any]]:
    """The rows of a scan as Python values."""
    try:
        import pyarrow
    except ImportError:
        raise CommandError("pyarrow is not installed", ExitCode.NOT_FOUND, 'pip install "rocketpy-mq[arrow]"') from None
    for batch in scan:
        yield from pyarrow.record_batch(batch).to_pylist()


def printable(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON knows it, in the form that `rocketpy consume --format json` prints."""
    body = row.pop("body")
    row["keys"] = (row["keys"] or "").split()
    row["properties"] = dict(row["properties"] or ())
    facts = {name: output.plain(value) for name, value in row.items()}
    try:
        return facts | {"body": body.decode()}
    except UnicodeDecodeError:
        return facts | {"body_base64": base64.b64encode(body).decode()}

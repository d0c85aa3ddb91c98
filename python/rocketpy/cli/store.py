"""`rocketpy store stat` and `dump`: inspect a store folder, with or without a running server."""

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rocketpy import store
from rocketpy._rocketpy import split_keys, tag_names
from rocketpy.cli.options import BodyBytes, Json, Tags
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.commandline.selection import moment
from rocketpy.commandline.terminal import shown
from rocketpy.errors import DamagedDataError

Folder = Annotated[Path, typer.Argument(metavar="DIR", readable=False, help="Folder of the store.")]
Log = Annotated[
    Path | None,
    typer.Option(
        "--commit-log",
        metavar="DIR",
        help="Folder of the commit log, or several separated by commas, if the broker sets storePathCommitLog.",
    ),
]
From = Annotated[str | None, typer.Option("--from", metavar="TIME", help="Stored at or after: a time, or -10m.")]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Stored before: a time, or -10m.")]


def stat(folder: Folder, commit_log: Log = None, as_json: Json = False) -> None:
    """Show the contents of a store: files, durability marks, topics, queues, messages, ages and missing files.

    Topics and queues without messages are not listed or counted: a store folder has no files for them.
    """
    facts = store.stat(folder, commit_log=commit_log)
    logs, queues = files(facts.log.folders), files([folder / "consumequeue"])
    if as_json:
        output.show_one(as_object(facts, logs, queues), as_json=True)
        return
    output.show_one(as_text(facts, logs, queues), as_json=False)
    rows = [
        {"queues_with_messages" if name == "queues" else name: value for name, value in topic_row(topic).items()}
        for topic in facts.topics
    ]
    output.show(rows, as_json=False, empty=f"no messages in {folder}")


def as_object(facts: store.StoreFacts, logs: dict[str, int], queues: dict[str, int]) -> dict[str, Any]:
    """Returns all facts, for JSON."""
    log = {name: value for name, value in output.plain(facts.log).items() if name != "files"}
    return {
        "path": facts.path,
        "commit_log": logs | log,
        "consume_queues": queues,
        "stopped_in_order": not facts.has_abort_file,
        "locked": facts.is_locked,
        "locked_by": facts.locked_by,
        "mark": facts.mark,
        "log_durable_at": facts.log_durable_at,
        "queues_durable_at": facts.queues_durable_at,
        "topics": [topic_row(topic) | {"queue_list": topic.queues} for topic in facts.topics],
    }


def as_text(facts: store.StoreFacts, logs: dict[str, int], queues: dict[str, int]) -> dict[str, str]:
    """Returns the most important facts, for a table."""
    mark = facts.mark
    holder = "no process" if not facts.is_locked else f"process {facts.locked_by}"
    lines = {
        "commit_log": f"{output.counted(logs['files'], 'file')}, {logs['bytes_on_disk']:,} bytes on disk, "
        f"from {facts.log.start:,}",
        "consume_queues": f"{output.counted(queues['files'], 'file')}, {queues['bytes_on_disk']:,} bytes on disk",
        "stopped_in_order": "yes" if not facts.has_abort_file else "no: a server is running on it, or was killed",
        "held_by": holder,
        "durable": "no RocketPy mark: another program wrote last, or none did"
        if mark is None
        else f"log to {mark.log_to:,}, consume queues to {mark.queues_to:,}, closed: {'yes' if mark.closed else 'no'}",
    }
    holes = [f"log {start:,} to {end:,}" for start, end in facts.log.holes]
    for topic in facts.topics:
        for queue in topic.queues:
            holes += [f"{topic.topic}-{queue.queue_id} {start:,} to {end:,}" for start, end in queue.holes]
    return lines | ({"missing_files": "; ".join(holes)} if holes else {})


def topic_row(topic: store.TopicFacts) -> dict[str, Any]:
    """Returns the table row of a topic."""
    return {
        "topic": topic.topic,
        "queues": len(topic.queues),
        "messages": topic.messages,
        "estimated_bytes": topic.estimated_bytes,
        "first_stored_at": topic.first_stored_at,
        "last_stored_at": topic.last_stored_at,
        "age_seconds": None
        if topic.last_stored_at is None
        else round((datetime.now(UTC) - topic.last_stored_at).total_seconds(), 3),
    }


def files(folders: Iterable[str | Path]) -> dict[str, int]:
    """Returns the number of files below some folders, and their size on disk."""
    found = [path.stat() for folder in folders for path in Path(folder).rglob("*") if path.is_file()]
    return {"files": len(found), "bytes_on_disk": sum(one.st_blocks * 512 for one in found)}


def dump(
    folder: Folder,
    topic: Annotated[list[str] | None, typer.Option("--topic", help="Only this topic; may be repeated.")] = None,
    queue: Annotated[list[int] | None, typer.Option("--queue", help="Only this queue; may be repeated.")] = None,
    tags: Tags = "*",
    key: Annotated[str | None, typer.Option("--key", help="Only messages with this key or unique key.")] = None,
    index: Annotated[
        bool, typer.Option("--index/--no-index", help="Look up the key in the index, or scan the whole log.")
    ] = True,
    offsets: Annotated[
        str | None, typer.Option("--offsets", metavar="FROM:BEFORE", help="Queue offsets; either end may be omitted.")
    ] = None,
    physical: Annotated[
        str | None, typer.Option("--physical", metavar="FROM:BEFORE", help="Physical offsets, in the same form.")
    ] = None,
    start: From = None,
    end: To = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Stop after N records.")] = None,
    form: Annotated[
        Literal["body", "jsonl", "raw", "parquet"],
        typer.Option("--format", help="Bodies, one per line; JSON lines; the stored records; or a Parquet file."),
    ] = "body",
    target: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write instead of standard output.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare the checksum of each record.")] = True,
    skip: Annotated[bool, typer.Option("--skip-damage", help="Skip damaged records, and count them.")] = False,
    commit_log: Log = None,
    max_body_bytes: BodyBytes = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
) -> None:
    """Print messages from the store files; without --topic, in log order. Needs the extra `arrow`."""
    form = "jsonl" if as_json else form
    check_form(form, target, limit, tags)
    chosen = store.records(
        folder,
        topics=topic or (),
        queues=queue,
        queue_offsets=span(offsets),
        physical_offsets=span(physical),
        stored_from=None if start is None else moment(start, "--from"),
        stored_before=None if end is None else moment(end, "--to"),
        key=key,
        use_index=index,
        columns=COLUMNS if form != "body" else ["body", "tag"],
        fail_on_damage=not skip,
        verify=verify,
        commit_log=commit_log,
        max_body_bytes=max_body_bytes,
    )
    write_records(chosen, set(tag_names(tags) or ()), limit, form, target)
    if key and index and not topic and not physical:
        print(DELETED_TOPICS, file=sys.stderr)
    if chosen.left_out:
        print(f"skipped: {chosen.left_out} damaged records", file=sys.stderr)


DAMAGE_HINT = "--skip-damage leaves damaged records out and counts them; --no-verify compares no checksums"

DELETED_TOPICS = "note: messages of deleted topics are found with --topic NAME, or with --no-index in the whole log"
"""Note for a lookup without a topic: the index stores a key only together with its topic."""

COLUMNS = [
    "topic", "queue_id", "queue_offset", "broker_name", "tag", "keys", "body", "properties", "born_at", "stored_at",
    "msg_id", "reconsume_times", "physical_offset", "born_host", "flag", "born_at_ms", "stored_at_ms",
]  # fmt: skip
"""Columns of JSON lines and Parquet files: enough to import the messages again."""


def check_form(form: str, target: Path | None, limit: int | None, tags: str) -> None:
    """Rejects options that a format does not support."""
    if form == "parquet" and target is None:
        raise CommandError(
            "cannot write a Parquet file to standard output", ExitCode.USAGE, "name a file with --output"
        )
    if form == "raw" and (limit is not None or tags != "*"):
        raise CommandError(
            "--format raw does not support --limit and --tags", ExitCode.USAGE, "omit --limit and --tags"
        )


def write_records(
    chosen: store.StoreRecords, tags: set[str], limit: int | None, form: str, target: Path | None
) -> None:
    """Writes the records in a format, to a file or to standard output."""
    try:
        if form == "parquet":
            write_parquet(chosen, tags, limit, target)
        elif form == "raw":
            write(chosen.raw(), target)
        else:
            write(lines(chosen, tags, limit, form, as_it_is if target else shown), target)
    except DamagedDataError as error:
        if error.hint and "without failing on data loss" not in error.hint:
            raise
        raise CommandError(str(error), ExitCode.DAMAGED, DAMAGE_HINT) from error


def span(text: str | None) -> tuple[int | None, int | None]:
    """Reads two offsets.

    Examples:
        >>> span("10:20"), span(":20"), span("10:"), span(None)
        ((10, 20), (None, 20), (10, None), (None, None))
    """
    if text is None:
        return (None, None)
    parts = text.split(":")
    hint = "write 100:200, 100: or :200"
    if len(parts) != 2 or not all(part.strip().isdecimal() or not part.strip() for part in parts):
        raise CommandError(f"not a range of offsets: {text}", ExitCode.USAGE, hint)
    if any(float(part) >= 2**63 for part in parts if part.strip()):
        raise CommandError(f"an offset must be less than {2**63}: {text}", ExitCode.USAGE, hint)
    first, last = (int(part) if part.strip() else None for part in parts)
    return (first, last)


def as_it_is(body: bytes) -> bytes:
    """Returns a message body unchanged, for a file."""
    return body


def lines(
    chosen: store.StoreRecords, tags: set[str], limit: int | None, form: str, body: Callable[[bytes], bytes]
) -> Iterator[bytes]:
    """Yields each record as one line."""
    for number, row in enumerate(rows(chosen, tags), 1):
        yield (json.dumps(json_row(row)).encode() if form == "jsonl" else body(row["body"])) + b"\n"
        if number == limit:
            return


def write(pieces: Iterable[bytes], target: Path | None) -> None:
    """Writes to a file, or to standard output."""
    if target is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    with target.open("wb") as file:
        for piece in pieces:
            file.write(piece)


def batches(chosen: store.StoreRecords, tags: set[str]) -> Iterator[Any]:
    """Yields the selected records as pyarrow batches, filtered by tags."""
    try:
        pyarrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    except ImportError:
        raise CommandError("pyarrow is not installed", ExitCode.NOT_FOUND, 'pip install "rocketpy-mq[arrow]"') from None
    for native in chosen:
        batch = pyarrow.record_batch(native)
        if tags:
            batch = batch.filter(compute.is_in(batch["tag"], pyarrow.array(sorted(tags))))
        yield batch


def rows(chosen: store.StoreRecords, tags: set[str]) -> Iterator[dict[str, Any]]:
    """Yields the selected rows as Python values."""
    for batch in batches(chosen, tags):
        yield from batch.to_pylist()


def write_parquet(chosen: store.StoreRecords, tags: set[str], limit: int | None, target: Path | None) -> None:
    """Writes a Parquet file, unless no row is selected."""
    writer: Any = None
    left = limit
    try:
        for batch in batches(chosen, tags):
            import pyarrow.parquet

            writer = writer or pyarrow.parquet.ParquetWriter(target, batch.schema)
            writer.write_batch(batch if left is None else batch.slice(0, left))
            left = None if left is None else left - min(left, batch.num_rows)
            if left == 0:
                break
    finally:
        if writer is not None:
            writer.close()


def json_row(row: dict[str, Any]) -> dict[str, Any]:
    """Converts a row to the JSON form that `rocketpy consume --format json` prints."""
    body = row.pop("body")
    row["keys"] = split_keys(row["keys"] or "")
    row["properties"] = dict(row["properties"] or ())
    facts = {name: output.plain(value) for name, value in row.items()}
    try:
        return facts | {"body": body.decode()}
    except UnicodeDecodeError:
        return facts | {"body_base64": base64.b64encode(body).decode()}

"""`rocketpy produce`: messages from standard input or files."""

import base64
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from rocketpy import Message, Producer, RocketPyError
from rocketpy.cli import output
from rocketpy.cli.exits import CommandError, ExitCode
from rocketpy.cli.options import LOCAL, Json, NameServer
from rocketpy.config import PATIENT_SENDS

READ_BYTES = 256 << 10
SEND_BYTES = 8 << 20
"""Maximum bytes of bodies in one `send_many`, so that large files do not fill the memory."""
RENEWED = {
    "TAGS", "KEYS", "__SHARDINGKEY", "UNIQ_KEY", "WAIT", "TRACE_ON", "MSG_REGION", "CLUSTER", "INSTANCE_ID", "__CRC32#",
}  # fmt: skip
"""Properties that `consume` prints as fields of their own, or that client and broker set again."""
FIELDS = {"tag", "keys", "order_key", "properties"}


@dataclass
class Empty:
    """Counts empty lines, which are skipped: a message has at least one byte."""

    lines: int = 0


class Input(StrEnum):
    """Meaning of one input line."""

    LINES = "lines"
    JSON = "json"
    FILES = "files"


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    inputs: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Read these instead of standard input.")
    ] = None,
    form: Annotated[
        Input,
        typer.Option(
            "--format",
            help="lines: each line is a message. json: each line is an object as `consume --format json` prints it. "
            "files: each line names a file that is a message.",
        ),
    ] = Input.LINES,
    tag: Annotated[str | None, typer.Option("--tag", help="Tag of messages that have none.")] = None,
    key: Annotated[list[str] | None, typer.Option("--key", help="Key of messages that have none.")] = None,
    order_key: Annotated[
        str | None, typer.Option("--order-key", help="Messages with the same order key go to one queue, in order.")
    ] = None,
    max_message_size: Annotated[
        int | None,
        typer.Option("--max-message-size", min=1, help="Largest body in bytes. Default: 4194304."),
    ] = None,
    name_server: NameServer = LOCAL,
    group: Annotated[str, typer.Option("--group", help="Producer group.")] = "rocketpy-cli",
    as_json: Json = False,
) -> None:
    """Send messages: one per line, from standard input or files. Empty lines are skipped and counted."""
    defaults = {"tag": tag, "keys": key or [], "order_key": order_key}
    make = {Input.LINES: line_message, Input.JSON: json_message, Input.FILES: file_message}[form]
    began, sent, under_way, empty = time.monotonic(), 0, 0, Empty()
    with ExitStack() as stack:
        lines = line_groups(stack, inputs or [])
        options = PATIENT_SENDS.copy()
        if max_message_size is not None:
            options["max_message_size"] = max_message_size
        producer = stack.enter_context(Producer(group, name_servers=name_server, **options))
        bar = stack.enter_context(output.progress(quiet=as_json))
        task = bar.add_task(f"to {topic}", total=None)
        try:
            for messages in message_groups(lines, make, topic, defaults, empty):
                under_way = len(messages)
                sent, under_way = sent + len(producer.send_many(messages)), 0
                bar.update(task, completed=sent)
        except RocketPyError:
            output.STDERR.print(f"{output.counted(sent, 'message')} sent before the failed ones:")
            raise
        except KeyboardInterrupt:
            more = f", and perhaps some of {under_way:,} more" if under_way else ""
            output.STDERR.print(f"{output.counted(sent, 'message')} sent{more}")
            raise
    seconds = time.monotonic() - began
    if as_json:
        facts = {"topic": topic, "messages": sent, "empty_lines": empty.lines, "seconds": round(seconds, 3)}
        output.show_one(facts, as_json=True)
        return
    output.STDERR.print(f"{output.counted(sent, 'message')} to {topic} in {seconds:.2f} s", markup=False)
    if empty.lines:
        output.STDERR.print(
            f"skipped, because a message must not be empty: {output.counted(empty.lines, 'empty line')}"
        )


def line_groups(stack: ExitStack, paths: Iterable[Path]) -> Iterator[list[bytes]]:
    """Groups of lines without their line ends: all lines available at a time, so a slow pipe is sent line by line."""
    standard = 0
    sources = [standard if str(path) == "-" else stack.enter_context(path.open("rb")).fileno() for path in paths]
    for source in sources or [standard]:
        rest = b""
        while block := os.read(source, READ_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            yield [line.removesuffix(b"\r") for line in lines]
        if rest:
            yield [rest.removesuffix(b"\r")]


def message_groups(
    groups: Iterable[list[bytes]], make: Callable[..., Message], topic: str, defaults: dict[str, Any], empty: Empty
) -> Iterator[list[Message]]:
    """Messages of the non-empty lines; counts the empty ones.

    Raises:
        CommandError: A line is no message. Those before it were handed out.
    """
    number = 0
    for lines in groups:
        messages: list[Message] = []
        size_bytes = 0
        for number, line in enumerate(lines, number + 1):  # noqa: B020 (numbers continue from group to group)
            if not line:
                empty.lines += 1
                continue
            try:
                messages.append(make(topic, line, defaults))
            except (ValueError, TypeError, OSError) as error:
                if messages:
                    yield messages
                raise CommandError(
                    f"line {number}: {error}",
                    ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else ExitCode.USAGE,
                    f"the lines before {number} were sent; correct it and continue from there",
                ) from error
            size_bytes += len(messages[-1])
            if size_bytes > SEND_BYTES:
                yield messages
                messages, size_bytes = [], 0
        if messages:
            yield messages


def line_message(topic: str, line: bytes, defaults: dict[str, Any]) -> Message:
    """The line is the body."""
    return Message(topic, line, **defaults)


def file_message(topic: str, line: bytes, defaults: dict[str, Any]) -> Message:
    """The line is the name of a file whose content is the body."""
    return Message(topic, Path(line.decode()).read_bytes(), **defaults)


def json_message(topic: str, line: bytes, defaults: dict[str, Any]) -> Message:
    """The line is an object with `body` or `body_base64`, and may have `tag`, `keys`, `order_key` and `properties`."""
    fields = json_object(json.loads(line), "the line")
    body, encoded = fields.get("body"), fields.get("body_base64")
    if body is not None:
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
    elif isinstance(encoded, str):
        content = base64.b64decode(encoded, validate=True)
    else:
        raise ValueError('"body" and "body_base64" are both missing')
    given = {name: fields[name] for name in FIELDS & fields.keys() if fields[name]}
    properties = json_object(given.pop("properties", {}), '"properties"')
    given["properties"] = {name: value for name, value in properties.items() if name not in RENEWED}
    return Message(topic, content, **(defaults | given))


def json_object(value: object, what: str) -> dict[str, Any]:
    """Checks that a value from JSON is an object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return cast("dict[str, Any]", value)

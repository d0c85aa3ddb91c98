"""`rocketpy produce`: a message on the command line, or messages from standard input or files."""

import base64
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rocketpy import Admin, Message, Producer, RocketPyError, SendStatus, TopicNotFoundError
from rocketpy._rocketpy import is_reserved_property
from rocketpy.base.clock import monotonic
from rocketpy.base.descriptors import INPUT
from rocketpy.base.names import name_server_list
from rocketpy.base.topic_names import TopicNames
from rocketpy.cli.options import LOCAL, WAITING, WAITING_SENDS, Json, NameServer
from rocketpy.codec import finite, refuse_constant
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.commandline.selection import moment
from rocketpy.commandline.streams import StreamError

if TYPE_CHECKING:
    from rocketpy.config import ProducerOptions

READ_BYTES = 256 << 10
SEND_BYTES = 8 << 20
"""Maximum bytes of bodies in one `send_many`, so that large files do not fill the memory."""
RENEWED = {
    "TAGS", "KEYS", "__SHARDINGKEY", "UNIQ_KEY", "WAIT", "TRACE_ON", "MSG_REGION", "CLUSTER", "INSTANCE_ID", "__CRC32#",
}  # fmt: skip
"""Properties that `consume` prints as fields of their own, or that client and broker set again."""
LATER = {"delay_level", "deliver_at", "delay"}
"""Fields of which a message has at most one."""
STORED_AGAIN = {"REAL_TOPIC", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC", "CORRELATION_ID"}
"""Properties of delayed, returned and request messages: other reserved properties are not copied with them."""
FIELDS = {"tag", "keys", "order_key", "properties"} | LATER


@dataclass
class Empty:
    """Number of empty lines, which are skipped: a message has at least one byte."""

    lines: int = 0


class Input(StrEnum):
    """Meaning of one input line."""

    LINES = "lines"
    JSON = "json"
    FILES = "files"


Text = Annotated[
    str | None, typer.Argument(metavar="TEXT", help="Message to send, instead of the lines of standard input.")
]
Files = Annotated[
    list[Path] | None,
    typer.Option("--file", metavar="FILE", help="File to read instead of standard input. May be repeated."),
]
Format = Annotated[
    Input,
    typer.Option(
        "--format",
        help="lines: each line is a message, without its end (\\n or \\r\\n). json: each line is an object as "
        "`consume --format json` prints it. files: each line names a file that is a message.",
    ),
]
Tag = Annotated[str | None, typer.Option("--tag", help="Tag of messages that have none.")]
Keys = Annotated[list[str] | None, typer.Option("--key", help="Key of messages that have none.")]
OrderKey = Annotated[
    str | None,
    typer.Option(
        "--order-key",
        help="Order key of messages that have none. Messages with the same order key are sent to one queue, in "
        "order; messages without one are sent to the queues in runs, in order only within each queue.",
    ),
]
DelayLevel = Annotated[
    int | None,
    typer.Option("--delay-level", min=1, max=18, help="Consumers get the messages after the delay of this level."),
]
Delay = Annotated[
    float | None,
    typer.Option(
        "--delay", min=0, metavar="SECONDS", help="Consumers get the messages after this delay (timer messages)."
    ),
]
DeliverAt = Annotated[
    str | None,
    typer.Option("--deliver-at", metavar="TIME", help="Consumers get the messages at this time (timer messages)."),
]
MaxMessageSize = Annotated[int, typer.Option("--max-message-size", min=1, help="Maximum body size in bytes.")]
Group = Annotated[str, typer.Option("--group", help="Producer group.")]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    text: Text = None,
    file: Files = None,
    form: Format = Input.LINES,
    tag: Tag = None,
    key: Keys = None,
    order_key: OrderKey = None,
    delay_level: DelayLevel = None,
    delay: Delay = None,
    deliver_at: DeliverAt = None,
    max_message_size: MaxMessageSize = 4 << 20,
    name_server: NameServer = LOCAL,
    group: Group = "rocketpy-cli",
    as_json: Json = False,
) -> None:
    """Send messages: TEXT, or each line of standard input or files. Empty lines are skipped and counted."""
    files = file or []
    if text is not None:
        check_text(text, files)
    defaults: dict[str, Any] = {"tag": tag, "keys": key or [], "order_key": order_key}
    defaults |= chosen_delay(delay_level, delay, deliver_at)
    Message(topic, b"-", **defaults)  # raises for an invalid argument, before the first line is read
    make = {Input.LINES: line_message, Input.JSON: json_message, Input.FILES: file_message}[form]
    began, empty = monotonic(), Empty()
    with ExitStack() as stack:
        lines = line_groups(stack, files) if text is None else iter([[text.encode()]])
        options: ProducerOptions = {**WAITING_SENDS, "max_message_size": max_message_size}
        producer = stack.enter_context(Producer(group, name_servers=name_server, **options))
        is_typed = text is None and sys.stdin.isatty() and (not files or Path("-") in files)
        if is_typed:
            output.STDERR.print("each line is a message; Ctrl-D ends")
        bar = stack.enter_context(output.progress(quiet=as_json or is_typed))
        task = bar.add_task(f"to {topic}", total=None)
        messages = message_groups(lines, make, topic, defaults, empty, max_message_size)
        sent = send_all(producer, topic, name_server, messages, lambda count: bar.update(task, completed=count))
    show_sent(topic, sent, empty.lines, monotonic() - began, as_json=as_json)


def check_text(text: str, files: list[Path]) -> None:
    """Checks that a text on the command line is meant as the message.

    Raises:
        CommandError: The text is empty or the name of a file, or files are given too.
    """
    if files:
        raise CommandError("TEXT and --file exclude each other", ExitCode.USAGE, "send the text with its own command")
    if not text:
        raise CommandError("TEXT must not be empty: a message has at least one byte", ExitCode.USAGE)
    if os.path.isfile(text):  # noqa: PTH113  # False for a text that is too long for a name
        hint = f"--file {shlex.quote(text)} sends its lines; to send the name itself, write it to standard input"
        raise CommandError(f"TEXT is the name of a file: {text}", ExitCode.USAGE, hint)


def chosen_delay(delay_level: int | None, delay: float | None, deliver_at: str | None) -> dict[str, Any]:
    """Returns the delay option that was given, with its value, as an argument of `Message`.

    Raises:
        CommandError: The time is in the past, or several options are given.
    """
    if deliver_at is not None and deliver_at.strip().startswith("-"):
        hint = "write 2026-01-31T12:00:00 (local time) or seconds since 1970; --delay counts from now"
        raise CommandError(f"delivery time is in the past: {deliver_at}", ExitCode.USAGE, hint)
    at = None if deliver_at is None else moment(deliver_at, "--deliver-at")
    later = {"delay_level": delay_level, "delay": delay, "deliver_at": at}
    given = {name: value for name, value in later.items() if value is not None}
    if len(given) > 1:
        hint = "keep one of them; without any, consumers get the messages immediately"
        raise CommandError("--delay-level, --delay and --deliver-at exclude each other", ExitCode.USAGE, hint)
    return given


def show_sent(topic: str, sent: int, empty_lines: int, seconds: float, *, as_json: bool) -> None:
    """Reports the number of sent messages: JSON on standard output, else a line on standard error."""
    if as_json:
        facts = {"topic": topic, "messages": sent, "empty_lines": empty_lines, "seconds": round(seconds, 3)}
        output.show_one(facts, as_json=True)
        return
    output.STDERR.print(f"{output.counted(sent, 'message')} to {topic} in {seconds:.2f} s", markup=False)
    if empty_lines:
        output.STDERR.print(
            f"skipped, because a message must not be empty: {output.counted(empty_lines, 'empty line')}"
        )


def send_all(
    producer: Producer, topic: str, name_server: str, groups: Iterable[list[Message]], tell: Callable[[int], None]
) -> int:
    """Sends messages; after a failure or Ctrl-C, reports the number of sent messages on standard error.

    Args:
        producer: Producer to send with.
        topic: Topic of all messages.
        name_server: Name servers that know the topic.
        groups: Messages to send together.
        tell: Callback that receives the number of messages sent so far.

    Returns:
        The number of messages.
    """
    sent = under_way = 0
    alone: Counter[str] = Counter()
    try:
        is_new = not exists(name_server, topic)
        for messages in groups:
            under_way = len(messages)
            receipts = producer.send_many(messages)
            alone.update(receipt.status.name for receipt in receipts if receipt.status is not SendStatus.SEND_OK)
            sent, under_way = sent + len(receipts), 0
            tell(sent)
            if is_new:
                is_new = False
                output.STDERR.print(f"topic {topic} did not exist: the first message created it", markup=False)
                if near := TopicNames(name_server_list(name_server), {}).near(topic):
                    output.STDERR.print(f"a topic of a similar name exists: {near}", markup=False)
    except RocketPyError:
        output.STDERR.print(f"{output.counted(sent, 'message')} sent before the error")
        raise
    except KeyboardInterrupt:
        more = f", and perhaps some of {under_way:,} more" if under_way else ""
        output.STDERR.print(f"{output.counted(sent, 'message')} sent{more}")
        raise
    finally:
        for status, count in alone.items():
            text = f"stored, but not confirmed as the master requires ({status}): {output.counted(count, 'message')}"
            output.STDERR.print(text, style="yellow", markup=False)
    return sent


def exists(name_server: str, topic: str) -> bool:
    """Checks whether a topic exists before anything is sent to it."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        try:
            return bool(admin.queues(topic))
        except TopicNotFoundError:
            return topic in admin.topics()  # it may be one that nobody may read


def line_groups(stack: ExitStack, paths: Iterable[Path]) -> Iterator[list[bytes]]:
    """Yields groups of lines without line ends: all available lines at a time, so a slow pipe is sent line by line."""
    sources = [INPUT if str(path) == "-" else stack.enter_context(path.open("rb")).fileno() for path in paths]
    for source in sources or [INPUT]:
        rest = b""
        while block := read_block(source):
            *lines, rest = (rest + block).split(b"\n")
            yield [line.removesuffix(b"\r") for line in lines]
        if rest:
            yield [rest.removesuffix(b"\r")]


def read_block(source: int) -> bytes:
    """Reads the available bytes of a descriptor, or waits for some.

    Raises:
        StreamError: The source is standard input, and cannot be read.
    """
    try:
        return os.read(source, READ_BYTES)
    except OSError as error:
        if source != INPUT:
            raise
        raise StreamError(INPUT, error) from error


def message_groups(
    groups: Iterable[list[bytes]],
    make: Callable[..., Message],
    topic: str,
    defaults: dict[str, Any],
    empty: Empty,
    limit_bytes: int,
) -> Iterator[list[Message]]:
    """Yields messages of the non-empty lines, with bodies of up to `limit_bytes`; counts the empty lines.

    Raises:
        CommandError: A line is not a valid message. The messages before it were yielded.
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
                message = make(topic, line, defaults)
                if len(message) > limit_bytes:
                    raise ValueError(f"the message body is too large ({len(message)} bytes, at most {limit_bytes})")
                messages.append(message)
            except (ValueError, TypeError, OSError, RecursionError) as error:  # the last of deeply nested JSON
                if messages:
                    yield messages
                raise CommandError(
                    f"line {number}: {error}",
                    ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else ExitCode.USAGE,
                    f"lines before {number} were sent; correct line {number} and continue there. For larger bodies, "
                    "raise --max-message-size and the broker's maxMessageSize",
                ) from error
            size_bytes += len(messages[-1])
            if size_bytes > SEND_BYTES:
                yield messages
                messages, size_bytes = [], 0
        if messages:
            yield messages


def line_message(topic: str, line: bytes, defaults: dict[str, Any]) -> Message:
    """Creates a message with the line as its body."""
    return Message(topic, line, **defaults)


def file_message(topic: str, line: bytes, defaults: dict[str, Any]) -> Message:
    """Creates a message whose body is the content of the file that the line names."""
    return Message(topic, Path(line.decode()).read_bytes(), **defaults)


def json_message(topic: str, line: bytes, defaults: dict[str, Any]) -> Message:
    """Creates a message from a JSON object with `body` or `body_base64` and further arguments of `Message`."""
    fields = json_object(json.loads(line, parse_constant=refuse_constant, parse_float=finite), "the line")
    body, encoded = fields.get("body"), fields.get("body_base64")
    if body is not None:
        content = encoded_text(body if isinstance(body, str) else json.dumps(body))
    elif isinstance(encoded, str):
        content = base64.b64decode(encoded, validate=True)
    else:
        raise ValueError('"body" and "body_base64" are both missing')
    given = {name: fields[name] for name in FIELDS & fields.keys() if fields[name]}
    properties = json_object(given.pop("properties", {}), '"properties"')
    is_again = not STORED_AGAIN.isdisjoint(properties)
    given["properties"] = {
        name: value
        for name, value in properties.items()
        if name not in RENEWED and not (is_again and is_reserved_property(name))
    }
    if LATER & given.keys():
        defaults = {name: value for name, value in defaults.items() if name not in LATER}
    return Message(topic, content, **(defaults | given))


def encoded_text(text: str) -> bytes:
    """Encodes the text of a body."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # JSON has them as escapes
        raise ValueError(f'"body" has a lone surrogate at character {error.start}') from None


def json_object(value: object, what: str) -> dict[str, Any]:
    """Checks that a value from JSON is an object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return cast("dict[str, Any]", value)

"""The options of a read: one typed value, made from the texts that Spark hands over."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketpy._rocketpy import tag_names
from rocketpy.errors import InvalidArgumentError
from rocketpy.instant import instant_ms
from rocketpy.instant import now_ms as clock_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_PARTITION_BYTES = 512 << 20
"""Every task costs about 30 ms. Once each core has a partition, smaller ones only slow a scan down."""


class OptionError(InvalidArgumentError):
    """An option is unknown, malformed, or contradicts another. A retry fails again."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggests the known name most like an unknown one.

    Args:
        name: The unknown name.
        known: All known names.

    Returns:
        A clause to append to an error, or an empty text.

    Examples:
        >>> nearest("tag", ["tags", "path"])
        ' (did you mean tags?)'
    """
    found = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {found[0]}?)" if found else ""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, from where, and how to partition it.

    Attributes:
        path: Store folder; or None when read from a cluster.
        name_servers: `host:port` of each name server; empty when read from a folder.
        commit_log_path: Folder of the store's log, when it is not in the store folder.
        topics: At least one topic.
        tags: Tags joined by `||`, or `*` for all messages.
        starting_time_ms: Messages stored at or after this, milliseconds since 1970.
        ending_time_ms: Messages stored before this, milliseconds since 1970.
        starting_offsets: First queue offset by (topic, broker name or "", queue id); queues not named start at
            their oldest message.
        ending_offsets: Queue offset after the last, by the same key; queues not named end where they end now.
        columns: Chosen columns, or None.
        min_partitions: Minimum number of partitions, if there is enough to read.
        max_partition_bytes: Target size of a partition, bytes in the log.
        fail_on_data_loss: Whether messages that are gone fail the read, or are left out, counted and logged.
        broker_name: Broker name to show for a store folder, which does not know its own.
        verify: Whether each record's checksum is compared; without it a damaged body is returned. Over the network it
            always is.
        max_body_bytes: Largest body when decompressed; None for 64 MiB, above 16 MiB at most a hundred times what was
            stored.
    """

    path: str | None
    name_servers: tuple[str, ...]
    topics: tuple[str, ...]
    tags: str = "*"
    starting_time_ms: int | None = None
    ending_time_ms: int | None = None
    starting_offsets: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    ending_offsets: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    min_partitions: int | None = None
    max_partition_bytes: int = DEFAULT_PARTITION_BYTES
    fail_on_data_loss: bool = True
    broker_name: str | None = None
    commit_log_path: str | None = None
    verify: bool = True
    max_body_bytes: int | None = None


OPTION_NAMES = (
    "path",
    "name_server",
    "name_servers",
    "topic",
    "topics",
    "tags",
    "starting_time",
    "ending_time",
    "starting_offsets",
    "ending_offsets",
    "columns",
    "min_partitions",
    "max_partition_bytes",
    "fail_on_data_loss",
    "broker_name",
    "commit_log_path",
    "verify",
    "max_body_bytes",
)
# Spark adds these by itself when a table was made with CREATE TABLE ... USING rocketpy.
_SPARKS_OWN = {"owner", "provider", "serialization.format"}


def parse_options(options: Mapping[str, str], *, now_ms: int | None = None) -> ReadOptions:
    """Reads the options of `spark.read.format("rocketpy")`.

    Every option is known as `starting_time` and as `startingTime`; case does not count.

    Args:
        options: Texts as Spark hands them over.
        now_ms: The time that relative times count from, milliseconds since 1970; default: now.

    Returns:
        The checked options.

    Raises:
        OptionError: An option is unknown, malformed, missing or contradictory.

    Examples:
        >>> read = parse_options({"path": "/data", "topic": "flights", "startingTime": "-10m"}, now_ms=1_000_000)
        >>> read.topics, read.starting_time_ms
        (('flights',), 400000)
    """
    given = _canonical(options)
    now = clock_ms() if now_ms is None else now_ms
    path, name_servers = _source(given)
    for name in ("broker_name", "commit_log_path", "verify"):
        if name in given and path is None:
            raise OptionError(f"{name} goes with the path of a store")
    topics = _topics(given)
    start, end = _times(given, now)
    columns = given.get("columns")
    return ReadOptions(
        path=path,
        name_servers=name_servers,
        topics=topics,
        tags=_tags(given),
        starting_time_ms=start,
        ending_time_ms=end,
        starting_offsets=_offsets(given, "starting_offsets", "earliest", -2, topics),
        ending_offsets=_offsets(given, "ending_offsets", "latest", -1, topics),
        columns=tuple(_names(columns)) if columns is not None else None,
        min_partitions=_count(given, "min_partitions"),
        max_partition_bytes=_size(given, "max_partition_bytes", DEFAULT_PARTITION_BYTES),
        fail_on_data_loss=_boolean(given, "fail_on_data_loss", default=True),
        broker_name=given.get("broker_name"),
        commit_log_path=given.get("commit_log_path"),
        verify=_boolean(given, "verify", default=True),
        max_body_bytes=_size(given, "max_body_bytes", 0) or None,
    )


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    by_plain_name = {name.replace("_", ""): name for name in OPTION_NAMES}
    given: dict[str, str] = {}
    for key, value in options.items():
        plain = key.lower().replace("_", "")
        if plain in _SPARKS_OWN or plain.startswith("option."):
            continue
        name = by_plain_name.get(plain)
        if name is None:
            raise OptionError(f"unknown option: {key}{nearest(key.lower(), OPTION_NAMES)}")
        given[name] = value
    return given


def _source(given: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
    _refuse_both(given, "name_server", "name_servers")
    addresses = given.get("name_server", given.get("name_servers"))
    path = given.get("path")
    if (path is None) == (addresses is None):
        raise OptionError("give either the path of a store or the name_server of a cluster")
    if addresses is None:
        return path, ()
    servers = tuple(part.strip() for part in re.split("[;,]", addresses) if part.strip())
    if not servers:
        raise OptionError("name_server is empty")
    return None, servers


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    _refuse_both(given, "topic", "topics")
    topics = tuple(dict.fromkeys(_names(given.get("topics", given.get("topic", "")))))
    if not topics:
        raise OptionError("no topic: give topic, or topics joined by commas")
    return topics


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _refuse_both(given: Mapping[str, str], one: str, other: str) -> None:
    if one in given and other in given:
        raise OptionError(f"give {one} or {other}, not both")


def _times(given: Mapping[str, str], now: int) -> tuple[int | None, int | None]:
    _refuse_both(given, "starting_time", "starting_offsets")
    _refuse_both(given, "ending_time", "ending_offsets")
    start, end = _time(given, "starting_time", now), _time(given, "ending_time", now)
    if start is not None and end is not None and end < start:
        raise OptionError(f"ending_time is before starting_time: {given['ending_time']}")
    return start, end


def _time(given: Mapping[str, str], name: str, now: int) -> int | None:
    text = given.get(name)
    try:
        return None if text is None else instant_ms(text, now=now)
    except InvalidArgumentError as error:
        raise OptionError(f"{name}: {error}", hint=error.hint) from None


def _offsets(
    given: Mapping[str, str], name: str, default: str, sentinel: int, topics: tuple[str, ...]
) -> dict[tuple[str, str, int], int]:
    text = given.get(name, default).strip()
    if text.lower() == default:
        return {}
    try:
        tree = json.loads(text)
    except json.JSONDecodeError:
        raise OptionError(f"{name} is neither {default} nor JSON: {text}") from None
    offsets = {key: offset for key, offset in _leaves(tree, name) if offset != sentinel}
    for (topic, _, _), offset in offsets.items():
        if topic not in topics:
            raise OptionError(f"{name} names a topic that is not read: {topic}")
        if offset < 0:
            raise OptionError(f"{name} takes {sentinel} for {default} and offsets from 0, not: {offset}")
    return offsets


def _leaves(tree: Any, name: str) -> Iterable[tuple[tuple[str, str, int], int]]:
    """Walks `{topic: {queue: offset}}` and `{topic: {broker: {queue: offset}}}`."""
    shape = OptionError(f'{name} must look like {{"topic": {{"broker-a": {{"0": 17}}}}}} (broker optional)')
    if not isinstance(tree, dict):
        raise shape
    for topic, below in tree.items():
        if not isinstance(below, dict):
            raise shape
        for key, value in below.items():
            queues = value if isinstance(value, dict) else {key: value}
            broker = key if isinstance(value, dict) else ""
            for queue, offset in queues.items():
                if not queue.isdecimal() or type(offset) is not int:
                    raise shape
                yield (topic, broker, int(queue)), offset


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or not 1 <= int(text) <= 100_000:
        raise OptionError(f"{name} must be a number from 1 to 100000, not: {text}")
    return int(text)


def _size(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    found = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", text.strip().lower())
    shift = {"": 0, "k": 10, "m": 20, "g": 30}
    size = int(found.group(1)) << shift[found.group(2)] if found else 0
    if not 1 << 10 <= size <= 1 << 40:
        raise OptionError(f"{name} must be a size from 1k to 1024g, such as 128m, not: {text}")
    return size


def _tags(given: Mapping[str, str]) -> str:
    tags = given.get("tags", "*").strip() or "*"
    try:
        tag_names(tags)
    except InvalidArgumentError as error:
        raise OptionError(str(error), hint=error.hint) from None
    return tags


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not: {text}")
    return text.strip().lower() == "true"

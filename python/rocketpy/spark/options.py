"""The options of a read: Spark passes texts, they become one typed value."""

from __future__ import annotations

import difflib
import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rocketpy._rocketpy import tag_names
from rocketpy.base.instant import instant_ms
from rocketpy.base.instant import now_ms as clock_ms
from rocketpy.config import CLIENT_DEFAULTS
from rocketpy.errors import InvalidArgumentError
from rocketpy.security import Credentials, Tls
from rocketpy.spark.aliases import ALIASES, IN_MILLISECONDS, refusal
from rocketpy.spark.patience import DEFAULT_RETRY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_PARTITION_BYTES = 512 << 20
"""Each task costs about 30 ms. Once each core has a partition, smaller ones only slow a scan down."""
DEFAULT_TRIGGER_BYTES = 512 << 20
"""Each batch of a stream costs about 0.3 s. A batch that is too large for the cluster is read again at each restart."""
EARLIEST, LATEST = -2, -1
"""Offsets that mean the ends of a queue, as in the options of Spark's Kafka source."""
MAX_DIGITS = 19
"""Maximum number of digits of a number: Python refuses to read thousands."""
MAX_QUEUE, MAX_LONG = 2**31 - 1, 2**63 - 1
SHOWN_CHARACTERS = 60
"""Maximum number of characters of a value that an error shows."""
DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}

QueueKey: TypeAlias = tuple[str, str, int]
"""Topic, broker name or "" for any, number of the queue."""
Kind: TypeAlias = Literal["batch", "stream"]
"""Kind of a read: batches and streams accept different options."""


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
    """Options of a read: its source, its messages and its partitions.

    Attributes:
        path: Store folder, absolute; or None when read from a cluster.
        name_servers: `host:port` of each name server; empty when read from a folder.
        commit_log_path: Folder of the store's log, when it is not in the store folder.
        topics: At least one topic, unless `topic_pattern` is given.
        topic_pattern: Regular expression for whole names of topics; system topics are excluded.
        assigned: The only queues to read, by (topic, broker name or "", queue id); None for all.
        tags: Tags joined by `||`, or `*` for all messages.
        starting_time_ms: Messages stored at or after this, milliseconds since 1970.
        ending_time_ms: Messages stored before this, milliseconds since 1970.
        starting_offsets: First queue offset by (topic, broker name or "", queue id), or `LATEST` in a stream; queues
            not named start at `default_start`.
        default_start: `EARLIEST` or, in a stream, `LATEST`.
        starting_group: Consumer group; each queue starts at its last commit, if any.
        starting_times_ms: First time by queue, by the same key, milliseconds since 1970.
        ending_times_ms: The same for the end.
        must_find_time: Whether a queue with no message at or after its starting time is an error; else it starts at
            its end.
        ending_offsets: Queue offset after the last, by the same key; queues not named end where they end now.
        columns: Chosen columns, or None.
        include_properties: Whether the default columns have the properties.
        min_partitions: Minimum number of partitions, if there is enough to read.
        max_partition_bytes: Target size of a partition, bytes in the log.
        max_records_per_partition: Maximum number of messages per partition; None for no limit. Over the network only.
        fail_on_data_loss: Whether lost messages fail the read; else they are left out, counted and logged.
        broker_name: Broker name to show for a store folder, which does not know its own.
        verify: Whether each record's checksum is compared; without it a damaged body is returned. Reads over the
            network always compare it.
        max_body_bytes: Maximum size of a decompressed body; None for 64 MiB, and above 16 MiB at most a hundred times
            the stored size.
        null_unreadable_bodies: Whether a body that does not decompress within the limit is null; else its message is
            damaged.
        retry_timeout: Time for which a read over the network, or a stream, is retried while no broker answers, seconds.
        client: Options of the clients, as `rocketpy.config.ClientOptions`.
        max_offsets_per_trigger: Maximum number of messages per batch of a stream; None for no limit.
        max_bytes_per_trigger: Approximate maximum number of bytes per batch of a stream.
        min_offsets_per_trigger: Minimum number of messages that a stream waits for before a batch; None for any.
        max_trigger_delay: Timeout for `min_offsets_per_trigger`, seconds.
        progress_group: Consumer group to which a stream commits its progress; None for none.
    """

    path: str | None
    name_servers: tuple[str, ...]
    topics: tuple[str, ...]
    tags: str = "*"
    starting_time_ms: int | None = None
    ending_time_ms: int | None = None
    starting_offsets: Mapping[QueueKey, int] = field(default_factory=dict)
    ending_offsets: Mapping[QueueKey, int] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    include_properties: bool = True
    min_partitions: int | None = None
    max_partition_bytes: int = DEFAULT_PARTITION_BYTES
    fail_on_data_loss: bool = True
    broker_name: str | None = None
    commit_log_path: str | None = None
    verify: bool = True
    max_body_bytes: int | None = None
    null_unreadable_bodies: bool = False
    default_start: int = EARLIEST
    starting_group: str | None = None
    topic_pattern: str | None = None
    assigned: frozenset[QueueKey] | None = None
    starting_times_ms: Mapping[QueueKey, int] = field(default_factory=dict)
    ending_times_ms: Mapping[QueueKey, int] = field(default_factory=dict)
    must_find_time: bool = False
    max_records_per_partition: int | None = None
    retry_timeout: float = DEFAULT_RETRY_SECONDS
    client: Mapping[str, Any] = field(default_factory=dict)
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int = DEFAULT_TRIGGER_BYTES
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    progress_group: str | None = None


SECURITY = ("access_key", "secret_key", "tls", "tls_ca", "tls_cert", "tls_key")
"""Options of reads and writes that name the user and the TLS of the clients."""
OPTION_NAMES = (
    "path",
    "name_server",
    "name_servers",
    "topic",
    "topics",
    "topic_pattern",
    "assign",
    "tags",
    "starting_time",
    "ending_time",
    "starting_offsets",
    "ending_offsets",
    "starting_offsets_by_timestamp",
    "ending_offsets_by_timestamp",
    "starting_offsets_by_timestamp_strategy",
    "columns",
    "include_properties",
    "min_partitions",
    "max_partition_bytes",
    "max_records_per_partition",
    "fail_on_data_loss",
    "broker_name",
    "commit_log_path",
    "verify",
    "max_body_bytes",
    "null_unreadable_bodies",
    "starting_group",
    "retry_timeout",
    "max_offsets_per_trigger",
    "max_bytes_per_trigger",
    "min_offsets_per_trigger",
    "max_trigger_delay",
    "progress_group",
    *SECURITY,
)
_OF_A_STORE = ("broker_name", "commit_log_path", "verify")
_OF_A_CLUSTER = (
    "starting_group",
    "starting_offsets_by_timestamp",
    "ending_offsets_by_timestamp",
    "starting_offsets_by_timestamp_strategy",
    "max_records_per_partition",
    *SECURITY,
)
_OF_A_BATCH = ("ending_time", "ending_offsets", "ending_offsets_by_timestamp")
_OF_A_STREAM = (
    "max_offsets_per_trigger",
    "max_bytes_per_trigger",
    "min_offsets_per_trigger",
    "max_trigger_delay",
    "progress_group",
)
_MAY_BE_EMPTY = ("tags", "starting_offsets", "ending_offsets")
"""Options whose empty text means the default."""
NO_GROUP = "a broker keeps the offsets of a group: read by name_server, or report the lag by a LagListener"
_CLIENT = "client."
CLIENT_NAMES = ("api_timeout", "connect_timeout", "client_ip", "unit_name")
"""Options of the clients that are passed on; by `instance_name` the clients of a worker share their connections."""
_OF_CLIENTS = {name: default for name, default in CLIENT_DEFAULTS.items() if name in CLIENT_NAMES}
SPARKS_OWN = {"owner", "provider", "serialization.format"}
"""Options that Spark adds by itself to a table created with CREATE TABLE ... USING rocketpy."""


def parse_options(options: Mapping[str, str], *, now_ms: int | None = None, kind: Kind | None = "batch") -> ReadOptions:
    """Reads the options of `spark.read.format("rocketpy")` and `spark.readStream.format("rocketpy")`.

    Every option is known as `starting_time` and as `startingTime`; case does not count.

    Args:
        options: Texts from Spark.
        now_ms: Time to which relative times refer, milliseconds since 1970; default: now.
        kind: Kind of the read; None to accept the options of both.

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
    _check_company(given, path, kind)
    topics, assigned = _topics(given)
    start, end = _times(given, now)
    default_start, starts = _offsets(given, "starting_offsets", kind, topics)
    _, ends = _offsets(given, "ending_offsets", kind, topics)
    if kind == "batch" and (default_start == LATEST or LATEST in starts.values()):
        raise OptionError("starting_offsets latest is only for streams, which wait for newer messages")
    return ReadOptions(
        path=path,
        name_servers=name_servers,
        topics=topics,
        topic_pattern=_pattern(given),
        assigned=assigned,
        starting_times_ms=_times_by_queue(given, "starting_offsets_by_timestamp", topics),
        ending_times_ms=_times_by_queue(given, "ending_offsets_by_timestamp", topics),
        must_find_time=_one_of(given, "starting_offsets_by_timestamp_strategy", ("latest", "error")) == "error",
        tags=_tags(given),
        starting_time_ms=start,
        ending_time_ms=end,
        starting_offsets=starts,
        ending_offsets=ends,
        columns=_columns(given),
        include_properties=boolean_of(given, "include_properties", default=True),
        max_records_per_partition=_count(given, "max_records_per_partition", most=1 << 60),
        min_partitions=_count(given, "min_partitions"),
        max_partition_bytes=_size(given, "max_partition_bytes", DEFAULT_PARTITION_BYTES),
        fail_on_data_loss=boolean_of(given, "fail_on_data_loss", default=True),
        broker_name=given.get("broker_name"),
        commit_log_path=_absolute(given.get("commit_log_path")),
        verify=boolean_of(given, "verify", default=True),
        max_body_bytes=_size(given, "max_body_bytes", 0) or None,
        null_unreadable_bodies=boolean_of(given, "null_unreadable_bodies", default=False),
        default_start=default_start,
        starting_group=given.get("starting_group"),
        retry_timeout=_duration(given, "retry_timeout", DEFAULT_RETRY_SECONDS),
        client=parse_client_options(options, _OF_CLIENTS) | security_of(given),
        max_offsets_per_trigger=_count(given, "max_offsets_per_trigger", most=1 << 60),
        max_bytes_per_trigger=_size(given, "max_bytes_per_trigger", DEFAULT_TRIGGER_BYTES),
        min_offsets_per_trigger=_count(given, "min_offsets_per_trigger", most=1 << 60),
        max_trigger_delay=_duration(given, "max_trigger_delay", 900.0),
        progress_group=given.get("progress_group"),
    )


def _check_company(given: Mapping[str, str], path: str | None, kind: Kind | None) -> None:
    """Rejects options that do not apply to the source or to the kind of read."""
    for names, is_wrong, company, hint in (
        (_OF_A_STORE, path is None, "the path of a store", None),
        (("progress_group",), path is not None, "the name_server of a cluster", NO_GROUP),
        (_OF_A_CLUSTER, path is not None, "the name_server of a cluster", None),
        (("retry_timeout",), path is not None and kind == "batch", "the name_server of a cluster, or a stream", None),
        (_OF_A_BATCH, kind == "stream", "spark.read: a stream has no end", None),
        (_OF_A_STREAM, kind == "batch", "spark.readStream", None),
    ):
        for name in names:
            if name in given and is_wrong:
                raise OptionError(f"{name} is valid only with {company}", hint=hint)


def parse_client_options(options: Mapping[str, str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the options of the clients: `client.api_timeout` or `client.apiTimeout`.

    Args:
        options: Texts from Spark; those without `client.` are ignored.
        defaults: Default of each possible option, by name. The default has the type of the option.

    Returns:
        Values for the clients.

    Raises:
        OptionError: An option is unknown, or a value is not of its type.

    Examples:
        >>> parse_client_options({"client.maxMessageSize": "1000", "topic": "a"}, {"max_message_size": 4 << 20})
        {'max_message_size': 1000}
    """
    known = {name.replace("_", ""): name for name in defaults}
    found: dict[str, Any] = {}
    for key, text in options.items():
        if not key.lower().startswith(_CLIENT):
            continue
        name = known.get(key.lower().removeprefix(_CLIENT).replace("_", ""))
        if name is None:
            raise OptionError(f"unknown option: {key}{nearest(key.lower(), [_CLIENT + name for name in defaults])}")
        default = defaults[name]
        if isinstance(default, bool):
            found[name] = boolean_of({key: text}, key, default=default)
        elif isinstance(default, int):
            found[name] = _count({key: text}, key, least=0, most=1 << 60)
        elif isinstance(default, float):
            found[name] = seconds_of(key, text)
        else:
            found[name] = None if text.strip().lower() == "none" else text
    return found


def security_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Returns the client options that `SECURITY` gives; none without them.

    Args:
        given: Texts by name. Paths of files become absolute.

    Raises:
        OptionError: Only one of user and secret is given, or files with `tls=false`.

    Examples:
        >>> security_of({"access_key": "spark", "secret_key": "secret of spark"})
        {'credentials': Credentials(access_key='spark')}
        >>> security_of({"tls": "true"}), security_of({"tls_ca": "/etc/ca.pem"})["tls"].ca_file
        ({'tls': True}, '/etc/ca.pem')
    """
    found: dict[str, Any] = {}
    names = [name for name in ("access_key", "secret_key") if name in given]
    if len(names) == 1:
        raise OptionError(f"{names[0]} is given without {'access_key' if names == ['secret_key'] else 'secret_key'}")
    if names:
        found["credentials"] = Credentials(given["access_key"], given["secret_key"])
    ca, cert, key = (_absolute(given.get(name)) for name in ("tls_ca", "tls_cert", "tls_key"))
    is_wanted = boolean_of(given, "tls", default=True)
    if (ca or cert or key) and not is_wanted:
        raise OptionError("tls=false is given with files of TLS", hint="leave out tls_ca, tls_cert and tls_key, or tls")
    if ca or cert or key:
        found["tls"] = Tls(ca, cert, key)
    elif "tls" in given:
        found["tls"] = is_wanted
    return found


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    by_plain_name = {name.replace("_", ""): name for name in OPTION_NAMES}
    aliases = {name.lower(): name for name in ALIASES}
    given: dict[str, str] = {}
    for key, value in options.items():
        plain = key.lower().replace("_", "")
        if plain in SPARKS_OWN or plain.startswith(("option.", _CLIENT)):
            continue
        alias = aliases.get(plain)
        name = by_plain_name.get(plain) if alias is None else ALIASES[alias]
        if name is None:
            why_not = refusal(key)
            if why_not is not None:
                raise OptionError(f"format rocketpy has no option {key}", hint=why_not)
            raise OptionError(f"unknown option: {key}{nearest(key.lower(), OPTION_NAMES)}")
        if name in given:
            raise OptionError(f"{name} is given twice: {key} is another name for it")
        if not value.strip() and name not in _MAY_BE_EMPTY:
            raise OptionError(f"{name} is empty", hint="give it a value, or leave the option out")
        given[name] = _seconds(key, value) if alias in IN_MILLISECONDS else value
    return given


def _seconds(key: str, value: str) -> str:
    number = whole(value)
    if number is None:
        raise OptionError(f"{key} must be milliseconds since 1970, not: {shortened(value)}")
    return str(number / 1000)


def _source(given: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
    _refuse_both(given, "name_server", "name_servers")
    addresses = given.get("name_server", given.get("name_servers"))
    path = given.get("path")
    if (path is None) == (addresses is None):
        raise OptionError("give either the path of a store or the name_server of a cluster")
    if addresses is None:
        return _absolute(path), ()
    servers = tuple(part.strip() for part in re.split("[;,]", addresses) if part.strip())
    if not servers:
        raise OptionError("name_server is empty")
    return None, servers


def _absolute(path: str | None) -> str | None:
    """Makes a path absolute: workers and the driver have different current folders."""
    return None if path is None else os.path.abspath(path)  # noqa: PTH100  # Path.resolve() would follow links


def _topics(given: Mapping[str, str]) -> tuple[tuple[str, ...], frozenset[QueueKey] | None]:
    ways = [name for name in ("topic", "topics", "topic_pattern", "assign") if name in given]
    if len(ways) > 1:
        raise OptionError(f"give {ways[0]} or {ways[1]}, not both")
    if ways == ["topic_pattern"]:
        return (), None
    if ways == ["assign"]:
        assigned = frozenset(_assigned(given["assign"]))
        return tuple(sorted({topic for topic, _, _ in assigned})), assigned
    topics = tuple(dict.fromkeys(_names(given.get("topics", given.get("topic", "")))))
    if not topics:
        raise OptionError("no topic: give topic, or topics joined by commas")
    return topics, None


def _pattern(given: Mapping[str, str]) -> str | None:
    pattern = given.get("topic_pattern")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise OptionError(f"topic_pattern is not a regular expression, {error}: {pattern}") from None
    return pattern


def _assigned(text: str) -> Iterable[QueueKey]:
    """Walks `{topic: [queue]}` and `{topic: {broker: [queue]}}`."""
    shape = OptionError('assign must look like {"topic": {"broker-a": [0, 1]}} (broker optional)')
    try:
        tree = parsed_json("assign", text)
    except OptionError:
        raise shape from None
    if not isinstance(tree, dict) or not tree:
        raise shape
    for topic, below in tree.items():
        for broker, queues in (below if isinstance(below, dict) else {"": below}).items():
            if not isinstance(queues, list) or not queues or not all(type(queue) is int for queue in queues):
                raise shape
            for queue in queues:
                _check_number("assign", "queue", queue, 0, MAX_QUEUE)
            yield from ((topic, broker, queue) for queue in queues)


def _times_by_queue(given: Mapping[str, str], name: str, topics: tuple[str, ...]) -> dict[QueueKey, int]:
    """Milliseconds since 1970, as in the options of Spark's Kafka source."""
    text = given.get(name)
    if text is None:
        return {}
    for other in ("time", "offsets"):
        _refuse_both(given, name, f"{name.partition('_')[0]}_{other}")
    times = dict(_leaves(parsed_json(name, text), name))
    for topic, _, _ in times:
        if topics and topic not in topics:
            raise OptionError(f"{name} names a topic that is not read: {topic}")
    return times


def _columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    if "columns" not in given:
        return None
    columns = tuple(_names(given["columns"]))
    if not columns:
        raise OptionError(f"columns names no column: {given['columns']}", hint='for example columns="topic,body"')
    return columns


def _one_of(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    word = given.get(name, words[0]).strip().lower()
    if word not in words:
        raise OptionError(f"{name} must be {' or '.join(words)}, not: {given[name]}")
    return word


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _refuse_both(given: Mapping[str, str], one: str, other: str) -> None:
    if one in given and other in given:
        raise OptionError(f"give {one} or {other}, not both")


def _times(given: Mapping[str, str], now: int) -> tuple[int | None, int | None]:
    _refuse_both(given, "starting_time", "starting_offsets")
    _refuse_both(given, "starting_time", "starting_group")
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
    given: Mapping[str, str], name: str, kind: Kind | None, topics: tuple[str, ...]
) -> tuple[int, dict[QueueKey, int]]:
    """The default of a bound, and the queues for which an option says something else."""
    is_start = name == "starting_offsets"
    words = {"earliest": EARLIEST, "latest": LATEST} if is_start else {"latest": LATEST}
    default = EARLIEST if is_start else LATEST
    text = given.get(name, "").strip()
    if not text or text.lower() in words:
        return words.get(text.lower(), default), {}
    try:
        tree = parsed_json(name, text)
    except OptionError:
        raise OptionError(f"{name} is neither {' nor '.join(words)} nor JSON: {shortened(text)}") from None
    offsets = {key: offset for key, offset in _leaves(tree, name) if offset != default}
    for (topic, _, _), offset in offsets.items():
        if topics and topic not in topics:
            raise OptionError(f"{name} names a topic that is not read: {topic}")
        if offset < 0 and not (is_start and offset == LATEST and kind != "batch"):
            word = next(word for word, sentinel in words.items() if sentinel == default)
            raise OptionError(f"{name} must be {default} for {word} or an offset from 0, not: {offset}")
    return default, offsets


def _leaves(tree: Any, name: str) -> Iterable[tuple[QueueKey, int]]:
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
                number = whole(queue)
                if number is None or type(offset) is not int:
                    raise shape
                _check_number(name, "queue", number, 0, MAX_QUEUE)
                _check_number(name, "number", offset, -MAX_LONG, MAX_LONG)
                yield (topic, broker, number), offset


def _check_number(name: str, what: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise OptionError(f"{name} has a {what} that is not from {least} to {most}: {shortened(str(number))}")


def _count(given: Mapping[str, str], name: str, *, least: int = 1, most: int = 100_000) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    number = whole(text)
    if number is None or not least <= number <= most:
        raise OptionError(f"{name} must be a number from {least} to {most}, not: {shortened(text)}")
    return number


def whole(text: str) -> int | None:
    """Reads a whole number of up to 19 digits; None for anything else.

    Examples:
        >>> whole(" 17 "), whole("-1"), whole("1" * 5000)
        (17, None, None)
    """
    digits = text.strip()
    return int(digits) if digits.isdecimal() and len(digits) <= MAX_DIGITS else None


def shortened(text: str) -> str:
    """Shortens a value for an error."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def parsed_json(name: str, text: str) -> Any:
    """Reads an option that is JSON.

    Raises:
        OptionError: The text is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # also of numbers with thousands of digits
        raise OptionError(f"{name} is not JSON: {shortened(text)}") from None


def seconds_of(name: str, text: str) -> float:
    """Reads a duration.

    Args:
        name: Name of the option.
        text: Number with the unit ms, s, m or h, or without one for seconds.

    Raises:
        OptionError: The text is not a duration.

    Examples:
        >>> [seconds_of("retry_timeout", text) for text in ("1.5", "500ms", "2m")]
        [1.5, 0.5, 120.0]
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*(ms|s|m|h|)", text.strip().lower())
    if not found:
        raise OptionError(f"{name} must be a duration such as 500ms, 30s or 15m, not: {shortened(text)}")
    return float(found[1]) * DURATION_UNITS[found[2]]


def _duration(given: Mapping[str, str], name: str, default: float) -> float:
    return seconds_of(name, given[name]) if name in given else default


def _size(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    found = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", text.strip().lower())
    shift = {"": 0, "k": 10, "m": 20, "g": 30}
    size = (whole(found.group(1)) or 0) << shift[found.group(2)] if found else 0
    if not 1 << 10 <= size <= 1 << 40:
        raise OptionError(f"{name} must be a size from 1k to 1024g, such as 128m, not: {shortened(text)}")
    return size


def _tags(given: Mapping[str, str]) -> str:
    tags = given.get("tags", "*").strip() or "*"
    try:
        tag_names(tags)
    except InvalidArgumentError as error:
        raise OptionError(str(error), hint=error.hint) from None
    return tags


def boolean_of(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Reads an option that is true or false.

    Args:
        given: Texts by name.
        name: Name of the option.
        default: Value if the option is not given.

    Raises:
        OptionError: The text is neither.
    """
    text = given.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not: {text}")
    return text.strip().lower() == "true"

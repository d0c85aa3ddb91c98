"""The options and columns of a write: Spark passes texts and a schema, they become one checked value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketpy.base.names import name_server_list
from rocketpy.config import CLIENT_DEFAULTS, PRODUCER_DEFAULTS
from rocketpy.spark.options import (
    OPTION_NAMES,
    SECURITY,
    SPARKS_OWN,
    OptionError,
    boolean_of,
    nearest,
    parse_client_options,
    seconds_of,
    security_of,
)
from rocketpy.spark.patience import DEFAULT_RETRY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.types import StructType

COLUMNS: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "tag": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "order_key": ("string",),
    "delay": ("double", "float", "int", "bigint"),
    "delay_level": ("int",),
    "deliver_at": ("timestamp",),
    "queue_id": ("int",),
    "broker_name": ("string",),
}
"""The columns of a sink, and the Spark types that each may have."""

FIXED = ("topic", "tag", "keys", "order_key", "delay")
"""Columns that an option of the same name can give for all rows."""

PROGRESS_TOPIC = "rocketpy-spark-sink"
DECISION_TOPIC = "rocketpy-spark-sink-once"
"""Default of `progress_topic` with `exactly_once`: a topic of one queue, which the user creates."""
_LATER = ("delay", "delay_level", "deliver_at")
SEND_TIMEOUT_SECONDS = 15.0
"""Exceeds the client's own timeout: a send with unknown outcome costs a read of stored messages."""

_OWN = (
    "name_server",
    "name_servers",
    "producer_group",
    "progress_topic",
    "write_id",
    "retry_timeout",
    "exactly_once",
    "drop_reserved_properties",
    *SECURITY,
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of a write: its target, and the values for all rows.

    Attributes:
        name_servers: `host:port` of each name server.
        fixed: Value for all rows by column name, of those in `FIXED`.
        producer_group: Name of the producer group.
        progress_topic: Topic of the records by which a repeated batch finds rows sent before; None for none.
        write_id: Id of a batch write: a repeated write with this id sends only the missing rows. None: a new id.
        exactly_once: Whether rows are half messages that the driver commits after it recorded its decision.
        drops_reserved: Whether reserved properties of rows that were read are dropped; tag, keys and order key among
            them become those of the new message.
        retry_seconds: Timeout for retries of a task while brokers are unreachable, in seconds.
        client: Options of the producer.
    """

    name_servers: tuple[str, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    producer_group: str = "rocketpy-spark"
    progress_topic: str | None = PROGRESS_TOPIC
    write_id: str | None = None
    exactly_once: bool = False
    drops_reserved: bool = False
    retry_seconds: float = DEFAULT_RETRY_SECONDS
    client: Mapping[str, Any] = field(default_factory=dict)

    @property
    def any_client(self) -> dict[str, Any]:
        """The options of `client` that every client takes."""
        return {name: value for name, value in self.client.items() if name in CLIENT_DEFAULTS}


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Reads the options of `df.write.format("rocketpy")` and of `writeStream`.

    Args:
        options: Texts from Spark.

    Returns:
        The checked options.

    Raises:
        OptionError: An option is unknown, malformed, missing or contradictory.

    Examples:
        >>> sink = parse_sink_options({"nameServer": "a:9876;b:9876", "topic": "flights", "client.sendTimeout": "3"})
        >>> sink.name_servers, dict(sink.fixed), sink.client["send_timeout"]
        (('a:9876', 'b:9876'), {'topic': 'flights'}, 3.0)
    """
    given = _canonical(options)
    if "name_server" in given and "name_servers" in given:
        raise OptionError("give name_server or name_servers, not both")
    servers = tuple(name_server_list(given.get("name_server", given.get("name_servers", ""))))
    if not servers:
        raise OptionError("no name_server: give host:port of the cluster to write to")
    fixed: dict[str, Any] = {name: given[name] for name in FIXED if name in given}
    if "delay" in fixed:
        fixed["delay"] = seconds_of("delay", fixed["delay"])
    exactly_once = boolean_of(given, "exactly_once", default=False)
    progress = given.get("progress_topic", DECISION_TOPIC if exactly_once else PROGRESS_TOPIC).strip()
    if exactly_once and not progress:
        raise OptionError("exactly_once needs a progress_topic for its decisions")
    write_id = given.get("write_id")
    if write_id is not None:
        if not re.fullmatch(r"[\w.:-]{1,100}", write_id, re.ASCII):
            raise OptionError(f"write_id must be 1 to 100 of a-z A-Z 0-9 _ . : -, not: {write_id}")
        if not progress:
            raise OptionError("write_id needs a progress_topic")
    defaults: dict[str, Any] = {"send_timeout": SEND_TIMEOUT_SECONDS}
    return SinkOptions(
        name_servers=servers,
        fixed=fixed,
        producer_group=given.get("producer_group", "rocketpy-spark"),
        progress_topic=progress or None,
        write_id=write_id,
        exactly_once=exactly_once,
        drops_reserved=boolean_of(given, "drop_reserved_properties", default=False),
        retry_seconds=seconds_of("retry_timeout", given.get("retry_timeout", str(DEFAULT_RETRY_SECONDS))),
        client=defaults | _client(options) | security_of(given),
    )


def check_schema(schema: StructType, options: SinkOptions) -> tuple[str, ...]:
    """Checks the columns of a write.

    Args:
        schema: Schema of the rows.
        options: Options of the write.

    Returns:
        The column names.

    Raises:
        OptionError: A column is unknown, of a wrong type, duplicate, missing, or given by an option as well.
    """
    names = tuple(schema.fieldNames())
    for one in schema.fields:
        if one.name not in COLUMNS:
            raise OptionError(
                f"unknown column: {one.name}{nearest(one.name, COLUMNS)}",
                hint=f"a sink writes {', '.join(COLUMNS)}; select them, or put other columns into properties",
            )
        kind = one.dataType.simpleString()
        if kind not in COLUMNS[one.name]:
            raise OptionError(f"column {one.name} must be {' or '.join(COLUMNS[one.name])}, not {kind}")
        if one.name in options.fixed:
            raise OptionError(f"{one.name} is both a column and an option: remove one of them")
    if len(set(names)) != len(names):
        raise OptionError(f"two columns have the same name: {', '.join(names)}")
    if "body" not in names:
        raise OptionError("column body is missing")
    if "topic" not in names and "topic" not in options.fixed:
        raise OptionError("topic is missing: add a column or an option named topic")
    if "broker_name" in names and "queue_id" not in names:
        raise OptionError("broker_name is valid only with queue_id")
    later = later_column(names, options)
    if options.exactly_once and later is not None:
        raise OptionError(
            f"{later} is not supported with exactly_once",
            hint="a repeated batch cannot find rows with a later delivery time",
        )
    return names


def later_column(names: Iterable[str], options: SinkOptions) -> str | None:
    """Returns the first column or option that delays rows.

    Args:
        names: Names of the columns.
        options: Options of the write.
    """
    given = {*names, *options.fixed}
    return next((name for name in _LATER if name in given), None)


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    """The options of the sink itself, by their names here."""
    known = {name.replace("_", ""): name for name in (*FIXED, *_OWN)}
    reading = {name.replace("_", "") for name in OPTION_NAMES}
    given: dict[str, str] = {}
    for key, value in options.items():
        plain = key.lower().replace("_", "")
        if plain in SPARKS_OWN | {"checkpointlocation", "queryname"} or plain.startswith(("option.", "client.")):
            continue
        if plain in known:
            given[known[plain]] = value
        elif plain == "path":
            raise OptionError("a sink writes to brokers: give name_server, not path")
        elif plain in reading:
            raise OptionError(f"{key} is an option of reading")
        else:
            raise OptionError(f"unknown option: {key}{nearest(key.lower(), (*FIXED, *_OWN))}")
    return given


def _client(options: Mapping[str, str]) -> dict[str, Any]:
    client = parse_client_options(options, PRODUCER_DEFAULTS)
    if "retries" in client:
        raise OptionError("client.retries cannot be set: the sink resends by itself until retry_timeout")
    return client

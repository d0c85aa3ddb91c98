"""Converts rows to messages, in a worker."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketpy._rocketpy import is_reserved_property, split_keys
from rocketpy.base.instant import datetime_of
from rocketpy.errors import InvalidArgumentError, RocketPyError
from rocketpy.message import Message
from rocketpy.producing.copies import copy_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import pyarrow as pa

ROW_PROPERTY = "ROCKETPY_ROW"
"""Property of every message of a sink: write, batch, partition and digest of its row, joined by `/`."""


ORDER_KEY = "__SHARDINGKEY"
OWN = (ROW_PROPERTY, ORDER_KEY)
"""Properties that a new message gets again."""
READ_BEFORE = (
    'rows that were read have the properties of the system: drop them with .option("dropReservedProperties", "true")'
)


class WriteError(RocketPyError):
    """A row cannot be written; the text names the row. Rows before it may be stored.

    A retry of the job may help if `retryable`; a stream that is started again skips the rows that are stored.
    """


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a task: one partition of one batch of one write."""

    write: str
    """Id of the streaming query, or of the batch write."""
    batch: int
    partition: int

    @property
    def prefix(self) -> str:
        """Prefix of the row ids of this place.

        Examples:
            >>> Place("q", 7, 0).prefix
            'q/7/0/'
        """
        return f"{self.write}/{self.batch}/{self.partition}/"

    def row(self, index: int) -> str:
        """Names a row in an error; the first is row 0."""
        return f"row {index} of partition {self.partition}, batch {self.batch} of write {self.write}"


class Row(NamedTuple):
    """Message of a row."""

    number: int
    """Index of the row in the partition, from 0."""
    message: Message
    queue: tuple[str | None, int] | None
    """Broker name, if given, and queue id."""
    row_id: str | None
    """Value of the message's `ROW_PROPERTY`."""


ORDER = ("topic", "tag", "keys", "order_key", "delay", "delay_level", "deliver_at", "broker_name", "queue_id")
"""Columns in addition to body and properties, in the order of `RowMaker`."""


class RowMaker:
    """Converts the rows of one partition to messages.

    A row's id consists of the row's content and the number of earlier equal rows in the partition. So it is the
    same when the batch is repeated, even if a shuffle hands the rows over in another order.
    """

    def __init__(self, place: Place, fixed: Mapping[str, Any], *, with_ids: bool, drops_reserved: bool = False) -> None:
        self._place = place
        self._prefix = place.prefix
        self._fixed = fixed
        self._with_ids = with_ids
        self._drops_reserved = drops_reserved
        self._seen: dict[str, int] = {}
        self._next = 0

    def rows(self, batch: pa.RecordBatch) -> list[Row]:
        """Creates the messages of a batch.

        Args:
            batch: Batch with checked columns.

        Returns:
            A message for each row.

        Raises:
            WriteError: A row breaks a rule of messages.
        """
        given = set(batch.schema.names)
        columns = [self._values(batch, name) if name in given else repeat(self._fixed.get(name)) for name in ORDER]
        maps = self._values(batch, "properties") if "properties" in given else repeat(None)
        rows = zip(self._values(batch, "body"), maps, *columns, strict=False)  # what `repeat` gives has no end
        made: list[Row] = []
        add, first = made.append, self._next
        properties: dict[str, str] | None = None
        # The loop is most of what a write costs in Python: it makes no object that it does not need.
        try:
            for index, (body, pairs, *fields) in enumerate(rows, first):
                if body is None:
                    raise ValueError("its body is null")
                content: bytes = body.encode() if body.__class__ is str else body
                topic, tag, keys, order_key, delay, level, at, broker_name, queue_id = fields
                if topic is None:
                    raise ValueError("its topic is null")
                properties = dict(pairs) if pairs else None  # Arrow has maps as lists of pairs
                copied: dict[str, str] | None = None
                if properties and self._drops_reserved:
                    copied = copied_names(properties, tag, keys, order_key)
                    tag, keys, order_key = taken_over(properties, tag, keys, order_key)
                row_id = None
                if self._with_ids:
                    row_id = self._id(content, fields, sorted(properties.items()) if properties else None)
                    properties = properties or {}
                    properties[ROW_PROPERTY] = row_id
                if copied is not None and level is None and at is None and delay is None:
                    message = copy_of(topic, content, 0, {**(properties or {}), **copied}, defaults={})
                else:
                    message = Message(
                        topic,
                        content,
                        tag=tag,
                        keys=split_keys(keys) if keys.__class__ is str else keys,
                        order_key=order_key,
                        properties=properties,
                        delay_level=level,
                        deliver_at=None if at is None else delivery_time(at),
                        delay=delay,
                    )
                add(Row(index, message, None if queue_id is None else (broker_name, queue_id), row_id))
        except (RocketPyError, TypeError, ValueError) as error:
            hint = error.hint if isinstance(error, RocketPyError) else None
            if any(is_reserved_property(name) for name in properties or ()):
                hint = READ_BEFORE
            raise WriteError(f"{self._place.row(first + len(made))}: {error}", hint=hint) from error
        self._next += len(made)
        return made

    def _values(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        column = batch.column(name)
        if name == "deliver_at":
            return seconds_of_times(column)  # Python has no years after 9999
        try:
            values: list[Any] = column.to_pylist()
        except ValueError:  # text that is not UTF-8
            for index, value in enumerate(column):
                try:
                    value.as_py()
                except ValueError as error:
                    raise WriteError(f"{self._place.row(self._next + index)}: column {name}: {error}") from error
            raise
        return values

    def _id(self, body: bytes, fields: list[Any], properties: list[tuple[str, str]] | None) -> str:
        # repr shows no zero byte: where the fields end and the body begins is unambiguous.
        digest = blake2b(f"{fields!r}{properties!r}\0".encode(), digest_size=10)
        digest.update(body)
        row_id = self._prefix + digest.hexdigest()
        earlier = self._seen.get(row_id, 0)
        self._seen[row_id] = earlier + 1
        return f"{row_id}.{earlier}" if earlier else row_id


def copied_names(
    properties: Mapping[str, str], tag: str | None, keys: Any, order_key: str | None
) -> dict[str, str] | None:
    """Returns the stored tag, keys and order key of a row that was read; None where a column or option changes one.

    Rules of new messages do not apply to such a row: a foreign producer may have stored a tag that `Message` rejects.

    Args:
        properties: Properties of the row. Those of a row that was read have reserved names.
        tag: Tag of the row; None for that of the properties.
        keys: Keys of the row; None for those of the properties.
        order_key: Order key of the row; None for that of the properties.

    Examples:
        >>> copied_names({"TAGS": " x ", "KEYS": "k"}, None, "k", None)
        {'TAGS': ' x ', 'KEYS': 'k'}
        >>> copied_names({"TAGS": " x "}, "y", None, None), copied_names({"color": "red"}, None, None, None)
        (None, None)
    """
    given = (("TAGS", tag), ("KEYS", keys), (ORDER_KEY, order_key))
    if any(value is not None and value != properties.get(name) for name, value in given):
        return None
    if not any(is_reserved_property(name) for name in properties):
        return None
    return {name: properties[name] for name, _ in given if name in properties}


def taken_over(
    properties: dict[str, str], tag: str | None, keys: Any, order_key: str | None
) -> tuple[str | None, Any, str | None]:
    """Drops the reserved properties of a row that was read.

    Args:
        properties: Properties of the row; those of users stay.
        tag: Tag of the row; None for that of the properties.
        keys: Keys of the row; None for those of the properties.
        order_key: Order key of the row; None for that of the properties.

    Returns:
        Tag, keys and order key of the new message.

    Examples:
        >>> row = {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "7F", "color": "red"}
        >>> taken_over(row, None, None, None), row
        (('a', 'k1 k2', None), {'color': 'red'})
    """
    taken = tuple(
        properties.get(name) if given is None else given
        for name, given in (("TAGS", tag), ("KEYS", keys), (ORDER_KEY, order_key))
    )
    for name in [name for name in properties if name in OWN or is_reserved_property(name)]:
        del properties[name]
    tag, keys, order_key = taken
    return tag, keys, order_key


def seconds_of_times(column: pa.Array) -> list[float | None]:
    """Converts timestamps to seconds since 1970; a datetime would end with the year 9999."""
    import pyarrow as pa

    micros: list[int | None] = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if one is None else one / 1_000_000 for one in micros]


def delivery_time(seconds: float) -> datetime:
    """Converts a value of a timestamp column, which never counts milliseconds or an age.

    Args:
        seconds: Seconds since 1970.

    Raises:
        InvalidArgumentError: The time is before 1970 or not before 9999-12-31.
    """
    at = datetime_of(round(seconds * 1000))
    if at is None:
        micros = round(seconds * 1_000_000)  # a number: texts of pyarrow are false after the year 32767
        raise InvalidArgumentError(
            f"deliver_at must be from 1970-01-01 and before 9999-12-31, microseconds since 1970: {micros}"
        )
    return at

"""Makes messages of rows, in a worker."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketpy.errors import RocketPyError
from rocketpy.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

ROW_PROPERTY = "ROCKETPY_ROW"
"""Property of every message of a sink: write, batch, partition and digest of its row, joined by `/`."""


class WriteError(RocketPyError):
    """A row cannot be written; the text says which. Rows before it may be stored.

    A retry of the job may help if `retryable`; a stream that is started again skips the rows that are stored.
    """


@dataclass(frozen=True, slots=True)
class Place:
    """What a task writes: one partition of one batch of one write."""

    write: str
    """Id of the streaming query, or of the batch write."""
    batch: int
    partition: int

    @property
    def prefix(self) -> str:
        """What the row ids of this place begin with.

        Examples:
            >>> Place("q", 7, 0).prefix
            'q/7/0/'
        """
        return f"{self.write}/{self.batch}/{self.partition}/"

    def row(self, index: int) -> str:
        """A row for people: the first is row 0."""
        return f"row {index} of partition {self.partition}, batch {self.batch} of write {self.write}"


@dataclass(frozen=True, slots=True)
class Row:
    """A row as a message."""

    index: int
    """Its place in the partition, from 0."""
    message: Message
    queue: tuple[str | None, int] | None
    """Broker name, if given, and queue id."""
    row_id: str | None
    """Value of its `ROW_PROPERTY`."""


class RowMaker:
    """Makes messages of the rows of one partition.

    A row's id is made of what the row says, and of how many equal rows came before it in the partition. So it is the
    same when the batch is repeated, even if a shuffle hands the rows over in another order.
    """

    def __init__(self, place: Place, fixed: Mapping[str, Any], *, with_ids: bool) -> None:
        self._place = place
        self._fixed = fixed
        self._with_ids = with_ids
        self._seen: Counter[bytes] = Counter()
        self._next = 0

    def rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """Makes the messages of a batch.

        Args:
            batch: With checked columns.

        Yields:
            One for each row.

        Raises:
            WriteError: A row breaks a rule of messages.
        """
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        bodies = columns.pop("body")
        names = list(columns)
        rows = zip(*columns.values(), strict=True) if names else iter([()] * len(bodies))
        for body, values in zip(bodies, rows, strict=True):
            index, self._next = self._next, self._next + 1
            fields = {name: value for name, value in zip(names, values, strict=True) if value is not None}
            try:
                yield self._row(index, body, {**self._fixed, **fields})
            except (RocketPyError, TypeError, ValueError) as error:
                raise WriteError(f"{self._place.row(index)}: {error}") from error

    def _row(self, index: int, body: bytes | str | None, fields: dict[str, Any]) -> Row:
        if body is None:
            raise ValueError("its body is null")
        if "topic" not in fields:
            raise ValueError("its topic is null")
        content = body.encode() if isinstance(body, str) else body
        properties = dict(fields.pop("properties", ()))  # Arrow gives a map as a list of pairs
        if None in properties.values():
            raise ValueError("a value of its properties is null")
        queue_id, broker_name = fields.pop("queue_id", None), fields.pop("broker_name", None)
        row_id = None
        if self._with_ids:
            row_id = self._id(content, (sorted(fields.items()), sorted(properties.items()), queue_id, broker_name))
            properties[ROW_PROPERTY] = row_id
        message = Message(fields.pop("topic"), content, properties=properties or None, **_named(fields))
        return Row(index, message, None if queue_id is None else (broker_name, queue_id), row_id)

    def _id(self, body: bytes, others: object) -> str:
        # repr shows no zero byte: where the fields end and the body begins is unambiguous.
        digest = hashlib.blake2b(f"{others!r}\0".encode(), digest_size=12)
        digest.update(body)
        content = digest.digest()
        earlier = self._seen[content]
        self._seen[content] += 1
        text = base64.urlsafe_b64encode(content).decode()
        return f"{self._place.prefix}{text}.{earlier}" if earlier else f"{self._place.prefix}{text}"


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields as arguments of `Message`."""
    keys = fields.get("keys")
    if isinstance(keys, str):
        fields["keys"] = keys.split()
    return fields

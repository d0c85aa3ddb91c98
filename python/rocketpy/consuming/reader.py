"""Reading a part of a queue from its broker, outside any consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy import _rocketpy
from rocketpy.base.lifetime import Closing
from rocketpy.base.names import column_list, grouping_lists, name_server_list
from rocketpy.base.options import takes_options
from rocketpy.config import CLIENT_DEFAULTS, ClientOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Unpack

    from rocketpy._rocketpy import ArrowBatch, ReceivedMessage
    from rocketpy.config import Tags
    from rocketpy.message import MessageQueue

__all__ = ["RangeReader"]


@takes_options(ClientOptions, CLIENT_DEFAULTS)
class RangeReader(Closing):
    """Reads queue offsets from `start` up to, not including, `end` of one queue into Arrow record batches.

    No group is joined and no offset is stored: reading twice gives the same rows. Iterate over it, and close it.

    Args:
        queue: The queue, as `Admin.queues` gives it.
        start: First queue offset.
        end: Queue offset to stop before.
        tags: `*` for all, `"UA || AA"` or `["UA", "AA"]`; filtered in the broker. See `rocketpy.config.Tags`.
        columns: Names of columns, in the order wanted. Default: `topic, queue_id, queue_offset, broker_name, tag, keys,
            body, properties, born_at, stored_at, msg_id, reconsume_times`.
        groupings: Add messages up by each of these choices of groups in place of rows; see `StoreReader.scan`.
        batch_rows: Maximum rows in a batch, or messages that are added up in it.
        batch_bytes: Bytes of bodies and properties after which a batch is full; 512 MiB at most.
        max_body_bytes: Largest body when decompressed. Default: 64 MiB, above 16 MiB at most a hundred times what
            was stored.
        name_servers: `host:port` of each name server, as a list or as one text; default: the variable `NAMESRV_ADDR`.
        options: Those of `rocketpy.config.ClientOptions`, by keyword.

    Raises:
        InvalidArgumentError: The range ends before it starts.
        TopicNotFoundError: The topic does not exist. While reading, `OffsetError`: a part of the range is not there.

    Examples:
        >>> import rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> with server.producer("ingest") as producer:
        ...     receipt = producer.send(rocketpy.Message("reader-doc", b"text"))
        >>> with rocketpy.RangeReader(receipt.queue, 0, 1, name_servers=server.name_server) as reader:
        ...     [batch.num_rows for batch in reader]
        [1]
    """

    __slots__ = ("_gaps", "_native", "_next_offset", "_queue")

    def __init__(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        tags: Tags = "*",
        columns: Iterable[str] | None = None,
        groupings: Iterable[Iterable[str]] = (),
        batch_rows: int = 8192,
        batch_bytes: int = 1 << 20,
        max_body_bytes: int | None = None,
        name_servers: Iterable[str] | str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__()
        self._queue = queue
        self._next_offset = start
        self._gaps: list[tuple[int, int]] = []
        self._native = _rocketpy.RangeReader(
            name_server_list(name_servers),
            queue,
            start,
            end,
            tags,
            column_list(columns),
            grouping_lists(groupings),
            batch_rows,
            batch_bytes,
            max_body_bytes,
            **options,
        )
        self._opened()

    @property
    def queue(self) -> MessageQueue:
        """The queue."""
        return self._queue

    @property
    def next_offset(self) -> int:
        """Queue offset after the last message of the batches so far."""
        return self._next_offset

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Starts and ends of the queue offsets that the last batch passed over: their messages are gone.

        Empty with tags. What is gone at the end of the range lies between `next_offset` and that end.
        """
        return self._gaps

    def __iter__(self) -> RangeReader:
        return self

    def __next__(self) -> ArrowBatch:
        if not self._closed:
            step = self._native.next_batch()
            if step is not None:
                batch, self._next_offset, self._gaps = step
                return batch
        raise StopIteration

    def messages(self) -> Iterator[list[ReceivedMessage]]:
        """Yields the range as message objects, without an Arrow library.

        Yields:
            The messages of one answer of the broker, in the order of the queue.
        """
        while not self._closed:
            messages = self._native.next_messages()
            if messages is None:
                return
            yield messages

    def _close(self) -> None:
        self._native.close()

    def __repr__(self) -> str:
        return f"<RangeReader{' (closed)' if self.closed else ''} of {self._queue}>"

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
    """Reads messages of one queue, from offset `start` up to but not including `end`, as Arrow record batches.

    The reader joins no group and stores no offset: reading twice returns the same rows. Iterate over it, and close it.

    Args:
        queue: The queue, as returned by `Admin.queues`.
        start: First queue offset.
        end: Queue offset after the last message to read.
        tags: Tags to read: `*` for all, `"UA || AA"` or `["UA", "AA"]`; the broker filters. See `rocketpy.config.Tags`.
        columns: Names of columns, in the wanted order. Default: `topic, queue_id, queue_offset, broker_name, tag, keys,
            body, properties, born_at, stored_at, msg_id, reconsume_times`.
        groupings: Choices of groups by which messages are summed up, in place of rows; see `StoreReader.scan`.
        batch_rows: Maximum number of rows in a batch, or of messages summed up in it.
        batch_bytes: Size of bodies and properties, in bytes, at which a batch is full; at most 512 MiB.
        max_body_bytes: Maximum size of a decompressed body in bytes. Default: 64 MiB, and above 16 MiB at most 100
            times the stored size.
        null_unreadable_bodies: Whether a body that does not decompress within the limit is null in a batch; otherwise
            it is an error.
        name_servers: `host:port` of each name server, as a list or as one text; default: the environment variable
            `NAMESRV_ADDR`.
        options: Keyword options, declared in `rocketpy.config.ClientOptions`.

    Raises:
        InvalidArgumentError: The range ends before it starts.
        TopicNotFoundError: The topic does not exist. While reading, `OffsetError`: a part of the range does not exist.

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
        null_unreadable_bodies: bool = False,
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
            null_unreadable_bodies,
            **options,
        )
        self._opened()

    @property
    def queue(self) -> MessageQueue:
        """The queue."""
        return self._queue

    @property
    def next_offset(self) -> int:
        """Queue offset after the last message of all batches so far."""
        return self._next_offset

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of queue offsets that the last batch skipped, because their messages are gone.

        Empty with tags. A gap at the end of the range starts at `next_offset` and is not listed.
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
        """Yields the messages of the range as objects, without an Arrow library.

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

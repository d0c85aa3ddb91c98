"""Sending messages from an event loop: the twin of `Producer`, by name and meaning."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from rocketpy import _rocketpy
from rocketpy.aio.loop import AsyncClosing, later
from rocketpy.base.hints import hinted
from rocketpy.base.misuse import one_message
from rocketpy.base.names import check_type, name_server_list
from rocketpy.base.options import check_options, lists_options
from rocketpy.base.topic_names import TopicNames
from rocketpy.config import (
    PRODUCER_DEFAULTS,
    ProducerOptions,
)
from rocketpy.errors import PartlySentError, RefusedError, TopicNotFoundError
from rocketpy.message import Message
from rocketpy.producing.producer import ILLEGAL_OPERATION, RECALL_HINT, recall_handle
from rocketpy.producing.receipts import Receipts
from rocketpy.producing.selector import chosen, split

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Never, Unpack

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.config import Duration
    from rocketpy.message import MessageQueue, Receipt
    from rocketpy.producing.selector import Select
    from rocketpy.stats import ProducerStats

__all__ = ["AsyncProducer"]


class AsyncProducer(AsyncClosing):
    """`Producer` for asyncio. Concurrent sends share requests, as those of `Producer.submit` do.

    Args:
        group: Name of the producer group.
        name_servers: `host:port` of each name server, as a list or as one text; default: the environment variable
            `NAMESRV_ADDR`.
        options: As for `rocketpy.Producer`. Limits of numbers are checked at the start.

    Examples:
        >>> import asyncio, rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> async def main():
        ...     async with rocketpy.AsyncProducer("app", name_servers=server.name_server) as producer:
        ...         messages = [rocketpy.Message("aio-doc", b"%d" % n) for n in range(1000)]
        ...         receipts = await asyncio.gather(*(producer.send(message) for message in messages))
        ...     return len(receipts)
        >>> asyncio.run(main())
        1000
    """

    __slots__ = ("_group", "_name_servers", "_names", "_options", "_select")

    @lists_options(ProducerOptions, PRODUCER_DEFAULTS)
    def __init__(
        self, group: str, *, name_servers: Iterable[str] | str | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__()
        check_type("group", group, str, "a str")
        self._group = group
        self._select, self._options = split(options)
        check_options(partial(_rocketpy.Producer, group, []), self._options)
        self._name_servers = name_server_list(name_servers)
        self._names = TopicNames(self._name_servers, self._options)

    async def _open(self, arrivals: _rocketpy.Arrivals) -> object:
        return _rocketpy.Producer(self._group, self._name_servers, arrivals, **self._options)

    @property
    def group(self) -> str:
        """Name of the producer group."""
        return self._group

    @property
    def client_id(self) -> str:
        """Id of this producer at brokers, once it was started."""
        return self._native().client_id

    @property
    def dropped_traces(self) -> int:
        """Number of trace records dropped because of a full buffer, or because no broker accepted them."""
        return self._native().dropped_traces

    def _native(self) -> _rocketpy.Producer:
        native: _rocketpy.Producer = self._checked()
        return native

    async def send(
        self,
        message: Message,
        *_rest: Never,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
        **_other: Never,
    ) -> Receipt:
        """Sends one message and waits for its acknowledgement.

        Waits for space first if the window is full (`window_messages`, `window_bytes`). Messages of one order key keep
        their order if each is awaited before the next is sent. When one of several concurrent sends fails, those that
        wait after it for the same queue fail too, unsent.

        Args:
            message: The message. Its `order_key`, if any, selects the queue.
            queue: The queue to use; no other queue is tried.
            timeout: Timeout for all attempts, in seconds, from the time when the message leaves; default: the
                producer's `send_timeout`.
            msg_id: As for `Producer.send`.

        Raises:
            asyncio.CancelledError: The task was cancelled. The message may still be sent.
            RocketPyError: As for `Producer.send` and `Producer.submit`.
        """
        if _rest or _other:
            raise one_message(AsyncProducer.send, _other)
        if queue is None and self._select is not None:
            queue = await self._chosen(self._select, message)
        try:
            sent: Any = self._checked().send(message, queue, timeout, msg_id)
            receipt: Receipt = await sent
            return receipt
        except asyncio.CancelledError as error:
            error.add_note(f"the message to {message.topic} was already being sent: it may be stored")
            raise
        except TopicNotFoundError as error:
            await self._names.explain_later(error, [message.topic])
            raise

    async def send_many(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout: Duration | None = None
    ) -> Receipts:
        """Sends many messages in few requests, as `Producer.send_many`.

        Args:
            messages: The messages, of one topic or of several.
            queue: The queue to use for all messages.
            timeout: Timeout for one request with all its attempts, in seconds; default: the producer's `send_timeout`.

        Raises:
            PartlySentError: Some messages were not acknowledged; `error.receipts` shows which.
            asyncio.CancelledError: The task was cancelled. The messages are still sent.
        """
        queues = None
        if self._select is not None and queue is None:
            messages = list(messages)
            queues = [await self._chosen(self._select, message) for message in messages]
        try:
            sent = await later(self._native().send_many, messages, queue, timeout, queues)
        except TopicNotFoundError as error:
            await self._names.explain_later(error, {message.topic for message in messages})
            raise
        try:
            sent.check()
        except PartlySentError as error:
            error.receipts = Receipts(sent)
            raise
        return Receipts(sent)

    async def send_oneway(
        self, message: Message, *_rest: Never, queue: MessageQueue | None = None, **_other: Never
    ) -> None:
        """Sends without waiting for an answer: whether the message was stored is unknown.

        Args:
            message: The message.
            queue: The queue to use.
        """
        if _rest or _other:
            raise one_message(AsyncProducer.send_oneway, _other)
        if queue is None and self._select is not None:
            queue = await self._chosen(self._select, message)
        try:
            await later(self._native().send_oneway, message, queue)
        except TopicNotFoundError as error:
            await self._names.explain_later(error, [message.topic])
            raise

    async def request(
        self,
        message: Message,
        *_rest: Never,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
        **_other: Never,
    ) -> ReceivedMessage:
        """Sends one message and waits for the reply of the consumer that receives it, as `Producer.request`.

        Args:
            message: The message, as for `send`.
            queue: The queue to use; no other queue is tried.
            timeout: Timeout for the send and the reply together, in seconds; default: the producer's `send_timeout`.
            msg_id: As for `send`.
        """
        if _rest or _other:
            raise one_message(AsyncProducer.request, _other)
        if queue is None and self._select is not None:
            queue = await self._chosen(self._select, message)
        try:
            return await later(self._native().request, message, queue, timeout, msg_id)
        except TopicNotFoundError as error:
            await self._names.explain_later(error, [message.topic])
            raise

    async def reply(
        self, request: ReceivedMessage, body: bytes | bytearray | memoryview, *, timeout: Duration | None = None
    ) -> Receipt:
        """Sends the reply to a message that a producer sent with `request`, as `Producer.reply`.

        Args:
            request: The received message.
            body: Body of the reply: bytes, or any other buffer of bytes, at least 1 byte.
            timeout: Timeout for all attempts, in seconds; default: the producer's `send_timeout`.
        """
        return await later(self._native().reply, request, body, timeout)

    async def recall(self, receipt: Receipt | str) -> None:
        """Recalls a message that waits for its delivery time, as `Producer.recall`.

        Args:
            receipt: Receipt of the message, or its `recall_handle`.
        """
        with hinted(RefusedError, code=ILLEGAL_OPERATION, hint=RECALL_HINT):
            await later(self._native().recall, recall_handle(receipt))

    async def flush(self, timeout: Duration = 60.0) -> None:
        """Waits for the outcome of every message sent before, as `Producer.flush`.

        Args:
            timeout: Maximum wait, in seconds.
        """
        await later(self._native().flush, timeout)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Writable queues of a topic, as `Producer.queues`.

        Args:
            topic: The topic.
        """
        try:
            return await later(self._native().queues, topic)
        except TopicNotFoundError as error:
            await self._names.explain_later(error, [topic])
            raise

    async def _chosen(self, select: Select, message: Message) -> MessageQueue:
        check_type("message", message, Message, "a rocketpy.Message")
        return chosen(select, await self.queues(message.topic), message)

    def stats(self) -> ProducerStats:
        """Statistics of sent messages, as `Producer.stats`. Any thread may call this, such as an exporter."""
        native: _rocketpy.Producer = self._started()
        return native.stats()

    def __repr__(self) -> str:
        return f"<AsyncProducer{self._shown_state()} of group {self._group!r}>"

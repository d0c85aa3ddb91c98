"""Sending messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rocketpy import _rocketpy
from rocketpy.base.hints import hinted
from rocketpy.base.lifetime import Closing
from rocketpy.base.misuse import one_message
from rocketpy.base.names import check_type, name_server_list
from rocketpy.base.options import takes_options
from rocketpy.base.topic_names import TopicNames
from rocketpy.config import PRODUCER_DEFAULTS, ProducerOptions
from rocketpy.errors import InvalidArgumentError, PartlySentError, RefusedError, TopicNotFoundError
from rocketpy.message import Message, Receipt
from rocketpy.producing.receipts import Receipts
from rocketpy.producing.selector import chosen, split

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future
    from typing import Never, Unpack

    from rocketpy.config import Duration
    from rocketpy.message import MessageQueue, ReceivedMessage
    from rocketpy.producing.selector import Select
    from rocketpy.stats import ProducerStats

__all__ = ["Producer"]


ILLEGAL_OPERATION = 604
"""Response code of a broker that recalls nothing for a handle."""
RECALL_HINT = (
    "only a message that still waits for its delivery time can be recalled, by its receipt or the recall_handle of that"
)
"""Hint for a rejected recall."""


def recall_handle(receipt: Receipt | str) -> str:
    """Handle that recalls the message of a receipt.

    Raises:
        TypeError: The value is neither a receipt nor a handle.
        InvalidArgumentError: The message does not wait for a delivery time.
    """
    check_type("receipt", receipt, Receipt | str, "a Receipt or its recall_handle")
    handle = receipt if isinstance(receipt, str) else receipt.recall_handle
    if handle is None:
        raise InvalidArgumentError(
            f"cannot recall message {cast('Receipt', receipt).msg_id}: it does not wait for a delivery time",
            hint="only messages sent with delay= or deliver_at= that are not due yet can be recalled",
        )
    return handle


@takes_options(ProducerOptions, PRODUCER_DEFAULTS)
class Producer(Closing):
    """Sends messages for one producer group. Threads may share it.

    Args:
        group: Name of the producer group.
        name_servers: `host:port` of each name server, as a list or as one text; default: the environment variable
            `NAMESRV_ADDR`.
        options: Keyword options, declared in `rocketpy.config.ProducerOptions`.

    The first call that needs a connection makes it, and raises if no name server can be reached.

    Raises:
        InvalidArgumentError: A name or an option is invalid.

    Examples:
        >>> import rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> with rocketpy.Producer("ingest", name_servers=[server.name_server]) as producer:
        ...     receipt = producer.send(rocketpy.Message("producer-doc", b"text", tag="UA"))
        >>> str(receipt.status), receipt.queue.topic
        ('SEND_OK', 'producer-doc')
    """

    __slots__ = ("_group", "_names", "_native", "_select")

    def __init__(
        self, group: str, *, name_servers: Iterable[str] | str | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__()
        check_type("group", group, str, "a str")
        self._group = group
        self._select, native = split(options)
        servers = name_server_list(name_servers)
        self._native = _rocketpy.Producer(group, servers, **native)
        self._names = TopicNames(servers, native)
        self._opened()

    @property
    def group(self) -> str:
        """Name of the producer group."""
        return self._group

    @property
    def client_id(self) -> str:
        """Id of this producer at brokers."""
        return self._native.client_id

    @property
    def dropped_traces(self) -> int:
        """Number of trace records dropped because of a full buffer, or because no broker accepted them."""
        return self._native.dropped_traces

    def send(
        self,
        message: Message,
        *_rest: Never,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
        **_other: Never,
    ) -> Receipt:
        """Sends one message and waits for its acknowledgement, trying another broker when one fails.

        While all brokers of the topic are away the call waits, up to `send_timeout`, and sends once one is back.

        Args:
            message: The message. Its `order_key`, if any, selects the queue.
            queue: The queue to use; no other queue is tried.
            timeout: Timeout for all attempts, in seconds; default: the producer's `send_timeout`.
            msg_id: Unique key of the message; default: a new one. To repeat a send that may have been applied, pass the
                `msg_id` of its error: both copies then have one id, by which consumers recognise the duplicate.

        Raises:
            RequestTimeoutError: No acknowledgement arrived in time. The message may be stored: a retry may store it
                twice.
            ConnectionLostError: The connection ended before the answer. The message may be stored, as above.
            ConnectionFailedError: No broker could be reached until the timeout, or no name server has ever answered;
                a retry is safe.
            InvalidArgumentError: The message, a tag or an id is invalid; nothing was sent.
            NotSupportedError: The message requests a transaction; nothing was sent.
            RocketPyError: See `retryable`, `may_have_been_applied`, `msg_id` and `broker`.
        """
        if _rest or _other:
            raise one_message(Producer.send, _other)
        try:
            return self._native.send(message, self._queue_for(message, queue), timeout, msg_id)
        except TopicNotFoundError as error:
            self._names.explain(error, [message.topic])
            raise

    def recall(self, receipt: Receipt | str) -> None:
        """Recalls a message that waits for its delivery time (`delay=` or `deliver_at=`).

        On return the message is recalled for good, unless its delivery was under way. The call may be repeated. A
        message with a `delay_level` cannot be recalled, nor a message whose delivery time had passed when it was sent.

        Args:
            receipt: Receipt of the message, or its `recall_handle`.

        Raises:
            TypeError: The value is neither.
            InvalidArgumentError: The message does not wait for a delivery time, or the value is not a handle.
            RefusedError: The delivery time has passed, or the broker does not recall messages (`recallMessageEnable`).
        """
        with hinted(RefusedError, code=ILLEGAL_OPERATION, hint=RECALL_HINT):
            self._native.recall(recall_handle(receipt))

    def request(
        self,
        message: Message,
        *_rest: Never,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
        **_other: Never,
    ) -> ReceivedMessage:
        """Sends one message and waits for the reply of the consumer that receives it.

        A reply is best effort: the broker delivers it once, if this producer is connected. To be sure of an answer,
        repeat the request with the same `msg_id`.

        Args:
            message: The message, as for `send`.
            queue: The queue to use; no other queue is tried.
            timeout: Timeout for the send and the reply together, in seconds; default: the producer's `attempt_timeout`.
            msg_id: As for `send`.

        Returns:
            The reply. It does not come from a queue: its offsets are 0, and its `broker_name` is the broker's address.

        Raises:
            RequestTimeoutError: No reply arrived in time; the error names topic and `msg_id`. A consumer may have
                received the message, or may receive it later: a retry may cause the work twice.
            ClosedError: The producer was closed meanwhile. With `may_have_been_applied` a consumer may have received
                the message, or may receive it later.
            RocketPyError: The message was not sent, as for `send`.

        Examples:
            >>> import threading, rocketpy
            >>> server = getfixture("rocketpy_server")
            >>> def answer():
            ...     with server.consumer("clerks", "questions", allow_missing_topic=True) as consumer:
            ...         with server.producer("replies") as replies:
            ...             question = next(consumer)
            ...             receipt = replies.reply(question, question.body.upper())
            >>> thread = threading.Thread(target=answer)
            >>> thread.start()
            >>> with server.producer("asking") as producer:
            ...     producer.request(rocketpy.Message("questions", b"tea?"), timeout=60).body
            b'TEA?'
            >>> thread.join()
        """
        if _rest or _other:
            raise one_message(Producer.request, _other)
        try:
            return self._native.request(message, self._queue_for(message, queue), timeout, msg_id)
        except TopicNotFoundError as error:
            self._names.explain(error, [message.topic])
            raise

    def reply(
        self, request: ReceivedMessage, body: bytes | bytearray | memoryview, *, timeout: Duration | None = None
    ) -> Receipt:
        """Sends the reply to a message that a producer of any client library sent with `request`.

        Args:
            request: The received message.
            body: Body of the reply: bytes, or any other buffer of bytes, at least 1 byte.
            timeout: Timeout for all attempts, in seconds; default: the producer's `send_timeout`.

        Returns:
            The receipt: the requester has the reply. Its queue belongs to the reply topic of the cluster; if the broker
            does not store replies (`storeReplyMessageEnable`), its `offset_msg_id` is "0" and its offset 0.

        Raises:
            InvalidArgumentError: The message does not request a reply.
            RefusedError: The requester is gone, or did not accept the reply. The send is not retried.
            RocketPyError: As for `send`.
        """
        return self._native.reply(request, body, timeout)

    def send_many(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout: Duration | None = None
    ) -> Receipts:
        """Sends many messages in few requests; messages of one order key keep their order.

        Messages without an order key are sent to the queues in runs of at least 128: a small number ends in one queue,
        and one member of a group receives them all. To share few messages among workers use `send`, or an order key for
        each.

        Args:
            messages: The messages, of one topic or of several.
            queue: The queue to use for all messages.
            timeout: Timeout for one request with all its attempts, in seconds; default: the producer's `send_timeout`.

        Returns:
            One receipt per message, in the given order.

        Raises:
            PartlySentError: Some messages were not acknowledged; `error.receipts` shows which.
        """
        queues = None
        if self._select is not None and queue is None:
            messages = list(messages)
            queues = [self._chosen(self._select, message) for message in messages]
        try:
            sent = self._native.send_many(messages, queue, timeout, queues)
        except TopicNotFoundError as error:
            self._names.explain(error, {message.topic for message in messages})
            raise
        try:
            sent.check()
        except PartlySentError as error:
            error.receipts = Receipts(sent)
            raise
        return Receipts(sent)

    def submit(
        self,
        message: Message,
        *_rest: Never,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        wait: Duration | None = None,
        msg_id: str | None = None,
        **_other: Never,
    ) -> Future[Receipt]:
        """Queues one message for sending and returns, without waiting for the acknowledgement.

        Waits for space if the window is full, and for the route of a topic that this producer has not sent to yet.

        Messages submitted while a request is under way share the next one. Messages of one order key, or of one
        `queue`, keep their order: when one fails, those that wait after it for the same queue fail too, unsent.

        Args:
            message: The message.
            queue: The queue to use; no other queue is tried.
            timeout: Timeout for all attempts, in seconds, from the time when the message leaves, and for the route
                request; default: the producer's `send_timeout`. Messages that share a request use the longest of their
                timeouts.
            wait: Maximum wait for space in the window, in seconds; default: the producer's `send_timeout`.
            msg_id: As for `send`.

        Returns:
            A future of the receipt. It cannot be cancelled: the message is already queued. The producer logs a warning
            with the number of failed futures that were dropped without a call of `result` or `exception`.

        Raises:
            RequestTimeoutError: The window stayed full; the message was not sent.
            RocketPyError: The message is invalid, or its topic has no route; nothing was sent.
        """
        if _rest or _other:
            raise one_message(Producer.submit, _other)
        try:
            if self._select is not None:  # saves the others a call
                queue = self._queue_for(message, queue)
            return self._native.submit(message, queue, timeout, wait, msg_id)
        except TopicNotFoundError as error:
            self._names.explain(error, [message.topic])
            raise

    def flush(self, timeout: Duration = 60.0) -> None:
        """Waits until every message submitted before has its outcome and its future is done. Does not block `submit`.

        Args:
            timeout: Maximum wait, in seconds.

        Raises:
            RequestTimeoutError: Some messages have no outcome yet.
        """
        self._native.flush(timeout)

    def send_oneway(self, message: Message, *_rest: Never, queue: MessageQueue | None = None, **_other: Never) -> None:
        """Sends without waiting for an answer: whether the message was stored is unknown.

        The call waits for route and connection, up to `attempt_timeout`, and does not retry.

        Args:
            message: The message.
            queue: The queue to use.
        """
        if _rest or _other:
            raise one_message(Producer.send_oneway, _other)
        try:
            self._native.send_oneway(message, self._queue_for(message, queue))
        except TopicNotFoundError as error:
            self._names.explain(error, [message.topic])
            raise

    def queues(self, topic: str) -> list[MessageQueue]:
        """Writable queues of a topic, sorted; for a missing topic, the queues that a send would create.

        Args:
            topic: The topic.

        Raises:
            TopicNotFoundError: The topic does not exist, and brokers do not create topics automatically.
        """
        try:
            return self._native.queues(topic)
        except TopicNotFoundError as error:
            self._names.explain(error, [topic])
            raise

    def _queue_for(self, message: Message, given: MessageQueue | None) -> MessageQueue | None:
        """The given queue, or else the choice of the user function, if there is one."""
        return given if given is not None or self._select is None else self._chosen(self._select, message)

    def _chosen(self, select: Select, message: Message) -> MessageQueue:
        check_type("message", message, Message, "a rocketpy.Message")
        return chosen(select, self._native.queues(message.topic), message)

    def stats(self) -> ProducerStats:
        """Statistics of sent messages and latencies. Sends no request, and works after a close."""
        return self._native.stats()

    def _begin_close(self) -> None:
        self._native.begin_close()

    def _close(self) -> None:
        self._native.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{' (closed)' if self.closed else ''} of group {self._group!r}>"

"""Sending messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rocketpy import _rocketpy
from rocketpy.base.lifetime import Closing
from rocketpy.base.names import check_type, name_server_list
from rocketpy.base.options import takes_options
from rocketpy.config import PRODUCER_DEFAULTS, ProducerOptions
from rocketpy.errors import InvalidArgumentError, PartlySentError
from rocketpy.message import Message, Receipt
from rocketpy.producing.receipts import Receipts
from rocketpy.producing.selector import chosen, split

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future
    from typing import Unpack

    from rocketpy.config import Duration
    from rocketpy.message import MessageQueue, ReceivedMessage
    from rocketpy.producing.selector import Select
    from rocketpy.stats import ProducerStats

__all__ = ["Producer"]


def recall_handle(receipt: Receipt | str) -> str:
    """What recalls the message of a receipt.

    Raises:
        TypeError: It is neither a receipt nor a handle.
        InvalidArgumentError: The message does not wait for a time.
    """
    check_type("receipt", receipt, Receipt | str, "a Receipt or its recall_handle")
    handle = receipt if isinstance(receipt, str) else receipt.recall_handle
    if handle is None:
        raise InvalidArgumentError(
            f"message {cast('Receipt', receipt).msg_id} cannot be recalled",
            hint="only messages that wait for a time can, sent with delay= or deliver_at= and not due yet",
        )
    return handle


@takes_options(ProducerOptions, PRODUCER_DEFAULTS)
class Producer(Closing):
    """Sends messages for one producer group. Threads may share it.

    Args:
        group: Name of the producer group.
        name_servers: `host:port` of each name server, as a list or as one text; default: the variable `NAMESRV_ADDR`.
        options: Those of `rocketpy.config.ProducerOptions`, by keyword.

    No connection is made before the first call that needs one; that call raises if no name server can be reached.

    Raises:
        InvalidArgumentError: A name or an option breaks its rules.

    Examples:
        >>> import rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> with rocketpy.Producer("ingest", name_servers=[server.name_server]) as producer:
        ...     receipt = producer.send(rocketpy.Message("producer-doc", b"text", tag="UA"))
        >>> str(receipt.status), receipt.queue.topic
        ('SEND_OK', 'producer-doc')
    """

    __slots__ = ("_group", "_native", "_select")

    def __init__(
        self, group: str, *, name_servers: Iterable[str] | str | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__()
        check_type("group", group, str, "a str")
        self._group = group
        self._select, native = split(options)
        self._native = _rocketpy.Producer(group, name_server_list(name_servers), **native)
        self._opened()

    @property
    def group(self) -> str:
        """Name of the producer group."""
        return self._group

    @property
    def client_id(self) -> str:
        """The id by which brokers know this producer."""
        return self._native.client_id

    @property
    def dropped_traces(self) -> int:
        """Trace records that were not sent so far: they came faster than they were sent, or no broker took them."""
        return self._native.dropped_traces

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
    ) -> Receipt:
        """Sends one message and waits for its acknowledgement, trying another broker when one fails.

        Args:
            message: What to send. Its `order_key`, if any, chooses the queue.
            queue: The queue to use; no other is tried.
            timeout: Budget of all attempts, in seconds; default: the producer's `send_timeout`.
            msg_id: Unique key of the message; default: a new one. To repeat a send that may have been applied, give the
                `msg_id` of its error: both copies then have one id, by which consumers recognise the duplicate.

        Raises:
            RequestTimeoutError: No acknowledgement in time. The message may be stored: a retry may store it twice.
            ConnectionLostError: The connection ended before the answer. The message may be stored, as above.
            ConnectionFailedError: No name server, or no broker, can be reached; a retry is safe.
            InvalidArgumentError: A message, a tag or an id breaks its rules; it was not sent.
            NotSupportedError: The message asks for a transaction; it was not sent.
            RocketPyError: See `retryable`, `may_have_been_applied`, `msg_id` and `broker`.
        """
        return self._native.send(message, self._queue_for(message, queue), timeout, msg_id)

    def recall(self, receipt: Receipt | str) -> None:
        """Takes back a message that waits for its time (`delay=` or `deliver_at=`).

        On return it is recalled for good, unless its delivery was under way. A recall may be made again. A message with
        a `delay_level` cannot be recalled, nor one whose time was over when it was sent: it is delivered at once.

        Args:
            receipt: That of the message, or its `recall_handle`.

        Raises:
            TypeError: It is neither.
            InvalidArgumentError: The message does not wait for a time, or this is no handle.
            RefusedError: Its time is over, or the broker recalls no messages (`recallMessageEnable`).
        """
        self._native.recall(recall_handle(receipt))

    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
    ) -> ReceivedMessage:
        """Sends one message and waits for the reply of the consumer that receives it.

        A reply is best effort: the broker hands it over once, to this producer if that is connected. Whoever must not
        miss an answer asks again, with the same `msg_id`.

        Args:
            message: What to send, as for `send`.
            queue: The queue to use; no other is tried.
            timeout: Budget of the send and of the wait for the reply together, in seconds; default: the producer's
                `send_timeout`.
            msg_id: As for `send`.

        Returns:
            The reply. It was read from no queue: its offsets are 0, and its `broker_name` is the broker's address.

        Raises:
            RequestTimeoutError: No reply came in time; the error names topic and `msg_id`. A consumer may have received
                the message, or will: a retry may make it work twice.
            ClosedError: The producer was closed meanwhile. With `may_have_been_applied` a consumer may have received
                the message, or will.
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
        return self._native.request(message, self._queue_for(message, queue), timeout, msg_id)

    def reply(
        self, request: ReceivedMessage, body: bytes | bytearray | memoryview, *, timeout: Duration | None = None
    ) -> Receipt:
        """Sends the reply to a message that a producer sent with `request`, of this library or of another client.

        Args:
            request: The message as a consumer received it.
            body: What the reply says: bytes, or any other buffer of bytes, from 1 byte on.
            timeout: Budget of all attempts, in seconds; default: the producer's `send_timeout`.

        Returns:
            The receipt: the requester has the reply. Its queue is one of the cluster's topic of replies; where the
            broker keeps no replies (`storeReplyMessageEnable`), its `offset_msg_id` is "0" and its offset 0.

        Raises:
            InvalidArgumentError: The message asks for no reply.
            RefusedError: The requester is gone, or did not take the reply. It is not tried again.
            RocketPyError: As for `send`.
        """
        return self._native.reply(request, body, timeout)

    def send_many(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout: Duration | None = None
    ) -> Receipts:
        """Sends many messages in few requests; messages of one order key keep their order.

        Messages without an order key go to the queues in runs of at least 128: a few of them go to one queue, and one
        member of a group gets them all. To share few messages among workers use `send`, or an order key for each.

        Args:
            messages: What to send, of one topic or of several.
            queue: The queue to use for all of them.
            timeout: Budget of one request with all its attempts, in seconds; default: the producer's `send_timeout`.

        Returns:
            One receipt per message, in the order given.

        Raises:
            PartlySentError: Some messages were not acknowledged; `error.receipts` shows which.
        """
        queues = None
        if self._select is not None and queue is None:
            messages = list(messages)
            queues = [self._chosen(self._select, message) for message in messages]
        sent = self._native.send_many(messages, queue, timeout, queues)
        try:
            sent.check()
        except PartlySentError as error:
            error.receipts = Receipts(sent)
            raise
        return Receipts(sent)

    def submit(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        wait: Duration | None = None,
        msg_id: str | None = None,
    ) -> Future[Receipt]:
        """Queues one message for sending and returns, without a wait for the acknowledgement.

        It waits for room if the window is full, and for the route of a topic that this producer has not sent to yet.

        Messages that come while a request is under way share the next. Those of one order key, or of one `queue`, keep
        their order: when one fails, those that wait behind it for the same queue fail too, unsent.

        Args:
            message: What to send.
            queue: The queue to use; no other is tried.
            timeout: Budget of all attempts, in seconds, from when the message leaves, and of the question for a route;
                default: the producer's `send_timeout`. Messages that share a request have the longest of theirs.
            wait: Longest wait for room in the window, in seconds; default: the producer's `send_timeout`.
            msg_id: As for `send`.

        Returns:
            A future of the receipt. It cannot be cancelled: the message is on its way.

        Raises:
            RequestTimeoutError: The window stayed full; the message was not sent.
            RocketPyError: The message breaks a rule, or its topic has no route; it was not sent.
        """
        return self._native.submit(message, self._queue_for(message, queue), timeout, wait, msg_id)

    def flush(self, timeout: Duration = 30.0) -> None:
        """Waits until every message submitted before has its outcome and its future is done. Holds up no `submit`.

        Args:
            timeout: Longest wait, in seconds.

        Raises:
            RequestTimeoutError: Some messages still have no outcome.
        """
        self._native.flush(timeout)

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Sends without waiting for an answer, so it is not known whether the message was stored.

        Args:
            message: What to send.
            queue: The queue to use.
        """
        self._native.send_oneway(message, self._queue_for(message, queue))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Queues of a topic that may be written, sorted. Of one that does not exist: those that a send would create.

        Raises:
            TopicNotFoundError: The topic does not exist, and brokers create no topics by themselves.
        """
        return self._native.queues(topic)

    def _queue_for(self, message: Message, given: MessageQueue | None) -> MessageQueue | None:
        """The given queue, else the one that the function of the user chooses, if there is one."""
        return given if given is not None or self._select is None else self._chosen(self._select, message)

    def _chosen(self, select: Select, message: Message) -> MessageQueue:
        check_type("message", message, Message, "a rocketpy.Message")
        return chosen(select, self._native.queues(message.topic), message)

    def stats(self) -> ProducerStats:
        """What was sent so far, and how long it took. Asks no broker, and works after a close too."""
        return self._native.stats()

    def _begin_close(self) -> None:
        self._native.begin_close()

    def _close(self) -> None:
        self._native.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{' (closed)' if self.closed else ''} of group {self._group!r}>"

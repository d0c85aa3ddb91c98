"""Transactions: messages that are delivered after their producer commits them."""

from __future__ import annotations

import logging
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from rocketpy.base.clock import monotonic
from rocketpy.base.failure import loggable, safe_text, shown_as_text
from rocketpy.base.misuse import one_message
from rocketpy.base.options import lists_options
from rocketpy.base.signature import check_function
from rocketpy.base.text import printable
from rocketpy.config import PRODUCER_DEFAULTS, ProducerOptions
from rocketpy.errors import ClosedError, ForkedError, InvalidArgumentError, RocketPyError, TopicNotFoundError
from rocketpy.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Never, Unpack

    from rocketpy import _rocketpy
    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.config import Duration
    from rocketpy.message import Message, MessageQueue, Receipt

__all__ = ["Decision", "Transaction", "TransactionProducer"]

logger = logging.getLogger("rocketpy.client")

LOOK_SECONDS = 1.0
"""Maximum duration of one wait of a thread that answers check-backs."""
ANSWER_SECONDS = 3.0
"""Timeout for checks under way when a producer is closed."""
CHECK_THREADS = 4
"""Default of `check_threads`."""
MAX_CHECK_THREADS = 64
"""Maximum of `check_threads`."""
LEFT_OPEN = "the broker asks `check` for the outcome; `rollback()` ends it without delivery"


class Decision(StrEnum):
    """Outcome of a transaction, as the answer to a check-back."""

    COMMIT = "commit"
    """The message is delivered."""
    ROLLBACK = "rollback"
    """The message is never delivered."""
    UNKNOWN = "unknown"
    """The outcome is not known yet: the broker repeats the check-back."""


class Transaction:
    """A message that waits for the end of its transaction.

    In a `with` statement the end of the block commits. An exception leaves the transaction open, as the end of the
    process does: the work may still be done, so the broker sends a check-back, and `check` decides. A note of the
    exception says so. Only `rollback` rolls back.

    Attributes:
        receipt: Receipt of the half message.
    """

    __slots__ = ("_end", "_half", "_is_over", "receipt")

    def __init__(self, half: _rocketpy.Half) -> None:
        self._half = half
        self._end: Decision | None = None  # the latest that was tried
        self._is_over = False
        self.receipt: Receipt = half.receipt

    def commit(self) -> None:
        """Commits the transaction: the message is delivered. On return the message is stored, as after a send.

        Raises:
            ClosedError: The transaction was rolled back before.
            TransactionOverError: The transaction was rolled back or given up meanwhile, for example because `check`
                returned `Decision.ROLLBACK` during the work. This call delivers nothing. If the message is gone, an
                earlier commit may have delivered it.
            RefusedError: The broker does not accept the end now: the transaction stays open.
            RocketPyError: The outcome is unknown: call `commit` again, or leave the decision to the check-back of the
                broker.
        """
        self._say(Decision.COMMIT)

    def rollback(self) -> None:
        """Rolls the transaction back: the message is not delivered.

        Raises:
            ClosedError: The transaction was committed before.
            TransactionOverError: The transaction was committed meanwhile.
            RocketPyError: As for `commit`.
        """
        self._say(Decision.ROLLBACK)

    def _say(self, end: Decision) -> None:
        if self._is_over:
            if end is not self._end:
                raise ClosedError(f"cannot {end} transaction {self.receipt.msg_id}: already ended by {self._end}")
            return
        self._end = end
        self._half.end(end is Decision.COMMIT)
        self._is_over = True

    def __repr__(self) -> str:
        if self._end is None:
            state = "open"
        elif not self._is_over:
            state = f"{self._end} tried, outcome unknown"
        else:
            state = "committed" if self._end is Decision.COMMIT else "rolled back"
        return f"<Transaction of message {self.receipt.msg_id} to {self.receipt.queue.topic!r}: {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_over:
            return
        if kind is None:
            self._say(self._end or Decision.COMMIT)
        elif error is not None:
            self._note_open(error)

    def _note_open(self, error: BaseException) -> None:
        """Adds to an exception of the work that the transaction stays open."""
        msg_id = printable(self.receipt.msg_id)
        error.add_note(f"transaction of message {msg_id} left open: {LEFT_OPEN}")
        # The caller gets the error, whose text may have the body.
        logger.info("transaction %s left open for the check-back of the broker: %s", msg_id, type(error).__name__)


class TransactionProducer(Producer):
    """Sends messages in transactions. Threads may share it.

    A message is stored first, and delivered after the transaction is committed. If the broker does not receive the end,
    because the process died or the broker could not be reached, it sends a check-back to any live producer of the
    group: `check` decides from a trace of the work, such as a row in a database. All members of a group must be able to
    answer for each other. The check-back also arrives for work that takes longer than the broker's `transactionTimeOut`
    (6 s): `check` must then return `Decision.UNKNOWN`, because any other decision ends the transaction, and the later
    `commit` is refused.

    Args:
        group: Name of the producer group.
        check: Function that returns the outcome of the work of a message, as a `Decision`. Called in separate threads,
            concurrently for several messages but never for the same one, with the message as it would be delivered. Any
            exception is logged, and counts as `Decision.UNKNOWN`.
        local: Function that does the work of a message, for `send_in_transaction`: called with the message, returns a
            `Decision`.
        name_servers: `host:port` of each name server, as a list or as one text; default: the environment variable
            `NAMESRV_ADDR`.
        check_threads: Number of threads that call `check`, from 1 to 64: a slow check does not delay others while a
            thread is free. Use 1 for a `check` that must not run concurrently. Default 4.
        options: As for `rocketpy.Producer`.

    Examples:
        >>> import rocketpy
        >>> server = getfixture("rocketpy_server")
        >>> paid = set()
        >>> def check(message):
        ...     return rocketpy.Decision.COMMIT if message.keys[0] in paid else rocketpy.Decision.UNKNOWN
        >>> with rocketpy.TransactionProducer("payers", check, name_servers=[server.name_server]) as producer:
        ...     with producer.transaction(rocketpy.Message("paid-orders", b"A-17", keys=["A-17"])):
        ...         paid.add("A-17")
    """

    __slots__ = ("_local", "_threads")

    @lists_options(ProducerOptions, PRODUCER_DEFAULTS)
    def __init__(
        self,
        group: str,
        check: Callable[[ReceivedMessage], Decision],
        *,
        local: Callable[[Message], Decision] | None = None,
        name_servers: Iterable[str] | str | None = None,
        check_threads: int = CHECK_THREADS,
        **options: Unpack[ProducerOptions],
    ) -> None:
        for name, function in (("check", check), ("local", local)):
            if function is not None or name == "check":
                check_function(name, function, "a function of a message that returns a rocketpy.Decision", 1)
        if check_threads not in range(1, MAX_CHECK_THREADS + 1):
            raise InvalidArgumentError(f"check_threads must be from 1 to {MAX_CHECK_THREADS}, not {check_threads!r}")
        super().__init__(group, name_servers=name_servers, **options)
        self._local = local
        arguments = (self._native.checks(), check, group)
        self._threads = [
            threading.Thread(target=answer, args=arguments, name=f"rocketpy-checks-{number}", daemon=True)
            for number in range(check_threads)
        ]
        for thread in self._threads:
            thread.start()

    def _close(self) -> None:
        super()._close()
        deadline = monotonic() + ANSWER_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))

    def transaction(
        self,
        message: Message,
        *_rest: Never,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
        **_other: Never,
    ) -> Transaction:
        """Sends a half message, which waits for the end of its transaction. Use the result in a `with` statement.

        Args:
            message: The message. A delay starts after the commit; only RocketPy's broker supports it.
            queue: The queue to use; no other queue is tried.
            timeout: Timeout for all attempts, in seconds; default: the producer's `send_timeout`.
            msg_id: Unique key of the message; default: a new one.

        Raises:
            NotSupportedError: The message has a delay, and a broker of its topic is Apache's, which would lose the
                delay.
            RocketPyError: As for `send`, without the retries that might send it twice. With `may_have_been_applied` the
                half message may be stored, and the broker sends a check-back for it; otherwise nothing is stored.
        """
        if _rest or _other:
            raise one_message(TransactionProducer.transaction, _other)
        try:
            return Transaction(self._native.prepare(message, self._queue_for(message, queue), timeout, msg_id))
        except TopicNotFoundError as error:
            self._names.explain(error, [message.topic])
            raise

    def resume(self, receipt: Receipt) -> Transaction:
        """Resumes a transaction that a producer of the group began, in this process or another.

        Args:
            receipt: `Transaction.receipt` of the transaction. It can be pickled.

        Returns:
            The transaction, to be ended. A broker of RocketPy accepts the same end again, and refuses a different one.

        Raises:
            InvalidArgumentError: The receipt does not belong to a half message.
        """
        return Transaction(
            self._native.half(receipt.msg_id, receipt.offset_msg_id, receipt.queue, receipt.queue_offset)
        )

    def ends_once(self, topic: str, timeout: Duration = 10.0) -> bool:
        """Whether all brokers of a topic end a transaction only once, even if they receive its end several times.

        Apache's brokers do not: they store a half message again before each check-back, and each copy can be committed.

        Args:
            topic: The topic.
            timeout: Maximum wait for the answers of the brokers, in seconds.

        Raises:
            RocketPyError: The brokers do not answer. A retry is safe.
        """
        return self._native.ends_once(topic, timeout)

    def send_in_transaction(
        self,
        message: Message,
        *_rest: Never,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
        msg_id: str | None = None,
        **_other: Never,
    ) -> Transaction:
        """Sends a message, does the work by `local`, and ends the transaction with its decision.

        An exception of `local`, and `Decision.UNKNOWN`, leave the transaction open for the check-back.

        Args:
            message: The message, as for `transaction`.
            queue: The queue to use; no other queue is tried.
            timeout: Timeout for all attempts, in seconds; default: the producer's `send_timeout`.
            msg_id: Unique key of the message; default: a new one.

        Raises:
            InvalidArgumentError: The producer has no `local`; nothing was sent.
            TypeError: `local` did not return a `Decision`; the transaction stays open.
            RocketPyError: As for `transaction` and `Transaction.commit`.
        """
        if _rest or _other:
            raise one_message(TransactionProducer.send_in_transaction, _other)
        if self._local is None:
            raise InvalidArgumentError(
                "the producer has no function `local` for the work of a message",
                hint="use TransactionProducer(group, check, local=...), or `with producer.transaction(message):`",
            )
        transaction = self.transaction(message, queue=queue, timeout=timeout, msg_id=msg_id)
        try:
            decided = self._local(message)
        except BaseException as error:
            transaction._note_open(error)
            raise
        try:
            decision = Decision(decided)
        except ValueError:
            wrong = TypeError(f"local must return a rocketpy.Decision, returned {decided!r}")
            transaction._note_open(wrong)
            raise wrong from None
        if decision is Decision.COMMIT:
            transaction.commit()
        elif decision is Decision.ROLLBACK:
            transaction.rollback()
        return transaction


def answer(checks: _rocketpy.Checks, check: Callable[[ReceivedMessage], Decision], group: str) -> None:
    """Answers check-backs until the producer is closed."""
    while answer_next(checks, check, group):
        pass


def answer_next(checks: _rocketpy.Checks, check: Callable[[ReceivedMessage], Decision], group: str) -> bool:
    """Waits a moment for a check-back and answers it. False once the producer is closed."""
    try:
        question, goes_on = checks.next(LOOK_SECONDS)
    except (ClosedError, ForkedError):
        return False
    if question is not None:
        try:
            answer_one(checks, question, check, group)
        finally:
            question.done()
    return goes_on


def answer_one(
    checks: _rocketpy.Checks,
    question: _rocketpy.Check,
    check: Callable[[ReceivedMessage], Decision],
    group: str,
) -> None:
    """Answers one check-back."""
    message = question.message
    msg_id = printable(message.msg_id)
    try:
        answered = check(message)
    except BaseException as error:  # SystemExit as well: the thread answers for the next message too
        text = "check of group %s failed for message %s; the broker will repeat the check-back"
        logger.error(text, group, msg_id, exc_info=loggable(error, [message]))
        return
    try:
        decision = Decision(answered)
    except Exception:  # ValueError, or what the value's own comparison raises
        text = (
            "check of group %s must return a rocketpy.Decision, returned %s for message %s; check-back will be repeated"
        )
        logger.error(text, group, safe_text(shown_as_text(answered, repr), [message]), msg_id)
        return
    if decision is Decision.UNKNOWN:
        return
    try:
        checks.answer(question, decision is Decision.COMMIT)
    except RocketPyError as error:
        logger.warning("answer for message %s not accepted; the broker will repeat the check-back: %s", msg_id, error)

"""Process that fires schedules. Any number may run: the member of the group that owns the one queue acts."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Self

from rocketpy.base.clock import monotonic
from rocketpy.base.failure import loggable
from rocketpy.base.lifetime import Closing
from rocketpy.base.names import name_server_list
from rocketpy.base.options import takes_options
from rocketpy.config import CLIENT_DEFAULTS, ClientOptions
from rocketpy.consuming.consumer import Consumer
from rocketpy.errors import InvalidArgumentError, RocketPyError, TransactionOverError
from rocketpy.producing.transaction import Decision, TransactionProducer
from rocketpy.schedule.journal import GROUP, TOPIC, Journal
from rocketpy.schedule.ledger import (
    MISSED_MS,
    NEVER,
    Arm,
    End,
    Ledger,
    Prepare,
    Tick,
    clock_record,
    error_record,
    fire_record,
    firing_id,
    firing_message,
    tick_record,
)
from rocketpy.schedule.times import require_cron

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Unpack

    from rocketpy.message import Message, MessageQueue, Receipt, ReceivedMessage
    from rocketpy.schedule.ledger import Effect, Entry

logger = logging.getLogger("rocketpy.schedule")

POLL_SECONDS = 0.5
"""Maximum wait of a poll, and so of `close`."""
BATCH = 32
"""Maximum number of records between two commits of the group's offset."""
FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0
"""Pause in seconds after a failure, doubled each time."""
MIN_RETRY_MS, MAX_RETRY_MS = 5_000, 300_000
"""Delay until a firing whose topic failed is tried again: as long as it is late, within these bounds."""
CLOCK_SECONDS = 60
"""Time between two records of the broker's clock, and so the wait until a clock that was set back is noticed."""


@takes_options(ClientOptions, CLIENT_DEFAULTS)
class Scheduler(Closing):
    """Fires schedules in a thread of its own, until it is closed. Run one in each process of your service.

    One of the running schedulers acts; another one takes over when its process ends. If a broker is away, the scheduler
    logs the error and continues when the broker answers again. In asyncio use `async with`, which does not block the
    event loop.

    Args:
        name_servers: `host:port` of each name server, as a list or as one text; default: the environment variable
            `NAMESRV_ADDR`.
        options: Keyword options, declared in `rocketpy.config.ClientOptions`.

    Raises:
        InvalidArgumentError: The topic `rocketpy_schedules` has several queues, or is missing in a cluster of several
            brokers.
        RocketPyError: The package cronsim is not installed, or the broker does not answer.

    Examples:
        >>> from rocketpy import schedule
        >>> server = getfixture("rocketpy_server")
        >>> address = server.name_server
        >>> with server.admin() as admin:
        ...     admin.create_topic("ticks", queues=1)
        >>> _ = schedule.add("tick", every=1, topic="ticks", body=b"go", name_servers=address)
        >>> with schedule.Scheduler(address), server.consumer("tockers", "ticks") as consumer:
        ...     [message.body for message in consumer.poll(max_messages=1, timeout=60)]
        [b'go']
        >>> schedule.remove("tick", name_servers=address)
    """

    __slots__ = ("_ledger", "_lock", "_name_servers", "_next", "_options", "_stop", "_thread")

    def __init__(self, name_servers: Iterable[str] | str | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__()
        require_cron()
        self._name_servers = name_server_list(name_servers)
        self._options = options
        self._ledger: Ledger | None = None
        self._next = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        with Journal(self._name_servers, options) as journal:
            journal.made_queue()
        self._thread = threading.Thread(target=self._run, name="rocketpy-scheduler", daemon=True)
        self._opened()
        self._thread.start()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _begin_close(self) -> None:
        self._stop.set()

    def _close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            began = monotonic()
            try:
                self._work()
                return
            except Exception as error:
                if monotonic() - began > MAX_PAUSE:
                    pause = FIRST_PAUSE
                logger.error("scheduler failed, continues in %g s", pause, exc_info=loggable(error))
            finally:
                self._forget()
            self._stop.wait(pause)
            pause = min(2 * pause, MAX_PAUSE)

    def _forget(self) -> None:
        with self._lock:
            self._ledger = None

    def _work(self) -> None:
        """Works until the scheduler is closed. After an exception the group continues from its last commit."""
        servers, options = self._name_servers, self._options
        with Journal(servers, options) as journal:
            queue = journal.made_queue()
            hop_ms = journal.hop_ms(queue)
            with (
                TransactionProducer(GROUP, self._outcome, name_servers=servers, check_threads=1, **options) as producer,
                Consumer(GROUP, TOPIC, name_servers=servers, allow_idle=True, **options) as consumer,
            ):
                owner = Owner(journal, queue, producer)
                while not self._stop.is_set():
                    self._step(consumer, owner, hop_ms)

    def _step(self, consumer: Consumer, owner: Owner, hop_ms: int) -> None:
        if self._ledger is not None:
            owner.note_clock()
        messages = consumer.poll(BATCH, POLL_SECONDS)
        if not messages:
            position = consumer.positions().get(owner.queue)
            if position is None:
                self._forget()  # another member owns the queue
            elif self._ledger is None or self._next != position:
                self._rebuild(owner, position, hop_ms)
            return
        for message in messages:
            if message.queue != owner.queue:
                continue  # the topic has grown, which `note_clock` reports
            if self._ledger is None or self._next != message.queue_offset:
                self._rebuild(owner, message.queue_offset, hop_ms)
            with self._lock:
                effects = self._ledger.apply(message) if self._ledger is not None else []
                self._next = message.queue_offset + 1
            for effect in effects:
                owner.act(effect)
        consumer.commit()

    def _rebuild(self, owner: Owner, position: int, hop_ms: int) -> None:
        """Computes the state before the position of the group."""
        self._forget()
        ledger = owner.journal.read(owner.queue, Ledger(hop_ms), position)
        logger.info("this process fires %d schedules", len(ledger.entries))
        with self._lock:
            self._ledger, self._next = ledger, position

    def _outcome(self, message: ReceivedMessage) -> Decision:
        """Answers a check-back. Another process knows the outcome if this one does not own the queue."""
        with self._lock:
            commits = None if self._ledger is None else self._ledger.is_committed(message)
        if commits is None:
            return Decision.UNKNOWN
        return Decision.COMMIT if commits else Decision.ROLLBACK

    def __repr__(self) -> str:
        return f"<Scheduler{' (closed)' if self.closed else ''}>"


class Owner:
    """Carries out the effects of records. Each may be repeated, by another process too."""

    def __init__(self, journal: Journal, queue: MessageQueue, producer: TransactionProducer) -> None:
        self.journal, self.queue = journal, queue
        self._producer = producer
        self._clock_at = 0.0
        self._problems: dict[str, str] = {}

    def note_clock(self) -> None:
        """Appends a record of the broker's clock and checks the topic, if the latest record is old."""
        if monotonic() >= self._clock_at:
            try:
                self.journal.queue()
            except InvalidArgumentError as error:
                logger.error("%s; schedules fire until this process ends; %s", error, error.hint)
            except RocketPyError as error:
                logger.warning("topic %s cannot be checked, schedules still fire: %s", TOPIC, error)
            self._append(clock_record(TOPIC))
            self._clock_at = monotonic() + CLOCK_SECONDS

    def act(self, effect: Effect) -> None:
        """Carries out an effect.

        Raises:
            RocketPyError: It may not have happened, and has to be repeated.
        """
        match effect:
            case Arm(entry, warning):
                if warning is not None:
                    logger.warning("%s", warning)
                if entry.pending is not None:
                    self._arm(entry, entry.pending)
            case Prepare(entry, tick, came_ms):
                self._prepare(entry, tick, came_ms)
            case End(half, commits):
                self._end(half, commits=commits)

    def _append(self, record: Message) -> None:
        self._producer.send(record, queue=self.queue)

    def _arm(self, entry: Entry, tick: Tick) -> None:
        """Sends a tick. One that its broker refuses, such as too late a time, does not stop the other schedules."""
        try:
            self._append(tick_record(TOPIC, entry, tick))
        except RocketPyError as error:
            if error.retryable or error.may_have_been_applied:
                raise
            if self._problems.get(entry.id) != str(error):
                self._problems[entry.id] = str(error)
                logger.error("timer of schedule %s cannot be armed: %s", entry.name, error)
                self._append(error_record(TOPIC, entry, str(error)))
        else:
            self._problems.pop(entry.id, None)

    def _prepare(self, entry: Entry, tick: Tick, came_ms: int) -> None:
        half, failure = None, None
        try:
            half = self._producer.transaction(firing_message(entry, tick.at_ms)).receipt
        except RocketPyError as error:
            failure = str(error)
            logger.error("schedule %s cannot fire: %s", firing_id(entry.name, tick.at_ms), error)
            may_pass = error.retryable or error.may_have_been_applied
            late_ms = max(0, came_ms - tick.at_ms)
            if may_pass and (entry.definition.missed != NEVER or tick.is_late or late_ms <= MISSED_MS):
                due_ms = max(came_ms, entry.due_ms) + min(max(late_ms, MIN_RETRY_MS), MAX_RETRY_MS)
                self._arm(entry, Tick(tick.at_ms, due_ms, tick.is_late, failure))
                return
        self._append(fire_record(TOPIC, entry, tick, half, failure))

    def _end(self, half: Receipt, *, commits: bool) -> None:
        transaction = self._producer.resume(half)
        try:
            transaction.commit() if commits else transaction.rollback()
        except TransactionOverError as error:
            if commits:
                logger.error("message %s of a schedule was given up by its broker: %s", half.msg_id, error)
        except RocketPyError as error:
            if error.retryable or error.may_have_been_applied:
                raise
            logger.error("message %s of a schedule cannot be delivered: %s", half.msg_id, error)

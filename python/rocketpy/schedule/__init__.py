"""Schedules that are kept at the broker and fire once, whatever the number of processes.

A schedule sends a message to a topic at the times of a cron text or of an interval. `add` stores it, and any running
`Scheduler` fires it. Each firing is one message, whose key is the name of the schedule and the time:
`report@2027-01-15T08:00:00Z`.

Examples:
    >>> from rocketpy import schedule
    >>> server = getfixture("rocketpy_server").name_server
    >>> options = {"topic": "reports", "body": b"daily", "name_servers": server}
    >>> _ = schedule.add("report", cron="0 3 * * *", timezone="Europe/Berlin", **options)
    >>> [(one.name, str(one.times)) for one in schedule.schedules(name_servers=server)]
    [('report', "cron '0 3 * * *' in Europe/Berlin")]
    >>> schedule.remove("report", name_servers=server)
"""

from __future__ import annotations

import logging
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rocketpy.base.instant import datetime_of
from rocketpy.base.options import lists_options
from rocketpy.base.topic_names import TopicNames
from rocketpy.config import CLIENT_DEFAULTS, ClientOptions
from rocketpy.errors import (
    InvalidArgumentError,
    RocketPyError,
    ScheduleConflictError,
    ScheduleNotFoundError,
    TopicNotFoundError,
)
from rocketpy.message import Message
from rocketpy.producing.producer import Producer
from rocketpy.schedule.journal import EDITORS, TOPIC, Journal
from rocketpy.schedule.ledger import NEVER, ONCE, Definition, Entry, Ledger, add_record, remove_record
from rocketpy.schedule.scheduler import Scheduler
from rocketpy.schedule.times import Times, times_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import Unpack

    from rocketpy.config import Duration
    from rocketpy.message import MessageQueue

__all__ = ["Schedule", "Scheduler", "Times", "add", "remove", "schedules"]

logger = logging.getLogger("rocketpy.schedule")

MAX_BODY_BYTES = 64 << 10
"""Each record of a schedule has its body."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, as stored at the broker."""

    name: str
    """Its name."""
    times: Times
    """Cron text with its time zone, or interval."""
    topic: str
    """Topic of its messages."""
    body: bytes
    """Body of its messages."""
    tag: str | None
    """Tag of its messages."""
    missed: str
    """Whether missed times fire `once` or `never`."""
    next_at: datetime | None
    """Next time, in UTC. In the past if no scheduler runs; None if there is none."""
    last_at: datetime | None
    """Latest time that fired, in UTC; None if none did."""
    error: str | None
    """Error of the latest attempt to fire; None without one."""


@lists_options(ClientOptions, CLIENT_DEFAULTS)
def add(
    name: str,
    *,
    topic: str,
    body: bytes | None = None,
    cron: str | None = None,
    every: Duration | None = None,
    timezone: str = "UTC",
    tag: str | None = None,
    missed: Literal["once", "never"] = "once",
    replace: bool = False,
    dry_run: bool = False,
    name_servers: Iterable[str] | str | None = None,
    **options: Unpack[ClientOptions],
) -> Schedule:
    """Stores a schedule at the broker. If the same one is stored already, nothing changes: call it at each start.

    Args:
        name: Name of the schedule: up to 100 characters of `a-z A-Z 0-9 _ - .`.
        topic: Topic of its messages.
        body: Body of its messages, up to 64 KiB; default: the name of the schedule.
        cron: Cron text of five fields, such as `0 3 * * MON-FRI`. Requires the extra `schedule`.
        every: Interval in whole seconds, or a timedelta, in place of `cron`. The first time is one interval from now.
        timezone: Time zone of the cron text, such as `Europe/Berlin`. Local times that a change of the clock skips fire
            right after it; those that it repeats fire once. Cron texts whose minute or hour begins with `*` follow
            elapsed time instead.
        tag: Tag of its messages.
        missed: Times that are more than a minute late, or followed by a later one: `once` fires the latest of them,
            `never` fires none.
        replace: Whether to replace a different schedule of this name.
        dry_run: Whether to check everything, and to store nothing.
        name_servers: `host:port` of each name server; default: the environment variable `NAMESRV_ADDR`.
        options: Keyword options, declared in `rocketpy.config.ClientOptions`.

    Returns:
        The stored schedule; after a dry run the one that would be stored, without times. A topic that does not exist is
        logged as a warning.

    Raises:
        ScheduleConflictError: A different schedule has this name. The error shows both; nothing was changed.
        InvalidArgumentError: A name, the cron text, the interval or the time zone is invalid; or the topic
            `rocketpy_schedules` has several queues, or is missing in a cluster of several brokers.
        RocketPyError: As for `Producer.send`. A retry is safe.
    """
    definition = _definition(name, topic, body, tag, missed, times_of(cron, every, timezone))
    with Journal(name_servers, options) as journal:
        queue = journal.queue() if dry_run else journal.made_queue()
        if queue is None:
            journal.check_one_broker()
        known = None if queue is None else journal.read(queue, Ledger()).entries.get(name)
        if known is None or (replace and known.definition != definition):
            record = add_record(TOPIC, name, uuid.uuid4().hex, definition, replace=replace)
            known = None if dry_run or queue is None else _append(journal, queue, record).entries[name]
        _warn_of_missing(journal, topic, name)
    if known is None:
        return Schedule(name, definition.times, topic, definition.body, tag, missed, None, None, None)
    if known.definition != definition:
        raise ScheduleConflictError(
            f"schedule {name} has another definition: stored: {known.definition}; given: {definition}",
            hint="give one of them another name, or replace the stored one with replace=True (--replace)",
        )
    return _shown(known)


@lists_options(ClientOptions, CLIENT_DEFAULTS)
def remove(
    name: str,
    *,
    dry_run: bool = False,
    name_servers: Iterable[str] | str | None = None,
    **options: Unpack[ClientOptions],
) -> None:
    """Removes a schedule. A time whose decision is stored already still fires.

    Args:
        name: Name of the schedule.
        dry_run: Whether to look it up only.
        name_servers: `host:port` of each name server; default: the environment variable `NAMESRV_ADDR`.
        options: Keyword options, declared in `rocketpy.config.ClientOptions`.

    Raises:
        ScheduleNotFoundError: No schedule has this name.
        RocketPyError: As for `Producer.send`. A retry is safe.
    """
    with Journal(name_servers, options) as journal:
        queue = journal.queue()
        known = None if queue is None else journal.read(queue, Ledger()).entries.get(name)
        if queue is None or known is None:
            hint = "`rocketpy schedule list` shows the schedules"
            raise ScheduleNotFoundError(f"no such schedule: {name}", hint=hint)
        if not dry_run:
            _append(journal, queue, remove_record(TOPIC, known))


@lists_options(ClientOptions, CLIENT_DEFAULTS)
def schedules(*, name_servers: Iterable[str] | str | None = None, **options: Unpack[ClientOptions]) -> list[Schedule]:
    """All stored schedules, sorted by name.

    Args:
        name_servers: `host:port` of each name server; default: the environment variable `NAMESRV_ADDR`.
        options: Keyword options, declared in `rocketpy.config.ClientOptions`.
    """
    with Journal(name_servers, options) as journal:
        queue = journal.queue()
        entries = {} if queue is None else journal.read(queue, Ledger()).entries
    return [_shown(entry) for _, entry in sorted(entries.items())]


def _definition(name: str, topic: str, body: bytes | None, tag: str | None, missed: str, times: Times) -> Definition:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", name):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(f"not a name of a schedule: {name!r}", hint="1 to 100 of a-z A-Z 0-9 _ - .")
    if missed not in (ONCE, NEVER):
        raise InvalidArgumentError(f"missed must be {ONCE!r} or {NEVER!r}, not {missed!r}")
    checked = Message(topic, name.encode() if body is None else body, tag=tag)
    if len(checked) > MAX_BODY_BYTES:
        raise InvalidArgumentError(f"body of a schedule exceeds {MAX_BODY_BYTES} bytes: {len(checked)}")
    return Definition(times, topic, checked.body, tag, missed)


def _warn_of_missing(journal: Journal, topic: str, name: str) -> None:
    try:
        journal.admin.queues(topic)
    except TopicNotFoundError as error:
        TopicNames(journal.name_servers, journal.options).explain(error, [topic])
        logger.warning("topic %s of schedule %s does not exist: %s", topic, name, error.hint)
    except RocketPyError as error:  # the schedule is stored
        logger.warning("topic %s of schedule %s cannot be checked: %s", topic, name, error)


def _append(journal: Journal, queue: MessageQueue, record: Message) -> Ledger:
    """Sends a record, and returns the state after it."""
    with Producer(EDITORS, name_servers=journal.name_servers, **journal.options) as producer:
        receipt = producer.send(record, queue=queue)
    return journal.read(queue, Ledger(), receipt.queue_offset + 1)


def _shown(entry: Entry) -> Schedule:
    wanted: Any = entry.definition
    return Schedule(
        entry.name,
        wanted.times,
        wanted.topic,
        wanted.body,
        wanted.tag,
        wanted.missed,
        datetime_of(entry.next_ms),
        datetime_of(entry.fired_ms),
        entry.error,
    )

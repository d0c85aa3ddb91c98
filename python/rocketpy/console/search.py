"""Searches of the messages page: parameters, parts of the queues to read, and the text that continues a read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from rocketpy.base.instant import datetime_of, instant_ms, now_ms
from rocketpy.console.filters import Filter, parse_filter
from rocketpy.console.reading import Limits, Reach, Span, read_messages
from rocketpy.console.rows import Choice, matches, row_of, size_of
from rocketpy.errors import InvalidArgumentError
from rocketpy.message import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import tzinfo

    from rocketpy._rocketpy import ReceivedMessage
    from rocketpy.admin.cluster import TopicInfo
    from rocketpy.aio.admin import AsyncAdmin
    from rocketpy.console.masking import Mask

__all__ = ["Search", "SearchError", "continued", "rest_text", "run_search", "time_of"]

STARTS = ("newest", "oldest", "time", "offset")
SIZES = (50, 100, 500)
MAX_REST = 6_000
"""Maximum length of the text that continues a read: it is part of an address."""
MAX_FOUND = 64
"""Maximum number of messages of the index: the limit of a broker for one answer."""
MAX_OFFSET = 2**63 - 1
CONCURRENT = 16
MAX_VALUE = 1_000
"""Maximum length of a key, id or tag in characters."""


class SearchError(ValueError):
    """Parameter of a search that cannot be used.

    Args:
        name: Name of the parameter.
        problem: Cause.
        at: Position in the value, if it is known.
    """

    def __init__(self, name: str, problem: str, at: int | None = None) -> None:
        super().__init__(problem)
        self.name, self.problem, self.at = name, problem, at


@dataclass(frozen=True, slots=True)
class Search:
    """Parameters of the messages page."""

    at: str = "newest"
    """`newest`, `oldest`, `time` or `offset`."""
    time_ms: int | None = None
    queue: tuple[str, int] | None = None
    """Name of the broker and number of the queue."""
    offset: int = 0
    key: str = ""
    unique_key: str = ""
    tag: str = ""
    where: str = ""
    tested: Filter | None = None
    rows: int = 50
    more: str = ""
    """Where an earlier read stopped."""

    @property
    def is_newest_first(self) -> bool:
        """Whether the newest messages come first."""
        return self.at == "newest"

    @property
    def uses_index(self) -> bool:
        """Whether brokers find the messages by their index of keys."""
        return bool(self.key or self.unique_key)

    def check(self, mask: Mask) -> None:
        """Refuses a search by a hidden field: its hits would tell the value.

        Raises:
            SearchError: The key or the tag is hidden.
            FilterError: The filter tests a hidden field.
        """
        for name, value in (("key", self.key), ("tag", self.tag)):
            if value and mask.hides_search(name):
                raise SearchError(name, f"your role may not search by {name} here")
        if self.tested is not None:
            mask.check(self.tested)

    @classmethod
    def of(cls, query: Mapping[str, str], zone: tzinfo = UTC) -> Search:
        """Reads the parameters of an address.

        Args:
            query: The parameters.
            zone: Zone of a time without one.

        Raises:
            SearchError: A parameter is invalid; the error names it.
            FilterError: The filter cannot be read.
        """
        given = {name: value.strip() for name, value in query.items()}
        at = given.get("at") or "newest"
        if at not in STARTS:
            raise SearchError("at", "start must be newest, oldest, time or offset")
        for name in ("key", "unique_key", "tag"):
            if len(given.get(name, "")) > MAX_VALUE:
                raise SearchError(name, f"text exceeds {MAX_VALUE:,} characters")
        where = given.get("where", "")
        return cls(
            at=at,
            time_ms=time_of(given.get("time", ""), zone) if at == "time" else None,
            queue=_queue(given.get("queue", ""), is_needed=at == "offset"),
            offset=_number("offset", given.get("offset") or "0", MAX_OFFSET) if at == "offset" else 0,
            key=given.get("key", ""),
            unique_key=given.get("unique_key", ""),
            tag=given.get("tag", ""),
            where=where,
            tested=parse_filter(where),
            rows=_number("size", given.get("size") or "50", SIZES[-1], 1),
            more=given.get("more", ""),
        )


def time_of(text: str, zone: tzinfo) -> int:
    """Milliseconds since 1970 of a time in a form.

    Args:
        text: ISO 8601, seconds since 1970, or an age such as `-10m`.
        zone: Zone of a time without one.

    Raises:
        SearchError: The text is not a time.
    """
    if not text:
        raise SearchError("time", "time is missing")
    try:
        moment = datetime.fromisoformat(text) if "-" in text[1:] or ":" in text else None
        if moment is not None and moment.tzinfo is None:
            return instant_ms(moment.replace(tzinfo=zone))
        return instant_ms(text)
    except (InvalidArgumentError, ValueError):
        raise SearchError("time", "write a time as 2026-01-31 12:00:00, or -10m for ten minutes ago") from None


def _queue(text: str, *, is_needed: bool) -> tuple[str, int] | None:
    if not text:
        if is_needed:
            raise SearchError("queue", "an offset needs one queue")
        return None
    broker_name, sign, number = text.rpartition(":")
    if not sign or not broker_name:
        raise SearchError("queue", "queue must be BROKER:NUMBER")
    return broker_name, _number("queue", number, 2**31 - 1)


def _number(name: str, text: str, most: int, least: int = 0) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 20 or not least <= int(text) <= most:
        raise SearchError(name, f"{name} must be a number from {least} to {most}")
    return int(text)


def rest_text(rest: Iterable[Span]) -> str | None:
    """Where a read stopped, as text of an address; None if it is too long.

    Examples:
        >>> queue = MessageQueue("orders", "broker-a", 3)
        >>> rest_text([Span(queue, 0, 5119, 7)])
        'broker-a/3.0.5119.7'
    """
    by_broker: dict[str, list[str]] = {}
    for span in rest:
        numbers = f"{span.queue.queue_id}.{span.start}.{span.end}.{span.bound_ms}"
        by_broker.setdefault(span.queue.broker_name, []).append(numbers)
    text = "|".join(f"{quote(name, safe='')}/{','.join(parts)}" for name, parts in by_broker.items())
    return text if len(text) <= MAX_REST else None


def continued(text: str, topic: str) -> list[Span]:
    """Spans of the text of `rest_text`.

    Raises:
        SearchError: The text is malformed.

    Examples:
        >>> continued("broker-a/3.0.5119.7", "orders")
        [Span(queue=MessageQueue(topic='orders', broker_name='broker-a', queue_id=3), start=0, end=5119, bound_ms=7)]
    """
    spans: list[Span] = []
    for part in text.split("|"):
        name, _, queues = part.partition("/")
        for one in queues.split(","):
            numbers = [_number("more", number, MAX_OFFSET) for number in one.split(".")]
            if len(numbers) != 4:
                raise SearchError("more", "the place to continue at is malformed")
            spans.append(Span(MessageQueue(topic, unquote(name), numbers[0]), *numbers[1:]))
    return spans


async def spans_of(admin: AsyncAdmin, search: Search, info: TopicInfo) -> list[Span]:
    """Parts of the queues that a search reads.

    Args:
        admin: The client of the visitor.
        search: The search.
        info: The topic.
    """
    if search.more:
        known = {one.queue for one in info.queues}
        return [span for span in continued(search.more, info.name) if span.queue in known]
    queues = [one for one in info.queues if search.queue in (None, (one.queue.broker_name, one.queue.queue_id))]
    if search.queue is not None and not queues and not info.missing:
        raise SearchError("queue", f"topic has no queue {search.queue[0]}:{search.queue[1]}")
    if search.at == "time" and search.time_ms is not None:
        bound = asyncio.Semaphore(CONCURRENT)
        since = datetime_of(search.time_ms) or search.time_ms / 1000

        async def start(queue: MessageQueue) -> int:
            async with bound:
                return await admin.search_offset(queue, since)

        starts = await asyncio.gather(*(start(one.queue) for one in queues))
        return [Span(one.queue, at, one.max_offset) for one, at in zip(queues, starts, strict=True)]
    if search.at == "offset":
        return [Span(one.queue, max(search.offset, one.min_offset), one.max_offset) for one in queues]
    bounds = [round(one.last_stored_at.timestamp() * 1000) if one.last_stored_at else now_ms() for one in queues]
    return [
        Span(one.queue, one.min_offset, one.max_offset, bound if search.is_newest_first else 0)
        for one, bound in zip(queues, bounds, strict=True)
    ]


async def run_search(admin: AsyncAdmin, topic: str, search: Search, choice: Choice, limits: Limits) -> Reach:
    """Runs a search.

    Args:
        admin: The client of the visitor.
        topic: The topic.
        search: The search.
        choice: Which messages get a row.
        limits: Limits of the request.

    Raises:
        SearchError: A parameter does not fit the topic.
        RocketPyError: The topic does not exist, or no broker answers.
    """
    if search.uses_index:
        return await _indexed(admin, topic, search, choice)
    info = await admin.describe_topic(topic, partial=True)
    spans = await spans_of(admin, search, info)
    reach = await read_messages(admin, spans, choice, limits, is_newest_first=search.is_newest_first)
    reach.problems += [f"{one.broker_name} does not answer: its queues are left out" for one in info.missing]
    return reach


async def _indexed(admin: AsyncAdmin, topic: str, search: Search, choice: Choice) -> Reach:
    found: list[ReceivedMessage] = []
    problems: list[str] = []
    if search.unique_key:
        one = await admin.message(topic, search.unique_key)
        found += [one] if one is not None else []
    else:
        answers = await admin.query_messages(topic, search.key, max_messages=MAX_FOUND, partial=True)
        found += reversed(answers)
        problems = [f"{one.broker_name} does not answer: its messages are left out" for one in answers.missing]
    return await asyncio.to_thread(_chosen, found, choice, problems)


def _chosen(found: list[ReceivedMessage], choice: Choice, problems: list[str]) -> Reach:
    rows = [row_of(one, choice) for one in found if matches(one, choice)]
    return Reach(rows, len(found), len(found), sum(size_of(one) for one in found), problems=problems)

"""Dead letters for pages: filters, pages from the newest, and places in forms and URLs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketpy.admin.dead_letters import DeadLetter, DeadLetterFilter, topic_of
from rocketpy.base.clock import monotonic
from rocketpy.console.resets import utc
from rocketpy.errors import UNREADABLE_BODY, InvalidArgumentError, OffsetError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping

    from rocketpy import MessageQueue, ReceivedMessage
    from rocketpy.admin.answers import MissingBroker
    from rocketpy.admin.cluster import QueueInfo
    from rocketpy.aio.admin import AsyncAdmin

__all__ = [
    "Letters",
    "Page",
    "Place",
    "Summary",
    "filter_of",
    "letter_at",
    "letters_at",
    "matching",
    "page_of",
    "places_of",
    "summary_of",
]

PAGE = 50
"""Number of letters of one page."""
READ_BACKWARDS = 32
"""Number of letters that one read brings."""
MAX_SECONDS = 2.0
MAX_BYTES = 64 << 20
MAX_READ = 100_000
"""Limits of one search: duration, size of bodies, number of letters."""
MAX_SELECTED = 500
"""Maximum number of selected letters of one form."""
REASONS = {"RETRIES_EXHAUSTED": "retries exhausted", "GIVEN_UP": "given up"}
"""Reasons by their names in properties."""
NO_REASON = "none"
"""Name of the filter for letters without a recorded reason."""


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a dead letter."""

    broker: str
    queue: int
    offset: int

    def __str__(self) -> str:
        return f"{self.broker}:{self.queue}:{self.offset}"

    @classmethod
    def of(cls, letter: DeadLetter) -> Place:
        """Position of a letter."""
        message = letter.message
        return cls(message.broker_name, message.queue_id, message.queue_offset)

    @classmethod
    def parse(cls, text: str) -> Place:
        """Reads `broker:queue:offset`.

        Raises:
            InvalidArgumentError: The text has another form.
        """
        broker, _, rest = text.rpartition(":")[0].rpartition(":")
        offset = text.rpartition(":")[2]
        if not broker or not is_number(rest) or not is_number(offset):
            raise InvalidArgumentError(f"place of a dead letter must be BROKER:QUEUE:OFFSET: {text[:100]}")
        return cls(broker, int(rest), int(offset))


def is_number(text: str) -> bool:
    """Whether a text is a number that fits an offset."""
    return text.isascii() and text.isdigit() and len(text) < 19


def places_of(form: Iterable[tuple[str, str]]) -> list[Place]:
    """Selected letters of a form: its fields `place`, each `BROKER:QUEUE:OFFSET`.

    Raises:
        InvalidArgumentError: A field has another form, or too many letters are selected.
    """
    found = [Place.parse(value) for name, value in form if name == "place"]
    if len(found) > MAX_SELECTED:
        raise InvalidArgumentError(f"selection exceeds {MAX_SELECTED} dead letters: {len(found)}")
    return found


@dataclass(frozen=True, slots=True)
class Letters:
    """Filter of a page."""

    topic: str = ""
    reason: str = ""
    """`GIVEN_UP`, `RETRIES_EXHAUSTED`, `none`, or empty for all."""
    since: str = ""
    until: str = ""
    key: str = ""

    @property
    def fields(self) -> dict[str, str]:
        """The conditions that are given, for URLs and hidden fields."""
        found = {name: getattr(self, name) for name in ("topic", "reason", "since", "until", "key")}
        return {name: value for name, value in found.items() if value}

    @property
    def native(self) -> DeadLetterFilter:
        """The filter of the SDK, without the reason."""
        return DeadLetterFilter(
            topic=self.topic or None,
            since=utc(self.since) if self.since else None,
            until=utc(self.until) if self.until else None,
            key=self.key or None,
        )

    def matcher(self) -> Callable[[DeadLetter], bool]:
        """Predicate of this filter.

        Raises:
            InvalidArgumentError: A time is invalid.
        """
        is_meant = self.native.matcher()
        reason = None if self.reason == NO_REASON else self.reason
        return lambda letter: is_meant(letter) and (not self.reason or letter.reason == reason)

    @property
    def words(self) -> str:
        """The filter in words, for the audit and the job."""
        return ", ".join(f"{name} {value}" for name, value in self.fields.items()) or "all"


def filter_of(query: Mapping[str, str]) -> Letters:
    """Reads the filter of a query or a form."""
    return Letters(**{name: query.get(name, "").strip() for name in ("topic", "reason", "since", "until", "key")})


@dataclass(slots=True)
class Page:
    """Dead letters of one page."""

    letters: list[DeadLetter] = field(default_factory=list[DeadLetter])
    read: int = 0
    """Number of letters that were read."""
    older: str = ""
    """Where the next page continues; empty at the end."""
    stopped: str = ""
    """Reason why the search stopped before the page was full; empty otherwise."""
    missing: tuple[MissingBroker, ...] = ()


async def queues_of(admin: AsyncAdmin, group: str) -> tuple[tuple[QueueInfo, ...], tuple[MissingBroker, ...]]:
    """Queues of the dead-letter topic of a group; none if it has no dead letters.

    Raises:
        GroupNotFoundError: The group does not exist.
    """
    try:
        topic = await admin.describe_topic(topic_of(group), partial=True)
    except TopicNotFoundError:
        await admin.describe_group(group)  # refuses a name that nobody has
        return (), ()
    return topic.queues, topic.missing


async def page_of(
    admin: AsyncAdmin, group: str, which: Letters, *, older: str = "", size: int = PAGE, seconds: float = MAX_SECONDS
) -> Page:
    """The newest matching dead letters of all queues.

    Args:
        admin: Client.
        group: The group.
        which: Filter.
        older: Where an earlier page stopped.
        size: Maximum number of letters.
        seconds: Maximum duration of the search.

    Raises:
        GroupNotFoundError: The group does not exist.
        InvalidArgumentError: A time of the filter or the position is invalid.
    """
    is_meant = which.matcher()
    queues, missing = await queues_of(admin, group)
    ends = {str(one.queue): one.max_offset for one in queues} | ends_of(queues, older)
    page, deadline, left = Page(missing=missing), monotonic() + seconds, MAX_BYTES
    merged = newest(admin, group, [(one, ends[str(one.queue)]) for one in queues])
    async for letter in merged:
        if len(page.letters) == size:
            break
        ends[str(letter.message.queue)] = letter.message.queue_offset
        page.read += 1
        left -= size_of(letter.message)
        if is_meant(letter):
            page.letters.append(letter)
        if left < 0 or page.read >= MAX_READ or monotonic() > deadline:
            page.stopped = f"the search read {page.read:,} dead letters, and stopped at its limit"
            break
    await merged.aclose()
    rest = [(one, ends[str(one.queue)]) for one in queues if ends[str(one.queue)] > one.min_offset]
    if rest:
        places = (Place(one.queue.broker_name, one.queue.queue_id, ends[str(one.queue)]) for one in queues)
        page.older = ",".join(map(str, places))
    else:
        page.stopped = ""
    return page


def ends_of(queues: Iterable[QueueInfo], older: str) -> dict[str, int]:
    """Offsets after the last letter of a page, by queue; queues that are gone are left out."""
    given = [Place.parse(text) for text in older.split(",")] if older else []
    by_name = {(one.queue.broker_name, one.queue.queue_id): one for one in queues}
    found: dict[str, int] = {}
    for place in given:
        info = by_name.get((place.broker, place.queue))
        if info is not None:
            found[str(info.queue)] = min(place.offset, info.max_offset)
    return found


async def newest(
    admin: AsyncAdmin, group: str, parts: Iterable[tuple[QueueInfo, int]]
) -> AsyncGenerator[DeadLetter, None]:
    """The letters of all queues before an offset of each, the newest first."""
    rests = [backwards(admin, info, end) for info, end in parts]
    heads = [(head, rest) for rest in rests if (head := await anext(rest, None)) is not None]
    while heads:
        at = max(range(len(heads)), key=lambda one: heads[one][0].stored_at_ms)
        message, rest = heads.pop(at)
        yield DeadLetter(group, message)
        following = await anext(rest, None)
        if following is not None:
            heads.append((following, rest))


async def backwards(admin: AsyncAdmin, info: QueueInfo, end: int) -> AsyncIterator[ReceivedMessage]:
    """The messages of a queue before an offset, the newest first. Messages that expire meanwhile end it."""
    while end > info.min_offset:
        start = max(info.min_offset, end - READ_BACKWARDS)
        try:
            messages = await admin.read(info.queue, start, end, max_messages=READ_BACKWARDS)
        except OffsetError:
            return
        for message in reversed(messages):
            yield message
        end = start


async def matching(admin: AsyncAdmin, group: str, which: Letters) -> AsyncIterator[DeadLetter]:
    """All letters that match now, the oldest first. Letters that are stored later are not part of it."""
    is_meant = which.matcher()
    async for letter in admin.dead_letters(group, which.native):
        if is_meant(letter):
            yield letter


async def letters_at(admin: AsyncAdmin, group: str, places: Iterable[Place]) -> AsyncIterator[DeadLetter]:
    """Letters at places. Expired ones are left out.

    Raises:
        InvalidArgumentError: The dead-letter topic does not have a queue.
    """
    queues, _ = await queues_of(admin, group)
    by_name: dict[tuple[str, int], MessageQueue] = {
        (one.queue.broker_name, one.queue.queue_id): one.queue for one in queues
    }
    for place in places:
        queue = by_name.get((place.broker, place.queue))
        if queue is None:
            raise InvalidArgumentError(f"dead letters of group {group} have no queue {place.broker}:{place.queue}")
        try:
            messages = await admin.read(queue, place.offset, place.offset + 1, max_messages=1)
        except OffsetError:
            continue
        for message in messages:
            yield DeadLetter(group, message)


async def letter_at(admin: AsyncAdmin, group: str, place: Place) -> DeadLetter | None:
    """The letter at a place; None if it has expired or does not exist, also with its queue or topic."""
    try:
        return await anext(letters_at(admin, group, [place]), None)
    except InvalidArgumentError:
        return None


@dataclass(slots=True)
class Summary:
    """Letters that a resend would send, before it starts."""

    count: int = 0
    topics: Counter[str] = field(default_factory=Counter[str])
    """Number of letters by target topic."""
    without_topic: int = 0
    is_complete: bool = True
    """Whether all letters were counted within the limits."""


async def summary_of(letters: AsyncIterator[DeadLetter], to: str | None, *, seconds: float = MAX_SECONDS) -> Summary:
    """Counts letters by target topic, at most `MAX_READ` and within a duration."""
    found, deadline = Summary(), monotonic() + seconds
    async for letter in letters:
        found.count += 1
        target = to or letter.topic
        if target is None:
            found.without_topic += 1
        else:
            found.topics[target] += 1
        if found.count >= MAX_READ or monotonic() > deadline:
            found.is_complete = False
            break
    return found


def size_of(message: ReceivedMessage) -> int:
    """Size of a body in bytes; 0 for one that does not decompress."""
    try:
        return len(message.body_view)
    except UNREADABLE_BODY:
        return 0

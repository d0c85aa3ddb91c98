"""Reading across queues: order, continuation, filters and limits, against a false client."""

import asyncio
import random
from typing import Any, cast

import pytest
from fake_sdk import FakeAdmin, FakeMessage

from rocketpy import AsyncAdmin, MessageQueue
from rocketpy.base.clock import monotonic
from rocketpy.console.filters import parse_filter
from rocketpy.console.reading import Limits, Reach, Span, read_messages
from rocketpy.console.rows import Choice, seen_of

MIB = 1 << 20


def stored_topic(chance: random.Random, queues: int, most: int, body: bytes = b"{}") -> FakeAdmin:
    """A topic whose queues have random numbers of messages with rising times."""
    found: dict[MessageQueue, list[FakeMessage]] = {}
    for number in range(queues):
        queue, at = MessageQueue("orders", "broker-a", number), 0
        found[queue] = []
        for offset in range(chance.randrange(most + 1)):
            at += chance.randrange(3)
            found[queue].append(FakeMessage(queue, offset, at, body))
    return FakeAdmin(found, chance.choice([1, 3, 32]))


def spans_of(admin: FakeAdmin, *, is_newest_first: bool) -> list[Span]:
    return [
        Span(queue, 0, len(stored), stored[-1].stored_at_ms if stored and is_newest_first else 0)
        for queue, stored in admin.queues.items()
    ]


def read(admin: FakeAdmin, spans: Any, choice: Choice | None = None, *, newest: bool = True, **limits: Any) -> Reach:
    given = {"seconds": 60.0, **limits}
    client = cast("AsyncAdmin", admin)
    return asyncio.run(read_messages(client, spans, choice or Choice(), Limits(**given), is_newest_first=newest))


@pytest.mark.parametrize("newest", [True, False])
def test_continued_pages_have_every_message_once_in_order(chance: random.Random, newest: bool):
    for _ in range(30):
        admin = stored_topic(chance, chance.randrange(1, 12), 40)
        total = sum(len(stored) for stored in admin.queues.values())
        spans: Any = spans_of(admin, is_newest_first=newest)
        rows, times = [], []
        while spans:
            reach = read(admin, spans, newest=newest, rows=chance.randrange(1, 60))
            assert reach.total == total - len(rows)
            assert reach.read == len(reach.rows)
            assert reach.stopped == ("rows" if reach.rest else reach.stopped)
            rows += [(row.queue_id, row.offset) for row in reach.rows]
            times += [
                admin.queues[MessageQueue("orders", "broker-a", q)][at].stored_at_ms for q, at in rows[len(times) :]
            ]
            spans = reach.rest
        assert len(rows) == len(set(rows)) == total
        assert times == sorted(times, reverse=newest)


def test_newest_page_of_a_large_topic_reads_little(chance: random.Random):
    queue_count = 16
    admin = FakeAdmin({})
    for number in range(queue_count):
        queue = MessageQueue("orders", "broker-a", number)
        admin.queues[queue] = [FakeMessage(queue, at, at * queue_count + number, b"{}") for at in range(5000)]
    reach = read(admin, spans_of(admin, is_newest_first=True))
    assert (len(reach.rows), reach.read, reach.total, reach.stopped) == (50, 50, 80_000, "rows")
    assert [row.queue_id for row in reach.rows[:3]] == [15, 14, 13]
    assert admin.messages <= 8 + queue_count * 8


def test_filter_reads_on_until_the_page_is_full():
    queue = MessageQueue("orders", "broker-a", 0)
    admin = FakeAdmin({queue: [FakeMessage(queue, at, at, b'{"n": %d}' % at) for at in range(3000)]})
    choice = Choice(tested=parse_filter("n in [5, 2990]"))
    reach = read(admin, spans_of(admin, is_newest_first=True), choice)
    assert [row.offset for row in reach.rows] == [2990, 5]
    assert (reach.read, reach.stopped, reach.rest) == (3000, "end", ())


@pytest.mark.parametrize("newest", [True, False])
def test_byte_limit_stops_the_read_and_keeps_what_was_merged(newest: bool):
    queues = [MessageQueue("orders", "broker-a", number) for number in range(8)]
    admin = FakeAdmin({q: [FakeMessage(q, at, at, bytes(4 * MIB)) for at in range(64)] for q in queues}, 1)
    choice = Choice(tested=parse_filter('tag == "x"'))
    reach = read(admin, spans_of(admin, is_newest_first=newest), choice, newest=newest)
    assert reach.stopped == "bytes"
    assert 64 * MIB <= reach.size <= (64 + 8 * 4) * MIB
    assert 0 < reach.read <= 24
    assert sum(span.end - span.start for span in reach.rest) == 512 - reach.read


def test_pages_within_the_byte_limit_reach_the_end():
    queues = [MessageQueue("orders", "broker-a", number) for number in range(3)]
    admin = FakeAdmin({q: [FakeMessage(q, at, at, bytes(1000)) for at in range(20)] for q in queues}, 4)
    spans: Any = spans_of(admin, is_newest_first=True)
    rows, turns = 0, 0
    while spans:
        reach = read(admin, spans, size=12_000)
        assert reach.read > 0
        rows, spans, turns = rows + len(reach.rows), reach.rest, turns + 1
    assert rows == 60
    assert turns > 3


def test_time_limit_ends_a_read_that_hangs():
    queues = [MessageQueue("orders", "broker-a", number) for number in range(2)]
    admin = FakeAdmin({q: [FakeMessage(q, at, at, b"x") for at in range(100)] for q in queues})
    admin.stuck = {queues[1]}
    reach = read(admin, spans_of(admin, is_newest_first=False), newest=False, seconds=0.2)
    assert reach.stopped == "time"
    assert len(reach.rest) == 2


def test_message_limit_stops_a_filter():
    queue = MessageQueue("orders", "broker-a", 0)
    admin = FakeAdmin({queue: [FakeMessage(queue, at, at, b"x") for at in range(500)]})
    choice = Choice(tag="none")
    reach = read(admin, spans_of(admin, is_newest_first=True), choice, messages=200)
    assert (reach.read, reach.stopped, reach.rest[0].end) == (200, "messages", 300)


@pytest.mark.parametrize("newest", [True, False])
def test_queue_of_a_silent_broker_is_named_and_kept_for_the_next_page(newest: bool):
    queues = [MessageQueue("orders", "broker-a", number) for number in range(2)]
    admin = FakeAdmin({q: [FakeMessage(q, at, at, b"x") for at in range(10)] for q in queues})
    admin.silent = {queues[0]}
    reach = read(admin, spans_of(admin, is_newest_first=newest), newest=newest)
    assert {row.queue_id for row in reach.rows} == {1}
    assert reach.problems == ["cannot read queue 0 of broker-a: broker did not answer"]
    assert [(span.queue, span.start, span.end) for span in reach.rest] == [(queues[0], 0, 10)]


@pytest.mark.parametrize("newest", [True, False])
def test_expired_messages_are_left_out(newest: bool):
    queue = MessageQueue("orders", "broker-a", 0)
    admin = FakeAdmin({queue: [FakeMessage(queue, at, at, b"x") for at in range(60)]})
    admin.expired[queue] = 55
    reach = read(admin, spans_of(admin, is_newest_first=newest), newest=newest)
    offsets = sorted(row.offset for row in reach.rows)
    assert offsets == list(range(55, 60))
    assert reach.problems == []


def test_deadline_ends_the_filter_between_two_messages():
    queue = MessageQueue("orders", "broker-a", 0)
    messages = cast("Any", [FakeMessage(queue, 0, 0, b"x")])
    assert len(seen_of(messages, Choice(), monotonic() + 60)) == 1
    with pytest.raises(TimeoutError):
        seen_of(messages, Choice(), monotonic() - 1)

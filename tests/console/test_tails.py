"""Live tails: how many there may be, what a tick shows, and the events of the stream."""

import asyncio
from typing import Any, cast

import pytest
from fake_sdk import FakeAdmin, FakeMessage
from message_pages import CLUSTER, audited, console_of, opened, text_of

from rocketpy import AsyncAdmin, Message, MessageQueue
from rocketpy.console.filters import parse_filter
from rocketpy.console.pages import tail as tail_page
from rocketpy.console.rows import Choice
from rocketpy.console.tails import Batch, Tail, TailError, Tails, batches
from rocketpy.testing import PatientServer, fresh_name

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]


def test_second_tail_of_a_session_ends_the_first():
    tails = Tails()
    first = tails.begin("session", "ada", "page-1")
    second = tails.begin("session", "ada", "page-2")
    assert first.over.is_set()
    assert first.reason == "Another tail of this browser has begun."
    assert not second.over.is_set()
    with pytest.raises(TailError, match="Another tail"):
        tails.begin("session", "ada", "page-1")
    assert len(tails) == 1


def test_connection_that_is_made_again_continues_its_tail():
    tails = Tails()
    first = tails.begin("session", "ada", "page-1")
    second = tails.begin("session", "ada", "page-1")
    assert first.over.is_set()
    assert not second.over.is_set()
    tails.finish(first)
    assert len(tails) == 1
    tails.finish(second)
    assert len(tails) == 0


def test_third_tail_of_a_user_ends_the_oldest():
    tails = Tails()
    one, two, three = (tails.begin(f"session-{n}", "ada", f"page-{n}") for n in range(3))
    assert (one.over.is_set(), two.over.is_set(), three.over.is_set()) == (True, False, False)
    assert "at most 2" in one.reason


def test_ninth_tail_of_a_console_is_refused():
    tails = Tails()
    for number in range(8):
        tails.begin(f"session-{number}", f"user-{number}", f"page-{number}")
    with pytest.raises(TailError, match="8 tails already"):
        tails.begin("session-8", "user-8", "page-8")
    assert len(tails) == 8


def test_close_ends_all_tails():
    tails = Tails()
    tail = tails.begin("session", "ada", "page")
    asyncio.run(tails.close())
    assert tail.over.is_set()
    assert len(tails) == 0


def new_messages(admin: FakeAdmin, queue: MessageQueue, count: int, body: bytes = b"x") -> None:
    stored = admin.queues[queue]
    at = 1 + max((one.stored_at_ms for all_of in admin.queues.values() for one in all_of), default=0)
    stored += [FakeMessage(queue, len(stored) + n, at + n, body) for n in range(count)]


def followed(admin: FakeAdmin, arrivals: list[int], choice: Choice | None = None) -> list[Batch]:
    """Batches of a tail for which so many messages arrive between two ticks."""

    async def run() -> list[Batch]:
        tail, found = Tail("session", "ada", "page"), []
        new_messages(admin, QUEUES[0], 10, b"old")
        pending = iter(arrivals)
        client = cast("AsyncAdmin", admin)
        before = admin.describe_topic

        async def describe(topic: str, *, partial: bool = False) -> Any:
            if started and (count := next(pending, None)) is not None:
                for number in range(count):
                    new_messages(admin, QUEUES[number % 3], 1, b'{"n": %d}' % number)
            elif started:
                tail.end("done")
            started.append(True)
            return await before(topic, partial=partial)

        started: list[bool] = []
        admin.describe_topic = describe  # type: ignore[method-assign]
        async for batch in batches(client, "orders", choice or Choice(), tail):
            found.append(batch)
        return found

    return asyncio.run(run())


def test_tail_begins_at_the_end_and_shows_the_newest(monkeypatch):
    monkeypatch.setattr("rocketpy.console.tails.TICK_SECONDS", 0.01)
    admin = FakeAdmin({queue: [] for queue in QUEUES})
    first, second = [batch for batch in followed(admin, [3, 100]) if batch.rows]
    assert [row.preview for row in first.rows] == ['{"n": 2}', '{"n": 1}', '{"n": 0}']
    assert (first.shown, first.arrived, first.skipped) == (3, 3, 0)
    assert [row.preview for row in second.rows] == [f'{{"n": {n}}}' for n in (99, 98, 97, 96, 95)]
    assert (second.shown, second.arrived, second.skipped) == (8, 103, 95)


def test_tail_with_a_filter_shows_matches_only(monkeypatch):
    monkeypatch.setattr("rocketpy.console.tails.TICK_SECONDS", 0.01)
    admin = FakeAdmin({queue: [] for queue in QUEUES})
    found = followed(admin, [60], Choice(tested=parse_filter("n in [7, 8]")))
    assert [row.preview for batch in found for row in batch.rows] == ['{"n": 8}', '{"n": 7}']
    assert max(batch.skipped for batch in found) == 0


def test_silent_broker_is_named_and_ends_nothing(monkeypatch):
    monkeypatch.setattr("rocketpy.console.tails.TICK_SECONDS", 0.01)
    admin = FakeAdmin({queue: [] for queue in QUEUES})
    admin.silent = {QUEUES[1]}
    (batch,) = [batch for batch in followed(admin, [3]) if batch.problem]
    assert batch.problem == "cannot read queue 1 of broker-a: broker did not answer"
    assert len(batch.rows) == 2


def test_stream_has_rows_as_text_and_removes_old_ones(rocketpy_server: PatientServer):
    topic = fresh_name("tail")
    with opened(rocketpy_server.name_server) as client, rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=1)
        page = client.get(f"{CLUSTER}/topics/{topic}/tail").text
        assert 'hx-sse:connect="' in page
        assert f"{CLUSTER}/topics/{topic}/tail/stream?name=" in page
        console = console_of(client)
        view = FakeView(console)

        async def follow() -> list[str]:
            tails, found = Tails(), []
            tail = tails.begin("session", "ada", "page")
            async with AsyncAdmin(rocketpy_server.name_server) as view.admin:
                async for text in tail_page.events(cast("Any", view), topic, Choice(), tails, tail):
                    found.append(text)
                    if len(found) == 1:
                        await asyncio.to_thread(send_script, rocketpy_server, topic)
                    if "alert" in text:
                        tail.end("Enough.")
            assert len(tails) == 0
            return found

        found = asyncio.run(asyncio.wait_for(follow(), 60))
        text = "".join(found)
        assert "<script>" not in text
        assert "&lt;script&gt;alert(1)" in text
        assert all(line.startswith(("data: ", "event: ")) for line in text.splitlines() if line)
        assert "Stopped. Enough." in found[-2]
        assert found[-1] == "event: over\ndata: \n\n"
        assert view.ended == ["1 messages shown"]


def send_script(server: PatientServer, topic: str) -> None:
    with server.producer("console-tail") as producer:
        producer.send(Message(topic, b"<script>alert(1)</script>\n\nevent: over", keys=["<b>"]))


class FakeView:
    """What the stream uses of a view."""

    zone = None
    admin: Any

    def __init__(self, console: Any) -> None:
        import datetime

        self.console, self.zone, self.ended = console, datetime.UTC, []

    def url(self, *parts: str, **_query: object) -> str:
        return "/" + "/".join(parts)

    def act(self, action: str, _target: str, **_more: Any) -> Any:
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def acted() -> Any:
            yield self

        return acted()

    def result(self, text: str, after: Any = None) -> None:
        self.ended.append(text)


def test_refused_stream_says_why_and_ends(rocketpy_server: PatientServer):
    topic = fresh_name("tail")
    with opened(rocketpy_server.name_server) as client, rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=1)
        tails = console_of(client).extra("tails", Tails)
        for number in range(8):
            tails.begin(f"session-{number}", f"user-{number}", f"page-{number}")
        answer = client.get(f"{CLUSTER}/topics/{topic}/tail/stream")
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "This console has 8 tails already." in answer.text
        assert answer.text.endswith("event: over\ndata: \n\n")
        assert not audited(client, "tail messages")
        headers = {"Sec-Fetch-Site": "cross-site"}
        answer = client.get(f"{CLUSTER}/topics/{topic}/tail/stream", headers=headers)
        assert "does not come from a page of this console" in answer.text
        answer = client.get(f"{CLUSTER}/topics/{topic}/tail/stream", params={"where": "a = 1"})
        assert "write `==` at character 3" in answer.text
        page = client.get(f"{CLUSTER}/topics/{topic}/tail", params={"where": "a = 1"})
        assert page.status_code == 400
        assert "write `==` at character 3" in text_of(page.text)
        assert "hx-sse:connect" not in page.text


def test_page_keeps_two_hundred_rows():
    from collections import deque

    from rocketpy.console.rows import MessageRow

    kept: deque[str] = deque()
    gone: list[str] = []

    class Counted(FakeView):
        def __init__(self) -> None:
            super().__init__(None)

    def fragment(_view: Any, _macro: str, *values: Any) -> str:
        gone.extend(values[2])
        return ""

    rows = [MessageRow("orders", "broker-a", 0, n, None, (), None, "", 0, "") for n in range(230)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail_page, "fragment", fragment)
        for at in range(0, 230, 5):
            batch = Batch(tuple(reversed(rows[at : at + 5])), 5, 5, 0)
            tail_page.batch_text(cast("Any", Counted()), batch, kept)
    assert len(kept) == 200
    assert gone == [tail_page.place_of(row) for row in rows[:30]]

"""Dead letters for pages and jobs of resends, on a real server."""

import asyncio
import json

import pytest
from wire import give_up

from rocketpy import AsyncAdmin, DeadLetterFilter, GroupNotFoundError, InvalidArgumentError, Message
from rocketpy.base.instant import now_ms
from rocketpy.base.message_facts import letter_facts
from rocketpy.console.exports import Exports
from rocketpy.console.jobs import Jobs, Order
from rocketpy.console.letters import (
    Letters,
    Place,
    filter_of,
    letter_at,
    letters_at,
    matching,
    page_of,
    places_of,
    summary_of,
)
from rocketpy.console.resets import Target, plan_of
from rocketpy.testing import fresh_name
from waiting import wait_until


@pytest.fixture
def group():
    return fresh_name("gives-up")


@pytest.fixture
def dead(rocketpy_server, rocketpy_topic, group):
    """Five dead letters of a topic, the last two with an error of their handler."""
    with rocketpy_server.producer("shop") as producer, rocketpy_server.admin() as admin:
        sent = [producer.send(Message(rocketpy_topic, b"%d" % n, keys=[f"k-{n}"])) for n in range(5)]
        give_up(rocketpy_server.broker, group, *sent[:3])
        give_up(rocketpy_server.broker, group, *sent[3:], error="ValueError: <b>bad</b>")
        wait_until(lambda: len(list(admin.dead_letters(group, DeadLetterFilter()))) == 5)
    return sent


def on(server, main):
    """Runs a coroutine with a client of the server."""

    async def run():
        async with AsyncAdmin(server.name_server) as admin:
            return await main(admin)

    return asyncio.run(run())


def keys(letters):
    return [one.message.keys[0] for one in letters]


def test_pages_of_letters_continue_from_the_newest_until_the_end(rocketpy_server, dead, group):
    async def main(admin):
        pages, older = [], ""
        while not pages or older:
            page = await page_of(admin, group, Letters(), older=older, size=2)
            pages.append(keys(page.letters))
            older = page.older
            assert len(pages) < 9, "each page continues the one before"
        return pages

    assert on(rocketpy_server, main) == [["k-4", "k-3"], ["k-2", "k-1"], ["k-0"]]


def test_pages_merge_the_queues_of_a_topic_by_time(rocketpy_server, group):
    topic, order = f"%DLQ%{group}", [0, 1, 1, 0, 1, 0, 0]
    with rocketpy_server.producer("shop") as producer, rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=2)
        queues = admin.queues(topic)
        for number, queue in enumerate(order):
            producer.send(Message(topic, b"x", keys=[f"k-{number}"]), queue=queues[queue])
            at = now_ms()
            wait_until(lambda at=at: now_ms() > at + 1)  # each has a time of its own
        wait_until(lambda: len(list(admin.dead_letters(group))) == len(order))

    async def main(admin):
        pages, older = [], ""
        while not pages or older:
            page = await page_of(admin, group, Letters(), older=older, size=3)
            pages.append(keys(page.letters))
            older = page.older
            assert len(pages) < 9, "each page continues the one before"
        return pages

    assert on(rocketpy_server, main) == [["k-6", "k-5", "k-4"], ["k-3", "k-2", "k-1"], ["k-0"]]


def test_letters_are_filtered_by_reason_topic_time_and_key(rocketpy_server, rocketpy_topic, dead, group):
    async def main(admin):
        found = {}
        for name, query in {
            "reason": {"reason": "GIVEN_UP"},
            "no reason": {"reason": "none"},
            "topic": {"topic": rocketpy_topic},
            "other topic": {"topic": "other"},
            "key": {"key": " k-3 "},
            "since": {"since": "2100-01-01"},
            "until": {"until": "2100-01-01 00:00"},
        }.items():
            which = filter_of(query)
            page = await page_of(admin, group, which)
            assert keys(page.letters) == list(reversed(keys([one async for one in matching(admin, group, which)])))
            found[name] = len(page.letters)
        return found

    assert on(rocketpy_server, main) == {
        "reason": 5, "no reason": 0, "topic": 5, "other topic": 0, "key": 1, "since": 0, "until": 5,
    }  # fmt: skip


def test_search_that_reaches_its_limit_says_so_and_continues(rocketpy_server, dead, group):
    async def main(admin):
        page = await page_of(admin, group, Letters(key="k-0"), seconds=0)
        rest = await page_of(admin, group, Letters(key="k-0"), older=page.older)
        return page, rest

    page, rest = on(rocketpy_server, main)
    assert (page.letters, page.read) == ([], 1)
    assert page.stopped == "the search read 1 dead letters, and stopped at its limit"
    assert (keys(rest.letters), rest.read, rest.older, rest.stopped) == (["k-0"], 4, "", "")


def test_group_without_letters_has_an_empty_page_and_an_unknown_group_is_refused(rocketpy_server, group):
    async def main(admin):
        await admin.create_group(group)
        page = await page_of(admin, group, Letters())
        with pytest.raises(GroupNotFoundError):
            await page_of(admin, fresh_name("nobody"), Letters())
        return page

    page = on(rocketpy_server, main)
    assert (page.letters, page.older) == ([], "")


def test_selected_letters_are_found_at_their_places_and_expired_ones_left_out(rocketpy_server, dead, group):
    async def main(admin):
        page = await page_of(admin, group, Letters())
        places = [Place.of(one) for one in page.letters[1:3]]
        form = [*(("place", str(place)) for place in places), ("rate", "5")]
        assert places_of(form) == places
        found = [one async for one in letters_at(admin, group, [*places, Place(places[0].broker, 0, 999)])]
        assert await letter_at(admin, group, Place(places[0].broker, 0, 999)) is None
        assert await letter_at(admin, group, Place("elsewhere", 0, 1)) is None
        with pytest.raises(InvalidArgumentError, match="have no queue elsewhere:0"):
            [one async for one in letters_at(admin, group, [Place("elsewhere", 0, 1)])]
        summary = await summary_of(letters_at(admin, group, places), None)
        return found, summary

    found, summary = on(rocketpy_server, main)
    assert keys(found) == ["k-3", "k-2"]
    assert (summary.count, sum(summary.topics.values()), summary.is_complete) == (2, 2, True)


@pytest.mark.parametrize("text", ["", "a:1", "a:1:x", ":1:2", "a:-1:2", "a:1:" + "9" * 19, "a:1:\u0662"])
def test_place_of_another_form_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="place of a dead letter must be"):
        Place.parse(text)


def test_place_keeps_a_broker_name_with_colons_and_a_selection_is_bounded():
    assert Place.parse("a:b:0:7") == Place("a:b", 0, 7)
    with pytest.raises(InvalidArgumentError, match="selection exceeds 500 dead letters: 501"):
        places_of([("place", f"a:0:{n}") for n in range(501)])


async def ended(job):
    """No audit."""


def test_job_sends_each_letter_once_on_a_real_server(rocketpy_server, rocketpy_topic, dead, group):
    async def main(admin):
        jobs = Jobs()

        async def run():
            order = Order("shop", group, "ada", "all", rate=1000.0)
            job = jobs.start(
                order,
                lambda client: matching(client, group, Letters()),
                lambda: AsyncAdmin(rocketpy_server.name_server),
                ended,
            )
            while job.is_running:
                await asyncio.sleep(0.01)
            return job

        first = await run()
        assert (first.state, first.error, dict(first.counts)) == ("done", None, {"sent": 5})
        for one in first.newest:
            assert await admin.message(rocketpy_topic, one.msg_id) is not None
        while True:  # the index of the copies follows within milliseconds
            again = await run()
            if again.counts["sent before"] == 5:
                break
            assert again.state == "done"
        return [one.topic for one in first.newest]

    assert on(rocketpy_server, main) == [rocketpy_topic] * 5


def test_exported_letters_have_the_form_of_the_command_line(rocketpy_server, dead, group):
    async def main(admin):
        exports = Exports()
        letters = [one async for one in matching(admin, group, Letters())]
        claim = exports.claim("ada")
        chunks = [chunk async for chunk in exports.lines(claim, matching(admin, group, Letters()), letter_facts)]
        return letters, b"".join(chunks)

    letters, lines = on(rocketpy_server, main)
    assert [json.loads(line) for line in lines.splitlines()] == [letter_facts(one) for one in letters]
    assert lines.count(b"\n") == 5
    assert b"ValueError: <b>bad</b>" in lines


def test_plan_of_a_reset_shows_all_queues_and_its_mark_moves_with_a_commit(rocketpy_server, rocketpy_topic, group):
    with rocketpy_server.producer("shop") as producer:
        sent = [producer.send(Message(rocketpy_topic, b"x")) for _ in range(8)]

    async def main(admin):
        await admin.create_group(group)
        await admin.reset_offsets(group, rocketpy_topic, "latest")
        plan = await plan_of(admin, group, rocketpy_topic, Target("earliest"))
        same = await plan_of(admin, group, rocketpy_topic, Target("latest"))
        queue = plan.queues[0].queue
        name = f"{queue.broker_name}:{queue.queue_id}"
        single = await plan_of(admin, group, rocketpy_topic, Target("queue", None, name, 1))
        await admin.set_offset(group, queue, 1)
        moved = await plan_of(admin, group, rocketpy_topic, Target("earliest"))
        with pytest.raises(InvalidArgumentError, match="topic has no queue x:9"):
            await plan_of(admin, group, rocketpy_topic, Target("queue", None, "x:9", 1))
        return plan, same, single, moved

    plan, same, single, moved = on(rocketpy_server, main)
    assert (len(plan.queues), plan.again, plan.skipped) == (4, len(sent), 0)
    assert (plan.mark, same.again) == (same.mark, 0)
    assert [one.after for one in single.queues] == [1]
    assert moved.mark != plan.mark

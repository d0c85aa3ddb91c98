"""Dead letters: found, shown, and sent again once."""

import asyncio
from types import SimpleNamespace

import pytest
from reading import read_all
from wire import OK, SEND, SEND_MESSAGE, Raw, give_up, request

import rocketpy
from rocketpy import DeadLetterFilter, Message
from rocketpy.admin import dead_letter_calls
from rocketpy.admin.dead_letters import Pace
from rocketpy.base.instant import now_ms
from rocketpy.testing import fresh_name
from waiting import wait_until


@pytest.fixture
def group():
    return fresh_name("giving-up")


@pytest.fixture
def admin(rocketpy_server):
    with rocketpy_server.admin() as admin:
        yield admin


def letters(admin, group, count, **which):
    """The dead letters, once they can be read."""
    while True:
        found = list(admin.dead_letters(group, DeadLetterFilter(**which)))
        if len(found) >= count:
            return found


@pytest.fixture
def dead(rocketpy_server, producer, rocketpy_topic, group):
    """Three dead letters of a topic."""
    sent = [
        producer.send(
            Message(
                rocketpy_topic, b"%d" % n, tag="UA", keys=[f"k-{n}", "all"], order_key="o", properties={"n": f"{n}"}
            )
        )
        for n in range(3)
    ]
    give_up(rocketpy_server.broker, group, *sent)
    return sent


@pytest.mark.parametrize(
    ("error", "shown"),
    [(None, "error=None"), ("ValueError: bad", "error='ValueError: bad'"), ("x" * 500, f"error='{'x' * 100}...'")],
)
def test_text_of_a_dead_letter_has_its_error_cut_after_100_characters(error, shown):
    properties = {"DLQ_REASON": "GIVEN_UP"} | ({} if error is None else {"DLQ_ERROR": error})
    letter = rocketpy.DeadLetter("billing", SimpleNamespace(properties=properties))
    assert f"DeadLetter(group='billing', reason='GIVEN_UP', {shown}, message=" in str(letter)


def test_the_newest_dead_letters_of_all_queues_come_first(
    admin, rocketpy_server, producer, group, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dead_letter_calls, "READ_BACKWARDS", 2)
    topic = f"%DLQ%{group}"
    admin.create_topic(topic, queues=2)
    order = [0, 1, 1, 0, 0, 1, 0, 0, 0]
    queues = admin.queues(topic)
    stored = []
    for number, queue in enumerate(order):
        producer.send(Message(topic, b"%d" % number), queue=queues[queue])
        stored = letters(admin, group, number + 1)  # each has a time of its own
        newest_ms = max(one.message.stored_at_ms for one in stored)
        wait_until(lambda at=newest_ms: now_ms() > at)
    newest = [one.message.body for one in admin.dead_letters(group, newest_first=True)]
    assert newest == [b"%d" % number for number in reversed(range(len(order)))]
    assert [one.message.body for one in stored] != sorted(newest), "queue by queue"
    others = DeadLetterFilter(until=max(one.message.stored_at for one in stored))
    assert [one.message.body for one in admin.dead_letters(group, others, newest_first=True)] == newest[1:]

    async def main() -> list[bytes]:
        async with rocketpy.AsyncAdmin(rocketpy_server.name_server) as twin:
            return [one.message.body async for one in twin.dead_letters(group, newest_first=True)]

    assert asyncio.run(main()) == newest


def test_dead_letters_are_counted_and_read_by_what_is_asked(admin, dead, rocketpy_topic, group):
    found = letters(admin, group, 3)
    assert [letter.message.msg_id for letter in found] == [receipt.msg_id for receipt in dead]
    assert {letter.topic for letter in found} == {rocketpy_topic}
    (listed,) = [one for one in admin.dead_letter_groups() if one.group == group]
    assert (listed.count, listed.oldest_at, listed.newest_at) == (
        3, found[0].message.stored_at, found[2].message.stored_at,
    )  # fmt: skip
    for which, expected in [
        ({"topic": rocketpy_topic}, 3),
        ({"topic": "other"}, 0),
        ({"key": "k-1"}, 1),
        ({"key": "all", "properties": {"n": "2"}}, 1),
        ({"msg_id": dead[0].msg_id}, 1),
        ({"since": found[0].message.stored_at}, 3),
        ({"until": found[0].message.stored_at}, 0),
        ({"since": "-1h", "until": "-30m"}, 0),
    ]:
        assert len(list(admin.dead_letters(group, DeadLetterFilter(**which)))) == expected, which
    with pytest.raises(rocketpy.InvalidArgumentError):
        admin.dead_letters(group, DeadLetterFilter(since="soon"))


def test_a_group_that_gave_up_nothing_has_no_dead_letters_and_a_wrong_name_is_refused(rocketpy_server, admin, group):
    nobody = fresh_name("nobody")
    admin.create_group(group)
    assert list(admin.dead_letters(group)) == []
    with pytest.raises(rocketpy.GroupNotFoundError, match=nobody):
        admin.dead_letters(nobody)

    async def main():
        async with rocketpy.AsyncAdmin(rocketpy_server.name_server) as admin:
            assert [one async for one in admin.dead_letters(group)] == []
            with pytest.raises(rocketpy.GroupNotFoundError, match=nobody):
                await anext(admin.dead_letters(nobody))

    asyncio.run(main())


def test_dead_letters_of_a_deleted_group_are_still_there(admin, dead, group):
    assert len(letters(admin, group, 3)) == 3
    admin.delete_group(group)
    assert len(list(admin.dead_letters(group))) == 3


def test_what_is_resent_keeps_its_origin_and_is_not_resent_twice(rocketpy_server, admin, dead, rocketpy_topic, group):
    def resend(found, **options):
        return [resent.receipt for resent in admin.resend_dead_letters(found, **options)]

    found = letters(admin, group, 3)
    (first,) = resend(found[1:2])
    assert read_all(rocketpy_server, rocketpy_topic, 4)
    assert [receipt is None for receipt in resend(found)] == [False, True, False]
    assert resend(found, rate=1000) == [None] * 3
    received = {one.msg_id: one for one in read_all(rocketpy_server, rocketpy_topic, 6)}
    copy = received[first.msg_id]
    assert (copy.body, copy.tag, copy.keys, copy.order_key) == (b"1", "UA", ("k-1", "all"), "o")
    assert (copy.reconsume_times, copy.properties["n"]) == (0, "1")
    assert copy.properties["rocketpyResentFrom"] == f"%DLQ%{group}"
    assert copy.properties["rocketpyOriginTopic"] == rocketpy_topic
    assert copy.properties["rocketpyOriginMsgId"] == dead[1].msg_id
    assert len(letters(admin, group, 3)) == 3, "they stay"

    (again,) = resend(found[1:2], again=True)
    assert again.msg_id == first.msg_id
    other = fresh_name("elsewhere")
    admin.create_topic(other)
    assert [receipt.queue.topic for receipt in resend(found, to=other)] == [other] * 3
    with pytest.raises(rocketpy.InvalidArgumentError, match="rate"):
        resend(found, rate=0)


def test_a_dead_letter_above_the_default_size_of_producers_is_resent(rocketpy_server_factory, group):
    server = rocketpy_server_factory(settings={"maxMessageSize": 16 << 20, "mappedFileSizeCommitLog": 64 << 20})
    topic, body = fresh_name("large"), bytes(5 << 20)
    with server.admin() as admin, server.producer("large", max_message_size=8 << 20, compression=None) as producer:
        admin.create_topic(topic, queues=1)
        give_up(server.broker, group, producer.send(Message(topic, body)))
        (resent,) = admin.resend_dead_letters(letters(admin, group, 1))
        assert resent.receipt
        assert {one.body for one in read_all(server, topic, 2)} == {body}

        async def again():
            async with rocketpy.AsyncAdmin(server.name_server) as admin:
                found = admin.dead_letters(group)
                return [one.receipt async for one in admin.resend_dead_letters(found, again=True)]

        (receipt,) = asyncio.run(again())
        assert receipt


def test_what_dies_again_keeps_its_first_origin(rocketpy_server, admin, dead, rocketpy_topic, group):
    (first,) = admin.resend_dead_letters(letters(admin, group, 3)[1:2])
    assert first.receipt
    give_up(rocketpy_server.broker, group, first.receipt)
    (second,) = admin.resend_dead_letters(letters(admin, group, 4)[3:])
    assert second.receipt
    assert second.receipt.msg_id != first.receipt.msg_id, "another dead letter"
    received = {one.msg_id: one for one in read_all(rocketpy_server, rocketpy_topic, 5)}
    origin = received[second.receipt.msg_id].properties
    assert (origin["rocketpyOriginTopic"], origin["rocketpyOriginMsgId"]) == (rocketpy_topic, dead[1].msg_id)


def test_a_pace_spaces_what_is_sent(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("rocketpy.admin.dead_letters.monotonic", lambda: now[0])
    pace, pauses = Pace(10), []
    for passed in (0, 0.02, 60, 0):
        now[0] += passed
        pauses.append(pace.next())
        now[0] += pauses[-1]
    assert pauses == pytest.approx([0, 0.08, 0, 0.1]), "a stall is not made up for"
    with pytest.raises(rocketpy.InvalidArgumentError, match="rate"):
        Pace(0)


def test_a_mistyped_target_of_a_resend_is_refused_and_not_made(admin, dead, group):
    found, target = letters(admin, group, 3), fresh_name("mistyped")
    with pytest.raises(rocketpy.TopicNotFoundError, match=target) as refused:
        admin.resend_dead_letters(found, to=target)
    assert f"rocketpy topic create {target}" in refused.value.hint
    assert target not in admin.topics()


def test_dead_letters_of_a_deleted_topic_are_rejected_and_later_ones_are_sent(
    rocketpy_server, admin, dead, rocketpy_topic, group
):
    kept = fresh_name("kept")
    admin.create_topic(kept, queues=1)
    with rocketpy_server.producer("ingest") as producer:
        give_up(rocketpy_server.broker, group, producer.send(Message(kept, b"later")))
    found = letters(admin, group, 4)
    admin.delete_topic(rocketpy_topic)
    resent = list(admin.resend_dead_letters(found))
    assert [(one.topic, type(one.rejected), one.receipt is not None) for one in resent] == [
        (one.topic, *((type(None), True) if one.topic == kept else (rocketpy.TopicNotFoundError, False)))
        for one in found
    ]
    assert rocketpy_topic not in admin.topics(), "the resend does not create it again"


def test_a_body_that_does_not_decompress_is_rejected_and_later_dead_letters_are_sent(
    rocketpy_server, admin, rocketpy_topic, group
):
    with Raw(rocketpy_server.broker) as raw:
        for flag, body in (("1", b"not compressed"), ("0", b"later")):
            properties = f"UNIQ_KEY\1{body.decode()}\2RETRY_TOPIC\1{rocketpy_topic}\2"
            fields = {**SEND, "topic": f"%DLQ%{group}", "sysFlag": flag, "properties": properties}
            assert raw.answer(request(SEND_MESSAGE, fields, body))["code"] == OK
    found = letters(admin, group, 2)
    expected = [(rocketpy.DamagedDataError, False), (type(None), True)]
    resent = admin.resend_dead_letters(found)
    assert [(type(one.rejected), one.receipt is not None) for one in resent] == expected

    async def main():
        async with rocketpy.AsyncAdmin(rocketpy_server.name_server) as admin:
            return [one async for one in admin.resend_dead_letters(admin.dead_letters(group), again=True)]

    assert [(type(one.rejected), one.receipt is not None) for one in asyncio.run(main())] == expected


def test_asyncio_finds_and_resends_dead_letters_too(rocketpy_server, admin, dead, rocketpy_topic, group):
    all_of_it = letters(admin, group, 3)

    async def main():
        async with rocketpy.AsyncAdmin(rocketpy_server.name_server) as admin:
            (listed,) = [one for one in await admin.dead_letter_groups() if one.group == group]
            assert listed.count == 3
            which = DeadLetterFilter(key="k-1")
            found = [one async for one in admin.dead_letters(group, which)]
            assert [letter.message.msg_id for letter in found] == [dead[1].msg_id]
            assert not await admin.was_resent(found[0])
            first = [one.receipt async for one in admin.resend_dead_letters(admin.dead_letters(group), rate=1000)]
            assert [receipt.msg_id for receipt in first] == [letter.resent_id for letter in all_of_it]
            while not await admin.was_resent(all_of_it[-1]):
                pass
            again = [one.receipt async for one in admin.resend_dead_letters(found)]
            assert again == [None]
            with pytest.raises(rocketpy.TopicNotFoundError):
                await anext(admin.resend_dead_letters([], to=fresh_name("nowhere")))

    asyncio.run(main())
    bodies = sorted(one.body for one in read_all(rocketpy_server, rocketpy_topic, 6))
    assert bodies == sorted([b"0", b"1", b"2"] * 2)


def test_dead_letters_beyond_one_answer_are_read_to_their_end(rocketpy_server, admin, group):
    topic = f"%DLQ%{group}"
    with rocketpy_server.producer("gives-up", compression=None) as producer:
        admin.create_topic(topic, queues=1)
        for number in range(5):  # more than a pull brings, in bytes
            producer.send(Message(topic, b"%d" % number + bytes(400_000)))

    async def main():
        async with rocketpy.AsyncAdmin(rocketpy_server.name_server) as admin:
            return [one.message.body[:1] async for one in admin.dead_letters(group)]

    expected = [b"0", b"1", b"2", b"3", b"4"]
    assert [one.message.body[:1] for one in letters(admin, group, 5)] == asyncio.run(main()) == expected

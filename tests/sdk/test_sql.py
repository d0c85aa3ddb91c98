"""SQL92 filters of consumers: what comes, who may have which, and what a wrong expression is told."""

import asyncio

import pytest

import rocketpy
from rocketpy import Message
from rocketpy.testing import fresh_name
from waiting import wait_until


@pytest.fixture
def group():
    return fresh_name("choosers")


def send(producer, topic):
    """Ten messages: property `a` from 0 to 9, `b` only where it is even, tag TagA where it is below 5."""
    producer.send_many(
        [
            Message(
                topic,
                b"%d" % a,
                tag="TagA" if a < 5 else "TagB",
                properties={"a": str(a)} | ({} if a % 2 else {"b": "even"}),
            )
            for a in range(10)
        ]
    )


def read(consumer, count):
    """What comes, which is exactly that many; by then everything was passed."""
    bodies = []
    wait_until(lambda: bodies.extend(int(one.body) for one in consumer.poll(timeout=0.1)) or len(bodies) >= count)
    wait_until(
        lambda: bodies.extend(int(one.body) for one in consumer.poll(timeout=0)) or not any(consumer.lag().values())
    )
    return sorted(bodies)


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("a > 3 AND b IS NOT NULL", [4, 6, 8]),
        ("TAGS = 'TagA' AND a IN ('1', '4', '7')", [1, 4]),
        ("b = 'even' OR a BETWEEN 6 AND 7", [0, 2, 4, 6, 7, 8]),
    ],
)
def test_messages_come_for_which_the_expression_is_true(rocketpy_server, producer, rocketpy_topic, group, sql, wanted):
    send(producer, rocketpy_topic)
    with rocketpy_server.consumer(group, rocketpy_topic, sql=sql) as consumer:
        assert read(consumer, len(wanted)) == wanted
        consumer.commit()
    with rocketpy_server.consumer(group, rocketpy_topic, sql=sql) as consumer:
        producer.send(Message(rocketpy_topic, b"42", tag="TagA", properties={"a": "4", "b": "even"}))
        assert read(consumer, 1) == [42]


def test_a_topic_has_an_expression_and_another_one_tags(rocketpy_server, producer, rocketpy_topic, group):
    other = fresh_name("tagged")
    for topic in (rocketpy_topic, other):
        send(producer, topic)
    for tags in ("TagB", {other: "TagB"}):
        with rocketpy_server.consumer(
            fresh_name("both"), [other, rocketpy_topic], tags=tags, sql={rocketpy_topic: "a < 2"}
        ) as consumer:
            assert read(consumer, 7) == [0, 1, 5, 6, 7, 8, 9]


def test_members_of_a_group_share_an_expression_and_differ_by_another(rocketpy_server, producer, rocketpy_topic, group):
    with rocketpy_server.consumer(group, rocketpy_topic, sql="a > 3") as first:
        for wrong in ({"sql": "a > 4"}, {"tags": "TagA"}, {}):
            with pytest.raises(rocketpy.GroupConflictError, match="a > 3"):
                rocketpy_server.consumer(group, rocketpy_topic, **wrong)
        with rocketpy_server.consumer(group, rocketpy_topic, sql="a > 3") as second:
            wait_until(lambda: first.assignment() and second.assignment() and len(second.assignment()) < 4)
            send(producer, rocketpy_topic)
            bodies = []

            def come() -> bool:
                for member in (first, second):
                    bodies.extend(int(one.body) for one in member.poll(timeout=0.1))
                return len(bodies) >= 6 and not any((*first.lag().values(), *second.lag().values()))

            wait_until(come, "all messages that are wanted")
    assert sorted(bodies) == [4, 5, 6, 7, 8, 9]


def test_a_member_of_another_process_with_another_expression_is_told(rocketpy_server, rocketpy_topic, group, child):
    source = """
    import sys, rocketpy
    try:
        with rocketpy.Consumer(sys.argv[1], sys.argv[2], name_servers=sys.argv[3], sql="a > 4") as consumer:
            while True:
                consumer.poll()
    except rocketpy.GroupConflictError as error:
        print(error)
    """
    with rocketpy_server.consumer(group, rocketpy_topic, sql="a > 3"):
        assert "a > 3" in child(source, group, rocketpy_topic, rocketpy_server.name_server).stdout


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("a > 3 AND", r"found the end at character 10 .*: a > 3 AND"),
        ("a LIKE 'x%'", r"LIKE at character 3 .* is not supported; write CONTAINS.*: a LIKE 'x%'"),
        ("(a = 'open)", r"at character 6 .* is not closed.*: \(a = 'open\)"),
        ("", "character 1"),
    ],
)
def test_an_error_of_an_expression_names_it_and_the_place(rocketpy_server, rocketpy_topic, group, sql, said):
    with pytest.raises(rocketpy.InvalidArgumentError, match=said):
        rocketpy_server.consumer(group, rocketpy_topic, sql=sql)


def test_what_does_not_go_together_is_refused_by_name(rocketpy_server, rocketpy_topic, group):
    for options, error, said in [
        ({"sql": "a = 1", "tags": "TagA"}, rocketpy.InvalidArgumentError, "tags and sql exclude each other"),
        (
            {"sql": {rocketpy_topic: "a = 1"}, "tags": {rocketpy_topic: "TagA"}},
            rocketpy.InvalidArgumentError,
            "tags and sql exclude each other",
        ),
        ({"sql": {"elsewhere": "a = 1"}}, rocketpy.InvalidArgumentError, "a topic that is not read: elsewhere"),
        ({"sql": 7}, TypeError, "option sql must be an expression"),
        ({"sql": {rocketpy_topic: 7}}, TypeError, "option sql must be an expression"),
    ]:
        with pytest.raises(error, match=said):
            rocketpy_server.consumer(group, rocketpy_topic, **options)


def test_an_event_loop_reads_by_an_expression(rocketpy_server, producer, rocketpy_topic, group):
    send(producer, rocketpy_topic)

    async def main():
        servers = rocketpy_server.name_servers
        async with rocketpy.AsyncConsumer(group, rocketpy_topic, name_servers=servers, sql="a >= 8") as consumer:
            bodies = []
            while len(bodies) < 2:
                bodies += [int(one.body) for one in await consumer.poll()]
            return sorted(bodies)

    assert asyncio.run(main()) == [8, 9]

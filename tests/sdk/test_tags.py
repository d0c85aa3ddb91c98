"""Which messages a consumer asks for: tags, tags by topic, members that ask for others."""

import pytest
from receiving import drain, numbers

import rocketpy
from rocketpy import Message, Start
from rocketpy.testing import fresh_name


@pytest.fixture
def filled(producer, rocketpy_topic):
    """A topic of four queues with 1000 messages: tags a, b, c in turn."""
    producer.send_many([Message(rocketpy_topic, b"%d" % n, tag="abc"[n % 3], keys=[f"k{n}"]) for n in range(1000)])
    return rocketpy_topic


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [("a", {0}), ("a || c", {0, 2}), ("*", {0, 1, 2}), ("a||d", {0}), (["a", "c"], {0, 2}), ({"b"}, {1})],
)
def test_only_messages_with_a_wanted_tag_come(rocketpy_server, filled, tags, wanted):
    expected = [n for n in range(1000) if n % 3 in wanted]
    with rocketpy_server.consumer(fresh_name(), filled, tags=tags, start=Start.EARLIEST) as consumer:
        assert numbers(drain(consumer, len(expected))) == expected
        assert consumer.poll(timeout=0.2) == []


def test_tags_whose_hashes_collide_are_told_apart(rocketpy_server, producer, rocketpy_topic):
    producer.send_many([Message(rocketpy_topic, tag.encode(), tag=tag) for tag in ("Aa", "BB") * 5])
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic, tags="BB", start=Start.EARLIEST) as consumer:
        assert [message.body for message in drain(consumer, 5)] == [b"BB"] * 5
        assert consumer.poll(timeout=0.2) == []


def test_tags_in_a_list_may_hold_whatever_a_tag_can_be(rocketpy_server, producer, rocketpy_topic):
    odd = ["UA,AA", "a|b", "x OR y", "tag = 'UA'"]
    producer.send_many([Message(rocketpy_topic, tag.encode(), tag=tag) for tag in [*odd, "UA", "AA", "a", "b"]])
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic, tags=odd) as consumer:
        assert sorted(message.tag for message in drain(consumer, 4)) == sorted(odd)
        assert consumer.poll(timeout=0.2) == []


def test_each_topic_may_have_tags_of_its_own(rocketpy_server, producer):
    orders, audit = fresh_name("orders"), fresh_name("audit")
    producer.send_many([Message(topic, tag.encode(), tag=tag) for topic in (orders, audit) for tag in ("UA", "AA")])
    tags = {orders: "UA", audit: "*"}
    with rocketpy_server.consumer(fresh_name(), [orders, audit], tags=tags) as consumer:
        received = sorted((message.topic == audit, message.body) for message in drain(consumer, 3))
        assert received == [(False, b"UA"), (True, b"AA"), (True, b"UA")]
        assert consumer.poll(timeout=0.2) == []
    for wrong in ({orders: "UA"}, {**tags, "third": "*"}):
        with pytest.raises(rocketpy.InvalidArgumentError, match="topic"):
            rocketpy_server.consumer(fresh_name(), [orders, audit], tags=wrong)


@pytest.mark.parametrize("tags", ["a|b", "a,b", "a OR b", "tag = 'a'", "|| ||", "a || *", [], ["a||b"], ["*"]])
def test_tags_that_would_match_nothing_are_refused_with_the_right_form(rocketpy_server, filled, tags):
    with pytest.raises(rocketpy.InvalidArgumentError, match="tag") as refused:
        rocketpy_server.consumer(fresh_name(), filled, tags=tags)
    assert refused.value.hint
    queue = rocketpy.MessageQueue(filled, "broker-a", 0)
    with pytest.raises(rocketpy.InvalidArgumentError, match="tag"):
        rocketpy.RangeReader(queue, 0, 1, tags=tags, name_servers=rocketpy_server.name_server)


def test_a_member_with_other_tags_in_the_same_process_is_a_conflict_that_names_it(rocketpy_server, filled):
    group = fresh_name()
    with rocketpy_server.consumer(group, filled, tags="a") as first:
        with pytest.raises(rocketpy.GroupConflictError, match=rf"{first.client_id} wants {filled}: a\n") as conflict:
            rocketpy_server.consumer(group, filled, tags=["b", "c"])
        assert "allow_other_subscriptions" in conflict.value.hint
        rocketpy_server.consumer(group, filled, tags="b", allow_other_subscriptions=True).close()

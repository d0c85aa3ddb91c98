"""Messages to send: what they keep, what they refuse, how they travel."""

import copy
import os
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import rocketpy
from rocketpy import InvalidArgumentError, Message
from rocketpy.codec import JsonCodec
from rocketpy.testing import fresh_name


@dataclass
class Stored:
    amount: int


def test_a_message_keeps_what_it_was_made_of():
    message = Message(
        "flights", b"body", tag="UA", keys=["N14228", "UA1545"], order_key="N14228", properties={"a": "1"}, flag=-7
    )
    assert (message.topic, message.body, message.tag) == ("flights", b"body", "UA")
    assert message.keys == ("N14228", "UA1545")
    assert message.order_key == "N14228"
    assert message.properties == {"a": "1"}
    assert message.flag == -7
    assert len(message) == 4


def test_what_was_not_given_is_absent():
    message = Message("flights", b"body")
    assert (message.tag, message.keys, message.order_key, message.properties, message.flag) == (None, (), None, {}, 0)


def test_one_key_may_be_given_as_text():
    assert Message("flights", b"body", keys="UA1545").keys == ("UA1545",)
    assert Message("flights", b"body", keys=iter(["a", "b"])).keys == ("a", "b")
    assert Message("flights", b"body", keys=[]).keys == ()


@pytest.mark.parametrize("body", [bytearray(b"abc"), memoryview(b"abc"), memoryview(b"a.b.c.")[::2]])
def test_any_buffer_of_bytes_is_a_body(body):
    assert Message("flights", body).body == b"abc"


def test_a_changed_buffer_does_not_change_the_message():
    body = bytearray(b"abc")
    message = Message("flights", body)
    body[0] = 0
    assert message.body == b"abc"


def test_the_view_reads_the_body_without_copy_and_outlives_the_message():
    view = Message("flights", b"body").body_view
    assert view.readonly
    assert bytes(view) == b"body"
    with pytest.raises(TypeError):
        view[0] = 0


def test_a_message_cannot_be_changed():
    message = Message("flights", b"body")
    with pytest.raises(AttributeError):
        message.topic = "other"
    with pytest.raises(AttributeError):
        message.anything = 1


def test_equal_messages_are_equal_and_hash_alike():
    one, other = (Message("flights", b"body", tag="UA") for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Message("flights", b"body", tag="AA")
    assert one != "flights"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_and_pickles_are_equal(again):
    message = Message("flights", b"\x00\xff", tag="UA", keys=["k"], order_key="o", properties={"a": "ü"}, flag=3)
    assert again(message) == message


def test_a_message_may_do_without_the_flush():
    assert Message("flights", b"x").wait_store_ok
    hasty = Message("flights", b"x", wait_store_ok=False, properties={"a": "b"})
    assert not hasty.wait_store_ok
    assert hasty.properties == {"a": "b"}
    assert hasty != Message("flights", b"x", properties={"a": "b"})
    again = pickle.loads(pickle.dumps(hasty))
    assert again == hasty
    assert not again.wait_store_ok


def test_repr_shows_everything_but_the_body():
    text = repr(Message("flights", b"secret", tag="UA"))
    assert "flights" in text
    assert "6 bytes" in text
    assert "secret" not in text


@pytest.mark.parametrize("topic", ["", "a/b", "../etc", "a b", "ü", "x" * 128, "a\x01"])
def test_a_bad_topic_name_is_refused_and_named(topic):
    with pytest.raises(InvalidArgumentError, match="topic name"):
        Message(topic, b"body")


def test_an_empty_body_is_refused():
    with pytest.raises(InvalidArgumentError, match="body is empty, topic: flights") as refused:
        Message("flights", b"")
    assert refused.value.code == 13


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"tag": ""}, "it is empty"),
        ({"tag": "a\x01b"}, "separators"),
        ({"keys": ["two words"]}, "two words"),
        ({"keys": [""]}, "a key must not be empty"),
        ({"order_key": ""}, "__SHARDINGKEY"),
        ({"properties": {"": "1"}}, "name must not be empty"),
        ({"properties": {"a": ""}}, "value must not be empty"),
        ({"properties": {"a": "\x02"}}, "separators"),
        ({"flag": 2**31}, "flag must be between"),
    ],
)
def test_what_a_stored_message_cannot_hold_is_refused(arguments, says):
    with pytest.raises(InvalidArgumentError, match=says) as refused:
        Message("flights", b"body", **arguments)
    assert not refused.value.retryable


@pytest.mark.parametrize("tag", ["UA||AA", "*", " UA", "UA "])
def test_a_tag_that_no_subscription_can_name_is_refused_with_the_way_out(tag):
    with pytest.raises(InvalidArgumentError, match="no subscription can name the tag") as refused:
        Message("flights", b"body", tag=tag)
    assert "||" in refused.value.hint
    assert Message("flights", b"body", tag="UA AA").tag == "UA AA", "an expression may name it"


@pytest.mark.parametrize(
    ("name", "value"),
    [("TAGS", "x"), ("KEYS", "x"), ("UNIQ_KEY", "x"), ("PGROUP", "x"), ("DELAY", "0"), ("TRAN_MSG", "1")],
)
def test_reserved_properties_are_refused_by_name(name, value):
    with pytest.raises(InvalidArgumentError, match=name):
        Message("flights", b"body", properties={name: value})


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": 1},
        {"body": "text"},
        {"body": 1},
        {"body": None},
        {"tag": 1},
        {"keys": 1},
        {"keys": [1]},
        {"order_key": 1},
        {"properties": [("a", "b")]},
        {"properties": {"a": 1}},
        {"properties": {1: "a"}},
        {"flag": "1"},
        {"flag": True},
        {"delay": "3"},
        {"delay_level": "3"},
        {"deliver_at": True},
    ],
)
def test_a_wrong_type_is_a_type_error(arguments):
    with pytest.raises(TypeError):
        Message(**{"topic": "flights", "body": b"body", **arguments})


def test_a_message_is_delivered_at_one_time():
    at = datetime(2030, 1, 1, tzinfo=UTC)
    for arguments, kept in [
        ({"delay_level": 3}, (3, None, None)),
        ({"deliver_at": at}, (None, at.timestamp(), None)),
        ({"deliver_at": 1700000000.123}, (None, 1700000000.123, None)),
        ({"delay": timedelta(minutes=5)}, (None, None, 300.0)),
        ({"delay": 0.25}, (None, None, 0.25)),
        ({}, (None, None, None)),
    ]:
        message = Message("flights", b"body", **arguments)
        assert (message.delay_level, message.deliver_at, message.delay) == kept
        assert message.properties == {}
        assert pickle.loads(pickle.dumps(message)) == message
    for arguments, says in [
        ({"delay_level": 3, "delay": 1}, "at most one"),
        ({"delay_level": 3, "deliver_at": at, "delay": 1}, "at most one"),
        ({"delay_level": 0}, "between 1 and 18"),
        ({"delay_level": 19}, "between 1 and 18"),
        ({"delay": -1}, "-1"),
        ({"deliver_at": -1.0}, "1970"),
    ]:
        with pytest.raises(InvalidArgumentError, match=says):
            Message("flights", b"body", **arguments)


def test_an_unknown_argument_names_the_one_most_like_it():
    with pytest.raises(TypeError, match=r"no argument \"key\" \(did you mean order_key or keys\?\); it has: tag, "):
        Message("flights", b"body", key="N14228")
    with pytest.raises(TypeError, match=r"no argument \"headers\" \(did you mean properties\?\)"):
        Message("flights", b"body", headers={})  # as other clients call them
    with pytest.raises(TypeError, match=r"no argument \"urgent\"; it has: .*properties"):
        Message("flights", b"body", urgent=True)


def test_a_text_body_says_how_to_encode_it():
    with pytest.raises(TypeError, match="encode"):
        Message("flights", "text")


def test_a_queue_sorts_as_apache_sorts_and_reads_well():
    queues = [
        rocketpy.MessageQueue("a", "b", 10),
        rocketpy.MessageQueue("a", "b", 9),
        rocketpy.MessageQueue("a", "a", 11),
    ]
    assert [queue.queue_id for queue in sorted(queues)] == [11, 9, 10]
    assert str(queues[0]) == "a@b#10"


BROKEN = os.fsdecode(b"a\xff")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"tag": BROKEN}, "tag"),
        ({"keys": BROKEN}, "a key"),
        ({"keys": ["k", BROKEN]}, "a key"),
        ({"order_key": BROKEN}, "order_key"),
        ({"properties": {"p": BROKEN}}, "property p"),
        ({"properties": {BROKEN: "v"}}, "a property name"),
        ({"topic": BROKEN}, "topic"),
    ],
    ids=str,
)
def test_a_lone_surrogate_is_named(options, what):
    with pytest.raises(InvalidArgumentError) as refused:
        Message(**{"topic": "t", "body": b"x", **options})
    assert str(refused.value) == f"{what} is not valid Unicode: 'a\\udcff'"
    assert "errors=" in refused.value.hint


@pytest.mark.parametrize(
    "make",
    [
        lambda: rocketpy.Producer(BROKEN, name_servers="127.0.0.1:1"),
        lambda: rocketpy.Producer("g", name_servers=BROKEN),
        lambda: rocketpy.Producer("g", name_servers="127.0.0.1:1", instance_name=BROKEN),
        lambda: rocketpy.Consumer(BROKEN, "t", name_servers="127.0.0.1:1"),
        lambda: rocketpy.Consumer("g", BROKEN, name_servers="127.0.0.1:1"),
        lambda: rocketpy.Consumer("g", "t", tags=BROKEN, name_servers="127.0.0.1:1"),
        lambda: rocketpy.PushConsumer(BROKEN, name_servers="127.0.0.1:1"),
        lambda: rocketpy.PushConsumer("g", name_servers="127.0.0.1:1").on(BROKEN),
        lambda: rocketpy.TransactionProducer(BROKEN, lambda message: None, name_servers="127.0.0.1:1"),
        lambda: rocketpy.Admin("127.0.0.1:1").create_topic(BROKEN),
        lambda: rocketpy.Admin("127.0.0.1:1").queues(BROKEN),
        lambda: rocketpy.Admin("127.0.0.1:1").delete_group(BROKEN),
        lambda: list(rocketpy.Admin("127.0.0.1:1").dead_letters(BROKEN)),
        lambda: rocketpy.RangeReader(rocketpy.MessageQueue(BROKEN, "b", 0), 0, 1, name_servers="127.0.0.1:1"),
    ],
)
def test_a_lone_surrogate_in_a_name_is_an_invalid_argument(make):
    with pytest.raises(InvalidArgumentError, match=r"not valid Unicode: '.*a\\udcff'"):
        make()


def test_a_store_rejects_names_with_lone_surrogates(rocketpy_server):
    reader = rocketpy.StoreReader(rocketpy_server.path)
    calls = (
        lambda: reader.ranges(BROKEN),
        lambda: reader.topic(BROKEN),
        lambda: reader.query(BROKEN, "k"),
        lambda: reader.query("t", BROKEN),
    )
    for call in calls:
        with pytest.raises(InvalidArgumentError, match=r"not valid Unicode: 'a\\udcff'"):
            call()


def received(server, topic, body):
    with server.producer("p") as producer:
        producer.send(Message(topic, body))
    with server.consumer(fresh_name(), topic) as consumer:
        (message,) = consumer.poll(timeout=60)
    return message


def test_a_body_is_read_as_text_and_as_json(rocketpy_server, rocketpy_topic):
    body = '{"item": "caf\u00e9", "amount": 2}'.encode()
    for message in (Message(rocketpy_topic, body), received(rocketpy_server, rocketpy_topic, body)):
        assert message.text == body.decode()
        assert message.json() == {"item": "caf\u00e9", "amount": 2}


def test_a_compressed_body_is_read_as_text(rocketpy_server, rocketpy_topic):
    assert received(rocketpy_server, rocketpy_topic, b"x" * 100_000).text == "x" * 100_000


@pytest.mark.parametrize(
    ("body", "read", "said"),
    [
        (b"caf\xe9", lambda message: message.text, "does not decode as text in UTF-8: byte 3 begins no character"),
        (b"a book", lambda message: message.json(), "does not decode as JSON: Expecting value"),
        (b"[1e999]", lambda message: message.json(), "does not decode as JSON: the number 1e999 is out of the range"),
        (b"[" * 100_000, lambda message: message.json(), "does not decode as JSON: maximum recursion depth"),
    ],
)
def test_a_body_of_another_kind_names_its_message_and_the_way_to_its_bytes(
    rocketpy_server, rocketpy_topic, body, read, said
):
    stored = received(rocketpy_server, rocketpy_topic, body)
    with pytest.raises(rocketpy.DecodeError, match=f"^the body of message {stored.msg_id} {said}") as failed:
        read(stored)
    assert failed.value.message is stored
    assert "message.body.decode(charset)" in failed.value.hint
    with pytest.raises(rocketpy.DecodeError, match=f"^the body of a message to {rocketpy_topic} {said}") as failed:
        read(Message(rocketpy_topic, body))
    assert failed.value.message is None
    assert "message.body.decode(charset)" in failed.value.hint


@pytest.mark.parametrize("value", [{"item": "book"}, ["book"], Stored(1)])
def test_a_value_as_a_body_points_to_the_codec(value):
    with pytest.raises(TypeError, match=r"body must be bytes \(encode .*JsonCodec\(\)\.encode\(value\)\), not "):
        Message("orders", value)
    assert Message("orders", JsonCodec().encode(value)).json() is not None

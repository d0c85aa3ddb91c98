"""Bodies as values: what decodes comes back as it was, what does not is named and never stops the others."""

import asyncio
import contextlib
import copy
import enum
import logging
import pickle
import random
import sys
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pydantic
import pytest

import rocketpy
from rocketpy import DecodeError
from rocketpy.codec import JsonCodec, PydanticCodec, decoded
from rocketpy.testing import fresh_name
from waiting import wait_until


class Stored(NamedTuple):
    """What a codec reads of a message."""

    body: bytes
    msg_id: str = "A1"
    topic: str = "orders"
    queue_id: int = 2
    broker_name: str = "broker-a"
    queue_offset: int = 17


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


@dataclass
class Item:
    name: str
    price: Decimal
    colours: list[Colour] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Order:
    id: uuid.UUID
    items: tuple[Item, ...]
    at: datetime
    day: date | None = None
    weight: float = 1.0
    state: Literal["new", "paid", 3] = "new"
    parent: "Order | None" = None
    names: dict[str, int | str] = field(default_factory=dict)
    pair: tuple[int, str] = (1, "a")
    count: int = field(default=0, init=False)
    more: Any = None


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(alias="Name")
    amount: int = pydantic.Field(default=1, gt=0)


def some_order(choice, depth=2):
    return Order(
        id=uuid.UUID(int=choice.getrandbits(128)),
        items=tuple(
            Item(
                choice.choice(["a", "ä", '\n"', ""]),
                Decimal(choice.randrange(10**6)) / 100,
                choice.choices(list(Colour), k=n),
            )
            for n in range(choice.randrange(3))
        ),
        at=datetime.fromtimestamp(choice.randrange(10**9), UTC),
        day=choice.choice([None, date(2026, 1, 31)]),
        weight=choice.choice([0.0, 1e300, -2.5]),
        state=choice.choice(["new", "paid", 3]),
        parent=some_order(choice, depth - 1) if depth else None,
        names={str(n): choice.choice([n, "x"]) for n in range(choice.randrange(3))},
        more=choice.choice([None, [1, {"a": None}], True]),
    )


@pytest.mark.parametrize("kind", [JsonCodec, PydanticCodec])
@pytest.mark.parametrize("seed", range(20))
def test_what_was_encoded_decodes_to_the_same(kind, seed):
    codec = kind(Order)
    order = some_order(random.Random(seed))
    assert codec.decode(Stored(codec.encode(order))) == order


@pytest.mark.parametrize("kinds", [(JsonCodec, PydanticCodec), (PydanticCodec, JsonCodec)])
def test_each_codec_reads_what_the_other_one_wrote(kinds):
    writes, reads = (kind(Order) for kind in kinds)
    order = some_order(random.Random(3))
    assert reads.decode(Stored(writes.encode(order))) == order


@pytest.mark.parametrize("value", [None, True, 3, "text", [1, "a"], {"a": {"b": []}}])
def test_json_without_a_type(value):
    codec = JsonCodec()
    assert codec.decode(Stored(codec.encode(value))) == value


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (Item, b"", "Expecting value"),
        (Item, b"\xff", "codec can't decode"),
        (Item, b"{", "Expecting property name"),
        (Item, b"[" * 100_000, "recursion"),
        (Item, b"[]", r"\$ must be an object, not a list"),
        (Item, b"{}", r"\$ lacks name, price"),
        (Item, b'{"name": 1, "price": "1"}', r"\$\.name must be text, not a number"),
        (Item, b'{"name": "", "price": 1}', r"\$\.price must be a decimal number as text, not a number"),
        (Item, b'{"name": "", "price": "secret"}', r"\$\.price must be a decimal number as text \("),
        (
            Item,
            b'{"name": "", "price": "1", "colours": ["red", "secret"]}',
            r"\$\.colours\[1\] must be one of 'red', 2",
        ),
        (int, b"true", r"\$ must be a whole number, not true or false"),
        (int, b"1.0", r"\$ must be a whole number, not a number"),
        (float, b"NaN", "JSON has no NaN"),
        (float, b"1" * 400, "too large"),
        (Literal[1], b"true", r"\$ must be one of 1"),
        (bool, b"1", r"\$ must be true or false"),
        (list[int], b'[1, "2"]', r"\$\[1\] must be a whole number, not text"),
        (dict[str, int], b'{"a": null}', r"\$\.a must be a whole number, not null"),
        (int | None, b'"secret"', r"a whole number, not text, or \$ must be null, not text"),
        (tuple[int, str], b"[1]", r"\$ must have 2 values, not 1"),
        (datetime, b'"secret"', r"\$ must be a time"),
        (uuid.UUID, b'"secret"', r"\$ must be a UUID"),
    ],
)
def test_a_body_of_another_form_is_an_error_that_says_where_and_does_not_show_it(kind, body, reason):
    with pytest.raises(rocketpy.DecodeError, match=reason) as failed:
        JsonCodec(kind).decode(Stored(body))
    assert "message A1" in str(failed.value)
    assert "(topic orders, queue 2 of broker-a, offset 17)" in str(failed.value)
    assert "secret" not in str(failed.value)
    assert failed.value.message == Stored(body)
    assert not failed.value.retryable
    assert failed.value.__cause__ is None


def test_fields_that_a_dataclass_does_not_know_are_ignored():
    codec = JsonCodec(Item)
    assert codec.decode(Stored(b'{"name": "a", "price": "1", "new": 3}')) == Item("a", Decimal(1))


def test_a_dataclass_may_check_itself():
    @dataclass
    class Positive:
        amount: int

        def __post_init__(self):
            if self.amount <= 0:
                raise LookupError("amount must be more than 0")

    with pytest.raises(rocketpy.DecodeError, match="more than 0"):
        JsonCodec(Positive).decode(Stored(b'{"amount": 0}'))


@dataclass
class Unknown:
    body: bytes


@dataclass
class Lost:
    body: "Nowhere"  # noqa: F821


@pytest.mark.parametrize("kind", [bytes, set[int], dict[int, str], Unknown, Lost, list[complex], "Order", 3])
def test_a_type_that_json_has_not_is_refused_at_once(kind):
    with pytest.raises(TypeError, match=r"Pydantic|Unknown\.body|cannot resolve|keys"):
        JsonCodec(kind)


@pytest.mark.parametrize("value", [float("inf"), {1, 2}, b"a", {(1,): 2}, "\ud800", object()])
def test_a_value_that_json_has_not_is_refused(value):
    with pytest.raises(rocketpy.InvalidArgumentError, match="does not encode"):
        JsonCodec().encode(value)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", [JsonCodec, PydanticCodec])
def test_damaged_bodies_raise_nothing_else(kind, seed):
    choice = random.Random(seed)
    codec = kind(Order)
    body = bytearray(codec.encode(some_order(choice)))
    for _ in range(300):
        damaged = bytearray(body)
        for _ in range(choice.randrange(1, 4)):
            damaged[choice.randrange(len(damaged))] = choice.choice(b'"{}[]:,0n\xff\x00')
        with contextlib.suppress(rocketpy.DecodeError):
            assert isinstance(codec.decode(Stored(bytes(damaged))), Order)


def test_a_pydantic_model():
    codec = PydanticCodec(Model)
    assert codec.encode(Model(Name="a")) == b'{"Name":"a","amount":1}'
    assert codec.decode(Stored(b'{"Name": "a", "amount": "2"}')) == Model(Name="a", amount=2)
    with pytest.raises(rocketpy.DecodeError, match=r"\$\.Name Field required; \$\.amount Input should be"):
        codec.decode(Stored(b'{"amount": -1}'))
    with pytest.raises(rocketpy.DecodeError) as failed:
        PydanticCodec(Model, strict=True).decode(Stored(b'{"Name": "a", "amount": "1234321"}'))
    assert "1234321" not in str(failed.value)
    with pytest.raises(rocketpy.InvalidArgumentError, match="does not encode as Model"):
        codec.encode("text")
    with pytest.raises(rocketpy.DecodeError, match="and 2 more"):
        PydanticCodec(list[int]).decode(Stored(b'["a", "b", "c", "d", "e"]'))


def test_without_pydantic_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(rocketpy.RocketPyError, match="pydantic is not installed") as missing:
        PydanticCodec(Order)
    assert "rocketpy-mq[pydantic]" in missing.value.hint


@pytest.fixture
def mixed(producer, rocketpy_topic):
    """A topic with the bodies 0, x, 2, y, 4 in one queue."""
    queue = producer.queues(rocketpy_topic)[0]
    for body in (b"0", b"x", b"2", b"y", b"4"):
        producer.send(rocketpy.Message(rocketpy_topic, body), queue=queue)
    return rocketpy_topic


def test_what_does_not_decode_goes_to_the_handler_and_the_others_come(rocketpy_server, mixed):
    group, aside, values = fresh_name(), [], []
    with rocketpy_server.consumer(group, mixed) as consumer:
        for value, message in decoded(consumer, JsonCodec(int), on_error=lambda *both: aside.append(both)):
            assert message.body == b"%d" % value
            values.append(value)
            consumer.commit()
            if value == 4:
                break
        queue = message.queue
        assert consumer.committed(queue) == 5
    assert values == [0, 2, 4]
    assert [message.body for message, _ in aside] == [b"x", b"y"]
    assert all(error.message is message and message.msg_id in str(error) for message, error in aside)


def test_without_a_handler_it_raises_and_the_iterator_goes_on_behind_it(rocketpy_server, mixed):
    group = fresh_name()
    with rocketpy_server.consumer(group, mixed) as consumer:
        orders = decoded(consumer, JsonCodec(int))
        assert next(orders)[0] == 0
        with pytest.raises(rocketpy.DecodeError, match=rf"topic {mixed}, queue 0 of broker-a, offset 1\)") as failed:
            next(orders)
        bad = failed.value.message
        assert bad.body == b"x"
        assert bad.msg_id in str(failed.value)
        assert pickle.loads(pickle.dumps(failed.value)).message.msg_id == bad.msg_id
        consumer.commit()
        assert consumer.committed(bad.queue) == 2
        assert next(decoded(consumer, JsonCodec(int)))[0] == 2


def test_an_exception_of_the_handler_ends_the_iteration():
    def fail(message, error):
        raise LookupError(message.msg_id)

    with pytest.raises(LookupError, match="A1") as failed:
        next(decoded([Stored(b"x")], JsonCodec(int), on_error=fail))
    assert failed.value.__context__ is None
    with pytest.raises(TypeError, match="on_error"):
        decoded([], JsonCodec(int), on_error="log")


def test_a_codec_of_ones_own_may_raise_what_it_likes():
    class Number:
        def encode(self, value):
            return b"%d" % value

        def decode(self, message):
            return {b"1": 1}[message.body]

    aside = []
    messages = [Stored(b"1"), Stored(b"2"), Stored(b"1")]
    values = [value for value, _ in decoded(messages, Number(), on_error=lambda _, error: aside.append(error))]
    assert values == [1, 1]
    assert isinstance(aside[0], rocketpy.DecodeError)
    assert isinstance(aside[0].__cause__, KeyError)


@dataclass
class Sale:
    item: str
    amount: int = 1


SALES = JsonCodec(Sale)
BODIES = [SALES.encode(Sale("book", 2)), b"not JSON", SALES.encode(Sale("pen"))]


class Reciting:
    """A codec of a user's own, which raises errors of its own."""

    def encode(self, value):
        return value

    def decode(self, message):
        return {b"x": 1}[message.body]


@pytest.fixture
def sold(producer, rocketpy_topic):
    for body in BODIES:
        producer.send(rocketpy.Message(rocketpy_topic, body, order_key="one queue"))
    return rocketpy_topic


def values(messages):
    """What decodes, and what the others say."""
    found, said = [], []
    for message in messages:
        try:
            found.append(message.value)
        except rocketpy.DecodeError as error:
            said.append((str(error), error.message is message))
    return found, said


def check_sales(found, said, topic):
    assert found == [Sale("book", 2), Sale("pen")]
    ((text, is_named),) = said
    assert is_named
    assert "does not decode as Sale" in text
    assert f"(topic {topic}, queue " in text
    assert ", offset 1)" in text
    assert "not JSON" not in text


class Unpicklable:
    def __init__(self):
        self.lock = threading.Lock()

    def encode(self, value):
        return value

    def decode(self, message):
        return message.body.decode()


def test_a_message_of_a_codec_that_cannot_be_pickled_cannot_be_pickled(rocketpy_server, sold):
    with rocketpy_server.consumer(fresh_name("typed"), sold, codec=Unpicklable()) as consumer:
        message = next(iter(consumer.messages(idle_timeout=1)))
    assert message.value == BODIES[0].decode()
    with pytest.raises(TypeError, match="lock"):
        pickle.dumps(message)


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 400 + b".0", b"NaN", b"-Infinity"])
@pytest.mark.parametrize("charset", ["utf-8", "utf-8-sig", "utf-16", "utf-32-be"])
def test_a_number_that_is_no_float_does_not_decode(rocketpy_server, rocketpy_topic, number, charset):
    with rocketpy_server.producer(fresh_name()) as producer:
        body = b'{"amounts":[1.5,%s]}' % number
        producer.send(rocketpy.Message(rocketpy_topic, body.decode().encode(charset)))
    with rocketpy_server.consumer(fresh_name("typed"), rocketpy_topic, codec=JsonCodec()) as consumer:
        message = next(iter(consumer.messages(idle_timeout=1)))
    with pytest.raises(DecodeError, match=r"does not decode as .*: (the number|JSON has no)") as failed:
        _ = message.value
    assert len(str(failed.value)) < 400


def test_a_consumer_with_a_codec_gives_messages_a_value(rocketpy_server, sold):
    with rocketpy_server.consumer(fresh_name("typed"), sold, codec=SALES) as consumer:
        messages = list(consumer.messages(idle_timeout=1))
        check_sales(*values(messages), sold)
        assert [message.body for message in messages] == BODIES
        consumer.commit()
        (queue,) = {message.queue for message in messages}
        assert consumer.committed(queue) == 3, "the commit goes past what does not decode"
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            assert pickle.loads(pickle.dumps(messages[0], protocol)).value == Sale("book", 2)
        with pytest.raises(DecodeError):
            _ = pickle.loads(pickle.dumps(messages[1])).value
        assert copy.deepcopy(messages[2]).value == Sale("pen")
        with rocketpy.Consumer.assign(
            fresh_name("a"), [queue], codec=SALES, name_servers=rocketpy_server.name_servers
        ) as assigned:
            check_sales(*values(assigned.messages(idle_timeout=1)), sold)
    with rocketpy_server.consumer(fresh_name("plain"), sold) as consumer:
        assert [message.value for message in consumer.messages(idle_timeout=1)] == BODIES


def test_a_codec_that_raises_something_else_is_a_decode_error_too(rocketpy_server, sold):
    with rocketpy_server.consumer(fresh_name("typed"), sold, codec=Reciting()) as consumer:
        message = next(consumer)
        with pytest.raises(rocketpy.DecodeError, match=f"topic {sold}, queue") as caught:
            _ = message.value
        assert isinstance(caught.value.__cause__, KeyError)
    for wrong in [Sale, JsonCodec, "json"]:
        with pytest.raises(TypeError, match="codec must be an object with encode and decode"):
            rocketpy_server.consumer("g", sold, codec=wrong)


def test_an_asyncio_consumer_with_a_codec_gives_messages_a_value(rocketpy_server, sold):
    async def read():
        servers = rocketpy_server.name_servers
        async with rocketpy.AsyncConsumer(fresh_name("typed"), sold, codec=SALES, name_servers=servers) as consumer:
            return [message async for message in consumer.messages(idle_timeout=1)]

    check_sales(*values(asyncio.run(read())), sold)


@pytest.mark.parametrize("kind", ["thread", "task"])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_body_that_does_not_decode_goes_to_the_dead_letters_at_once(rocketpy_server, sold, caplog, kind, ordered):
    found = []
    consumer = rocketpy_server.push_consumer(fresh_name("typed"), ordered=ordered)

    def handle(message):
        found.append(message.value)

    async def handle_async(message):
        handle(message)

    consumer.on(sold, codec=SALES)(handle if kind == "thread" else handle_async)
    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        wait_until(lambda: consumer.stats().consumed == 2 and consumer.stats().dead == 1)
    assert sorted(found, key=str) == [Sale("book", 2), Sale("pen")]
    assert consumer.stats().failed == 1, "it was not tried again"
    (record,) = [record for record in caplog.records if "cannot decode" in record.getMessage()]
    assert ", offset 1)" in record.exc_text
    with rocketpy_server.admin() as admin:
        (letter,) = admin.dead_letters(consumer.group)
        assert letter.message.body == b"not JSON"


def test_a_batch_with_a_body_that_does_not_decode_takes_no_other_message_along(rocketpy_server, sold):
    found = []
    consumer = rocketpy_server.push_consumer(fresh_name("typed"))

    @consumer.on(sold, codec=SALES, batch=8)
    def handle(messages):
        found.extend(values(messages)[0])

    with consumer:
        wait_until(lambda: consumer.stats().consumed == 3)
    assert found == [Sale("book", 2), Sale("pen")]

"""Filter expressions of the console: grammar, errors with positions, exact numbers and masked fields."""

import json
import random
from decimal import Decimal

import pytest

from rocketpy.console.filters import Candidate, FilterError, parse_filter
from rocketpy.console.masking import MaskRule, mask_of

ORDER = {
    "amount": 120,
    "state": "paid",
    "customer": {"name": "Ada", "card": "4111"},
    "items": [{"name": "pen"}, {"name": "ink"}],
    "labels": ["red", 7, None],
    "is late": True,
    "tag": "of the body",
    "gone": None,
}


def candidate(body: object = None, tag="paid", keys=("o-1", "o-2"), properties=None) -> Candidate:
    data = body if isinstance(body, bytes) else json.dumps(ORDER if body is None else body).encode()
    return Candidate(
        tag, keys, {"region": "eu-1", "weight": "2.50"} if properties is None else properties, lambda: data
    )


def matches(text: str, message: Candidate | None = None) -> bool:
    found = parse_filter(text)
    assert found is not None
    return found.matches(message or candidate())


@pytest.mark.parametrize(
    "text",
    [
        'tag == "paid"',
        'key == "o-2"',
        'key in ["x", "o-1"]',
        "amount > 100",
        "body.amount >= 120 and amount <= 120",
        'customer.name == "Ada"',
        'body["customer"]["name"] starts with "A"',
        'items[1].name == "ink"',
        'labels contains "red" and labels contains 7 and labels contains null',
        'body["is late"] == true',
        'body.tag == "of the body"',
        'properties.region starts with "eu"',
        'properties["region"] contains "-"',
        "properties.weight == 2.5",
        "properties.weight > 2 AND NOT properties.weight > 3",
        "missing == null and gone == null",
        'missing != "paid"',
        'state IN ["late", "paid"]',
        '(tag == "x" or amount == 120) and not (amount == 1)',
        'tag == "x" and tag == "x" or tag == "paid"',
        'body contains "4111"',
        r'customer.name != "\u0041da!"',
        "state == 'paid'",
        "amount == 1.2e2",
        "amount != 121",
    ],
)
def test_filter_matches_message(text):
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        'key != "o-1"',
        'amount == "120"',
        'amount > "100"',
        "state > 5",
        "missing > 0",
        "missing < 0",
        'missing contains "a"',
        'labels contains "re"',
        "items[2].name != null",
        "items.name != null",
        'body["items"]["0"] != null',
        "not amount == 120",
        'tag == "x" and (tag == "paid" or amount == 120)',
        'properties.region == "EU-1"',
        "properties.region > 1",
        'body contains "absent"',
    ],
)
def test_filter_rejects_message(text):
    assert not matches(text)


def test_ten_to_the_twentieth_is_compared_exactly():
    big = 10**20
    assert matches(f"n == {big}", candidate(f'{{"n": {big}}}'.encode()))
    assert not matches(f"n == {big + 1}", candidate(f'{{"n": {big}}}'.encode()))
    assert matches(f"n > {big}", candidate(f'{{"n": {big + 1}}}'.encode()))
    assert matches(f"n == {big}", candidate(b'{"n": 1e20}'))
    assert matches("n == 0.1", candidate(b'{"n": 0.1000000000000000000000}'))
    assert not matches("n == 0.1", candidate(b'{"n": 0.1000000000000000000001}'))
    assert matches(f"properties.n > {big}", candidate(properties={"n": str(big + 1)}))
    assert not matches(f"properties.n > {big}", candidate(properties={"n": str(big)}))


@pytest.mark.parametrize("digits", ["9" * 5000, "1e99999999999999999999", "1e999999999", "-1e-999999999"])
def test_extreme_numbers_raise_nothing(digits):
    message = candidate(f'{{"n": {digits}, "m": 1}}'.encode())
    assert matches("m == 1", message)
    assert not matches("n == 1", message)
    assert matches("n > 1", message) == (digits[0] != "-" and len(digits) != 22)


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"{", b"[" * 100_000, b'{"a": NaN}', b"plain paid text"])
def test_body_that_is_not_json_has_no_fields(body):
    assert matches("a == null", candidate(body))
    assert not matches("a == 1", candidate(body))


def test_body_is_not_read_before_a_test_needs_it():
    def unread() -> bytes:
        raise AssertionError("body read")

    message = Candidate("x", (), {}, unread)
    assert not matches('tag == "y" and amount > 1', message)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("state == paid", 'text is written in quotes: "paid", not `paid` at character 10'),
        ("a = 1", "`=` is not an operator, write `==` at character 3"),
        ("(a == 1", "expected `)`, not the end at character 8"),
        ("a == 1 b", "expected `and`, `or` or the end, not `b` at character 8"),
        ("a && b", "write `and`, `or`, `not`: the signs `&`, `|`, `!`, `~` are not supported at character 3"),
        ('x == "abc', "text without its closing quote at character 6"),
        ("open('/etc/passwd') == 1", "filters have no functions at character 5"),
        ("body == 1", "`body` alone has only `contains` and `starts with`; test a field: `body.NAME` at character 1"),
        ("tag.x == 1", "`tag` has no fields; a field of the body is written `body.tag` at character 1"),
        ("a == 1e99999999999999999999", "number out of range at character 6"),
        ("a ==\x1b[31m", "unexpected character `\\x1b` at character 5"),
        ("not " * 21 + "a == 1", "more than 20 levels of brackets and `not` at character 81"),
        ("(" * 1000, "more than 20 levels of brackets and `not` at character 21"),
        ("a" * 1001, "more than 1,000 characters at character 1001"),
        ('a starts "b"', 'expected `with` after `starts`, not `"b"` at character 10'),
        (r'a == "\x"', r"unknown escape `\x` in a text at character 7"),
        (r'a == "\ud800"', "text with half of a character at character 6"),
    ],
)
def test_malformed_filter_names_problem_and_position(text, problem):
    with pytest.raises(FilterError) as caught:
        parse_filter(text)
    assert str(caught.value) == f"cannot read filter: {problem}"


def test_blank_filter_is_none():
    assert parse_filter(" \n") is None


def test_filter_at_the_limits_is_accepted():
    deep = "(" * 20 + "a == 1" + ")" * 20
    assert matches(deep, candidate(b'{"a": 1}'))
    assert matches('a == "' + "x" * 993 + '"', candidate({"a": "x" * 993}))


WORDS = ["and", "or", "not", "(", ")", "[", "]", "in", "contains", "starts", "with", "==", "<", ",", ".", '"', "'"]
WORDS += ["tag", "key", "properties", "body", "x", "1", "-", "e5", "\\", "\x00", "é", "\u202e", "true", "null", " "]


def test_random_text_is_a_filter_or_an_error_with_a_position(chance: random.Random):
    read = 0
    for _ in range(3000):
        words = chance.choices(WORDS, k=chance.randrange(1, 9))
        text = chance.choice(["", " "]).join(words)
        try:
            found = parse_filter(text)
        except FilterError as error:
            is_inside = 0 <= error.at <= len(text)
            assert is_inside, text
            continue
        if found is not None:
            found.matches(candidate())
            read += 1
    assert read < 3000


FIELDS = {"tag": ("tag", True), "properties.n": ("n", True), "a": ("a", False), "body.b.c": ("c", False)}


def random_filter(chance: random.Random, values: dict[str, object], depth: int) -> tuple[str, bool]:
    """Text of a filter, and whether it matches, found by Python's own operators."""
    if depth == 0 or chance.random() < 0.3:
        return random_comparison(chance, values)
    kind = chance.choice(["and", "or", "not"])
    one, is_one = random_filter(chance, values, depth - 1)
    if kind == "not":
        return f"not ({one})", not is_one
    other, is_other = random_filter(chance, values, depth - 1)
    return f"({one}) {kind} ({other})", (is_one and is_other) if kind == "and" else (is_one or is_other)


def random_comparison(chance: random.Random, values: dict[str, object]) -> tuple[str, bool]:
    field = chance.choice(list(FIELDS))
    name, is_text = FIELDS[field]
    value = values[name]
    constant = chance.choice([chance.randrange(-2, 3), 10**20, 10**20 + 1, Decimal("0.5"), "", "a", 'b"\\\n'])
    operator = chance.choice(["==", "!=", "<", "<=", ">", ">=", "contains", "starts with"])
    if operator == "starts with" and not isinstance(constant, str):
        operator = "=="
    written = json.dumps(constant) if isinstance(constant, str) else str(constant)
    if is_text and isinstance(value, str) and not isinstance(constant, str) and operator != "contains":
        value = Decimal(value) if value.lstrip("-").replace(".", "", 1).isdigit() else value
    return f"{field} {operator} {written}", expected(value, operator, constant)


def expected(value: object, operator: str, constant: object) -> bool:
    is_alike = isinstance(value, str) == isinstance(constant, str) and value is not None
    match operator:
        case "==":
            return is_alike and value == constant
        case "!=":
            return not (is_alike and value == constant)
        case "contains":
            return is_alike and isinstance(value, str) and constant in value
        case "starts with":
            return is_alike and isinstance(value, str) and value.startswith(constant)
    return (
        is_alike
        and {"<": value < constant, "<=": value <= constant, ">": value > constant, ">=": value >= constant}[operator]
    )


def test_random_filters_agree_with_python(chance: random.Random):
    hits = 0
    for _ in range(1500):
        texts = ["", "a", 'ab"\\\n', "1", "0.5", str(10**20)]
        scalars = [None, 1, 10**20, 10**20 + 1, 0.5, *texts]
        values: dict[str, object] = {"tag": chance.choice([None, *texts]), "n": chance.choice(texts)}
        values |= {"a": chance.choice(scalars), "c": chance.choice(scalars)}
        body = json.dumps({"a": values["a"], "b": {"c": values["c"]}}).encode()
        message = candidate(body, tag=values["tag"], properties={"n": values["n"]})
        text, is_match = random_filter(chance, values, 3)
        if len(text) <= 1000:
            assert matches(text, message) == is_match, (text, values)
            hits += is_match
    assert 100 < hits < 1400


@pytest.mark.parametrize(
    "text",
    [
        'customer.card == "4111"',
        'body.customer["card"] starts with "4"',
        'customer contains "4111"',
        "customer.card.digits == 1",
        'cards[3].number == "1"',
        'body contains "4111"',
        'tag == "x" or (not (amount > 1 and properties.token == "s"))',
        'key == "o-1"',
    ],
)
def test_filter_over_a_masked_field_is_refused(text):
    rule = MaskRule("shop-*", paths=("customer.card", "cards.number"), properties=("token", "KEYS"))
    found = parse_filter(text)
    assert found is not None
    with pytest.raises(FilterError, match="your role may not test"):
        mask_of([rule], "shop-orders").check(found)
    mask_of([rule], "other").check(found)


def test_filter_over_other_fields_passes_the_mask():
    mask = mask_of([MaskRule("*", paths=("customer.card",), properties=("token",))], "shop-orders")
    found = parse_filter('customer.name == "Ada" and amount > 1 and properties.region == "eu" and tag == "x"')
    assert found is not None
    mask.check(found)
    hidden = mask_of([MaskRule("shop-?rders", hides_body=True)], "shop-orders")
    with pytest.raises(FilterError, match=r"may not test `body\.customer\.name`"):
        hidden.check(found)

"""Bodies on the console's pages: JSON, text and hexadecimal views of hostile bodies, and masked fields."""

import json
import random
from decimal import Decimal

import pytest

from rocketpy.console.bodies import HIDDEN, preview, shown_body, view_of
from rocketpy.console.json_text import JsonProblem, check_json, exact_json, pretty_json
from rocketpy.console.masking import MaskRule, mask_of

MIB = 1024 * 1024


def test_json_keeps_numbers_escapes_and_repeated_names():
    body = b'{"n":100000000000000000000,"f":1.0e+2,"n":0.10,"s":"\\u0041</script>"}'
    shown = shown_body(body)
    assert shown.view == "json"
    assert shown.text.split("\n")[1:5] == [
        '  "n": 100000000000000000000,',
        '  "f": 1.0e+2,',
        '  "n": 0.10,',
        '  "s": "\\u0041</script>"',
    ]


def random_value(chance: random.Random, depth: int) -> object:
    kind = chance.randrange(7 if depth else 5)
    if kind == 5:
        return [random_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == 6:
        return {chance.choice('ab",:[{\\é '): random_value(chance, depth - 1) for _ in range(chance.randrange(4))}
    return [None, True, chance.randrange(10**25), chance.random(), 'a "b" \\ {[,:\n\u202e'][kind]


def test_pretty_json_has_the_value_and_the_lines_of_the_standard_library(chance: random.Random):
    for _ in range(500):
        value = random_value(chance, 5)
        text = json.dumps(value, separators=chance.choice([(",", ":"), (" ,\n", "\t: ")]))
        shown, is_cut = pretty_json(text, 10**6)
        assert not is_cut
        assert shown == json.dumps(value, indent=2)
        assert exact_json(text.encode()) == json.loads(text, parse_float=Decimal)


@pytest.mark.parametrize(
    ("body", "view", "problem"),
    [
        (b"", "text", "empty body"),
        (b"plain", "text", "not JSON: line 1, column 1"),
        (b'{"a": 1', "text", "not JSON: line 1, column 8"),
        (b"[1,]", "text", "not JSON: line 1, column 4"),
        (b"NaN", "text", "JSON has no NaN"),
        (b"[-Infinity]", "text", "JSON has no -Infinity"),
        (b"caf\xe9", "hex", "byte 3 is not UTF-8"),
        (b"\x00\x01", "hex", "not JSON: line 1, column 1"),
        (b"[" * 100_000 + b"]" * 100_000, "text", "JSON deeper than 100 levels"),
        (b'{"a":' * 100_000, "text", "JSON deeper than 100 levels"),
        (b"[" * 101 + b"]" * 101, "text", "JSON deeper than 100 levels"),
        (b'{"a":[' * 50 + b"{}" + b"]}" * 50, "text", "JSON deeper than 100 levels"),
        (b" " * (4 * MIB) + b"1", "hex", "body longer than 4 MiB"),
    ],
)
def test_other_body_is_shown_with_the_cause(body, view, problem):
    shown = shown_body(body)
    assert (shown.view, shown.problem, shown.size) == (view, problem, len(body))


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100 + b"]" * 100,
        b'["' + b"[" * 200 + b'"]',
        b'["\\"' + b"[" * 200 + b'"]',
        b"[[]," * 99 + b"1" + b"]" * 99,
    ],
)
def test_json_of_a_hundred_levels_is_shown(body):
    assert shown_body(body).view == "json"


@pytest.mark.parametrize(
    "body",
    [
        b"x" * (4 * MIB),
        b"1" * (4 * MIB),
        b"[" + b"1," * (2 * MIB - 1) + b"1]",
        b"\xff" * (4 * MIB),
        b"[" * (4 * MIB),
        b'"' + "é".encode() * (2 * MIB - 1) + b'"',
    ],
)
def test_largest_body_shows_its_first_64_kib(body):
    shown = shown_body(body)
    assert shown.is_cut
    assert shown.size == len(body)
    assert len(shown.text) <= 64 * 1024 * 5
    if shown.view != "hex":
        assert len(shown.text) <= 64 * 1024


def test_cut_text_ends_with_a_whole_character():
    body = b"x" + "é".encode() * 40_000
    shown = shown_body(body)
    assert shown.text == "x" + "é" * 32_767


def test_text_escapes_control_characters_and_marks_of_direction():
    shown = shown_body("red \x1b[31m \u202edeef\nline\ttab".encode())
    assert shown.text == "red \\x1b[31m \\u202edeef\nline\ttab"
    assert shown_body('{"a": "\u202edeef\u2028"}'.encode()).text == '{\n  "a": "\\u202edeef\\u2028"\n}'


def test_text_escapes_invisible_marks_of_direction():
    assert shown_body("a\u200fb\u200e\u061c".encode()).text == "a\\u200fb\\u200e\\u061c"


def test_broken_utf8_as_text_shows_its_bytes():
    shown = shown_body(b"caf\xe9 \xff", "text")
    assert (shown.view, shown.text) == ("text", "caf\\xe9 \\xff")


def test_wanted_view_of_json_is_used():
    assert shown_body(b'{"a":1}', "text").text == '{"a":1}'
    assert shown_body(b'{"a":1}', "hex").text.startswith("00000000  7b 22 61 22 3a 31 7d ")
    assert shown_body(b"plain", "json").view == "text"
    assert view_of("html") is None


@pytest.mark.parametrize("body", [b"x" * 300, b"\xff" * 300, "é".encode() * 300, b'{"a":\n "</script>"}' * 40])
def test_preview_is_one_short_line(body):
    text = preview(body)
    assert len(text) <= 200
    assert "\n" not in text


def test_masked_fields_are_hidden_in_every_view():
    mask = mask_of([MaskRule("shop-*", paths=("customer.card", "items.cost"))], "shop-orders")
    body = b'{"customer":{"card":"4111","name":"Ada","c\\u0061rd":{"no":[4111]}},'
    body += b'"items":[{"cost":7},[{"cost":[7]}]],"card":8}'
    for view in (None, "json", "text", "hex"):
        shown = shown_body(body, view, mask)
        assert shown.views == ("json",)
        assert "4111" not in shown.text
        assert "7" not in shown.text
        value = json.loads(shown.text)
        assert value["items"] == [{"cost": HIDDEN}, [{"cost": HIDDEN}]]
        assert (value["card"], value["customer"]["name"]) == (8, "Ada")
    assert "4111" not in preview(body, mask)


def test_body_that_is_not_json_is_hidden_under_a_path_rule():
    mask = mask_of([MaskRule("*", paths=("card",))], "shop-orders")
    for body in (b"card=4111", b'{"card": 4111', b"[" * 200 + b"4111" + b"]" * 200):
        shown = shown_body(body, "text", mask)
        assert (shown.text, shown.is_hidden, shown.views) == (HIDDEN, True, ())
        assert preview(body, mask) == HIDDEN


def test_hidden_body_shows_its_size_only():
    mask = mask_of([MaskRule("*", hides_body=True)], "shop-orders")
    shown = shown_body(b'{"a": 1}', None, mask)
    assert (shown.text, shown.size, shown.is_hidden) == (HIDDEN, 8, True)
    assert preview(b'{"a": 1}', mask) == HIDDEN


def test_random_bytes_raise_only_json_problems(chance: random.Random):
    for _ in range(500):
        body = bytes(chance.choices(b'{}[]",:\\ 019eE+-.tfn\xc3\xa9\x00', k=chance.randrange(12)))
        try:
            text = check_json(body)
        except JsonProblem:
            assert shown_body(body).problem is not None
        else:
            assert json.loads(pretty_json(text, 1000)[0]) == json.loads(body)

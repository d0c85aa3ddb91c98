"""Exceptions of users' functions in logs: their texts come from peers, and may contain bodies."""

import logging
import traceback
from types import SimpleNamespace

import pytest

import rocketpy
from rocketpy.base.failure import MAX_LINKS, MAX_TEXT, loggable
from rocketpy.producing.transaction import answer_one
from rocketpy.testing import fresh_name
from waiting import wait_until

BODY = "secret-\x1b[31m-order 4711"


class Refused(Exception):
    """An error of an application."""


def formatted(error: BaseException) -> str:
    return "".join(traceback.format_exception(*loggable(error)))


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_a_traceback_keeps_types_frames_and_causes_and_escapes_every_text():
    error = raised(Refused("bad \x1b[2J\nline"), raised(KeyError("\x9b")))
    error.add_note("see \x07")
    text = formatted(error)
    assert f"{Refused.__module__}.Refused: bad \\x1b[2J\\nline\nsee \\x07\n" in text
    assert "KeyError: '\\x9b'" in text
    assert "The above exception was the direct cause" in text
    assert text.count("raise error from cause") == 2
    assert not {"\x1b", "\x07", "\x9b"} & set(text)


def test_the_texts_of_a_group_are_escaped_and_a_cycle_ends():
    member = ValueError("\x1b")
    group = ExceptionGroup("all \x1b", [member, OSError("disk")])
    member.__cause__ = group
    text = formatted(raised(group))
    assert "ExceptionGroup: all \\x1b (2 sub-exceptions)" in text
    assert "ValueError: \\x1b" in text
    assert "OSError: disk" in text
    assert "\x1b" not in text


def test_long_texts_and_long_chains_are_cut():
    error = None
    for _ in range(10 * MAX_LINKS):
        error = raised(Refused("x" * 10 * MAX_TEXT), error)
    assert error is not None
    assert len(formatted(error)) < MAX_LINKS * (MAX_TEXT + 1000)


def test_an_error_without_a_text_of_its_own_keeps_its_type():
    class Silent(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert "Silent" in formatted(raised(Silent()))
    assert formatted(Refused()) == f"{Refused.__module__}.Refused\n"


def assert_is_safe(record: logging.LogRecord) -> None:
    """Neither the formatted traceback nor the exception itself, which other formatters write, has the body."""
    assert record.exc_info is not None
    error = record.exc_info[1]
    for text in (record.exc_text or "", str(error), str(error.__cause__), str(record.getMessage())):
        assert "secret" not in text
        assert "\x1b" not in text
    assert "Refused: cannot book <body>" in (record.exc_text or "")
    assert "ValueError: invalid literal" in (record.exc_text or "")


@pytest.mark.parametrize("is_async", [False, True])
def test_the_traceback_of_the_last_attempt_has_neither_the_body_nor_control_characters(
    server, topic, group, caplog, is_async
):
    consumer = server.push_consumer(group, start="earliest", max_retries=0)

    def book(message):
        try:
            int(message.body)
        except ValueError as error:
            raise Refused(f"cannot book {message.body.decode()}") from error

    async def book_async(message):
        book(message)

    consumer.on(topic)(book_async if is_async else book)
    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        with server.producer(fresh_name("send")) as producer:
            producer.send(rocketpy.Message(topic, BODY.encode()))
        wait_until(lambda: [one for one in caplog.records if one.exc_info], "the last attempt is logged")
    (record,) = [one for one in caplog.records if one.exc_info]
    assert_is_safe(record)


@pytest.mark.parametrize("is_wrong_answer", [False, True])
def test_the_log_of_a_failed_check_back_has_neither_the_body_nor_control_characters(caplog, is_wrong_answer):
    def check(message):
        if is_wrong_answer:
            return message.body
        try:
            int(message.body)
        except ValueError as error:
            raise Refused(f"cannot book {message.body.decode()}") from error

    message = SimpleNamespace(msg_id="ID", body=BODY.encode())
    answer_one(None, SimpleNamespace(message=message), check, "payers")
    (record,) = caplog.records
    if is_wrong_answer:
        assert "must return a rocketpy.Decision, returned <body> for message ID" in record.getMessage()
    else:
        assert_is_safe(record)


class Broken:
    """A value whose conversions and comparisons raise."""

    def __repr__(self) -> str:
        raise LookupError

    __str__ = __repr__

    def __eq__(self, _other: object) -> bool:
        raise LookupError

    __hash__ = object.__hash__


def test_check_thread_survives_an_answer_whose_conversions_raise(caplog):
    message = SimpleNamespace(msg_id="7F", body=b"")
    with caplog.at_level(logging.ERROR):
        answer_one(SimpleNamespace(), SimpleNamespace(message=message), lambda _: Broken(), "g")
    assert "returned <Broken> for message 7F" in caplog.text


def test_note_whose_conversion_raises_is_shown_by_its_type():
    error = raised(Refused("bad"))
    error.__notes__ = [Broken()]
    assert formatted(error).endswith("Refused: bad\n<Broken>\n")

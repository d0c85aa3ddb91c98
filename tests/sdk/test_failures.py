"""Exceptions of users' functions in logs: their texts come from peers, and may contain bodies."""

import logging
import traceback
from types import SimpleNamespace

import pytest

import rocketpy
from rocketpy.base.failure import MAX_LINKS, MAX_TEXT, loggable
from rocketpy.consuming.handlers import Retry, reason_of
from rocketpy.consuming.rebalance import Callbacks
from rocketpy.consuming.workers import Workers
from rocketpy.producing.transaction import Transaction, answer_one
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


SECRET = "secret-order-4711-of-the-customer-Alice"


def sent(*bodies: str | bytes) -> list[SimpleNamespace]:
    return [SimpleNamespace(body=body.encode() if isinstance(body, str) else body) for body in bodies]


@pytest.mark.parametrize("end", [512, MAX_TEXT, 2 * MAX_TEXT])
@pytest.mark.parametrize("form", [str, repr, str.encode, '"{}"'.format], ids=["plain", "quoted", "bytes", "json"])
def test_no_cut_of_a_text_leaves_a_part_of_a_body(end, form):
    """At every place around the end of a text, in a log and in a dead letter."""
    messages = sent(SECRET)
    for before in range(end - len(SECRET) - 8, end + 2):
        error = Refused(f"{'x' * (before - len('Refused: '))}{form(SECRET)} {'y' * MAX_TEXT}")
        wrapped = Retry(10)
        wrapped.__cause__ = error
        (copied, reason, caused) = (
            str(loggable(error, messages)[1]),
            reason_of(error, messages),
            reason_of(wrapped, messages),
        )
        for text in (copied, reason, caused):
            assert "secr" not in text, before
            assert "lice" not in text, before
        assert len(copied) <= MAX_TEXT


def test_a_body_after_a_longer_one_that_moves_it_before_the_cut_is_removed():
    long = "first " + "z" * (MAX_TEXT - 100)
    for gap in range(70, 110):
        text = reason_of(Refused(f"{long} {'-' * gap} {SECRET} {'y' * MAX_TEXT}"), sent(long, SECRET))
        assert text.startswith("Refused: <body> ---")
        assert "secr" not in text


DIFFERENT = "".join(map(chr, range(0x4E00, 0x6E00)))
"""Characters of 3 bytes; no part of it occurs twice."""


@pytest.mark.parametrize("form", [str, repr, str.encode])
@pytest.mark.parametrize("body", [DIFFERENT[:1000], DIFFERENT[:3000], DIFFERENT, " " * 20_000 + SECRET + "  "])
def test_long_bodies_are_removed_to_their_end(body, form):
    for raw in (body, body.strip()):
        text = reason_of(Refused(f"bad: {form(raw)}"), sent(body))
        assert text.replace(" ", "") in ("Refused:bad:<body>", "Refused:bad:"), text


def test_bodies_of_a_batch_that_begin_alike_are_removed_whole():
    bodies = [f'{{"kind": "order placed by a customer", "name": "{name}", "id": {place}}}'
              for place, name in enumerate(("Alice", "Bob", "Carol"))]  # fmt: skip
    for body in bodies:
        assert reason_of(Refused(f"cannot book {body}!"), sent(*bodies)) == "Refused: cannot book <body>!"


def test_a_body_within_a_longer_one_does_not_hide_it():
    text = reason_of(Refused(f"{SECRET}, secret-order"), sent("secret-order", SECRET))
    assert text == "Refused: <body>, <body>"


def test_an_input_of_pydantic_that_was_cut_is_removed():
    line = "\nname\n  Input should be a valid string [type=string_type, input_value='Alice 4711', input_type=str]"
    for before in range(len(line)):
        assert "Alice" not in reason_of(Refused("-" * before + line * 60), sent("{}"))
    assert "Alice" not in reason_of(Refused(line[:-20]), sent("{}"))


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


def test_log_of_a_transaction_that_is_left_open_has_the_type_of_the_error_only(caplog):
    half = SimpleNamespace(receipt=SimpleNamespace(msg_id="7F"))
    with caplog.at_level(logging.INFO), pytest.raises(Refused), Transaction(half):
        raise Refused(f"cannot book {BODY}")
    (record,) = caplog.records
    assert record.getMessage() == "transaction 7F left open for the check-back of the broker: Refused"


def test_exception_that_leaves_a_transaction_open_says_so_in_a_note(rocketpy_server, rocketpy_topic):
    message = rocketpy.Message(rocketpy_topic, b"text")

    def work(message):
        raise Refused("cannot book")

    def check(message):
        return rocketpy.Decision.ROLLBACK

    with rocketpy_server.transaction_producer("payers", check, local=work) as producer:
        with pytest.raises(Refused) as first, producer.transaction(message) as open_one:
            raise Refused("cannot book")
        with pytest.raises(Refused) as second:
            producer.send_in_transaction(message)
        rolled_back = producer.transaction(message)
        rolled_back.rollback()
        with pytest.raises(Refused) as ended, rolled_back:
            raise Refused("cannot book")
    (note,) = first.value.__notes__
    assert note.startswith(f"transaction of message {open_one.receipt.msg_id} left open: the broker asks `check`")
    assert "`rollback()` ends it" in note
    assert "left open" in second.value.__notes__[0]
    assert not hasattr(ended.value, "__notes__")


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


class Falsy(SystemExit):
    """An error that is false, as an empty collection is."""

    def __bool__(self) -> bool:
        return False


def fails(*_: object) -> None:
    raise Falsy("bad \x1b[2J")


def assert_shows_falsy(record: logging.LogRecord) -> None:
    assert "Falsy: bad \\x1b[2J" in logging.Formatter().format(record)


def test_false_error_of_a_callback_is_logged_with_its_traceback(caplog):
    callbacks = Callbacks("g", fails, None)
    change = SimpleNamespace(is_gain=True, queues=[])
    try:
        callbacks.call_plain(None, change)
    except Falsy as error:
        callbacks.failed(change, error)
    (record,) = caplog.records
    assert_shows_falsy(record)
    assert callbacks.failures == 1


def test_false_error_that_stops_the_loop_of_handlers_is_logged_with_its_traceback(caplog):
    workers, loop = SimpleNamespace(_loop_ends=False, _group="g"), SimpleNamespace(run_forever=fails)
    Workers._run_until_stopped(workers, loop)
    (record,) = caplog.records
    assert_shows_falsy(record)

"""Loops of `rocketpy consume`, with queues that change at a chosen moment."""

import itertools
from types import SimpleNamespace

import pytest

from rocketpy import MessageQueue
from rocketpy.cli import consume
from rocketpy.cli.consume import Output
from rocketpy.console.exits import CommandError, ExitCode

READ, UNREAD = MessageQueue("orders", "a", 0), MessageQueue("orders", "b", 0)


@pytest.fixture
def seconds(monkeypatch):
    """A clock that advances by a second at each reading."""
    monkeypatch.setattr(consume, "monotonic", itertools.count().__next__)


class Member:
    """Member of a group with one message; the broker of its second queue answers at a later poll, or never."""

    group = "readers"

    def __init__(self, answers_at):
        self.polls, self._answers_at = 0, answers_at

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def poll(self, _count, _timeout):
        self.polls += 1
        if self.polls == 1:
            return [SimpleNamespace(body=b"read")]
        return [SimpleNamespace(body=b"late")] if self.polls == self._answers_at else []

    def commit(self):
        pass

    def assignment(self):
        return [READ, UNREAD]

    def positions(self):
        return {READ: 1} | ({} if self._answers_at is None or self.polls < self._answers_at else {UNREAD: 1})

    def lag(self):
        return dict.fromkeys(self.positions(), 0)


def test_member_without_an_answer_for_a_queue_ends_with_an_error_that_names_it(seconds, capsysbinary):
    with pytest.raises(CommandError, match=f"no broker of the queues answered within 60 s: {UNREAD}$") as raised:
        consume.consume_as_member(Member(answers_at=None), False, None, Output.TEXT)
    assert raised.value.code == ExitCode.UNAVAILABLE
    assert capsysbinary.readouterr().out == b"read\n"


def test_member_waits_for_the_first_answer_for_each_queue(seconds, capsysbinary):
    consume.consume_as_member(Member(answers_at=10), False, None, Output.TEXT)
    assert capsysbinary.readouterr().out == b"read\nlate\n"

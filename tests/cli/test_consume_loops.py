"""Loops of `rocketpy consume`, with queues that change at a chosen moment."""

import contextlib
import itertools
from types import SimpleNamespace

import pytest

from rocketpy import MessageQueue, OffsetError
from rocketpy.cli import consume
from rocketpy.cli.message_output import Output, Writer
from rocketpy.commandline.exits import CommandError, ExitCode

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
        consume.consume_as_member(Member(answers_at=None), None, Writer(Output.TEXT), False, None)
    assert raised.value.code == ExitCode.UNAVAILABLE
    assert capsysbinary.readouterr().out == b"read\n"


def test_member_waits_for_the_first_answer_for_each_queue(seconds, capsysbinary):
    consume.consume_as_member(Member(answers_at=10), None, Writer(Output.TEXT), False, None)
    assert capsysbinary.readouterr().out == b"read\nlate\n"


class Topic:
    """A queue in memory. `changes` maps the number of a call, such as `max_offset 3`, to a change before its answer."""

    def __init__(self, *bodies, changes=()):
        self.min, self.clock, self.bodies = 0, 0, []
        self.changes, self.calls = dict(changes), dict.fromkeys(("max_offset", "read", "queues"), 0)
        self.add(*bodies)

    def add(self, *bodies):
        for body in bodies:
            self.clock += 1
            self.bodies.append((body, self.clock))

    def create_again(self, *bodies):
        self.min, self.bodies = 0, []
        self.add(*bodies)

    def expire(self, offset):
        self.min = offset

    def _called(self, name):
        self.calls[name] += 1
        self.changes.pop(f"{name} {self.calls[name]}", lambda: None)()

    def queues(self, _topic):
        self._called("queues")
        return [READ]

    def min_offset(self, _queue):
        return self.min

    def max_offset(self, _queue):
        self._called("max_offset")
        return len(self.bodies)

    def search_offset(self, _queue, at):
        later = (offset for offset, (_, clock) in enumerate(self.bodies) if clock >= at.timestamp() * 1000)
        return max(self.min, next(later, len(self.bodies)))

    @contextlib.contextmanager
    def read(self, queue, start, end, **_):
        self._called("read")
        yield SimpleNamespace(messages=lambda: self._messages(queue, start, end))

    def _messages(self, queue, start, end):
        if not self.min <= start < end <= len(self.bodies):
            raise OffsetError(f"offsets {start} to {end} are not in {queue}")
        for offset in range(start, end):
            body, clock = self.bodies[offset]
            facts = {"queue": queue, "queue_offset": offset, "physical_offset": clock, "stored_at_ms": clock}
            yield [SimpleNamespace(body=body, msg_id=f"{body}", **facts)]


def followed(topic, rounds, monkeypatch):
    """Bodies that `--follow` prints in so many rounds."""
    monkeypatch.setattr(consume, "FOLLOW_SECONDS", 0)
    bodies, messages = [], consume.read_on(topic, READ.topic, {READ: 0}, topic.read, follow=True)
    for _ in range(rounds):
        bodies += [message.body for message in iter(messages.__next__, None)]
    return bodies


def test_follow_notices_a_longer_later_topic_after_the_first_messages_of_an_empty_one(monkeypatch, capsys):
    topic = Topic()
    topic.changes = {
        "max_offset 2": lambda: topic.add("a1", "a2"),  # after the check of the first round
        "queues 3": lambda: topic.create_again("b1", "b2", "b3"),
    }
    assert followed(topic, 4, monkeypatch) == ["a1", "a2", "b1", "b2", "b3"]


def test_follow_notices_a_later_topic_with_as_many_messages(monkeypatch, capsys):
    topic = Topic("a1", "a2")
    topic.changes = {"queues 3": lambda: topic.create_again("b1", "b2")}
    assert followed(topic, 4, monkeypatch) == ["a1", "a2", "b1", "b2"]
    assert "was created again, or its store was replaced; reading continues at offset 0" in capsys.readouterr().err


def test_follow_continues_with_a_notice_after_messages_that_expired_before_the_read(monkeypatch, capsys):
    topic = Topic("a1", "a2", "a3")
    topic.changes = {"read 2": lambda: topic.expire(2)}  # the first read is that of the check
    assert followed(topic, 3, monkeypatch) == ["a3"]
    said = capsys.readouterr().err
    assert f"{READ} expired 2 unread messages; reading continues at offset 2" in said
    assert "available again" in said


def test_follow_continues_with_a_shorter_later_topic_that_appears_before_the_read(monkeypatch, capsys):
    topic = Topic("a1", "a2", "a3")
    topic.changes = {"read 2": lambda: topic.create_again("b1")}
    assert followed(topic, 3, monkeypatch) == ["b1"]

"""`nothing_left`: messages that a test must not leave at its server."""

import threading
from contextlib import contextmanager

import pytest

import rocketpy
from rocketpy.testkit import drain, fresh_name, nothing_left, temporary_server
from waiting import wait_until


@pytest.fixture(scope="module")
def server():
    with temporary_server() as server:
        yield server


@pytest.fixture
def topic(server):
    name = fresh_name("left")
    with server.admin() as admin:
        admin.create_topic(name, queues=2)
    return name


@pytest.fixture
def send(server, topic):
    with server.producer("left") as producer:
        yield lambda *bodies, **options: [producer.send(rocketpy.Message(topic, body, **options)) for body in bodies]


def consume(server, group, topic, *, commit=True):
    with server.consumer(group, topic) as consumer:
        messages = drain(consumer)
        if commit:
            consumer.commit()
    return messages


@contextmanager
def leaving(server, **options):
    """Gives a list for the lines of the error at the end of the `with` statement."""
    lines: list[str] = []
    with pytest.raises(AssertionError) as left, nothing_left(server, **options):
        yield lines
    head, *rest = str(left.value).splitlines()
    assert head == "messages are left at the end of the test:"
    lines += [line.strip() for line in rest]


def test_consumed_messages_and_those_of_former_tests_are_not_left(server, topic, send):
    send(b"of a former test")
    stuck, group = fresh_name("stuck"), fresh_name("reader")
    consume(server, stuck, topic)  # a group of a former test reads nothing more
    with nothing_left(server):
        send(b"a", b"b")
        assert len(consume(server, group, topic)) == 3
    with nothing_left(server):
        pass


def test_messages_without_reader_and_of_a_reader_that_is_behind_are_left(server, topic, send):
    done, behind = fresh_name("done"), fresh_name("behind")
    with leaving(server) as lines:
        send(b"a", b"b", b"c")
    assert lines == [f"topic {topic}: no group has committed 3 messages"]
    with leaving(server) as lines:
        send(b"c")
        consume(server, done, topic, commit=False)
    assert lines == [f"topic {topic}: group {done} has not committed 1 of 1 messages"]
    with leaving(server) as lines:
        send(b"d", b"e")
        consume(server, behind, topic)
        consume(server, done, topic)
        send(b"f")
        consume(server, done, topic)
    assert lines == [f"topic {topic}: group {behind} has not committed 1 of 3 messages"]


def test_members_are_waited_for_until_the_timeout(server, topic, send):
    go, group = threading.Event(), fresh_name("slow")
    consumer = server.push_consumer(group)
    consumer.on(topic)(lambda message: go.wait())
    with consumer:
        with leaving(server, timeout=0.1) as lines:
            send(b"a", b"b")
        (line,) = lines
        assert line.startswith(f"topic {topic}: ")
        threading.Timer(0.2, go.set).start()
        with nothing_left(server):
            send(b"c")


def test_dead_letters_and_waiting_retries_are_left_until_consumed(server, topic, send):
    group, is_well = fresh_name("failing"), False

    def handle(message):
        if message.body == b"hopeless":
            raise rocketpy.Reject("no such order")
        if not is_well:
            raise rocketpy.Retry("later", after=3600)

    def consumer():
        made = server.push_consumer(group)
        made.on(topic)(handle)
        return made

    with leaving(server) as lines:
        (dead,), (retried,) = send(b"hopeless"), send(b"retried")
        with consumer() as failing:
            wait_until(lambda: (failing.stats().dead, failing.stats().sent_back) == (1, 1))
    assert lines == [
        f"group {group}: dead letter {dead.msg_id} of topic {topic}: Reject: no such order",
        f"group {group}: message {retried.msg_id} waits for a retry",
    ]
    with nothing_left(server):
        (retried,) = send(b"retried")
        with consumer() as failing:
            wait_until(lambda: failing.stats().sent_back == 1)
            is_well = True
            server.advance(2 * 3600)
            wait_until(lambda: failing.stats().consumed == 2)


def test_retry_that_arrived_and_was_not_consumed_is_left(server, topic, send):
    group = fresh_name("gone")
    consumer = server.push_consumer(group)

    @consumer.on(topic)
    def fail(message):
        raise rocketpy.Retry("later", after=3600)

    with server.admin() as admin, leaving(server) as lines:
        send(b"a")
        with consumer:
            wait_until(lambda: consumer.stats().sent_back == 1)
        server.advance(2 * 3600)
        (queue,) = admin.queues(f"%RETRY%{group}")
        wait_until(lambda: admin.max_offset(queue) == 1)
    assert lines == [f"topic %RETRY%{group}: group {group} has not committed 1 of 1 messages"]


def test_messages_that_wait_for_their_delivery_time_are_not_left(server, send):
    with nothing_left(server):
        send(b"a", delay=3600)
        send(b"a", delay_level=18)

"""Requests and replies: through a real server, with what goes wrong."""

import threading
from contextlib import contextmanager

import pytest
from test_interrupt import assert_wakes

import rocketpy
from rocketpy import Message
from rocketpy.testing import fresh_name

LONG = 60


@contextmanager
def clerk(server, topic, answer):
    """Replies to every request of a topic, on a thread of its own."""
    stop, failures = threading.Event(), []

    def work():
        try:
            with server.producer(fresh_name("replies")) as producer, server.consumer(fresh_name(), topic) as consumer:
                while not stop.is_set():
                    for request in consumer.poll(timeout=0.1):
                        answer(producer, request)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join()
    assert not failures


def test_a_reply_is_a_message_with_what_was_said(rocketpy_server, producer, rocketpy_topic):
    def answer(replies, request):
        receipt = replies.reply(request, bytearray(request.body * 10_000))
        assert receipt.status is rocketpy.SendStatus.SEND_OK
        assert receipt.queue.topic.endswith("_REPLY_TOPIC")

    with clerk(rocketpy_server, rocketpy_topic, answer):
        for body in (b"one", b"two"):
            reply = producer.request(Message(rocketpy_topic, body), timeout=LONG)
            assert isinstance(reply, rocketpy.ReceivedMessage)
            assert reply.body == body * 10_000
            assert reply.properties["MSG_TYPE"] == "reply"
            assert reply.properties["REPLY_TO_CLIENT"] == producer.client_id
            assert int(reply.properties["ARRIVE_TIME"]) >= int(reply.properties["PUSH_REPLY_TIME"])


def test_threads_share_a_producer_and_each_gets_its_own_reply(rocketpy_server, producer, rocketpy_topic):
    def ask(number):
        body = b"%d" % number
        replies[number] = producer.request(Message(rocketpy_topic, body), timeout=LONG).body

    replies: dict[int, bytes] = {}
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    with clerk(rocketpy_server, rocketpy_topic, lambda replies, request: replies.reply(request, b"re:" + request.body)):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert replies == {number: b"re:%d" % number for number in range(16)}


def test_a_request_that_nobody_answers_names_topic_and_message(producer, rocketpy_topic):
    with pytest.raises(rocketpy.RequestTimeoutError, match=rocketpy_topic) as raised:
        producer.request(Message(rocketpy_topic, b"anybody?"), timeout=0.3, msg_id="A1")
    error = raised.value
    assert (error.code, error.retryable, error.may_have_been_applied, error.msg_id) == (10006, True, True, "A1")
    assert "A1" in str(error)


def test_what_is_no_request_cannot_be_replied_to(rocketpy_server, producer, rocketpy_topic):
    producer.send(Message(rocketpy_topic, b"told"))
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic) as consumer:
        told = next(consumer)
    with pytest.raises(rocketpy.InvalidArgumentError, match=told.msg_id):
        producer.reply(told, b"what?")
    with pytest.raises(TypeError, match="ReceivedMessage"):
        producer.reply(Message(rocketpy_topic, b"told"), b"what?")


def test_a_reply_to_a_requester_that_is_gone_is_refused(rocketpy_server, producer, rocketpy_topic):
    with rocketpy_server.producer(fresh_name()) as gone, pytest.raises(rocketpy.RequestTimeoutError):
        gone.request(Message(rocketpy_topic, b"wait"), timeout=0.1)
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic) as consumer:
        request = next(consumer)
    with rocketpy_server.admin() as admin:
        before = stored_replies(admin, request)
        with pytest.raises(rocketpy.RefusedError, match="no live producer"):
            producer.reply(request, b"late")
        assert stored_replies(admin, request) - before == 1, "it was tried once"


def stored_replies(admin, request):
    """How many replies the cluster of a request keeps."""
    return sum(info.max_offset for info in admin.describe_topic(f"{request.properties['CLUSTER']}_REPLY_TOPIC").queues)


def test_a_close_ends_requests_that_wait(rocketpy_server, rocketpy_topic):
    producer = rocketpy_server.producer(fresh_name())
    failures = []

    def ask():
        with pytest.raises(rocketpy.ClosedError) as raised:
            producer.request(Message(rocketpy_topic, b"wait"), timeout=LONG)
        failures.append(raised.value)

    thread = threading.Thread(target=ask)
    thread.start()
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic) as consumer:
        next(consumer)
    producer.close()
    thread.join()
    (error,) = failures
    assert error.may_have_been_applied, "a consumer has it"
    assert error.msg_id
    assert rocketpy_topic in str(error)
    assert error.hint
    with pytest.raises(rocketpy.ClosedError) as raised:
        producer.request(Message(rocketpy_topic, b"too late"), timeout=LONG)
    assert not raised.value.may_have_been_applied


def test_ctrl_c_ends_a_wait_for_a_reply(producer, rocketpy_topic):
    assert_wakes(lambda: producer.request(Message(rocketpy_topic, b"wait"), timeout=LONG))

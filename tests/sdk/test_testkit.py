"""What helps with tests, with pytest and without."""

import asyncio
import threading
import time
import urllib.error
import urllib.request

import pytest

import rocketpy
from rocketpy.testkit import drain, drain_async, fresh_name, serve_clock, temporary_server, wait_until_consumed
from waiting import wait_until

WITHOUT_PYTEST = """
import sys, unittest
sys.modules["pytest"] = None  # as where it is not installed
import rocketpy
from rocketpy.testkit import RocketPyTestCase, drain

folders = []

class OrderTest(RocketPyTestCase):
    settings = {"maxMessageSize": 2048}

    def test_an_order_arrives(self):
        folders.append(self.server.path)
        topic = self.new_topic(queues=2)
        with self.server.producer("shop") as producer:
            assert len(producer.queues(topic)) == 2
            producer.send(rocketpy.Message(topic, b"a book"))
        with self.server.consumer("billing", topic) as consumer:
            self.assertEqual([message.body for message in drain(consumer)], [b"a book"])

    def test_the_settings_count(self):
        folders.append(self.server.path)
        with self.server.producer("shop", retries=0) as producer, self.assertRaises(rocketpy.RefusedError):
            producer.send(rocketpy.Message(self.new_topic(), bytes(range(256)) * 9))

class FailingTest(OrderTest):
    def test_an_order_arrives(self):
        folders.append(self.server.path)
        self.fail("on purpose")

load = unittest.defaultTestLoader.loadTestsFromTestCase
assert load(OrderTest).run(unittest.TestResult()).wasSuccessful()
assert len(set(folders)) == 1, "one server for all tests of a class"
assert len(load(FailingTest).run(unittest.TestResult()).failures) == 1
assert len(set(folders)) == 2
import os
assert not [folder for folder in folders if os.path.exists(folder)]
"""


def test_unittest_needs_no_pytest(child):
    ended = child(WITHOUT_PYTEST)
    assert ended.returncode == 0, ended.stderr


def test_drain_reads_all_queues_to_their_ends_and_passes_what_tags_leave_out(rocketpy_server, producer, rocketpy_topic):
    queues = producer.queues(rocketpy_topic)
    for queue in queues[:3]:  # the last one stays empty
        messages = [rocketpy.Message(rocketpy_topic, b"%d" % n, tag="ab"[n % 2]) for n in range(600)]
        producer.send_many(messages, queue=queue)
    with rocketpy_server.consumer(fresh_name("drain"), rocketpy_topic, tags="a") as consumer:
        messages = drain(consumer)
        assert len(messages) == 900
        assert {message.tag for message in messages} == {"a"}
        assert drain(consumer) == []
        producer.send(rocketpy.Message(rocketpy_topic, b"more", tag="a"))
        assert [message.body for message in drain(consumer)] == [b"more"]


def test_drain_of_a_paused_queue_says_how_much_is_left(rocketpy_server, producer, rocketpy_topic):
    producer.send_many([rocketpy.Message(rocketpy_topic, b"x") for _ in range(7)])
    with rocketpy_server.consumer(fresh_name("drain"), rocketpy_topic) as consumer:
        consumer.poll(1, timeout=60)
        consumer.pause()
        wait_until(lambda: len(consumer.positions()) == 4, "positions, also of empty queues")
        with pytest.raises(rocketpy.RequestTimeoutError, match=r"has not read 6 messages after 0.05 s"):
            drain(consumer, timeout=0.05)
        consumer.resume()
        assert len(drain(consumer)) == 6


def test_drain_of_asyncio_reads_all_queues_to_their_ends(rocketpy_server, producer, rocketpy_topic):
    producer.send_many([rocketpy.Message(rocketpy_topic, b"x", tag="ab"[n % 2]) for n in range(600)])

    async def main():
        options = {"name_servers": rocketpy_server.name_servers, "tags": "a"}
        async with rocketpy.AsyncConsumer(fresh_name("drain"), rocketpy_topic, **options) as consumer:
            assert len(await drain_async(consumer)) == 300
            assert await drain_async(consumer) == []
            producer.send_many([rocketpy.Message(rocketpy_topic, b"more", tag="a") for _ in range(7)])
            consumer.pause()
            with pytest.raises(rocketpy.RequestTimeoutError, match=r"has not read 7 messages after 0.05 s"):
                await drain_async(consumer, timeout=0.05)
            consumer.resume()
            assert len(await drain_async(consumer)) == 7

    asyncio.run(main())
    with rocketpy_server.consumer(fresh_name("drain"), rocketpy_topic) as consumer:
        with pytest.raises(TypeError, match="drain reads a Consumer"):
            asyncio.run(drain_async(consumer))


def test_a_group_is_waited_for_until_it_has_committed_all(rocketpy_server, producer, rocketpy_topic):
    group, go, messages = fresh_name("waited"), threading.Event(), []
    producer.send_many([rocketpy.Message(rocketpy_topic, b"x") for _ in range(5)])

    def work():
        with rocketpy_server.consumer(group, rocketpy_topic) as consumer:
            messages.extend(drain(consumer))
            go.wait()
            consumer.commit()

    thread = threading.Thread(target=work)
    with pytest.raises(rocketpy.RequestTimeoutError, match="has not committed 5 messages"):
        wait_until_consumed(rocketpy_server, group, rocketpy_topic, timeout=0)
    thread.start()
    with pytest.raises(rocketpy.RequestTimeoutError, match="has not committed 5 messages"):
        wait_until_consumed(rocketpy_server, group, rocketpy_topic, timeout=0.1)
    go.set()
    wait_until_consumed(rocketpy_server, group, rocketpy_topic)
    thread.join()
    assert len(messages) == 5


def test_a_topic_that_does_not_exist_is_named(rocketpy_server):
    with pytest.raises(rocketpy.TopicNotFoundError, match="nowhere"):
        wait_until_consumed(rocketpy_server, "group", "nowhere")


def test_only_who_was_given_the_url_moves_a_clock_and_only_forward():
    with temporary_server() as server, serve_clock(server) as url:
        no_length = urllib.request.Request(url, b"1", {"Content-Length": "one"})
        for wrong, body, code in [
            (url, b"soon", 400),
            (url, b"-1", 400),
            (url, b"nan", 400),
            (url, b"1" + b"0" * 80, 400),
            (url, b"", 400),
            (no_length, b"1", 400),
            (f"{url}x", b"1", 404),
        ]:
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(wrong, body)
            assert refused.value.code == code
            refused.value.close()
    assert "rocketpy-clock" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("length", [-1, "many"])
def test_a_clock_refuses_a_body_of_no_length(length, capfd):
    with temporary_server() as server, serve_clock(server) as url:
        asked = urllib.request.Request(url, b"1", {"Content-Length": str(length)})
        with pytest.raises(urllib.error.HTTPError) as refused:  # while the connection is open
            urllib.request.urlopen(asked, timeout=60)
        assert refused.value.code == 400
        refused.value.close()
    assert "Traceback" not in capfd.readouterr().err


def test_what_waits_comes_when_the_clock_is_moved_on_and_the_clock_goes_back_with_the_server(rocketpy_server):
    far = 6 * 3600
    with temporary_server() as server:
        create(server, "orders")
        came = []
        consumer = server.push_consumer("g")

        @consumer.on("orders")
        def handle(message):
            came.append(message.body)
            if message.body == b"retried" and message.reconsume_times == 0:
                raise rocketpy.Retry("later", after=3600)

        with server.producer("p") as producer:
            producer.send(rocketpy.Message("orders", b"retried"))
            producer.send(rocketpy.Message("orders", b"by level", delay_level=18))  # 2 h
            producer.send(rocketpy.Message("orders", b"by time", delay=2 * 3600))
            with consumer:
                wait_until(lambda: consumer.stats().sent_back == 1)
                assert came == [b"retried"]
                server.advance(far)
                wait_until(lambda: consumer.stats().consumed == 3)
            later = producer.send(rocketpy.Message("orders", b"x", delay=3600))
            assert later.recall_handle, "it waits from now on"
        assert sorted(came) == [b"by level", b"by time", b"retried", b"retried"]
        with pytest.raises(rocketpy.InvalidArgumentError):
            server.advance(-1)
        assert born_ahead(server) > far - 3600
        ahead = born_ahead(rocketpy_server)
        assert ahead > far - 3600, "the clock is that of the process"
    assert born_ahead(rocketpy_server) < 3600
    with pytest.raises(rocketpy.ClosedError):
        server.advance(1)


def create(server, topic):
    with server.admin() as admin:
        admin.create_topic(topic, queues=1)


def born_ahead(server):
    """How far the times of messages are ahead of Python's clock, in seconds."""
    topic = fresh_name("born")
    create(server, topic)
    with server.producer("p") as producer:
        producer.send(rocketpy.Message(topic, b"x"))
    with server.consumer(fresh_name("g"), topic) as consumer:
        (message,) = drain(consumer)
    return message.stored_at_ms / 1000 - time.time()

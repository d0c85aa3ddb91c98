"""Producers wait for a server that is away, and send once it is back."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import ports
import rocketpy
from rocketpy import Message
from rocketpy.testing import SMALL_FILES, drain
from waiting import wait_until

SERVER = (
    "import rocketpy, sys\n"
    "port, name_server_port = map(int, sys.argv[2:])\n"
    "options = {'port': port, 'name_server_port': name_server_port}\n"
    f"with rocketpy.Server(sys.argv[1], settings={SMALL_FILES!r}, **options):\n"
    "    print('ready', flush=True)\n"
    "    sys.stdin.read()\n"
)


def create(admin, topic):
    """Creates a topic: its route stays known. One from the template is fetched again after a second."""
    admin.create_topic(topic, queues=4)


@pytest.fixture
def server(tmp_path):
    server = rocketpy.Server(tmp_path / "store", settings=SMALL_FILES)
    with server.start(), server.admin() as admin:
        for topic in ("known", "aio"):
            create(admin, topic)
        yield server


def stored(name_server, *topics):
    with rocketpy.Consumer("reading", topics, name_servers=name_server) as consumer:
        return drain(consumer)


def bodies(server, *topics):
    return sorted(message.body for message in stored(server.name_server, *topics))


def test_calls_of_every_kind_wait_for_a_server_that_restarts(server):
    """Name server and broker are away together, and the route of one topic is not known yet."""
    known = Message("known", b"known")
    with rocketpy.Producer("waiting", name_servers=server.name_server) as producer, ThreadPoolExecutor() as pool:
        producer.send(known)
        server.stop()
        calls = [
            pool.submit(producer.send, Message("known", b"sent")),
            pool.submit(producer.send, Message("unknown", b"unknown")),
            pool.submit(producer.send_many, [Message("known", b"many", order_key="k")] * 3),
            pool.submit(producer.queues, "third"),
            producer.submit(Message("known", b"submitted")),
        ]
        wait_until(lambda: producer.stats().retried.messages > 5 or any(call.done() for call in calls))
        assert not [call for call in calls if call.done()]
        server.start()
        for call in calls:
            call.result(timeout=60)
    assert bodies(server, "known", "unknown") == [b"known", *[b"many"] * 3, b"sent", b"submitted", b"unknown"]


def test_tasks_wait_for_a_server_that_restarts_and_may_be_cancelled(server):
    async def main():
        async with rocketpy.AsyncProducer("waiting", name_servers=server.name_server) as producer:
            await producer.send(Message("aio", b"first"))
            await asyncio.to_thread(server.stop)
            one, other, many = [
                asyncio.create_task(call)
                for call in (
                    producer.send(Message("aio", b"one")),
                    producer.send(Message("aio", b"other")),
                    producer.send_many([Message("aio", b"many")] * 2),
                )
            ]
            while producer.stats().retried.messages < 5:
                assert not one.done()
                await asyncio.sleep(0.01)
            other.cancel()
            with pytest.raises(asyncio.CancelledError):
                await other
            assert not one.done()
            await asyncio.to_thread(server.start)
            await asyncio.wait_for(asyncio.gather(one, many), 60)

    asyncio.run(main())
    assert {b"first", b"one", b"many"} <= set(bodies(server, "aio"))


def start(folder, addresses):
    command = [sys.executable, "-c", SERVER, str(folder), *map(str, addresses)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_killed_server_that_starts_again_fails_no_send(tmp_path):
    """A send whose answer was lost is repeated: its message may be there twice, with one id."""
    addresses = [ports.free_port(1, 2), ports.free_port()]
    name_server = f"127.0.0.1:{addresses[1]}"
    process = start(tmp_path / "store", addresses)
    with rocketpy.Admin(name_servers=name_server) as admin:
        create(admin, "killed")
    ids, ended = [], threading.Event()
    with rocketpy.Producer("killed", name_servers=name_server) as producer, ThreadPoolExecutor(4) as pool:

        def send_until_ended():
            while not ended.is_set():
                ids.append(producer.send(Message("killed", b"text")).msg_id)

        senders = [pool.submit(send_until_ended) for _ in range(4)]

        def wait_for_sends():
            before = len(ids)
            wait_until(lambda: len(ids) > before + 100 or any(sender.done() for sender in senders))

        try:
            for _ in range(2):
                wait_for_sends()
                process.kill()
                process.communicate()
                before = producer.stats().retried.messages
                wait_until(lambda before=before: producer.stats().retried.messages > before + 8 or senders[0].done())
                process = start(tmp_path / "store", addresses)
            wait_for_sends()
        finally:
            ended.set()
        for sender in senders:
            sender.result(timeout=60)
    assert producer.stats().failed.messages == 0
    assert {message.msg_id for message in stored(name_server, "killed")} >= set(ids)
    process.communicate()
    assert len(set(ids)) == len(ids)

"""Ends: `with`, `close`, garbage, and the end of Python, which closes what was forgotten and never hangs."""

import gc
import os
import queue
import signal
import threading
import warnings

import pytest
from wire import GET_ROUTE, ScriptedPeer, route

import rocketpy
from rocketpy import Message
from rocketpy.testing import fresh_name
from waiting import wait_until


def test_what_is_forgotten_is_reported_and_closed(rocketpy_server, rocketpy_topic):
    group = fresh_name()
    with rocketpy_server.admin() as admin:
        consumer = rocketpy_server.consumer(group, rocketpy_topic)
        assert admin.group_members(group) == [consumer.client_id]
        forgotten = [consumer]
        del consumer
        with pytest.warns(ResourceWarning, match=f"never closed: <Consumer of group '{group}'>"):
            forgotten.clear()
        wait_until(lambda: group not in {one.name for one in admin.groups() if one.members})


def test_an_admin_may_just_be_dropped(rocketpy_server):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(rocketpy_server.admin().topics(), list)
        gc.collect()


def test_clients_of_one_instance_name_share_it_until_the_last_one_is_closed(rocketpy_server, rocketpy_topic):
    name, group = fresh_name(), fresh_name()
    with rocketpy_server.producer(fresh_name(), instance_name=name) as producer:
        with rocketpy_server.consumer(group, rocketpy_topic, instance_name=name) as consumer:
            assert consumer.client_id == producer.client_id
            with pytest.raises(rocketpy.GroupConflictError):
                rocketpy_server.consumer(group, rocketpy_topic, instance_name=name)
        producer.send(Message(rocketpy_topic, b"text"))
        with rocketpy_server.consumer(group, rocketpy_topic) as other:
            assert other.client_id != producer.client_id


def test_the_end_of_python_sends_what_was_submitted(child, rocketpy_server, rocketpy_topic):
    ended = child(
        f"""
        import rocketpy
        producer = rocketpy.Producer(
            "forgotten", name_servers=["{rocketpy_server.name_server}"], send_timeout=60
        )
        for n in range(1000):
            producer.submit(rocketpy.Message("{rocketpy_topic}", b"%d" % n))
        """
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    with rocketpy_server.consumer(fresh_name(), rocketpy_topic) as consumer:
        bodies = []
        while len(bodies) < 1000:
            bodies += [message.body for message in consumer.poll(timeout=60)]
        bodies += [message.body for message in consumer.poll(timeout=0.2)]
    assert sorted(map(int, bodies)) == list(range(1000))


def test_the_end_of_python_closes_clients_before_servers(child, tmp_path):
    ended = child(
        """
        import rocketpy, sys, time
        from rocketpy.testing import PatientServer
        server = PatientServer(sys.argv[1]).start()
        with server.admin() as admin:
            admin.create_topic("topic", queues=4)
        producer = server.producer("forgotten")
        producer.send(rocketpy.Message("topic", b"text"))
        consumer = server.consumer("forgotten", "topic")
        consumer.poll(timeout=0.1)
        futures = [producer.submit(rocketpy.Message("topic", b"text")) for _ in range(100)]
        import atexit
        atexit.register(print, "ends at", time.monotonic())
        """,
        str(tmp_path / "store"),
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (tmp_path / "store" / "abort").exists()
    (topic,) = rocketpy.StoreReader(tmp_path / "store").topics()
    assert sum(queue.max_offset for queue in topic.queues) == 101


def test_the_end_of_python_is_logged_to_its_end(child, tmp_path):
    """Also when a server was opened before the first client, and before logging was configured."""
    ended = child(
        """
        import rocketpy, sys
        server = rocketpy.Server(sys.argv[1], settings={"mappedFileSizeCommitLog": 1 << 20}).start()
        import logging
        logging.basicConfig(filename=sys.argv[2], filemode="w", level="INFO", format="%(message)s")
        producer = server.producer("forgotten")
        """,
        str(tmp_path / "store"),
        str(log := tmp_path / "log"),
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert log.read_text().splitlines()[-1].startswith("client closed"), log.read_text()


def test_threads_that_wait_do_not_keep_python_from_ending(child, rocketpy_server, rocketpy_topic):
    ended = child(
        f"""
        import rocketpy, threading
        def make():
            return rocketpy.Consumer("waiting", "{rocketpy_topic}", name_servers=["{rocketpy_server.name_server}"])
        consumers = [make() for _ in range(3)]
        under_way = [threading.Event() for _ in consumers]
        def read(consumer, event):
            for _ in consumer:
                event.set()
        for consumer, event in zip(consumers, under_way):
            threading.Thread(target=read, args=(consumer, event), daemon=True).start()
        producer = rocketpy.Producer("waiting", name_servers=["{rocketpy_server.name_server}"])
        def send():
            while True:
                producer.submit(rocketpy.Message("{rocketpy_topic}", b"text"))
        threading.Thread(target=send, daemon=True).start()
        assert all(event.wait(100) for event in under_way)
        print("main ends")
        """
    )
    assert (ended.returncode, ended.stdout) == (0, "main ends\n"), ended.stderr


HEARTBEAT, UNREGISTER, SEND_MESSAGE_V2 = 34, 35, 310
FORGOTTEN = 12
"""Clients."""


def test_closes_at_the_end_of_python_wait_for_a_silent_server_side_by_side(child):
    heard = queue.SimpleQueue()
    answers = {
        GET_ROUTE: route,
        HEARTBEAT: lambda address: ({}, b""),
        SEND_MESSAGE_V2: lambda address: ({"msgId": "7F" * 16, "queueId": "0", "queueOffset": "0"}, b""),
    }
    with ScriptedPeer(answers, heard.put) as peer:
        ended = child(
            f"""
            import asyncio, rocketpy
            async def start(number):
                producer = rocketpy.AsyncProducer(f"g{{number}}", name_servers="{peer.address}", api_timeout=60)
                await producer.start()
                await producer.send(rocketpy.Message("t", b"text"), timeout=60)
                return producer
            async def main():
                return [await start(number) for number in range({FORGOTTEN})]
            producers = asyncio.run(main())
            """
        )
    assert (ended.returncode, ended.stderr) == (0, "")
    calls = [heard.get() for _ in range(heard.qsize())]
    assert calls.count(UNREGISTER) == FORGOTTEN
    assert None not in calls[: len(calls) - calls[::-1].index(UNREGISTER)], "one ended before another began"


def test_callbacks_that_compute_for_longer_than_the_end_waits_are_left(child, rocketpy_server, rocketpy_topic):
    ended = child(
        f"""
        import rocketpy, time
        def compute(future):
            until = time.perf_counter() + 0.05
            while time.perf_counter() < until:
                pass
        producer = rocketpy.Producer("busy", name_servers=["{rocketpy_server.name_server}"])
        for _ in range(1000):
            producer.submit(rocketpy.Message("{rocketpy_topic}", b"text")).add_done_callback(compute)
        """
    )
    assert ended.returncode == 0, ended.stderr
    assert "cannot close an object at the exit of Python: " in ended.stderr


def test_an_end_without_closing_hooks_does_not_hang(child, rocketpy_server):
    ended = child(
        f"""
        import os, rocketpy
        producer = rocketpy.Producer("abrupt", name_servers=["{rocketpy_server.name_server}"])
        producer.submit(rocketpy.Message("abrupt", b"text"))
        os._exit(7)
        """
    )
    assert ended.returncode == 7


def test_a_close_that_ctrl_c_interrupts_goes_on_and_the_next_one_waits_for_it(stoppable):
    producer = rocketpy.Producer("ingest", name_servers=[stoppable.name_server], send_timeout=60)
    producer.send(Message("topic", b"first"))
    stoppable.freeze()
    future = producer.submit(Message("topic", b"second"))

    def interrupt():
        wait_until(lambda: producer.closed)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    thread.join()
    assert not future.done()
    stoppable.thaw()
    producer.close()
    assert future.done()
    producer.close()


@pytest.mark.timeout(200)  # less than the timeouts of the clients, which the closes must not wait for
def test_objects_of_a_dead_server_close_quietly(tmp_path):
    patience = {"api_timeout": 600}
    server = rocketpy.testing.PatientServer(tmp_path / "store", settings=rocketpy.testing.SMALL_FILES).start()
    producer = server.producer("ingest", send_timeout=600, **patience)
    producer.send(Message("topic", b"text"))
    consumer = server.consumer("report", "topic", **patience)
    server.stop()
    consumer.close()
    producer.close()


def test_importing_does_nothing(child):
    ended = child(
        """
        import os, sys, threading
        before = set(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else set()
        import rocketpy
        assert threading.active_count() == 1
        if before:
            assert set(os.listdir("/proc/self/task")) == before
        loaded = [name for name in sys.modules if name.startswith("rocketpy.")]
        assert loaded == ["rocketpy.base", "rocketpy.base.interpreter"]
        rocketpy.Message, rocketpy.Producer, rocketpy.Consumer, rocketpy.Server, rocketpy.StoreReader
        for heavy in ("pyarrow", "pyspark", "pandas", "typer", "rich", "concurrent.futures", "pytest"):
            assert heavy not in sys.modules, heavy
        if before:
            assert set(os.listdir("/proc/self/task")) == before
        """
    )
    assert (ended.returncode, ended.stderr) == (0, "")

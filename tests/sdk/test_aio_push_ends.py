"""Ends of an `AsyncPushConsumer`: close, cancellation, signals, loops, forks. Closes of a `PushConsumer` in a loop."""

import asyncio
import gc
import logging
import threading

import pytest
from aio_clients import pusher, until
from pushing import committed, send

import rocketpy
from rocketpy.testing import fresh_name
from waiting import wait_until

LONG = 3600.0


class Held:
    """A consumer whose handler waits until the test releases it."""

    def __init__(self, server, topic, group, **options):
        self.consumer = pusher(server, group, **options)
        self.began, self.release, self.ends = asyncio.Event(), asyncio.Event(), []
        self.consumer.on(topic)(self.handle)

    async def handle(self, message):
        self.began.set()
        try:
            await self.release.wait()
            self.ends.append("returned")
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise


def members(server, group):
    with server.admin() as admin:
        return admin.group_members(group)


def is_running(name):
    return name in {thread.name for thread in threading.enumerate()}


def test_a_close_waits_for_handlers_while_the_loop_goes_on(server, topic, group):
    """Also closes of several tasks at the same time."""
    send(server, topic, 1)

    async def main():
        held = Held(server, topic, group)
        await held.consumer.start()
        await held.began.wait()
        closes = [asyncio.create_task(held.consumer.close()) for _ in range(3)]
        await until(lambda: is_running("rocketpy-push-stop"), "the stop waits for the handler, which needs this loop")
        assert held.consumer.closed
        assert not any(close.done() for close in closes)
        held.release.set()
        await asyncio.gather(*closes)
        await held.consumer.close()
        assert held.ends == ["returned"]

    asyncio.run(main())
    assert (committed(server, group, topic), members(server, group)) == (1, [])


def test_handlers_that_run_longer_than_the_stop_timeout_are_cancelled(server, topic, group):
    send(server, topic, 1)

    async def main():
        held = Held(server, topic, group, stop_timeout=0.2)
        async with held.consumer:
            await held.began.wait()
        assert held.ends == ["cancelled"]

    asyncio.run(main())
    assert committed(server, group, topic) == 0


def test_a_cancelled_close_cancels_handlers_and_leaves_the_group(server, topic, group):
    send(server, topic, 1)

    async def main():
        held = Held(server, topic, group, stop_timeout=LONG)
        await held.consumer.start()
        await held.began.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await held.consumer.close()
        await held.consumer.close()  # completes the first
        assert held.ends == ["cancelled"]
        assert members(server, group) == []

    asyncio.run(main())
    assert committed(server, group, topic) == 0


@pytest.mark.parametrize("where", ["handler", "callback"])
def test_a_close_inside_a_handler_returns_and_the_stop_follows(server, topic, group, where):
    send(server, topic, 1)
    after = []

    async def main():
        async def close(*_):
            await consumer.close()
            after.append(consumer.closed)

        options = {"on_assigned": close} if where == "callback" else {}
        consumer = pusher(server, group, stop_timeout=LONG, **options)
        consumer.on(topic)(close if where == "handler" else print)
        async with consumer:
            await until(lambda: after)
        assert members(server, group) == []

    asyncio.run(main())
    assert after == [True]


def test_starts_that_are_cancelled_or_closed_leave_no_member(server, topic, group):
    async def main():
        closed = pusher(server, group)
        cancelled = pusher(server, group, balance=lambda group, client_id, queues, members: queues)
        closed.on(topic)(print)
        cancelled.on(topic)(print)
        starting = asyncio.create_task(closed.start())
        await asyncio.sleep(0)
        await asyncio.gather(closed.close(), closed.close())
        with pytest.raises(rocketpy.ClosedError, match="was closed during its start"):
            await starting
        starting = asyncio.create_task(cancelled.start())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await until(lambda: not is_running("rocketpy-push-start") and not is_running("rocketpy-balance"))
        assert members(server, group) == []
        async with cancelled:  # it may be started again
            assert members(server, group) == [cancelled.client_id]

    asyncio.run(main())
    assert members(server, group) == []


@pytest.mark.parametrize("lane", ["idle", "busy", "plain"])
def test_a_closed_loop_without_a_next_message_takes_the_consumer_out_of_its_group(server, topic, group, lane, caplog):
    """Its dropped tasks free no slot, and plain functions need no task."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it reports the dropped tasks

    async def main():
        held = Held(server, topic if lane != "plain" else f"{topic}-other", group, concurrency=1, stop_timeout=LONG)
        if lane == "plain":
            held.consumer = pusher(server, group)
            held.consumer.on(topic)(lambda message: None)
        await held.consumer.start()
        if lane == "busy":
            await held.began.wait()
        return held

    if lane == "busy":
        send(server, topic, 3)
    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        held = loop.run_until_complete(main())
        loop.close()
        wait_until(lambda: members(server, group) == [])
    assert f"event loop of push consumer {group} ended before close()" in caplog.text
    asyncio.run(held.consumer.close())
    assert committed(server, group, topic) == 0


@pytest.mark.parametrize("way", ["run", "close"])
def test_a_loop_that_ends_before_the_close_takes_the_consumer_out_of_its_group(server, topic, group, way, caplog):
    """`asyncio.run` cancels all tasks; `loop.close` drops them."""
    send(server, topic, 1)
    held = None

    async def main():
        nonlocal held
        held = Held(server, topic, group, stop_timeout=LONG)
        await held.consumer.start()
        await held.began.wait()

    async def close():
        await held.consumer.close()

    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        if way == "run":
            asyncio.run(main())
            assert held.ends == ["cancelled"]
        else:
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda *_: None)  # it reports the dropped tasks
            loop.run_until_complete(main())
            with pytest.raises(rocketpy.RocketPyError, match="belongs to another event loop"):
                asyncio.run(close())
            loop.close()
            gc.collect()
            send(server, topic, 8)  # the next message finds the loop closed
        wait_until(lambda: members(server, group) == [])
    assert f"event loop of push consumer {group} ended before close()" in caplog.text
    assert (held.consumer.closed, committed(server, group, topic), held.consumer.stats().failed) == (False, 0, 0)
    asyncio.run(close())  # another loop may close it
    assert held.consumer.closed


UNFINISHED = "consumer stops while handlers run"
PROGRAM = """
    import asyncio, os, signal, sys, rocketpy
    servers, group, topic = ["{servers}"], "{group}", "{topic}"
    consumer = rocketpy.AsyncPushConsumer(group, name_servers=servers, stop_timeout={patience})
    ends = []
    @consumer.on(topic)
    async def handle(message):
        os.kill(os.getpid(), signal.{signal})
        try:
            while not consumer.closed:
                await asyncio.sleep(0.01)
            {then}
            ends.append("returned")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
    async def main():
        {main}
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        ends.append("Ctrl-C")
    with rocketpy.Admin(servers) as admin:
        print(ends, admin.group_members(group))
"""
FOREVER = "async with consumer: await asyncio.Event().wait()"
AGAIN = "asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT); await asyncio.sleep(3600)"


@pytest.mark.parametrize(
    ("signal", "main", "then", "ends"),
    [
        ("SIGINT", FOREVER, "pass", ["returned", "Ctrl-C"]),
        ("SIGINT", FOREVER, AGAIN, ["cancelled", "Ctrl-C"]),
        ("SIGTERM", "await consumer.run()", "pass", ["returned"]),
        ("SIGTERM", "await consumer.run()", AGAIN, ["cancelled", "Ctrl-C"]),
    ],
    ids=["Ctrl-C", "Ctrl-C twice", "SIGTERM", "SIGTERM and Ctrl-C"],
)
def test_the_first_signal_waits_for_handlers_and_the_second_cancels_them(
    child, server, topic, group, signal, main, then, ends
):
    send(server, topic, 1)
    given = {"servers": server.name_server, "group": group, "topic": topic, "signal": signal, "main": main}
    ended = child(PROGRAM.format(**given, then=then, patience=LONG))
    assert (ended.returncode, ended.stdout) == (0, f"{ends} []\n")
    logged = {line.partition(",")[0] for line in ended.stderr.splitlines()}
    assert logged <= ({UNFINISHED} if ends[0] == "cancelled" else set()), "the cancelled handler may end first"
    assert committed(server, group, topic) == (ends[0] == "returned")


@pytest.mark.parametrize("is_started", [False, True])
def test_run_ends_when_another_task_closes_the_consumer(server, topic, group, is_started):
    async def main():
        consumer = pusher(server, group)
        consumer.on(topic)(print)
        running = asyncio.create_task(consumer.run())
        await asyncio.sleep(0)
        if is_started:
            await until(lambda: not consumer.closed)
        await consumer.stop()
        await asyncio.wait_for(running, 60)

    asyncio.run(main())
    assert members(server, group) == []


def test_python_ends_at_once_with_an_open_consumer_and_a_child_leaves_it_alone(child, server, topic, group):
    send(server, topic, 1)
    ended = child(
        f"""
        import asyncio, os, rocketpy, threading
        consumer = rocketpy.AsyncPushConsumer("{group}", name_servers="{server.name_server}", stop_timeout=3600)
        async def main():
            began = asyncio.Event()
            @consumer.on("{topic}")
            async def handle(message):
                began.set()
                await asyncio.sleep(3600)
            await consumer.start()
            await began.wait()
            if not os.fork():
                return
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
            with rocketpy.Admin("{server.name_server}") as admin:
                assert admin.group_members("{group}") == [consumer.client_id]
            loop.stop()
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(main())
        except RuntimeError:  # stopped
            pass
        """
    )
    assert ended.returncode == 0
    assert [line.partition(",")[0] for line in ended.stderr.splitlines()] == [UNFINISHED]
    wait_until(lambda: members(server, group) == [])


def test_a_forgotten_consumer_is_reported(server, topic, group):
    async def main():
        consumer = pusher(server, group)
        consumer.on(topic)(print)
        await consumer.start()

    with pytest.warns(ResourceWarning, match=f"never closed: <AsyncPushConsumer of group '{group}'>"):
        asyncio.run(main())
    wait_until(lambda: members(server, group) == [])


def test_a_close_that_fails_is_over_all_the_same(stoppable):
    async def main():
        names = {"name_servers": stoppable.name_server}
        consumer, done = rocketpy.AsyncPushConsumer("closers", api_timeout=0.5, **names), asyncio.Event()

        @consumer.on("closing")
        async def handle(message):
            stoppable.freeze()
            done.set()

        async with rocketpy.AsyncProducer("first", send_timeout=60, **names) as first:
            await first.send(rocketpy.Message("closing", b"text"))
        await consumer.start()
        await done.wait()
        with pytest.raises(rocketpy.RocketPyError):
            await consumer.close()
        await consumer.close()
        stoppable.thaw()

    asyncio.run(main())


def test_a_push_consumer_closed_beside_a_loop_lets_handlers_use_the_loop(server, topic, group, caplog):
    """Its handlers are not tasks of the loop: a close that waits for them in the loop's thread would not end."""
    send(server, topic, 1)

    async def main():
        loop, began = asyncio.get_running_loop(), threading.Event()
        consumer = server.push_consumer(group, stop_timeout=LONG)

        async def ask():
            return "answer"

        @consumer.on(topic)
        def handle(message):
            began.set()
            wait_until(lambda: consumer.closed)
            answers.append(asyncio.run_coroutine_threadsafe(ask(), loop).result())

        consumer.start()
        await asyncio.to_thread(began.wait)
        consumer.close()
        assert answers == []
        await until(lambda: members(server, group) == [])

    answers = []
    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        asyncio.run(main())
    assert (answers, committed(server, group, topic)) == (["answer"], 1)
    assert "use rocketpy.AsyncPushConsumer" in caplog.text


def test_the_run_of_a_push_consumer_in_a_loop_is_reported(server, topic, group, caplog):
    async def main():
        consumer = server.push_consumer(group)
        consumer.on(topic)(print)
        stopping = threading.Thread(target=lambda: wait_until(lambda: members(server, group)) or consumer.stop())
        stopping.start()
        consumer.run()
        stopping.join()

    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        asyncio.run(main())
    assert "run() of push consumer" in caplog.text
    assert "`await consumer.run()`" in caplog.text


def test_a_push_consumer_without_running_handlers_is_closed_beside_a_loop_as_elsewhere(server, topic, caplog):
    async def main():
        for _ in range(2):
            group = fresh_name("pushers")
            consumer = server.push_consumer(group)
            consumer.on(topic)(print)
            with consumer:
                pass
            assert members(server, group) == []

    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        asyncio.run(main())
    assert "AsyncPushConsumer" not in caplog.text

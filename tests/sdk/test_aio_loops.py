"""Event loops and their clients: several loops, loops that are closed, and uvloop."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop
from aio_clients import PATIENCE, bodies, consumer, producer, take

import rocketpy
from rocketpy import AsyncAdmin, AsyncProducer, Message
from rocketpy.aio import loop as aio_loop
from rocketpy.testing import fresh_name
from waiting import wait_until


def test_a_client_belongs_to_its_loop(rocketpy_server, rocketpy_topic):
    """Loops in threads of one process, each with clients of its own."""
    shared = producer(rocketpy_server)
    began, over = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    async def other():
        async with producer(rocketpy_server) as own:
            receipts = await asyncio.gather(*(own.send(Message(rocketpy_topic, body)) for body in bodies(200)))
            assert len(receipts) == 200
        with pytest.raises(rocketpy.RocketPyError, match="belongs to another event loop"):
            await shared.send(Message(rocketpy_topic, b"text"))

    def in_thread():
        try:
            began.wait(60)
            asyncio.run(other())
        except BaseException as error:
            failed.append(error)
        finally:
            over.set()

    async def main():
        async with shared:
            began.set()
            while not over.is_set():
                await shared.send(Message(rocketpy_topic, b"text"))

    thread = threading.Thread(target=in_thread)
    thread.start()
    asyncio.run(main())
    thread.join()
    assert not failed


def close_a_loop_under_way(server, has_successor: bool) -> "weakref.ref[asyncio.AbstractEventLoop]":
    """Closes a loop, then takes the answers for its messages, then closes its client in another loop."""
    loop = asyncio.new_event_loop()
    sending = AsyncProducer(fresh_name(), name_servers=server.name_server, send_timeout=60, **PATIENCE)
    loop.run_until_complete(sending.start())
    loop.run_until_complete(sending.send(Message("left", b"first")))
    with pytest.raises(rocketpy.RocketPyError, match="belongs to another event loop"):
        asyncio.run(sending.close())
    server.freeze()
    tasks = [loop.create_task(sending.send(Message("left", b"later"))) for _ in range(10)]
    loop.run_until_complete(asyncio.sleep(0))
    for one in tasks:
        one.cancel()
    loop.run_until_complete(asyncio.wait(tasks))
    loop.close()
    server.thaw()
    wait_until(lambda: sending.stats().sent.messages == 11)

    async def close():
        if has_successor:
            async with AsyncProducer(fresh_name(), name_servers=server.name_server, **PATIENCE):
                pass
        await sending.close()

    asyncio.run(close())
    assert sending.closed
    return weakref.ref(loop)


@pytest.mark.parametrize("has_successor", [False, True])
def test_a_loop_that_is_closed_while_messages_are_under_way_leaves_nothing_behind(stoppable, has_successor):
    loop = close_a_loop_under_way(stoppable, has_successor)
    gc.collect()
    assert loop() is None


def test_loops_of_other_threads_come_and_go_while_one_begins_to_be_watched():
    others = []

    class Loop(asyncio.SelectorEventLoop):
        """Does within a question what another thread may do meanwhile."""

        def is_closed(self):
            if not others:
                others.append(asyncio.SelectorEventLoop())
                aio_loop.watch(others[0])
            return super().is_closed()

    loops = [Loop(), asyncio.SelectorEventLoop()]
    for loop in loops:
        aio_loop.watch(loop)
    assert {*loops, *others} <= set(aio_loop._watched)
    for loop in (*loops, *others):
        loop.close()
        aio_loop.drop_if_closed(loop)
    assert not {*loops, *others} & set(aio_loop._watched)


def test_what_is_under_way_when_the_last_client_of_a_loop_is_closed_ends(rocketpy_server, rocketpy_topic):
    def begin(*calls: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
        return [asyncio.create_task(call) for call in calls]

    async def main():
        for _ in range(10):
            sending = await producer(rocketpy_server).start()
            under_way = begin(*(sending.send(Message(rocketpy_topic, b"text")) for _ in range(20)))
            await asyncio.sleep(0)
            await sending.close()
            member = await consumer(rocketpy_server, rocketpy_topic).start()
            under_way += begin(
                *(call for _ in range(5) for call in (member.poll(1, 60), member.commit(), member.lag()))
            )
            await asyncio.sleep(0.01)
            await member.close()
            admin = await AsyncAdmin(name_servers=rocketpy_server.name_server).start()
            under_way += begin(*(admin.topics() for _ in range(20)))
            await asyncio.sleep(0)
            await admin.close()
            async with asyncio.timeout(60):
                ends = await asyncio.gather(*under_way, return_exceptions=True)
            assert all(isinstance(one, rocketpy.RocketPyError) for one in ends if isinstance(one, BaseException)), ends

    asyncio.run(main())


def test_uvloop_watches_as_well(rocketpy_server, rocketpy_topic):
    async def main():
        async with producer(rocketpy_server) as sending, consumer(rocketpy_server, rocketpy_topic) as member:
            await asyncio.gather(*(sending.send(Message(rocketpy_topic, body)) for body in bodies(500)))
            assert sorted(await take(member, 500)) == sorted(bodies(500))

    uvloop.run(main())

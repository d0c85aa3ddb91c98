"""Async handlers: the store is called in threads where it may wait, and a cancelled task leaves no mark."""

import asyncio
import functools
import threading

import pytest

import rocketpy
from rocketpy.dedup import Dedup, MappingStore, SqliteStore


@pytest.fixture(params=["sqlite", "mapping"])
def once(request, tmp_path):
    if request.param == "mapping":
        yield Dedup("billing", MappingStore(), key=str)
    else:
        with Dedup("billing", tmp_path / "done.db", key=str) as once:
            yield once


def test_an_async_handler(once):
    ran, begun = [], asyncio.Event()

    @once
    async def work(message):
        ran.append(message)
        begun.set()
        await asyncio.sleep(0)
        return message

    class Callable:
        async def __call__(self, message):
            ran.append(message)

    async def run():
        assert [await work("a"), await work("a")] == ["a", None]
        began = await asyncio.gather(*(work("b") for _ in range(5)), return_exceptions=True)
        assert began.count("b") == 1
        assert all(one in ("b", None) or isinstance(one, rocketpy.InProgressError) for one in began)
        await once(Callable())("c")
        await once(functools.partial(work.__wrapped__))("d")
        async with once.claim("d") as claim:
            assert claim.already_done

    asyncio.run(run())
    assert ran == ["a", "b", "c", "d"]


def test_a_cancelled_async_handler_leaves_no_mark(once):
    async def run():
        begun = asyncio.Event()

        @once
        async def work(_):
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(work("a"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with once.claim("a") as claim:
            assert not claim.already_done

    asyncio.run(run())


class Held(SqliteStore):
    """A store whose calls take as long as the test wants."""

    def __init__(self, path):
        super().__init__(path)
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def begin(self, *arguments):
        mark = super().begin(*arguments)
        self.begun.set()
        assert self.goes_on.wait(60)
        return mark


def test_a_task_that_is_cancelled_while_it_marks_leaves_no_mark_and_does_not_hold_up_the_loop(tmp_path):
    async def run(store):
        once = Dedup("billing", store, key=str)
        task = asyncio.create_task(once(asyncio.sleep)("0"))
        await asyncio.to_thread(store.begun.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        store.goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with once.claim("0") as claim:
            assert not claim.already_done

    with Held(tmp_path / "done.db") as store:
        asyncio.run(run(store))


def test_a_task_that_is_cancelled_twice_while_its_claim_begins_leaves_no_lease(tmp_path):
    async def run(store):
        once = Dedup("billing", store, key=str)

        async def work():
            async with once.claim("0"):
                raise AssertionError("never begins")

        task = asyncio.create_task(work())
        await asyncio.to_thread(store.begun.wait, 60)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not task.done()
        store.goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with once.claim("0") as claim:
            assert not claim.already_done

    with Held(tmp_path / "done.db") as store:
        asyncio.run(run(store))


def test_a_plain_handler_that_returns_an_awaitable_is_refused_and_leaves_no_mark(once):
    async def work(message):
        return message

    with pytest.raises(TypeError, match="async def"):
        once(lambda message: work(message))("a")
    with once.claim("a") as claim:
        assert not claim.already_done

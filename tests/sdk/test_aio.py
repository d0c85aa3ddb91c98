"""Clients for asyncio, over a real server."""

import asyncio
import contextvars
import random
from collections import Counter

import pytest
from aio_clients import PATIENCE, bodies, consumer, producer, take

import rocketpy
from rocketpy import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from rocketpy.testing import fresh_name
from waiting import wait_until


def test_sends_side_by_side_and_what_comes_of_them(rocketpy_server, rocketpy_topic):
    """More than the window holds, to a topic whose route is not known before. Order is looked at by the next test."""

    async def main():
        async with producer(rocketpy_server, window_messages=256) as sending:
            sends = (sending.send(Message(rocketpy_topic, body)) for body in bodies(2000))
            receipts = await asyncio.gather(*sends)
        assert len({receipt.msg_id for receipt in receipts}) == 2000
        assert {receipt.status for receipt in receipts} == {rocketpy.SendStatus.SEND_OK}
        async with consumer(rocketpy_server, rocketpy_topic) as member:
            assert sorted(await take(member, 2000)) == sorted(bodies(2000))
            await member.commit()
            assert set((await member.lag()).values()) == {0}
            queue = receipts[0].queue
            assert await member.committed(queue) == member.positions()[queue] > 0

    asyncio.run(main())


def test_what_is_awaited_one_by_one_keeps_its_order(rocketpy_server, rocketpy_topic):
    async def main():
        async with producer(rocketpy_server) as sending, consumer(rocketpy_server, rocketpy_topic) as member:
            for body in bodies(100):
                await sending.send(Message(rocketpy_topic, body, order_key="one"))
            came = []
            async for message in member:
                came.append(message.body)
                if len(came) == 100:
                    break
            assert came == bodies(100)

    asyncio.run(main())


def test_cancelled_calls_give_their_messages_back(rocketpy_server, rocketpy_topic):
    """In all moments: while they wait, and when messages have come that the task did not get. Each comes once."""
    count = 3000

    async def read(member: AsyncConsumer, came: list[bytes], arrow: bool) -> None:
        while True:
            if arrow:
                batch = await member.fetch_arrow(50, 60)
                came += batch.column("body").to_pylist()
            else:
                came += [message.body for message in await member.poll(50, 60)]

    async def main():
        came: list[bytes] = []
        chance = random.Random(7)
        async with (
            producer(rocketpy_server) as sending,
            consumer(rocketpy_server, rocketpy_topic, pull_messages=100) as member,
        ):
            sends = asyncio.gather(*(sending.send(Message(rocketpy_topic, body)) for body in bodies(count)))
            cancelled = 0
            while len(came) < count:
                reading = asyncio.create_task(read(member, came, arrow=chance.random() < 0.5))
                for _ in range(chance.randrange(1, 12)):
                    await asyncio.sleep(0)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
                cancelled += 1
            await sends
            assert cancelled > 10
            assert sorted(came) == sorted(bodies(count))
            assert await member.poll(timeout=0.05) == []

    asyncio.run(main())


def test_a_storm_of_cancellations_loses_and_leaks_nothing(rocketpy_server, rocketpy_topic):
    """Sends, polls and commits side by side, most of them cancelled at some moment."""
    chance, acknowledged, taken = random.Random(7), set(), Counter()

    async def send(sending: AsyncProducer, number: int):
        await sending.send(Message(rocketpy_topic, b"%d" % number))
        acknowledged.add(number)

    async def poll(member: AsyncConsumer):
        taken.update(int(message.body) for message in await member.poll(3, 60))

    async def main():
        async with (
            producer(rocketpy_server, window_messages=16) as sending,
            consumer(rocketpy_server, rocketpy_topic, start="earliest") as member,
        ):
            for number in range(0, 3000, 60):
                calls = [send(sending, number + one) for one in range(30)]
                calls += [poll(member) for _ in range(20)] + [member.commit(wait=False) for _ in range(10)]
                chance.shuffle(calls)
                tasks = [asyncio.create_task(call) for call in calls]
                for _ in range(chance.randrange(5)):
                    await asyncio.sleep(chance.choice([0, 0.001]))
                for task in tasks:
                    if chance.random() < 0.7 or task.get_coro().__name__ == "poll":  # there may be nothing to wait for
                        task.cancel()
                for failed in await asyncio.gather(*tasks, return_exceptions=True):
                    assert failed is None or isinstance(failed, asyncio.CancelledError), failed
            await sending.flush()
            stats = sending.stats()
            while taken.total() < stats.sent.messages:
                await poll(member)
            assert await member.poll(1, 0.1) == []
            assert (stats.in_flight_messages, stats.in_flight_bytes) == (0, 0)
            await member.commit()
            assert set((await member.lag()).values()) == {0}

    asyncio.run(main())
    assert acknowledged <= set(taken)
    assert set(taken.values()) == {1}


def test_a_task_whose_messages_have_come_is_not_cancelled_before_it_has_them(rocketpy_server, rocketpy_topic):
    """It is cancelled about when its messages have come: either it has them, or they come again."""

    async def main():
        async with producer(rocketpy_server) as sending, consumer(rocketpy_server, rocketpy_topic) as member:
            for number in range(50):
                reading = asyncio.create_task(member.poll(1, 60))
                await asyncio.sleep(0)
                await sending.send(Message(rocketpy_topic, b"%d" % number))
                while member.stats().pulled.messages <= number:
                    await asyncio.sleep(0)
                if reading.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await reading
                    assert await take(member, 1) == [b"%d" % number]
                else:
                    assert [message.body for message in reading.result()] == [b"%d" % number]

    asyncio.run(main())


def test_a_task_wakes_in_its_own_context_and_what_it_raises_is_its_own(rocketpy_server, rocketpy_topic):
    """Tasks run within the delivery of their answers. None sees the context of another, none ends the delivery."""
    name = contextvars.ContextVar("name", default=-1)
    outside: list[dict] = []

    async def send(sending: AsyncProducer, number: int) -> int:
        name.set(number)
        await sending.send(Message(rocketpy_topic, b"%d" % number))
        if number % 3 == 0:
            raise ArithmeticError(number)
        return name.get()

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: outside.append(context))
        async with producer(rocketpy_server) as sending:
            await sending.send(Message(rocketpy_topic, b"first"))
            ended = await asyncio.gather(*(send(sending, number) for number in range(300)), return_exceptions=True)
        for number, one in enumerate(ended):
            assert one == number or (number % 3 == 0 and isinstance(one, ArithmeticError))
        assert name.get() == -1

    asyncio.run(main())
    assert not outside


def test_what_ends_a_loop_leaves_the_other_answers_for_its_next_turn(rocketpy_server, rocketpy_topic):
    """SystemExit goes through the delivery, as it goes through any callback of a loop."""

    async def main(sending: AsyncProducer):
        async def send(number: int) -> int:
            await sending.send(Message(rocketpy_topic, b"%d" % number))
            if number == 10:
                raise SystemExit(number)
            return number

        await sending.send(Message(rocketpy_topic, b"first"))
        tasks = [asyncio.create_task(send(number)) for number in range(100)]
        await asyncio.wait(tasks)
        return tasks

    with asyncio.Runner() as runner:
        sending = runner.run(producer(rocketpy_server).start())
        waiting = runner.get_loop().create_task(main(sending))
        with pytest.raises(SystemExit):
            runner.get_loop().run_until_complete(waiting)
        tasks = runner.get_loop().run_until_complete(waiting)
        assert isinstance(tasks.pop(10).exception(), SystemExit)
        assert [task.result() for task in tasks] == [number for number in range(100) if number != 10]
        runner.run(sending.close())


def test_tasks_of_python_and_other_waits_work_with_answers(rocketpy_server, rocketpy_topic):
    """Tasks that are not written in C, a time limit, a shield, and a cancellation with a message."""

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_task_factory(lambda loop, coroutine, **options: asyncio.tasks._PyTask(coroutine, loop=loop, **options))
        async with producer(rocketpy_server) as sending, consumer(rocketpy_server, rocketpy_topic) as member:
            sends = [asyncio.create_task(sending.send(Message(rocketpy_topic, body))) for body in bodies(10)]
            assert isinstance(sends[0], asyncio.tasks._PyTask)
            assert len({receipt.msg_id for receipt in await asyncio.gather(*sends)}) == 10
            assert sorted(await take(member, 10)) == sorted(bodies(10))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await member.poll(1, 3600)
            shielded = asyncio.ensure_future(sending.send(Message(rocketpy_topic, b"text")))
            assert (await asyncio.shield(shielded)).queue
            assert await take(member, 1) == [b"text"]
            waiting = asyncio.create_task(member.poll(1, 3600))
            await asyncio.sleep(0)
            waiting.cancel("enough")
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await waiting

    asyncio.run(main())


def test_a_cancelled_send_says_so_and_is_sent(rocketpy_server, rocketpy_topic):
    async def main():
        async with producer(rocketpy_server, linger=0.2) as sending:
            await sending.send(Message(rocketpy_topic, b"first"))
            task = asyncio.create_task(sending.send(Message(rocketpy_topic, b"second")))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await task
            assert "may be stored" in cancelled.value.__notes__[0]
        async with consumer(rocketpy_server, rocketpy_topic) as member:
            assert sorted(await take(member, 2)) == [b"first", b"second"]

    asyncio.run(main())


def test_other_calls(rocketpy_server, rocketpy_topic):
    async def main():
        async with producer(rocketpy_server) as sending, consumer(rocketpy_server, rocketpy_topic) as member:
            assert len(await sending.queues(rocketpy_topic)) == 4
            await sending.send_many([Message(rocketpy_topic, b"packed" * 1000, order_key="one")])
            await sending.send(Message(rocketpy_topic, b"single" * 1000, order_key="one"))
            await sending.send_oneway(Message(rocketpy_topic, b"oneway" * 1000))
            await sending.flush()
            assert {body[:6] for body in await take(member, 3)} == {b"packed", b"single", b"oneway"}
            later = await sending.send(Message(rocketpy_topic, b"never", delay=3600))
            await sending.recall(later)
            with pytest.raises(rocketpy.InvalidArgumentError, match="cannot recall"):
                await sending.recall(await sending.send(Message(rocketpy_topic, b"plain")))
            queue = (await take_messages(member, 1))[0].queue
            delivered = await sending.send(Message(rocketpy_topic, b"soon", delay=0.1))
            await take_messages(member, 1)
            with pytest.raises(rocketpy.RefusedError) as late:
                await sending.recall(delivered)
            assert late.value.hint.startswith("only a message that still waits")
            member.pause(queue)
            member.resume()
            assert await member.seek(queue, "earliest") == 0
            asked = asyncio.create_task(sending.request(Message(rocketpy_topic, b"tea?"), timeout=60))
            async for question in member.messages(idle_timeout=60):
                if question.body == b"tea?":
                    await sending.reply(question, b"yes")
                    break
            assert (await asked).body == b"yes"
            assert [batch async for batch in member.batches(idle_timeout=0.01)] != [[]]

    async def take_messages(member: AsyncConsumer, count: int) -> list[rocketpy.ReceivedMessage]:
        came: list[rocketpy.ReceivedMessage] = []
        while len(came) < count:
            came += await member.poll(1, 60)
        return came

    asyncio.run(main())


def test_errors_come_as_from_the_twins(rocketpy_server, rocketpy_topic):
    async def main():
        with pytest.raises(rocketpy.TopicNotFoundError):
            async with consumer(rocketpy_server, fresh_name("no-topic")):
                pass
        with pytest.raises(rocketpy.InvalidArgumentError, match="retries"):
            await producer(rocketpy_server, retries=-1).start()
        unstarted = producer(rocketpy_server)
        with pytest.raises(rocketpy.ClosedError, match="was not started"):
            await unstarted.send(Message(rocketpy_topic, b"text"))
        async with unstarted:
            with pytest.raises(rocketpy.InvalidArgumentError):
                await unstarted.send(Message("bad topic!", b"text"))
            with pytest.raises(rocketpy.MessageTooLargeError):
                await unstarted.send(Message(rocketpy_topic, bytes(5 << 20)))
        with pytest.raises(rocketpy.ClosedError, match="is closed"):
            await unstarted.send(Message(rocketpy_topic, b"text"))
        with pytest.raises(rocketpy.RocketPyError, match="was already started"):
            await unstarted.start()
        await unstarted.close()

    asyncio.run(main())


def test_a_server_that_hangs_is_told_in_time_and_holds_nothing_up(stoppable):
    async def main():
        options = {"retries": 0, "batch_messages": 10, "api_timeout": 60.0}
        async with AsyncProducer("partly", name_servers=stoppable.name_server, send_timeout=0.5, **options) as sending:
            await sending.send(Message("partly", b"first"), timeout=60)
            stoppable.freeze()
            with pytest.raises(rocketpy.PartlySentError) as partly:
                await sending.send_many([Message("partly", body) for body in bodies(25)])
            failed = await asyncio.gather(
                *(sending.send(Message("partly", body)) for body in bodies(5)), return_exceptions=True
            )
            stoppable.thaw()
        assert len(list(partly.value.receipts.failures())) > 0
        assert {type(error) for error in failed} == {rocketpy.RequestTimeoutError}

    asyncio.run(main())


def test_one_task_that_finds_all_it_asks_for_does_not_hold_the_loop(rocketpy_server, rocketpy_topic):
    async def main():
        async with producer(rocketpy_server) as sending, consumer(rocketpy_server, rocketpy_topic) as member:
            await sending.send_many([Message(rocketpy_topic, body) for body in bodies(2000)])
            while not sum(map(len, [await member.poll(1, 60)])):
                pass
            turns = 0

            async def count_turns():
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            counting = asyncio.create_task(count_turns())
            await take(member, 1)
            for _ in range(1000):
                await member.poll(1, 60)
            counting.cancel()
            assert turns >= 10

    asyncio.run(main())


def test_a_start_that_failed_may_be_tried_again(rocketpy_server):
    topic = fresh_name("late")

    async def main():
        member = consumer(rocketpy_server, topic)
        with pytest.raises(rocketpy.TopicNotFoundError):
            await member.start()
        with rocketpy_server.admin() as admin:
            admin.create_topic(topic, queues=1)
        async with member:
            assert await member.poll(timeout=0) == []

    asyncio.run(main())


def test_ctrl_c_ends_a_wait_and_closes_in_order(child, rocketpy_server, rocketpy_topic):
    ended = child(
        f"""
        import asyncio, os, signal, threading, time, rocketpy
        servers, group = ["{rocketpy_server.name_server}"], "{fresh_name()}"
        async def main():
            async with rocketpy.AsyncConsumer(group, "{rocketpy_topic}", name_servers=servers) as consumer:
                asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
                global began
                began = time.monotonic()
                await consumer.poll(timeout=3600)
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            with rocketpy.Admin(servers) as admin:
                print(time.monotonic() - began < 10, admin.group_members(group))
        """
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True []\n", "")


def test_several_calls_of_close_are_one(rocketpy_server, rocketpy_topic):
    """Others of the loop get their answers on."""

    async def main():
        async with producer(rocketpy_server) as other:
            sending = await producer(rocketpy_server).start()
            await sending.send(Message(rocketpy_topic, b"text"))
            await asyncio.gather(*(sending.close() for _ in range(3)))
            assert (await asyncio.wait_for(other.send(Message(rocketpy_topic, b"text")), 60)).queue

    asyncio.run(main())


def test_a_close_during_the_start_leaves_no_member(rocketpy_server, rocketpy_topic):
    group, servers = fresh_name(), rocketpy_server.name_servers

    async def main():
        consumer = rocketpy.AsyncConsumer(group, rocketpy_topic, name_servers=servers)
        starting = asyncio.create_task(consumer.start())
        await asyncio.sleep(0)
        closing = [asyncio.create_task(consumer.close()) for _ in range(3)]
        await asyncio.sleep(0)
        closing.pop().cancel()  # the client is closed all the same
        await asyncio.gather(*closing)
        assert consumer.closed
        with pytest.raises(rocketpy.ClosedError, match="closed during its start"):
            await starting
        await consumer.close()
        with pytest.raises(rocketpy.RocketPyError, match="already started"):
            await consumer.start()

    asyncio.run(main())
    with rocketpy_server.admin() as admin:
        assert admin.group_members(group) == []


def test_a_close_that_fails_is_over_all_the_same(stoppable):
    async def main():
        with rocketpy.Producer("first", name_servers=stoppable.name_server, send_timeout=60) as first:
            first.send(Message("closing", b"text"))
        options = {"auto_commit": 3600, "api_timeout": 0.5, "handover_timeout": 0}
        member = await AsyncConsumer("closers", "closing", name_servers=stoppable.name_server, **options).start()
        while not await member.poll(timeout=1):
            pass
        await member.poll(timeout=0)
        stoppable.freeze()
        with pytest.raises(rocketpy.RocketPyError):
            await member.close()
        await member.close()
        stoppable.thaw()

    asyncio.run(main())


def test_a_child_leaves_its_parents_clients_alone(child, rocketpy_server, rocketpy_topic):
    ended = child(
        f"""
        import asyncio, os, rocketpy
        servers = ["{rocketpy_server.name_server}"]
        async def main():
            global sending
            sending = await rocketpy.AsyncProducer("app", name_servers=servers, send_timeout=60).start()
            if pid := os.fork():
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
                await sending.send(rocketpy.Message("{rocketpy_topic}", b"text"))
                await sending.close()
        asyncio.run(main())
        """
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_is_forgotten_is_reported(rocketpy_server, rocketpy_topic):
    group = fresh_name()

    async def main():
        await consumer(rocketpy_server, rocketpy_topic, group=group).start()

    with pytest.warns(ResourceWarning, match=f"never closed: <AsyncConsumer of group '{group}'>"):
        asyncio.run(main())
    with rocketpy_server.admin() as admin:
        wait_until(lambda: group not in {one.name for one in admin.groups() if one.members})


def test_python_ends_with_open_clients_and_work_in_flight(child, rocketpy_server, rocketpy_topic):
    ended = child(
        f"""
        import asyncio, rocketpy
        servers, topic = ["{rocketpy_server.name_server}"], "{rocketpy_topic}"
        async def main():
            global producer, consumer
            producer = await rocketpy.AsyncProducer("app", name_servers=servers, send_timeout=60).start()
            consumer = await rocketpy.AsyncConsumer("{fresh_name()}", topic, name_servers=servers).start()
            sends = (producer.send(rocketpy.Message(topic, b"%d" % n)) for n in range(1000))
            tasks = [asyncio.create_task(send) for send in sends]
            waiting = asyncio.create_task(consumer.poll(1, 60))
            await asyncio.sleep(0)
        asyncio.run(main())
        """
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_administration(rocketpy_server, rocketpy_topic, caplog):
    """Each call beside that of the twin."""
    group, made = fresh_name(), fresh_name()

    async def main():
        async with (
            AsyncAdmin(rocketpy_server.name_server, **PATIENCE) as admin,
            producer(rocketpy_server) as sending,
            consumer(rocketpy_server, rocketpy_topic, group=group) as member,
        ):
            receipt = await sending.send(Message(rocketpy_topic, b"text", keys=["A-17"]))
            assert await take(member, 1) == [b"text"]
            await member.commit()
            with rocketpy_server.admin() as twin:
                queue = receipt.queue
                assert await admin.describe_topic(rocketpy_topic) == twin.describe_topic(rocketpy_topic)
                assert await admin.queues(rocketpy_topic) == twin.queues(rocketpy_topic)
                assert await admin.brokers() == twin.brokers()
                assert await admin.group_members(group) == twin.group_members(group) == [member.client_id]
                assert await admin.describe_group(group) == twin.describe_group(group)
                assert await admin.group_lag(group) == twin.group_lag(group)
                assert await admin.committed_offset(group, queue) == twin.committed_offset(group, queue) == 1
                for call in ("min_offset", "max_offset", "next_offset"):
                    assert await getattr(admin, call)(queue) == getattr(twin, call)(queue)
                assert await admin.search_offset(queue, 0) == 0
                address = twin.brokers()[0].addresses[0]
                assert (await admin.broker_figures(address)).keys() == twin.broker_figures(address).keys()
                with pytest.raises(rocketpy.RefusedError):
                    await admin.demote(address)
            assert (await admin.view_message(receipt.offset_msg_id)).body == b"text"
            while not (found := await admin.query_messages(rocketpy_topic, "A-17")):
                pass  # each question waits for its answer
            assert [message.msg_id for message in found] == [receipt.msg_id]
            message = await admin.message(rocketpy_topic, receipt.msg_id)
            assert message is not None
            assert message.body == b"text"
            with pytest.raises(rocketpy.GroupConflictError):
                await admin.reset_offsets(group, rocketpy_topic, "earliest")
            assert (await admin.reset_offsets(group, rocketpy_topic, "earliest", force=True))[queue] == 0
            await admin.create_topic(made, 2)
            await sending.send(Message(made, b"text"), queue=(await sending.queues(made))[1])
            with pytest.raises(rocketpy.InvalidArgumentError, match=r"hold 1 message\n"):
                await admin.create_topic(made, 1)
            await admin.create_topic(made, 1, force=True)
            assert len(await admin.queues(made)) == 1
            assert made in await admin.topics()
            await admin.delete_topic(made)
            await admin.create_group(made)
            assert made in {one.name for one in await admin.groups()}
            await admin.delete_group(made)

    asyncio.run(main())

"""Callbacks for queues that a member gains and loses: members join, leave, fail, are killed. Nothing is skipped."""

import asyncio
import contextlib
import logging
import subprocess
import sys
import threading
from collections import Counter

import pytest

import rocketpy
from rocketpy.testing import fresh_name
from waiting import wait_until

QUEUES = 8


@pytest.fixture
def shared(rocketpy_server):
    """A topic of eight queues."""
    topic = fresh_name("told")
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=QUEUES)
    return topic


def send(producer, topic, count, first=0):
    """Messages with numbers, the same count in each queue."""
    for queue in sorted(producer.queues(topic)):
        numbers = range(first + queue.queue_id * count, first + (queue.queue_id + 1) * count)
        producer.send_many([rocketpy.Message(topic, b"%d" % number) for number in numbers], queue=queue)


class Told:
    """What a member was told, and what it did. It commits only when it loses queues."""

    def __init__(self):
        self.queues, self.calls, self.threads = set(), [], set()
        self.done, self.numbers = {}, []

    @property
    def options(self):
        return {"on_assigned": self.on_assigned, "on_revoked": self.on_revoked}

    def on_assigned(self, consumer, queues):
        self.note("assigned", queues)
        assert self.queues.isdisjoint(queues)
        self.queues.update(queues)

    def on_revoked(self, consumer, queues):
        self.note("revoked", queues)
        assert self.queues.issuperset(queues)
        self.queues.difference_update(queues)
        consumer.commit_offsets({queue: self.done.pop(queue) for queue in queues if queue in self.done})

    def note(self, what, queues):
        self.calls.append((what, len(queues)))
        self.threads.add(threading.current_thread())

    def poll(self, consumer, timeout=0.05):
        for message in consumer.poll(timeout=timeout):
            assert message.queue in self.queues
            self.done[message.queue] = message.queue_offset + 1
            self.numbers.append(int(message.body))


def drain(members, count):
    """Polls members in turn until they have as many messages together."""

    def polled():
        for told, consumer in members:
            told.poll(consumer)
        return sum(len(told.numbers) for told, _ in members) >= count

    wait_until(polled, f"{count} messages")


def test_members_that_commit_when_they_lose_queues_read_each_message_once(rocketpy_server, producer, shared):
    group, first, second, third = fresh_name(), Told(), Told(), Told()
    send(producer, shared, 10)
    with rocketpy_server.consumer(group, shared, **first.options) as one:
        drain([(first, one)], QUEUES * 10)
        assert first.calls == [("assigned", QUEUES)]
        with rocketpy_server.consumer(group, shared, **second.options) as two:
            members = [(first, one), (second, two)]

            def share():
                return [len(told.queues) for told, _ in members]

            wait_until(lambda: [told.poll(member) for told, member in members] and share() == [4, 4])
            send(producer, shared, 10, first=1000)
            drain(members, QUEUES * 20)
            assert {len(told.queues) for told in (first, second)} == {4}
        assert second.calls[-1] == ("revoked", 4)
        assert second.queues == set()
        send(producer, shared, 10, first=2000)
        with rocketpy_server.consumer(group, shared, **third.options) as three:
            drain([(first, one), (third, three)], QUEUES * 30 - len(second.numbers))
    assert first.threads == second.threads == third.threads == {threading.current_thread()}
    numbers = Counter(first.numbers + second.numbers + third.numbers)
    assert numbers == Counter(base + number for base in (0, 1000, 2000) for number in range(QUEUES * 10))
    with rocketpy_server.admin() as admin:
        assert [row.lag for row in admin.group_lag(group, shared)] == [0] * QUEUES


MEMBER = """
import sys, rocketpy
server, group, topic = sys.argv[1:]

def told(consumer, queues):
    print("assigned", len(queues), flush=True)

with rocketpy.Consumer(group, topic, name_servers=server, on_assigned=told, on_revoked=told) as member:
    while True:
        for message in member.poll(timeout=0.2):
            print(int(message.body), flush=True)
"""


def test_the_queues_of_a_member_that_is_killed_are_told_to_the_others(rocketpy_server, producer, shared):
    group, told = fresh_name(), Told()
    with rocketpy_server.consumer(group, shared, **told.options) as here:
        wait_until(lambda: here.poll(timeout=0.05) or len(told.queues) == QUEUES)
        command = [sys.executable, "-c", MEMBER, rocketpy_server.name_server, group, shared]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as there:
            try:
                wait_until(lambda: told.poll(here) or len(told.queues) == 4, process=there)
                assert there.stdout.readline() == "assigned 4\n"
                send(producer, shared, 10)
                assert there.stdout.readline().strip().isdecimal()  # it works on messages when it dies
            finally:
                there.kill()
        drain([(told, here)], QUEUES * 10)
        assert len(told.queues) == QUEUES
    assert Counter(told.numbers) == Counter(range(QUEUES * 10))  # it committed nothing


@pytest.mark.parametrize("failure", [ZeroDivisionError("no plan"), rocketpy.ClosedError("of something else")])
def test_what_a_callback_raises_is_logged_and_counted_and_loses_nothing(
    rocketpy_server, producer, shared, caplog, failure
):
    send(producer, shared, 5)

    def fails(consumer, queues):
        raise failure

    numbers = []
    with (
        caplog.at_level(logging.ERROR, "rocketpy.client"),
        rocketpy_server.consumer(fresh_name(), shared, on_assigned=fails, on_revoked=fails) as consumer,
    ):
        wait_until(lambda: numbers.extend(int(one.body) for one in consumer.poll()) or len(numbers) == QUEUES * 5)
        assert consumer.stats().failed_callbacks == 1
    assert sorted(numbers) == [*range(QUEUES * 5)]
    assert consumer.stats().failed_callbacks == 2
    first, second = [record for record in caplog.records if "failed for 8 queues" in record.getMessage()]
    assert first.getMessage().startswith("on_assigned of the consumer of group")
    assert second.getMessage().startswith("on_revoked of the consumer of group")
    assert str(failure) in first.exc_text
    assert "Traceback" in second.exc_text


def test_a_member_that_does_not_poll_keeps_its_queues_for_a_bounded_time(rocketpy_server, producer, shared):
    group, calls = fresh_name(), []

    def revoked(consumer, queues):
        try:
            consumer.commit_offsets(dict.fromkeys(queues, 0))
            calls.append((len(queues), "committed"))
        except rocketpy.OffsetError:
            calls.append((len(queues), "too late"))

    with rocketpy_server.consumer(group, shared, on_revoked=revoked, handover_timeout=0.2) as slow:
        send(producer, shared, 1)
        wait_until(slow.poll)
        with rocketpy_server.consumer(group, shared, handover_timeout=0.2) as other:
            came = set()
            wait_until(lambda: came.update(one.queue for one in other.poll()) or len(came) == 4)
            assert calls == []
            wait_until(lambda: slow.poll(timeout=0.05) or calls)
    assert calls == [(4, "too late"), (4, "committed")]


def test_a_queue_is_read_from_where_on_assigned_seeks(rocketpy_server, producer, shared):
    send(producer, shared, 10)
    seen = []

    def to_the_last(consumer, queues):
        seen.append(consumer.assignment() == queues)
        for queue in queues:
            consumer.seek(queue, 9)

    with rocketpy_server.consumer(fresh_name(), shared, on_assigned=to_the_last) as consumer:
        offsets = []
        wait_until(lambda: offsets.extend(one.queue_offset for one in consumer.poll()) or len(offsets) == QUEUES)
    assert (seen, offsets) == ([True], [9] * QUEUES)


@pytest.mark.parametrize(
    "take",
    [
        lambda consumer: next(consumer),
        lambda consumer: next(consumer.batches()),
        lambda consumer: consumer.fetch_columns(timeout=60),
        lambda consumer: consumer.poll(timeout=60),
    ],
    ids=["iteration", "batches", "columns", "poll"],
)
def test_every_way_to_take_messages_calls_back_first(rocketpy_server, producer, shared, take):
    send(producer, shared, 1)
    told = Told()
    with rocketpy_server.consumer(fresh_name(), shared, **told.options) as consumer:
        assert take(consumer)
        assert told.calls == [("assigned", QUEUES)]
        assert told.queues == set(consumer.assignment())
    assert told.queues == set()


def test_a_callback_takes_no_messages_and_may_close_its_consumer(rocketpy_server, producer, shared, caplog):
    send(producer, shared, 1)
    calls = []

    def polls(consumer, queues):
        calls.append("polls")
        consumer.poll()

    def closes(consumer, queues):
        calls.append("closes")
        consumer.close()

    with rocketpy_server.consumer(fresh_name(), shared, on_assigned=polls) as consumer:
        assert consumer.poll(timeout=60)
    assert "cannot poll inside on_assigned or on_revoked" in caplog.text
    with rocketpy_server.consumer(fresh_name(), shared, on_assigned=closes, on_revoked=closes) as consumer:
        with pytest.raises(rocketpy.ClosedError):
            consumer.poll(timeout=60)
    assert calls == ["polls", "closes"]


def test_threads_that_poll_one_consumer_wait_for_its_callback(rocketpy_server, producer, shared):
    send(producer, shared, 1)
    entered, leave, calls, came = threading.Event(), threading.Event(), [], []

    def assigned(consumer, queues):
        calls.append(len(queues))
        entered.set()
        leave.wait(60)

    with rocketpy_server.consumer(fresh_name(), shared, on_assigned=assigned) as consumer:

        def take():
            with contextlib.suppress(rocketpy.ClosedError):  # of the one that gets no message
                came.extend(consumer.poll(timeout=60))

        threads = [threading.Thread(target=take) for _ in range(2)]
        threads[0].start()
        assert entered.wait(60)
        threads[1].start()
        assert consumer.poll(timeout=0) == []
        assert (calls, came) == ([QUEUES], [])
        leave.set()
        wait_until(lambda: came)
        consumer.close()
        for thread in threads:
            thread.join()
    assert calls == [QUEUES]


def test_asyncio(rocketpy_server, producer, shared):
    send(producer, shared, 10)
    group, servers = fresh_name(), rocketpy_server.name_servers

    class AsyncTold(Told):
        def on_assigned(self, consumer, queues):
            super().on_assigned(consumer, queues)

        async def on_revoked(self, consumer, queues):
            self.note("revoked", queues)
            self.queues.difference_update(queues)
            offsets = {queue: self.done.pop(queue) for queue in queues if queue in self.done}
            await consumer.commit_offsets(offsets)

        async def take(self, consumer, count):
            while len(self.numbers) < count:
                for message in await consumer.poll(timeout=0.1):
                    assert message.queue in self.queues
                    self.done[message.queue] = message.queue_offset + 1
                    self.numbers.append(int(message.body))

    first, second = AsyncTold(), AsyncTold()

    async def main():
        async with rocketpy.AsyncConsumer(group, shared, name_servers=servers, **first.options) as one:
            await first.take(one, QUEUES * 10)
            async with rocketpy.AsyncConsumer(group, shared, name_servers=servers, **second.options) as two:
                while [len(first.queues), len(second.queues)] != [4, 4]:
                    await asyncio.gather(one.poll(timeout=0.1), two.poll(timeout=0.1))
            assert second.calls[-1] == ("revoked", 4)
        return one.stats()

    assert asyncio.run(main()).failed_callbacks == 0
    assert first.queues == second.queues == set()
    assert Counter(first.numbers + second.numbers) == Counter(range(QUEUES * 10))
    with rocketpy_server.admin() as admin:
        assert sum(row.lag for row in admin.group_lag(group, shared)) == 0


def test_a_cancelled_poll_cancels_the_callback_and_the_next_one_calls_it_again(rocketpy_server, producer, shared):
    send(producer, shared, 1)
    servers, calls = rocketpy_server.name_servers, []

    async def main():
        entered = asyncio.Event()

        async def assigned(consumer, queues):
            calls.append(len(queues))
            entered.set()
            if len(calls) == 1:
                await asyncio.sleep(60)

        async with rocketpy.AsyncConsumer(fresh_name(), shared, name_servers=servers, on_assigned=assigned) as consumer:
            polling = asyncio.create_task(consumer.poll(timeout=60))
            await entered.wait()
            polling.cancel()
            await asyncio.wait([polling])
            assert polling.cancelled()
            return await consumer.fetch_columns(timeout=60)

    assert asyncio.run(main())
    assert calls == [QUEUES, QUEUES]


def test_a_cancelled_error_of_the_callbacks_own_does_not_end_the_poll(rocketpy_server, producer, shared):
    send(producer, shared, 1)
    servers, calls = rocketpy_server.name_servers, []

    async def main():
        async def assigned(consumer, queues):
            calls.append(len(queues))
            raise asyncio.CancelledError

        async with rocketpy.AsyncConsumer(fresh_name(), shared, name_servers=servers, on_assigned=assigned) as consumer:
            assert await consumer.poll(timeout=60)
            return consumer.stats().failed_callbacks

    assert asyncio.run(main()) == 1
    assert calls == [QUEUES]


def has_all_queues(server, group, topic):
    """Waits until a member that joins has every queue of its group."""
    with server.consumer(group, topic) as consumer:
        wait_until(lambda: len(consumer.assignment()) == QUEUES)


def test_a_member_whose_callback_raises_system_exit_at_its_close_leaves_its_group(rocketpy_server, producer, shared):
    send(producer, shared, 1)
    group = fresh_name()
    consumer = rocketpy_server.consumer(group, shared, on_revoked=lambda consumer, queues: sys.exit(3))
    assert consumer.poll(timeout=60)
    with pytest.raises(SystemExit):
        consumer.close()
    has_all_queues(rocketpy_server, group, shared)


def test_a_member_whose_close_is_cancelled_in_its_callback_leaves_its_group(rocketpy_server, producer, shared):
    send(producer, shared, 1)
    group, servers = fresh_name(), rocketpy_server.name_servers

    async def main():
        entered = asyncio.Event()

        async def revoked(consumer, queues):
            entered.set()
            await asyncio.Event().wait()

        consumer = rocketpy.AsyncConsumer(group, shared, name_servers=servers, on_revoked=revoked)
        await consumer.start()
        assert await consumer.poll(timeout=60)
        closing = asyncio.create_task(consumer.close())
        await entered.wait()
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        await asyncio.to_thread(has_all_queues, rocketpy_server, group, shared)

    asyncio.run(main())


def test_what_is_no_callback_is_refused_by_name(rocketpy_server, shared):
    async def waits(consumer, queues): ...

    with pytest.raises(TypeError, match="option on_assigned must be a function of a consumer and queues"):
        rocketpy_server.consumer(fresh_name(), shared, on_assigned="print")
    with pytest.raises(TypeError, match="option on_revoked must be a plain function: a Consumer has no loop"):
        rocketpy_server.consumer(fresh_name(), shared, on_revoked=waits)
    queues = [rocketpy.MessageQueue(shared, "b", 0)]
    with pytest.raises(rocketpy.InvalidArgumentError, match="has no option on_assigned"):
        rocketpy.Consumer.assign("g", queues, name_servers=rocketpy_server.name_servers, on_assigned=print)

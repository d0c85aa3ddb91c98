"""How push consumers share queues: callbacks for queues that come and go, balances, and SQL filters."""

import asyncio
import logging
import threading
from collections import Counter

import pytest
from pushing import Seen, committed, send

import rocketpy
from rocketpy.testing import fresh_name
from waiting import wait_until

THREAD = "rocketpy-balance"


def of_topic(queues, topic):
    return [queue for queue in queues if queue.topic == topic]


def share(consumer, topic):
    return [queue.queue_id for queue in of_topic(consumer.state().assigned, topic)]


class Told:
    """What a member was told of the queues of a topic, and the numbers that its handler got."""

    def __init__(self, topic):
        self.topic, self.queues, self.calls, self.numbers = topic, set(), [], []

    def on_assigned(self, consumer, queues):
        assert set(queues) <= set(consumer.state().assigned)
        self.queues.update(queues)
        self.note("assigned", queues)

    def on_revoked(self, consumer, queues):
        self.queues.difference_update(queues)
        self.note("revoked", queues)

    def note(self, what, queues):
        if count := len(of_topic(queues, self.topic)):  # the queue of the retry topic may come and go alone
            self.calls.append((what, count))

    def consumer(self, server, group, **options):
        consumer = server.push_consumer(group, on_assigned=self.on_assigned, on_revoked=self.on_revoked, **options)
        consumer.on(self.topic)(self.handle)
        return consumer

    def handle(self, message):
        assert message.queue in self.queues
        self.numbers.append(int(message.body))


def test_members_that_join_and_leave_are_told_and_each_message_is_consumed_once(server, topic, group):
    first, second = Told(topic), Told(topic)
    with first.consumer(server, group) as one:
        send(server, topic, 50)
        wait_until(lambda: len(first.numbers) == 50)
        assert first.calls == [("assigned", 4)]
        with second.consumer(server, group) as two:
            wait_until(lambda: [len(share(one, topic)), len(share(two, topic))] == [2, 2])
            send(server, topic, 50)
            wait_until(lambda: len(first.numbers) + len(second.numbers) == 100)
            assert ("revoked", 2) in first.calls
        assert second.calls == [("assigned", 2), ("revoked", 2)]
        send(server, topic, 50)
        wait_until(lambda: len(first.numbers) + len(second.numbers) == 150)
        assert one.stats().failed_callbacks == 0
    assert first.queues == second.queues == set()
    assert Counter(first.numbers + second.numbers) == Counter(3 * [*range(50)])
    assert committed(server, group, topic) == 150


def test_a_revoke_waits_for_handlers_and_the_callback_and_what_they_did_is_committed(server, topic, group):
    send(server, topic, 4)
    steps, leave = [], {"handler": threading.Event(), "callback": threading.Event()}
    entered, handled, early = threading.Semaphore(0), set(), []

    def revoked(consumer, queues):
        if not of_topic(queues, topic):
            return
        early.extend(queue for queue in queues if queue not in handled)
        steps.append("revoked")
        leave["callback"].wait(60)
        steps.append("told")

    consumer = server.push_consumer(group, on_revoked=revoked, handover_timeout=60)

    @consumer.on(topic)
    def handle(message):
        entered.release()
        leave["handler"].wait(60)
        handled.add(message.queue)
        steps.append("handled")

    with consumer:
        for _ in range(4):
            assert entered.acquire(timeout=60)
        seen, other = Seen(), server.push_consumer(group, handover_timeout=60)
        other.on(topic)(seen.note)
        with other:
            wait_until(lambda: len(share(consumer, topic)) == 2)
            assert steps == []
            leave["handler"].set()
            wait_until(lambda: "revoked" in steps)
            assert early == [], "the handler of each queue has ended"
            send(server, topic, 4)
            wait_until(lambda: steps.count("handled") >= 6, "the queues that stay go on")
            assert seen.calls == []
            leave["callback"].set()
            wait_until(lambda: len(seen.calls) + steps.count("handled") == 8)
            assert len(seen.calls) == 2
    assert committed(server, group, topic) == 8


def test_a_callback_that_hangs_holds_queues_and_a_stop_for_a_bounded_time(server, topic, group, caplog):
    leave, entered = threading.Event(), threading.Event()

    def hangs(consumer, queues):
        entered.set()
        leave.wait(60)

    consumer = server.push_consumer(group, on_revoked=hangs, handover_timeout=0.1, stop_timeout=0.1)
    seen, other = Seen(), server.push_consumer(group, handover_timeout=0.1)
    consumer.on(topic)(seen.note)
    other.on(topic)(seen.note)
    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        wait_until(lambda: len(share(consumer, topic)) == 4)
        with other:
            assert entered.wait(60)
            wait_until(lambda: len(share(other, topic)) == 2)
            send(server, topic, 20)
            seen.wait(20)
            consumer.stop()
            wait_until(lambda: "consumer stops while its rebalance callback runs" in caplog.text)
            send(server, topic, 20)
            seen.wait(40)
    assert seen.counts() == Counter(2 * [*range(20)])
    assert not leave.is_set()
    leave.set()


@pytest.mark.parametrize("failure", [ZeroDivisionError("no plan"), SystemExit(3)], ids=["raises", "exits"])
def test_what_a_callback_raises_is_logged_and_counted_and_loses_nothing(server, topic, group, caplog, failure):
    send(server, topic, 20)

    def fails(consumer, queues):
        raise failure

    seen, consumer = Seen(), server.push_consumer(group, on_assigned=fails, on_revoked=fails)
    consumer.on(topic)(seen.note)
    with caplog.at_level(logging.ERROR, "rocketpy.client"), consumer:
        seen.wait(20)
    assert seen.counts() == Counter(range(20))
    failed = consumer.stats().failed_callbacks
    traces = [record for record in caplog.records if "of the consumer of group" in record.getMessage()]
    assert failed == len(traces) >= 2
    assert all("Traceback" in record.exc_text and type(failure).__name__ in record.exc_text for record in traces)


def test_no_handler_gets_a_message_before_on_assigned_returned(server, topic, group):
    send(server, topic, 20)
    entered, leave, seen = threading.Event(), threading.Event(), Seen()

    def assigned(consumer, queues):
        entered.set()
        leave.wait(60)

    consumer = server.push_consumer(group, on_assigned=assigned)
    consumer.on(topic)(seen.note)
    with consumer:
        assert entered.wait(60)
        with server.consumer(fresh_name(), topic) as other:  # what is there can be read
            assert other.poll(timeout=60)
        assert seen.calls == []
        leave.set()
        seen.wait(20)


@pytest.mark.parametrize("handlers", ["plain", "async"])
def test_async_callbacks_run_in_the_loop_of_async_handlers_and_a_revoke_waits_for_them(server, topic, group, handlers):
    send(server, topic, 4)
    threads, steps, leave, seen = {}, [], threading.Event(), Seen()

    async def assigned(consumer, queues):
        if "assigned" not in threads:  # else of the other member, which has left
            assert seen.calls == []
        threads["assigned"] = threading.current_thread()

    async def revoked(consumer, queues):
        threads["revoked"] = threading.current_thread()
        if of_topic(queues, topic):
            steps.append("revoked")
            while not leave.is_set():
                await asyncio.sleep(0.01)
            steps.append("told")

    def handle(message):
        threads["handler"] = threading.current_thread()
        seen.note(message)

    async def handle_async(message):
        handle(message)

    consumer = server.push_consumer(group, on_assigned=assigned, on_revoked=revoked, handover_timeout=60)
    consumer.on(topic)(handle if handlers == "plain" else handle_async)
    with consumer:
        seen.wait(4)
        taken, other = Seen(), server.push_consumer(group, handover_timeout=60)
        other.on(topic)(taken.note)
        with other:
            wait_until(lambda: "revoked" in steps)
            send(server, topic, 4)
            seen.wait(6)  # the loop, and the queues that stay, go on
            assert taken.calls == []
            leave.set()
            taken.wait(2)
            assert steps == ["revoked", "told"]
    assert threads["assigned"] is threads["revoked"]
    assert (threads["handler"] is threads["assigned"]) is (handlers == "async")
    assert consumer.stats().failed_callbacks == 0
    assert committed(server, group, topic) == 8


@pytest.mark.parametrize("failure", [ZeroDivisionError("no plan"), SystemExit(3)], ids=["raises", "exits"])
def test_what_an_async_callback_raises_is_logged_and_counted_and_its_loop_goes_on(
    server, topic, group, caplog, failure
):
    send(server, topic, 20)

    async def fails(consumer, queues):
        raise failure

    seen, consumer = Seen(), server.push_consumer(group, on_assigned=fails, on_revoked=fails)

    @consumer.on(topic)
    async def handle(message):
        seen.note(message)

    with caplog.at_level(logging.ERROR, "rocketpy.client"), consumer:
        seen.wait(20)
    assert seen.counts() == Counter(range(20))
    traces = [record for record in caplog.records if "of the consumer of group" in record.getMessage()]
    assert consumer.stats().failed_callbacks == len(traces) >= 2
    assert all(type(failure).__name__ in record.exc_text for record in traces)


def test_an_async_callback_that_hangs_is_cancelled_by_the_end_of_a_stop(server, topic, group):
    ends = []

    async def hangs(consumer, queues):
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(asyncio.current_task().cancelling())

    consumer = server.push_consumer(group, on_revoked=hangs, stop_timeout=0.1)
    consumer.on(topic)(print)
    with consumer:
        wait_until(lambda: len(share(consumer, topic)) == 4)
    wait_until(lambda: consumer.stats().failed_callbacks == 1)
    assert ends == [1]
    wait_until(lambda: not [one for one in threading.enumerate() if one.name.startswith("rocketpy-push")])


def test_an_async_callback_that_ignores_its_cancellation_keeps_no_thread(server, topic, group):
    async def hangs(consumer, queues):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    consumer = server.push_consumer(group, on_revoked=hangs, stop_timeout=0.1)
    consumer.on(topic)(print)
    with consumer:
        wait_until(lambda: len(share(consumer, topic)) == 4)
    wait_until(lambda: not [one for one in threading.enumerate() if one.name.startswith("rocketpy-push")])


def test_an_async_callback_that_takes_longer_than_a_handler_may_is_cancelled(server, topic, group, caplog):
    async def hangs(consumer, queues):
        await asyncio.Event().wait()

    send(server, topic, 4)
    seen, consumer = Seen(), server.push_consumer(group, on_assigned=hangs, handler_timeout=0.1)
    consumer.on(topic)(seen.note)
    with caplog.at_level(logging.ERROR, "rocketpy.client"), consumer:
        seen.wait(4)
    assert "CancelledError" in caplog.text


def test_an_async_callback_that_ends_cancelled_counts_as_failed_and_the_next_is_called(server, topic, group, caplog):
    async def ends_cancelled(consumer, queues):
        asyncio.current_task().cancel()

    send(server, topic, 4)
    seen, consumer = Seen(), server.push_consumer(group, on_assigned=ends_cancelled, on_revoked=ends_cancelled)
    consumer.on(topic)(seen.note)
    with caplog.at_level(logging.ERROR, "rocketpy.client"), consumer:
        seen.wait(4)
    assert consumer.stats().failed_callbacks >= 1  # that of the stop may end with the loop, uncounted
    assert "CancelledError" in caplog.text


def test_an_awaitable_that_nobody_awaits_fails_the_callback(server, topic, group, caplog):
    async def waits(consumer, queues): ...

    seen, consumer = Seen(), server.push_consumer(group, on_assigned=lambda *given: waits(*given))
    consumer.on(topic)(seen.note)
    with caplog.at_level(logging.ERROR, "rocketpy.client"), consumer:
        wait_until(lambda: consumer.stats().failed_callbacks)
    assert "on_assigned returned an awaitable, which is not awaited: write it as `async def`" in caplog.text


def test_a_callback_may_stop_its_consumer(server, topic, group):
    calls = []

    def assigned(consumer, queues):
        calls.append("assigned")
        consumer.stop()

    consumer = server.push_consumer(group, on_assigned=assigned, on_revoked=lambda *_: calls.append("revoked"))
    consumer.on(topic)(print)
    consumer.run()
    wait_until(lambda: repr(consumer).endswith("(stopped)>"))
    assert calls[:2] == ["assigned", "revoked"]


def member(server, group, topic, name, balance, seen=None):
    options = {"instance_name": name, "client_ip": "host", "handover_timeout": 0, "balance": balance}
    consumer = server.push_consumer(group, **options)
    consumer.on(topic)((seen or Seen()).note)
    return consumer


@pytest.mark.parametrize(
    ("balance", "shares"),
    [
        ("circle", [[0, 2], [1, 3]]),
        (lambda group, me, queues, members: queues if me == members[-1] else [], [[], [0, 1, 2, 3]]),
    ],
    ids=["circle", "function"],
)
def test_members_share_queues_by_their_balance(server, topic, group, balance, shares):
    seen = Seen()
    with (
        member(server, group, topic, "a", balance, seen) as one,
        member(server, group, topic, "b", balance, seen) as two,
    ):
        wait_until(lambda: [share(one, topic), share(two, topic)] == shares)
        send(server, topic, 20)
        seen.wait(20)
    assert seen.counts() == Counter(range(20))
    wait_until(lambda: THREAD not in {thread.name for thread in threading.enumerate()})


def test_what_is_no_balance_is_refused_and_leaves_no_thread(server, topic, group):
    def everything(group, client_id, queues, members):
        return queues

    with pytest.raises(rocketpy.InvalidArgumentError, match="not a balance: sticky"):
        member(server, group, topic, "a", "sticky").start()
    with pytest.raises(rocketpy.TopicNotFoundError):
        member(server, group, fresh_name("missing"), "a", everything).start()
    assert THREAD not in {thread.name for thread in threading.enumerate()}
    consumer = server.push_consumer(group, broadcast=True, balance="circle")
    consumer.on(topic)(print)
    with pytest.raises(rocketpy.InvalidArgumentError, match="members share no queues with broadcast"):
        consumer.start()


def test_handlers_get_messages_for_which_an_expression_is_true_and_their_retries(server, topic, group):
    with server.producer("push-senders") as producer:
        for number in range(10):
            tag = "TagA" if number < 5 else "TagB"
            producer.send(rocketpy.Message(topic, b"%d" % number, tag=tag, properties={"a": str(number)}))
    seen, consumer = Seen(), server.push_consumer(group)

    @consumer.on(topic, sql="a > 3 AND TAGS = 'TagA' OR a = 7")
    def handle(message):
        seen.note(message)
        if message.reconsume_times == 0:
            raise rocketpy.Retry("later", after=1)

    with consumer:
        seen.wait(4)
        wait_until(lambda: committed(server, group, topic) == 10)
    assert sorted(seen.calls) == [(4, 0), (4, 1), (7, 0), (7, 1)]


def test_a_wrong_expression_is_refused(server, topic, group):
    consumer = server.push_consumer(group)
    with pytest.raises(rocketpy.InvalidArgumentError, match="tags and sql exclude each other"):
        consumer.on(topic, tags="TagA", sql="a > 3")
    with pytest.raises(TypeError, match="sql must be an expression"):
        consumer.on(topic, sql={"a": 3})
    consumer.on(topic, sql="a LIKE 'x'")(print)
    with pytest.raises(rocketpy.InvalidArgumentError, match="at character"):
        consumer.start()

"""Push consumers: what becomes of messages whose handlers return, raise, wait or block; and of members that end."""

import functools
import logging
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from pushing import Seen, committed, dead_letters, send

import rocketpy
from rocketpy.consuming.handlers import reason_of
from rocketpy.testing import fresh_name
from waiting import wait_until


def test_each_message_is_consumed_once_and_committed(server, topic, group):
    send(server, topic, 200, tag="paid")
    send(server, topic, 3, tag="open")
    seen, consumer = Seen(), server.push_consumer(group)
    assert consumer.on(topic, tags="paid")(seen.note) == seen.note
    assert (repr(consumer), consumer.client_id) == (f"<PushConsumer of group {group!r} (not started)>", None)
    with consumer:
        seen.wait(200)
        wait_until(lambda: committed(server, group, topic) == 203, "a commit while it runs")
        assert {queue.topic for queue in consumer.state().assigned} == {topic, f"%RETRY%{group}"}
        with server.admin() as admin:
            (member,) = admin.describe_group(group)
            assert member.client_id == consumer.client_id
    assert seen.counts() == Counter(range(200))
    stats = consumer.stats()
    assert (stats.consumed, stats.failed, stats.sent_back, stats.dead, stats.unfinished) == (200, 0, 0, 0, 0)
    assert repr(consumer).endswith("(stopped)>")
    with pytest.raises(rocketpy.ClosedError, match="was stopped"):
        consumer.start()


def test_a_message_whose_handler_raises_comes_again(server, topic, group, caplog):
    send(server, topic, 5)
    seen, consumer = Seen(), server.push_consumer(group)

    @consumer.on(topic)
    def handle(message):
        seen.note(message)
        assert message.topic == topic
        if message.body == b"3" and message.reconsume_times < 2:
            raise ValueError("no such order")

    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        seen.wait(7)
    assert [times for number, times in seen.calls if number == 3] == [0, 1, 2]
    assert seen.counts() == Counter({0: 1, 1: 1, 2: 1, 3: 3, 4: 1})
    stats = consumer.stats()
    assert (stats.failed, stats.sent_back, stats.dead, stats.unfinished) == (2, 2, 0, 0)
    attempts = [
        record for record in caplog.records if "which is redelivered: ValueError: no such order" in record.message
    ]
    assert [(record.levelno, record.exc_info) for record in attempts] == [(logging.WARNING, None)] * 2


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_whose_own_text_raises_is_an_error_like_others(server, topic, group, caplog, is_async):
    class WithoutText(Exception):
        def __str__(self):
            raise ValueError("no text")

    send(server, topic, 2)
    seen, consumer = Seen(), server.push_consumer(group, concurrency=1)

    def handle(message):
        seen.note(message)
        if message.body == b"0" and message.reconsume_times == 0:
            raise WithoutText

    async def handle_async(message):
        handle(message)

    consumer.on(topic)(handle_async if is_async else handle)
    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        seen.wait(3)
        wait_until(lambda: committed(server, group, topic) == 2)
    assert sorted(seen.calls) == [(0, 0), (0, 1), (1, 0)]
    assert "WithoutText" in caplog.text


def test_what_is_rejected_and_what_failed_too_often_is_a_dead_letter(server, topic, group):
    send(server, topic, 4)
    seen, consumer = Seen(), server.push_consumer(group, max_retries=1)

    @consumer.on(topic)
    def handle(message):
        seen.note(message)
        if message.body == b"1":
            raise rocketpy.Reject("no such order")
        if message.body == b"2":
            raise SystemExit(3)

    with consumer:
        seen.wait(5)
        wait_until(lambda: consumer.stats().dead == 2)
        wait_until(lambda: committed(server, group, topic) == 4)
    assert seen.counts() == Counter({0: 1, 1: 1, 2: 2, 3: 1})
    assert dead_letters(server, group) == [b"1", b"2"]


def errors_of(server, group):
    """Bodies of the dead letters of a group, with reason and error."""
    with server.admin() as admin:
        found = {letter.message.body: (letter.reason, letter.error) for letter in admin.dead_letters(group)}
        (listed,) = [one for one in admin.dead_letter_groups() if one.group == group]
    assert listed.newest_error in {error for _, error in found.values()}
    return found


@pytest.mark.parametrize("ordered", [False, True])
def test_dead_letters_carry_the_last_error_and_only_the_last_attempt_is_logged_with_a_traceback(
    server, topic, group, caplog, ordered
):
    send(server, topic, 4)
    consumer = server.push_consumer(group, max_retries=1, ordered=ordered, retry_pause=0.01)
    tries = Counter()

    @consumer.on(topic)
    def handle(message):
        tries[message.body] += 1
        if message.body == b"0":
            raise rocketpy.Reject("no such order: A-17")
        if message.body == b"1":
            raise ValueError(f"attempt {tries[message.body]}\n\x1b[2J\x00 ä")
        if message.body == b"2":
            raise rocketpy.Retry("the bank sleeps", after=0.01)
        raise KeyError("x" * 1000)

    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        wait_until(lambda: consumer.stats().dead == 4)
    found = errors_of(server, group)
    last = "GIVEN_UP" if ordered else "RETRIES_EXHAUSTED"
    assert found[b"0"] == ("GIVEN_UP", "Reject: no such order: A-17")
    assert found[b"1"] == (last, r"ValueError: attempt 2\n\x1b[2J\x00 ä")
    assert found[b"2"] == (last, "Retry: the bank sleeps")
    assert found[b"3"][1] == f"KeyError: '{'x' * 501}"
    attempts = [record for record in caplog.records if record.getMessage().startswith("handler of topic")]
    assert {record.levelno for record in attempts} == {logging.WARNING}
    traces = [record.exc_info is not None for record in attempts if "ValueError: attempt" in record.getMessage()]
    assert traces == [False, True]
    (rejected,) = [record for record in attempts if "no such order" in record.getMessage()]
    assert "Traceback" in rejected.exc_text
    assert r"\x1b[2J" in caplog.text, "control characters are escaped in the log too"


@pytest.mark.parametrize("wanted", [True, False])
def test_dead_letters_never_carry_the_body_and_no_error_if_it_is_switched_off(server, topic, group, caplog, wanted):
    body = b'{"card": "4111 1111 1111 1111", "name": "\xc3\xa4"}'
    bodies = [body, b"4111", body * 1000]
    with server.producer("push-senders") as producer:
        for one in bodies:
            producer.send(rocketpy.Message(topic, one))
    consumer = server.push_consumer(group, max_retries=0, **({} if wanted else {"dead_letter_error": False}))

    @consumer.on(topic)
    def handle(message):
        text = message.body.decode()
        raise ValueError(f"cannot read {message.body!r} and {text!r}" + (f": {text}" if len(text) > 8 else ""))

    with consumer:
        wait_until(lambda: consumer.stats().dead == 3)
    found = errors_of(server, group)
    expected = "ValueError: cannot read <body> and <body>"
    texts = [f"{expected}: <body>", expected, "ValueError: cannot read <body>"]
    assert [found[one][1] for one in bodies] == (texts if wanted else [None] * 3)
    assert "4111" not in "".join(record.getMessage() for record in caplog.records)


def test_the_input_that_pydantic_names_is_not_in_the_reason():
    pydantic = pytest.importorskip("pydantic")

    class Order(pydantic.BaseModel):
        amount: int

    try:
        Order.model_validate_json('{"amount": "4111 1111"}')
    except pydantic.ValidationError as error:
        reason = reason_of(error, [])
    assert "4111" not in reason
    assert "amount" in reason
    assert "input_type=str" in reason


def test_a_lone_surrogate_in_an_error_is_escaped():
    assert reason_of(ValueError("a\ud800b\u2028"), []) == r"ValueError: a\ud800b\u2028"


def test_a_handler_that_never_returns_in_time_is_the_error_of_its_dead_letter(server, topic, group):
    send(server, topic, 1)
    go_on = threading.Event()
    consumer = server.push_consumer(group, concurrency=1, handler_timeout=0.5, max_retries=0, stop_timeout=60)
    consumer.on(topic)(lambda message: not go_on.wait(60) or None)
    with consumer:
        wait_until(lambda: consumer.stats().dead == 1)
        go_on.set()
    error = "handler_timeout: the handler did not return within 0.5 s"
    assert errors_of(server, group) == {b"0": ("RETRIES_EXHAUSTED", error)}


def test_a_handler_chooses_when_its_message_comes_again(server, topic, group, caplog):
    send(server, topic, 2)
    at, consumer = {}, server.push_consumer(group)

    @consumer.on(topic)
    def handle(message):
        at.setdefault(message.body, []).append(time.monotonic())
        if message.reconsume_times == 0:
            raise rocketpy.Retry("later", **{b"0": {"after": 0.5}, b"1": {"delay_level": 2}}[message.body])

    with caplog.at_level(logging.INFO, "rocketpy.client"), consumer:
        wait_until(lambda: [len(times) for times in at.values()] == [2, 2])
    waited = {body: second - first for body, (first, second) in at.items()}
    assert waited[b"0"] > 0.9, "level 1"
    assert waited[b"1"] > 1.9, "level 2"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    for wrong in ({"after": -1}, {"delay_level": 0}):
        with pytest.raises(rocketpy.InvalidArgumentError):
            rocketpy.Retry(**wrong)
    with pytest.raises(TypeError, match="after must be a number of seconds"):
        rocketpy.Retry(after="soon")


def test_batches(server, topic, group):
    with server.producer("push-senders") as producer:
        producer.send_many([rocketpy.Message(topic, b"%d" % number) for number in range(500)])
    seen, sizes, consumer = Seen(), [], server.push_consumer(group)

    @consumer.on(topic, batch=32)
    def handle(messages):
        sizes.append(len(messages))
        assert len({message.queue for message in messages}) == 1
        for message in messages:
            seen.note(message)
        if any(message.body == b"7" and message.reconsume_times == 0 for message in messages):
            raise ValueError("the whole batch")

    with consumer:
        wait_until(lambda: consumer.stats().consumed == 500)
    assert max(sizes) == 32
    assert seen.counts().keys() == set(range(500))
    again = {number for number, times in seen.calls if times == 1}
    assert 7 in again
    assert consumer.stats().sent_back == len(again)


def test_handlers_run_side_by_side_and_no_more_than_asked_for(server, topic, group):
    send(server, topic, 12)
    together, lock, running, most = threading.Barrier(4), threading.Lock(), [], []
    consumer = server.push_consumer(group, concurrency=4)

    @consumer.on(topic)
    def handle(message):
        with lock:
            running.append(message)
            most.append(len(running))
        together.wait(60)  # breaks unless four are here
        time.sleep(0.05)
        with lock:
            running.remove(message)

    with consumer:
        wait_until(lambda: consumer.stats().consumed == 12)
    assert max(most) == 4
    assert consumer.stats().failed == 0


def test_messages_behind_a_slow_one_go_to_other_threads(server, topic, group):
    """Quick messages are taken many at a time; a slow one among them must not keep the others."""
    with server.producer("push-senders") as producer:
        queue = producer.queues(topic)[0]
        producer.send_many([rocketpy.Message(topic, b"%d" % number) for number in range(400)], queue=queue)
    seen, go_on, consumer = Seen(), threading.Event(), server.push_consumer(group, concurrency=2)

    @consumer.on(topic)
    def handle(message):
        if message.body == b"200":
            assert go_on.wait(60)
        seen.note(message)

    with consumer:
        seen.wait(399)
        time.sleep(1.5)  # a commit
        assert committed(server, group, topic) == 200, "not past the slow one"
        assert consumer.stats().unfinished == 1
        go_on.set()
        seen.wait(400)
    assert seen.counts() == Counter(range(400))
    assert committed(server, group, topic) == 400


def test_a_handler_that_blocks_is_given_up_and_others_are_served(server, topic, group, caplog):
    go_on, seen = threading.Event(), Seen()
    consumer = server.push_consumer(group, concurrency=1, handler_timeout=0.5, stop_timeout=60)

    @consumer.on(topic)
    def handle(message):
        seen.note(message)
        if message.body == b"0" and message.reconsume_times == 0:
            assert go_on.wait(60)

    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        send(server, topic, 5)
        seen.wait(6)  # its only thread is stuck
        assert (0, 1) in seen.calls
        wait_until(lambda: committed(server, group, topic) == 5)
        stats = consumer.stats()
        assert (stats.timed_out, stats.sent_back, stats.consumed) == (1, 1, 5)
        go_on.set()
    assert "handler timed out" in caplog.text
    assert consumer.stats().consumed == 5, "what was sent back does not count when it ends after all"


def test_a_stop_waits_for_handlers_and_gives_up_what_runs_longer(server, topic, group, caplog):
    send(server, topic, 20)
    started, release = threading.Event(), threading.Event()
    first = server.push_consumer(group, concurrency=2, stop_timeout=60)

    @first.on(topic)
    def handle(message):
        started.set()
        assert release.wait(60)

    first.start()
    assert started.wait(60)
    threading.Timer(0.3, release.set).start()
    first.stop()
    done = first.stats().consumed
    assert 1 <= done <= 2, "nothing begins after the stop"
    assert committed(server, group, topic) == done

    second, started, release = server.push_consumer(group, stop_timeout=0.2), threading.Event(), threading.Event()

    @second.on(topic)
    def block(message):
        started.set()
        release.wait(60)

    with caplog.at_level(logging.WARNING, "rocketpy.client"):
        with second:
            assert started.wait(60)
        wait_until(lambda: "stops while handlers run" in caplog.text)
    assert committed(server, group, topic) == done
    release.set()


@pytest.mark.parametrize("call", ["start", "run"])
def test_a_stop_during_the_start_leaves_no_member(server, topic, group, monkeypatch, call):
    entered, goes_on, join = threading.Event(), threading.Event(), rocketpy._rocketpy.PushConsumer

    def held(*arguments, **options):
        entered.set()
        assert goes_on.wait(60)
        return join(*arguments, **options)

    consumer = server.push_consumer(group)
    monkeypatch.setattr(rocketpy._rocketpy, "PushConsumer", held)
    consumer.on(topic)(lambda message: None)
    ended = []

    def start():
        try:
            ended.append(getattr(consumer, call)())
        except rocketpy.ClosedError as error:
            ended.append(error)

    with ThreadPoolExecutor(3) as threads:
        starting = threads.submit(start)
        assert entered.wait(60)
        stopping = [threads.submit(consumer.stop) for _ in range(2)]
        wait_until(lambda: consumer._is_unwanted)
        goes_on.set()
        for one in [starting, *stopping]:
            one.result()
    assert consumer.closed
    assert [type(one) for one in ended] == [rocketpy.ClosedError if call == "start" else type(None)]
    with server.admin() as admin:
        assert admin.group_members(group) == []
    assert not [one for one in threading.enumerate() if one.name.startswith("rocketpy-push")]


def test_a_handler_may_stop_its_consumer(server, topic, group):
    send(server, topic, 1)
    consumer = server.push_consumer(group)
    consumer.on(topic)(lambda message: consumer.stop())
    consumer.run()
    wait_until(lambda: consumer.closed)
    assert committed(server, group, topic) == 1


MEMBER = """
import sys, time, rocketpy
group, topic, name_server, mode = sys.argv[1:]
consumer = rocketpy.PushConsumer(group, name_servers=name_server, concurrency=4, api_timeout=60)

@consumer.on(topic)
def handle(message):
    print(f"{int(message.body)}\\n", end="", flush=True)
    time.sleep(0.01 if int(message.body) % 5 else 3600 if mode == "stuck" else 0.02)

consumer.run()
print("ended", consumer.stats().unfinished, flush=True)
"""


@pytest.fixture
def member(tmp_path, server, topic, group):
    """Starts a member in a process of its own, and stops it at the end of the test."""
    script, processes = tmp_path / "member.py", []
    script.write_text(MEMBER)

    def start(mode):
        command = [sys.executable, "-W", "error", str(script), group, topic, server.name_server, mode]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_what_a_killed_member_had_not_finished_comes_to_another(server, topic, group, member):
    send(server, topic, 100)
    first = member("stuck")
    begun = [int(first.stdout.readline()) for _ in range(10)]
    time.sleep(1.5)  # a commit
    first.send_signal(signal.SIGKILL)
    begun += [int(line) for line in first.stdout.read().splitlines()]
    stuck = {number for number in begun if number % 5 == 0}
    seen, second = Seen(), server.push_consumer(group)
    second.on(topic)(seen.note)
    with second:
        wait_until(lambda: committed(server, group, topic) == 100)
        wait_until(lambda: second.stats().unfinished == 0)
    came = set(seen.counts())
    assert stuck
    assert stuck <= came, "what it had not finished"
    assert came | set(begun) == set(range(100)), "nothing is lost"


def test_a_signal_at_any_line_of_the_wait_of_a_run_finds_no_lock():
    """The handler runs in the thread that waits: here it is called between two lines of the wait, as by Python."""

    def wait_with_signal(line: int) -> int:
        """Waits once, with a signal at this line; returns the number of lines."""
        consumer, lines = rocketpy.PushConsumer("g", name_servers="127.0.0.1:1"), []

        def trace(frame, event, argument):
            if event == "line":
                lines.append(frame.f_lineno)
                if len(lines) == line:
                    sys.settrace(None)
                    consumer._on_signal(signal.SIGTERM, None)
            return trace

        def wait():
            sys.settrace(trace)
            consumer._stop_asked.wait(0)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(60)
        assert not waiting.is_alive(), f"the signal handler waits for its own thread, in line {lines[-1]}"
        return len(lines)

    for line in range(1, wait_with_signal(0) + 1):
        wait_with_signal(line)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_stops_a_run_in_order(server, topic, group, member, number):
    send(server, topic, 40)
    process = member("quick")
    for _ in range(5):
        process.stdout.readline()
    process.send_signal(number)
    begun = process.stdout.read().splitlines()  # with what is buffered here
    assert process.wait(60) == 0, process.stderr.read()
    assert begun[-1] == "ended 0"
    assert committed(server, group, topic) == 5 + len(begun) - 1, "all that was begun is finished and committed"


def test_a_second_signal_ends_the_wait_for_handlers(server, topic, group, member):
    send(server, topic, 5)
    process = member("stuck")
    while int(process.stdout.readline()) % 5:
        pass
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None, "it waits for the handler"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_queue_goes_to_another_member_when_its_handlers_have_finished(server, topic, group):
    send(server, topic, 80)
    seen = [Seen(), Seen()]
    members = [server.push_consumer(group, concurrency=2, handover_timeout=60) for _ in seen]

    def slowly(own, message):
        time.sleep(0.02)
        own.note(message)

    for consumer, own in zip(members, seen, strict=True):
        consumer.on(topic)(functools.partial(slowly, own))
    with members[0]:
        seen[0].wait(8)
        with members[1]:
            wait_until(lambda: committed(server, group, topic) == 80)
    assert seen[1].calls, "it got a share"
    assert seen[0].counts() + seen[1].counts() == Counter(range(80)), "each message once"


def test_wrong_uses_are_refused(server, topic, group):
    consumer = server.push_consumer(group)
    with pytest.raises(rocketpy.InvalidArgumentError, match="has no handler"):
        consumer.start()
    consumer.on(topic)(print)
    with pytest.raises(rocketpy.InvalidArgumentError, match="already has a handler") as refused:
        consumer.on(topic, tags="paid")(print)
    assert "message.tag" in refused.value.hint
    for wrong in ("handle", None):
        with pytest.raises(TypeError, match="must be a function"):
            consumer.on("other")(wrong)
    for batch in (0, 5000):
        with pytest.raises(rocketpy.InvalidArgumentError, match="batch must be from 1 to 4096"):
            consumer.on("other", batch=batch)
    for count in (0, 1001):
        with pytest.raises(rocketpy.InvalidArgumentError, match="concurrency must be from 1 to 1000"):
            server.push_consumer(group, concurrency=count)
    with consumer, pytest.raises(rocketpy.InvalidArgumentError, match="already started"):
        consumer.on("other")(print)
    with pytest.raises(TypeError, match="auto_commit"):
        server.push_consumer(group, auto_commit=True)
    missing = server.push_consumer(group)
    missing.on(fresh_name("missing"))(print)
    with pytest.raises(rocketpy.TopicNotFoundError):
        missing.run()


def test_idle_threads_help_a_thread_that_got_many_messages_and_becomes_slow(server, topic, group):
    """The handler is quick until its messages, which are of one queue, become slow ones."""
    with server.producer("push-senders") as producer:
        queue = producer.queues(topic)[0]
        producer.send_many([rocketpy.Message(topic, b"%d" % number) for number in range(3000)], queue=queue)
    names, consumer = set(), server.push_consumer(group, concurrency=8)

    @consumer.on(topic)
    def handle(message):
        if int(message.body) >= 2990:
            names.add(threading.current_thread().name)
            time.sleep(1)

    began = time.monotonic()
    with consumer:
        wait_until(lambda: consumer.stats().consumed == 3000)
    assert len(names) == 8
    assert time.monotonic() - began < 8, "10 s one after the other"


def test_what_fails_while_its_broker_is_away_is_sent_back_when_that_returns(rocketpy_server_factory, group, caplog):
    server, topic = rocketpy_server_factory(settings={"messageDelayLevel": "1s 1s 1s"}), fresh_name("away")
    send(server, topic, 8)
    seen, begun, away = Seen(), threading.Event(), threading.Event()
    consumer = server.push_consumer(group, api_timeout=2)

    @consumer.on(topic)
    def handle(message):
        seen.note(message)
        if message.body == b"3" and message.reconsume_times == 0:
            begun.set()
            assert away.wait(60)
            raise ValueError("no such order")

    with caplog.at_level(logging.WARNING, "rocketpy.client"), consumer:
        assert begun.wait(60)
        seen.wait(8)
        server.stop()
        away.set()
        wait_until(lambda: "send-back of a message failed" in caplog.text)
        server.start()
        seen.wait(9)
        wait_until(lambda: "send-back of messages recovered" in caplog.text)
        send(server, topic, 1)
        seen.wait(10)
    assert seen.counts() == Counter(range(8)) + Counter([3, 0]), "nothing is lost"
    assert committed(server, group, topic) == 9


def test_the_end_of_python_waits_for_handlers(server, topic, group, child):
    send(server, topic, 12)
    ended = child(
        """
        import sys, threading, time, rocketpy
        group, topic, name_server = sys.argv[1:]
        begun, consumer = threading.Event(), rocketpy.PushConsumer(group, name_servers=name_server, api_timeout=60)

        @consumer.on(topic)
        def handle(message):
            begun.set()
            time.sleep(0.5)
            sys.stdout.write("finished\\n")

        consumer.start()
        assert begun.wait(60)
        """,
        group,
        topic,
        server.name_server,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("finished") == committed(server, group, topic) > 0


def test_a_member_of_this_process_with_other_tags_is_refused(server, topic, group):
    first, second = server.push_consumer(group), server.push_consumer(group)
    first.on(topic, tags="paid")(print)
    second.on(topic)(print)
    with first, pytest.raises(rocketpy.GroupConflictError):
        second.start()


def test_a_message_that_comes_again_is_pickled_as_it_is_shown(server, topic, group):
    send(server, topic, 1)
    pickled, consumer = [], server.push_consumer(group)

    @consumer.on(topic)
    def handle(message):
        pickled.append(pickle.dumps(message))
        if message.reconsume_times == 0:
            raise rocketpy.Retry

    with consumer:
        wait_until(lambda: len(pickled) == 2)
    first, again = (pickle.loads(one) for one in pickled)
    assert (again.topic, again.body, again.msg_id) == (topic, b"0", first.msg_id)
    assert (first.reconsume_times, again.reconsume_times) == (0, 1)
    assert again.queue.topic == f"%RETRY%{group}"
    assert repr(again).startswith(f"ReceivedMessage({topic!r}".replace("'", '"'))

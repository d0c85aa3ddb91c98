"""A stream into topics whose driver, workers and broker are killed: every row arrives, and none twice.

What it cannot show: a worker that is cut off from its driver and goes on sending (docs/spark.md says so).
"""

import json
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import rocketpy
from rocketpy.servers.process import ServerProcess
from rocketpy.spark.sink.client import sink_client
from rocketpy.spark.sink.options import parse_sink_options
from rocketpy.spark.sink.progress import Progress
from rocketpy.spark.sink.rows import ROW_PROPERTY, Place, WriteError
from rocketpy.spark.sink.writers import SETTLE_SECONDS, TaskSink
from rocketpy.testing import drain, fresh_name
from spark_driver import Program, program
from waiting import wait_until

PER_FILE = 200
PACE_SECONDS = 0.05
KILLS = int(os.environ.get("SPARK_KILLS", "4"))
"""`make soak-spark N=1000` raises it."""


@pytest.fixture
def broker(tmp_path):
    """A broker in its own process."""
    settings = ("transactionTimeOut=500", "transactionCheckInterval=500", "transactionCheckMax=100000")
    with ServerProcess(tmp_path / "store", *settings) as server:
        yield server


def make_files(folder: Path, count: int) -> int:
    """Writes files of numbers, and returns how many numbers."""
    folder.mkdir()
    for part in range(count):
        numbers = range(part * PER_FILE, (part + 1) * PER_FILE)
        (folder / f"{part:03}.json").write_text("".join(json.dumps({"number": number}) + "\n" for number in numbers))
    return count * PER_FILE


class Run:
    """A stream of files into a topic."""

    def __init__(
        self, broker: ServerProcess, folder: Path, files: int, *, files_per_batch: int, exactly_once: bool = False
    ) -> None:
        self.broker, self.topic = broker, fresh_name("killed")
        self.sink = {"name_server": broker.name_server, "topic": self.topic}
        self._folder = folder
        self.rows = make_files(folder / "numbers", files)
        self._files_per_batch = files_per_batch
        self._admin = rocketpy.Admin(broker.name_server, api_timeout=60)
        self._admin.create_topic(self.topic, queues=3)
        self._queues = self._admin.queues(self.topic)
        self._halves: list[rocketpy.MessageQueue] = []
        self.exactly_once = exactly_once
        if exactly_once:
            self.sink |= {"exactly_once": "true", "progress_topic": (decisions := fresh_name("decisions"))}
            self._admin.create_topic(decisions, queues=1)
            self._halves = self._admin.queues("RMQ_SYS_TRANS_HALF_TOPIC")
            self._decisions = Progress(sink_client(parse_sink_options(self.sink)))
            self._seen = dict.fromkeys(self._queues, 0)
            self._decided: set[tuple[str, int]] = set()

    def start(self, *, hang_at: int = -1) -> Program:
        return program(
            "sink_program.py",
            self._folder / "driver.log",
            work=str(self._folder / "work"),
            files=str(self._folder / "numbers"),
            checkpoint=str(self._folder / "checkpoint"),
            files_per_batch=self._files_per_batch,
            hang_at=hang_at,
            sink=self.sink,
        )

    def stored(self) -> int:
        """Rows that are stored; 0 while the broker does not answer."""
        time.sleep(PACE_SECONDS)
        try:
            return sum(self._admin.next_offset(queue) for queue in self._queues)
        except rocketpy.RocketPyError:
            return 0

    def done(self) -> int:
        """Rows and half messages that are stored; 0 while the broker does not answer."""
        try:
            return self.stored() + sum(self._admin.next_offset(queue) for queue in self._halves)
        except rocketpy.RocketPyError:
            return 0

    def look(self) -> None:
        """Sees as a consumer what is new: of decided batches alone."""
        try:
            for queue, at in self._seen.items():
                end = self._admin.max_offset(queue)
                with rocketpy.RangeReader(queue, at, end, name_servers=self.broker.name_server) as reader:
                    new = [message for messages in reader.messages() for message in messages]
                for message in new:
                    write, batch, _ = message.properties[ROW_PROPERTY].split("/", 2)
                    if (write, int(batch)) not in self._decided:
                        fate = self._decisions.fate(write, int(batch))
                        assert fate.attempts, f"a row of batch {batch}, which is not decided: {self.log()}"
                        self._decided.add((write, int(batch)))
                self._seen[queue] = at + len(new)
        except rocketpy.RocketPyError:
            return  # the broker is away

    def log(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")[-4000:]

    def check(self) -> None:
        """Every number is there once, and those of one order key are in their order within each file."""
        found: list[tuple[int, str | None]] = []
        for queue in self._queues:
            end = self._admin.next_offset(queue)
            with rocketpy.RangeReader(queue, 0, end, name_servers=self.broker.name_server) as reader:
                for messages in reader.messages():
                    found += [(int(message.body.split()[0]), message.order_key) for message in messages]
        twice = {number: times for number, times in Counter(number for number, _ in found).items() if times > 1}
        missing = set(range(self.rows)) - {number for number, _ in found}
        assert (twice, missing) == ({}, set()), self.log()
        if self.exactly_once:
            return  # a row for which the broker asked comes out of order
        by_file_and_key: dict[tuple[int, str | None], list[int]] = {}
        for number, key in found:
            by_file_and_key.setdefault((number // PER_FILE, key), []).append(number)
        assert all(numbers == sorted(numbers) for numbers in by_file_and_key.values())


class WhenHeldUp(logging.Handler):
    """Does something once the sink says that rows are not acknowledged."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self.action: Callable[[], object] | None = action

    def emit(self, record: logging.LogRecord) -> None:
        if self.action is not None and "not acknowledged" in record.getMessage():
            action, self.action = self.action, None
            action()


@pytest.fixture
def sink_log():
    log = logging.getLogger("rocketpy.spark")
    level, handlers = log.level, list(log.handlers)
    log.setLevel(logging.INFO)
    yield log
    log.setLevel(level)
    log.handlers[:] = handlers


def test_a_broker_that_is_away_holds_rows_up_and_a_refused_row_behind_them_is_still_named(broker, sink_log):
    topic = fresh_name("away")
    with rocketpy.Admin(broker.name_server, api_timeout=60) as admin:
        admin.create_topic(topic, queues=2)
    sink_log.addHandler(WhenHeldUp(broker.start))
    options = parse_sink_options({"name_server": broker.name_server, "topic": topic, "client.max_message_size": "100"})

    def batches():
        yield pa.record_batch([[b"first"]], names=["body"])
        broker.kill()
        yield pa.record_batch([[b"second", b"third", bytes(101), b"last"]], names=["body"])

    with pytest.raises(WriteError, match=r"row 3 of partition 0, .*at most 100"):
        TaskSink(options, Place(topic, 0, 0), 0, {}).write(batches())
    assert sorted(bodies(broker, topic)) == [b"first", b"second", b"third"]


def bodies(broker: ServerProcess, topic: str) -> list[bytes]:
    with rocketpy.Consumer(fresh_name(), topic, name_servers=broker.name_server, api_timeout=60) as consumer:
        return [message.body for message in drain(consumer)]


@pytest.mark.soak
@pytest.mark.parametrize(("first", "then"), [("false", "false"), ("false", "true"), ("true", "false")])
def test_a_driver_killed_between_write_and_commit_leaves_no_row_twice(broker, tmp_path, first, then):
    """One task of the batch is done, the other is in the middle of its rows, when the driver dies.

    The query starts again with `exactly_once` as before, or turned on or off.
    """
    run = Run(broker, tmp_path, 2, files_per_batch=2, exactly_once=True)
    run.sink["exactly_once"] = first
    driver = run.start(hang_at=350)
    wait_until(lambda: run.done() > PER_FILE, "rows of both tasks", process=driver.process)
    driver.kill()
    assert PER_FILE < run.done() < run.rows
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")), "no batch is committed"
    run.sink["exactly_once"], run.exactly_once = then, first == "true"
    driver = run.start()
    assert driver.process.wait(300) == 0, run.log()
    run.check()


@pytest.mark.timeout(900 + 60 * KILLS)
@pytest.mark.parametrize(
    "exactly_once",
    [pytest.param(False, id="reads back", marks=pytest.mark.soak), pytest.param(True, id="exactly once")],
)
def test_random_kills_of_driver_workers_and_broker_lose_no_row_and_write_none_twice(
    broker, tmp_path, chance, exactly_once
):
    """With `exactly_once` no row of a batch is seen before its decision either; the broker asks all the time."""
    kills = max(3, KILLS // 2) if exactly_once else KILLS
    run = Run(broker, tmp_path, 4 * (kills // 2), files_per_batch=2, exactly_once=exactly_once)
    kinds = [("driver", "worker", "broker", "broker")[number % 4] for number in range(kills)]
    chance.shuffle(kinds)
    places = sorted(chance.sample(range(1, run.rows * (2 if exactly_once else 1)), len(kinds)))
    driver = run.start()
    done = Counter()
    while (ended := driver.succeeded()) is not True:
        if ended is False:  # a worker that wrote a record of Spark's own was killed: the query failed
            done["restart"] += 1
            assert done["restart"] <= KILLS, run.log()
            driver = run.start()
        if exactly_once:
            run.look()
        if not kinds or run.done() < places[0]:
            continue
        places.pop(0)
        kind = kinds.pop(0)
        done[kind] += 1
        if kind == "driver":
            driver.kill()
            driver = run.start()
        elif kind == "worker":
            driver.kill_a_worker(chance)
        else:
            broker.kill()
            broker.start()
    print(done)
    run.check()


def test_a_broker_that_stands_still_while_rows_are_on_their_way_gets_none_twice(broker, sink_log):
    topic = fresh_name("still")
    with rocketpy.Admin(broker.name_server, api_timeout=60) as admin:
        admin.create_topic(topic, queues=2)
    options = parse_sink_options({"name_server": broker.name_server, "topic": topic, "client.send_timeout": "1s"})
    bodies = [b"%d " % number + bytes(10_000) for number in range(1000)]

    class GoesOn(logging.Handler):
        def emit(self, record):
            if "reading stored rows" in record.getMessage():  # soon it asks the broker that stands still
                threading.Timer(SETTLE_SECONDS + 0.3, os.kill, (broker.pid, signal.SIGCONT)).start()

    def batches():
        yield pa.record_batch([pa.array([b"first"])], names=["body"])
        os.kill(broker.pid, signal.SIGSTOP)
        yield pa.record_batch([pa.array(bodies)], names=["body"])

    sink_log.addHandler(GoesOn())
    try:
        assert TaskSink(options, Place(fresh_name("query"), 0, 0), 0, {}).write(batches()).sent == 1001
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    with rocketpy.Consumer(fresh_name("readers"), topic, name_servers=broker.name_server, start="earliest") as consumer:
        assert Counter(message.body for message in drain(consumer)) == dict.fromkeys([b"first", *bodies], 1)

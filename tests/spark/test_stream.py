"""`readStream.format("rocketpy")` on a real session and broker, with kills and restarts: no row lost, none twice."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import rocketpy
from ports import free_port
from rocketpy.message import MessageQueue
from rocketpy.spark import LagListener, commit_group_offsets
from rocketpy.spark.progress import commit_offsets
from rocketpy.testing import SMALL_FILES, fresh_name
from waiting import wait_for_files, wait_until

BODIES = [b"message %d" % number for number in range(300)]
KILLS = int(os.environ.get("SPARK_KILLS", "2"))
"""`make soak-spark N=1000` raises it."""
QUERY = Path(__file__).with_name("stream_query.py")


@pytest.fixture
def start(spark, tmp_path):
    """Starts a query that keeps its rows by batch: those of a batch that is repeated replace the first ones."""
    queries = []
    spark.conf.set("spark.sql.streaming.checkpoint.fileChecksum.enabled", "false")

    def start_query(topic, server, batches, *, available_now=True, fails_at=None, **options):
        def take(frame, batch_id):
            batches[batch_id] = [(row.queue_id, row.queue_offset, bytes(row.body)) for row in frame.collect()]
            if batch_id == fails_at:
                raise ValueError("the sink fails")

        loaded = (
            spark.readStream.format("rocketpy").options(name_server=server.name_server, topic=topic, **options).load()
        )
        stream = loaded.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = (stream.trigger(availableNow=True) if available_now else stream).start()
        queries.append(query)
        return query

    yield start_query
    for query in queries:
        query.stop()


def bodies_of(batches):
    return sorted((body for rows in batches.values() for _, _, body in rows), key=lambda body: int(body.split()[1]))


def test_a_stream_reads_what_is_there_and_goes_on_from_its_checkpoint(start, topic, send, rocketpy_server):
    send(topic, BODIES[:200])
    batches = {}
    query = start(topic, rocketpy_server, batches, maxOffsetsPerTrigger="90")
    assert query.awaitTermination(60)
    assert [len(batches[number]) for number in sorted(batches)] == [90, 90, 20]
    send(topic, BODIES[200:])
    assert start(topic, rocketpy_server, batches).awaitTermination(60)
    assert bodies_of(batches) == BODIES
    group = fresh_name("explicit")
    committed = commit_group_offsets(query, group, rocketpy_server.name_server)
    assert sum(committed.values()) == 200
    with rocketpy_server.admin() as admin:
        assert sum(queue.lag for queue in admin.group_lag(group)) == 100


def test_a_first_batch_that_failed_is_repeated_from_where_it_began(start, topic, send, rocketpy_server):
    send(topic, BODIES[:200])
    group, client = fresh_name("group"), (rocketpy_server.name_servers, {})
    with rocketpy_server.admin() as admin:
        ends = {info.queue: info.max_offset for info in admin.describe_topic(topic).queues}
    commit_offsets(group, dict.fromkeys(ends, 0), *client)
    batches = {}
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        start(topic, rocketpy_server, batches, startingGroup=group, fails_at=0).awaitTermination(60)
    first = sorted(batches[0])
    commit_offsets(group, ends, *client)  # so that the query would start behind its first batch today
    send(topic, BODIES[200:])
    assert start(topic, rocketpy_server, batches, startingGroup=group).awaitTermination(60)
    assert sorted(batches[0]) == first
    assert bodies_of(batches) == BODIES


def test_a_topic_made_anew_ends_a_query_or_is_read_from_its_beginning(start, topic, send, rocketpy_server):
    send(topic, BODIES[:90])
    batches = {}
    assert start(topic, rocketpy_server, batches).awaitTermination(60)
    with rocketpy_server.admin() as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, queues=3)
    send(topic, BODIES[90:])
    with pytest.raises(StreamingQueryException, match=f"{topic}@broker-a#0 has another message before offset 30"):
        start(topic, rocketpy_server, batches).awaitTermination(60)
    assert start(topic, rocketpy_server, batches, failOnDataLoss="false").awaitTermination(60)
    assert bodies_of(batches) == BODIES


def test_a_running_stream_outlasts_its_broker_and_finds_new_queues_and_tells_its_lag(
    spark, start, tmp_path, rocketpy_server_factory
):
    topic, group = fresh_name("running"), fresh_name("group")
    server = rocketpy_server_factory(tmp_path / "running")
    with server.admin() as admin:
        admin.create_topic(topic, queues=2)
    lags, batches = [], {}
    listener = LagListener(lags.append)
    spark.streams.addListener(listener)
    options = {"maxOffsetsPerTrigger": "100", "progressGroup": group, "client.api_timeout": "1s"}
    query = start(topic, server, batches, available_now=False, **options)

    def send(first, behind, queue=None):
        with server.producer(fresh_name()) as producer:
            producer.send_many([rocketpy.Message(topic, b"message %d" % n) for n in range(first, behind)], queue=queue)

    def all_read(count):
        wait_until(lambda: query.exception() or sum(map(len, list(batches.values()))) >= count)
        assert query.exception() is None

    send(0, 150)
    all_read(150)
    server.stop()
    restart = threading.Timer(2, server.start)
    restart.start()
    restart.join()
    with server.admin() as admin:
        admin.create_topic(topic, queues=3)
    send(150, 200)
    send(200, 250, MessageQueue(topic, "broker-a", 2))
    all_read(250)
    send(250, 251)
    all_read(251)
    wait_until(lambda: lags and lags[-1].total == 0 and len(lags[-1].queues) == 3, "Spark tells listeners later")
    query.stop()
    spark.streams.removeListener(listener)
    assert bodies_of(batches) == [b"message %d" % number for number in range(251)]
    assert any(lag.total > 0 for lag in lags)
    with server.admin() as admin:  # Spark tells of a batch when the next one begins
        assert sum(queue.lag for queue in admin.group_lag(group)) <= 51


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingTime": "-1m"}, "ending_time is valid only with spark.read: a stream has no end"),
        ({"path": "/data", "progressGroup": "g"}, "progress_group is valid only with the name_server of a cluster"),
    ],
)
def test_what_a_stream_does_not_do_is_refused_by_name(spark, topic, rocketpy_server, options, said):
    source = {} if "path" in options else {"name_server": rocketpy_server.name_server}
    stream = spark.readStream.format("rocketpy").options(topic=topic, **source, **options)
    with pytest.raises(PySparkException) as refused:
        stream.load().writeStream.format("noop").start().awaitTermination(60)
    assert f"OptionError: {said}" in str(refused.value)
    assert "Traceback" not in str(refused.value)


class KillableServer:
    """A server in a process of its own, that comes back at the same address."""

    def __init__(self, folder: Path) -> None:
        ports = {"listenPort": free_port(), "nameServerPort": free_port()}
        source = (
            "import rocketpy, sys\n"
            f"with rocketpy.Server(sys.argv[1], settings={SMALL_FILES | ports!r}) as server:\n"
            "    print(server.name_server, flush=True)\n"
            "    sys.stdin.read()\n"
        )
        self._command = [sys.executable, "-c", source, str(folder)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name_server = self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class Queries:
    """Runs of one query in processes of their own."""

    def __init__(self, door: str, address: str | Path, topic: str, folder: Path) -> None:
        self._command = [sys.executable, str(QUERY), door, str(address), topic, str(folder)]
        self._batches = folder / "batches"
        self._processes = []

    def start(self) -> subprocess.Popen:
        process = subprocess.Popen(self._command, start_new_session=True)
        self._processes.append(process)
        return process

    def files(self) -> list[Path]:
        return list(self._batches.glob("[0-9]*"))

    def wait_for_batches(self, more: int) -> None:
        """Waits for some batches after those that are there."""
        count = len(self.files()) + more
        wait_until(lambda: len(self.files()) >= count, "more batches", process=self._processes[-1])

    def kill(self) -> None:
        """Kills the last run, with its Java and without a chance to end in order."""
        process = self._processes[-1]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.timeout(900 + 60 * KILLS)
@pytest.mark.parametrize("door", ["name_server", pytest.param("path", marks=pytest.mark.soak)])
def test_no_row_is_lost_or_comes_twice_when_driver_and_broker_are_killed(tmp_path, chance, door):
    topic = fresh_name("killed")
    server = KillableServer(tmp_path / "store")
    address = server.name_server if door == "name_server" else tmp_path / "store"
    queries = Queries(door, address, topic, tmp_path / "query")
    sent = 0

    def send(count):
        nonlocal sent
        messages = [rocketpy.Message(topic, b"%d" % number) for number in range(sent, sent + count)]
        with rocketpy.Producer(fresh_name(), name_servers=server.name_server, retries=50, send_timeout=60) as producer:
            for queue, first in zip(producer.queues(topic), range(3), strict=True):
                stored = producer.send_many(messages[first::3], queue=queue)
                wait_for_files(tmp_path / "store", queue, stored[-1].queue_offset + 1)
        sent += count

    try:
        with rocketpy.Admin(name_servers=server.name_server) as admin:
            admin.create_topic(topic, queues=3)
        send(1000)
        last = queries.start()
        for number in range(KILLS):
            queries.wait_for_batches(chance.randint(1, 3))
            if number % 2:
                server.kill()
                server.start()
                send(700)  # more than two rounds read
            else:
                queries.kill()
                last = queries.start()
        (tmp_path / "query" / "end").touch()
        assert last.wait(300 + 2 * KILLS) == 0
    finally:
        queries.kill()
        server.kill()
    rows = [line.split() for file in queries.files() for line in file.read_text().splitlines()]
    assert sorted(int(body) for _, _, body in rows) == list(range(sent))
    assert len({(queue, offset) for queue, offset, _ in rows}) == sent

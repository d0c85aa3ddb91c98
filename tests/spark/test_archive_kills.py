"""The job `archive` whose driver, workers and broker are killed again and again: every message once, none lost."""

import os
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

import rocketpy
from rocketpy.servers.process import ServerProcess
from rocketpy.spark import JavaNotFoundError, prepare_java
from rocketpy.spark.archive.parquet import ParquetArchive
from rocketpy.spark.session import QUICK_JVM
from rocketpy.testing import fresh_name
from spark_driver import Program

JOB = Path(__file__).parents[2] / "spark" / "archive.py"
KILLS = int(os.environ.get("SPARK_KILLS", "3"))
"""One each of driver, worker and broker; `make soak-spark N=1000` raises it."""
PER_KILL = 800
"""Messages for each kill, of each topic."""
SUBMIT = (
    "--master local[2,6] --driver-memory 1g --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false "
    f'--conf "spark.driver.extraJavaOptions={QUICK_JVM}"'
)


def in_the_queues(server, topics):
    """Body by place of every message."""
    found = {}
    with rocketpy.Admin(server.name_server, api_timeout=60) as admin:
        for topic in topics:
            for info in admin.describe_topic(topic).queues:
                with rocketpy.RangeReader(
                    info.queue, info.min_offset, info.max_offset, name_servers=server.name_server, api_timeout=60
                ) as reader:
                    for messages in reader.messages():
                        found |= {(topic, info.queue.queue_id, one.queue_offset): one.body for one in messages}
    return found


def in_parquet_files(folder):
    """Places and bodies of all rows, as any reader of Parquet finds them."""
    rows = []
    for path in sorted(folder.glob("topic=*/day=*/*.parquet")):
        topic = path.parent.parent.name.removeprefix("topic=")
        for one in pq.ParquetFile(path).read(["queue_id", "queue_offset", "body"]).to_pylist():
            rows.append(((topic, one["queue_id"], one["queue_offset"]), one["body"]))
    return rows


def in_a_delta_table(folder):
    """The same, as any reader of Delta Lake finds them."""
    table = DeltaTable(folder).to_pyarrow_table(columns=["topic", "queue_id", "queue_offset", "body"])
    return [((one["topic"], one["queue_id"], one["queue_offset"]), one["body"]) for one in table.to_pylist()]


def committed_rows(folder, format):
    """How many messages the archive has."""
    if format == "parquet":
        return ParquetArchive(folder).manifest().rows
    return sum(pa.table(DeltaTable(folder).get_add_actions())["num_records"].to_pylist())


def fill(server, topics, count):
    """Creates topics with this number of messages each."""
    with rocketpy.Admin(server.name_server, api_timeout=60) as admin:
        for topic in topics:
            admin.create_topic(topic, queues=2)
    with rocketpy.Producer("ingest", name_servers=server.name_server, send_timeout=60) as producer:
        for topic in topics:
            producer.send_many([rocketpy.Message(topic, b"%d" % number) for number in range(count)])


class Archive:
    """Runs of the job `archive` with one folder, and the kills that it survived."""

    def __init__(self, server, topics, folder, format, log):
        self.server, self.topics, self.folder, self.format, self.log = server, topics, folder, format, log
        self.done = Counter()

    def start(self):
        where = ["--name-server", self.server.name_server, "--out", str(self.folder), "--format", self.format]
        names = [part for topic in self.topics for part in ("--topic", topic)]
        self.job = Program(JOB, *where, *names, "--round-messages", "400", log=self.log, submit=SUBMIT)

    def rows(self):
        try:
            return committed_rows(self.folder, self.format)
        except (FileNotFoundError, TableNotFoundError):  # none is there yet, or the job removed an old manifest
            return -1

    def kill(self, kind, chance):
        """Kills the driver, a worker or the broker, and starts it again. Does nothing if no worker is there."""
        if kind == "driver":
            self.job.kill()
            self.start()
        elif kind == "broker":
            self.server.kill()
            self.server.start()
        elif not self.job.kill_a_worker(chance):
            return
        self.done[kind] += 1

    def run_until_done(self, kinds, places, chance):
        """Kills each kind after as many rows as its place says. A job that ended with an error is started again."""
        self.start()
        while (ended := self.job.succeeded()) is not True:
            if ended is False:
                self.done["started again"] += 1
                assert self.done["started again"] <= len(kinds), self.log.read_text(errors="replace")[-4000:]
                self.start()
            killed = sum(self.done[kind] for kind in set(kinds))
            if killed == len(kinds) or self.rows() < places[killed]:
                time.sleep(0.02)
                continue
            time.sleep(chance.uniform(0, 0.5))  # any moment of a round
            self.kill(kinds[killed], chance)
        print(self.done)


@pytest.mark.timeout(900 + 60 * KILLS)
@pytest.mark.parametrize("format", ["parquet", pytest.param("delta", marks=pytest.mark.soak)])
def test_random_kills_of_driver_workers_and_broker_lose_no_message_and_archive_none_twice(tmp_path, chance, format):
    try:
        prepare_java()
    except JavaNotFoundError as missing:
        pytest.skip(str(missing))
    topics = [fresh_name("archived") for _ in range(2)]
    out = tmp_path / "out"
    with ServerProcess(tmp_path / "store") as server:
        fill(server, topics, PER_KILL * KILLS)
        total = len(in_the_queues(server, topics))
        kinds = [("driver", "worker", "broker", "worker")[number % 4] for number in range(KILLS)]
        chance.shuffle(kinds)
        archive = Archive(server, topics, out, format, tmp_path / "driver.log")
        archive.run_until_done(kinds, sorted(chance.sample(range(total), KILLS)), chance)
        assert sum(archive.done[kind] for kind in ("driver", "worker", "broker")) == KILLS
        sent = in_the_queues(server, topics)
        rows = in_parquet_files(out) if format == "parquet" else in_a_delta_table(out)
    twice = [place for place, times in Counter(place for place, _ in rows).items() if times > 1]
    assert twice == []
    assert dict(rows) == sent
    assert len(sent) == total
    assert list((out / "_rocketpy" / "staged").iterdir()) == []

"""Part 7: a stream keeps the table of December up to date while its flights are published, and is killed meanwhile."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rocketpy import Admin, Producer
from rocketpy.base.clock import monotonic
from rocketpy.config import PATIENT, PATIENT_SENDS
from rocketpy.demo.delays import CORES, check, expected
from rocketpy.demo.departures import Mismatch
from rocketpy.demo.flights import Flights
from rocketpy.demo.journal import Journal
from rocketpy.demo.publish import publish_flights
from rocketpy.servers.process import ServerProcess
from rocketpy.spark import flight_delays as job
from rocketpy.spark.session import QUICK_JVM

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import SparkSession

TOPIC = "december"
MONTH = 12
FOLDER = "december"
QUEUES = 8
QUIET_SECONDS = 300.0
"""Timeout for a step of the query."""
LOG_TAIL_BYTES = 2000


class StreamProcess:
    """The job `flight_delays --stream` in a process of its own, to be killed and started again.

    Attributes:
        folder: Folder of the table, the checkpoint and the log.
    """

    def __init__(self, folder: Path, name_server: str, topic: str) -> None:
        """Prepares the query; `start` starts it.

        Args:
            folder: Folder to create.
            name_server: Address of the name server, `host:port`.
            topic: Topic of flights.
        """
        self.folder = folder
        self._temporary = folder.absolute() / "tmp"
        self._temporary.mkdir(parents=True)
        self._log = folder / "spark.log"
        self._arguments = ["--name-server", name_server, "--topic", topic, "--out", str(folder), "--stream"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process."""
        # What spark-submit would be told. A killed Java does not remove its temporary files: they stay in the folder.
        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Djava.io.tmpdir={self._temporary}",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": str(self._temporary),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": CORES,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        environment = {
            "PYSPARK_SUBMIT_ARGS": shlex.join(["--master", f"local[{CORES}]", *words, "pyspark-shell"]),
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(self._temporary),
        }
        with self._log.open("ab") as log:
            # A session of its own: it is the group of the query's Python and of its Java.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", job.__name__, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | environment,
            )

    def kill(self) -> None:
        """Ends Python and Java with SIGKILL, if they run; workers exit when Java is gone."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def table(self) -> "pandas.DataFrame":
        """Returns the table after the last completed batch; empty before the first one."""
        import pandas

        try:
            return pandas.read_parquet(self.folder / job.PARQUET)
        except FileNotFoundError:
            return pandas.DataFrame({"flights": []})

    def flights(self) -> int:
        """Returns the number of flights in the table."""
        return int(self.table()["flights"].sum())

    def batch_under_way(self) -> int | None:
        """Returns the number of the batch whose end is in the checkpoint but which is not completed."""
        begun, done = (_newest(self.folder / job.STREAM_STATE / name) for name in ("offsets", "commits"))
        return begun if begun is not None and begun != done else None

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        """Waits until a condition holds.

        Args:
            holds: Condition, checked repeatedly.
            what: Description of the condition.

        Raises:
            Mismatch: The query ended, or the condition did not hold in time.
        """
        deadline = monotonic() + QUIET_SECONDS
        while not holds():
            if self._process is None or self._process.poll() is not None:
                raise Mismatch(f"the query ended before {what}: {self._log_tail()}")
            if monotonic() > deadline:
                raise Mismatch(f"the query did not reach {what} within {QUIET_SECONDS:.0f} s: {self._log_tail()}")
            time.sleep(0.01)

    def _log_tail(self) -> str:
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._temporary, ignore_errors=True)


def _newest(folder: Path) -> int | None:
    """Returns the number of the newest batch in a folder of a checkpoint."""
    try:
        return max((int(file.name) for file in folder.iterdir() if file.name.isdecimal()), default=None)
    except FileNotFoundError:
        return None


def compute(journal: Journal, flights: Flights, server: ServerProcess, spark: "SparkSession", folder: Path) -> None:
    """Publishes December while a query computes its table, kills and restarts the query, and compares its last table.

    Args:
        journal: Receives the steps.
        flights: All flights.
        server: Server for the topic.
        spark: Session that computes the table of the batch.
        folder: Parent of the query's folder.

    Raises:
        Mismatch: The query's last table differs from that of the batch or of pandas.
    """
    with Admin(name_servers=server.name_server, **PATIENT) as admin:
        admin.create_topic(TOPIC, queues=QUEUES)
    with (
        Producer("demo", name_servers=server.name_server, **PATIENT_SENDS) as producer,
        StreamProcess(folder / FOLDER, server.name_server, TOPIC) as query,
    ):

        def publish(first: int, last: int) -> int:
            return len(publish_flights(producer, of_days(flights, first, last), TOPIC, lambda _: None))

        with journal.step("publish 1 to 8 December") as step:
            step.rows = published = publish(1, 8)
        with journal.step("start the query") as step:
            query.start()
            query.wait_until(lambda: query.flights() == published, f"{published:,} flights")
            step.rows = published
            step.note = "in its table"
        with journal.step("publish 9 to 16 December; kill -9") as step:
            step.rows = publish(9, 16)
            published += step.rows
            query.wait_until(query.batch_under_way, "its next batch")
            query.kill()
            batch, counted = query.batch_under_way(), query.flights()
            step.note = f"batch {batch} was not done; " if batch is not None else ""
            step.note += f"the table counts {counted:,} of {published:,}"
        with journal.step("publish 17 to 24 December") as step:
            step.rows = publish(17, 24)
            published += step.rows
            step.note = "while no query runs"
        with journal.step("start the query again") as step:
            query.start()
            query.wait_until(lambda: query.flights() > counted, "the batch after its checkpoint")
            step.note = "from its checkpoint"
        with journal.step("publish 25 to 31 December") as step:
            step.rows = publish(25, 31)
            published += step.rows
        with journal.step("the stream's table") as step:
            query.wait_until(lambda: query.flights() >= published, f"{published:,} flights")
            table = query.table()
            step.rows = int(table["flights"].sum())
            wanted = expected(of_days(flights, 1, 31))
            check("as a stream", table, wanted)
            check("as a batch", job.delays_over_network(spark, server.name_server, TOPIC), wanted)
            step.note = "equal to pandas and to the batch: no flight lost, none twice"


def of_days(flights: Flights, first: int, last: int) -> Flights:
    """Returns the flights of some days of December.

    Args:
        flights: All flights.
        first: First day of the month.
        last: Last day of the month, included.
    """
    frame = flights.frame
    return replace(flights, frame=frame[(frame["month"] == MONTH) & frame["day"].between(first, last)])

"""One turn of a source of Spark, for `spark_sources.py`: a session on `local[2]` works in one way and says how fast.

Sources: `kafka`, Spark's own, `live`, RocketPy's by its name server, and `path`, RocketPy's by the folder of its store.
Each way runs twice in the session, and the first run does not count: the JVM is cold. The processor time of Spark is
that of this process, of its JVM and of its Python workers.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from process import TICKS_PER_SECOND, cpu_seconds

JSON_FIELDS = "carrier string, hour int, dep_delay double"
BATCH_ROWS = 200_000
"""Most rows of a batch of the stream, of each source."""
STEADY_RATE, STEADY_S = 5_000, 20
PATIENCE_S = 60


def bodies(count: int, body_bytes: int) -> Iterator[bytes]:
    """JSON objects of `body_bytes` bytes each."""
    for number in range(count):
        fields = {"carrier": ("UA", "AA", "DL", "B6")[number % 4], "hour": number % 24, "dep_delay": number % 3000 / 10}
        bare = len(json.dumps(fields | {"rest": ""}))
        yield json.dumps(fields | {"rest": "x" * (body_bytes - bare)}).encode()


def family_cpu_seconds() -> float:
    """Of this process and all below it, those that have ended among them."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS_PER_SECOND
    family = {os.getpid()}
    while grown := {pid for pid, (parent, _) in parents.items() if parent in family} - family:
        family |= grown
    return sum(seconds for pid, (_, seconds) in parents.items() if pid in family)


def flights_of(batch: Any) -> Any:
    """The fields of the JSON objects in a batch of messages."""
    import pyarrow as pa

    from rocketpy.spark.bodies import json_columns

    struct = pa.struct([("carrier", pa.string()), ("hour", pa.int32()), ("dep_delay", pa.float64())])
    objects, _ = json_columns(batch.column("body"), struct)
    return pa.RecordBatch.from_struct_array(objects)


class Turn:
    """What one process does with a source."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.source, self.address, self.topic = given.source, given.address, given.topic
        self.rows, self.body_bytes, self.servers = given.rows, given.body_bytes, given.servers
        self.folder = given.folder
        builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
        builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
        if self.source == "kafka":
            builder = builder.config("spark.jars", ",".join(map(str, Path(given.jars).glob("*.jar"))))
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self.body = "value" if self.source == "kafka" else "body"
        self.stored = "timestamp" if self.source == "kafka" else "stored_at"

    def options(self, starting: str) -> dict[str, str]:
        place = {
            "kafka": {"kafka.bootstrap.servers": self.address, "subscribe": self.topic},
            "live": {"name_server": self.address, "topic": self.topic},
            "path": {"path": self.folder, "topic": self.topic},
        }[self.source]
        return place | {"startingOffsets": starting}

    @property
    def format(self) -> str:
        return "kafka" if self.source == "kafka" else "rocketpy"

    def frame(self, columns: str | None = None) -> DataFrame:
        """The messages. Kafka's source has all of its columns always."""
        chosen = {} if columns is None or self.source == "kafka" else {"columns": columns}
        return self.spark.read.format(self.format).options(**self.options("earliest"), **chosen).load()

    def stream(self, starting: str = "earliest") -> DataFrame:
        limited = self.options(starting) | {"maxOffsetsPerTrigger": str(BATCH_ROWS)}
        return self.spark.readStream.format(self.format).options(**limited).load()

    def check(self, rows: int) -> None:
        if rows != self.rows:
            raise RuntimeError(f"{rows} of {self.rows} rows came")

    def timed(self, work: Callable[[], object]) -> dict[str, float]:
        """The second run counts."""
        for _ in range(2):
            spark_s, server_s, began = family_cpu_seconds(), sum(map(cpu_seconds, self.servers)), time.perf_counter()
            work()
            seconds = time.perf_counter() - began
            spark_s, server_s = family_cpu_seconds() - spark_s, sum(map(cpu_seconds, self.servers)) - server_s
        return {
            "rows_per_s": self.rows / seconds,
            "spark_cpu_s_per_million": spark_s / self.rows * 1e6,
            "server_cpu_s_per_million": server_s / self.rows * 1e6,
        }

    def count(self) -> dict[str, float]:
        return self.timed(lambda: self.check(self.frame("queue_id").count()))

    def lengths(self) -> dict[str, float]:
        def add_up() -> None:
            (total,) = self.frame("body").agg(F.sum(F.length(self.body))).first()
            self.check(total // self.body_bytes)

        return self.timed(add_up)

    def full(self) -> dict[str, float]:
        return self.timed(lambda: self.frame().write.format("noop").mode("overwrite").save())

    def json(self) -> dict[str, float]:
        """JSON to columns by Spark's `from_json`, or by RocketPy in the worker that reads. An average by carrier."""

        def average() -> None:
            if self.source == "kafka":
                parsed = F.from_json(F.col(self.body).cast("string"), JSON_FIELDS)
                flights = self.frame().select(parsed.alias("flight")).select("flight.*")
            else:
                from rocketpy.spark import map_batches

                flights = map_batches(self.spark, flights_of, JSON_FIELDS, columns=["body"], **self.options("earliest"))
            by_carrier = flights.groupBy("carrier").agg(F.avg("dep_delay"), F.count("*"))
            self.check(sum(row[2] for row in by_carrier.collect()))

        return self.timed(average)

    def available(self) -> dict[str, float]:
        """A stream reads what is there, in batches, and ends."""

        def run() -> None:
            with tempfile.TemporaryDirectory() as checkpoint:
                writer = self.stream().writeStream.format("noop").option("checkpointLocation", checkpoint)
                query = writer.trigger(availableNow=True).start()
                query.awaitTermination()
                self.check(sum(progress["numInputRows"] for progress in query.recentProgress))

        return self.timed(run)

    def steady(self) -> dict[str, float]:
        """Messages come at a fixed rate. How old is the oldest of a batch when the batch is done? Then a restart."""
        ages: list[float] = []
        came = threading.Event()

        def handle(frame: DataFrame, _: int) -> None:
            oldest, rows = frame.agg(F.min(self.stored), F.count("*")).first()
            if rows:
                ages.append((time.time() - oldest.timestamp()) * 1e3)
                came.set()

        with tempfile.TemporaryDirectory() as checkpoint:

            def start() -> Any:
                writer = self.stream("latest").writeStream.foreachBatch(handle)
                return writer.option("checkpointLocation", checkpoint).start()

            def publish(seconds: float) -> None:
                command = [sys.executable, __file__, "publish", *sys.argv[2:], "--seconds", str(seconds)]
                subprocess.run(command, check=True)

            query = start()
            publish(5)  # to warm up
            query.processAllAvailable()
            ages.clear()
            spark_s, server_s = family_cpu_seconds(), sum(map(cpu_seconds, self.servers))
            publish(STEADY_S)
            query.processAllAvailable()
            rows = STEADY_RATE * STEADY_S
            figures = {
                "spark_cpu_s_per_million": (family_cpu_seconds() - spark_s) / rows * 1e6,
                "server_cpu_s_per_million": (sum(map(cpu_seconds, self.servers)) - server_s) / rows * 1e6,
            }
            ages.sort()
            figures |= {f"age_p{part}_ms": ages[len(ages) * part // 100] for part in (50, 99)}
            query.stop()
            publish(0.2)
            came.clear()
            began = time.perf_counter()
            query = start()
            if not came.wait(PATIENCE_S):
                raise RuntimeError("no batch after the restart")
            figures["restart_ms"] = (time.perf_counter() - began) * 1e3
            query.stop()
        return figures


WAYS = {
    "count": Turn.count,
    "lengths": Turn.lengths,
    "full": Turn.full,
    "json": Turn.json,
    "available": Turn.available,
    "steady": Turn.steady,
}


def publish(given: argparse.Namespace) -> None:
    """Sends at the fixed rate for some seconds, or all rows at once."""
    count = given.rows if given.seconds is None else int(STEADY_RATE * given.seconds)
    pace = None if given.seconds is None else STEADY_RATE
    several = list(bodies(1000, given.body_bytes))
    if given.source == "kafka":
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": given.address, "linger.ms": 5, "queue.buffering.max.messages": 100_000}
        )

        def send(number: int) -> None:
            while True:
                try:
                    producer.produce(given.topic, several[number % 1000])
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)

        sent(send, count, pace)
        if producer.flush(PATIENCE_S):
            raise RuntimeError("messages were not stored")
        return
    import rocketpy

    with rocketpy.Producer("bench", name_servers=given.address, linger=0.005) as producer:
        sent(lambda number: producer.submit(rocketpy.Message(given.topic, several[number % 1000])), count, pace)
        producer.flush(PATIENCE_S)
        if producer.stats().failed.messages:
            raise RuntimeError("messages were not stored")


def sent(send: Callable[[int], object], count: int, pace: int | None) -> None:
    began = time.perf_counter()
    for number in range(count):
        if pace is not None and number % 50 == 0:
            time.sleep(max(0.0, began + number / pace - time.perf_counter()))
        send(number)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=[*WAYS, "publish"])
    parser.add_argument("source", choices=("kafka", "live", "path"))
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("rows", type=int)
    parser.add_argument("body_bytes", type=int)
    parser.add_argument("servers", type=int, nargs="*", help="process ids, whose processor time counts")
    parser.add_argument("--jars", help="folder with Spark's source for Kafka")
    parser.add_argument("--folder", help="of the store")
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    if given.way == "publish":
        publish(given)
        print("{}")
        return
    turn = Turn(given)
    figures = WAYS[given.way](turn)
    print(json.dumps(figures))
    turn.spark.stop()


if __name__ == "__main__":
    main()

"""Sources of Spark in turns: RocketPy's by its name server and by its folder, and Spark's own for Kafka 4.1.

    python benches/macro/spark_sources.py --save    # all rows, three rounds, saved for this release
    python benches/macro/spark_sources.py --rows full --rounds 1 --scale 0.1    # does it run?

Each turn is a process (`loads/spark_load.py`) with a session on `local[2]`, which does its work twice; the second time
counts. The messages are JSON objects of 1 KiB in 16 queues or partitions. Kafka's broker and the jars of its source
come from Maven, for a JDK 17. That source runs under PySpark 4.2.0 in an environment of its own
(`requirements/client-kafka-spark.txt`), the newest for which its jars can be had; RocketPy runs under the PySpark of
this program. Both servers acknowledge from the page cache, listen on loopback and run from beginning to end.

Kafka's source has all of its columns always. Of RocketPy `count` and `lengths` ask for the one column that they need,
and `full` for all. `json` is `from_json` for Kafka; RocketPy decodes in the worker that reads, by `map_batches`.
`available` is a stream with `trigger(availableNow=True)` and at most 200,000 rows a batch. For `steady` a process
sends 5,000 messages a second for 20 s, and the age of the oldest message of each batch is taken when the batch is
done; then the query is stopped and started again.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rich.console import Console

import rocketpy
from apache import ROOT
from kafka_broker import kafka
from messages import QUEUES
from peers import REQUIREMENTS, bring_jars, set_up_environment
from process import COMMAND, Running, server
from turns import Rounds, figures_of, report, take_turns

HERE = Path(__file__).parent
JARS = ROOT / "target" / "kafka-spark"
BODY_BYTES = 1024
ROWS = 1_000_000
TURN_TIMEOUT_S = 300
KAFKA, LIVE, PATH = "kafka", "live", "path"
SOURCES = {KAFKA: "Kafka's source", LIVE: "RocketPy, name server", PATH: "RocketPy, path"}
BACKLOG, STEADY = "backlog", "steady"
"""Topics: what is there from the beginning, and what comes while a stream runs."""
WAYS = {
    "count": "count",
    "lengths": "sum of the bodies' lengths",
    "full": "full rows",
    "json": "JSON to columns, and an average",
    "available": "stream of what is there",
    "steady": "stream at a fixed rate",
}
STEADY_MESSAGES = "5,000 a second"
FIGURES = {
    "rows_per_s": ("rows/s", ",.0f"),
    "spark_cpu_s_per_million": ("Spark CPU-s/M", ",.2f"),
    "server_cpu_s_per_million": ("server CPU-s/M", ",.2f"),
    "age_p50_ms": ("p50 of the age, ms", ",.0f"),
    "age_p99_ms": ("p99 of the age, ms", ",.0f"),
    "restart_ms": ("restart, ms", ",.0f"),
}


class Turns:
    """The sources with their servers, which hold the messages."""

    def __init__(self, options: argparse.Namespace, servers: ExitStack, console: Console) -> None:
        self.rows = max(10_000, int(ROWS * options.scale))
        self.home = servers.enter_context(tempfile.TemporaryDirectory(prefix="spark-bench-"))
        self.pythons = dict.fromkeys(options.sources, sys.executable)
        self.servers: dict[str, Running] = {}
        if KAFKA in self.pythons and (missing := [name for name in ("java", "mvn") if shutil.which(name) is None]):
            console.print(f"without Kafka's source, which needs {' and '.join(missing)}")
            del self.pythons[KAFKA]
        if KAFKA in self.pythons:
            with console.status("setting up Kafka and its source"):
                environment = ROOT / "target" / "clients" / "kafka-spark"
                self.pythons[KAFKA] = set_up_environment(environment, REQUIREMENTS / "client-kafka-spark.txt")
                if not JARS.exists():
                    bring_jars(HERE / "kafka-spark", JARS)
                self.servers[KAFKA] = servers.enter_context(kafka())
        if {LIVE, PATH} & self.pythons.keys():
            running = servers.enter_context(server(options.server))
            self.servers |= dict.fromkeys((LIVE, PATH), running)
            with rocketpy.Admin(name_servers=[running.name_server]) as admin:
                for topic in (BACKLOG, STEADY):
                    admin.create_topic(topic, queues=QUEUES)
        for source in {id(running): name for name, running in self.servers.items() if name in self.pythons}.values():
            with console.status(f"writing {self.rows:,} messages for {SOURCES[source]}"):
                self.run("publish", BACKLOG, source)

    def run(self, way: str, topic: str, source: str) -> dict[str, float]:
        running = self.servers[source]
        command = [self.pythons[source], str(HERE / "loads" / "spark_load.py"), way, source, running.name_server]
        command += [topic, str(self.rows), str(BODY_BYTES), str(running.pid)]
        command += ["--jars", str(JARS), "--folder", str(running.store)]
        return figures_of(command, self.home, TURN_TIMEOUT_S)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=WAYS, default=list(WAYS), help="default: all")
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=list(SOURCES), help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count; default: 3")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the messages; default: 1")
    parser.add_argument("--server", type=Path, default=COMMAND, help="`rocketpy`; default: of this environment")
    parser.add_argument("--save", action="store_true", help="saves the rows for this release, where others stay")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # which stops the servers too
    console = Console(width=None if sys.stdout.isatty() else 200)
    taken: dict[str, Rounds] = {}
    failures: list[str] = []
    with ExitStack() as servers:
        turns = Turns(options, servers, console)
        for way in options.rows:
            turn = partial(turns.run, way, STEADY if way == "steady" else BACKLOG)
            rounds, failed = take_turns(console, WAYS[way], turns.pythons, options.rounds, turn)
            taken[way] = {SOURCES[source]: figures for source, figures in rounds.items()}
            failures += failed
    counted = f"{turns.rows:,} of {BODY_BYTES:,} B"
    heads = {way: {"title": WAYS[way], "messages": STEADY_MESSAGES if way == "steady" else counted} for way in taken}
    program = "spark" if options.save else None
    return report(console, heads, taken, FIGURES, program=program, failures=failures)


if __name__ == "__main__":
    sys.exit(main())

"""Writes docs/performance.md, and its charts, from what the other programs of this folder have saved.

python benches/macro/page.py
"""

import functools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from results import ROOT, load

DOCS = ROOT / "docs"
PAGE = DOCS / "performance.md"

Rounds = list[dict[str, Any]]
Value = Callable[[], float | None]

WORK = {
    "send": "sends, 64 threads, 128 B",
    "send-1": "sends, one thread, 128 B",
    "send-256": "sends, 256 threads, 128 B",
    "send-1k": "sends, 64 threads, 1 KiB",
    "send-flushed": "sends, 64 threads, 128 B",
    "send-1-flushed": "sends, one thread, 128 B",
    "send-256-flushed": "sends, 256 threads, 128 B",
    "send-1k-flushed": "sends, 64 threads, 1 KiB",
    "batch": "batches of 32, 8 threads",
    "one-way": "one-way sends, 8 threads",
    "asynchronous": "asynchronous sends, 1,000 at a time",
    "queues-1": "sends into one queue",
    "queues-64": "sends into 64 queues",
    "queues-1000": "sends into 1,000 queues",
    "queues-10000": "sends into 10,000 queues",
    "pull": "pulls of a backlog",
    "push": "a backlog by the push consumer",
    "readers": "sends beside ten readers of a backlog in memory",
    "latency-5k": "from send to push consumer, 5,000 a second",
    "latency-20k": "from send to push consumer, 20,000 a second",
    "filter": "pulls with an SQL filter, by messages of the backlog",
    "delay": "18 delay levels",
    "timer": "timers, 10,000 due a second",
    "transaction": "transactions",
    "send-back": "send-backs of failed messages",
    "pair-1": "sends to a SYNC_MASTER with a slave, one thread, 128 B",
    "pair-64": "sends to a SYNC_MASTER with a slave, 64 threads, 128 B",
}

HEAD = """\
# Performance

What the broker takes of a processor, and how long a call takes, beside the systems that people would otherwise run.
`benches/macro/page.py` writes this page from what the programs below have saved in `benches/results`: nothing in it is
typed by hand but the words, and the profiles at its end.

Both systems of a comparison run on one machine in turns, on loopback, with an empty store on the same disk: the ratio
of two neighbouring turns is worth more than any figure. Rows were measured on different days and machines, of which one
was half as fast as another: compare within a row. The machine has {processors} shared cores, and the load program
takes most of them: a rate says what both ends can do together; the processor time of the broker alone (CPU-s/M, seconds
per million messages) is the steadiest figure. No test passes or fails by any of this.

A turn writes new log files. On a virtual machine that gets its memory from the host page by page, their first touch
takes the kernel up to 0.8 s per million messages of 128 B, in either system.
"""


def median(rounds: Rounds, figure: str) -> float | None:
    values = [one[figure] for one in rounds if figure in one]
    return statistics.median(values) if values else None


def text(value: float | None, form: str = ",.0f") -> str:
    return "" if value is None else f"{value:{form}}"


def number(value: float | None) -> str:
    """Three digits are as much as a figure is worth."""
    if value is None:
        return ""
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def apache_table(rows: dict[str, Any]) -> Iterator[str]:
    figures = ("messages/s", "p99, us", "broker CPU-s/M")
    yield f"| work | acknowledged | {' | '.join(f'{figure} | Apache | ratio' for figure in figures)} |"
    yield f"|---|---|{'---|' * 3 * len(figures)}"
    for row, title in WORK.items():
        if row not in rows:
            continue
        taken = rows[row]
        acknowledged = "in memory of both" if row.startswith("pair") else "page cache"
        if row.endswith("flushed"):
            acknowledged = "flushed"
        cells = [title, acknowledged]
        for figure in ("messages_per_s", "call_p99_us", "broker_cpu_s_per_million"):
            cells += [number(median(taken[system], figure)) for system in ("RocketPy", "Apache")]
            cells.append(text(taken["ratio"].get(figure), ".2f"))
        yield f"| {' | '.join(cells)} |"


def memory_lines(rows: dict[str, Any]) -> Iterator[str]:
    if "timer" in rows:
        late = [number(median(rows["timer"][system], "late_p99_ms")) for system in ("RocketPy", "Apache")]
        waiting = rows["timer"]["options"]["waiting"]
        yield f"* Timers, with {waiting:,} others waiting, come {late[0]} ms late at p99; Apache's {late[1]} ms."
    send = rows.get("send", {})
    for figure, what in (
        ("anonymous_memory_mb", "MB of memory that no file backs, after the sends of 64 threads"),
        ("switches_per_message", "context switches a message in the broker, there"),
    ):
        ours, theirs = (median(send.get(system, []), figure) for system in ("RocketPy", "Apache"))
        if ours is not None and theirs is not None:
            yield f"* {number(ours)} {what}; Apache {number(theirs)}."
    if "start" in rows:
        for figure, what in (("start_s", "a start with an empty store"), ("stop_s", "a stop in order")):
            ours, theirs = (median(rows["start"][system], figure) for system in ("RocketPy", "Apache"))
            yield f"* {what.capitalize()} takes {number(ours)} s; Apache {number(theirs)} s."


def apache_chart(rows: dict[str, Any]) -> None:
    shown = {WORK[row]: rows[row]["ratio"] for row in reversed(WORK) if row in rows}
    chart, (cpu, rate) = pyplot.subplots(1, 2, figsize=(12, 1.5 + 0.3 * len(shown)), sharey=True, layout="constrained")
    for axes, figure, label in (
        (cpu, "broker_cpu_s_per_million", "broker CPU-s/M, of Apache's (less is better)"),
        (rate, "messages_per_s", "messages/s, of Apache's (more is better)"),
    ):
        axes.barh(list(shown), [ratio.get(figure, 0) for ratio in shown.values()], color="tab:blue")
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xlabel(label)
    chart.savefig(DOCS / "performance-apache.png", dpi=100)
    pyplot.close(chart)


def catch_up_lines(taken: dict[str, Any]) -> Iterator[str]:
    if not taken:
        return
    mb_per_s, bare, cpu = (
        number(median(taken["rounds"], figure)) for figure in ("mb_per_s", "bare_mb_per_s", "cpu_s_per_gb")
    )
    yield f"\nAn empty slave takes a log of {taken['gib']:g} GiB, with bodies of {taken['body_bytes']:,} B, at"
    yield f"{mb_per_s} MB/s with {cpu} CPU-s/GB; a bare copy of the same files over a socket goes at {bare} MB/s"
    yield "(`python benches/macro/catch_up.py --save`).\n"


def lag_lines(taken: dict[str, Any]) -> Iterator[str]:
    if not taken:
        return
    rate, p50, p99 = (number(median(taken["rounds"], figure)) for figure in ("messages_per_s", "p50_ms", "p99_ms"))
    yield f"At {rate} messages/s, half of what master and slave can do, a slave has a message, and its sender the"
    yield f"answer, {p50} ms after it was to be sent, {p99} ms at p99 (`python benches/macro/lag.py --save`).\n"


@dataclass(frozen=True)
class Column:
    """A figure of systems that were compared."""

    key: str
    title: str
    what: str
    """After a number of it."""
    more_is_better: bool = False


RATE = Column("messages_per_s", "messages/s", "messages/s", True)
P99 = Column("call_p99_us", "p99, us", "us at p99")
CLIENT_CPU = Column("client_cpu_s_per_million", "client CPU-s/M", "client CPU-s/M")
SERVER_CPU = Column("server_cpu_s_per_million", "server CPU-s/M", "server CPU-s/M")
SERVER_PEAK = Column("peak_memory_mb", "server peak, MB", "MB of the server")
CLIENT_PEAK = Column("peak_memory_mb", "client peak, MB", "MB of the client")
IMPORT = Column("import_ms", "import, ms", "ms to import")
ROWS_RATE = Column("rows_per_s", "rows/s", "rows/s", True)
SPARK_CPU = Column("spark_cpu_s_per_million", "Spark CPU-s/M", "CPU-s/M of Spark")
AGE = Column("age_p50_ms", "age p50, ms", "ms of age at p50")
AGE_P99 = Column("age_p99_ms", "age p99, ms", "ms of age at p99")
RESTART = Column("restart_ms", "restart, ms", "ms to restart")
SPARK_COLUMNS = [ROWS_RATE, SPARK_CPU, SERVER_CPU, AGE, AGE_P99, RESTART]
SPARK_BATCHES = ("count", "lengths", "full", "json")
KAFKA_SOURCE = "Kafka's source"
BASELINES = ("asyncio alone",)
"""What others can be compared with, and is no client."""


def compared(rows: dict[str, Any], what: str, columns: list[Column], *ranged: Column) -> Iterator[str]:
    """A table of rows that have a title and one more thing in common, `what`; with the range of some figures."""
    yield f"| work | {what} | system | {' | '.join(column.title for column in columns)} |"
    yield f"|---|---|---|{'---|' * len(columns)}"
    for row in rows.values():
        for system, rounds in row["systems"].items():
            cells = [row["title"], row[what], system]
            for column in columns:
                values = [one[column.key] for one in rounds if column.key in one]
                spread = f" ({number(min(values))} to {number(max(values))})" if values and column in ranged else ""
                cells.append(f"{number(median(rounds, column.key))}{spread}")
            yield f"| {' | '.join(cells)} |"


def import_line(row: dict[str, Any]) -> str:
    times = (f"{system} {number(median(rounds, IMPORT.key))} ms" for system, rounds in row["systems"].items())
    return f"An import of what sends and receives takes {', '.join(times)}."


def others_chart(rows: dict[str, Any]) -> None:
    chart, panels = pyplot.subplots(
        len(rows), 2, figsize=(12, 1.1 * len(rows) + 1), layout="constrained", squeeze=False
    )
    for (rate, cpu), row in zip(panels, rows.values(), strict=True):
        for axes, figure in ((rate, "messages_per_s"), (cpu, "server_cpu_s_per_million")):
            values = {system: median(rounds, figure) or 0 for system, rounds in reversed(row["systems"].items())}
            colors = ["tab:blue" if system == "RocketPy" else "tab:gray" for system in values]
            axes.barh(list(values), list(values.values()), color=colors)
            axes.set_xlim(left=0)
        rate.set_title(f"{row['title']} ({row['acknowledged']}): messages/s", fontsize=9)
        cpu.set_title("server CPU-s/M", fontsize=9)
    chart.savefig(DOCS / "performance-others.png", dpi=100)
    pyplot.close(chart)


def behind(rows: dict[str, Any], columns: list[Column], own: str = "RocketPy") -> Iterator[str]:
    """Where another system is ahead of RocketPy, by its name in the rows."""
    for row in rows.values():
        title = ", ".join(
            text for key in ("title", "body", "acknowledged") if (text := row.get(key)) not in (None, "", "-")
        )
        for system, rounds in row["systems"].items():
            if system in BASELINES:
                continue
            ahead = []
            for column in columns:
                ours, theirs = median(row["systems"].get(own, []), column.key), median(rounds, column.key)
                if ours is None or theirs is None:
                    continue
                if theirs > ours if column.more_is_better else theirs < ours:
                    ahead.append(f"{number(theirs)} {column.what} ({own} {number(ours)})")
            if ahead:
                yield f"* {title}: {system} with {', '.join(ahead)}."


@dataclass(frozen=True)
class Target:
    name: str
    work: str
    value: Value
    bound: float
    more_is_better: bool = False

    def line(self) -> str:
        value = self.value()
        if value is None:
            return f"| {self.name} | {self.work} | {number(self.bound)} | not measured | |"
        reached = value / self.bound if self.more_is_better else self.bound / max(value, 1e-9)
        holds = "yes" if reached >= 1 else f"{reached:.0%}"
        sign = "at least" if self.more_is_better else "at most"
        return f"| {self.name} | {self.work} | {sign} {number(self.bound)} | {number(value)} | {holds} |"


@functools.cache
def rows_of(name: str) -> dict[str, Any]:
    return load(name).get("rows", {})


def ratio(row: str, figure: str) -> Value:
    """The ratio of RocketPy's figure to Apache's."""
    return lambda: rows_of("apache").get(row, {}).get("ratio", {}).get(figure)


def ours(row: str, figure: str) -> Value:
    """RocketPy's figure beside Apache's."""
    return lambda: median(rows_of("apache").get(row, {}).get("RocketPy", []), figure)


def of(row: str, figure: str) -> Value:
    """RocketPy's figure beside other systems or clients."""
    return lambda: median(
        (rows_of("others") | rows_of("clients")).get(row, {}).get("systems", {}).get("RocketPy", []), figure
    )


def of_kafka(row: str) -> list[float]:
    """The ratio to confluent-kafka's rate in each round."""
    systems, rate = rows_of("clients").get(row, {}).get("systems", {}), RATE.key
    pairs = zip(systems.get("RocketPy", []), systems.get("confluent-kafka", []), strict=False)
    return [ours[rate] / theirs[rate] for ours, theirs in pairs if rate in theirs]


def worst_of_kafka(row: str) -> Value:
    return lambda: min(of_kafka(row), default=None)


def least_of_kafka() -> float | None:
    medians = (statistics.median(ratios) for ratios in map(of_kafka, rows_of("clients")) if ratios)
    return min(medians, default=None)


def kernel(name: str) -> Value:
    """A figure of `make bench`."""
    return lambda: load("figures").get("figures", {}).get(name, {}).get("value")


def many(row: str, figure: str) -> Value:
    """A figure of many connections."""
    return lambda: median(load("connections").get(row, []), figure)


def of_rounds(file: str, figure: str) -> Value:
    return lambda: median(load(file).get("rounds", []), figure)


def of_source(system: str, column: Column, *rows: str) -> Value:
    """The worst of the rows' ratios to Kafka's source."""

    def ratios() -> Iterator[float]:
        for row in rows:
            systems = rows_of("spark").get(row, {}).get("systems", {})
            ours, theirs = (median(systems.get(name, []), column.key) for name in (system, KAFKA_SOURCE))
            if ours is not None and theirs is not None:
                yield ours / theirs

    worst = min if column.more_is_better else max
    return lambda: worst(ratios(), default=None)


LIVE, PATH = "RocketPy, name server", "RocketPy, path"
BROKER_CPU = "broker_cpu_s_per_million"

SERVER_TARGETS = [
    Target("P1", "sends, 64 x 128 B: CPU of Apache's", ratio("send", BROKER_CPU), 0.2),
    Target("P1", "p99 of Apache's", ratio("send", P99.key), 0.5),
    Target("P1", "rate of Apache's", ratio("send", RATE.key), 2, True),
    Target("P1b", "one thread: CPU of Apache's", ratio("send-1", BROKER_CPU), 0.2),
    Target("P1b", "messages/s", ours("send-1", RATE.key), 12_000, True),
    Target("P2", "flushed, 64 threads: CPU of Apache's", ratio("send-flushed", BROKER_CPU), 0.2),
    Target("P2", "rate of Apache's", ratio("send-flushed", RATE.key), 2, True),
    Target("P2", "native load, 64 connections, messages/s", of("single-flushed", RATE.key), 57_000, True),
    Target("P3", "many in flight, native, batches of 100 x 128 B, messages/s", of("batches", RATE.key), 1e6, True),
    Target("P3", "CPU-s/M", of("batches", SERVER_CPU.key), 1),
    Target("P4", "batches of 32 x 128 B: CPU of Apache's", ratio("batch", BROKER_CPU), 0.2),
    Target("P5", "backlog, Apache's push consumer: CPU of Apache's", ratio("push", BROKER_CPU), 0.2),
    Target("P5", "native reader, messages/s", of("read", RATE.key), 2e6, True),
    Target("P5", "native reader, CPU-s/M", of("read", SERVER_CPU.key), 0.3),
]
"""Sends and backlogs: of Apache's, and of native loads."""
CLIENT_TARGETS = [
    Target("P6", "`send_many`, rate of confluent-kafka's, worst round", worst_of_kafka("many-128"), 1, True),
    Target("P6", "client CPU-s/M", of("many-128", CLIENT_CPU.key), 0.5),
    Target("P6", "broker CPU-s/M", of("many-128", SERVER_CPU.key), 0.6),
    Target("", "Python, least of the rates of confluent-kafka's", least_of_kafka, 1, True),
    Target("", "Python, one by one, 128 B, messages/s", of("one-128", RATE.key), 12_000, True),
    Target("", "p99, us", of("one-128", P99.key), 200),
    Target("", "Python, futures, 128 B, messages/s", of("futures-128", RATE.key), 500_000, True),
    Target("", "Python, asyncio, 128 B, messages/s", of("asyncio-128", RATE.key), 500_000, True),
    Target("", "Python, handlers, 128 B, messages/s", of("handlers-128", RATE.key), 500_000, True),
    Target("", "Python, handlers in asyncio, 128 B, messages/s", of("async-handlers-128", RATE.key), 500_000, True),
    Target("", "Python, import, ms", of("import", IMPORT.key), 50),
]
"""Python clients."""
STORE_TARGETS = [
    Target("P8", "anonymous memory, loaded, MB", ours("send", "anonymous_memory_mb"), 64),
    Target("P8", "peak memory, empty, MB", kernel("binary: peak memory, empty"), 15),
    Target("", "10,000 queues: rate with 16", kernel("10000 queues"), 0.9, True),
    Target("", "100,000 queues: rate with 16", kernel("100000 queues"), 0.9, True),
    Target(
        "",
        "append of 1 KiB, of a bare copy",
        kernel("append 1024 B, store, record check off, against a bare copy"),
        0.5,
        True,
    ),
    Target(
        "",
        "record check at append, 128 B, of the checksum alone",
        kernel("record check at append, 128 B, against the checksum of the bytes"),
        1.2,
    ),
    Target("", "scan to Arrow, GB/s a core", kernel("scan of 1 KiB bodies to Arrow, twelve columns"), 3, True),
    Target("", "cold readers: p99 of sends beside them, of that alone", many("cold", "p99_ratio"), 1.5),
    Target("", "10,000 idle connections: anonymous memory, MB", many("idle", "anonymous_memory_mb"), 100),
    Target("", "SYNC_MASTER and slave, 64 threads: CPU of Apache's two", ratio("pair-64", BROKER_CPU), 0.25),
    Target("", "of it the slave's", ratio("pair-64", "slave_cpu_s_per_million"), 0.25),
    Target("", "catch-up of a slave, of a bare copy", of_rounds("catch_up", "of_bare"), 0.7, True),
    Target("", "lag of a slave at half load, p99, ms", of_rounds("lag", "p99_ms"), 5),
    Target("", "1,000 busy connections: rate of 64", many("busy", "of_64"), 0.8, True),
]
"""Memory, queues, storage, connections and replication."""
SPARK_TARGETS = [
    Target(
        "",
        "Spark by path, full rows of 1 KiB, of the same batches from memory",
        kernel("Spark scan by path, 1 KiB bodies, against the ceiling"),
        0.85,
        True,
    ),
    Target("", "Spark live, batch: rows of Kafka's source", of_source(LIVE, ROWS_RATE, *SPARK_BATCHES), 4, True),
    Target("", "CPU of Kafka's source", of_source(LIVE, SPARK_CPU, *SPARK_BATCHES), 0.6),
    Target("", "Spark by path, batch: rows of it", of_source(PATH, ROWS_RATE, *SPARK_BATCHES), 6, True),
    Target("", "CPU of it", of_source(PATH, SPARK_CPU, *SPARK_BATCHES), 0.6),
    Target("", "Spark live, stream: rows of it", of_source(LIVE, ROWS_RATE, "available"), 1, True),
    Target("", "age of a batch, of it", of_source(LIVE, AGE, "steady"), 1),
]
"""Sources of Spark."""


def rounds_text(rows: dict[str, Any]) -> str:
    """How many rounds the rows have, after "Medians of"."""
    rounds = sorted({len(taken) for row in rows.values() for taken in row["systems"].values()})
    return f"{' or '.join(map(str, rounds))} round{'' if rounds == [1] else 's'}"


def clients_section(rows: dict[str, Any]) -> Iterator[str]:
    columns = [RATE, P99, CLIENT_CPU, SERVER_CPU, CLIENT_PEAK]
    yield "\n## Python clients\n"
    yield "RocketPy and Apache's C++ client (PyPI `rocketmq` 0.4.4) on RocketPy's server, confluent-kafka 2.16 on"
    yield "Kafka 4.1, and Apache's gRPC client (`rocketmq-python-client` 5.1.2) on Apache's broker 5.5.0 through its"
    yield "proxy. `asyncio alone` sends nothing: its tasks await futures that one callback completes."
    yield "Each turn is a process. A way of working that a client does not have is left out; the head of the"
    yield "program says how those that it has differ. All servers acknowledge from the page cache. Medians of"
    yield f"{rounds_text(rows)}, rates with the least and the most.\n"
    yield "    python benches/macro/clients.py --save\n"
    yield from compared({name: row for name, row in rows.items() if name != "import"}, "body", columns, RATE)
    if "import" in rows:
        yield f"\n{import_line(rows['import'])}"
    yield "\nOthers are ahead here:\n"
    yield from behind(rows, [*columns, IMPORT])


def spark_section(rows: dict[str, Any]) -> Iterator[str]:
    yield "\n## Sources of Spark\n"
    yield "RocketPy's source by the name server and by the folder of the store, and Spark's own for Kafka 4.1, on"
    yield "`local[2]`. Each turn is a process whose second run counts. Kafka's source runs under PySpark 4.2.0 and has"
    yield "all of its columns always. Of RocketPy the count and the lengths ask for the one column that they need, and"
    yield "JSON is decoded in the worker that reads; full rows cross from Python to Spark as a whole. The age is that"
    yield "of the oldest message of a micro-batch when it is done."
    yield f"Medians of {rounds_text(rows)}, rates with the least and the most.\n"
    yield "    python benches/macro/spark_sources.py --save\n"
    yield from compared(rows, "messages", SPARK_COLUMNS, ROWS_RATE)
    yield "\nKafka's source is ahead here:\n"
    for own in (LIVE, PATH):
        pairs = {
            name: row | {"systems": {one: row["systems"].get(one, []) for one in (own, KAFKA_SOURCE)}}
            for name, row in rows.items()
        }
        yield from behind(pairs, SPARK_COLUMNS, own)


def page() -> Iterator[str]:
    apache, others, clients = load("apache"), load("others").get("rows", {}), load("clients").get("rows", {})
    yield HEAD.format(processors=apache.get("machine", {}).get("processors", "some"))
    yield "## Beside Apache RocketMQ 5.5.0\n"
    rounds = sorted({len(taken["RocketPy"]) for taken in apache.get("rows", {}).values()})
    yield "One Java program with Apache's client is the load of both; Apache's broker is warmed up. Medians of"
    yield f"{' or '.join(map(str, rounds))} rounds; a ratio is RocketPy's to Apache's.\n"
    yield "    python benches/macro/apache.py --rounds 3 --save\n"
    yield from apache_table(apache.get("rows", {}))
    yield ""
    yield from memory_lines(apache.get("rows", {}))
    yield from catch_up_lines(load("catch_up"))
    yield from lag_lines(load("lag"))
    yield "\n![Processor time and rate beside Apache's](performance-apache.png)\n"
    yield "## Beside Kafka 4.1, Redis 7 streams and NATS JetStream 2.9\n"
    yield "Each system has the load program that its users measure with, so the client's figures compare clients."
    yield "Kafka and NATS acknowledge from the page cache; so does Redis with `appendfsync everysec`, and with `always`"
    yield "after the flush.\n"
    yield "    python benches/macro/others.py --save\n"
    columns = [RATE, P99, CLIENT_CPU, SERVER_CPU, SERVER_PEAK]
    yield from compared(others, "acknowledged", columns)
    yield "\n![Rate and processor time beside others](performance-others.png)\n"
    yield "Others are ahead here:\n"
    yield from behind(others, columns[:-1])
    if clients:
        yield from clients_section(clients)
    if spark := load("spark").get("rows", {}):
        yield from spark_section(spark)
    yield "\n## Targets\n"
    yield "`python benches/macro/connections.py --save` and `make bench` measure the rest of them.\n"
    yield "| | work | target | measured | reached |"
    yield "|---|---|---|---|---|"
    yield from (target.line() for target in SERVER_TARGETS + CLIENT_TARGETS + STORE_TARGETS + SPARK_TARGETS)
    yield from shortfalls(others)


def shortfalls(others: dict[str, Any]) -> Iterator[str]:
    single = others.get("pipelined", {}).get("systems", {}).get("RocketPy", [])
    rate, cpu = (number(median(single, key)) for key in ("messages_per_s", "server_cpu_s_per_million"))
    yield "\n## What explains the shortfalls\n"
    yield f"""\
P3 asks for the producer that users have. With many messages in flight it makes batches of them, as Kafka's does. A
client that makes a request of each, as Apache's does, gets {rate} messages/s at {cpu} CPU-s/M, far from P3: reading a
request and writing its answer take more than storing 128 B. The profiles are by `perf record` of the server, in percent
of its processor time:

| | each message a request | batches |
|---|---|---|
| network threads | 66 | 40 |
| of it: the put (checks, record, checksum, place in the log) | 26 | |
| of it: the answer, with its frame | 16 | |
| of it: decoding the request | 14 | |
| of it: reads and writes of sockets | 4 | |
| dispatch: record to queue entry and index | 19 | 41 |
| new pages of the log: zeroed by the kernel, and mapped | 11 | 14 |
| flush and checkpoint | 2 | 5 |

Beside a reader of cold pages half of the server's time is that reader's: each record is checked when it is first read
(32), and its pages are mapped (11). Its threads give way to senders. What is left of the difference is its answers of
up to 256 KiB, which the network threads write between those to senders (18)."""


def text_of_page() -> str:
    return "\n".join(page()) + "\n"


def main() -> None:
    apache_chart(load("apache")["rows"])
    others_chart(load("others")["rows"])
    PAGE.write_text(text_of_page())


if __name__ == "__main__":
    main()

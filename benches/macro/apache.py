"""RocketPy beside Apache RocketMQ 5.5.0, in turns: rate, latency of a call, processor time and memory of the broker.

    python benches/macro/apache.py --rows send pull --rounds 3
    python benches/macro/apache.py --scale 0.01 --rounds 1    # does it run?
    python benches/macro/apache.py --baseline BINARY --rows send pull    # beside another build of RocketPy

Needs Maven, which brings Apache's jars, and a JDK 17. Each turn starts a broker on an empty store and gives it the load
of one row. The load is the same Java program with Apache's client for both brokers (`apache/Load.java`), so all rows
have one client. On few cores that client takes most of the processor: the rate then says less than the broker's
processor time. Both brokers get the same configuration: they acknowledge before the flush, in the rows that end in
`-flushed` after it.

Both JVMs are warmed up: a fifth of the load goes to a topic of its own first. Then the turn waits until the broker is
at rest, and measures. Apache's JVM runs with the options of its `runbroker.sh` and a smaller heap (`--heap`), not
touched in advance. The processor time is the broker's, in ticks of 10 ms, without Apache's name server. The peak of
memory (VmHWM) is that of the whole turn, with the pages of mapped files. `delay`, of all 18 levels, and `send-back`
last until all messages came, a second or two after their last call; the timers of `timer` are sent within 10 s, and due
at a fixed rate from then on. `filter` counts the messages of the backlog. The calls of `latency-5k` and `latency-20k`
are the ways of messages, from when they were to be sent to when a push consumer has them; the call of `batch` is one of
32 messages. `readers` are ten of a backlog that is in memory, beside the senders that are counted. `start` has no load:
from the processes' start to the route of a topic that was made, and from the signal to the broker's end in order. The
rows `pair-...` send to a SYNC_MASTER, which answers once its slave has the message (`inSyncReplicas` is 2); processor
time and memory are then those of both brokers. The rows that end in `-tls` encrypt, with one certificate for both; a
client of Apache's verifies nothing. A message of the row `handshakes` is a connection that OpenSSL opens and ends.
`--system-calls` counts them with `perf`, which needs root, and costs both brokers a little.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import results
import rocketpy
from process import (
    anonymous_memory_bytes,
    built_server,
    cpu_seconds,
    launched,
    peak_memory_bytes,
    system_calls,
    usage,
)

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "interop")]

# The tests have Apache's broker already.
from apache_processes import apache_servers, launch_apache_broker, write_properties  # noqa: E402
from peers import Java, set_up_java, tools_for_java  # noqa: E402


@dataclass(frozen=True)
class Row:
    """One kind of work (`apache/Load.java`), and how much of it."""

    kind: str
    count: int = 0
    """Messages, before ``--scale``; 0: ``per_second`` for ``--seconds``."""
    threads: int = 64
    body_bytes: int = 128
    queues: int = 8
    flush: str = "ASYNC_FLUSH"
    per_second: int = 10_000
    has_slave: bool = False
    tls: bool = False


FLUSHED = "SYNC_FLUSH"
ROWS = {
    "send": Row("send", 500_000),
    "send-1": Row("send", 50_000, threads=1),
    "send-256": Row("send", 500_000, threads=256),
    "send-1k": Row("send", 300_000, body_bytes=1024),
    "send-tls": Row("send", 500_000, tls=True),
    "send-1-tls": Row("send", 50_000, threads=1, tls=True),
    "send-1k-tls": Row("send", 300_000, body_bytes=1024, tls=True),
    "pull-tls": Row("pull", 1_000_000, tls=True),
    "handshakes": Row("handshakes", 10_000, threads=8, tls=True),
    "send-flushed": Row("send", 200_000, flush=FLUSHED),
    "send-1-flushed": Row("send", 5_000, threads=1, flush=FLUSHED),
    "send-256-flushed": Row("send", 200_000, threads=256, flush=FLUSHED),
    "send-1k-flushed": Row("send", 200_000, body_bytes=1024, flush=FLUSHED),
    "batch": Row("batch", 3_200_000, threads=8),
    "one-way": Row("one-way", 500_000, threads=8),
    "asynchronous": Row("asynchronous", 500_000, threads=8),
    "queues-1": Row("send", 300_000, queues=1),
    "queues-64": Row("send", 300_000, queues=64),
    "queues-1000": Row("send", 300_000, queues=1_000),
    "queues-10000": Row("send", 300_000, queues=10_000),
    "pull": Row("pull", 1_000_000),
    "push": Row("push", 2_000_000),
    "readers": Row("readers", 300_000, queues=10),
    "latency-5k": Row("latency", threads=16, per_second=5_000),
    "latency-20k": Row("latency", threads=64, per_second=20_000),
    "filter": Row("filter", 1_000_000),
    "delay": Row("delay", 100_000),
    "timer": Row("timer"),
    "transaction": Row("transaction", 100_000),
    "send-back": Row("send-back", 50_000),
    "pair-1": Row("send", 20_000, threads=1, has_slave=True),
    "pair-64": Row("send", 200_000, has_slave=True),
    "start": Row("start"),
}
HANDSHAKES = str(Path(__file__).parent / "loads" / "handshakes.py")
WARM_UP_PART, WARM_UP_LEAST = 0.2, 200
TOPICS = ["warm", "load"]
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "diskMaxUsedSpaceRatio": 95,
    "enablePropertyFilter": "true",
    "timerWheelEnable": "true",
    "messageDelayLevel": " ".join(["1s"] * 9 + ["2s"] * 9),
}
"""Configuration of both brokers; `peers.py` adds ports and longer patience to Apache's."""
REST_CPU_PART = 0.2
"""A broker is at rest when it takes less of a processor than this."""
REST_WITHIN_S = 60
APACHE, BASELINE = "Apache", "baseline"
FIGURES = {
    "messages_per_s": ("messages/s", ",.0f"),
    "call_p50_us": ("p50 of a call, us", ",.0f"),
    "call_p99_us": ("p99 of a call, us", ",.0f"),
    "call_p999_us": ("p99.9 of a call, us", ",.0f"),
    "late_p50_ms": ("late, p50, ms", ",.0f"),
    "late_p99_ms": ("late, p99, ms", ",.0f"),
    "broker_cpu_s_per_million": ("broker CPU-s/M", ",.2f"),
    "user_s_per_million": ("of it user", ",.2f"),
    "system_s_per_million": ("of it system", ",.2f"),
    "slave_cpu_s_per_million": ("of it the slave's", ",.2f"),
    "switches_per_message": ("context switches a message", ".3f"),
    "system_calls_per_message": ("system calls a message", ".3f"),
    "peak_memory_mb": ("broker peak, MB", ",.0f"),
    "anonymous_memory_mb": ("of it no file's, MB", ",.0f"),
    "start_s": ("start, s", ",.2f"),
    "stop_s": ("stop in order, s", ",.2f"),
}

Figures = dict[str, Any]
"""Numbers by name; ``threads_s_per_million`` has one by thread's name."""
Line = dict[str, Any]
"""What the load program prints."""


@dataclass(frozen=True)
class Broker:
    """A broker that has the topics, and knows nothing else yet."""

    pids: tuple[int, ...]
    """Of the broker, and of its slave."""
    name_server: str


def make_topics(broker: Broker, row: Row) -> Broker:
    with rocketpy.Admin(name_servers=[broker.name_server]) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, queues=row.queues)
    return broker


PAIR: dict[str, object] = {"brokerName": "pair", "brokerClusterName": "pairs"}
MASTER = PAIR | {"brokerRole": "SYNC_MASTER", "haListenPort": 0, "inSyncReplicas": 2}
SLAVE = PAIR | {"brokerRole": "SLAVE", "brokerId": 1}
SLAVE_WITHIN_S = 120


CERTIFICATE = {
    name: str(ROOT / "tests" / "tls" / f"server.{ending}") for name, ending in (("cert", "pem"), ("key", "key"))
}
OURS_TLS: dict[str, object] = {f"tls.server.{name}Path": path for name, path in CERTIFICATE.items()}
APACHE_TLS = ("-Dtls.test.mode.enable=false", *(f"-D{key}={path}" for key, path in OURS_TLS.items()))


def settings(row: Row) -> dict[str, object]:
    return SETTINGS | {"flushDiskType": row.flush} | (MASTER if row.has_slave else {})


def wait_for_slave(name_server: str) -> None:
    """Until the master knows that its slave has all."""
    with rocketpy.Admin(name_servers=[name_server]) as admin:
        until = time.monotonic() + SLAVE_WITHIN_S
        while time.monotonic() < until:
            masters = [broker.addresses[0] for broker in admin.brokers() if 0 in broker.addresses]
            slaves = [slave for master in masters for slave in admin.ha_status(master).slaves]
            if any(slave.is_near and slave.lag_bytes == 0 for slave in slaves):
                return
            time.sleep(0.1)
    raise RuntimeError(f"no slave had the log within {SLAVE_WITHIN_S} s")


@contextmanager
def ours(program: Path, home: Path, row: Row) -> Iterator[Broker]:
    home.mkdir()
    write_properties(home / "broker.conf", settings(row) | (OURS_TLS if row.tls else {}))
    options = ("--config", str(home / "broker.conf"))
    with launched(program, home / "store", home / "ready.json", *options) as running:
        if not row.has_slave:
            yield make_topics(Broker((running.pid,), running.name_server), row)
            return
        write_properties(home / "slave.conf", settings(row) | SLAVE)
        options = ("--config", str(home / "slave.conf"))
        files = (home / "slave", home / "slave.json")
        with launched(program, *files, *options, name_server=running.name_server) as slave:
            wait_for_slave(running.name_server)
            yield make_topics(Broker((running.pid, slave.pid), running.name_server), row)


@contextmanager
def apache(java: Java, heap: str, home: Path, row: Row) -> Iterator[Broker]:
    memory = (f"-Xms{heap}", f"-Xmx{heap}", f"-XX:MaxDirectMemorySize={heap}", *(APACHE_TLS if row.tls else ()))
    in_order = row.kind == "start"  # which takes 18 s
    with apache_servers(java, home, settings(row), TOPICS, in_order, memory) as (address, process):
        if not row.has_slave:
            yield make_topics(Broker((process.pid,), address), row)
            return
        slave, _ = launch_apache_broker(java, home / "slave", address, settings(row) | SLAVE, memory)
        try:
            wait_for_slave(address)
            yield make_topics(Broker((process.pid, slave.pid), address), row)
        finally:
            slave.kill()
            slave.wait()


RUNBROKER = (
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-UseLargePages",
)
"""Of Apache's `runbroker.sh`, for a JDK 17."""


def compiled(java: Java, classes: Path) -> Java:
    """The load program on the class path of Apache's jars."""
    source = Path(__file__).parent / "apache" / "Load.java"
    command = [tools_for_java()["javac"], "-nowarn", "-cp", java.class_path, "-d", str(classes), str(source)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return replace(java, class_path=f"{classes}:{java.class_path}")


def wait_for_rest(broker: Broker) -> None:
    """Lets a broker finish what the preparation left: dispatch, flush, timers on their way into the wheel."""
    until, used = time.monotonic() + REST_WITHIN_S, sum(map(cpu_seconds, broker.pids))
    while time.monotonic() < until:
        time.sleep(0.5)
        before, used = used, sum(map(cpu_seconds, broker.pids))
        if used - before < 0.5 * REST_CPU_PART:
            return
    raise RuntimeError(f"the broker did not come to rest within {REST_WITHIN_S} s")


def next_line(process: subprocess.Popen[str], show: Callable[[Line], None]) -> Line:
    """The next object that is not progress."""
    assert process.stdout is not None
    for text in process.stdout:
        if text.startswith("{"):
            line: Line = json.loads(text)
            if "doing" not in line:
                return line
            show(line)
    raise RuntimeError(f"the load ended with {process.wait()}")


def take_turn(
    broker: Broker, command: list[str], log: Path, counts_calls: bool, show: Callable[[Line], None]
) -> Figures:
    """Runs the load on a broker; returns what it says and what the broker took for it."""
    anonymous = 0

    def look(line: Line) -> None:
        nonlocal anonymous
        anonymous = max(anonymous, sum(map(anonymous_memory_bytes, broker.pids)))
        show(line)

    with log.open("w") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        next_line(process, show)
        show({"doing": "until the broker is at rest", "done": 0, "of": 1})
        wait_for_rest(broker)
        assert process.stdin is not None
        with system_calls(*broker.pids) if counts_calls else nullcontext([]) as calls:
            before, slave_before = usage(*broker.pids), sum(map(cpu_seconds, broker.pids[1:]))
            process.stdin.write("\n")
            process.stdin.flush()
            figures = next_line(process, look)
            after, slave_after = usage(*broker.pids), sum(map(cpu_seconds, broker.pids[1:]))
    except RuntimeError as error:
        raise RuntimeError(f"{error}: {log.read_text()[-2000:]}") from None
    finally:
        process.kill()
        process.communicate()
    look({"doing": "done", "done": 1, "of": 1})
    messages = figures["messages"]
    user, system = after.user_s - before.user_s, after.system_s - before.system_s
    threads = {name: used - before.threads_s.get(name, 0) for name, used in after.threads_s.items()}
    busiest = sorted(threads.items(), key=lambda thread: -thread[1])[:6]
    return {
        "messages_per_s": messages / figures["seconds"],
        "broker_cpu_s_per_million": (user + system) / messages * 1e6,
        "user_s_per_million": user / messages * 1e6,
        "system_s_per_million": system / messages * 1e6,
        "threads_s_per_million": {name: used / messages * 1e6 for name, used in busiest if used > 0},
        "switches_per_message": (after.switches - before.switches) / messages,
        "peak_memory_mb": sum(map(peak_memory_bytes, broker.pids)) / 1e6,
        "anonymous_memory_mb": anonymous / 1e6,
        **({"slave_cpu_s_per_million": (slave_after - slave_before) / messages * 1e6} if broker.pids[1:] else {}),
        **({"system_calls_per_message": calls[0] / messages} if calls else {}),
        **figures,
    }


def ratios(rounds: dict[str, list[Figures]]) -> Figures:
    """RocketPy to the other broker in each round: the median, without figures that are zero or less there."""
    ours, theirs = rounds.values()
    result = {}
    for name in FIGURES:
        pairs = [
            (one[name], other[name])
            for one, other in zip(ours, theirs, strict=True)
            if name in one and other.get(name, 0) > 0
        ]
        if pairs:
            result[name] = statistics.median(one / other for one, other in pairs)
    return result


def show_table(console: Console, taken: dict[str, dict[str, list[Figures]]]) -> None:
    names = next(iter(taken.values()), {"RocketPy": [], APACHE: []})
    table = Table("row", "figure", *names, "ratio", title="median (least to most) of the rounds")
    for row, rounds in taken.items():
        ratio = ratios(rounds)
        for name, (title, form) in FIGURES.items():
            columns = []
            for broker in rounds:
                values = [figures[name] for figures in rounds[broker] if name in figures]
                if values:
                    columns.append(f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})")
            if columns:
                table.add_row(row, title, *columns, f"{ratio[name]:.2f}" if name in ratio else "")
        for broker in rounds:
            late = sum(figures.get("sent_late", 0) for figures in rounds[broker])
            again = sum(figures.get("duplicates", 0) for figures in rounds[broker])
            lost = sum(figures.get("lost", 0) for figures in rounds[broker])
            for count, what in (
                (late, "timers sent after their time"),
                (again, "came again"),
                (lost, "refused or lost"),
            ):
                if count:
                    console.print(f"{row}, {broker}: {count} {what}")
        table.add_section()
    console.print(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="default: all")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each broker; default: 2")
    parser.add_argument("--scale", type=float, default=1.0, help="part of all counts and of --per-second; default: 1")
    parser.add_argument("--waiting", type=int, default=200_000, help="timers a day ahead; default: 200000")
    parser.add_argument("--per-second", type=int, default=10_000, help="timers due a second; default: 10000")
    parser.add_argument(
        "--seconds", type=int, default=10, help="how long timers become due, and rows of a rate last; default: 10"
    )
    parser.add_argument("--system-calls", action="store_true", help="counts them with perf; needs root")
    parser.add_argument("--heap", default="4g", help="of Apache's broker; default: 4g")
    parser.add_argument(
        "--server", type=Path, help="`rocketpy`, or `rocketpy-server` of another build; default: builds the release"
    )
    parser.add_argument("--baseline", type=Path, help="a `rocketpy-server` in the place of Apache's broker")
    parser.add_argument(
        "--save", action="store_true", help="writes the rows to the file of this release, where others stay"
    )
    options = parser.parse_args()
    if options.save and options.baseline:
        parser.error("--save keeps figures beside Apache: leave out --baseline")
    return options


def load_of(row: Row, options: argparse.Namespace) -> list[str]:
    """Arguments of the load program from the kind of work on."""
    per_second = options.per_second if row.kind == "timer" else row.per_second
    per_second = max(1, int(per_second * options.scale))
    count = max(128, int(row.count * options.scale)) // 32 * 32 if row.count else per_second * options.seconds
    warm_up = max(WARM_UP_LEAST, int(count * WARM_UP_PART)) // 32 * 32
    waiting = max(1, int(options.waiting * options.scale))
    numbers = (count, warm_up, waiting, per_second, row.queues, row.threads, row.body_bytes)
    return [row.kind, *map(str, numbers)]


class Turns:
    """Takes the turns of both brokers, and shows how far they are."""

    def __init__(self, options: argparse.Namespace, java: Java, folder: Path, progress: Progress) -> None:
        program = built_server(options.server)
        self.options, self.folder, self.progress = options, folder, progress
        self.load = compiled(replace(java, tuning=("-XX:+UseParallelGC",)), folder / "classes")
        self.brokers: dict[str, Callable[[Path, Row], AbstractContextManager[Broker]]] = {
            "RocketPy": lambda home, row: ours(program, home, row)
        }
        if baseline := options.baseline:
            self.brokers[BASELINE] = lambda home, row: ours(baseline.absolute(), home, row)
        else:
            self.brokers[APACHE] = lambda home, row: apache(replace(java, tuning=RUNBROKER), options.heap, home, row)

    def rounds(self, row: str) -> dict[str, list[Figures]]:
        """All turns of a row, the brokers one after the other."""
        taken: dict[str, list[Figures]] = {name: [] for name in self.brokers}
        for number in range(self.options.rounds):
            for name in self.brokers:
                taken[name].append(self.turn(row, name, f"{row}, {name}, {number + 1} of {self.options.rounds}"))
        return taken

    def turn(self, row: str, name: str, title: str) -> Figures:
        task = self.progress.add_task(f"{title}: starting", total=None)

        def show(line: Line) -> None:
            self.progress.update(
                task, description=f"{title}: {line['doing']}", completed=line["done"], total=line["of"]
            )

        try:
            with tempfile.TemporaryDirectory(dir=self.folder) as place:
                figures = self.measured(Path(place), ROWS[row], name, show)
        except (RuntimeError, AssertionError) as error:
            raise RuntimeError(f"{title}: {error}") from error
        finally:
            self.progress.remove_task(task)
        rate = figures.get("messages_per_s")
        self.progress.print(f"{title}: {rate:,.0f} messages/s" if rate else f"{title}: {figures['start_s']:.2f} s")
        return figures

    def measured(self, home: Path, row: Row, name: str, show: Callable[[Line], None]) -> Figures:
        began = time.perf_counter()
        with self.brokers[name](home / "broker", row) as broker:
            if row.kind != "start":
                texts = load_of(row, self.options)
                if row.kind == "handshakes":
                    command = [
                        sys.executable,
                        HANDSHAKES,
                        broker.name_server,
                        TOPICS[-1],
                        *texts[1:3],
                        str(row.threads),
                    ]
                else:
                    options = ("-Xmx2g", f"-Dtls.enable={str(row.tls).lower()}")
                    command = self.load.command("Load", home / "load", broker.name_server, *texts, options=options)
                return take_turn(broker, command, home / "load.log", self.options.system_calls, show)
            figures = {
                "start_s": time.perf_counter() - began,
                "peak_memory_mb": sum(map(peak_memory_bytes, broker.pids)) / 1e6,
                "anonymous_memory_mb": sum(map(anonymous_memory_bytes, broker.pids)) / 1e6,
            }
            began = time.perf_counter()
        return figures | {"stop_s": time.perf_counter() - began}


def save(options: argparse.Namespace, taken: dict[str, dict[str, list[Figures]]]) -> Path:
    machine = {"processors": os.cpu_count(), "machine": platform.machine()}
    settings = {name: value for name, value in vars(options).items() if name not in ("server", "baseline", "save")}
    rows = {row: {"options": settings, "ratio": ratios(rounds), **rounds} for row, rounds in taken.items()}
    return results.save_rows("apache", machine, rows)


def main() -> int:
    options = arguments()
    # Both stop the brokers too; a shell lets what it starts in the background ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.status("bringing Apache's jars"):
        java = set_up_java()
    taken: dict[str, dict[str, list[Figures]]] = {}
    failures = []
    (ROOT / "target").mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="rocketpy-bench-", dir=ROOT / "target") as folder,
        Progress(console=console) as progress,
    ):
        turns = Turns(options, java, Path(folder), progress)
        for row in options.rows:
            try:
                taken[row] = turns.rounds(row)
            except RuntimeError as error:  # the other rows are worth having
                failures.append(str(error))
    show_table(console, taken)
    if options.save:
        console.print(f"written to {save(options, taken).relative_to(ROOT)}")
    for failure in failures:
        console.print(failure, style="red", markup=False)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Python clients in turns: RocketPy, confluent-kafka on Kafka 4.1, Apache's C++ client, Apache's gRPC client.

    python benches/macro/clients.py --save    # all rows, three rounds, saved for this release
    python benches/macro/clients.py --rows one futures --bodies 128 --rounds 1 --scale 0.1    # does it run?

RocketPy and the C++ client (PyPI `rocketmq`) use RocketPy's server, confluent-kafka a Kafka broker, and the gRPC client
(`rocketmq-python-client`) Apache's broker 5.5.0 through Apache's proxy. All servers acknowledge from the page
cache, listen on loopback and run from beginning to end; only the one whose turn it is has work. Each client has an
environment of its own with the packages of `requirements/client-*.txt`; RocketPy has that of this program, and its
server is the command `rocketpy` there, unless `--server` names another. Maven brings the jars, for a JDK 17. A client
whose programs are missing is left out, and named.

A turn is a process (`loads/`), which works in one way and tells its rate, its processor time, and the most memory it
had. Warming up (a tenth of what is sent) and joining a group do not count. The clients take turns within a row, and the
first round of each row does not count. Counts differ, so that turns last about as long. `asyncio alone` is no client:
its tasks await futures, and nothing is sent. No client can be faster in a loop.

A way of working that a client does not have is left out. Those that they have differ in detail. `futures` are callbacks
in confluent-kafka and the C++ client. `many` is `produce` without callbacks and one `flush` in confluent-kafka, and
requests of less than 4 KiB in the C++ client. For `message` and `batches` RocketPy and confluent-kafka commit every
5 s, the C++ client's pull consumer keeps no offsets, and the gRPC client acknowledges each message and gets at most 32
at once. Handlers are as many as each client has by default.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

import rocketpy
from apache import RUNBROKER
from apache import SETTINGS as APACHE_SETTINGS
from apache_processes import apache_servers, launch_apache
from kafka_broker import kafka
from messages import QUEUES
from peers import REQUIREMENTS, accepts, bring_jars, set_up_cpp, set_up_environment, set_up_java
from process import COMMAND, ROOT, free_port, server
from turns import Rounds, figures_of, report, take_turns
from waiting import wait_until

HERE = Path(__file__).parent
PROXY_JARS = ROOT / "target" / "proxy"
BODIES = (128, 1024)
TURN_TIMEOUT_S = 180
MEMORY = ("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=1g")
"""Of Apache's broker and of its proxy, each."""
IMPORTING = """\
import time
began = time.perf_counter()
{statement}
seconds = time.perf_counter() - began
import json, sys
sys.path.append({folder!r})
from process import peak_memory_bytes
print(json.dumps({{"import_ms": seconds * 1e3, "peak_memory_mb": peak_memory_bytes() / 1e6}}))
"""


@dataclass(frozen=True)
class Peer:
    """A server that the clients of a system reach at `address`, and the processes whose time is the server's."""

    address: str
    pids: tuple[int, ...]
    name_server: str | None = None
    """Of a RocketMQ server: RocketPy writes the backlog."""


@dataclass(frozen=True)
class Client:
    server: str
    """Whose address it gets."""
    load: str
    """The program in `loads/` that runs its turns."""
    imports: str
    """What a program says that sends and receives."""
    needs: tuple[str, ...] = ()
    """The programs of the client and its server."""


ROCKETPY, KAFKA, CPP, GRPC = "RocketPy", "confluent-kafka", "C++ client", "gRPC client"
ASYNCIO = "asyncio alone"
"""The baseline of what runs in a loop: it sends nothing."""
CLIENTS = {
    ROCKETPY: Client("RocketPy", "rocketpy_load.py", "from rocketpy import Consumer, Message, Producer"),
    KAFKA: Client("Kafka", "kafka_load.py", "from confluent_kafka import Consumer, Producer", ("java", "mvn")),
    CPP: Client("RocketPy", "cpp_load.py", "from rocketmq.client import Message, Producer, PushConsumer"),
    GRPC: Client(
        "Apache", "grpc_load.py", "from rocketmq import Message, Producer, SimpleConsumer", ("java", "javac", "mvn")
    ),
    ASYNCIO: Client("RocketPy", "asyncio_load.py", "import asyncio"),
}


@dataclass(frozen=True)
class Row:
    title: str
    counts: dict[str, int]
    """Messages of a turn of each client that can work so, with bodies of 128 B."""
    is_read: bool = False


IMPORT = "import"
LARGE_PART = 0.4
"""Of those counts with bodies of 1 KiB."""
ROWS = {
    "one": Row("send one by one", {ROCKETPY: 12_000, KAFKA: 6_000, CPP: 8_000, GRPC: 1_500}),
    "futures": Row("send with a future each", {ROCKETPY: 500_000, KAFKA: 500_000, CPP: 5_000, GRPC: 4_000}),
    "asyncio": Row("send in asyncio, 1,000 in flight", {ROCKETPY: 200_000, KAFKA: 100_000, ASYNCIO: 400_000}),
    "many": Row("send what is there at once", {ROCKETPY: 1_000_000, KAFKA: 1_000_000, CPP: 100_000}),
    "message": Row("read message by message", {ROCKETPY: 1_000_000, KAFKA: 400_000, CPP: 100_000, GRPC: 1_500}, True),
    "batches": Row("read in batches", {ROCKETPY: 1_900_000, KAFKA: 400_000, GRPC: 5_000}, True),
    "handlers": Row("read by handlers", {ROCKETPY: 400_000, CPP: 50_000, GRPC: 4_000}, True),
    "async-handlers": Row("read by handlers in asyncio", {ROCKETPY: 200_000}, True),
    "arrow": Row("read as Arrow batches", {ROCKETPY: 1_900_000}, True),
    IMPORT: Row("import", dict.fromkeys((ROCKETPY, KAFKA, CPP, GRPC), 0)),
}
BACKLOGS = {"RocketPy": 2_000_000, "Kafka": 500_000, "Apache": 20_000}
"""Messages with 128 B that wait for readers, more than any of them reads."""
FIGURES = {
    "messages_per_s": ("messages/s", ",.0f"),
    "call_p50_us": ("p50 of a call, us", ",.0f"),
    "call_p99_us": ("p99 of a call, us", ",.0f"),
    "client_cpu_s_per_million": ("client CPU-s/M", ",.2f"),
    "server_cpu_s_per_million": ("server CPU-s/M", ",.2f"),
    "peak_memory_mb": ("client peak, MB", ",.0f"),
    "import_ms": ("import, ms", ",.0f"),
}


def of_size(count: int, body_bytes: int, scale: float) -> int:
    return max(1000, int(count * scale * (1 if body_bytes == BODIES[0] else LARGE_PART)))


def sent(body_bytes: int) -> str:
    return f"sent-{body_bytes}"


def backlog(body_bytes: int) -> str:
    return f"backlog-{body_bytes}"


TOPICS = [name(body_bytes) for body_bytes in BODIES for name in (sent, backlog)]


def make_topics(name_server: str) -> None:
    with rocketpy.Admin(name_servers=[name_server]) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, queues=QUEUES)


@contextmanager
def rocketpy_server(program: Path) -> Iterator[Peer]:
    with server(program) as running:
        make_topics(running.name_server)
        yield Peer(running.name_server, (running.pid,), running.name_server)


@contextmanager
def kafka_broker() -> Iterator[Peer]:
    with kafka() as running:
        yield Peer(running.name_server, (running.pid,))


@contextmanager
def apache_with_proxy() -> Iterator[Peer]:
    """Apache's name server, broker and proxy, each a process."""
    java = replace(set_up_java(), tuning=RUNBROKER)
    if not PROXY_JARS.exists():
        bring_jars(HERE / "proxy", PROXY_JARS)
    with tempfile.TemporaryDirectory(prefix="apache-bench-") as folder:
        home, port = Path(folder), free_port()
        with apache_servers(java, home, APACHE_SETTINGS, TOPICS, memory=MEMORY) as (name_server, broker):
            make_topics(name_server)
            settings = {
                "rocketMQClusterName": "apache",
                "namesrvAddr": name_server,
                "localServeAddr": "127.0.0.1",
                "grpcServerPort": port,
                "remotingListenPort": free_port(),
            }
            (home / "proxy.json").write_text(json.dumps(settings))
            proxy_java = replace(java, class_path=f"{PROXY_JARS}/*")
            arguments = ("-pc", str(home / "proxy.json"))
            proxy = launch_apache(proxy_java, home, "org.apache.rocketmq.proxy.ProxyStartup", arguments, MEMORY)
            try:
                wait_until(lambda: accepts(port), "Apache's proxy", process=proxy)
                yield Peer(f"127.0.0.1:{port}", (broker.pid, proxy.pid), name_server)
            finally:
                proxy.kill()
                proxy.wait()


def pythons() -> dict[str, Callable[[], str]]:
    """How each client gets its environment; returns its interpreter."""
    own = ROOT / "target" / "clients"

    def environment(name: str) -> Callable[[], str]:
        return lambda: set_up_environment(own / name, REQUIREMENTS / f"client-{name}.txt")

    return {
        ROCKETPY: lambda: sys.executable,
        ASYNCIO: lambda: sys.executable,
        KAFKA: environment("kafka"),
        CPP: lambda: set_up_cpp().python,
        GRPC: environment("grpc"),
    }


class Turns:
    """The clients with their servers, which hold backlogs."""

    def __init__(self, options: argparse.Namespace, servers: ExitStack, console: Console) -> None:
        self.options, self.console = options, console
        self.failures: list[str] = []
        self.home = servers.enter_context(tempfile.TemporaryDirectory(prefix="clients-bench-"))
        self.pythons = self.environments()
        opened = {
            "RocketPy": lambda: rocketpy_server(options.server),
            "Kafka": kafka_broker,
            "Apache": apache_with_proxy,
        }
        wanted = dict.fromkeys(CLIENTS[name].server for name in self.pythons)
        self.peers: dict[str, Peer] = {}
        for name in wanted:
            with console.status(f"starting the server of {name}"):
                self.peers[name] = servers.enter_context(opened[name]())
        if any(ROWS[row].is_read for row in options.rows):
            for name in wanted:
                self.fill(name)

    def environments(self) -> dict[str, str]:
        found = {}
        for name, environment in pythons().items():
            if name not in self.options.clients:
                continue
            if missing := [program for program in CLIENTS[name].needs if shutil.which(program) is None]:
                self.console.print(f"without {name}, which needs {' and '.join(missing)}")
                continue
            with self.console.status(f"setting up {name}"):
                found[name] = environment()
        return found

    def fill(self, name: str) -> None:
        """Writes what readers will read: with RocketPy where a RocketMQ server is, else with Kafka's client."""
        peer = self.peers[name]
        client = ROCKETPY if peer.name_server else KAFKA
        python = self.pythons.get(client, sys.executable)
        for body_bytes in self.options.bodies:
            with self.console.status(f"writing the backlog of {name}, {body_bytes} B"):
                count = of_size(BACKLOGS[name], body_bytes, self.options.scale)
                texts = (peer.name_server or peer.address, backlog(body_bytes), count, body_bytes)
                self.run(python, client, "many", *texts)

    def run(self, python: str, client: str, *arguments: object) -> dict[str, float]:
        command = [python, str(HERE / "loads" / CLIENTS[client].load), *map(str, arguments)]
        return self.output_of(command)

    def output_of(self, command: list[str]) -> dict[str, float]:
        return figures_of(command, self.home, TURN_TIMEOUT_S)

    def turn(self, way: str, client: str, body_bytes: int) -> dict[str, float]:
        python = self.pythons[client]
        if way == IMPORT:
            return self.output_of([python, "-c", IMPORTING.format(statement=CLIENTS[client].imports, folder=str(HERE))])
        peer, row = self.peers[CLIENTS[client].server], ROWS[way]
        topic = (backlog if row.is_read else sent)(body_bytes)
        count = of_size(row.counts[client], body_bytes, self.options.scale)
        return self.run(python, client, way, peer.address, topic, count, body_bytes, *peer.pids)

    def rounds(self, way: str, body_bytes: int) -> Rounds:
        systems = [name for name in ROWS[way].counts if name in self.pythons]
        title = ", ".join(filter(None, head(way, body_bytes).values()))
        taken, failures = take_turns(
            self.console, title, systems, self.options.rounds, lambda name: self.turn(way, name, body_bytes)
        )
        self.failures += failures
        return taken


def head(way: str, body_bytes: int) -> dict[str, str]:
    return {"title": ROWS[way].title, "body": f"{body_bytes:,} B" if body_bytes else ""}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="default: all")
    parser.add_argument("--bodies", nargs="+", type=int, choices=BODIES, default=BODIES, help="bytes; default: both")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS), help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count; default: 3")
    parser.add_argument("--scale", type=float, default=1.0, help="part of all counts; default: 1")
    parser.add_argument(
        "--server", type=Path, default=COMMAND, help="`rocketpy`, or `rocketpy-server`; default: of this environment"
    )
    parser.add_argument("--save", action="store_true", help="saves the rows for this release, where others stay")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # which stops the servers too
    console = Console(width=None if sys.stdout.isatty() else 200)
    todo = {
        f"{way}-{body_bytes}" if body_bytes else way: (way, body_bytes)
        for way in options.rows
        for body_bytes in ([0] if way == IMPORT else options.bodies)
    }
    taken: dict[str, Rounds] = {}
    with ExitStack() as servers:
        turns = Turns(options, servers, console)
        for row, (way, body_bytes) in todo.items():
            taken[row] = turns.rounds(way, body_bytes)
    heads = {row: head(*todo[row]) for row in taken}
    program = "clients" if options.save else None
    return report(console, heads, taken, FIGURES, program=program, failures=turns.failures)


if __name__ == "__main__":
    sys.exit(main())

"""`submit` beside confluent-kafka's `produce`, both with callbacks: 128 B, acknowledged from the page cache, in turns.

    pip install confluent-kafka==2.16.1
    python benches/macro/submit.py

Needs Maven, which brings Kafka 4.1, and a JDK 17. Each round measures both; printed are median and range of the rounds.
"""

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import rocketpy
from messages import BODY_BYTES, QUEUES, TOPIC, measured
from process import BINARY, Running, server

try:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient, NewTopic
except ImportError:
    sys.exit("confluent-kafka is missing: pip install confluent-kafka==2.16.1")

COUNT = 500_000
LINGER = 0.005
"""Seconds: the default of confluent-kafka (`linger.ms`)."""
ROUNDS = 5
JARS = Path("target/kafka")
BODY = b"x" * BODY_BYTES
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
offsets.topic.replication.factor=1
log.dirs={folder}/log
"""


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


@contextmanager
def kafka() -> Iterator[Running]:
    """One Kafka broker that is its own controller."""
    if not JARS.exists():
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={JARS.resolve()}"]
        subprocess.run(copy, cwd=Path(__file__).parent / "kafka", check=True)
    port, controller = free_ports()
    java = ["java", "-Xmx1g", "-Xms1g", "-cp", f"{JARS.resolve()}/*"]
    with tempfile.TemporaryDirectory(prefix="kafka-bench-") as folder:
        settings = Path(folder, "server.properties")
        settings.write_text(SETTINGS.format(port=port, controller=controller, folder=folder))
        form = ["kafka.tools.StorageTool", "format", "-t", "rocketpy-bench-0000000", "-c", str(settings)]
        subprocess.run([*java, *form], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started_at = time.perf_counter()
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            admin.create_topics([NewTopic(TOPIC, QUEUES, 1)], request_timeout=60)[TOPIC].result(timeout=60)
            yield Running(process.pid, f"127.0.0.1:{port}", Path(folder), started_at)
        finally:
            process.terminate()
            process.wait(timeout=60)


def produce(running: Running) -> int:
    """confluent-kafka with a callback for each message, which must have been stored."""
    stored = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal stored
        stored += error is None

    producer = confluent_kafka.Producer({"bootstrap.servers": running.name_server, "acks": 1})
    for _ in range(COUNT):
        while True:
            try:
                producer.produce(TOPIC, BODY, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(60)
    return whole(stored)


def submit(running: Running) -> int:
    """RocketPy with a callback for each message, which must have been stored."""
    stored = 0

    def delivered(future: Future[rocketpy.Receipt]) -> None:
        nonlocal stored
        stored += future.exception() is None

    with rocketpy.Producer("bench", name_servers=[running.name_server], linger=LINGER) as producer:
        for _ in range(COUNT):
            producer.submit(rocketpy.Message(TOPIC, BODY)).add_done_callback(delivered)
        producer.flush(timeout=60)
    return whole(stored)


def whole(stored: int) -> int:
    if stored != COUNT:
        raise RuntimeError(f"{stored} of {COUNT} messages were stored")
    return COUNT


def line(name: str, rounds: list[dict[str, float]]) -> str:
    def column(key: str, form: str) -> str:
        values = [figures[key] for figures in rounds]
        return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"

    parts = [column("messages_per_s", ",.0f"), *(column(key, ".2f") for key in CPU)]
    return f"{name:28} {parts[0]} messages/s, client {parts[1]}, broker {parts[2]} CPU-s/M"


CPU = ("client_cpu_s_per_million", "broker_cpu_s_per_million")


def main() -> None:
    """One warm-up and then the rounds."""
    with server(BINARY) as ours, kafka() as theirs:
        with rocketpy.Admin(name_servers=[ours.name_server]) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        works: list[tuple[str, Running, Callable[[Running], int]]] = [
            ("confluent-kafka produce", theirs, produce),
            ("rocketpy submit", ours, submit),
        ]
        taken: dict[str, list[dict[str, float]]] = {name: [] for name, *_ in works}
        for number in range(ROUNDS + 1):
            for name, running, work in works:
                figures = measured(running, lambda work=work, running=running: work(running))
                if number:
                    taken[name].append(figures)
        for name, rounds in taken.items():
            print(line(name, rounds))
        ratio = [
            ours["messages_per_s"] / theirs["messages_per_s"] for theirs, ours in zip(*taken.values(), strict=True)
        ]
        print(f"rate of submit against produce, by round: {', '.join(f'{one:.2f}' for one in ratio)}")


if __name__ == "__main__":
    main()

"""`rocketpy bench`: messages per second, and the processor time of client and broker."""

import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy import Admin, Consumer, Message, Producer, Start, _rocketpy
from rocketpy.cli.options import WAITING, WAITING_SENDS, Json
from rocketpy.cli.serve import settings_of
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode, ended_by_signals
from rocketpy.servers.process import ServerProcess

Server = Annotated[
    str | None,
    typer.Option(
        "--name-server",
        "-n",
        envvar="NAMESRV_ADDR",
        metavar="HOST:PORT[,HOST:PORT]",
        help="Cluster to measure. Default: a new server on an empty folder.",
    ),
]
Messages = Annotated[int, typer.Option("--messages", min=1, help="Number of messages.")]
Size = Annotated[int, typer.Option("--size", min=1, max=16 << 20, help="Size of a body in bytes.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Messages per call.")]
Queues = Annotated[int, typer.Option("--queues", min=1, help="Queues of the topic, if it is created.")]
Topic = Annotated[str, typer.Option("--topic", help="Topic to use.")]
SendBatch = Annotated[
    int,
    typer.Option(
        "--batch",
        min=1,
        max=1024,  # as a producer makes them
        help="Messages per request, as a producer batches waiting messages. The remainder is sent one by one.",
    ),
]
Connections = Annotated[int, typer.Option("--connections", min=1, max=100_000, help="Number of connections that send.")]
Threads = Annotated[
    int, typer.Option("--threads", min=1, max=1024, help="Number of threads that serve the connections.")
]
Window = Annotated[
    int,
    typer.Option(
        "--window",
        min=1,
        max=1_000_000,
        help="Maximum number of unanswered requests per connection. 1: each waits for the previous answer.",
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        min=0.001,
        help="Messages per second over all connections. Latencies start at the scheduled time. Default: no limit.",
    ),
]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Configuration key of the new server; may be repeated."),
]
IDLE_SECONDS = 10.0
MAX_BATCH_BYTES = 12 << 20
"""A frame has at most 16 MiB. The rest is for keys and properties."""
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9, "max": 100.0}
PROGRESS_SECONDS = 0.1
GROUP = f"rocketpy-bench-{os.getpid()}"


def bench_produce(
    messages: Messages = 1_000_000,
    size: Size = 128,
    batch: Batch = 10_000,
    queues: Queues = 8,
    topic: Topic = "rocketpy-bench",
    name_server: Server = None,
    as_json: Json = False,
) -> None:
    """Send messages as fast as one Python process can, with `send_many`."""
    with cluster(name_server) as (address, pid):
        make_topic(address, topic, queues)
        meter = Meter(pid)
        fill(address, topic, messages, size, batch, quiet=as_json)
        meter.stop(messages)
    output.show_one({"topic": topic, "size_bytes": size, **meter.figures}, as_json=as_json)


def bench_consume(
    messages: Messages = 1_000_000,
    size: Size = 128,
    batch: Batch = 10_000,
    queues: Queues = 8,
    topic: Topic = "rocketpy-bench",
    arrow: Annotated[bool, typer.Option("--arrow", help="Read Arrow batches instead of objects.")] = False,
    name_server: Server = None,
    as_json: Json = False,
) -> None:
    """Read messages as fast as one Python process can. Without --name-server, a new server is filled first."""
    with cluster(name_server) as (address, pid):
        if name_server is None:
            make_topic(address, topic, queues)
            fill(address, topic, messages, size, batch, quiet=as_json)
        meter = Meter(pid)
        drain(address, topic, messages, batch, arrow, quiet=as_json)
        meter.stop(messages)
        with Admin(name_servers=address, **WAITING) as admin:
            admin.delete_group(GROUP)
    how = "Arrow" if arrow else "objects"
    output.show_one({"topic": topic, "how": how, "size_bytes": size, **meter.figures}, as_json=as_json)


def bench_send(
    messages: Messages = 1_000_000,
    size: Size = 128,
    batch: SendBatch = 1,
    connections: Connections = 64,
    threads: Threads = 1,
    window: Window = 1,
    rate: Rate = None,
    queues: Queues = 8,
    topic: Topic = "rocketpy-bench",
    settings: Settings = [],  # noqa: B006 - typer takes no other default
    name_server: Server = None,
    as_json: Json = False,
) -> None:
    """Send messages over many connections, singly or in batches, without Python in the load, and report latencies."""
    if settings and name_server is not None:
        hint = "omit --name-server to measure a new server, or configure the brokers of that cluster"
        raise CommandError("--set configures a new server, not the cluster of --name-server", ExitCode.USAGE, hint)
    if batch > 1 and batch * size > MAX_BATCH_BYTES:
        hint = f"maximum {MAX_BATCH_BYTES:,} bytes: lower --batch or --size"
        raise CommandError(f"batch exceeds the request size: {batch:,} times {size:,} bytes", ExitCode.USAGE, hint)
    pairs = [f"{key}={value}" for key, value in settings_of(settings).items()]
    with cluster(name_server, *pairs) as (address, pid):
        make_topic(address, topic, queues)
        meter = Meter(pid)
        load = _rocketpy.SendLoad(
            targets_of(address, topic),
            group=GROUP,
            size=size,
            batch=batch,
            messages=messages,
            connections=connections,
            threads=threads,
            window=window,
            rate=rate,
        )
        with output.progress(quiet=as_json) as bar:
            task = bar.add_task("send", total=messages)
            while (report := load.wait(PROGRESS_SECONDS, list(PERCENTILES.values()))) is None:
                bar.update(task, completed=load.answered)
            bar.update(task, completed=messages)
        sent, requests, refused, took, latencies = report
        if sent:
            meter.stop(sent, seconds=took)
    options = {"topic": topic, "size_bytes": size, "batch": batch, "connections": connections, "threads": threads}
    options |= {"window": window, "requests": requests}
    figures = {f"latency_{name}_us": latency for name, latency in zip(PERCENTILES, latencies, strict=True)}
    output.show_one({**options, **meter.figures, **figures}, as_json=as_json)
    if refused:
        code, remark, count = max(refused, key=lambda one: one[2])
        wanted = output.counted(messages, "message")
        raise CommandError(
            f"broker refused {messages - sent:,} of {wanted}, {count:,} with {code}: {remark}",
            ExitCode.REFUSED,
        )


def targets_of(name_server: str, topic: str) -> list[tuple[str, str, str, int]]:
    """Returns the writable queues of a topic, with the addresses of their brokers."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        brokers = [one for one in admin.describe_topic(topic).brokers if one.writable and 0 in one.addresses]
    targets = [
        (one.addresses[0], one.broker_name, topic, queue_id) for one in brokers for queue_id in range(one.write_queues)
    ]
    if not targets:
        raise CommandError(f"topic {topic} is not writable", ExitCode.REFUSED, "select another topic with --topic")
    return targets


@contextmanager
def cluster(name_server: str | None, *settings: str) -> Generator[tuple[str, int | None], None, None]:
    """Provides the cluster to measure: the named one, or a new server process with its process id."""
    if name_server is not None:
        yield name_server, None
        return
    with ended_by_signals(), tempfile.TemporaryDirectory(prefix="rocketpy-bench-") as folder:
        with ServerProcess(Path(folder, "store"), *settings) as server:
            yield server.name_server, server.pid


def make_topic(name_server: str, topic: str, queues: int) -> None:
    """Creates the topic."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        admin.create_topic(topic, queues=queues)


def fill(name_server: str, topic: str, messages: int, size: int, batch: int, *, quiet: bool) -> None:
    """Sends messages, each created separately as in an application."""
    body = os.urandom(size)
    with (
        Producer("rocketpy-bench", name_servers=name_server, **WAITING_SENDS) as producer,
        output.progress(quiet=quiet) as bar,
    ):
        task = bar.add_task("produce", total=messages)
        for first in range(0, messages, batch):
            chunk = [Message(topic, body) for _ in range(min(batch, messages - first))]
            producer.send_many(chunk)
            bar.advance(task, len(chunk))


def drain(name_server: str, topic: str, messages: int, batch: int, arrow: bool, *, quiet: bool) -> None:
    """Reads messages from the beginning, every body once."""
    with (
        Consumer(GROUP, topic, name_servers=name_server, start=Start.EARLIEST, **WAITING) as consumer,
        output.progress(quiet=quiet) as bar,
    ):
        task = bar.add_task("consume", total=messages)
        read = 0
        while read < messages:
            if arrow:
                came = consumer.fetch_columns(batch, IDLE_SECONDS).num_rows
            else:
                came = len([message.body for message in consumer.poll(batch, IDLE_SECONDS)])
            if not came:
                raise CommandError(
                    f"only {read:,} of {messages:,} messages arrived, then none for {IDLE_SECONDS:.0f} s",
                    ExitCode.NOT_FOUND,
                    "fill the topic with `rocketpy bench produce`, or lower --messages",
                )
            read += came
            bar.advance(task, came)


class Meter:
    """Wall-clock and processor time from construction until `stop`.

    Attributes:
        figures: Rates and processor seconds per million messages, after `stop`.
    """

    def __init__(self, broker: int | None) -> None:
        """Starts the measurement.

        Args:
            broker: Process id of the broker, if the broker runs on this machine and the id is known.
        """
        self.figures: dict[str, Any] = {}
        self._broker = broker
        self._began = (time.perf_counter(), time.process_time(), processor_seconds(broker))

    def stop(self, messages: int, seconds: float | None = None) -> None:
        """Stops and computes the figures.

        Args:
            messages: Number of messages that were sent or read.
            seconds: Elapsed time; default: since the construction.
        """
        clock, client, broker = self._began
        seconds = time.perf_counter() - clock if seconds is None else seconds
        cpu = time.process_time() - client
        used = processor_seconds(self._broker)
        self.figures = {
            "messages": messages,
            "seconds": round(seconds, 3),
            "messages_per_second": round(messages / seconds),
            "client_cpu_seconds_per_million": round(cpu / messages * 1e6, 3),
            "messages_per_client_cpu_second": round(messages / cpu) if cpu else None,
            "broker_cpu_seconds_per_million": (
                None if used is None or broker is None else round((used - broker) / messages * 1e6, 3)
            ),
        }


def processor_seconds(pid: int | None) -> float | None:
    """User and system seconds of a process; None if the system does not report them."""
    if pid is None:
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

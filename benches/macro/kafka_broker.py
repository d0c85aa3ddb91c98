"""One Kafka broker for a figure. Needs a JDK 17 and Maven, which brings its jars."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from messages import QUEUES
from native import output_of
from process import ROOT, Running, free_port, started

JARS = ROOT / "target" / "kafka"
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
num.partitions={queues}
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
log.dirs={folder}/log
"""
"""Topics are made by the first that writes to them. The first member of a group does not wait 3 s for others."""


def java(heap: str, *arguments: str) -> list[str]:
    return ["java", f"-Xmx{heap}", f"-Xms{heap}", "-cp", f"{JARS}/*", *arguments]


@contextmanager
def kafka() -> Iterator[Running]:
    """A broker that is its own controller; `name_server` is its address."""
    if not JARS.exists():
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        subprocess.run(copy, cwd=Path(__file__).with_name("kafka"), check=True)
    port, controller = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="kafka-bench-") as folder:
        settings = Path(folder, "server.properties")
        settings.write_text(SETTINGS.format(port=port, controller=controller, queues=QUEUES, folder=folder))
        output_of(java("64m", "kafka.tools.StorageTool", "format", "-t", "rocketpy-bench-0000000", "-c", str(settings)))
        with started(java("1g", "kafka.Kafka", str(settings)), f"127.0.0.1:{port}", folder) as running:
            yield running

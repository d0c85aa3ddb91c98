"""Senders beside a consumer that reads a backlog from a slow disk: the time of a send with and without it, in turns.

``python benches/macro/slow_disk.py`` needs root and version 1 of the kernel's blkio control group, which bounds the
server to 100 reads from the disk a second. Not a part of ``make bench``.
"""

import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rocketpy
from process import BINARY, Running, launched

BACKLOG, BODY_BYTES = 131_072, 4096
ROUNDS, ROUND_S = 6, 5.0
READS_PER_S = 100
BLKIO = Path("/sys/fs/cgroup/blkio")


@contextmanager
def slow_reads(folder: Path) -> Iterator[Path]:
    """A control group that bounds reads from the disk of ``folder``."""
    group = BLKIO / f"rocketpy-bench-{os.getpid()}"
    group.mkdir()
    try:
        partition = folder.stat().st_dev
        disk = f"{os.major(partition)}:{os.minor(partition)}"
        (group / "blkio.throttle.read_iops_device").write_text(f"{disk} {READS_PER_S}")
        yield group
    finally:
        group.rmdir()


def fill(running: Running) -> None:
    body = os.urandom(BODY_BYTES)
    with rocketpy.Producer("bench", name_servers=[running.name_server]) as producer:
        for _ in range(BACKLOG // 1024):
            producer.send_many([rocketpy.Message("backlog", body) for _ in range(1024)])


def read(running: Running, done: threading.Event, counted: list[int]) -> None:
    """Reads the backlog where the group stands until ``done``."""
    with rocketpy.Consumer(
        "readers", "backlog", name_servers=[running.name_server], start=rocketpy.Start.EARLIEST
    ) as consumer:
        while not done.is_set():
            counted.append(len(consumer.poll(max_messages=1024, timeout=0.2)))


def send_times(running: Running) -> list[float]:
    """Seconds of each send of 128 B, one after the other, for the length of a round."""
    times, until = [], time.perf_counter() + ROUND_S
    with rocketpy.Producer("bench", name_servers=[running.name_server]) as producer:
        while (started := time.perf_counter()) < until:
            producer.send(rocketpy.Message("orders", b"x" * 128))
            times.append(time.perf_counter() - started)
    return times


def print_times(name: str, times: list[float]) -> None:
    cuts = statistics.quantiles(times, n=1000)
    print(
        f"{name}: {len(times)} sends, median {statistics.median(times) * 1e6:.0f} us, p99 {cuts[989] * 1e6:.0f} us, "
        f"p99.9 {cuts[998] * 1e6:.0f} us, longest {max(times) * 1e3:.1f} ms"
    )


def main() -> None:
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "rocketpy-server"], check=True)
    with tempfile.TemporaryDirectory(prefix="rocketpy-bench-", dir="target") as folder:
        store = Path(folder, "store")
        with launched(BINARY, store, Path(folder, "first.json")) as running:
            fill(running)
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("1")
        with slow_reads(store) as group:

            def into_group() -> None:
                (group / "cgroup.procs").write_text(str(os.getpid()))

            with launched(BINARY, store, Path(folder, "second.json"), preexec=into_group) as running:
                alone: list[float] = []
                beside: list[float] = []
                counted: list[int] = []
                for _ in range(ROUNDS):
                    alone += send_times(running)
                    done = threading.Event()
                    reader = threading.Thread(target=read, args=(running, done, counted))
                    reader.start()
                    beside += send_times(running)
                    done.set()
                    reader.join()
    megabytes = sum(counted) * BODY_BYTES / 1e6
    print(f"read meanwhile: {sum(counted)} of {BACKLOG} messages, {megabytes:.0f} MB in {ROUNDS * ROUND_S:.0f} s")
    print_times("alone", alone)
    print_times("beside the reader", beside)
    ratio = statistics.median(beside) / statistics.median(alone)
    print(f"median, beside the reader to alone: {ratio:.2f}")


if __name__ == "__main__":
    main()

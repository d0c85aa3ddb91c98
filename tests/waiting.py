"""Waiting for what another process or thread brings about."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import rocketpy

PACE_SECONDS = 0.01


class Runs(Protocol):
    """A process, or what looks like one."""

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...


def wait_until(
    holds: Callable[[], object],
    what: str = "what the test waits for",
    *,
    process: Runs | None = None,
    seconds: float = 300,
) -> None:
    """Asks until something holds; fails when `process` ends before, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert process is None or process.poll() is None, f"{what}: the process ended with {process.returncode}"
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(PACE_SECONDS)


def wait_for_files(folder: str | Path, queue: rocketpy.MessageQueue, end: int) -> None:
    """Waits until the files of a queue lead to its messages before `end`, some 20 ms after they were acknowledged."""

    def is_there() -> bool:
        topics = rocketpy.StoreReader(folder).topics()
        found = [one for topic in topics if topic.name == queue.topic for one in topic.queues]
        return any(one.queue_id == queue.queue_id and one.max_offset >= end for one in found)

    wait_until(is_there, f"{queue} in its files")


def moment_between() -> float:
    """A point in time after what is stored by now and before what is stored from now on, in a store's milliseconds."""
    began_ms = time.time_ns() // 1_000_000
    wait_until(lambda: time.time_ns() // 1_000_000 > began_ms + 1)
    moment = time.time()
    wait_until(lambda: time.time_ns() // 1_000_000 > int(moment * 1000) + 1)
    return moment


def start_when_unlocked(server: rocketpy.Server) -> rocketpy.Server:
    """Starts a server on a store that an earlier server of this process is still closing behind the test's back."""

    def starts() -> bool:
        try:
            server.start()
        except rocketpy.StoreLockedError:
            return False
        return True

    wait_until(starts, "the store is unlocked")
    return server

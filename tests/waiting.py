"""Waits for conditions that other threads or processes fulfil."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import rocketpy

PACE_SECONDS = 0.01


class Runs(Protocol):
    """A process, or an object with the same two members."""

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
    """Checks a condition until it is true; fails if `process` ends first, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert process is None or process.poll() is None, f"{what}: the process ended with {process.returncode}"
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(PACE_SECONDS)


def wait_for_files(folder: str | Path, queue: rocketpy.MessageQueue, end: int) -> None:
    """Waits until the files of a queue contain its messages before `end`: about 20 ms after the acknowledgement."""

    def is_there() -> bool:
        topics = rocketpy.StoreReader(folder).topics()
        found = [one for topic in topics if topic.name == queue.topic for one in topic.queues]
        return any(one.queue_id == queue.queue_id and one.max_offset >= end for one in found)

    wait_until(is_there, f"{queue} in its files")


def moment_between() -> float:
    """Returns a time after the store times of all present messages and before those of all later ones, in seconds."""
    began_ms = time.time_ns() // 1_000_000
    wait_until(lambda: time.time_ns() // 1_000_000 > began_ms + 1)
    moment = time.time()
    wait_until(lambda: time.time_ns() // 1_000_000 > int(moment * 1000) + 1)
    return moment


def start_when_unlocked(server: rocketpy.Server) -> rocketpy.Server:
    """Starts a server on a store that an earlier server of this process is still closing in the background."""

    def starts() -> bool:
        try:
            server.start()
        except rocketpy.StoreLockedError:
            return False
        return True

    wait_until(starts, "the store is unlocked")
    return server

"""Rolling restart of two masters and two slaves under load: no acknowledged message is lost, and each one is read."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

import released
import rocketpy
from rocketpy.servers.deployment import Deployment
from waiting import wait_until

TOPIC = "orders"
SMALL = "mappedFileSizeCommitLog=1048576"
ORDER = ("broker-a-s", "broker-b-s", "broker-a", "broker-b")
"""Order of an upgrade: slaves first."""
PAUSE_SECONDS = 0.001
"""Pause between two sends, so that the reader keeps up on a busy machine."""


class Load:
    """Producer with its default settings and a group that reads, each in a thread, until the end of a `with` statement.

    Attributes:
        acknowledged: Bodies of the acknowledged messages.
        refused: Errors of sends, whose messages may be stored or not.
        read: Bodies of the messages that were read.
    """

    def __init__(self, name_server: str) -> None:
        self.name_server = name_server
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.read: set[str] = set()
        self._is_over, self._is_read = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._send, self._receive)]
        self._failure: BaseException | None = None

    def _send(self) -> None:
        with rocketpy.Producer("ingest", name_servers=self.name_server) as producer:
            number = 0
            while not self._is_over.wait(PAUSE_SECONDS):
                number += 1
                try:
                    producer.send(rocketpy.Message(TOPIC, str(number).encode()))
                    self.acknowledged.append(str(number))
                except rocketpy.RocketPyError as error:
                    self.refused.append(f"{number}: {error!r}")

    def _receive(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self._failure = error

    def _read(self) -> None:
        with rocketpy.Consumer("billing", TOPIC, name_servers=self.name_server) as consumer:
            while not self._is_read.is_set():
                messages = consumer.poll(timeout=0.5)
                self.read |= {message.body.decode() for message in messages}
                consumer.commit(wait=False)  # a commit that waits fails while its broker restarts

    def wait_for_more(self) -> None:
        """Waits until messages are acknowledged and read that are sent from now on."""
        sent, read = len(self.acknowledged) + 100, len(self.read) + 100
        self._wait_until(
            lambda: len(self.acknowledged) >= sent and len(self.read) >= read, "messages are sent and read"
        )

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        wait_until(lambda: self._failure is not None or holds(), what)
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._threads[0].join()
        try:
            if error is None:
                self._wait_until(lambda: {*self.acknowledged} <= self.read, "each acknowledged message is read")
        finally:
            self._is_read.set()
            self._threads[1].join()


def roll(folder: Path, before: Path | None, after: Path | None) -> None:
    """Starts a deployment with one program, and each broker in turn with another one, under load."""
    with released.first_on_path(before):
        deployment = Deployment(folder, "2m-2s-sync", SMALL)
        deployment.start()
    try:
        with rocketpy.Admin(deployment.name_server, api_timeout=60) as admin:
            admin.create_topic(TOPIC, queues=4)
        with Load(deployment.name_server) as load:
            load.wait_for_more()
            for name in ORDER:
                deployment.processes[name].stop()
                with released.first_on_path(after):
                    deployment.processes[name].start()
                deployment.wait_until_together()
                load.wait_for_more()
        deployment.stop()
        print(f"{len(load.acknowledged)} messages acknowledged and read, sends that failed: {load.refused}")
    except BaseException:
        deployment.kill()
        raise


def test_rolling_restart_loses_no_message(tmp_path: Path):
    roll(tmp_path / "cluster", None, None)


@pytest.mark.soak
@pytest.mark.parametrize("way", ["upgrade", "back"])
def test_rolling_change_of_the_program_loses_no_message(tmp_path: Path, way: str):
    program = released.unpack(tmp_path / "program")
    before, after = (program, None) if way == "upgrade" else (None, program)
    roll(tmp_path / "cluster", before, after)

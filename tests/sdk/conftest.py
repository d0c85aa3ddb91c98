"""What the tests of the Python face share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

import ports
import rocketpy
import rocketpy.testing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHILD_SECONDS = 300


@pytest.fixture
def child(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python source in a process of its own, with warnings as errors, and gives what it wrote and how it ended.

    One that does not end is aborted, with its children, and so writes where each thread stood.
    """

    def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(source))
        command = [sys.executable, "-W", "error", "-X", "faulthandler", str(script), *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
            try:
                output = process.communicate(timeout=CHILD_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGABRT)
                pytest.fail(f"it did not end within {CHILD_SECONDS} s:\n" + "\n".join(process.communicate()))
            except BaseException:  # Ctrl-C reaches only this process
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(command, process.returncode, *output)

    return run


class Stoppable:
    """A server in a process of its own that can be frozen: it accepts connections and answers nothing."""

    def __init__(self, folder: Path) -> None:
        source = (
            "import rocketpy, sys, time\n"
            f"with rocketpy.Server(sys.argv[1], settings={rocketpy.testing.SMALL_FILES!r}) as server:\n"
            "    print(server.name_server, flush=True)\n"
            "    sys.stdin.read()\n"
        )
        command = [sys.executable, "-c", source, str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name_server = self.process.stdout.readline().strip()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # until all its threads have stopped

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.thaw()
        self.process.communicate(timeout=CHILD_SECONDS)


@pytest.fixture
def stoppable(tmp_path: Path) -> Iterator[Stoppable]:
    server = Stoppable(tmp_path / "stoppable")
    yield server
    server.end()


@pytest.fixture
def producer(rocketpy_server: rocketpy.Server) -> Iterator[rocketpy.Producer]:
    with rocketpy_server.producer(rocketpy.testing.fresh_name("producer")) as producer:
        yield producer


@pytest.fixture
def free_port() -> int:
    """A port without a listener."""
    return ports.free_port()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketpy.Server]:
    """A server that retries after a second."""
    settings = {**rocketpy.testing.SMALL_FILES, "messageDelayLevel": "1s 2s 1s 1s 1s"}
    with rocketpy.testing.PatientServer(tmp_path_factory.mktemp("push") / "store", settings=settings) as server:
        yield server


@pytest.fixture
def topic(server: rocketpy.Server) -> str:
    topic = rocketpy.testing.fresh_name("pushed")
    with server.admin() as admin:
        admin.create_topic(topic, queues=4)
    return topic


@pytest.fixture
def group() -> str:
    return rocketpy.testing.fresh_name("pushers")

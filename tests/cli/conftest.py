"""The commands as a user runs them: each in a process of its own, against a server in a process of its own."""

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rocketpy import Admin
from runbooks import Operator
from waiting import wait_until

COMMAND = [sys.executable, "-P", "-m", "rocketpy"]
RUN_SECONDS = 240
PATIENT = ["--timeout", "60"]
"""Tests do not fail because a machine is slow."""
STOP_SECONDS = 90

Run = Callable[..., subprocess.CompletedProcess[str]]


def run_command(
    *arguments: str, stdin: str | bytes = "", name_server: str | None = None, code: int | None = 0, **options
):
    """Runs one command to its end and checks its exit code; None means any failure."""
    where = ["--name-server", name_server] if name_server else []
    patience = PATIENT if name_server else []
    text = isinstance(stdin, str)
    result = subprocess.run(
        [*COMMAND, *patience, *arguments, *where],
        input=stdin,
        capture_output=True,
        text=text,
        timeout=RUN_SECONDS,
        **options,
    )
    as_wanted = result.returncode == code if code is not None else result.returncode != 0
    assert as_wanted, f"{arguments}\nstdout: {result.stdout}\nstderr: {result.stderr}"
    return result


class Server:
    """A `rocketpy server` (or `namesrv`, or `broker`) process."""

    def __init__(
        self, folder: Path, *arguments: str, stderr: Path | None = None, prefix: Sequence[str] = (), **options: Any
    ) -> None:
        self.ready_file = folder / f"ready-{uuid.uuid4().hex}.json"
        self.log = folder / f"{self.ready_file.stem}.log"
        with self.log.open("ab") as log, (stderr or self.log).open("ab") as errors:
            self.process = subprocess.Popen(
                [*prefix, *COMMAND, *arguments, "--ready-file", str(self.ready_file)],
                stdout=log, stderr=errors, **options,
            )  # fmt: skip
        self.ready = self._wait()

    def _wait(self) -> dict:
        try:
            wait_until(self.ready_file.exists, f"the server accepts: {self.log}", process=self.process)
            return json.loads(self.ready_file.read_text())
        except BaseException as error:
            error.add_note(self.log.read_text())
            self.process.kill()
            raise

    @property
    def name_server(self) -> str:
        return self.ready["name_server"]

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(STOP_SECONDS)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers for one test and ends those that the test left running."""
    servers: list[Server] = []

    def make(*arguments: str, **options) -> Server:
        servers.append(Server(tmp_path, *arguments, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.process.kill()
        server.process.wait()


@pytest.fixture
def operator(tmp_path: Path, start: Callable[..., Server]) -> Operator:
    """Follows the runbooks of docs/operations in the folder of one test."""
    return Operator(tmp_path, start)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server that the tests of client commands share; each takes topics and groups of its own."""
    folder = tmp_path_factory.mktemp("server")
    server = Server(folder, "server", str(folder / "store"), "--port", "0", "--name-server-port", "0",
                    "--set", "mappedFileSizeCommitLog=16777216")  # fmt: skip
    yield server
    assert server.stop() == 0, server.log.read_text()


@pytest.fixture(scope="session")
def new_server() -> type[Server]:
    """Starts a server of a file, which ends it."""
    return Server


@pytest.fixture(scope="session")
def executable() -> list[str]:
    """How `rocketpy` is started, for tests that talk to it while it runs."""
    return COMMAND


@pytest.fixture(scope="session")
def command() -> Run:
    """Runs any command line to its end."""
    return run_command


@pytest.fixture
def rocketpy(server: Server) -> Run:
    """Runs a client command against the shared server."""

    def run(*arguments: str, **options):
        return run_command(*arguments, name_server=server.name_server, **options)

    return run


@pytest.fixture
def topic(server: Server) -> str:
    """A topic of four queues that no other test uses."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    with Admin(server.name_server, api_timeout=60) as admin:
        admin.create_topic(name, queues=4)
    return name

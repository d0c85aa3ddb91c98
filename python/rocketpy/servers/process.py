"""`rocketpy server`, `namesrv` or `broker` in its own process, which can be killed and restarted on the same ports."""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rocketpy.base.clock import monotonic

START_SECONDS = 120.0
STOP_SECONDS = 90.0
LOG_TAIL_BYTES = 2000


class ServerProcessError(Exception):
    """The server process did not start, or did not stop in order."""


class ServerProcess:
    """Name server, broker or both on loopback ports, which are free ports at the first start.

    Attributes:
        store: Folder of the store; for a name server alone, the path next to which its log and its ready file are
            written.
        log: Log file with the output of the process.
        name_server: Address of the name server, once started.
        broker: Address of the broker, once started.
        inherited: File descriptors that the process keeps open.
        started_in_seconds: Duration of the last start until connections were accepted.
    """

    def __init__(self, store: Path, *settings: str, kind: str = "server") -> None:
        """Describes the server; `start` starts it.

        Args:
            store: Folder of the store.
            settings: Settings as `KEY=VALUE` texts; none for a name server alone.
            kind: `server`, `namesrv`, or `broker`, whose `name_server` is set before its start.
        """
        self.store = store
        self.kind = kind
        self.name_server = self.broker = "127.0.0.1:0"
        self.started_in_seconds = self._launched = 0.0
        self.inherited: tuple[int, ...] = ()
        self._settings = settings
        self.log = store.with_name(f"{store.name}.log")
        self._ready = store.with_name(f"{store.name}.ready.json")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None:
            raise ServerProcessError("server is not running")
        return self._process.pid

    def start(self) -> None:
        """Starts the process, on the same ports as an earlier start, and waits until it is ready.

        Raises:
            ServerProcessError: The process ended, or was not ready in time.
        """
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Starts the process; `wait_until_ready` waits for it."""
        self._ready.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-P",
            "-m",
            "rocketpy",
            self.kind,
            "--ready-file",
            str(self._ready),
            *self._arguments(),
        ]
        self._launched = monotonic()
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches this program, which then stops the server in order.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, pass_fds=self.inherited
            )

    def wait_until_ready(self) -> None:
        """Waits until a launched process accepts connections.

        Raises:
            ServerProcessError: The process ended, or was not ready in time.
        """
        if self._process is None:
            raise ServerProcessError("server is not running")
        while not self._ready.exists():
            if self._process.poll() is not None:
                raise ServerProcessError(f"the server ended with code {self._process.returncode}: {self.log_tail()}")
            if monotonic() - self._launched > START_SECONDS:
                self.kill()
                raise ServerProcessError(f"the server was not ready within {START_SECONDS:.0f} s: {self.log_tail()}")
            time.sleep(0.005)
        self.started_in_seconds = monotonic() - self._launched
        addresses = json.loads(self._ready.read_text())
        self.name_server = addresses["name_server"] or self.name_server
        self.broker = addresses["broker"] or self.broker

    def _arguments(self) -> list[str]:
        port, names_port = (address.rpartition(":")[2] for address in (self.broker, self.name_server))
        match self.kind:
            case "namesrv":
                return ["--port", names_port]
            case "broker":
                where = ["--port", port, "--name-server", self.name_server]
            case _:
                where = ["--port", port, "--name-server-port", names_port]
        return [str(self.store), *where, *(part for setting in self._settings for part in ("--set", setting))]

    def ended(self) -> int | None:
        """Exit code of a process that ended by itself; None while it runs, and after `stop` or `kill`."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """Ends the process with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stops the process in order; does nothing if it is not running.

        Raises:
            ServerProcessError: The exit code was not 0.
        """
        if self._process is None:
            return
        process, self._process = self._process, None
        process.terminate()
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerProcessError(
                f"the server did not stop within {STOP_SECONDS:.0f} s: {self.log_tail()}"
            ) from None
        if code != 0:
            raise ServerProcessError(f"the server stopped with code {code}: {self.log_tail()}")

    def log_tail(self) -> str:
        """End of the output of the server."""
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # Ctrl-C too: nothing else would end the process
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()

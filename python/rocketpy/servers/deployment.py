"""Deployments of a name server and brokers as processes of this machine, each with a folder: 2m-2s-sync and others."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from rocketpy import Admin, RocketPyError
from rocketpy.base.clock import monotonic
from rocketpy.config import PATIENT
from rocketpy.servers.process import ServerProcess, ServerProcessError

FILE = "deployment.json"
"""File with the topology and the ports of a deployment."""
LOCK = "deployment.lock"
"""Lock file, held by the starter of a deployment and all of its processes, as long as one of them runs.

Contains the process id of the starter.
"""
NAMES = "namesrv"
CLUSTER = "rocketpy"
MASTER_ID = 0
TOGETHER_SECONDS = 90.0
PACE_SECONDS = 0.05


class DeploymentError(Exception):
    """The folder has other contents or is in use, or the brokers do not find each other."""

    def __init__(self, text: str, hint: str) -> None:
        """Takes the problem and the remedy."""
        super().__init__(text)
        self.hint = hint


@dataclass(frozen=True)
class Part:
    """Broker of a deployment."""

    broker_name: str
    broker_id: int
    role: str
    """Value of `brokerRole`."""

    @property
    def name(self) -> str:
        """Name of the folder: the broker name, followed by `-s` for the first slave."""
        return self.broker_name + {0: "", 1: "-s"}.get(self.broker_id, f"-s{self.broker_id}")

    def settings(self) -> list[str]:
        """Settings of the broker. Replication ports are free ports, which slaves learn from the master."""
        replicated = [] if self.role == "MASTER" else [f"brokerRole={self.role}", "haListenPort=0"]
        read = ["slaveReadEnable=true"] if replicated else []
        names = [f"brokerClusterName={CLUSTER}", f"brokerName={self.broker_name}", f"brokerId={self.broker_id}"]
        return [*names, *replicated, *read]


def _pairs(master: str) -> tuple[Part, ...]:
    masters = tuple(Part(name, MASTER_ID, master) for name in ("broker-a", "broker-b"))
    return masters + tuple(Part(part.broker_name, 1, "SLAVE") for part in masters)


TOPOLOGIES: dict[str, tuple[Part, ...]] = {
    "single": (Part("broker-a", MASTER_ID, "MASTER"),),
    "2m": (Part("broker-a", MASTER_ID, "MASTER"), Part("broker-b", MASTER_ID, "MASTER")),
    "2m-2s-async": _pairs("ASYNC_MASTER"),
    "2m-2s-sync": _pairs("SYNC_MASTER"),
}
"""Brokers of each deployment: masters first, in the order of start and stop."""


class Deployment:
    """Name server and brokers in separate processes.

    Attributes:
        folder: Folder with a folder, a log and a ready file for each process.
        topology: Key of `TOPOLOGIES`.
        processes: Processes by name, in the order of their start.
    """

    def __init__(self, folder: Path, topology: str, *settings: str) -> None:
        """Describes a deployment; `start` starts it. An existing deployment keeps its data and its ports.

        Args:
            folder: Folder of the deployment: missing, empty, or created by an earlier start.
            topology: Key of `TOPOLOGIES`.
            settings: Settings of every broker as `KEY=VALUE` texts.

        Raises:
            DeploymentError: The folder has other contents.
        """
        self.folder, self.topology = folder, topology
        self._lock: IO[str] | None = None
        ports = _known_ports(folder, topology)
        self.processes = {NAMES: ServerProcess(folder / NAMES, kind="namesrv")}
        for part in TOPOLOGIES[topology]:
            self.processes[part.name] = ServerProcess(folder / part.name, *part.settings(), *settings, kind="broker")
        for name, process in self.processes.items():
            address = f"127.0.0.1:{ports.get(name, 0)}"
            if name == NAMES:
                process.name_server = address
            else:
                process.broker = address

    @property
    def parts(self) -> tuple[Part, ...]:
        """Brokers of the deployment."""
        return TOPOLOGIES[self.topology]

    @property
    def name_server(self) -> str:
        """Address of the name server, once started."""
        return self.processes[NAMES].name_server

    def start(
        self, begins: Callable[[str], None] = lambda name: None, is_stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Starts all processes and waits until every broker is registered and every slave follows its master.

        Args:
            begins: Called with the name of each process before its start.
            is_stopping: Returns whether to end the wait early.

        Raises:
            ServerProcessError: A process does not start.
            DeploymentError: The brokers do not find each other, or processes of an earlier start are running.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take()
        try:
            begins(NAMES)
            self.processes[NAMES].start()
            self._save()
            # A slave that has a log starts beside its master, which may have to take its own end back from it.
            ready = [
                part.name for part in self.parts if part.broker_id == MASTER_ID or (self.folder / part.name).exists()
            ]
            for name in ready:
                self._launch(name)
            for part in self.parts:
                begins(part.name)
                if part.name not in ready:
                    self._launch(part.name)
                self.processes[part.name].wait_until_ready()
                self._save()
            self.wait_until_together(is_stopping)
        except BaseException:  # Ctrl-C too: nothing else would end them
            self.kill()
            raise

    def _take(self) -> None:
        """Locks the folder. The processes inherit the lock, which outlives this process with them."""
        lock = (self.folder / LOCK).open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with lock:
                lock.seek(0)
                raise _in_use(self.folder, lock.read()) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock
        for process in self.processes.values():
            process.inherited = (lock.fileno(),)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _launch(self, name: str) -> None:
        self.processes[name].name_server = self.name_server
        self.processes[name].launch()

    def stop(self) -> None:
        """Stops all processes: masters before their slaves, which copy the rest of the log, the name server last.

        Processes that ended by themselves are skipped.

        Raises:
            ServerProcessError: A process did not stop in order. The others are stopped.
        """
        failed: list[str] = []
        for name in self.ended():
            self.processes[name].kill()
        for name in [*(part.name for part in self.parts), NAMES]:
            try:
                self.processes[name].stop()
            except ServerProcessError as error:
                failed.append(f"{name}: {error}")
        self._release()
        if failed:
            raise ServerProcessError("; ".join(failed))

    def kill(self) -> None:
        """Ends all processes with SIGKILL."""
        for process in self.processes.values():
            process.kill()
        self._release()

    def ended(self) -> dict[str, int]:
        """Exit codes of the processes that ended by themselves, by name."""
        codes = {name: process.ended() for name, process in self.processes.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def _save(self) -> None:
        ports = {
            name: int((process.name_server if name == NAMES else process.broker).rpartition(":")[2])
            for name, process in self.processes.items()
        }
        text = json.dumps({"topology": self.topology, "ports": ports}, indent=2)
        new = self.folder / f"{FILE}.new"
        new.write_text(text)
        new.replace(self.folder / FILE)

    def wait_until_together(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Waits until every broker is registered and every slave follows its master.

        Args:
            is_stopping: Returns whether to end the wait early.

        Raises:
            ServerProcessError: A process ended.
            DeploymentError: The brokers do not find each other.
        """
        wanted = {(part.broker_name, part.broker_id) for part in self.parts}
        deadline = monotonic() + TOGETHER_SECONDS
        with Admin(name_servers=self.name_server, **PATIENT) as admin:
            while not is_stopping() and not self._are_together(admin, wanted):
                if monotonic() > deadline:
                    raise DeploymentError(
                        f"brokers of {self.folder} did not find each other within {TOGETHER_SECONDS:.0f} s",
                        "see `rocketpy ha status` and the logs of the brokers",
                    )
                time.sleep(PACE_SECONDS)

    def _are_together(self, admin: Admin, wanted: set[tuple[str, int]]) -> bool:
        for name, code in self.ended().items():
            raise ServerProcessError(f"{name} ended with code {code}: {self.processes[name].log_tail()}")
        with contextlib.suppress(RocketPyError):  # none of them is registered yet
            there = {
                (broker.broker_name, number): address
                for broker in admin.brokers()
                for number, address in broker.addresses.items()
            }
            slaves = sum(number != MASTER_ID for _, number in wanted)
            masters = [there[one] for one in wanted if one[1] == MASTER_ID] if wanted <= there.keys() else []
            near = sum(slave.is_near for address in masters if slaves for slave in admin.ha_status(address).slaves)
            return bool(masters) and near >= slaves
        return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()


def _in_use(folder: Path, starter: str) -> DeploymentError:
    """Error of a folder whose deployment is running, with or without its starter."""
    if starter.isdecimal() and _runs(int(starter)):
        return DeploymentError(
            f"deployment in {folder} is already running (process {starter})", "stop it, or name another folder"
        )
    servers = ((json.loads(file.read_text())["pid"], file.name) for file in folder.glob("*.ready.json"))
    pids = sorted(pid for pid, name in servers if _runs(pid, name))
    return DeploymentError(
        f"processes of an earlier `cluster up` of {folder} are still running: {', '.join(map(str, pids))}",
        f"stop them: `kill {' '.join(map(str, pids))}`",
    )


def _runs(pid: int, argument: str = "") -> bool:
    """Whether a process runs and has a text in its command line, because another process may have reused the id."""
    command_line = Path(f"/proc/{pid}/cmdline")
    try:
        os.kill(pid, 0)
        return not command_line.exists() or argument.encode() in command_line.read_bytes()
    except OSError:
        return False


def _known_ports(folder: Path, topology: str) -> dict[str, int]:
    """Ports of an earlier start.

    Raises:
        DeploymentError: The folder has other contents.
    """
    file = folder / FILE
    if not file.exists():
        if folder.exists() and any(_others(folder)):
            raise DeploymentError(
                f"folder is not empty and does not contain a deployment: {folder}",
                "choose a new folder, or the folder of an earlier `rocketpy cluster up`",
            )
        return {}
    try:
        found = json.loads(file.read_text())
        ports = {str(name): int(port) for name, port in found["ports"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DeploymentError(f"cannot read {file}: {error}", "remove the file to choose another topology") from error
    if found.get("topology") != topology:
        raise DeploymentError(
            f"{folder} holds a deployment {found.get('topology')}, not {topology}",
            f"name another folder, or give --topology {found.get('topology')}",
        )
    return ports


def _others(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.name not in (f"{FILE}.new", LOCK))

"""Runs a master, two slaves, a name server and clients for hours, and fails if messages are lost or a process grows.

    python benches/macro/endurance.py --minutes 120 --json endurance.json

Memory, mapped files, descriptors, threads and store files are sampled every 10 s. A figure grew if its median in the
last sixth of the run exceeds its median in the second sixth by more than a margin (`endurance_samples.MARGINS`).
Retention removes files all the time: stores are limited to 64 MiB. One slave restarts every 10 minutes. Ctrl-C ends
the run with a report of its part. Runs shorter than half an hour check only that no message is lost.
"""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

import endurance_samples as samples
from process import free_port
from rocketpy import _rocketpy
from rocketpy.servers.process import ServerProcess, ServerProcessError

SAMPLE_SECONDS, PROGRESS_SECONDS = 10.0, 60.0
RESTART_SECONDS = 600.0
JUDGED_MINUTES = 30
STOP_SECONDS = 600.0
SETTINGS = (
    "mappedFileSizeCommitLog=4194304",
    "mappedFileSizeConsumeQueue=40000",
    "maxHashSlotNum=20000",
    "maxIndexNum=40000",
    "retentionMaxBytes=67108864",
    "cleanResourceInterval=2000",
    "deleteFileBatchMax=10",
    "messageDelayLevel=1s 2s 3s 4s 5s 6s 8s 10s 15s 20s",
    "transactionTimeOut=2000",
    "transactionCheckInterval=2000",
    "traceTopicEnable=true",
    "autoCreateTopicEnable=false",
    "brokerClusterName=endurance",
    "brokerName=pair",
    "metricsExporterType=PROM",
)
"""Small files and short times, so that files are removed, and retries and check-backs happen, all the time."""
ROLES = {
    "master": ("brokerId=0", "brokerRole=SYNC_MASTER", "haListenPort=0"),
    "slave": ("brokerId=1", "brokerRole=SLAVE", "slaveReadEnable=true"),
    "restarted slave": ("brokerId=2", "brokerRole=SLAVE", "slaveReadEnable=true"),
}


class Stopped(Exception):
    """SIGINT or SIGTERM."""


class Clients:
    """Client process, and its latest report."""

    def __init__(self, name_server: str, folder: Path, seconds: float) -> None:
        program = Path(__file__).with_name("endurance_clients.py")
        command = [sys.executable, str(program), name_server, str(folder), str(seconds)]
        self.report: dict[str, Any] = {}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.report = json.loads(line)

    def stop(self) -> None:
        """Ends the traffic, and waits for the last report."""
        with contextlib.suppress(BrokenPipeError):
            if self.process.stdin:
                self.process.stdin.close()
        self.process.wait(STOP_SECONDS)
        self._thread.join()

    def findings(self) -> list[str]:
        if self.process.returncode != 0 or not self.report.get("is_last"):
            return [f"clients ended with code {self.process.returncode} and no last report"]
        return list(self.report["findings"])


class Endurance:
    """Processes of a run, its samples and its report."""

    def __init__(self, folder: Path, minutes: float, console: Console, file: Path | None) -> None:
        self.folder, self.seconds, self.console, self.file = folder, minutes * 60, console, file
        self.series = samples.Series()
        self.restarts = 0
        self.servers = {"name server": ServerProcess(folder / "names", kind="namesrv")}
        self._ports = {name: free_port() for name in ROLES}
        for name, role in ROLES.items():
            settings = (*SETTINGS, *role, f"metricsPromExporterPort={self._ports[name]}")
            self.servers[name] = ServerProcess(folder / name.replace(" ", "-"), *settings, kind="broker")
        self.clients: Clients | None = None
        self._began = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def start(self) -> None:
        for name, server in self.servers.items():
            server.name_server = self.servers["name server"].name_server
            server.start()
            self.console.print(f"{name}: process {server.pid}, {server.store}")
        self.clients = Clients(self.servers["name server"].name_server, self.folder, self.seconds)
        self.console.print(f"clients: process {self.clients.process.pid}")
        self._began = time.monotonic()

    def run(self) -> None:
        """Samples until the end, and restarts a slave."""
        restart = min(RESTART_SECONDS, self.seconds / 3)
        next_restart, next_progress = restart, PROGRESS_SECONDS
        while (now := self.elapsed()) < self.seconds:
            self.check()
            self.sample()
            if now >= next_progress:
                self.progress()
                next_progress += PROGRESS_SECONDS
            if now >= next_restart:
                self.servers["restarted slave"].stop()
                time.sleep(2)
                self.servers["restarted slave"].start()
                self.restarts += 1
                next_restart += restart
            time.sleep(max(0.0, SAMPLE_SECONDS - (self.elapsed() - now)))
        self.sample()

    def check(self) -> None:
        """Raises an error if a process has ended."""
        for name, server in self.servers.items():
            if (code := server.ended()) is not None:
                raise ServerProcessError(f"{name} ended with code {code}: {server.log_tail()}")
        if self.clients and self.clients.process.poll() is not None:
            raise ServerProcessError(f"clients ended with code {self.clients.process.returncode}")

    def sample(self) -> None:
        at = self.elapsed()
        is_warm = at >= self.seconds / 6
        for name, server in self.servers.items():
            figures, kinds = samples.of_process(server.pid, server.store)
            if name in ROLES:
                figures |= samples.of_store(server.store)
                series = samples.series_of(f"http://127.0.0.1:{self._ports[name]}/metrics")
                if series is not None:
                    figures["series"] = series.total()
                    kinds["series"] = dict(series)
            self.series.add(at, name, figures)
            self.series.note(name, is_warm, kinds)
        if self.clients:
            figures, kinds = samples.of_process(self.clients.process.pid)
            report = self.clients.report
            self.series.add(at, "clients", figures | {name: report[name] for name in ("blocks",) if name in report})
            self.series.note("clients", is_warm, kinds)
            cluster = {name: report[name] for name in ("topics", "groups") if name in report}
            if cluster:
                self.series.add(at, "cluster", cluster)

    def progress(self) -> None:
        """A line for people."""
        latest = {str(sample["process"]): sample for sample in self.series.samples[-12:]}
        parts = [text_of(name, sample) for name, sample in latest.items() if "anonymous_bytes" in sample]
        report = self.clients.report if self.clients else {}
        counts = [f"{report.get(name, 0):,} {text}" for name, text in (("sent", "sent"), ("missing", "under way"))]
        minutes = f"{self.elapsed() / 60:.0f} min"
        self.console.print(
            f"{minutes}: {', '.join(counts)}, {report.get('failures', 0)} failures; {'; '.join(parts)}", soft_wrap=True
        )
        self.save("running", self.elapsed(), [])

    def rows(self, seconds: float) -> list[samples.Row]:
        return self.series.rows(seconds, is_judged=seconds >= JUDGED_MINUTES * 60)

    def save(self, how: str, seconds: float, found: list[str]) -> None:
        if self.file is None:
            return
        report = self.clients.report if self.clients else {}
        parts = {"how": how, "seconds": seconds, "findings": found, "clients": report, "restarts": self.restarts}
        self.file.write_text(json.dumps(parts | self.series.as_json(self.rows(seconds)), indent=1))

    def stop(self) -> list[str]:
        """Stops all processes; what went wrong."""
        found: list[str] = []
        if self.clients:
            try:
                self.clients.stop()
            except subprocess.TimeoutExpired:
                self.clients.process.kill()
                self.clients.process.wait()
            found += self.clients.findings()
        for name in ("master", "slave", "restarted slave", "name server"):
            try:
                if self.servers[name].ended() is None:
                    self.servers[name].stop()
            except ServerProcessError as error:
                found.append(f"{name}: {error}")
        return found

    def kill(self) -> None:
        if self.clients and self.clients.process.poll() is None:
            self.clients.process.kill()
        for server in self.servers.values():
            server.kill()


def text_of(process: str, sample: dict[str, Any]) -> str:
    """Main figures of a sample."""
    descriptors = sample["store_descriptors"] + sample["other_descriptors"]
    counts = f"{descriptors:.0f} descriptors, {sample['threads']:.0f} threads"
    files = f", {sample['store_files']:.0f} files" if "store_files" in sample else ""
    return f"{process} {sample['anonymous_bytes'] / samples.MIB:.1f} MiB, {counts}{files}"


def number(value: float | None, figure: str) -> str:
    if value is None:
        return ""
    return f"{value / samples.MIB:,.1f} MiB" if figure.endswith("_bytes") else f"{value:,.0f}"


def table_of(rows: list[samples.Row]) -> Table:
    table = Table("process", "figure")
    for title in ("start", "warm", "end", "maximum", "per hour", "allowed"):
        table.add_column(title, justify="right")
    table.add_column("")
    for row in rows:
        values = (row.start, row.warm, row.end, row.maximum, row.per_hour, row.allowed)
        verdict = "" if row.allowed is None else "grew" if row.has_grown else "flat"
        table.add_row(row.process, row.figure, *(number(value, row.figure) for value in values), verdict)
    return table


def write_report(run: Endurance, seconds: float, found: list[str], how: str) -> bool:
    """Prints the report and writes it as JSON; whether the run found nothing."""
    rows = run.rows(seconds)
    found = found + [f"{row.process}: {row.figure} grew" for row in rows if row.has_grown]
    report = run.clients.report if run.clients else {}
    counts = Table("reader", "stream", "acknowledged", "missing", "forbidden", "repeats")
    for count in report.get("counts", ()):
        counts.add_row(*(f"{value:,}" if isinstance(value, int) else value for value in count.values()))
    run.console.print(table_of(rows), counts)
    for event, times in report.get("events", {}).items():
        run.console.print(f"{event}: {times:,}")
    run.console.print(
        f"{how} after {seconds / 60:.1f} min, {report.get('sent', 0):,} sent, {run.restarts} restarts of a slave, "
        f"RocketPy {_rocketpy.__version__} {_rocketpy.__commit__} ({_rocketpy.__profile__})"
    )
    if seconds < JUDGED_MINUTES * 60:
        run.console.print(f"growth was not judged: that takes {JUDGED_MINUTES} minutes")
    for finding in found:
        run.console.print(f"failed: {finding}", markup=False)
    run.save(how, seconds, found)
    return not found


def on_signal(number: int, frame: FrameType | None) -> None:
    raise Stopped


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0, help="duration; default 120")
    parser.add_argument("--json", type=Path, help="file for the report with all samples")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, on_signal)
    how, found = "ended", []
    with tempfile.TemporaryDirectory(prefix="rocketpy-endurance-") as folder:
        run = Endurance(Path(folder), options.minutes, console, options.json)
        try:
            try:
                run.start()
                run.run()
            except Stopped:
                how = "interrupted"
            except (ServerProcessError, OSError) as error:
                how, found = "failed", [str(error)]
            seconds = run.elapsed()
            found += run.stop()
        finally:
            run.kill()
        passes = write_report(run, seconds, found, how)
    return 1 if not passes else 130 if how == "interrupted" else 0


if __name__ == "__main__":
    sys.exit(main())

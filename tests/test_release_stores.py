"""Stores that earlier releases left: each opens, keeps its messages and offsets, and continues waiting deliveries."""

from pathlib import Path

import pytest

import release_stores
import released
import rocketpy
from release_stores import DELAYED, GROUP, HALF, OPEN, PAYERS, PLAIN, READ, SETTINGS, TIMED, TOPIC
from rocketpy import store
from waiting import wait_until

CHECKED_SOON = {"transactionCheckInterval": 100}
"""Setting of a server that asks for the end of open transactions at once."""
ARCHIVES = sorted(release_stores.STORES.glob("*.tar.xz"))


def test_each_release_left_a_stopped_and_a_killed_store():
    versions = {path.name.rpartition("-")[0] for path in ARCHIVES}
    assert versions
    assert {release_stores.archive(version, end) for version in versions for end in release_stores.ENDS} == {*ARCHIVES}


@pytest.mark.parametrize("packed", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_store_of_a_release_opens_and_what_waited_continues(packed: Path, tmp_path: Path):
    folder = release_stores.unpack(packed, tmp_path)
    report = store.verify(folder)
    assert report.is_sound, report.problems
    assert report.waiting == release_stores.WAITING

    with rocketpy.Server(folder, settings=SETTINGS | CHECKED_SOON) as server:
        check_contents(server.name_server)


@pytest.mark.soak
@pytest.mark.parametrize("end", release_stores.ENDS)
def test_released_program_opens_the_store_that_this_program_left(end: str, tmp_path: Path):
    program = released.unpack(tmp_path / "program")
    folder = tmp_path / "store"
    with release_stores.server(folder, is_killed=end == "killed") as address:
        release_stores.fill(address)
        wait_until(lambda: release_stores.is_written(folder), "offset and transaction in the files")
    with (
        released.first_on_path(program),
        release_stores.server(folder, is_killed=False, settings=CHECKED_SOON) as address,
    ):
        check_contents(address)
    report = store.verify(folder)
    assert report.is_sound, report.problems
    assert report.waiting == store.WaitingCounts(delayed=0, timers=0, half_messages=0)


def check_contents(address: str) -> None:
    """Reads all messages of a store that waited for its server, and from the committed offset on."""
    wanted = {*PLAIN, DELAYED, TIMED, HALF, OPEN}
    commit = rocketpy.Decision.COMMIT
    with (
        rocketpy.TransactionProducer(PAYERS, lambda _: commit, name_servers=address),
        rocketpy.Consumer("audit", TOPIC, name_servers=address) as audit,
        rocketpy.Consumer(GROUP, TOPIC, name_servers=address) as group,
    ):
        came = []
        while {message.body.decode() for message in came} < wanted:
            batch = audit.poll(timeout=60)
            assert batch, {message.body for message in came}
            came += batch
        bodies = [message.body.decode() for message in came]
        assert bodies[: len(PLAIN)] == PLAIN
        assert sorted(bodies) == sorted(wanted)
        assert {message.tag for message in came[: len(PLAIN)]} == {"paid"}
        assert came[0].keys == (PLAIN[0],)
        assert came[0].properties["from"] == "fixture"
        assert group.poll(max_messages=1, timeout=60)[0].body.decode() == PLAIN[READ]

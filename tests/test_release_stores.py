"""Stores that earlier releases left: each opens, keeps its messages and offsets, and continues waiting deliveries."""

from pathlib import Path

import pytest

import release_stores
import rocketpy
from release_stores import DELAYED, GROUP, HALF, OPEN, PAYERS, PLAIN, READ, SETTINGS, TIMED, TOPIC
from rocketpy import store

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

    wanted = {*PLAIN, DELAYED, TIMED, HALF, OPEN}
    commit = rocketpy.Decision.COMMIT
    with (
        rocketpy.Server(folder, settings=SETTINGS | {"transactionCheckInterval": 100}) as server,
        server.transaction_producer(PAYERS, lambda _: commit),
        server.consumer("audit", TOPIC) as audit,
        server.consumer(GROUP, TOPIC) as group,
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

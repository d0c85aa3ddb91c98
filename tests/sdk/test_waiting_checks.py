"""`verify` and `repair` of a store in which messages wait."""

import os
from pathlib import Path

import pytest

import rocketpy
from rocketpy import Decision, store
from rocketpy.testing import fresh_name
from waiting import wait_until

UNIT_BYTES = 52
"""A unit of the log of timers."""


@pytest.fixture
def waiting_store(rocketpy_server_factory, tmp_path) -> Path:
    """A store with two delayed messages, three timers, of which one is a recall, and an open half message."""
    topic, folder = fresh_name("checked"), tmp_path / "store"
    with rocketpy_server_factory(folder, settings={"transactionTimeOut": "600000"}) as server:
        with server.producer("checks") as producer:
            for _ in range(2):
                producer.send(rocketpy.Message(topic, b"delayed", delay_level=18))
            receipts = [producer.send(rocketpy.Message(topic, b"timer", delay=after)) for after in (3600, 7200)]
            producer.recall(receipts[1])
        with server.transaction_producer("payers", lambda message: Decision.UNKNOWN) as payers:
            payers.transaction(rocketpy.Message(topic, b"over")).rollback()
            payers.transaction(rocketpy.Message(topic, b"open"))
        wait_until(lambda: has_taken_timers(folder, 3))
        live = store.verify(folder)
        assert live.is_live
        assert live.is_sound, live.problems
    return folder


def has_taken_timers(folder: Path, count: int) -> bool:
    """Whether the broker has entered this many timers in the timer log. It does so a moment after they are stored."""
    try:
        with (folder / "timerlog" / f"{0:020}").open("rb") as file:
            return any(file.read(count * UNIT_BYTES)[(count - 1) * UNIT_BYTES :])
    except FileNotFoundError:
        return False


def kinds(folder: Path) -> list[str]:
    return [problem.kind for problem in store.verify(folder).problems]


def test_what_waits_is_counted(waiting_store):
    report = store.verify(waiting_store)
    assert report.is_sound, report.problems
    assert report.waiting == store.WaitingCounts(delayed=2, timers=3, half_messages=1)


def test_wheel_and_log_of_timers_are_compared_and_made_anew(waiting_store, rocketpy_server_factory, tmp_path):
    log, wheel = waiting_store / "timerlog" / f"{0:020}", waiting_store / "timerwheel"
    sizes = {path: path.stat().st_size for path in (log, wheel)}
    with log.open("r+b") as file:
        second_at = UNIT_BYTES
        second = os.pread(file.fileno(), UNIT_BYTES, second_at)
        os.pwrite(file.fileno(), bytes(UNIT_BYTES), second_at)
        assert set(kinds(waiting_store)) == {"timers_differ"}
        os.pwrite(file.fileno(), second, second_at)
        os.pwrite(file.fileno(), b"\x40", second_at + 11)  # in the position of the unit before it
        assert kinds(waiting_store) == ["timers_differ"]
        os.pwrite(file.fileno(), second, second_at)
    assert kinds(waiting_store) == []
    aside = wheel.rename(tmp_path / "wheel")
    for size in (sizes[wheel], 5):
        with wheel.open("wb") as file:
            file.truncate(size)
        assert kinds(waiting_store) == ["timers_differ"]
    aside.rename(wheel)
    assert kinds(waiting_store) == []
    wheel.write_bytes(b"short")
    done = store.repair(waiting_store, apply=True)
    assert [action.action for action in done.actions] == ["rebuild_timers", "rebuild_timers"]
    assert kinds(waiting_store) == [], "without the files there is nothing to compare"
    with rocketpy_server_factory(waiting_store):
        pass
    report = store.verify(waiting_store)
    assert report.is_sound, report.problems
    assert report.waiting.timers == 3
    assert {path: path.stat().st_size for path in (log, wheel)} == sizes


def test_progress_that_cannot_be_is_named_with_its_file(waiting_store):
    config = waiting_store / "config"
    delays, timers = config / "delayOffset.json", config / "timercheck"
    delays.write_text('{"offsetTable":{"18":1}}')
    assert store.verify(waiting_store).waiting.delayed == 1
    sound = {path: path.read_bytes() for path in (delays, timers)}
    ahead = b'{"offsetTable":{"18":3}}'
    damaged_offset = sound[timers][:16] + (4).to_bytes(8, "big") + sound[timers][24:]
    more_taken = damaged_offset[:48] + (1 << 40).to_bytes(8, "big") + damaged_offset[56:]  # another data version
    for path, damaged, expected in (
        (delays, ahead, "progress_ahead"),
        (delays, b"{", "bad_progress"),
        (timers, more_taken, "progress_ahead"),
        (timers, damaged_offset, "bad_progress"),
        (timers, b"\xff" * 4096, "bad_progress"),
    ):
        path.write_bytes(damaged)
        [problem] = store.verify(waiting_store).problems
        assert (problem.kind, Path(problem.path)) == (expected, path)
        path.write_bytes(sound[path])
    assert store.repair(waiting_store).actions == ()
    assert kinds(waiting_store) == []

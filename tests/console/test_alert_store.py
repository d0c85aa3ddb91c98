"""Store of the alerts: bounds, restart, SIGKILL, damaged and foreign files, two consoles."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from rocketpy.console.alerts.engine import Step
from rocketpy.console.alerts.records import Alert, Channel, Entry, Notice, Silence
from rocketpy.console.alerts.rules import MAX_RULES, Rule, built_in_rules
from rocketpy.console.alerts.store import (
    FILE,
    MAX_CHANNELS,
    MAX_ENTRIES,
    MAX_NOTICES,
    AlertStore,
    SqliteStore,
    opened_store,
)
from rocketpy.errors import ConfigError, InvalidArgumentError

RULE = Rule("r1", "Lag of mail", "lag", "mail*", 5, 0, 0)
SILENCE = Silence("s1", "", "mailer", 1000, 5000, "ada", "deploy")
CHANNEL = Channel("hook", "webhook", "https://example.com/secret")
HOSTILE = "\ud800<script>\x00'; DROP TABLE item; --"


def notice(number: int, kind: str = "firing", subject: str = "mailer") -> Notice:
    return Notice(f"id{number}", number, kind, "hook", "r1", "Lag", "lag", subject, 1, 1, 0, "text")  # type: ignore[arg-type]


def entry(number: int) -> Entry:
    return Entry(number, "firing", "Lag", HOSTILE, "text", False)


STEP = Step(
    alerts={("r1", HOSTILE): Alert("r1", HOSTILE, "firing", 1, 2, 3.5, 4, None, 6)},
    counts={HOSTILE: ((1, 2.0), (3, 4.0))},
    brokers={"broker-a": True, HOSTILE: True},
    entries=[entry(1)],
    notices=[notice(1)],
)


def contents(store: AlertStore) -> tuple[object, ...]:
    return (
        store.rules,
        store.silences,
        store.channels,
        store.entries,
        store.alerts,
        store.counts,
        store.brokers,
        store.notices(),
    )


def filled(store: AlertStore) -> AlertStore:
    for item in (RULE, SILENCE, CHANNEL):
        store.put(item)
    store.commit(STEP)
    return store


def test_first_start_has_the_built_in_rules_and_a_later_one_keeps_their_changes(tmp_path: Path) -> None:
    store = opened_store(tmp_path / "data")
    assert {rule.id for rule in store.rules} == {rule.id for rule in built_in_rules()}
    disk = next(rule for rule in store.rules if rule.id == "disk")
    store.delete(next(rule for rule in store.rules if rule.id == "lag"))
    store.put(replace(disk, threshold=50))
    store.close()
    again = opened_store(tmp_path / "data")
    assert {rule.id: rule.threshold for rule in again.rules if rule.id in {"lag", "disk"}} == {"disk": 50}
    again.close()


def test_file_keeps_everything_and_is_private(tmp_path: Path) -> None:
    store = filled(opened_store(tmp_path))
    before = contents(store)
    store.close()
    again = opened_store(tmp_path)
    assert contents(again) == before == contents(filled(AlertStore()))
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
    again.delivered([notice(1)])
    again.commit(Step(alerts={("r1", HOSTILE): None}, counts={HOSTILE: None}, brokers={HOSTILE: False}))
    again.delete(CHANNEL)
    again.close()
    last = opened_store(tmp_path)
    assert (last.alerts, last.counts, last.brokers, last.notices(), last.channels) == ([], {}, ["broker-a"], [], [])
    last.close()


def test_store_in_memory_has_no_path() -> None:
    assert opened_store(None).path is None


def test_store_survives_sigkill(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[2])
        import test_alert_store
        from rocketpy.console.alerts.store import opened_store
        test_alert_store.filled(opened_store(Path(sys.argv[1])))
        print("stored", flush=True)
        sys.stdin.read()
    """)
    command = [sys.executable, "-c", script, str(tmp_path), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stored\n"
        with pytest.raises(ConfigError, match="another console uses the store of the console"):
            opened_store(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
    store = opened_store(tmp_path)
    assert contents(store) == contents(filled(AlertStore()))
    store.close()


def test_two_stores_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    store = opened_store(tmp_path)
    with pytest.raises(ConfigError, match="another console uses the store of the console"):
        opened_store(tmp_path)
    store.close()
    opened_store(tmp_path).close()


def test_file_that_is_not_sqlite_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("shopping list\n" * 100)
    with pytest.raises(ConfigError, match="not an SQLite file"):
        opened_store(tmp_path)
    assert (tmp_path / FILE).read_text() == "shopping list\n" * 100


def test_sqlite_file_of_another_program_is_refused_and_kept(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute("CREATE TABLE bookmark (url)")
    other.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(ConfigError, match="not a file of the console"):
        opened_store(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    opened_store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute("PRAGMA user_version = 2")
    file.close()
    with pytest.raises(ConfigError, match=r"version 2 of .* is not 1"):
        opened_store(tmp_path)


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    store = opened_store(tmp_path)
    for number in range(50):
        store.put(replace(RULE, id=f"r{number}", name="x" * 200))
    store.close()
    data = bytearray((tmp_path / FILE).read_bytes())
    assert len(data) > 3 * 4096
    data[2 * 4096 : 3 * 4096] = bytes(range(256)) * 16
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(ConfigError, match="the file is damaged"):
        opened_store(tmp_path)


def test_file_cut_in_the_middle_is_refused(tmp_path: Path) -> None:
    opened_store(tmp_path).close()
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(data[: len(data) // 2])
    with pytest.raises(ConfigError, match="the file is damaged"):
        opened_store(tmp_path)


@pytest.mark.parametrize("value", ["{", "[1]", '{"id": "x"}', json.dumps({"id": "x", "name": ""})])
def test_record_that_cannot_be_read_is_refused(tmp_path: Path, value: str) -> None:
    opened_store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute("UPDATE item SET value = ? WHERE id = ?", (value, '"disk"'))
    file.close()
    with pytest.raises(ConfigError, match="unreadable record"):
        opened_store(tmp_path)


def test_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(ConfigError, match="cannot use the folder of --data"):
        opened_store(tmp_path / "data")


def test_history_keeps_its_newest_lines(tmp_path: Path) -> None:
    store = opened_store(tmp_path)
    for start in range(0, MAX_ENTRIES + 500, 100):
        store.commit(Step(entries=[entry(number) for number in range(start, start + 100)]))
    store.close()
    again = opened_store(tmp_path)
    assert [one.at_ms for one in again.entries] == list(range(MAX_ENTRIES + 499, 499, -1))
    again.close()


def test_pending_notifications_are_bounded_and_repeats_are_dropped_first(tmp_path: Path) -> None:
    store = opened_store(tmp_path)
    store.commit(Step(notices=[notice(0, "repeat", "other")]))
    store.commit(Step(notices=[notice(number, subject=str(number)) for number in range(1, MAX_NOTICES + 1)]))
    assert (len(store.notices()), store.dropped, store.notices()[0].id) == (MAX_NOTICES, 1, "id1")
    store.commit(Step(notices=[notice(MAX_NOTICES + 1, "resolved", "1")]))
    assert (len(store.notices()), store.dropped, store.notices()[0].id) == (MAX_NOTICES, 2, "id2")
    store.close()
    again = opened_store(tmp_path)
    assert again.notices() == store.notices()
    again.close()


def test_repeat_is_not_queued_while_the_receiver_has_not_got_the_former_notice() -> None:
    store = AlertStore()
    store.commit(Step(notices=[notice(1)]))
    store.commit(Step(notices=[notice(2, "repeat"), notice(3, "repeat", "other")]))
    assert [one.id for one in store.notices()] == ["id1", "id3"]
    store.delivered([notice(1)])
    store.commit(Step(notices=[notice(4, "repeat")]))
    assert [one.id for one in store.notices()] == ["id3", "id4"]


def test_number_of_rules_and_channels_is_bounded() -> None:
    store = AlertStore()
    for number in range(MAX_RULES - len(store.rules)):
        store.put(replace(RULE, id=str(number)))
    with pytest.raises(InvalidArgumentError, match=f"number of rules exceeds {MAX_RULES}"):
        store.put(replace(RULE, id="one more"))
    for number in range(MAX_CHANNELS):
        store.put(replace(CHANNEL, name=str(number)))
    with pytest.raises(InvalidArgumentError, match=f"number of channels exceeds {MAX_CHANNELS}"):
        store.put(replace(CHANNEL, name="one more"))


def test_failed_write_keeps_the_state_in_memory_and_the_next_one_stores_all(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / FILE)
    store.put(CHANNEL)
    store._file.execute("PRAGMA query_only = 1")
    store.commit(STEP)
    assert "cannot write the store of the console" in str(store.error)
    assert len(store.notices()) == 1
    with pytest.raises(ConfigError, match="cannot write the store of the console"):
        store.put(RULE)
    assert RULE not in store.rules
    store._file.execute("PRAGMA query_only = 0")
    store.put(SILENCE)
    assert store.error is None
    before = contents(store)
    store.close()
    again = opened_store(tmp_path)
    assert contents(again) == before
    again.close()


def test_file_has_a_maximum_size(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / FILE)
    assert store._file.execute("PRAGMA max_page_count").fetchone()[0] * 4096 <= 256 << 20
    store.close()

"""Timers and delay levels in one open format: what waits at one broker comes at the other, after a stop and a kill.

Shows that each broker reads wheel, log and checkpoint of the other, and the progress of its levels. The gate opens what
Apache left when it was recorded; the soak run has both ways. Says nothing of
power loss, nor of times below Apache's second.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rocketpy
import sdk
import stored_answers
from apache_processes import apache_cluster
from peers import Java, rocketpy_server
from rocketpy import store

TOPIC = "timed"
MANY = 20
LEVELS_S = [1, 11, 15]
LEVELS = {"messageDelayLevel": " ".join(f"{seconds}s" for seconds in LEVELS_S)}


def send(address: str, due: dict[str, float]) -> dict[str, rocketpy.Receipt]:
    """Sends a message for each key, due so many seconds from now."""
    now = datetime.now(UTC)
    with rocketpy.Producer("timers", name_servers=[address], send_timeout=30) as producer:
        return {
            key: producer.send(
                rocketpy.Message(TOPIC, key.encode(), keys=[key], deliver_at=now + timedelta(seconds=after))
            )
            for key, after in due.items()
        }


def delay(address: str, keys: set[str], level: int) -> None:
    """Sends a message for each key, which waits as long as its level."""
    with rocketpy.Producer("delays", name_servers=[address], send_timeout=30) as producer:
        for key in keys:
            producer.send(rocketpy.Message(TOPIC, key.encode(), keys=[key], delay_level=level))


def came(address: str, group: str, wanted: set[str]) -> Counter[str]:
    """Every message of the topic until all that is wanted has come; none before its time."""
    found = sdk.came(address, TOPIC, group, wanted)
    for message in found:
        if level := message.properties.get("DELAY"):
            assert message.stored_at_ms - message.born_at_ms >= LEVELS_S[int(level) - 1] * 1000, message
        else:
            assert message.stored_at_ms >= int(message.properties["TIMER_DELIVER_MS"]), message
    return Counter(message.body.decode() for message in found)


def files_of_timers(store_folder: Path) -> set[str]:
    """What Apache keeps of timers and levels."""
    found = {str(path.relative_to(store_folder)) for path in store_folder.rglob("*") if path.is_file()}
    return {name for name in found if "timer" in name or "delay" in name or "SCHEDULE" in name}


def check_waiting(folder: Path) -> store.WaitingCounts:
    """What waits by the files that a broker left, which agree with each other."""
    report = store.verify(folder)
    kinds = {"timers_differ", "progress_ahead", "bad_progress", "bad_mark"}
    assert not [one for one in report.problems if one.kind in kinds], report.problems
    return report.waiting


APACHES = {f"a-{number}": 9 + number / 10 for number in range(MANY)}
OURS = {f"r-{number}": 13 + number / 10 for number in range(MANY)}
APACHES_LEVELS, OUR_LEVELS = ({f"{prefix}-level-{number}" for number in range(MANY)} for prefix in "ar")
ends_of_apache = pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])


def archive_name(clean: bool) -> str:
    return f"timers-{'stopped' if clean else 'killed'}"


@ends_of_apache
def test_what_waited_at_apache_when_it_was_recorded_comes_at_rocketpy(tmp_path: Path, clean: bool):
    """All of it is due by now: wheel, log and progress are older than any time in them."""
    stored_answers.unpack(archive_name(clean), tmp_path)
    assert check_waiting(tmp_path / "store").timers >= len(["a-far"])
    flags = [*stored_answers.OLD_STORE, *(f"--set={key}={value}" for key, value in LEVELS.items())]
    with rocketpy_server(tmp_path / "rocketpy", *flags, store=tmp_path / "store", clean=clean) as address:
        receipts = send(address, {"r-first": 0.3, "r-far": 36_000, "r-recalled": 2})
        delay(address, {"r-level"}, 1)
        with rocketpy.Producer("timers", name_servers=[address]) as producer:
            producer.recall(receipts["r-recalled"])
        found = came(address, "two", {"a-first", "r-first", "r-level", *APACHES, *APACHES_LEVELS})
    assert found.keys() - {"a-far"} == {"a-first", "r-first", "r-level", *APACHES, *APACHES_LEVELS}
    if clean:  # after a kill what came in the last second comes again
        assert max(found.values()) == 1, found
    assert check_waiting(tmp_path / "store").timers >= len(["r-far"])


@pytest.mark.soak
@ends_of_apache
def test_what_waits_at_one_broker_comes_at_the_other(java: Java, tmp_path: Path, clean: bool):
    with apache_cluster(java, tmp_path, LEVELS, [TOPIC], clean) as address:
        send(address, {"a-first": 1.5, "a-far": 36_000, **APACHES})
        delay(address, APACHES_LEVELS, 2)
        assert came(address, "one", {"a-first"}) == Counter(["a-first"])
    waiting = check_waiting(tmp_path / "store")
    assert waiting.timers >= len(["a-far"]), waiting
    if stored_answers.RECORDS:
        stored_answers.record(archive_name(clean), tmp_path / "store", {"version": "5.5.0"})
    known = tmp_path / "recorded"
    assert stored_answers.unpack(archive_name(clean), known) == {"version": "5.5.0"}
    assert files_of_timers(known / "store") == files_of_timers(tmp_path / "store")

    flags = [f"--set={key}={value}" for key, value in LEVELS.items()]
    with rocketpy_server(tmp_path / "rocketpy", *flags, store=tmp_path / "store", clean=clean) as address:
        receipts = send(address, {"r-first": 0.3, "r-far": 36_000, **OURS})
        delay(address, OUR_LEVELS, 3)
        with rocketpy.Producer("timers", name_servers=[address]) as producer:
            producer.recall(receipts["r-7"])
        found = came(address, "two", {"a-first", "r-first", *APACHES, *APACHES_LEVELS})
        if clean:  # after a kill what came in the last second comes again
            assert max(found.values()) == 1, found
    waiting = check_waiting(tmp_path / "store")
    assert waiting.timers >= len(["a-far", "r-far"]), waiting

    with apache_cluster(java, tmp_path, LEVELS, [TOPIC], clean) as address:
        wanted = {"a-first", "r-first", *APACHES, *OURS, *APACHES_LEVELS, *OUR_LEVELS} - {"r-7"}
        found = came(address, "three", wanted)
        assert found.keys() == wanted
        if clean:
            assert max(found.values()) == 1, found

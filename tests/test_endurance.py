"""The endurance run of `make soak` finds lost messages and figures that grow."""

import importlib
import os
from pathlib import Path

import pytest

MACRO = Path(__file__).parents[1] / "benches" / "macro"
MIB = 1 << 20
HOUR = 3600


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(MACRO))
    return importlib.import_module


@pytest.mark.parametrize(
    ("figure", "first", "per_hour", "grew"),
    [
        ("anonymous_bytes", 40 * MIB, 30 * MIB, True),
        ("anonymous_bytes", 40 * MIB, 5 * MIB, False),
        ("anonymous_bytes", 1000 * MIB, 40 * MIB, False),
        ("threads", 20, 9, True),
        ("threads", 20, 6, False),
        ("other_descriptors", 40, 6, True),
        ("store_files", 100, 60, True),
        ("resident_bytes", 40 * MIB, 900 * MIB, False),  # pages of mapped files: shown only
    ],
)
def test_a_figure_grew_if_the_last_sixth_exceeds_the_second_by_its_margin(load, figure, first, per_hour, grew):
    series = load("endurance_samples").Series()
    for seconds in range(0, 2 * HOUR, 10):
        jump = 5 * first if seconds % 600 == 0 else 0  # a median ignores it
        series.add(seconds, "master", {figure: first + per_hour * seconds / HOUR + jump})
    (row,) = series.rows(2 * HOUR, is_judged=True)
    assert row.has_grown is grew
    assert row.start == 6 * first
    assert row.warm == pytest.approx(first + per_hour / 2, rel=0.01)
    assert row.end == pytest.approx(first + per_hour * 11 / 6, rel=0.01)
    (row,) = series.rows(2 * HOUR, is_judged=False)
    assert not row.has_grown


def test_a_sample_counts_files_descriptors_and_threads(load, tmp_path: Path):
    samples = load("endurance_samples")
    before, _ = samples.of_process(os.getpid(), tmp_path)
    (tmp_path / "kept").write_bytes(b"x" * 5000)
    with (tmp_path / "kept").open() as _kept, (tmp_path / "gone").open("w") as _gone:
        (tmp_path / "gone").unlink()
        figures, kinds = samples.of_process(os.getpid(), tmp_path)
    assert figures["store_descriptors"] == 2
    assert figures["other_descriptors"] == before["other_descriptors"]
    assert (kinds["descriptors"]["store"], kinds["descriptors"]["store, deleted"]) == (1, 1)
    assert figures["threads"] == sum(kinds["threads"].values())
    assert 0 < figures["anonymous_bytes"] <= figures["resident_bytes"]
    store = samples.of_store(tmp_path)
    assert store["store_files"] == 1
    assert store["store_bytes"] >= 5000


def test_the_ledger_finds_lost_and_rolled_back_messages(load):
    ledger = load("endurance_ledger").Ledger()
    stream = ledger.stream("single", 10)
    reader = ledger.reader("push", stream)
    for number in [stream.next() for _ in range(5)]:
        if number == 4:
            stream.forbid(number)
        elif number != 3:  # its send failed: it may arrive
            stream.acknowledge(number)
    for number in (0, 0, 1, 3):
        reader.receive("single", number)
    (count,) = ledger.counts()
    assert (count.acknowledged, count.missing, count.forbidden, count.repeats) == (3, 1, 0, 1)
    assert ledger.findings() == ["push did not receive 1 of single: 2"]
    reader.receive("single", 2)
    assert ledger.findings() == []
    assert ledger.missing() == 0
    reader.receive("single", 4)
    reader.receive("other", 0)
    assert ledger.findings() == [
        "push received 1 rolled back or recalled of single",
        "push received 1 messages of other streams",
    ]

"""`tools/durations.py` and the order of parallel runs that follows from its file."""

from pathlib import Path
from types import ModuleType

import pytest

import longest_first
from tool_modules import load_tool

ROOT = Path(__file__).parents[1]
PYTEST = """<testsuites><testsuite name="pytest">
<testcase classname="tests.sdk.test_admin" name="test_one" time="2.5"/>
<testcase classname="tests.sdk.test_admin" name="test_two[a]" time="61.0"/>
<testcase classname="tests.sdk.test_admin" name="test_three" time="300.0"><failure>late</failure></testcase>
<testcase classname="python.rocketpy.testing" name="rocketpy.testing.server" time="0.5"/>
</testsuite></testsuites>"""
NEXTEST = """<testsuites><testsuite name="rocketpy-store::it">
<testcase classname="rocketpy-store::it" name="recovery::torn_tail" time="4.0"/>
</testsuite></testsuites>"""


@pytest.fixture
def durations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, with a file of its own."""
    module = load_tool("durations")
    monkeypatch.setattr(module, "FILE", tmp_path / "durations.json")
    return module


def run(durations: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["durations.py", *map(str, arguments)])
    return durations.main()


def test_update_writes_files_and_long_tests_and_check_names_those_over_the_limit(
    durations: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "pytest.xml").write_text(PYTEST)
    (tmp_path / "nextest.xml").write_text(NEXTEST)
    assert run(durations, monkeypatch, "--check") == 0, "nothing is measured"
    assert run(durations, monkeypatch, "--update", tmp_path / "pytest.xml", tmp_path / "nextest.xml") == 0
    known = durations.read()
    assert known.files == {
        "tests/sdk/test_admin.py": 63.5,
        "python/rocketpy/testing.py": 0.5,
        "rocketpy-store::it": 4.0,
    }
    assert known.tests == {
        "tests/sdk/test_admin.py::test_two[a]": 61.0,
        "rocketpy-store::it::recovery::torn_tail": 4.0,
    }
    assert capsys.readouterr().out.splitlines()[1].split() == ["61.0", "s", "tests/sdk/test_admin.py::test_two[a]"]
    assert run(durations, monkeypatch, "--check") == 1
    assert "tests/sdk/test_admin.py::test_two[a] takes 61 s" in capsys.readouterr().err


def test_an_exempt_test_may_take_longer_and_an_exemption_that_is_not_needed_is_named(
    durations: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    long, short = "tests/sdk/test_admin.py::test_two[a]", "tests/sdk/test_admin.py::test_one"
    durations.write(durations.Durations({}, {}, {long: "it starts Spark twice"}))
    (tmp_path / "pytest.xml").write_text(PYTEST)
    assert run(durations, monkeypatch, "--update", tmp_path / "pytest.xml") == 0
    assert durations.read().exempt == {long: "it starts Spark twice"}
    assert run(durations, monkeypatch, "--check") == 0
    measured = durations.read()
    durations.write(durations.Durations(measured.files, measured.tests, {**measured.exempt, short: "none"}))
    assert run(durations, monkeypatch, "--check") == 1
    assert f"{short} is exempt from the limit but stays below it" in capsys.readouterr().err


def test_a_later_run_replaces_only_the_files_that_it_measured(
    durations: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    durations.write(durations.Durations({"tests/sdk/test_admin.py": 9.0, "tests/sdk/test_gone.py": 9.0}, {}))
    (tmp_path / "nextest.xml").write_text(NEXTEST)
    assert run(durations, monkeypatch, "--report", tmp_path / "nextest.xml") == 0
    assert "rocketpy-store::it" not in durations.read().files
    assert run(durations, monkeypatch, "--update", tmp_path / "nextest.xml") == 0
    assert durations.read().files == {"tests/sdk/test_admin.py": 9.0, "rocketpy-store::it": 4.0}


def test_long_files_are_divided_between_workers_unless_their_tests_share_a_fixture():
    alone, shared = "tests/sdk/test_producer.py", "tests/interop/test_open_format.py"
    nodes = [f"{file}::test_{number}" for file in (alone, shared) for number in range(4)]
    measured = {"files": {alone: 100.0, shared: 100.0}, "tests": {nodes[0]: 40.0}}
    known = longest_first.Durations(measured, nodes)
    assert [known.seconds(node) for node in nodes[:4]] == [40.0, 20.0, 20.0, 20.0]
    units = longest_first.divided(nodes, known)
    assert [units[node] for node in nodes[:4]] == [f"{alone}#{part}" for part in (0, 1, 1, 2)]
    assert {units[node] for node in nodes[4:]} == {f"{shared}#0"}

"""`tools/stability.py`: a removal or an incompatible change of something public fails without a reason."""

import re
import shutil
from pathlib import Path

import pytest

from tool_modules import load_tool

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool():
    return load_tool("stability")


@pytest.fixture
def tree(tmp_path):
    """Copy of what the lists are read from, for planted changes."""
    shutil.copytree(
        ROOT / "python/rocketpy", tmp_path / "python/rocketpy", ignore=shutil.ignore_patterns("*.so", "__py*")
    )
    (tmp_path / "docs").mkdir()
    for page in ("configuration.md", "metrics.md"):
        shutil.copy(ROOT / "docs" / page, tmp_path / "docs")
    return tmp_path


def plant(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def listed(tool, tree: Path) -> dict[str, list[str]]:
    others = tool.others
    read = {"keys": others.keys, "exit-codes": others.exit_codes, "metrics": others.metrics}
    return {"names": tool.names(tree), **{kind: list_of(tree) for kind, list_of in read.items()}}


def test_planted_removals_and_changes_fail_until_each_has_a_reason(tool, tree):
    package = tree / "python/rocketpy"
    metrics = package / "prometheus.py"
    metrics.write_text('FAMILIES = {"rocketpy_lag": ("gauge", "Lag."), "rocketpy_sent": ("counter", "Sent.")}\n')
    old = listed(tool, tree)
    plant(metrics, "rocketpy_lag", "rocketpy_backlog")
    plant(package / "producing/producer.py", "def send_oneway(", "def send_and_forget(")
    plant(package / "_rocketpy.pyi", "order_key: str | None = None,", "order_key: str | None,")
    plant(package / "testkit.py", "QUEUES = 4", "QUEUES = 8")
    plant(package / "config.py", "CONCURRENCY = ", "CONCURRENCY = 9")
    plant(package / "errors.py", "class DiskFullError(StoreError)", "class DiskFullError(RocketPyError)")
    plant(package / "commandline/exits.py", "CONFLICT = 7", "CONFLICT = 12")
    plant(tree / "docs/configuration.md", "| `bindAddress` |", "| `listenAddress` |")
    new = listed(tool, tree)
    found = list(tool.problems(old, new, {}))
    wrong = {re.match(r"[\w-]+: ([\w.]+)", problem)[1] for problem in found}
    assert wrong >= {
        "rocketpy.Producer.send_oneway",
        "rocketpy.DiskFullError",
        "CONFLICT",
        "bindAddress",
        "rocketpy_lag",
        "rocketpy.testkit.RocketPyTestCase.new_topic",
        "rocketpy.config.PushOptions.concurrency",
    }
    assert "rocketpy.Message.__new__: the default of order_key was changed" in "\n".join(found)
    reasons: dict[str, dict[str, str]] = {"removed": {}, "changed": {}}
    for problem in found:
        table, name = re.search(r'\[(\w+)\] "([^"]+)" = ', problem).groups()
        reasons[table][name] = "planted"
    assert list(tool.problems(old, new, reasons)) == []


def test_a_removed_command_or_flag_fails_and_an_added_flag_passes(tool):
    old = tool.others.commands()
    assert "rocketpy topic describe: command" in old
    assert "rocketpy topic list --json: flag" in old
    new = [line for line in old if "topic describe" not in line and "topic list --json" not in line]
    new += ["rocketpy topic list --sort: str, default name", "rocketpy topic list FILE: Path, required"]
    found = "\n".join(tool.problems({"commands": old}, {"commands": new}, {}))
    assert "rocketpy topic describe was removed" in found
    assert "rocketpy topic list --json was removed" in found
    assert "rocketpy topic list FILE is new and required" in found
    assert "--sort" not in found


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("def rocketpy.f(a: int) -> str", "def rocketpy.f(a: int | str, b: int = 1) -> str", None),
        ("def rocketpy.f(a: int) -> str | None", "def rocketpy.f(a: int) -> str", None),
        ("def rocketpy.f(a: int | str) -> str", "def rocketpy.f(a: int) -> str", "takes every type"),
        ("def rocketpy.f(a: int) -> str", "def rocketpy.f(a: int) -> str | None", "returns another type"),
        ("def rocketpy.f(a: int) -> str", "def rocketpy.f(b: int) -> str", "a was removed or renamed"),
        ("def rocketpy.f(a: int, b: int) -> str", "def rocketpy.f(b: int, a: int) -> str", "another position"),
        ("def rocketpy.f(a: int) -> str", "def rocketpy.f(a: int, b: int) -> str", "b is new and has no default"),
        ("def rocketpy.f(a: int = 1) -> str", "def rocketpy.f(a: int = 2) -> str", "default of a"),
        ("def rocketpy.f(a: int) -> str", "def rocketpy.f(a: int, /) -> str", "no longer be named"),
        ("def rocketpy.f(*, a: int) -> str", "def rocketpy.f(a: int) -> str", None),
        ("def rocketpy.f(**o: Any) -> str", "def rocketpy.f() -> str", "was removed or has another type"),
        ("def rocketpy.f() -> str", "async def rocketpy.f() -> str", "was def, is async def"),
        ("rocketpy.C.a: int | None", "rocketpy.C.a: int", None),
        ("rocketpy.C.a: int", "rocketpy.C.a: int | None", "another type"),
        ("option rocketpy.O.a: int = 1", "option rocketpy.O.a: int | str = 1", None),
        ("option rocketpy.O.a: int = 1", "option rocketpy.O.a: int = 2", "default"),
        ("rocketpy x --a: table | json", "rocketpy x --a: table | json | csv", None),
        ("rocketpy x --a: int, default 1", "rocketpy x --a: int, default 2", "another default"),
        ("rocketpy x A: Path, required", "rocketpy x A: Path", None),
        ("rocketpy x A: Path", "rocketpy x A: Path, required", "is required"),
        ("key: 0 to 9 = 1", "key: 0 to 9 = 2", "was changed"),
    ],
)
def test_only_what_breaks_a_user_is_a_break(tool, old, new, why):
    found = list(tool.breaks([old], [new]))
    assert (found == []) if why is None else (why in found[0].text)


def test_a_reason_needs_its_difference_and_a_text(tool):
    lines = {"keys": ["key: text = none"]}
    reasons = {"removed": {"other": "gone"}, "changed": {}, "deprecated": {"gone": "use key", "key": " "}}
    found = "\n".join(tool.problems(lines, lines, reasons))
    assert '[removed] "other" does not describe a difference' in found
    assert '[deprecated] "gone" does not exist' in found
    assert '[deprecated] "key" has no reason' in found


def test_an_update_keeps_deprecated_names_only(tool, tmp_path, monkeypatch):
    reasons = tmp_path / "changes.toml"
    text = '# Rules.\n\n[removed]\n"a" = "b"\n\n[changed]\n"c" = "d"\n\n[deprecated]\n"e" = "f"\n'
    reasons.write_text(text)
    monkeypatch.setattr(tool, "LISTS", tmp_path)
    monkeypatch.setattr(tool, "REASONS", reasons)
    monkeypatch.setattr(tool, "KINDS", {"keys": lambda: ["key: text = none"]})
    tool.update()
    assert reasons.read_text() == '# Rules.\n\n[removed]\n\n[changed]\n\n[deprecated]\n"e" = "f"\n'
    assert (tmp_path / "keys.txt").read_text() == "key: text = none\n"

"""tools/ratchets.py: each figure that gets worse fails with its place, and `--update` writes none that got worse."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LIMITS = """
max_function_lines = 6
max_struct_fields = 3
assertions_per_function = 0.1
budget_minutes = 35
[structs]
"small::Settings" = "configuration"
[imports]
"app.cli" = ["python/app/cli"]
[new_area]
circle = 2
large_structs = 0
long_functions = 0
words = 0
assertions_per_function = 0.0
"""
FORMS = r"""
[[forms]]
form = '\bis no\b'
write = "is not a"
"""
GOOD = {
    "rust/small/Cargo.toml": "",
    "rust/small/src/lib.rs": "pub mod config;\npub mod send;\n",
    "rust/small/src/config.rs": """
pub struct Settings { a: u8, b: (u8, u8), c: Vec<(u8, u8)>, d: u8 }
/// A comment with a bracket { and an assert!(true)
pub fn limit() -> &'static str {
    assert!(true, "a text with a bracket {");
    "assert!(fn long() {"
}
""",
    "rust/small/src/send.rs": """
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("cannot send {0}: timeout")]
    Timeout(u8),
}
pub fn send() { tracing::info!(size = 3, "message sent"); }

#[cfg(test)]
mod tests {
    struct Large { a: u8, b: u8, c: u8, d: u8 }
    #[test]
    fn text() { assert_eq!("is no text of users", ""); }
}
""",
    "python/app/cli/main.py": "from app.cli import options\n",
    "python/app.py": 'def send(size):\n    """Sends.\n\n\n\n\n    """\n    raise ValueError(f"bad size: {size}")\n',
}
LONG_RUST = "pub fn long() {\n" + "    limit();\n" * 6 + "}\n"
LONG_PYTHON = "def long():\n" + "    print()\n" * 6


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {**GOOD, "tools/ratchets.toml": LIMITS, "tools/words.toml": FORMS}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    commit(tmp_path, minutes={"lint": 8, "tests": 20})
    ran = ratchets(tmp_path, "--update")
    assert ran.returncode == 0, ran.stdout
    return tmp_path


def commit(tree: Path, **changes: Any) -> None:
    file = tree / "tools/ratchets.json"
    old = json.loads(file.read_text()) if file.exists() else {"areas": {}, "budget_minutes": 35, "minutes": {}}
    file.write_text(json.dumps({**old, **changes}))


def committed(tree: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((tree / "tools/ratchets.json").read_text())
    return figures


def ratchets(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools/ratchets.py", "--root", tree, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def append(tree: Path, name: str, text: str) -> None:
    with (tree / name).open("a") as file:
        file.write(text)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param(
            "rust/small/src/config.rs",
            LONG_RUST,
            ["small: functions with too many lines: 1, committed: 0", "rust/small/src/config.rs:8: fn long: 8 lines"],
            id="rust function",
        ),
        pytest.param(
            "rust/small/tests/it.rs",
            LONG_RUST,
            ["small: functions with too many lines: 1, committed: 0", "rust/small/tests/it.rs:1: fn long: 8 lines"],
            id="rust test function",
        ),
        pytest.param(
            "python/app.py",
            LONG_PYTHON,
            ["python: functions with too many lines: 1, committed: 0", "python/app.py:9: def long: 7 lines"],
            id="python function",
        ),
        pytest.param(
            "rust/small/src/send.rs",
            "pub struct Queue<A, B> { a: A, b: Vec<Option<B>>, c: [u8; 2], d: u8 }\n",
            ["small: structs with too many fields: 1", "rust/small/src/send.rs:15: struct Queue: 4 fields"],
            id="struct",
        ),
        pytest.param(
            "rust/small/src/send.rs",
            '#[error(\n    "this is no \\\n    offset"\n)]\nstruct Bad;\n',
            ["small: texts with a form", 'rust/small/src/send.rs:16: error has "is no" (write: is not a): this is no'],
            id="error text",
        ),
        pytest.param(
            "rust/small/src/send.rs",
            'fn log() { warn!(name = "is no name", "{} is no queue", 3); }\n',
            ['rust/small/src/send.rs:15: log has "is no" (write: is not a): {} is no queue'],
            id="log message",
        ),
        pytest.param(
            "rust/small/src/send.rs",
            'fn hint() -> &\'static str { "there is no hint" }\n',
            ['rust/small/src/send.rs:15: hint has "is no"'],
            id="hint",
        ),
        pytest.param(
            "rust/small/src/send.rs",
            "#[derive(clap::Args)]\nstruct Flags {\n    /// This is no\n    /// flag.\n    flag: bool,\n}\n",
            ['rust/small/src/send.rs:17: help has "is no" (write: is not a): This is no flag.'],
            id="clap help",
        ),
        pytest.param(
            "python/app.py",
            'raise TypeError(f"{1} is no" " number")\n',
            ['python/app.py:9: error has "is no" (write: is not a): {1} is no number'],
            id="python exception",
        ),
        pytest.param(
            "python/app.py",
            'option = Option("--all", help="This is no help.")\n',
            ['python/app.py:9: help has "is no"'],
            id="typer help",
        ),
        pytest.param(
            "python/app.py",
            'def put(key):\n    """Puts.\n\n    Args:\n        key: A key that\n            is no blank.\n    """\n',
            ['python/app.py:13: option has "is no" (write: is not a): A key that is no blank.'],
            id="option docstring",
        ),
        pytest.param(
            "rust/small/src/config.rs",
            "fn a() {}\nfn b() {}\n",
            ["small: assertions per function: 0.25, committed: 0.5"],
            id="assertions",
        ),
    ],
)
def test_a_worse_figure_fails_with_its_place(tree: Path, name: str, text: str, expected: list[str]) -> None:
    figures = committed(tree)
    figures["areas"]["small"]["assertions_per_function"] = 0.5 if "assertions" in expected[0] else 0.1
    commit(tree, **figures)
    (tree / name).parent.mkdir(exist_ok=True)
    append(tree, name, text)
    ran = ratchets(tree)
    assert ran.returncode == 1
    for line in expected:
        assert line in ran.stdout
    assert ratchets(tree, "--update").returncode == 1, "an update does not accept it"
    assert committed(tree) == figures


def test_a_larger_circle_fails_with_the_line_of_each_tie(tree: Path) -> None:
    for name, use in {"config.rs": "use crate::send::SendError;\n", "send.rs": "use crate::config::limit;\n"}.items():
        file = tree / "rust/small/src" / name
        file.write_text(use + file.read_text())
    ran = ratchets(tree)
    assert ran.returncode == 1
    assert "small: modules in the largest circle: 2, committed: 0" in ran.stdout
    assert "rust/small/src/config.rs:1: config -> send: SendError" in ran.stdout
    assert "rust/small/src/send.rs:1: send -> config: limit" in ran.stdout


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import app.cli", "app.cli"),
        ("import app.cli.options as options", "app.cli.options"),
        ("from app.cli.options import Json", "app.cli.options.Json"),
        ("from app import cli", "app.cli"),
        ("from ..cli import main", "app.cli.main"),
        ("from .. import cli", "app.cli"),
        ("def run():\n    from app.cli import main", "app.cli.main"),
    ],
)
def test_an_import_of_a_module_that_belongs_to_others_fails_with_its_place(tree: Path, text: str, name: str) -> None:
    (tree / "python/app/spark").mkdir()
    append(tree, "python/app/spark/job.py", f"import app.client\nfrom app import clinic\n{text}\n")
    ran = ratchets(tree)
    assert ran.returncode == 1
    assert "only python/app/cli may import app.cli" in ran.stdout
    assert f"python/app/spark/job.py:{2 + len(text.splitlines())}: imports {name}" in ran.stdout
    assert ran.stdout.count(": imports ") == 1


def test_committed_minutes_over_the_budget_fail(tree: Path) -> None:
    commit(tree, minutes={"lint": 8, "tests": 28})
    ran = ratchets(tree)
    assert ran.returncode == 1
    assert "minutes of CI: 36, budget: 35" in ran.stdout
    assert "tools/ratchets.json: tests: 28" in ran.stdout


def test_measured_minutes_never_fail_and_only_lower_the_committed_ones(tree: Path) -> None:
    measured = tree / "stages.json"
    measured.write_text(json.dumps({"lint": 600, "tests": 12.3}))
    ran = ratchets(tree, "--stages", str(measured))
    assert ran.returncode == 0
    assert "lint                 measured  600.0  committed    8" in ran.stdout
    assert ratchets(tree, "--stages", str(measured), "--update").returncode == 0
    assert committed(tree)["minutes"] == {"lint": 8, "tests": 13}


def test_an_exemption_needs_a_large_struct_and_a_reason(tree: Path) -> None:
    exempt = '"small::Gone" = "a report row"\n"small::Settings" = ""'
    (tree / "tools/ratchets.toml").write_text(LIMITS.replace('"small::Settings" = "configuration"', exempt))
    ran = ratchets(tree)
    assert ran.returncode == 1
    assert "tools/ratchets.toml: small::Gone" in ran.stdout
    assert "an exemption needs a reason" in ran.stdout
    assert "tools/ratchets.toml: small::Settings" in ran.stdout


def test_an_update_writes_improved_figures(tree: Path) -> None:
    figures = committed(tree)
    figures["areas"]["small"] = {
        "circle": 9,
        "large_structs": 4,
        "long_functions": 2,
        "words": 7,
        "assertions_per_function": 0.0,
    }
    commit(tree, **figures)
    assert ratchets(tree).returncode == 0
    assert ratchets(tree, "--update").returncode == 0
    assert committed(tree)["areas"]["small"] == {
        "circle": 0,
        "large_structs": 0,
        "long_functions": 0,
        "words": 0,
        "assertions_per_function": 0.1,  # the target, although the tree has more
    }


def test_the_texts_of_a_crate_are_listed_with_their_places(tree: Path) -> None:
    ran = ratchets(tree, "--texts", "small")
    assert ran.returncode == 0
    assert ran.stdout.splitlines() == [
        "rust/small/src/send.rs:4: error: cannot send {0}: timeout",
        "rust/small/src/send.rs:7: log: message sent",
        "2 places",
    ]
    assert ratchets(tree, "--texts", "large").returncode == 2


def test_the_words_of_the_list_match_what_the_style_guide_replaces() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from ratchets import Tree
    finally:
        sys.path.pop(0)
    forms = [form.pattern for form in Tree(ROOT).forms]
    for wrong in [
        "what is not there yet is refused by name",
        "It asks for a time or a level that there is not.",
        "Most handlers that run at the same time, from 1 to 1000.",
        "how far it has come cannot be written: {0}",
        "this is no text of key=value lines: {0}",
        "bytes stand behind the value at byte: {at}",
        "another slave becomes the master: this one has left the master of before",
        "nobody holds the lock",
        "the consumer is told that it loses its queues",
        "the delivery goes on",
        "the index is made anew",
        "such a file points past the end of its queue",
        "the offset lies before the start of the queue",
        "whoever sends it",
        "pull failed, it is repeated",
        "cannot delete topic, it does not exist: {topic}",
        "queues go to another member",
        "the consumer stops while handlers run, their messages come again",
        "a message was consumed because somebody asked for it",
        "automatic commit works again",
    ]:
        assert any(form.search(wrong) for form in forms), wrong
    for right in [
        "The delay level or delivery time is out of range.",
        "Maximum number of handlers to run concurrently (1 to 1000).",
        "slave did not send its epoch list",
        "cannot save slave progress: {0}",
        "trailing bytes after the JSON value at byte {at}",
        "detached from previous master: another slave is being promoted",
        "the slave is too far behind its master",
        "the broker is no longer the master",
        "pull failed, retrying",
        "cannot delete topic that does not exist: {topic}",
        "queues handed over to another member",
        "if the file is damaged, it is restored from its backup",
    ]:
        assert not any(form.search(right) for form in forms), right

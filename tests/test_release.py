"""`tools/release.py`: version, changelog and checks of a release."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tool_modules import load_tool

ROOT = Path(__file__).parents[1]
CHANGES = "# Changes\n\n## Unreleased\n\n* New: delays.\n\n## 0.1.0 (2026-01-02)\n\n* First.\n"


@pytest.fixture(scope="module")
def tool():
    return load_tool("release")


@pytest.fixture
def tree(tmp_path):
    """A tree that is prepared for 0.1.0."""
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    stores = tmp_path / "tests/golden/stores"
    stores.mkdir(parents=True)
    for end in ("stopped", "killed"):
        (stores / f"0.1.0-{end}.tar.xz").touch()
    return tmp_path


def test_the_version_is_set_in_the_workspace_and_the_lock_of_its_packages_only(tool, tree):
    before = tomllib.loads((tree / "Cargo.lock").read_text())["package"]
    tool.set_version(tree, "7.8.9")
    assert tool.version_of(tree) == tomllib.loads((tree / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    after = tomllib.loads((tree / "Cargo.lock").read_text())["package"]
    changed = {new["name"] for old, new in zip(before, after, strict=True) if old != new}
    assert changed == {package["name"] for package in before if package["name"].startswith("rocketpy-")}
    assert {package["version"] for package in after if package["name"] in changed} == {"7.8.9"}


def test_unreleased_changes_move_under_the_version_once(tool):
    dated = tool.date_section(CHANGES, "0.2.0", "2026-03-04")
    assert "## Unreleased\n\n## 0.2.0 (2026-03-04)\n\n* New: delays.\n\n## 0.1.0" in dated
    assert tool.date_section(dated, "0.2.0", "2026-05-06") == dated
    with pytest.raises(tool.ReleaseError, match="nothing under Unreleased"):
        tool.date_section(dated, "0.3.0", "2026-05-06")
    with pytest.raises(tool.ReleaseError, match="merge the two"):
        tool.date_section(CHANGES, "0.1.0", "2026-05-06")
    with pytest.raises(tool.ReleaseError, match=r"601 words, at most 600"):
        tool.date_section(f"## Unreleased\n\n{'word ' * 601}\n", "0.2.0", "2026-05-06")


def test_the_check_names_what_a_release_lacks(tool, tree):
    tool.set_version(tree, "0.1.0")
    tool.check(tree, "0.1.0")
    with pytest.raises(tool.ReleaseError, match=r"version in Cargo.toml is 0\.1\.0, not 0\.2\.0"):
        tool.check(tree, "0.2.0")
    (tree / "tests/golden/stores/0.1.0-killed.tar.xz").unlink()
    with pytest.raises(tool.ReleaseError, match=r"store fixture is missing: .*0\.1\.0-killed"):
        tool.check(tree, "0.1.0")
    tool.set_version(tree, "0.2.0")
    with pytest.raises(tool.ReleaseError, match=r"no section 0\.2\.0"):
        tool.check(tree, "0.2.0")


def test_sections_of_the_changelog_are_short_enough_to_read(tool):
    found = tool.sections((ROOT / "CHANGELOG.md").read_text())
    assert "Unreleased" in found
    for version, text in found.items():
        tool.check_length(version, text)


def test_a_version_that_is_none_is_an_error():
    ended = subprocess.run([ROOT / "tools/release.py", "next"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "error: next is not a version such as 0.1.0 or 0.2.0rc1\n")


def test_nothing_is_uploaded_before_it_was_installed_and_run():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    before, todo = set(), ["upload"]
    while todo:
        needed = jobs[todo.pop()].get("needs", [])
        todo += [needed] if isinstance(needed, str) else needed
        before |= {needed} if isinstance(needed, str) else set(needed)
    assert before == {"run", "wheels", "sdist", "prepared"}
    assert any("tools/wheel_check.py --run" in step.get("run", "") for step in jobs["run"]["steps"])
    assert jobs["upload"]["permissions"] == {"id-token": "write", "attestations": "write", "contents": "read"}
    assert all("secrets." not in str(job) for job in jobs.values())


def test_the_commit_comes_from_git_or_from_the_file_of_an_archive(tmp_path):
    script, repository = tmp_path / "build", tmp_path / "outer"
    subprocess.run(["rustc", "--edition", "2024", "-o", script, ROOT / "rust/python/build.rs"], check=True)
    crate = repository / "unpacked/rust/python"
    crate.mkdir(parents=True)

    def told(folder: Path) -> str:
        printed = subprocess.run([script], cwd=folder, capture_output=True, text=True, check=True).stdout
        return printed.split("ROCKETPY_COMMIT=")[1].strip()

    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert told(ROOT / "rust/python") == head[:12]
    # A repository around unpacked sources is another project.
    subprocess.run(["git", "init", "--quiet", repository], check=True)
    assert told(crate) == "unknown"
    (crate / "COMMIT").write_text("0123456789abcdef0123456789abcdef01234567\n")
    assert told(crate) == "0123456789ab"

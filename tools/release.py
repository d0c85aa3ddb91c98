#!/usr/bin/env python3
"""Prepares a release, or checks that one is prepared.

    tools/release.py VERSION           sets the version, dates the section of the changelog, builds the wheel, writes
                                       lists of public names and store fixtures, and prints the next steps
    tools/release.py --check VERSION   fails unless the tree is prepared for this version, for the release workflow

A second run of the same version writes the lists and the stores again.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANGELOG = Path("CHANGELOG.md")
VERSION = re.compile(r"\d+\.\d+\.\d+(?:rc\d+)?")
MAX_WORDS = 600
"""Maximum length of the section of a release in the changelog: what a user reads before an upgrade."""
NEXT = """\
prepared {version}. Next:
  1. git diff                     # lists in tools/public, stores in tests/golden/stores, changelog
  2. .ci/run                      # everything passes
  3. git add --all && git commit -m "Release {version}" && git tag -a v{version} -m "RocketPy {version}"
  4. git push origin HEAD v{version}    # .github/workflows/release.yml builds, tests, attests and uploads
"""


class ReleaseError(Exception):
    """A tree that cannot be released, or is not prepared."""


def set_version(root: Path, version: str) -> None:
    """Writes the version of the workspace, and of its packages in the lock file."""
    manifest, lock = root / "Cargo.toml", root / "Cargo.lock"
    text, count = re.subn(
        r'(\[workspace\.package\]\nversion = )"[^"]*"', rf'\g<1>"{version}"', manifest.read_text(), count=1
    )
    if count != 1:
        raise ReleaseError("Cargo.toml has no version under [workspace.package]")
    manifest.write_text(text)
    own = re.compile(r'(name = "rocketpy-[a-z]+"\nversion = )"[^"]*"')
    lock.write_text(own.sub(rf'\g<1>"{version}"', lock.read_text()))


def version_of(root: Path) -> str:
    """Version in Cargo.toml."""
    found = re.search(r'\[workspace\.package\]\nversion = "([^"]*)"', (root / "Cargo.toml").read_text())
    return found[1] if found else ""


def sections(changelog: str) -> dict[str, str]:
    """Text of each section by the first word of its heading: `Unreleased`, then versions."""
    parts = re.split(r"^## (\S+).*\n", changelog, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def date_section(changelog: str, version: str, today: str) -> str:
    """Moves the unreleased section under the version.

    Args:
        changelog: Text of the changelog.
        version: Version of the release.
        today: Its date, ISO 8601.

    Raises:
        ReleaseError: There is nothing to release, or the section exists already, or is too long.
    """
    found = sections(changelog)
    unreleased = found.get("Unreleased", "").strip()
    if version in found:
        if unreleased:
            raise ReleaseError(f"CHANGELOG.md has a section {version}, and more under Unreleased: merge the two")
        return changelog
    if not unreleased:
        raise ReleaseError("CHANGELOG.md has nothing under Unreleased")
    check_length(version, unreleased)
    return re.sub(
        r"^## Unreleased.*\n+", f"## Unreleased\n\n## {version} ({today})\n\n", changelog, count=1, flags=re.MULTILINE
    )


def check_length(version: str, section: str) -> None:
    """Rejects a section that is too long to be read before an upgrade."""
    words = len(section.split())
    if words > MAX_WORDS:
        raise ReleaseError(f"section of {version} has {words} words, at most {MAX_WORDS}: leave details to the docs")


def check(root: Path, version: str) -> None:
    """Fails unless a tree is prepared for the version."""
    if version_of(root) != version:
        raise ReleaseError(f"version in Cargo.toml is {version_of(root)}, not {version}")
    found = sections((root / CHANGELOG).read_text())
    if version not in found:
        raise ReleaseError(f"CHANGELOG.md has no section {version}")
    check_length(version, found[version])
    for end in ("stopped", "killed"):
        store = root / f"tests/golden/stores/{version}-{end}.tar.xz"
        if not store.is_file():
            raise ReleaseError(f"store fixture is missing: {store.relative_to(root)}")


def write_with_the_wheel(version: str) -> None:
    """Writes the lists and the stores with the installed package: started by `prepare`, in the environment of make."""
    sys.path.insert(0, str(ROOT / "tests"))
    import release_stores

    with tempfile.TemporaryDirectory() as home:
        release_stores.write(version, Path(home))
    subprocess.run([sys.executable, ROOT / "tools/stability.py", "--update"], check=True)


def prepare(version: str) -> None:
    """Prepares the tree of this file."""
    changelog = ROOT / CHANGELOG
    dated = date_section(changelog.read_text(), version, datetime.now(UTC).date().isoformat())
    set_version(ROOT, version)
    changelog.write_text(dated)
    subprocess.run(["make", ROOT / ".venv/.wheel-dev"], cwd=ROOT, check=True)
    # The installed wheel: no PYTHONPATH that hides it.
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([ROOT / ".venv/bin/python", __file__, "--write", version], cwd=ROOT, check=True, env=bare)
    print(NEXT.format(version=version), end="")


def main() -> int:
    """Runs the command line; the exit code is 1 for a tree that is not ready."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="check only")
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("version", help="version of the release, such as 0.1.0")
    arguments = parser.parse_args()
    version = arguments.version.removeprefix("v")
    try:
        if not VERSION.fullmatch(version):
            raise ReleaseError(f"{version} is not a version such as 0.1.0 or 0.2.0rc1")
        if arguments.check:
            check(ROOT, version)
        elif arguments.write:
            write_with_the_wheel(version)
        else:
            prepare(version)
    except (ReleaseError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

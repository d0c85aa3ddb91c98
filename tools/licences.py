#!/usr/bin/env python3
"""Writes THIRD-PARTY-LICENSES.txt: every component that the wheel links or is built with, and the licence texts of all.

    tools/licences.py            writes the file
    tools/licences.py --check    fails when the file is not what the dependencies require

The components are those of the wheel's SBOM: the dependencies of rust/python for running and for building, of every
platform. Their texts come from the sources that cargo has downloaded, so nothing is fetched. A crate without a licence
file gets the SPDX text of tools/licences.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FILE = ROOT / "THIRD-PARTY-LICENSES.txt"
WHEEL = "rocketpy-python"
LICENCE_FILE = re.compile(r"(?i)(?:un)?licen[cs]e|copying|notice|copyright")
SOURCE_CODE = {".rs", ".py", ".html", ".toml", ".c", ".h", ".sh"}
LINE = "=" * 100
HEADER = f"""Licences of the components of RocketPy's wheel

tools/licences.py makes this file from Cargo.lock and the sources of the crates. RocketPy itself is under the Apache
License 2.0 (LICENSE). The list of components is first, then every licence text and notice with its components.

The Rust standard library is linked too: Copyright (c) The Rust Project Contributors, MIT OR Apache-2.0.
The Python package contains no third-party Python code.

{LINE}
"""


class Component(NamedTuple):
    """A crate of the wheel, with its texts."""

    name: str
    version: str
    licence: str
    texts: dict[str, str]


def components(metadata: dict[str, Any]) -> list[Component]:
    """Third-party crates that the wheel's crate reaches, without those that only tests use."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    open_ids = [package["id"] for package in metadata["packages"] if package["name"] == WHEEL]
    seen = set(open_ids)
    while open_ids:
        for dependency in nodes[open_ids.pop()]["deps"]:
            used = any(kind["kind"] in (None, "build") for kind in dependency["dep_kinds"])
            if used and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                open_ids.append(dependency["pkg"])
    found = [packages[package] for package in seen if packages[package]["source"]]
    return [component(package) for package in sorted(found, key=lambda package: (package["name"], package["version"]))]


def component(package: dict[str, Any]) -> Component:
    """A crate with the texts of its folder, or those of its SPDX expression."""
    folder = Path(package["manifest_path"]).parent
    if not folder.is_dir():
        sys.exit(f"error: no sources of {package['name']} {package['version']}\nhint: run `cargo fetch --locked`")
    files = (path for path in sorted(folder.rglob("*")) if LICENCE_FILE.match(path.name) and path.is_file())
    texts = {
        str(path.relative_to(folder)): normal(path.read_text(errors="replace"))
        for path in files
        if path.suffix not in SOURCE_CODE
    }
    licence = package["license"] or "see the text"
    if not texts:
        expression = re.split(r"\W+(?:OR|AND)\W+|/", licence)
        known = [ROOT / f"tools/licences/{name}.txt" for name in expression]
        texts = {f"SPDX text {path.stem}": normal(path.read_text()) for path in known if path.is_file()}
        if not texts:
            sys.exit(f"error: no text of {licence} for {package['name']}\nhint: add its SPDX text to tools/licences")
    return Component(package["name"], package["version"], licence.replace("/", " OR "), texts)


def normal(text: str) -> str:
    """A text with one kind of line ends, without blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.expandtabs().splitlines()).strip("\n")


def made(found: list[Component]) -> str:
    """The file."""
    owners: dict[str, list[str]] = defaultdict(list)
    shown: dict[str, str] = {}
    for crate in found:
        for name, text in crate.texts.items():
            key = re.sub(r"\s+", "", text)
            shown.setdefault(key, text)
            owner = f"{crate.name} {crate.version}" + (f" ({name})" if "/" in name else "")
            if key and owner not in owners[key]:
                owners[key].append(owner)
    rows = [f"{crate.name} {crate.version}: {crate.licence}" for crate in found]
    texts = [f"{LINE}\n{', '.join(names)}\n\n{shown[key]}\n" for key, names in owners.items()]
    return HEADER + "\n" + "\n".join(rows) + "\n\n" + "\n".join(texts)


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode:
        print(f"error: cannot read the dependencies: {ran.stderr}hint: run `cargo fetch --locked`", file=sys.stderr)
        return 1
    text = made(components(json.loads(ran.stdout)))
    if not is_check:
        FILE.write_text(text)
    elif not FILE.is_file() or FILE.read_text() != text:
        print(f"error: {FILE.name} is out of date\nhint: run `tools/licences.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the programs of this folder have measured: a file for each release, with a part for each program."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benches" / "results"
CHARTS = ROOT / "target" / "figures"
"""Charts that no page shows."""


def path() -> Path:
    """The file of this release."""
    package = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    return FOLDER / f"{package['version']}.json"


def releases() -> list[Path]:
    """The files, that of the newest release first."""
    return sorted(FOLDER.glob("*.json"), key=lambda file: [int(n) for n in re.findall(r"\d+", file.stem)], reverse=True)


def load(program: str) -> dict[str, Any]:
    """What a program has measured, in the newest release that it was run for; empty for none."""
    return next((parts[program] for file in releases() if program in (parts := json.loads(file.read_text()))), {})


def save(program: str, part: dict[str, Any]) -> Path:
    """Writes what a program has measured for this release, and leaves the parts of the others as they are."""
    file = path()
    parts = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(dict(sorted((parts | {program: part}).items())), indent=1) + "\n")
    return file


def save_rows(program: str, machine: dict[str, Any], rows: dict[str, Any]) -> Path:
    """Writes rows; those that were not taken now stay as they are."""
    return save(program, {"machine": machine, "rows": load(program).get("rows", {}) | rows})

"""Stored answers of Apache's brokers: the stores that they left, and what they said of them, in tests/interop/answers.

The gate compares RocketPy with these, because a start of Apache's brokers takes long. `RECORD_APACHE=1 pytest -m soak
tests/interop` records them from the real brokers; without the variable the same tests check that Apache's answers have
not changed. Archives grow old: a test must not depend on the time since the recording.
"""

import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).parent / "answers"
RECORDS = os.environ.get("RECORD_APACHE") == "1"
OLD_STORE = ("--set=fileReservedTime=1000000",)
"""Flags of a broker of RocketPy that opens a recorded store: retention removes nothing."""


def archive(name: str) -> Path:
    return ANSWERS / f"{name}.tar.xz"


def record(name: str, store: Path, answers: dict[str, Any]) -> None:
    """Keeps the store that a broker of Apache left, and its answers; `version` is that of the broker."""
    assert "version" in answers
    told = store.parent / "answers.json"
    told.write_text(json.dumps(answers, indent=1, sort_keys=True))
    ANSWERS.mkdir(exist_ok=True)
    names = [f"--transform=s,^{store.name},store,", store.name, told.name]
    command = ["tar", "--create", "--xz", "--sparse", "--owner=0", "--group=0", "--numeric-owner", "--sort=name"]
    command += [f"--file={archive(name)}", f"--directory={store.parent}", *names]
    subprocess.run(command, check=True, env=os.environ | {"XZ_OPT": "-9e"})
    told.unlink()


def unpack(name: str, home: Path) -> dict[str, Any]:
    """Puts a store into `home/store`, and returns the answers of its broker."""
    with tarfile.open(archive(name)) as packed:
        packed.extractall(home, filter="data")
    return json.loads((home / "answers.json").read_text())

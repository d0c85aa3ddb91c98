#!/usr/bin/env python3
"""Checks of built wheels: size, the platform that auditwheel finds, and one message sent after an installation.

tools/wheel_check.py WHEEL...                  the size
tools/wheel_check.py --policy TAG WHEEL...     the platform tag too: of the file name, and by auditwheel
tools/wheel_check.py --run WHEEL...            installs each into a new environment and sends a message
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

MAX_BYTES = 12_000_000
PROGRAM = """
import rocketpy, sys
with rocketpy.Server(sys.argv[1], settings={"mappedFileSizeCommitLog": 16 << 20}) as server:
    with server.admin() as admin:
        admin.create_topic("check", queues=1)
    with server.producer("check") as producer:
        producer.send(rocketpy.Message("check", b"hello"))
    with server.consumer("check", "check") as consumer:
        assert next(consumer).body == b"hello"
"""


def check_size(wheel: Path) -> str:
    """Compares the size with the limit."""
    size = wheel.stat().st_size
    if size > MAX_BYTES:
        sys.exit(f"{wheel.name} has {size:,} bytes, maximum: {MAX_BYTES:,}")
    return f"{size / 1e6:.1f} MB"


def version_of(symbol: str) -> list[int]:
    """Numbers of a symbol's version, such as 2 and 28 of GLIBC_2.28."""
    return [int(number) for number in re.findall(r"\d+", symbol)]


def check_policy(wheel: Path, policy: str) -> str:
    """Compares the platform tag of the file name and of auditwheel with the expected one."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    needed = max(found["versioned_symbols"].get("libc.so.6", ["none"]), key=version_of)
    if found["overall_tag"] != policy or not wheel.stem.endswith(policy):
        sys.exit(f"{wheel.name} is for {found['overall_tag']} by auditwheel, expected: {policy}; needs {needed}")
    if found["external_libs"]:
        sys.exit(f"{wheel.name} needs libraries that {policy} does not have: {', '.join(found['external_libs'])}")
    return f"auditwheel: {policy}, needs {needed}"


def check_run(wheel: Path) -> str:
    """Installs a wheel with its dependencies, sends a message, and runs `rocketpy doctor`."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:

        def run(*line: str | Path) -> str:
            ran = subprocess.run(line, check=True, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True)
            return ran.stdout.strip()

        environment = Path(folder, "venv")
        venv.create(environment, with_pip=True)
        python, command = environment / "bin" / "python", environment / "bin" / "rocketpy"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel.resolve())
        run(python, "-c", PROGRAM, Path(folder, "store"))
        run(command, "doctor", "--json")
        version = run(command, "--version")
    if "release build" not in version:
        sys.exit(f"{wheel.name} is not a release build: {version}")
    return f"run with Python {sys.version_info[0]}.{sys.version_info[1]}: {version}"


def main() -> None:
    """Checks every wheel; the first failed check ends the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", metavar="TAG")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    options = parser.parse_args()
    for wheel in options.wheels:
        facts = [check_size(wheel)]
        if options.policy:
            facts.append(check_policy(wheel, options.policy))
        facts.append(check_run(wheel) if options.run else "built, not run")
        print(f"{wheel.name}: {', '.join(facts)}")


if __name__ == "__main__":
    main()

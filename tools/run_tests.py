"""Runs the Rust tests and pytest side by side: both are built, and most of their time they wait.

Each writes to its log in target/tests. The output of the first is printed as it comes, then that of the other. The
exit code is 0 when both pass. Ctrl-C ends both.

    tools/run_tests.py "OPTIONS OF CARGO" [OPTION OF PYTEST...]
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "target" / "tests"
STAGES = ROOT / "target" / "stages.tsv"
CLOSING = LOGS / "closing"
"""What .ci/run repeats in the end."""
COLOR = re.compile(r"\x1b\[[0-9;]*m")
CLOSES = re.compile(
    r" *Summary \[|=+ .*\d (passed|failed|error|skipped|deselected|xfailed|warning).* in [\d.]+s|=+ no tests ran in "
)
"""Closing lines of nextest and pytest; nextest prints the output of failed tests behind its own."""
NICE = 5
"""For the Rust tests, which compute: Spark ends a job whose Python worker does not start within 10 s."""
GIVE_UP_AFTER = 30
"""Seconds that both get to end after a signal."""


class Part:
    """One of the two, in a process group of its own."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.log = LOGS / f"{name.replace(' ', '-')}.log"
        self.started = time.monotonic()
        self.seconds: float | None = None
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def give_way(self) -> None:
        """Lowers its priority. Linux compares sessions with each other, so the value of the whole session counts."""
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PGRP, self.process.pid, NICE)
            Path(f"/proc/{self.process.pid}/autogroup").write_text(str(NICE))

    def has_ended(self) -> bool:
        """Whether it has; notes when that is seen first."""
        if self.process.poll() is None:
            return False
        if self.seconds is None:
            self.seconds = time.monotonic() - self.started
            with STAGES.open("a") as stages:
                stages.write(f"{self.name}\t{self.seconds:.0f}\t{self.process.returncode}\n")
        return True

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal, and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def closing_line(self) -> str:
        """What it says in the end, or how it ended."""
        lines = COLOR.sub("", self.log.read_text(errors="replace")).splitlines()
        found = [line for line in lines if CLOSES.match(line)]
        return found[-1].strip() if found else f"{self.name}: exit code {self.process.returncode}, no closing line"


def commands(cargo_options: str, pytest_options: list[str]) -> dict[str, list[str]]:
    """The two, by their stage."""
    rust = ["cargo", "nextest", "run", *cargo_options.split(), "--profile", "ci"]
    python = [sys.executable, "-m", "pytest", "-n", "4", "--dist", "loadfile", "--junitxml", "target/tests/pytest.xml"]
    color = ["always", "yes"] if sys.stdout.isatty() else ["never", "no"]
    return {"rust tests": [*rust, "--color", color[0]], "pytest": [*python, f"--color={color[1]}", *pytest_options]}


def follow(part: Part, others: list[Part]) -> None:
    """Prints the log of a part until that has ended."""
    with part.log.open("rb") as log:
        is_last = False
        while True:
            while block := log.read(1 << 16):
                sys.stdout.buffer.write(block)
                sys.stdout.buffer.flush()
            if is_last:
                return
            is_last = part.has_ended()
            for other in others:
                other.has_ended()
            if not is_last:
                time.sleep(0.2)


def end(parts: list[Part]) -> None:
    """Interrupts both; what has not ended in time is killed."""
    for part in parts:
        part.signal(signal.SIGINT)
    deadline = time.monotonic() + GIVE_UP_AFTER
    while not all(part.has_ended() for part in parts) and time.monotonic() < deadline:
        time.sleep(0.1)
    for part in parts:
        part.signal(signal.SIGKILL)


def interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Ends the run in the way of Ctrl-C."""
    raise KeyboardInterrupt


def main() -> int:
    """Starts both, prints what they print, and returns the exit code."""
    LOGS.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    print(f"seeds of kill tests: ROCKETPY_TEST_SEED={os.environ.get('ROCKETPY_TEST_SEED', '')}", flush=True)
    parts: list[Part] = []
    try:
        for name, command in commands(sys.argv[1], sys.argv[2:]).items():
            print(f"{name}: {' '.join(command)}", flush=True)
            parts.append(Part(name, command))
        parts[0].give_way()
        for part in parts:
            print(f"---- {part.name}", flush=True)
            follow(part, parts)
    except KeyboardInterrupt:
        end(parts)
        return 130
    CLOSING.write_text("".join(part.closing_line() + "\n" for part in parts))
    print(CLOSING.read_text(), end="", flush=True)
    return int(any(part.process.returncode for part in parts))


if __name__ == "__main__":
    sys.exit(main())

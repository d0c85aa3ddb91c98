"""Programs that drive Spark in processes of their own, and their ends by SIGKILL."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from waiting import wait_until


class Program:
    """A driver in a process group of its own. `end_all` ends those that a test left."""

    started: ClassVar[list["Program"]] = []

    def __init__(self, *command: str | Path, log: Path, submit: str | None = None) -> None:
        environment = {**os.environ, "PYTHONWARNINGS": "default", "PYSPARK_PYTHON": sys.executable}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
        if submit is not None:  # what spark-submit would be told
            environment["PYSPARK_SUBMIT_ARGS"] = f"{submit} pyspark-shell"
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, *command], stdout=out, stderr=out, start_new_session=True, env=environment
            )

        self.started.append(self)

    @classmethod
    def end_all(cls) -> None:
        """Kills what still runs, as after a failed test."""
        for one in cls.started:
            if one.process.poll() is None:
                one.kill()
        cls.started.clear()

    def kill(self) -> None:
        """Kills the driver and its JVM, and waits until their workers are gone, which end by themselves."""
        mine = descendants(self.process.pid)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in mine), "the workers of a killed driver end")

    def kill_a_worker(self, chance: random.Random) -> bool:
        """Kills one of the processes that run tasks. False where there is none."""
        workers = [pid for pid in descendants(self.process.pid) if is_worker(pid)]
        return bool(workers) and end(chance.choice(workers))

    def succeeded(self) -> bool | None:
        """Whether it ended well; None while it runs."""
        code = self.process.poll()
        return None if code is None else code == 0


def end(pid: int) -> bool:
    """Kills a process. False if it is gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    found: list[int] = []
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return found
    for child in children:
        found += [child, *descendants(child)]
    return found


def is_worker(pid: int) -> bool:
    """Whether a process is a fork of a daemon of Spark's workers."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
        parent = int(status.rpartition(")")[2].split()[1])
        return all(
            b"pyspark.daemon\0pyspark.worker" in Path(f"/proc/{one}/cmdline").read_bytes() for one in (pid, parent)
        )
    except OSError:
        return False


def program(name: str, log: Path, **given: object) -> Program:
    """Starts a program of tests/spark with its arguments as JSON."""
    return Program(Path(__file__).parent / "spark" / name, json.dumps(given), log=log)

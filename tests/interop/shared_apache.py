"""Keeps a cluster of Apache for all processes of a run, until process PID ends: `shared_apache.py FOLDER PID`."""

import os
import sys
import time
from pathlib import Path

from apache_processes import SHARED_SETTINGS, apache_cluster
from peers import set_up_java

PACE_SECONDS = 0.2


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def keep(folder: Path, pid: int) -> None:
    with apache_cluster(set_up_java(), folder / "cluster", SHARED_SETTINGS) as address:
        written = folder / "address.new"
        written.write_text(address)
        written.rename(folder / "address")
        while runs(pid):
            time.sleep(PACE_SECONDS)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), int(sys.argv[2]))

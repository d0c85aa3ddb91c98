"""An empty slave that takes the whole log of its master, beside a bare copy of the same bytes over a socket.

    python benches/macro/catch_up.py --gib 10 --rounds 3 --save

Both go over loopback into new files on the same disk, in turns. The bare copy sends each file with `sendfile`, and
writes what it receives, 1 MiB at a time, without a look: it does less than a slave, which checks each record and writes
consume queues and index. The time of a slave is from its start to the moment at which its master knows that it has
everything.
"""

import argparse
import os
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console

import results
import rocketpy
from process import ROOT, Running, built_server, cpu_seconds, launched

BUFFER_BYTES = 1 << 20
PAIR = ("--set", "brokerName=pair", "--set", "brokerClusterName=pairs", "--set", "diskMaxUsedSpaceRatio=95")
SLAVE = (*PAIR, "--set", "brokerRole=SLAVE", "--set", "brokerId=1")
WITHIN_S = 1200


def fill(name_server: str, size_bytes: int, body_bytes: int, console: Console) -> None:
    """Sends bodies until the log is that long."""
    with rocketpy.Admin(name_servers=[name_server]) as admin:
        admin.create_topic("load", queues=8)
    bodies = [os.urandom(body_bytes) for _ in range(200)]
    with rocketpy.Producer("load", name_servers=[name_server]) as producer, console.status("filling the log") as status:
        sent = 0
        while sent < size_bytes:
            receipts = [producer.submit(rocketpy.Message("load", body)) for body in bodies]
            for receipt in receipts:
                receipt.result()
            sent += body_bytes * len(bodies)
            status.update(f"filling the log: {sent / 1e9:.1f} GB")


def end_of_log(name_server: str) -> tuple[int, int | None]:
    """Where the master's log ends, and how far its slave is behind; None without one."""
    with rocketpy.Admin(name_servers=[name_server]) as admin:
        (broker,) = (broker for broker in admin.brokers() if 0 in broker.addresses)
        status = admin.ha_status(broker.addresses[0])
    return status.end, min((slave.lag_bytes for slave in status.slaves), default=None)


def caught_up(program: Path, home: Path, master: Running) -> tuple[float, float]:
    """Seconds of an empty slave until it has all, and of its processor."""
    began = time.perf_counter()
    with launched(program, home / "slave", home / "slave.json", *SLAVE, name_server=master.name_server) as slave:
        while end_of_log(master.name_server)[1] != 0:
            if time.perf_counter() - began > WITHIN_S:
                raise RuntimeError(f"the slave had not all after {WITHIN_S} s")
            time.sleep(0.02)
        return time.perf_counter() - began, cpu_seconds(slave.pid)


def copied(files: list[Path], size_bytes: int, target: Path) -> float:
    """Seconds of a bare copy over loopback."""
    target.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = threading.Thread(target=send, args=(files, size_bytes, listening.getsockname()), daemon=True)
        began = time.perf_counter()
        sender.start()
        connection, _ = listening.accept()
        buffer = memoryview(bytearray(BUFFER_BYTES))
        with connection:
            for file in files:
                with (target / file.name).open("wb", buffering=0) as copy:
                    left = min(file.stat().st_size, size_bytes - int(file.name))
                    while left:
                        count = connection.recv_into(buffer[: min(left, BUFFER_BYTES)])
                        if count == 0:
                            raise RuntimeError(f"the sender ended {left} bytes before the end of {file}")
                        copy.write(buffer[:count])
                        left -= count
        took = time.perf_counter() - began
    sender.join()
    return took


def send(files: list[Path], size_bytes: int, address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        for file in files:
            with file.open("rb") as log:
                connection.sendfile(log, 0, min(file.stat().st_size, size_bytes - int(file.name)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=10, help="length of the log; default: 10")
    parser.add_argument("--body", type=int, default=4096, help="bytes of a body; default: 4096")
    parser.add_argument("--rounds", type=int, default=3, help="turns of both; default: 3")
    parser.add_argument("--save", action="store_true", help="writes the rounds to the file of this release")
    parser.add_argument("--server", type=Path, help="`rocketpy-server`; default: builds the release")
    options = parser.parse_args()
    program = built_server(options.server)
    console = Console(width=None if sys.stdout.isatty() else 160)
    (ROOT / "target").mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="rocketpy-bench-", dir=ROOT / "target") as folder,
        launched(
            program, Path(folder, "store"), Path(folder, "ready.json"), *PAIR, "--set", "haListenPort=0"
        ) as master,
    ):
        fill(master.name_server, int(options.gib * (1 << 30)), options.body, console)
        end, _ = end_of_log(master.name_server)
        files = sorted(file for file in (master.store / "commitlog").iterdir() if int(file.name) < end)
        rounds = []
        for number in range(options.rounds):
            home = Path(folder, "turn")
            home.mkdir()
            took, cpu = caught_up(program, home, master)
            shutil.rmtree(home / "slave")
            bare = copied(files, end, home / "copy")
            shutil.rmtree(home)
            rounds.append(
                {
                    "of_bare": bare / took,
                    "mb_per_s": end / took / 1e6,
                    "bare_mb_per_s": end / bare / 1e6,
                    "cpu_s_per_gb": cpu / end * 1e9,
                }
            )
            console.print(
                f"round {number + 1}: {end / 1e9:.2f} GB, " + ", ".join(f"{k} {v:.3g}" for k, v in rounds[-1].items())
            )
        of_bare = statistics.median(taken["of_bare"] for taken in rounds)
        console.print(f"a slave takes {of_bare:.2f} of the bare copy's bytes a second (median)")
    if options.save:
        results.save("catch_up", {"gib": options.gib, "body_bytes": options.body, "rounds": rounds})


if __name__ == "__main__":
    main()

"""A master and its slave on two machines, as far as the network goes: each in a network namespace of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest

from machines import Machines
from rocketpy.store import StoreReader, diff
from waiting import wait_until

HERE, THERE = "10.77.0.1", "10.77.0.2"
PRODUCER = """
import rocketpy

with rocketpy.Admin() as admin:
    admin.create_topic("orders")
with rocketpy.Producer("faults", send_timeout=2, retries=0) as producer:
    for number in range(10**9):
        try:
            status = producer.send(rocketpy.Message("orders", str(number).encode())).status
        except rocketpy.RocketPyError:
            status = None
        print(number if status == "SEND_OK" else "failed", flush=True)
"""
QUICK = {"haHousekeepingInterval": 2000, "haSendHeartbeatInterval": 500, "slaveTimeout": 1000}
"""Nobody waits longer than that for a peer that is silent."""


@pytest.fixture
def machines() -> Iterator[Machines]:
    with Machines([HERE, THERE]) as machines:
        yield machines


@pytest.fixture
def produce(machines: Machines) -> Iterator[Callable[[str], IO[str]]]:
    """Starts a program that sends one number after the other; its output names those that were acknowledged."""
    running: list[subprocess.Popen[str]] = []

    def begin(name_server: str) -> IO[str]:
        command = [*machines.on(HERE), sys.executable, "-P", "-c", PRODUCER]
        environment = {**os.environ, "NAMESRV_ADDR": name_server}
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        output = running[-1].stdout
        assert output is not None
        return output

    yield begin
    for process in running:
        process.kill()
        with process:
            pass  # which closes its output


def test_what_is_acknowledged_is_at_the_slave_whatever_the_network_does(start, machines, produce, tmp_path: Path):
    names = start("namesrv", "--host", HERE, "--port", "9876", prefix=machines.on(HERE)).name_server
    settings = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]

    def broker(address: str, name: str, *flags: str):
        where = ("--name-server", names, "--host", address, "--port", "10911", "--broker-name", "pair", *settings)
        return start("broker", str(tmp_path / name), *where, *flags, prefix=machines.on(address))

    master = broker(HERE, "master", "--role", "sync-master")
    slave = broker(THERE, "slave", "--role", "slave")
    output = produce(names)
    acknowledged: list[int] = []

    def read_on(count: int) -> None:
        """Reads until that many more were acknowledged."""
        wanted = len(acknowledged) + count
        while len(acknowledged) < wanted:
            line = output.readline()
            assert line, "the producer has ended"
            if not line.startswith("failed"):
                acknowledged.append(int(line))

    def read_failure() -> None:
        """Reads until a send has failed: what waited for the slave when the network broke, and a second one."""
        for _ in range(2):
            while not (line := output.readline()).startswith("failed"):
                assert line, "the producer has ended"
                acknowledged.append(int(line))
                assert len(acknowledged) < 100_000, "sends succeed without a slave"

    read_on(100)
    machines.set_link(HERE, "down")
    read_failure()
    machines.set_link(HERE, "up")
    read_on(100)
    for mute, deaf in ((THERE, HERE), (HERE, THERE)):
        machines.swallow(mute, deaf, swallows=True)
        read_failure()
        machines.swallow(mute, deaf, swallows=False)
        read_on(100)
    for _ in range(20):  # packets are lost, and sent again
        machines.set_link(HERE, "down")
        machines.set_link(HERE, "up")
        read_on(5)

    assert master.stop() == 0
    wait_until(lambda: diff(tmp_path / "master", tmp_path / "slave").relation == "equal", "the slave has the log")
    assert slave.stop() == 0
    stored = pa.table(StoreReader(tmp_path / "slave").scan("orders", columns=["body"])).column("body").to_pylist()
    assert set(acknowledged) <= set(map(int, stored))

"""Masters and slaves of RocketPy and Apache (5.5.0, 4.9.7): equal logs, sends that wait for slaves, reads from them."""

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest

import rocketpy
from apache_processes import apache_servers, launch_apache_broker
from faulty_network import Fault, FaultyNetwork
from peers import Cpp, Java, accepts, mqadmin, server_command, set_up_apache_4_9, set_up_java
from ports import free_port
from sdk import fresh, messages, read, send
from waiting import wait_until

LOG_FILE_BYTES = 1 << 20
NAMES = {"brokerName": "pair", "brokerClusterName": "pairs"}


@contextmanager
def part(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen, dict]]:
    """A name server or a broker of RocketPy in a process of its own, and its addresses; ended by kill -9."""
    home.mkdir(parents=True, exist_ok=True)
    ready = home / "ready.json"
    ready.unlink(missing_ok=True)  # of a part that was killed
    with (home / "server.log").open("a") as log:
        port = str(free_port(2) + 2)  # Apache's slaves ask a master at its port - 2 too
        command = [*server_command()[:-1], *arguments, "--port", port, "--ready-file", str(ready)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(ready.exists, f"{arguments[0]}: {home / 'server.log'}", process=process)
        yield process, json.loads(ready.read_text())
    finally:
        process.kill()
        process.wait()


@dataclass
class Broker:
    process: subprocess.Popen
    store: Path
    name_server: str
    port: int

    def slaves(self) -> tuple[rocketpy.SlaveInfo, ...]:
        """What it says of the slaves that are connected."""
        with rocketpy.Admin(self.name_server) as admin:
            return admin.ha_status(f"127.0.0.1:{self.port}").slaves

    def has_slave_at_its_end(self) -> bool:
        return any(slave.is_near and slave.lag_bytes == 0 for slave in self.slaves())

    def is_master(self) -> bool:
        """Whether it answers, and is a master."""
        with contextlib.suppress(rocketpy.RocketPyError), rocketpy.Admin(self.name_server) as admin:
            return admin.ha_status(f"127.0.0.1:{self.port}").is_master
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(timeout=90) == 0

    def says(self, text: str) -> bool:
        """Whether it has logged this."""
        return text in (self.store.parent / "server.log").read_text()


@contextmanager
def broker(home: Path, name_server: str, **settings: object) -> Iterator[Broker]:
    """A broker of RocketPy with small log files."""
    settings = {**NAMES, "mappedFileSizeCommitLog": LOG_FILE_BYTES, **settings}
    options = [f"--set={key}={value}" for key, value in settings.items()]
    with part(home, "broker", str(home / "store"), "--name-server", name_server, *options) as (process, ready):
        yield Broker(process, home / "store", name_server, int(ready["broker"].rsplit(":", 1)[1]))


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    """One that outlives the brokers."""
    with part(tmp_path / "names", "namesrv") as (_, names):
        yield names["name_server"]


@pytest.fixture
def master(tmp_path: Path, name_server: str) -> Iterator[Broker]:
    with broker(tmp_path / "master", name_server, brokerRole="SYNC_MASTER", haListenPort=0) as started:
        yield started


OURS = {"brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true"}
"""The settings of a RocketPy slave."""


@contextmanager
def slave(java: Java, home: Path, name_server: str) -> Iterator[subprocess.Popen]:
    """Apache's broker as slave, until it serves; ended by kill -9."""
    settings = NAMES | {
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "slaveReadEnable": "true",
        "mappedFileSizeCommitLog": LOG_FILE_BYTES,
    }
    process, port = launch_apache_broker(java, home, name_server, settings)
    try:
        wait_until(lambda: accepts(port), "Apache's slave", process=process)
        yield process
    finally:
        process.kill()
        process.wait()


def same_bytes(master: Path, copy: Path) -> int:
    """Says how many bytes the log of a slave has, each of which has to be the master's."""
    held = 0
    for path in sorted((copy / "commitlog").iterdir()):
        theirs = path.read_bytes()
        end = len(theirs.rstrip(b"\0"))  # Apache makes the next file ahead
        if end:
            assert theirs[:end] == (master / "commitlog" / path.name).read_bytes()[:end], path.name
        held += end
    return held


def has_in(store: Path, table: str, name: str) -> Callable[[], bool]:
    """Whether a table of a store knows a topic or a group."""
    path = store / "config" / table
    return lambda: path.exists() and name in path.read_text()


@pytest.mark.parametrize("version", ["5.5.0", pytest.param("4.9.7", marks=pytest.mark.soak)])
def test_a_slave_of_apache_has_what_a_sync_master_acknowledged(version: str, master: Broker, tmp_path: Path):
    """One life of the slave; the soak run has two, and reads from the second."""
    apache = set_up_java() if version == "5.5.0" else set_up_apache_4_9()
    topic, home = fresh("replicated"), tmp_path / "slave"
    with rocketpy.Admin(master.name_server) as admin:
        admin.create_topic(topic, queues=2)
    alone = send(master.name_server, messages(topic, 3, "alone", body_bytes=2000))
    assert [one.status for one in alone] == [rocketpy.SendStatus.SLAVE_NOT_AVAILABLE] * 3
    with slave(apache, home, master.name_server):
        wait_until(master.has_slave_at_its_end, "the slave has the log")
        both = send(master.name_server, messages(topic, 1500, "both", body_bytes=2000))
        assert {one.status for one in both} == {rocketpy.SendStatus.SEND_OK}, "over three files"
        assert same_bytes(master.store, home / "store") > 3_000_000
    wait_until(lambda: not master.slaves(), "the master lets the slave go")
    away = send(master.name_server, messages(topic, 3, "away", body_bytes=2000))
    assert [one.status for one in away] == [rocketpy.SendStatus.SLAVE_NOT_AVAILABLE] * 3


@pytest.mark.soak
@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_a_slave_of_apache_catches_up_and_serves_when_its_sync_master_is_gone(
    version: str, master: Broker, java: Java, tmp_path: Path
):
    apache = set_up_java() if version == "5.5.0" else set_up_apache_4_9()
    topic, group, home = fresh("replicated"), fresh("readers"), tmp_path / "slave"
    with rocketpy.Admin(master.name_server) as admin:
        admin.create_topic(topic, queues=2)
    with rocketpy.Producer(fresh("sender"), name_servers=[master.name_server], send_timeout=60) as producer:

        def statuses(count: int, name: str) -> list[rocketpy.SendStatus]:
            return [producer.send(one).status for one in messages(topic, count, name, body_bytes=2000)]

        assert statuses(3, "alone") == [rocketpy.SendStatus.SLAVE_NOT_AVAILABLE] * 3
        with slave(apache, home, master.name_server):
            wait_until(master.has_slave_at_its_end, "the slave has the log")
            assert set(statuses(1500, "both")) == {rocketpy.SendStatus.SEND_OK}, "over three files"
            assert same_bytes(master.store, home / "store") > 3_000_000
        wait_until(lambda: not master.slaves(), "the master lets the slave go")
        assert statuses(400, "away") == [rocketpy.SendStatus.SLAVE_NOT_AVAILABLE] * 400
        with slave(apache, home, master.name_server):
            wait_until(master.has_slave_at_its_end, "the slave has caught up")
            assert set(statuses(100, "again")) == {rocketpy.SendStatus.SEND_OK}
            same_bytes(master.store, home / "store")
            read(master.name_server, topic, 2003, group=group)
            copied = [
                has_in(home / "store", "topics.json", topic),
                has_in(home / "store", "consumerOffset.json", group),
            ]
            wait_until(
                lambda: all(one() for one in copied),
                "the slave has topics and offsets, which 5.5.0 asks for every 60 s",
            )
            master.kill()
            lines = java.drive(tmp_path / "client", "push", master.name_server, topic, "2003", fresh("from-slave"))
            assert len(lines) == 2003


def test_a_slave_has_the_whole_log_of_its_master_and_serves_its_groups_when_that_is_gone(
    name_server: str, tmp_path: Path, java: Java, cpp: Cpp
):
    topic, group, home = fresh("pair"), fresh("readers"), tmp_path / "slave"
    with broker(tmp_path / "master", name_server, haListenPort=0) as master:
        with rocketpy.Admin(name_server) as admin:
            admin.create_topic(topic, queues=2)
        bodies = [one.body for one in messages(topic, 2000, "first", body_bytes=2000)]
        send(name_server, messages(topic, 2000, "first", body_bytes=2000))
        with broker(home, name_server, **OURS):
            wait_until(master.has_slave_at_its_end, "the slave has the log")
            assert (home / "store" / "commitlog" / f"{0:020}").exists(), "from the first file on"
            assert same_bytes(master.store, home / "store") > 4_000_000
        send(name_server, messages(topic, 500, "second", body_bytes=2000))
        bodies += [one.body for one in messages(topic, 500, "second", body_bytes=2000)]
        with rocketpy.Consumer(group, topic, name_servers=[name_server], start=rocketpy.Start.EARLIEST) as consumer:
            seen = [one.body for one in consumer.poll(max_messages=700, timeout=60)]
            consumer.commit()
        with broker(home, name_server, **OURS):
            wait_until(master.has_slave_at_its_end, "the slave has caught up")
            wait_until(has_in(home / "store", "consumerOffset.json", group), "the slave has the group's offsets")
            same_bytes(master.store, home / "store")
            told = mqadmin(java, tmp_path / "tools", name_server, "haStatus", "-b", f"127.0.0.1:{master.port}")
            assert "#InSyncSlaveNum\t1\n" in told
            assert " OK " in told.rstrip().splitlines()[-1], "the line of the slave"
            master.kill()
            with rocketpy.Consumer(group, topic, name_servers=[name_server]) as consumer:
                while len(seen) < len(bodies):
                    batch = consumer.poll(timeout=60)
                    assert batch, f"{len(seen)} of {len(bodies)} messages"
                    seen += [one.body for one in batch]
            assert sorted(seen) == sorted(bodies), "none is skipped, and none comes again"
            for client in (java, cpp):
                lines = client.drive(tmp_path, "push", name_server, topic, str(len(bodies)), fresh("at-the-slave"))
                assert sorted(one["body"].encode() for one in lines) == sorted(bodies)
            with (
                rocketpy.Producer(fresh("sender"), name_servers=[name_server], retries=0) as producer,
                pytest.raises(rocketpy.RocketPyError),
            ):
                producer.send(rocketpy.Message(topic, b"to a slave"))


@pytest.mark.parametrize("version", [pytest.param("5.5.0", marks=pytest.mark.soak), "4.9.7"])
def test_a_slave_of_rocketpy_has_what_a_sync_master_of_apache_acknowledged(version: str, tmp_path: Path):
    apache = set_up_java() if version == "5.5.0" else set_up_apache_4_9()
    topic, home = fresh("of-apache"), tmp_path / "slave"
    settings = NAMES | {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": 2,
        "mappedFileSizeCommitLog": LOG_FILE_BYTES,
    }
    store = tmp_path / "master" / "store"
    with apache_servers(apache, tmp_path / "master", settings, [topic]) as (name_server, master):
        alone = {receipt.status for receipt in send(name_server, messages(topic, 1, "alone"))}
        assert rocketpy.SendStatus.SEND_OK not in alone
        rejects_another_file_size(tmp_path, name_server)
        with broker(home, name_server, **OURS) as slave:
            wait_until(lambda: ends(store) == ends(home / "store"), "the slave has the log")
            receipts = send(name_server, messages(topic, 1200, "both", body_bytes=2000))
            assert {receipt.status for receipt in receipts} == {rocketpy.SendStatus.SEND_OK}
            assert same_bytes(store, home / "store") > 2_500_000
            slave.kill()
        send(name_server, messages(topic, 2, "away"))  # 5.5.0 waits 3 s for the slave of each
        with broker(home, name_server, **OURS):
            wait_until(lambda: ends(store) == ends(home / "store"), "the slave has caught up")
            wait_until(has_in(home / "store", "topics.json", topic), "the slave has the topic")
            master.kill()
            master.wait()
            assert len(read(name_server, topic, 1203)) == 1203


def rejects_another_file_size(home: Path, name_server: str) -> None:
    """Checks that a slave with log files of another size than its master's names both sizes and takes nothing."""
    other = OURS | {"mappedFileSizeCommitLog": 2 * LOG_FILE_BYTES}
    with (
        pytest.raises(AssertionError),  # the process has ended
        broker(home / "empty", name_server, **other),
    ):
        pass
    sizes = f"commit log files have {LOG_FILE_BYTES} bytes at the master"
    log = (home / "empty/server.log").read_text()
    assert sizes in log
    assert f"set mappedFileSizeCommitLog={LOG_FILE_BYTES} at this slave" in log
    alone = {"mappedFileSizeCommitLog": 2 * LOG_FILE_BYTES}
    with (
        rocketpy.Server(home / "with-log/store", settings=alone) as server,
        server.producer("alone") as producer,
    ):
        producer.send(rocketpy.Message("alone", b"one"))
    before = ends(home / "with-log/store")
    with broker(home / "with-log", name_server, **other) as slave:
        wait_until(lambda: slave.says(sizes), "both sizes are named")
    assert ends(home / "with-log/store") == before


def ends(store: Path) -> dict[str, int]:
    """How far each file of a log is written that is."""
    files = {path.name: len(path.read_bytes().rstrip(b"\0")) for path in (store / "commitlog").glob("*")}
    return {name: end for name, end in files.items() if end}


def test_a_former_master_with_messages_of_its_own_is_a_slave_of_the_new_one_once_they_are_cut_off(
    name_server: str, tmp_path: Path
):
    topic, one, other = fresh("former"), tmp_path / "one", tmp_path / "other"
    with broker(one, name_server, haListenPort=0) as master:
        with rocketpy.Admin(name_server) as admin:
            admin.create_topic(topic, queues=1)
        send(name_server, messages(topic, 10, "both", body_bytes=100))
        with broker(other, name_server, **OURS) as slave:
            wait_until(master.has_slave_at_its_end, "the slave has the log")
            wait_until(has_in(other / "store", "topics.json", topic), "the slave has the topic")
            slave.stop()
        send(name_server, messages(topic, 5, "mine", body_bytes=100))
        master.stop()
    with broker(other, name_server, haListenPort=0) as master:
        send(name_server, messages(topic, 10, "your", body_bytes=100))
        with broker(one, name_server, **OURS):
            wait_until(lambda: master.says("the logs diverge at"), "the new master refuses the old one")
            assert master.slaves() == ()
        found = rocketpy.store.diff(one / "store", other / "store")
        assert found.relation == "diverged"
        assert found.first.own_records == 5
        cut = rocketpy.store.cut(one / "store", found.common_end, apply=True)
        assert cut.kept_in is not None
        with broker(one, name_server, **OURS):
            wait_until(master.has_slave_at_its_end, "the rest of the old one follows")
            assert same_bytes(other / "store", one / "store") > found.common_end
        with broker(tmp_path / "new", name_server, **OURS):
            wait_until(master.has_slave_at_its_end, "an empty slave is fed")


def test_what_a_sync_master_acknowledged_is_at_its_slave_whichever_of_them_is_killed(
    name_server: str, tmp_path: Path, chance: Random
):
    """`KILLS=200 ROCKETPY_TEST_SEED=7 pytest -k whichever_of_them` goes on for longer."""
    topic, acknowledged = fresh("kills"), set()
    flush = {"flushDiskType": chance.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])}
    for life in range(int(os.environ.get("KILLS", "3"))):
        with broker(tmp_path / "master", name_server, brokerRole="SYNC_MASTER", haListenPort=0, **flush) as master:
            if life == 0:
                with rocketpy.Admin(name_server) as admin:
                    admin.create_topic(topic, queues=2)
            with broker(tmp_path / "slave", name_server, **OURS, **flush) as slave:
                wait_until(master.has_slave_at_its_end, "the slave has caught up")
                sending = Sending(name_server, topic, life)
                sending.wait_for(chance.randrange(200))
                for victim in chance.choice([[master], [slave], [slave, master]]):
                    victim.kill()
                acknowledged |= sending.stop()
        with broker(tmp_path / "slave", name_server, **OURS, **flush):
            left = acknowledged - came_at_slave(name_server, topic, acknowledged)
            assert not left, f"life {life}: {len(left)} of {len(acknowledged)} are not at the slave"


def test_nothing_is_lost_or_skipped_while_masters_are_killed_and_slaves_promoted_in_turns(
    name_server: str, tmp_path: Path, chance: Random
):
    """`PROMOTIONS=200 ROCKETPY_TEST_SEED=7 pytest -k promoted_in_turns` goes on for longer.

    Both keep the configuration that they began with: the former master finds out by itself that it is a slave now.
    """
    topic, group = fresh("turns"), fresh("turns")
    flush = {"flushDiskType": chance.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])}
    settings = [{"brokerRole": "SYNC_MASTER", "haListenPort": 0, **flush}, {**OURS, **flush}]
    with contextlib.ExitStack() as left:

        def start(node: int) -> tuple[contextlib.ExitStack, Broker]:
            ends = left.enter_context(contextlib.ExitStack())
            return ends, ends.enter_context(broker(tmp_path / str(node), name_server, **settings[node]))

        nodes = [start(0), start(1)]
        with rocketpy.Admin(name_server) as admin:
            admin.create_topic(topic, queues=2)
            wait_until(nodes[0][1].has_slave_at_its_end, "the slave follows")
            wait_until(has_in(nodes[1][1].store, "topics.json", topic), "the slave has the topic")
            sending, reading = Sending(name_server, topic, 0), Reading(name_server, topic, group)
            left.callback(sending.stop)
            left.callback(reading.stop)
            for turn in range(int(os.environ.get("PROMOTIONS", "5"))):
                sending.wait_for(len(sending.acknowledged) + chance.randrange(300))
                former, (_, master) = turn % 2, nodes[(turn + 1) % 2]
                nodes[former][1].kill()
                nodes[former][0].close()
                admin.promote(f"127.0.0.1:{master.port}", sync=True)
                wait_until(master.is_master, f"turn {turn}: the slave is promoted")
                nodes[former] = start(former)
                wait_until(master.has_slave_at_its_end, f"turn {turn}: the former master follows")
            sending.wait_for(len(sending.acknowledged) + 100)
            acknowledged = sending.stop()
            wait_until(master.has_slave_at_its_end, "the slave has caught up")
            wait_until(lambda: acknowledged <= reading.came, "the group has read all")
            reading.stop()
        assert same_bytes(nodes[0][1].store, nodes[1][1].store) == same_bytes(nodes[1][1].store, nodes[0][1].store) > 0


def test_what_a_sync_master_acknowledged_is_at_its_slave_however_the_network_breaks(
    name_server: str, tmp_path: Path, chance: Random
):
    """`FAULTS=500 ROCKETPY_TEST_SEED=7 pytest -k however_the_network` goes on for longer."""
    topic, port = fresh("faults"), free_port()
    quick = {"haSendHeartbeatInterval": 100, "haHousekeepingInterval": 1000, "slaveTimeout": 500}
    faults = [fault for fault in Fault if fault is not Fault.NONE]
    chance.shuffle(faults)
    with (
        FaultyNetwork(port) as network,
        broker(tmp_path / "master", name_server, brokerRole="SYNC_MASTER", haListenPort=port, **quick) as master,
    ):
        through = {"haMasterAddress": f"127.0.0.1:{network.port}"}
        with rocketpy.Admin(name_server) as admin:
            admin.create_topic(topic, queues=2)
        with broker(tmp_path / "slave", name_server, **OURS, **quick, **through):
            wait_until(master.has_slave_at_its_end, "the slave follows")
            sending = Sending(name_server, topic, 0)
            for turn in range(int(os.environ.get("FAULTS", len(faults)))):
                before = len(sending.acknowledged)
                sending.wait_for(before + chance.randrange(200))
                network.break_by(faults[turn % len(faults)])
                Event().wait(chance.uniform(0.1, 2.5))  # how long the network is broken
                network.break_by(Fault.NONE)
            sending.wait_for(len(sending.acknowledged) + 100)
            wait_until(master.has_slave_at_its_end, "the slave has caught up")
            network.break_by(Fault.PARTITION)
            Event().wait(0.5)  # what is sent now comes to no slave
            master.kill()
            acknowledged = sending.stop()
            assert same_bytes(tmp_path / "master" / "store", tmp_path / "slave" / "store") > 0
            left = acknowledged - came_at_slave(name_server, topic, acknowledged)
            assert not left, f"{len(left)} of {len(acknowledged)} are not at the slave"


class Sending:
    """Sends one by one on threads, until it is stopped, and notes what was acknowledged by master and slave."""

    def __init__(self, name_server: str, topic: str, life: int) -> None:
        self.acknowledged: set[bytes] = set()
        self._stopped = Event()
        self._threads = [Thread(target=self._send, args=(name_server, topic, life, number)) for number in range(2)]
        for thread in self._threads:
            thread.start()

    def _send(self, name_server: str, topic: str, life: int, number: int) -> None:
        with rocketpy.Producer(fresh("kills"), name_servers=[name_server], retries=0, send_timeout=5) as producer:
            for count in itertools.count():
                if self._stopped.is_set():
                    return
                body = f"{life}-{number}-{count}".ljust(count % 3000, ".").encode()
                with contextlib.suppress(rocketpy.RocketPyError):
                    if producer.send(rocketpy.Message(topic, body)).status is rocketpy.SendStatus.SEND_OK:
                        self.acknowledged.add(body)

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.acknowledged) > count, f"{count} messages are acknowledged")

    def stop(self) -> set[bytes]:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        return self.acknowledged


class Reading:
    """Reads with a group that commits, until it is stopped, and notes what came."""

    def __init__(self, name_server: str, topic: str, group: str) -> None:
        self.came: set[bytes] = set()
        self._stopped = Event()
        self._thread = Thread(target=self._read, args=(name_server, topic, group))
        self._thread.start()

    def _read(self, name_server: str, topic: str, group: str) -> None:
        with rocketpy.Consumer(
            group, topic, name_servers=[name_server], start=rocketpy.Start.EARLIEST, allow_missing_topic=True
        ) as consumer:
            while not self._stopped.is_set():
                with contextlib.suppress(rocketpy.RocketPyError):
                    self.came |= {message.body for message in consumer.poll(max_messages=200, timeout=1)}
                    consumer.commit()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def came_at_slave(name_server: str, topic: str, wanted: set[bytes]) -> set[bytes]:
    """What a slave alone gives of a topic, until all that is wanted has come, or nothing comes any more."""
    found: set[bytes] = set()
    with rocketpy.Consumer(
        fresh("kills"), topic, name_servers=[name_server], start=rocketpy.Start.EARLIEST, allow_missing_topic=True
    ) as consumer:
        while not wanted <= found and (batch := consumer.poll(max_messages=2000, timeout=20)):
            found |= {message.body for message in batch}
    return found

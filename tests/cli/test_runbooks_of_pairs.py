"""Runbooks of docs/operations about a master and its slave: each test makes the situation and runs the page's steps."""

import json
import signal
from importlib.metadata import version

from ports import free_port
from rocketpy import Admin, Message, Producer, store
from runbooks import Operator
from waiting import wait_until

TOPIC = "orders"
LOST_BYTES = 100
"""Less than a record."""


class Pair:
    """A name server and two brokers of one name: the master in the folder `m`, its slave in `s`."""

    def __init__(self, operator: Operator, **settings: object) -> None:
        self.operator = operator
        operator.start("namesrv", "--port", "0")
        self.addresses = {name: f"127.0.0.1:{free_port(1)}" for name in "ms"}
        self.configure("m", **{"brokerRole": "SYNC_MASTER", **settings})
        self.configure("s", **{**settings, "brokerRole": "SLAVE", "brokerId": 1})
        self.admin = Admin(operator.name_server, api_timeout=60)

    def configure(self, name: str, **settings: object) -> None:
        port = self.addresses[name].rsplit(":", 1)[1]
        common = {"namesrvAddr": self.operator.name_server, "brokerName": "a", "slaveReadEnable": "true"}
        self.operator.configure(name, **common, listenPort=port, **settings)

    def start(self, *names: str) -> None:
        for name in names:
            self.operator.start("broker", name, "--config", f"{name}.conf")

    def start_both(self) -> None:
        """Starts both with a topic. The slave takes it over at its start, and not only in its next round."""
        self.start("m")
        self.admin.create_topic(TOPIC, queues=2)
        self.start("s")
        tables = self.operator.folder / "s/config/topics.json"
        wait_until(lambda: f'"{TOPIC}"' in tables.read_text(), "the slave has the topic")
        wait_until(self.follows, "the slave follows")

    def send(self, *bodies: str) -> None:
        with Producer("senders", name_servers=self.operator.name_server, send_timeout=60) as producer:
            for body in bodies:
                producer.send(Message(TOPIC, body.encode()))

    def follows(self, master: str = "m") -> bool:
        """Whether the other broker is connected to this master and has its whole log."""
        slaves = self.admin.ha_status(self.addresses[master]).slaves
        return [slave.lag_bytes for slave in slaves] == [0]

    def bodies(self) -> set[str]:
        printed = self.operator.shell(f"rocketpy consume {TOPIC} --from earliest")
        return set(printed.split())


def test_a_dead_master_is_started_again_or_its_slave_is_promoted(operator: Operator):
    pair = Pair(operator)
    pair.start_both()
    pair.send("one")
    operator.kill("m")
    with operator.following("master-dead", DIR="m", FILE="m.conf", SLAVE=pair.addresses["s"], TOPIC=TOPIC) as page:
        without_master = page.repeat(1, lambda printed: pair.addresses["m"] not in printed)
        assert pair.addresses["s"] in without_master
        page.run(2)
        wait_until(pair.follows, "the slave follows its master again")
        page.run(4, 5)
        pair.send("two")
        operator.kill("m")
        page.run(1, 3, 2)
        wait_until(lambda: pair.follows("s"), "the former master follows")
        page.run(4, 5)
    assert {"one", "two", "test"} <= pair.bodies()


def test_a_slave_that_hangs_is_killed_and_catches_up(operator: Operator):
    pair = Pair(operator, brokerRole="ASYNC_MASTER", haListenPort=0)
    pair.start_both()
    hanging = operator.servers["s"].process
    hanging.send_signal(signal.SIGSTOP)
    pair.send(*map(str, range(20)))
    with operator.following("slave-behind", DIR="s", FILE="s.conf", PID=hanging.pid) as page:
        assert not pair.follows()
        page.run(1, 2, 3, 4)
        wait_until(pair.follows, "the slave has caught up")
        page.run(5)
    operator.kill("m")
    assert pair.bodies() == set(map(str, range(20)))


def test_a_slave_is_added_to_a_master_with_messages(operator: Operator):
    pair = Pair(operator, inSyncReplicas=1)
    pair.start("m")
    pair.admin.create_topic(TOPIC, queues=2)
    pair.send("one", "two")
    words = {"DIR": "s", "MASTER_FILE": "m.conf", "FILE": "s.conf", "PORT": pair.addresses["s"].split(":")[1]}
    with operator.following("add-slave", **words) as page:
        page.run(1, 2, 3, 4)
        wait_until(pair.follows, "the slave has the log")
        assert pair.addresses["s"] in page.run(5)
    operator.kill("m")
    assert pair.bodies() == {"one", "two"}


def test_a_log_that_diverged_is_saved_and_cut(operator: Operator):
    """Both brokers have acknowledged messages as masters that the other one never had."""
    pair = Pair(operator, brokerRole="ASYNC_MASTER", haListenPort=0)
    pair.start_both()
    pair.send("common")
    wait_until(pair.follows, "the slave has the common message")
    operator.kill("s")
    pair.send("first's own")
    operator.kill("m")
    pair.start("s")
    operator.shell(f"rocketpy ha promote {pair.addresses['s']}")
    pair.send("second's own")
    pair.start("m")
    diverged = lambda: "diverge" in str(pair.admin.ha_status(pair.addresses["m"]).not_followed)  # noqa: E731
    wait_until(diverged, "the former master knows that it has diverged")

    words = {
        "DIR": "m", "FILE": "m.conf", "PID": operator.servers["m"].process.pid, "MASTER_DIR": "s",
        "OFFSET": lambda: store.diff(operator.folder / "s", operator.folder / "m").common_end,
    }  # fmt: skip
    with operator.following("logs-diverged", **words) as page:
        assert "diverge" in page.run(1)
        page.run(2, 3, 4)
        own = [json.loads(line) for line in (operator.folder / "own.jsonl").read_text().splitlines()]
        assert [one["body"] for one in own] == ["first's own"]
        page.run(5, 6)
        wait_until(lambda: pair.follows("s"), "the broker that was cut follows")
        page.run(7)


def test_a_master_takes_the_end_that_its_power_cut_lost_from_its_slave(operator: Operator):
    """Neither flush nor checkpoint follows the sends, and the bytes that a power cut takes are overwritten by zeros."""
    pair = Pair(operator, flushIntervalCommitLog=86400000, flushIntervalConsumeQueue=86400000)
    pair.start_both()
    pair.send("one", "two")
    end = pair.admin.ha_status(pair.addresses["m"]).end
    operator.kill("m")
    operator.kill("s")
    (file,) = (operator.folder / "m/commitlog").iterdir()
    with file.open("r+b") as log:
        log.seek(end - LOST_BYTES)
        log.write(bytes(LOST_BYTES))
    words = {"MASTER_DIR": "m", "MASTER_FILE": "m.conf", "SLAVE_DIR": "s", "SLAVE_FILE": "s.conf"}
    with operator.following("power-lost", **words) as page:
        page.run(1, 2, 3)
        wait_until(pair.follows, "the slave follows")
        page.run(5)
    assert pair.admin.ha_status(pair.addresses["m"]).end == end
    assert pair.bodies() == {"one", "two"}


def test_a_pair_is_upgraded_in_turn_and_its_roles_are_switched_back(operator: Operator):
    """From the installed version to the same: the steps are those of any other."""
    pair = Pair(operator)
    pair.start_both()
    pair.send("one")
    operator.environment |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    words = {
        "VERSION": version("rocketpy-mq"), "MASTER": pair.addresses["m"], "SLAVE": pair.addresses["s"],
        "DIR": "s", "FILE": "s.conf", "PID": operator.servers["s"].process.pid, "BACKUP": "backup",
    }  # fmt: skip
    with operator.following("upgrade", **words) as page:
        page.run(1, 2, 3, 4)
        wait_until(pair.follows, "the slave follows")
        page.run(5, 6)
        page.words |= {"DIR": "m", "FILE": "m.conf", "PID": operator.servers["m"].process.pid}
        page.run(4)
        wait_until(lambda: pair.follows("s"), "the former master follows")
        page.run(5, 8)
    pair.send("two")
    with operator.following("switch-master", MASTER=pair.addresses["s"], SLAVE=pair.addresses["m"]) as page:
        page.run(1, 2, 3)
        wait_until(pair.follows, "the slave follows again")
        page.run(4)
    pair.send("three")
    assert pair.bodies() == {"one", "two", "three"}

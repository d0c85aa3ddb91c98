"""The commands of Apache's mqadmin 5.5.0 at RocketPy's servers, with stored answers (`answers/mqadmin.json`).

`UPDATE_ANSWERS=1 pytest tests/interop/test_mqadmin.py` writes the answers and the table of docs/mqadmin.md.
"""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import rocketpy
from apache_processes import apache_servers, launch_apache_broker
from mqadmin_commands import NEVER_END, RUNS, WITH_USERS, Run, results
from peers import Java, accepts, administer
from sdk import messages
from test_replication import broker, part
from waiting import wait_until

ANSWERS = Path(__file__).parent / "answers" / "mqadmin.json"
PAGE = Path(__file__).parents[2] / "docs" / "mqadmin.md"
IS_UPDATE = os.environ.get("UPDATE_ANSWERS") == "1"
SHOP = {"brokerName": "shop-a", "brokerClusterName": "shop", "traceTopicEnable": "true"}
RACE = "query message by key finished, but no message"
"""What the tool says now and then although the message is in the answer: it looks before its callback has run."""
TRIES = 5
COMMANDS = 96
MINIMUM_WORKING = 62
TABLE = "| command | result |\n| --- | --- |\n"
PATTERNS = {
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[,.]\d{3})?": "TIME",
    r"\b[0-9A-F]{32}(?:[0-9A-F]{24})?\b": "ID",
    r"\b1[6-9]\d{11}\b": "MS",
    r"\b127\.0\.0\.1:\d+": "ADDRESS",
    r"[ \t]+": " ",
    r"(?m) $": "",
}


@dataclass
class Shop:
    """A master and its slave with a topic, a group and live clients."""

    places: dict[str, str]
    """Names of the places in arguments."""
    told: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Output of each run."""

    def arguments(self, run: Run) -> list[str]:
        return [part.format(**self.places) for part in shlex.split(run.arguments)]

    def plain(self, text: str) -> str:
        """The output without what differs from run to run."""
        for name in sorted(self.places, key=lambda name: -len(self.places[name])):
            text = text.replace(self.places[name], "{" + name + "}")
        for pattern, name in PATTERNS.items():
            text = re.sub(pattern, name, text)
        return text.strip()

    def lines(self, run: Run) -> list[str]:
        """What a run printed, as it is stored."""
        lines = self.plain(self.told[run.line][0]).splitlines()
        return sorted(lines) if run.any_order else lines


def fill(folder: Path) -> None:
    """The files that commands read."""
    topics = [{"topicName": f"listed-{n}", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for n in (1, 2)]
    (folder / "topics.json").write_text(json.dumps(topics))
    (folder / "groups.json").write_text(json.dumps([{"groupName": f"listed-group-{n}"} for n in (1, 2)]))


@contextmanager
def clients(names: str) -> Iterator[dict[str, str]]:
    """Live members of the groups, and messages that they have sent and read."""
    read: list[str] = []
    consumer = rocketpy.PushConsumer("readers", name_servers=[names], api_timeout=60)

    @consumer.on("orders")
    def handle(message: rocketpy.ReceivedMessage) -> None:
        read.append(message.keys[0] if message.keys else "")

    def is_committed() -> bool:
        with rocketpy.Admin(names) as admin:
            return sum(row.committed_offset or 0 for row in admin.group_lag("readers", "orders")) >= 4

    with consumer, rocketpy.Producer("makers", name_servers=[names], send_timeout=60) as producer:
        receipts = [producer.send(one) for one in messages("orders", 4, "key", tag="red")]
        wait_until(lambda: len(read) >= 4, "all messages are read")
        wait_until(is_committed, "the offsets are committed")
        yield {"offset_id": receipts[0].offset_msg_id, "msg_id": receipts[0].msg_id}


def run_all(java: Java, folder: Path, names: str, master: int, slave: int, is_ready: Callable[[], object]) -> Shop:
    """Runs all commands at a name server, a master and its slave, which are named by their ports."""
    fill(folder)
    with clients(names) as sent:
        wait_until(is_ready, "the slave has the log")
        places = {
            "names": names,
            "broker": f"127.0.0.1:{master}",
            "slave": f"127.0.0.1:{slave}",
            "folder": str(folder),
            **sent,
        }
        found = Shop(places)
        for run in RUNS:
            for _ in range(TRIES):
                found.told[run.line] = administer(java, names, run.command, *found.arguments(run))
                if RACE not in found.told[run.line][1]:
                    break
            if run.command == "sendMessage":
                sent_id = re.search(r"\b[0-9A-F]{32,56}\b", found.told[run.line][0])
                assert sent_id, found.told[run.line]
                places["traced"] = sent_id[0]
        return found


@pytest.fixture(scope="module")
def shop(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Runs all commands once at RocketPy's servers."""
    folder = tmp_path_factory.mktemp("mqadmin")
    with ExitStack() as stack:
        _, ready = stack.enter_context(part(folder / "names", "namesrv"))
        names = ready["name_server"]
        master = stack.enter_context(broker(folder / "master", names, **SHOP, haListenPort=0))
        with rocketpy.Admin(names) as admin:
            admin.create_topic("orders", queues=2)
        slave = stack.enter_context(broker(folder / "slave", names, **SHOP, brokerRole="SLAVE", brokerId=1))
        yield run_all(java, folder, names, master.port, slave.port, master.has_slave_at_its_end)


def test_each_command_answers_as_stored(shop: Shop):
    stored = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    told = {run.line: shop.lines(run) for run in RUNS if run.is_stored}
    if IS_UPDATE:
        ANSWERS.write_text(json.dumps(told, indent=1) + "\n")
        stored = told
    different = {line: (told[line], stored.get(line)) for line in told if told[line] != stored.get(line)}
    assert not different
    assert set(stored) == set(told), "no answer is left over"


def test_each_command_that_works_says_what_it_has_to_without_an_error(shop: Shop):
    wrong = {}
    for run in RUNS:
        printed, errors = shop.told[run.line]
        missing = [text for text in run.says if text.format(**shop.places) not in printed]
        if not (run.refused or run.fails) and (missing or "Exception" in printed + errors):
            wrong[run.line] = (missing, (printed + errors)[-3000:])
    assert not wrong


def test_each_command_that_does_not_work_gives_the_reason(shop: Shop):
    wrong = {}
    for run in RUNS:
        told = "".join(shop.told[run.line])
        reason = (run.fails,) if run.fails else ("CODE: 3 ", run.refused)
        wanted = [text.format(**shop.places) for text in run.says] or reason
        if (run.refused or run.fails) and not all(text in told for text in wanted):
            wrong[run.line] = (wanted, told[-2000:])
    assert not wrong


def test_a_slave_tells_how_it_follows_its_master(shop: Shop):
    told, _ = shop.told["haStatus -b {slave}"]
    assert "1970" not in told
    assert "null" not in told


def test_the_page_lists_every_command():
    found = results()
    assert len(found) == COMMANDS
    rows = "".join(f"| `{name}` | {result} |\n" for name, result in found.items())
    head, table, _ = PAGE.read_text().partition(TABLE)
    assert table, "the page ends with the table"
    page = f"{head}{table}{rows}"
    if IS_UPDATE:
        PAGE.write_text(page)
    assert PAGE.read_text() == page
    working = sum(result in {"works", WITH_USERS} for result in found.values()) + len(NEVER_END)
    assert working >= MINIMUM_WORKING, f"{working} of {COMMANDS}"
    assert f"{working} of the {COMMANDS} commands work" in PAGE.read_text()


@pytest.mark.soak
def test_apache_answers_the_same(java: Java, tmp_path: Path):
    """Each command that works here works there; outputs that are stored are equal, unless the run says why not."""
    with ExitStack() as stack:
        names, _ = stack.enter_context(apache_servers(java, tmp_path / "master", SHOP, ["orders"]))
        settings = SHOP | {"brokerRole": "SLAVE", "brokerId": 1}
        process, slave = launch_apache_broker(java, tmp_path / "slave", names, settings)
        stack.callback(process.wait)
        stack.callback(process.kill)
        wait_until(lambda: accepts(slave), "Apache's slave", process=process)
        conf = (tmp_path / "master" / "broker.conf").read_text()
        master = int(dict(line.split("=", 1) for line in conf.splitlines())["listenPort"])
        with rocketpy.Admin(names) as admin:

            def is_ready() -> bool:
                return len(admin.ha_status(f"127.0.0.1:{master}").slaves) == 1

            found = run_all(java, tmp_path, names, master, slave, is_ready)
    stored = json.loads(ANSWERS.read_text())
    different = {}
    for run in RUNS:
        printed, errors = found.told[run.line]
        if run.differs or run.refused or run.fails:
            continue
        plain = found.lines(run)
        if "Exception" in printed + errors or (run.is_stored and plain != stored[run.line]):
            different[run.line] = (plain, stored.get(run.line), errors[-1000:])
    assert not different

"""Runbooks of docs/operations: their form, and those about single brokers, each in the situation that it is about."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire import give_up

import stored_answers
from apache_processes import write_broker_conf
from ports import free_port
from rocketpy import Admin, Consumer, Message, Producer, Receipt, RefusedError
from runbooks import FENCE, PAGES, Operator
from stores import CASES
from waiting import wait_until

MAX_WORDS = 300
TOPIC, GROUP = "orders", "billing"
RUNBOOKS = sorted(PAGES.glob("*.md"))


@pytest.mark.parametrize("page", RUNBOOKS, ids=[page.stem for page in RUNBOOKS])
def test_a_runbook_is_short_linked_and_run(page: Path, pytestconfig: pytest.Config):
    text = page.read_text()
    assert len(text.split()) <= MAX_WORDS
    index = (pytestconfig.rootpath / "docs/operations.md").read_text()
    assert index.count(f"](operations/{page.name})") >= 1
    assert (pytestconfig.rootpath / "mkdocs.yml").read_text().count(f"operations/{page.name}") == 1
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_runbooks*.py"))
    if fences := [fence[2] for fence in FENCE.finditer(text)]:
        assert set(fences) == {"sh"}, "no test runs a fence of another language"
        assert f'following("{page.stem}"' in tests


@pytest.fixture
def admin(operator: Operator) -> Iterator[Admin]:
    """Starts a name server, and a broker with its store in `data` by `data.conf`."""
    operator.start("namesrv", "--port", "0")
    start_broker(operator, "data", traceTopicEnable="true")
    with Admin(operator.name_server, api_timeout=60) as admin:
        admin.create_topic(TOPIC, queues=2)
        admin.create_group(GROUP)
        yield admin


def start_broker(operator: Operator, folder: str, **settings: object) -> str:
    """Starts a broker that keeps its port over its restarts, and returns its address."""
    common = {"namesrvAddr": operator.name_server, "brokerName": folder, "listenPort": free_port()}
    operator.configure(folder, **{**common, **settings})
    return operator.start("broker", folder, "--config", f"{folder}.conf").ready["broker"]


def send(operator: Operator, *bodies: str, key: str | None = None, trace: bool = False) -> list[Receipt]:
    with Producer("senders", name_servers=operator.name_server, send_timeout=60, trace=trace) as producer:
        return [producer.send(Message(TOPIC, body.encode(), keys=[key] if key else [])) for body in bodies]


def read(operator: Operator, count: int) -> list[str]:
    """Reads and commits messages as the group."""
    return operator.shell(f"rocketpy consume {TOPIC} --group {GROUP} --count {count}").split()


def broker_words(operator: Operator, folder: str = "data") -> dict[str, object]:
    """Values of the usual placeholders, for the broker of a folder."""
    server = operator.servers[folder]
    common = {"TOPIC": TOPIC, "GROUP": GROUP, "BROKER": server.ready["broker"], "PID": server.process.pid}
    return {**common, "DIR": folder, "FILE": f"{folder}.conf"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB in memory. Tests name it before `start`, whose servers must end first."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"root is needed to mount: {error}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_cleaned_and_sends_go_on(disk: Path, operator: Operator):
    operator.start("namesrv", "--port", "0")
    small = {"mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 5000, "maxIndexNum": 1000}
    start_broker(operator, str(disk / "data"), brokerName="data", cleanResourceInterval=100, **small)
    (disk / "data/repair-20261129-120000").mkdir()
    with (disk / "data/repair-20261129-120000/commitlog").open("wb") as kept:
        kept.write(bytes(28 << 20))

    def is_refused() -> bool:
        try:
            send(operator, "x")
        except RefusedError as error:
            return "disk" in str(error)
        return False

    wait_until(is_refused, "sends are refused")
    with operator.following("disk-full", **broker_words(operator, str(disk / "data"))) as page:
        page.run(1, 2, 3, 4)
        wait_until(lambda: not is_refused(), "sends are accepted")
        operator.kill(str(disk / "data"))
        page.run(5, 6)


def test_a_broker_is_drained_and_moved(operator: Operator, admin: Admin):
    start_broker(operator, "other")
    admin.create_topic(TOPIC, queues=2)
    send(operator, *"abcd")
    other_place = operator.configure(
        "moved", namesrvAddr=operator.name_server, brokerName="data", listenPort=free_port()
    )
    words = broker_words(operator) | {"TARGET": "moved", "NEW_FILE": other_place, "NAME": "data"}
    before = broker_address(admin, "data")
    words["BROKER"] = f"{words['BROKER']} --quiet 1"  # no client sends here
    with operator.following("drain-and-move", **words) as page:
        assert "would be read only" in page.run(1)
        assert "may be stopped" in page.run(2)
        assert writable_queues(admin, "data") == 0
        read(operator, 4)
        page.run(3, 4, 5)
        wait_until(lambda: broker_address(admin, "data") != before, "the broker has its new address")
        page.run(6, 7)
    wait_until(lambda: writable_queues(admin, "data") == 2, "clients may write")
    assert sorted(operator.shell(f"rocketpy consume {TOPIC}").split()) == [*"abcd"]


def broker_address(admin: Admin, broker_name: str) -> str:
    return next(one.addresses.get(0, "") for one in admin.brokers() if one.broker_name == broker_name)


def writable_queues(admin: Admin, broker_name: str) -> int:
    (broker,) = [one for one in admin.describe_topic(TOPIC).brokers if one.broker_name == broker_name]
    return broker.write_queues if broker.writable else 0


def test_a_store_is_backed_up_and_restored(operator: Operator, admin: Admin):
    send(operator, "one", "two")
    read(operator, 1)
    with operator.following("back-up-and-restore", **broker_words(operator), SNAPSHOT="snap", BACKUP="back") as page:
        page.run(1, 2)
        send(operator, "lost with the disk")
        page.run(3, 4, 5, 6, 7)
    assert len(read(operator, 1)) == 1
    printed = operator.shell(f"rocketpy consume {TOPIC}").split()
    assert sorted(printed) == ["one", "two"]


def test_retention_is_changed_live_and_for_the_next_start(operator: Operator, admin: Admin):
    send(operator, "one")
    words = broker_words(operator)
    with operator.following("change-retention", **words) as page:
        page.run(1, 2, 3)
        assert admin.broker_config(str(words["BROKER"]))["fileReservedTime"] == "24"
        assert re.search(r"fileReservedTime\W+24\W+live\b", page.run(4))
        assert "retention.hours" in page.run(5)


def test_a_message_that_nobody_received_is_found(operator: Operator, admin: Admin):
    """It is a dead letter of its group."""
    (receipt,) = send(operator, "rejected", key="A-17", trace=True)
    words = broker_words(operator)
    give_up(str(words["BROKER"]), GROUP, receipt, error="Reject: no such order")
    admin.reset_offsets(GROUP, TOPIC, "latest")
    traces = lambda: admin.trace(receipt.msg_id)  # noqa: E731
    wait_until(traces, "the trace is stored")
    with operator.following("find-a-message", **words, KEY="A-17", MSG_ID=receipt.msg_id) as page:
        assert receipt.msg_id in page.run(1)
        page.run(2, 3)
        assert "no such order" in page.run(4)
        assert "%DLQ%" in page.run(5)
    assert sorted(operator.shell(f"rocketpy consume {TOPIC}").split()) == ["rejected", "rejected"]


def test_a_group_that_is_stuck_is_moved_on(operator: Operator, admin: Admin):
    """One member holds all messages without an end; another message became a dead letter."""
    (receipt, *_) = send(operator, *"abcdef")
    words = broker_words(operator)
    give_up(str(words["BROKER"]), GROUP, receipt)
    words |= {"BROKER": "data", "QUEUE": receipt.queue.queue_id, "OFFSET": receipt.queue_offset + 1}
    with operator.following("consumer-stuck", **words) as page:
        with Consumer(GROUP, [TOPIC], name_servers=operator.name_server, start="earliest") as member:
            wait_until(lambda: member.poll(1), "the member has messages")
            page.run(1, 2, 3)
        page.run(4)
        assert admin.committed_offset(GROUP, receipt.queue) == receipt.queue_offset + 1
        page.run(5, 6)
    assert [lag.lag for lag in admin.group_lag(GROUP, TOPIC)] == [0, 0]


def test_a_broker_of_apache_is_taken_over(operator: Operator):
    """The recorded folder of Apache's broker 5.5.0, with a configuration file of Apache's."""
    (case, *_) = [case for case in CASES if case.version == "5.5.0" and case.clean]
    operator.start("namesrv", "--port", "0")
    keeps = {"namesrvAddr": operator.name_server, "fileReservedTime": 1_000_000}
    write_broker_conf(operator.folder, case.settings | keeps)
    stored_answers.unpack(case.name, operator.folder)
    with operator.following("take-over-apache", DIR="store", FILE="broker.conf", BACKUP="kept", TOPIC="kinds") as page:
        page.run(1, 3, 4, 5)
        assert "kinds" in page.run(6)


LIMITS = re.findall(r"^\| ([^|]+) \| (\d+) \| `(\w+)` \|$", (PAGES / "sizing.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("subject", "limit", "name"), LIMITS, ids=[subject for subject, _, _ in LIMITS])
def test_a_limit_is_that_of_its_key_or_constant(subject: str, limit: str, name: str, pytestconfig: pytest.Config):
    configuration = (pytestconfig.rootpath / "docs/configuration.md").read_text()
    texts = re.findall(rf"^\| `{name}` (\|.*)$", configuration, re.MULTILINE)
    if not texts:
        sources = (path.read_text() for path in (pytestconfig.rootpath / "rust").glob("*/src/**/*.rs"))
        texts = [found for source in sources for found in re.findall(rf"const {name}: \w+ = (\w+);", source)]
    values = {value for text in texts for value in re.findall(r"\d+", text.replace(",", "").replace("_", ""))}
    assert limit in values, f"{subject}: {name} is {values}"


def test_limits_are_shown_and_measured(operator: Operator):
    assert len(LIMITS) >= 14
    with operator.following("sizing", DIR=".") as page:
        page.run(1, 2)
        assert "100000" in page.run(6)

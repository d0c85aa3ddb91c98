"""Delay levels, timers, recall, retries, resets and order by the clients of Apache and RocketPy's own in Python.

The scenarios run side by side, once at RocketPy's broker and once at Apache's 5.5.0, with the same table of short
levels. Java 5.5.0 does all of them, Java 4.9.8 levels and retries, Go levels and retries, C++ levels, Python levels,
timers and recall. Every message says when it was stored, so one that comes before its time is seen. How late they come
depends on the machine; only the patience of the clients bounds it.

Members of Java 4.9.8, Go and C++ are reset while they run, at RocketPy's broker only: by those that tell the members
(220), and by those whose next pulls say so. Members that die in order are Java's at both brokers, Go's and C++'s at
RocketPy's. Says nothing of durability.
"""

import contextlib
import itertools
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rocketpy
from peers import (
    LEVEL_TABLE,
    LEVELS_S,
    Answer,
    Cpp,
    Go,
    Java,
    exchange,
    finish,
    lines,
    port_of_broker,
    rocketpy_server,
    running,
    set_up_client_4_9,
    stop,
)
from sdk import came, fresh, messages
from waiting import moment_between, wait_until

LEVELS = range(1, len(LEVELS_S) + 1)
SCENARIOS = {"5.5.0": ["levels", "timers", "retries", "reset"], "4.9.8": ["levels", "retries"]}
"""What each version of Java's client does; 4.9 has no timers, and its administration is not on the class path."""
SENDERS_OF_LEVELS = ("go", "cpp", "python")
TIMES_MS = (10, 500, 2000, 20_000)
ATTEMPTS = 17
GO_RETRIES = 3
PER_QUEUE = 8
HANGS_AT = 5
LOCKED_AT_LEAST_MS = {"java": 55_000, "go": 55_000, "cpp": 35_000}
"""The broker's minute, without the time since the dead member's last renewal: C++ renews every 20 s only."""
FAILING = ("later", "thrown")
OWN_OF_A_BROKER = {"CLUSTER", "MSG_REGION", "MIN_OFFSET", "MAX_OFFSET", "__CRC32#", "WAIT"}
"""WAIT: Apache's broker sets it to false in what is sent back, RocketPy's leaves it; neither looks at it again."""
OWN_OF_DEAD_LETTERS = {"DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_REASON", "DLQ_ERROR", "DELAY"}
"""RocketPy's broker adds what they were, and leaves out the delay, which they do not have."""


@dataclass(frozen=True)
class Run:
    """What came of the scenarios at one broker."""

    prefixes: dict[str, str]
    """Of topics and groups, by version of Java's client."""
    java: dict[str, list[dict]]
    go: list[dict]
    """Attempts at one message."""
    levels: list[rocketpy.ReceivedMessage]
    dead: dict[str, dict[str, rocketpy.ReceivedMessage]]
    """Dead letters of Go and of Java's versions, by key."""

    def messages(self, scenario: str, version: str = "5.5.0") -> list[dict]:
        return [one for one in self.java[version] if one["scenario"] == scenario and "keys" in one]

    def facts(self, scenario: str) -> list[dict]:
        """What Java printed beside the messages."""
        facts = [one for one in self.java["5.5.0"] if one["scenario"] == scenario and "keys" not in one]
        return [{name: value for name, value in one.items() if name != "scenario"} for one in facts]

    def attempts(self, key: str, version: str) -> list[dict]:
        return [one for one in self.messages("retries", version) if one["keys"] == key]


def run(address: str, home: Path, javas: dict[str, Java], go: Go, cpp: Cpp) -> Run:
    prefix = fresh("model")
    prefixes = {version: f"{prefix}-{version.replace('.', '')}" for version in javas}
    topic_of_levels = f"{prefixes['5.5.0']}-levels"
    groups = {version: f"{of_version}-retries-group" for version, of_version in prefixes.items()}
    groups["go"] = f"{prefix}-go-group"
    with rocketpy.Admin(address) as admin:
        topics = [f"{prefixes[version]}-{scenario}" for version in javas for scenario in SCENARIOS[version]]
        for topic in (*topics, f"{prefix}-go"):
            admin.create_topic(topic, queues=4)
        for group in groups.values():
            # As after the group's first start, which makes the topic; the client looks for it again after 30 s.
            admin.create_topic(f"%RETRY%{group}", queues=1)
        send_by_python(address, topic_of_levels, f"{prefixes['5.5.0']}-timers")
        scenarios = {
            version: java.begin("Scenarios", address, prefixes[version], *SCENARIOS[version])
            for version, java in javas.items()
        }
        failing = go.start_driver(home / "go", "retry", address, f"{prefix}-go", str(GO_RETRIES), groups["go"])
        go.drive(home / "go", "send", address, f"{prefix}-go", "1", "hard", "TagA")
        for name, client in (("go", go), ("cpp", cpp)):
            client.drive(home / name, "levels", address, topic_of_levels, str(len(LEVELS)), name)
        wait_until(lambda: f"%DLQ%{groups['go']}" in admin.topics(), "the dead letter of Go", process=failing)
        tries = stop(failing)
    by_java = {version: finish(process) for version, process in scenarios.items()}
    return Run(
        prefixes,
        by_java,
        [one for one in tries if "of" in one],
        came(address, topic_of_levels, fresh("reader"), set(bodies_of_levels())),
        {
            client: {
                message.keys[0]: message
                for message in came(
                    address, f"%DLQ%{group}", fresh("reader"), {"hard-0"} if client == "go" else {*FAILING, "doomed"}
                )
            }
            for client, group in groups.items()
        },
    )


def send_by_python(address: str, levels: str, timers: str) -> None:
    """What the other clients send to the topics of these scenarios. Java reads the timers, until its own last one."""

    def message(topic: str, key: str, **later: Any) -> rocketpy.Message:
        return rocketpy.Message(topic, key.encode(), keys=[key], **later)

    with rocketpy.Producer(fresh("python"), name_servers=[address], send_timeout=30) as producer:
        for level in LEVELS:
            producer.send(message(levels, f"python-{level - 1}", delay_level=level))
        for ms in TIMES_MS:
            producer.send(message(timers, f"python-delay-{ms}", delay=timedelta(milliseconds=ms)))
            due = datetime.now(UTC) + timedelta(milliseconds=ms)
            producer.send(message(timers, f"python-deliver-{ms}", deliver_at=due))
        for number in range(3):
            producer.recall(producer.send(message(timers, f"python-recalled-{number}", delay=15)))


def bodies_of_levels() -> dict[str, int]:
    """What all clients send, with its level."""
    return {
        **{f"level-{level}": level for level in LEVELS},
        **{f"{name}-{level - 1}": level for name in SENDERS_OF_LEVELS for level in LEVELS},
    }


@dataclass(frozen=True)
class Order:
    """What two members of a group did with four queues, of which one was killed within message 5 of each."""

    first: list[dict]
    second: list[dict]
    killed_at_ms: int


def read_until(process: subprocess.Popen, found: list[dict], what: str, number: int) -> None:
    """Reads until that has happened to the message of that number in every queue."""
    for line in events(process):
        found.append(line)
        if sum(event(one) == (what, number) for one in found) == 4:
            return
    raise AssertionError(f"the member ended: {found}")


def events(process: subprocess.Popen) -> Iterator[dict]:
    return (line for line in lines(process) if line.keys() & {"began", "ended"})


def event(line: dict) -> tuple[str, int]:
    [(what, key)] = [(what, line[what]) for what in ("began", "ended") if what in line]
    return what, int(key.rsplit("-", 1)[1])


def member_dies(address: str, command: Callable[[str, str, str], list[str]]) -> Order:
    """`command` starts a member of a group for a topic, which hangs at messages of a number."""
    topic, group = fresh("order"), fresh("orderly")
    with (
        contextlib.ExitStack() as kept,
        rocketpy.Admin(address) as admin,
        rocketpy.Producer(fresh("order"), name_servers=[address]) as producer,
    ):
        admin.create_topic(topic, queues=4)
        for queue in admin.queues(topic):
            for message in messages(topic, PER_QUEUE, f"{queue.queue_id}"):
                producer.send(message, queue=queue)
        by_first: list[dict] = []
        by_second: list[dict] = []
        with running(command(topic, group, f"{HANGS_AT}")) as first:
            read_until(first, by_first, "began", HANGS_AT)
            second = kept.enter_context(running(command(topic, group, f"{PER_QUEUE}")))
            wait_until(lambda: len(admin.group_members(group)) == 2, "the second member", process=second)
            killed_at_ms = time.time_ns() // 1_000_000
            first.kill()
            by_first += events(first)
        read_until(second, by_second, "ended", PER_QUEUE - 1)
    return Order(by_first, by_second, killed_at_ms)


@dataclass(frozen=True)
class Reset:
    """What a member of a group did that was reset while it ran."""

    keys: list[str]
    """Of the messages that came."""
    status: Answer
    """Where its broker said that it was, before the reset."""


OLD, NEW = ([f"{age}-{number}" for number in range(count)] for age, count in (("old", 8), ("new", 4)))
"""Messages before and after the time of the reset, two and one for each queue."""


def reset_member(address: str, home: Path, client: Java | Go | Cpp) -> Reset:
    """Resets a group to the time between the messages, when its member has committed all of them."""
    topic, group = fresh("reset"), fresh("resetting")
    with rocketpy.Admin(address) as admin:
        admin.create_topic(topic, queues=4)
        queues, port = admin.queues(topic), port_of_broker(admin)
        with rocketpy.Producer(fresh("reset"), name_servers=[address]) as producer:
            for message, queue in zip(messages(topic, len(OLD), "old"), 2 * queues, strict=True):
                producer.send(message, queue=queue)
            between_ms = int(moment_between() * 1000)
            for message, queue in zip(messages(topic, len(NEW), "new"), queues, strict=True):
                producer.send(message, queue=queue)
        member = client.start_driver(home, "push", address, topic, str(len(OLD + NEW + NEW)), group)
        offsets = [3, 3, 3, 3]
        wait_until(lambda: [admin.committed_offset(group, queue) for queue in queues] == offsets, process=member)
        status = exchange(port, 223, topic=topic, group=group, clientAddr="")
        place = {"topic": topic, "group": group, "isForce": "true", "queueId": -1}
        answer = exchange(port, 222, timestamp=between_ms, **place)
        assert answer.code == 0, answer
        came = finish(member)
    return Reset([one["keys"] for one in came], status)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=16) as pool:  # they wait for most of their time
        yield pool


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker that tells members when their group is reset (220). At the other one their next pulls say so."""
    home = tmp_path_factory.mktemp("model")
    with rocketpy_server(home, f"--set=messageDelayLevel={LEVEL_TABLE}", "--set=useServerSideResetOffset=false") as own:
        yield own


@pytest.fixture(scope="module")
def addresses(address: str, pool: ThreadPoolExecutor, start_apache: Callable[[], str]) -> dict[str, Callable[[], str]]:
    """Of both brokers. Apache's starts while the other one is at work."""
    return {"rocketpy": lambda: address, "apache": pool.submit(start_apache).result}


@pytest.fixture(scope="module")
def javas(java: Java) -> dict[str, Java]:
    return {"5.5.0": java, "4.9.8": set_up_client_4_9()}


@pytest.fixture(scope="module")
def runs(
    addresses: dict[str, Callable[[], str]],
    pool: ThreadPoolExecutor,
    javas: dict[str, Java],
    go: Go,
    cpp: Cpp,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Future[Run]]:
    """Both at once; their time is that of the messages that wait."""

    def begin(name: str, address: Callable[[], str]) -> Future[Run]:
        home = tmp_path_factory.mktemp(name)
        return pool.submit(lambda: run(address(), home, javas, go, cpp))

    return {name: begin(name, address) for name, address in addresses.items()}


@pytest.fixture(scope="module", autouse=True)
def orders(
    addresses: dict[str, Callable[[], str]],
    pool: ThreadPoolExecutor,
    java: Java,
    go: Go,
    cpp: Cpp,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, str], Future[Order]]:
    """By client and broker. Begun first: they take longer than all others."""

    def begin(client: str, broker: str) -> Future[Order]:
        home = tmp_path_factory.mktemp("order")
        often = ("-Drocketmq.client.rebalance.lockInterval=500",)  # so that its locks are fresh when it dies

        def order() -> Order:
            address = addresses[broker]()
            commands: dict[str, Callable[[str, str, str], list[str]]] = {
                "java": lambda topic, group, hangs: java.command(
                    "Members", home / hangs, "orderly", address, topic, group, f"-{hangs}", options=often
                ),
                "go": lambda topic, group, hangs: [go.program, "member", address, topic, hangs, group],
                "cpp": lambda topic, group, hangs: cpp.command("member", address, topic, hangs, group),
            }
            return member_dies(address, commands[client])

        return pool.submit(order)

    begun = {(client, "rocketpy"): begin(client, "rocketpy") for client in LOCKED_AT_LEAST_MS}
    begun["java", "apache"] = begin("java", "apache")
    return begun


@pytest.fixture(scope="module", autouse=True)
def resets(
    orders: dict[tuple[str, str], Future[Order]],
    address: str,
    rocketpy_address: str,
    pool: ThreadPoolExecutor,
    javas: dict[str, Java],
    go: Go,
    cpp: Cpp,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, str], Future[Reset]]:
    """By client, and how the broker resets its members. They take half a minute."""
    clients: dict[str, Java | Go | Cpp] = {"java": javas["4.9.8"], "go": go, "cpp": cpp}
    brokers = {"told": address, "by pulls": rocketpy_address}
    return {
        (name, how): pool.submit(reset_member, brokers[how], tmp_path_factory.mktemp("reset"), client)
        for name, client in clients.items()
        for how in brokers
    }


@pytest.fixture(params=["rocketpy", "apache"])
def each_run(request: pytest.FixtureRequest, runs: dict[str, Future[Run]]) -> Run:
    return runs[request.param].result()


def waited_ms(message: dict) -> int:
    return message["stored_at_ms"] - message["born_at_ms"]


def test_a_message_of_each_level_comes_once_and_not_before_its_time(each_run: Run):
    """18 levels, sent by all clients, read by Java and Python."""
    read_by_java = [one for version in SCENARIOS for one in each_run.messages("levels", version)]
    by_itself = Counter(f"level-{level}" for level in LEVELS)
    assert Counter(one["keys"] for one in each_run.messages("levels", "4.9.8")) == by_itself
    assert {one["keys"] for one in each_run.messages("levels")} >= by_itself.keys()
    for one in read_by_java:
        level = bodies_of_levels()[one["body"]]
        assert waited_ms(one) >= LEVELS_S[level - 1] * 1000, one
        asked = {"DELAY": str(level), "REAL_TOPIC": one["topic"], "REAL_QID": str(one["queue_id"])}
        assert one["properties"] | asked == one["properties"]
    for message in each_run.levels:
        level = bodies_of_levels()[message.body.decode()]
        assert message.stored_at_ms - message.born_at_ms >= LEVELS_S[level - 1] * 1000, message
        assert message.properties["DELAY"] == str(level)
    assert Counter(message.body.decode() for message in each_run.levels) == Counter(list(bodies_of_levels()))


def test_timers_of_java_and_python_come_once_and_not_before_their_time_and_recalled_ones_never(each_run: Run):
    """From 10 ms to 21 s. "Never": not before a message that is due six seconds after them."""
    messages = {one["keys"]: one for one in each_run.messages("timers")}
    assert len(messages) == len(each_run.messages("timers"))
    kinds = ("delay", "deliver", "python-delay", "python-deliver")
    times_ms = {f"{kind}-{ms}": ms for kind in kinds for ms in TIMES_MS}
    times_ms |= {"seconds-2": 2000, "last": 21_000}
    assert messages.keys() == times_ms.keys()
    for key, time_ms in times_ms.items():
        if "deliver" not in key:
            assert waited_ms(messages[key]) >= time_ms, messages[key]
        elif "TIMER_DELIVER_MS" in messages[key]["properties"]:
            assert messages[key]["stored_at_ms"] >= int(messages[key]["properties"]["TIMER_DELIVER_MS"]), messages[key]
    assert each_run.facts("timers") == [{"recalled": f"recalled-{number}", "is_it": True} for number in range(3)]


@pytest.mark.parametrize("version", SCENARIOS)
def test_java_fails_sixteen_times_more_each_after_the_time_of_its_level_and_then_the_message_is_dead(
    each_run: Run, version: str
):
    """Sent back because the listener said so or threw. A member alone: not shown is who gets the next attempt."""
    topic = f"{each_run.prefixes[version]}-retries"
    for key in FAILING:
        attempts = each_run.attempts(key, version)
        assert [one["reconsume_times"] for one in attempts] == list(range(ATTEMPTS))
        assert {(one["topic"], one["tag"], one["origin"]) for one in attempts} == {(topic, "TagA", "java")}
        for level, (before, after) in enumerate(itertools.pairwise(attempts), 3):
            assert after["stored_at_ms"] - before["came_at_ms"] >= LEVELS_S[level - 1] * 1000, (before, after)
        check_dead(each_run.dead[version][key], ATTEMPTS, attempts[0]["msg_id"], topic)
    [only] = each_run.attempts("doomed", version)
    check_dead(each_run.dead[version]["doomed"], 1, only["msg_id"], topic)


def test_go_fails_as_often_as_it_may_each_after_the_time_of_its_level(each_run: Run):
    assert [(one["of"], one["reconsume_times"]) for one in each_run.go] == [
        ("hard-0", times) for times in range(GO_RETRIES + 1)
    ]
    for level, (before, after) in enumerate(itertools.pairwise(each_run.go), 3):
        assert after["came_at_ms"] - before["came_at_ms"] >= LEVELS_S[level - 1] * 1000
    dead = each_run.dead["go"]["hard-0"]
    check_dead(dead, GO_RETRIES + 1, dead.msg_id, f"{each_run.prefixes['5.5.0'].rsplit('-', 1)[0]}-go")


def check_dead(dead: rocketpy.ReceivedMessage, times: int, msg_id: str, topic: str) -> None:
    assert (dead.reconsume_times, dead.msg_id, dead.properties["RETRY_TOPIC"]) == (times, msg_id, topic)
    assert dead.properties["ORIGIN_MESSAGE_ID"]


def test_messages_have_the_properties_that_apaches_broker_gives_them(runs: dict[str, Future[Run]]):
    """Their names; some values are looked at by the other tests. One due at once may be stored as a plain message."""

    def names(run: Run) -> dict[str, set[str]]:
        found = {one["keys"]: set(one["properties"]) for one in run.messages("levels") + run.messages("timers")}
        for soon in ("delay-10", "deliver-10", "deliver-500"):
            del found[soon], found[f"python-{soon}"]
        for version in SCENARIOS:
            for one in run.messages("levels", version) + run.messages("retries", version):
                found[f"{version} {one['keys']} {one['reconsume_times']}"] = set(one["properties"])
        for client, letters in run.dead.items():
            for key, message in letters.items():
                found[f"dead {client} {key}"] = {*message.properties} - OWN_OF_DEAD_LETTERS
        found |= {message.body.decode(): set(message.properties) for message in run.levels}
        return {key: properties - OWN_OF_A_BROKER for key, properties in found.items()}

    ours, apaches = (names(one.result()) for one in runs.values())
    for key, properties in apaches.items():
        if properties & {"TIMER_DELAY_MS", "TIMER_DELAY_SEC"}:
            properties.add("TIMER_DELIVER_MS")  # RocketPy's broker writes the exact time, whatever it was asked by
        assert ours[key] == properties, key


def test_a_running_java_member_tells_what_it_does_and_goes_where_its_group_is_reset(each_run: Run):
    """By a time between eight messages and four later ones: these come again. Says nothing of messages in work then."""
    topic = f"{each_run.prefixes['5.5.0']}-reset"
    group = f"{topic}-group"
    running, directly, before, reset = each_run.facts("reset")
    assert running == {
        "topics": sorted([topic, f"%RETRY%{group}"]),
        "queues": 4,
        "type": "CONSUME_PASSIVELY",
        "has_stacks": True,
    }
    assert (directly, before, reset) == ({"directly": "CR_SUCCESS"}, {"before": 12}, {"reset": 8})
    assert Counter(one["keys"] for one in each_run.messages("reset")) == Counter([*OLD, *NEW, *NEW, "old-0"])


@pytest.mark.parametrize("how", ["told", "by pulls"])
@pytest.mark.parametrize("client", ["java", "go", "cpp"])
def test_running_members_of_other_clients_go_where_their_group_is_reset(
    resets: dict[tuple[str, str], Future[Reset]], client: str, how: str
):
    """Java 4.9.8, Go 2.1.2 and C++ 0.4.4: only what is later comes again. C++ does not say where it is (221)."""
    story = resets[client, how].result()
    assert Counter(story.keys) == Counter([*OLD, *NEW, *NEW])
    if client == "cpp":
        assert story.status.code == 207
    else:
        assert (story.status.code, re.findall(rb"}:(\d+)", story.status.body)) == (0, 4 * [b"3"])


@pytest.mark.parametrize(
    ("client", "broker"), [("java", "rocketpy"), ("java", "apache"), ("go", "rocketpy"), ("cpp", "rocketpy")]
)
def test_the_queues_of_an_orderly_member_that_dies_in_work_go_to_the_other_after_their_locks_expired(
    orders: dict[tuple[str, str], Future[Order]], client: str, broker: str
):
    """Nothing is lost, nothing is out of order, never do both work on one queue. What was not committed comes again.

    Locks last for a minute; the first member renews them until its end. That they last no longer is not looked at.
    C++ gives queues up that are the other's now, though it works on them: they may go over at once.
    """
    story = orders[client, broker].result()
    begins_ms = [min(one["at_ms"] for one in story.second if one["queue_id"] == queue) for queue in range(4)]
    at_once = [begin_ms for begin_ms in begins_ms if begin_ms < story.killed_at_ms + LOCKED_AT_LEAST_MS[client]]
    assert len(at_once) <= (2 if client == "cpp" else 0)
    for queue in range(4):
        by_first, by_second = (
            [event(one) for one in of if one["queue_id"] == queue] for of in (story.first, story.second)
        )
        done = [("began" if half == 0 else "ended", number) for number in range(PER_QUEUE) for half in (0, 1)]
        assert by_first == done[: 2 * HANGS_AT + 1]
        again = by_second[0][1]
        assert again <= HANGS_AT
        assert by_second == done[2 * again :]

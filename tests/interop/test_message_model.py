"""Delay levels, timers, recall, retries and resets by Apache's Java client 5.5.0; levels and retries by others as well.

The scenarios run side by side, once at RocketPy's broker and once at Apache's 5.5.0, with the same table of short
levels. Every message says when it was stored, so one that comes before its time is seen. How late they come depends on
the machine; only the patience of the clients bounds it. Says nothing of durability.
"""

import contextlib
import itertools
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

import rocketpy
from peers import LEVEL_TABLE, LEVELS_S, Cpp, Go, Java, finish, lines, rocketpy_server, running, start, stop
from sdk import came, fresh, messages
from waiting import wait_until

LEVELS = range(1, len(LEVELS_S) + 1)
SCENARIOS = ["levels", "timers", "retries", "reset"]
ATTEMPTS = 17
GO_RETRIES = 3
PER_QUEUE = 8
HANGS_AT = 5
LOCKED_AT_LEAST_MS = 55_000
"""The broker's minute, without the time since the dead member's last renewal."""
FAILING = ("later", "thrown")
OWN_OF_A_BROKER = {"CLUSTER", "MSG_REGION", "MIN_OFFSET", "MAX_OFFSET", "__CRC32#", "WAIT"}
"""WAIT: Apache's broker sets it to false in what is sent back, RocketPy's leaves it; neither looks at it again."""
OWN_OF_DEAD_LETTERS = {"DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_REASON", "DELAY"}
"""RocketPy's broker adds what they were, and leaves out the delay, which they do not have."""


@dataclass(frozen=True)
class Run:
    """What came of the scenarios at one broker."""

    prefix: str
    java: list[dict]
    go: list[dict]
    """Attempts at one message."""
    levels: list[rocketpy.ReceivedMessage]
    dead: dict[str, rocketpy.ReceivedMessage]
    """Dead letters of Java and Go, by key."""

    def messages(self, scenario: str) -> list[dict]:
        return [one for one in self.java if one["scenario"] == scenario and "keys" in one]

    def facts(self, scenario: str) -> list[dict]:
        """What Java printed beside the messages."""
        facts = [one for one in self.java if one["scenario"] == scenario and "keys" not in one]
        return [{name: value for name, value in one.items() if name != "scenario"} for one in facts]

    def attempts(self, key: str) -> list[dict]:
        return [one for one in self.messages("retries") if one["keys"] == key]


def run(address: str, home: Path, java: Java, go: Go, cpp: Cpp) -> Run:
    prefix = fresh("model")
    groups = (f"{prefix}-retries-group", f"{prefix}-go-group")
    with rocketpy.Admin(address) as admin:
        for topic in (*SCENARIOS, "go"):
            admin.create_topic(f"{prefix}-{topic}", queues=4)
        for group in groups:
            # As after the group's first start, which makes the topic; the client looks for it again after 30 s.
            admin.create_topic(f"%RETRY%{group}", queues=1)
        scenarios = start(java.command("Scenarios", home / "java", address, prefix, *SCENARIOS))
        failing = go.start_driver(home / "go", "retry", address, f"{prefix}-go", str(GO_RETRIES), groups[1])
        go.drive(home / "go", "send", address, f"{prefix}-go", "1", "hard", "TagA")
        for name, client in (("go", go), ("cpp", cpp)):
            client.drive(home / name, "levels", address, f"{prefix}-levels", str(len(LEVELS)), name)
        wait_until(lambda: f"%DLQ%{groups[1]}" in admin.topics(), "the dead letter of Go", process=failing)
        tries = stop(failing)
    by_java = finish(scenarios)
    return Run(
        prefix,
        by_java,
        [one for one in tries if "of" in one],
        came(address, f"{prefix}-levels", fresh("reader"), set(bodies_of_levels())),
        {
            message.keys[0]: message
            for group, wanted in zip(groups, ({*FAILING, "doomed"}, {"hard-0"}), strict=True)
            for message in came(address, f"%DLQ%{group}", fresh("reader"), wanted)
        },
    )


def bodies_of_levels() -> dict[str, int]:
    """What all clients send, with its level."""
    return {
        **{f"level-{level}": level for level in LEVELS},
        **{f"{name}-{level - 1}": level for name in ("go", "cpp") for level in LEVELS},
    }


@dataclass(frozen=True)
class Order:
    """What two members of a group did with four queues, of which one was killed within message 5 of each."""

    first: list[dict]
    second: list[dict]
    killed_at_ms: int


def read_until(process: subprocess.Popen, found: list[dict], what: str, number: int) -> None:
    """Reads until that has happened to the message of that number in every queue."""
    for line in lines(process):
        found.append(line)
        if sum(event(one) == (what, number) for one in found) == 4:
            return
    raise AssertionError(f"the member ended: {found}")


def event(line: dict) -> tuple[str, int]:
    [(what, key)] = [(what, line[what]) for what in ("began", "ended") if what in line]
    return what, int(key.rsplit("-", 1)[1])


def member_dies(address: str, home: Path, java: Java) -> Order:
    topic, group = fresh("order"), fresh("orderly")
    often = ("-Drocketmq.client.rebalance.lockInterval=500",)  # so that its locks are fresh when it dies
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
        command = ("orderly", address, topic, group)
        dies = java.command("Members", home / "first", *command, f"-{HANGS_AT}", options=often)
        takes_over = java.command("Members", home / "second", *command)
        with running(dies) as first:
            read_until(first, by_first, "began", HANGS_AT)
            second = kept.enter_context(running(takes_over))
            wait_until(lambda: len(admin.group_members(group)) == 2, "the second member", process=second)
            killed_at_ms = time.time_ns() // 1_000_000
            first.kill()
            by_first += lines(first)
        read_until(second, by_second, "ended", PER_QUEUE - 1)
    return Order(by_first, by_second, killed_at_ms)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker that tells members when their group is reset (220). At the other one their next pulls say so."""
    home = tmp_path_factory.mktemp("model")
    with rocketpy_server(home, f"--set=messageDelayLevel={LEVEL_TABLE}", "--set=useServerSideResetOffset=false") as own:
        yield own


@pytest.fixture(scope="module")
def runs(
    address: str,
    apache_address: str,
    pool: ThreadPoolExecutor,
    java: Java,
    go: Go,
    cpp: Cpp,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Future[Run]]:
    """Both at once; their time is that of the messages that wait."""

    def begin(name: str, address: str) -> Future[Run]:
        return pool.submit(run, address, tmp_path_factory.mktemp(name), java, go, cpp)

    return {"rocketpy": begin("rocketpy", address), "apache": begin("apache", apache_address)}


@pytest.fixture(scope="module", autouse=True)
def order(
    address: str, pool: ThreadPoolExecutor, java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Future[Order]:
    """Begun first: it takes longer than all others."""
    return pool.submit(member_dies, address, tmp_path_factory.mktemp("order"), java)


@pytest.fixture(params=["rocketpy", "apache"])
def each_run(request: pytest.FixtureRequest, runs: dict[str, Future[Run]]) -> Run:
    return runs[request.param].result()


def waited_ms(message: dict) -> int:
    return message["stored_at_ms"] - message["born_at_ms"]


def test_a_message_of_each_level_comes_once_and_not_before_its_time(each_run: Run):
    """18 levels, sent by three clients, read by Java and Python."""
    read_by_java = each_run.messages("levels")
    assert {one["keys"] for one in read_by_java} >= {f"level-{level}" for level in LEVELS}
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


def test_timers_of_java_come_once_and_not_before_their_time_and_recalled_ones_never(each_run: Run):
    """From 10 ms to 21 s. "Never": not before a message that is due six seconds after them."""
    messages = {one["keys"]: one for one in each_run.messages("timers")}
    assert len(messages) == len(each_run.messages("timers"))
    times_ms = {f"{kind}-{ms}": ms for kind in ("delay", "deliver") for ms in (10, 500, 2000, 20_000)}
    times_ms |= {"seconds-2": 2000, "last": 21_000}
    assert messages.keys() == times_ms.keys()
    for key, time_ms in times_ms.items():
        if not key.startswith("deliver"):
            assert waited_ms(messages[key]) >= time_ms, messages[key]
        elif "TIMER_DELIVER_MS" in messages[key]["properties"]:
            assert messages[key]["stored_at_ms"] >= int(messages[key]["properties"]["TIMER_DELIVER_MS"]), messages[key]
    assert each_run.facts("timers") == [{"recalled": f"recalled-{number}", "is_it": True} for number in range(3)]


def test_java_fails_sixteen_times_more_each_after_the_time_of_its_level_and_then_the_message_is_dead(each_run: Run):
    """Sent back because the listener said so or threw. A member alone: not shown is who gets the next attempt."""
    topic = f"{each_run.prefix}-retries"
    for key in FAILING:
        attempts = each_run.attempts(key)
        assert [one["reconsume_times"] for one in attempts] == list(range(ATTEMPTS))
        assert {(one["topic"], one["tag"], one["origin"]) for one in attempts} == {(topic, "TagA", "java")}
        for level, (before, after) in enumerate(itertools.pairwise(attempts), 3):
            assert after["stored_at_ms"] - before["came_at_ms"] >= LEVELS_S[level - 1] * 1000, (before, after)
        check_dead(each_run, key, ATTEMPTS, attempts[0]["msg_id"], topic)
    [only] = each_run.attempts("doomed")
    check_dead(each_run, "doomed", 1, only["msg_id"], topic)


def test_go_fails_as_often_as_it_may_each_after_the_time_of_its_level(each_run: Run):
    assert [(one["of"], one["reconsume_times"]) for one in each_run.go] == [
        ("hard-0", times) for times in range(GO_RETRIES + 1)
    ]
    for level, (before, after) in enumerate(itertools.pairwise(each_run.go), 3):
        assert after["came_at_ms"] - before["came_at_ms"] >= LEVELS_S[level - 1] * 1000
    dead = each_run.dead["hard-0"]
    check_dead(each_run, "hard-0", GO_RETRIES + 1, dead.msg_id, f"{each_run.prefix}-go")


def check_dead(each_run: Run, key: str, times: int, msg_id: str, topic: str) -> None:
    dead = each_run.dead[key]
    assert (dead.reconsume_times, dead.msg_id, dead.properties["RETRY_TOPIC"]) == (times, msg_id, topic)
    assert dead.properties["ORIGIN_MESSAGE_ID"]


def test_messages_have_the_properties_that_apaches_broker_gives_them(runs: dict[str, Future[Run]]):
    """Their names; some values are looked at by the other tests. One due at once may be stored as a plain message."""

    def names(run: Run) -> dict[str, set[str]]:
        found = {one["keys"]: set(one["properties"]) for one in run.messages("levels") + run.messages("timers")}
        for soon in ("delay-10", "deliver-10", "deliver-500"):
            del found[soon]
        found |= {f"{one['keys']} {one['reconsume_times']}": set(one["properties"]) for one in run.messages("retries")}
        dead = {key: {*message.properties} - OWN_OF_DEAD_LETTERS for key, message in run.dead.items()}
        found |= {f"dead {key}": properties for key, properties in dead.items()}
        found |= {message.body.decode(): set(message.properties) for message in run.levels}
        return {key: properties - OWN_OF_A_BROKER for key, properties in found.items()}

    ours, apaches = (names(one.result()) for one in runs.values())
    for key, properties in apaches.items():
        if properties & {"TIMER_DELAY_MS", "TIMER_DELAY_SEC"}:
            properties.add("TIMER_DELIVER_MS")  # RocketPy's broker writes the exact time, whatever it was asked by
        assert ours[key] == properties, key


def test_a_running_java_member_tells_what_it_does_and_goes_where_its_group_is_reset(each_run: Run):
    """By a time between eight messages and four later ones: these come again. Says nothing of messages in work then."""
    old, new = ([f"{age}-{number}" for number in range(count)] for age, count in (("old", 8), ("new", 4)))
    group = f"{each_run.prefix}-reset-group"
    running, directly, before, reset = each_run.facts("reset")
    assert running == {
        "topics": sorted([f"{each_run.prefix}-reset", f"%RETRY%{group}"]),
        "queues": 4,
        "type": "CONSUME_PASSIVELY",
        "has_stacks": True,
    }
    assert (directly, before, reset) == ({"directly": "CR_SUCCESS"}, {"before": 12}, {"reset": 8})
    assert Counter(one["keys"] for one in each_run.messages("reset")) == Counter([*old, *new, *new, "old-0"])


def test_the_queues_of_an_orderly_member_that_dies_in_work_go_to_the_other_after_their_locks_expired(
    order: Future[Order],
):
    """Nothing is lost, nothing is out of order, never do both work on one queue. What was not committed comes again.

    Locks last for a minute; the first member renews them until its end. That they last no longer is not looked at.
    """
    story = order.result()
    assert min(one["at_ms"] for one in story.second) >= story.killed_at_ms + LOCKED_AT_LEAST_MS
    for queue in range(4):
        by_first, by_second = (
            [event(one) for one in of if one["queue_id"] == queue] for of in (story.first, story.second)
        )
        done = [("began" if half == 0 else "ended", number) for number in range(PER_QUEUE) for half in (0, 1)]
        assert by_first == done[: 2 * HANGS_AT + 1]
        again = by_second[0][1]
        assert again <= HANGS_AT
        assert by_second == done[2 * again :]

"""One open format: Apache writes a store, RocketPy continues it, Apache opens it again; each finds what both wrote.

Each case runs once, and the tests look at what came out. The gate begins with the store that Apache left when it was
recorded (`stored_answers`), which RocketPy continues. The soak run has Apache write the store and open it again after
RocketPy, and checks that the recorded answers are still Apache's. Shows that files, messages, offsets, tables and keys
are understood by both, whichever way the other one ended; says nothing of power loss.
"""

import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow
import pytest

import rocketpy
import stored_answers
from apache_processes import apache_cluster, write_broker_conf
from peers import Java, StoreDriver, rocketpy_server, set_up_apache_4_9
from stores import (
    CASES,
    FLOOD,
    GROUP,
    LONG_GROUP,
    TAG_HASHES,
    TOPIC,
    VERSION_2,
    Case,
    committed,
    copy_sparse,
    delivered,
    group_offsets,
    index_entries,
    log,
    queue_files,
    state_of_apache,
    tables,
    write_tables,
)
from waiting import wait_until

FILLED = 29
"""Messages of one run of the driver, without those that only Apache takes."""
SHORT_LEVELS = " ".join(["1s"] * 18)


@dataclass
class Visit:
    """What one broker found, did and left."""

    sent: list[dict] = field(default_factory=list)
    found: list[dict] = field(default_factory=list)
    """Every message, read by Java before anything is written."""
    read: list[dict] = field(default_factory=list)
    """Every message, read by Java at the end."""
    consumed: list[str] = field(default_factory=list)
    """What the group got, by the hash of each body and its keys."""
    answers: list[dict] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """Of topics and groups that the broker tells of."""
    acknowledged: list[str] = field(default_factory=list)
    """Keys of what was sent while the broker was killed."""
    flood: list[dict] = field(default_factory=list)
    """What the topic of such messages holds."""


@dataclass
class Story:
    """One case: a store, and the visits to it."""

    case: Case
    home: Path
    client: StoreDriver
    apache: Java | None
    """None: the store is the recorded one."""

    @property
    def kinds(self) -> list[str]:
        """What Apache fills the store with. What waits for hours would be due in a store that is older."""
        keeps = self.apache is not None and not stored_answers.RECORDS
        return self.case.kinds + (self.case.kinds_for_later if keeps else [])

    @property
    def waits(self) -> set[str]:
        """Keys of what waits for its time when Apache has left."""
        return {"a-delay-18"} if "far-delay" in self.kinds else set()

    @property
    def store(self) -> Path:
        return self.home / "store"

    def visit_apache(self, settings: dict[str, object], clean: bool):
        assert self.apache is not None
        return apache_cluster(self.apache, self.home, self.case.settings | settings, self.case.topics, clean)

    def visit_rocketpy(self, store: Path, clean: bool):
        home = self.home / "rocketpy"
        flags = ["--config", str(self.home / "first.conf")]
        if self.apache is None:  # an open transaction stays open
            flags += [*stored_answers.OLD_STORE, "--set=transactionCheckInterval=86400000"]
        return rocketpy_server(home, *flags, store=store, clean=clean)

    def fill(self, address: str, prefix: str, *kinds: str) -> list[dict]:
        return self.client.run(address, "fill", TOPIC, prefix, *kinds)

    def read(self, address: str) -> list[dict]:
        return self.client.run(address, "read", *self.case.read_topics)

    def read_flood(self, address: str) -> list[dict]:
        return self.client.run(address, "read", FLOOD)

    def begin_flood(self, address: str, prefix: str, clean: bool) -> Iterator[dict]:
        """Unless the broker is to stop in order: sends without end, until it is killed."""
        if clean:
            return iter(())
        flood = self.client.begin(address, "flood", FLOOD, prefix)
        return itertools.chain([next(flood) for _ in range(100)], flood)

    def ask(self, address: str, messages: list[dict]) -> list[dict]:
        return self.client.run(address, "query", questions=questions(messages))

    def consume(self, address: str, count: int) -> list[str]:
        lines = self.client.run(address, "consume", TOPIC, str(count), GROUP)
        return [one["keys"] for one in lines]


def questions(messages: list[dict]) -> list[dict]:
    """Each message by each of its keys, by key in its second, by unique key, and its queue by its time."""
    asked: list[dict] = []
    for one in messages:
        queue, at = {"topic": one["topic"], "queue_id": one["queue_id"]}, one["stored_at_ms"]
        asked.append(queue | {"at_ms": at})
        asked.append({"topic": one["topic"], "msg_id": one["msg_id"]})
        for key in (one.get("keys") or "").split():
            asked.append({"topic": one["topic"], "key": key, "begin": 0, "end": 1 << 62})
            asked.append({"topic": one["topic"], "key": key, "begin": at - 1000, "end": at + 1000})
    return asked


def place(message: dict) -> list[int]:
    return [message["queue_id"], message["queue_offset"]]


def check_answers(answers: list[dict], messages: list[dict], case: Case, by_apache: bool) -> None:
    """Compares what was found with what is there."""
    wrong = [
        one
        for one in answers
        if not is_right(one, [m for m in messages if m["topic"] == one["topic"]], case, by_apache)
    ]
    assert not wrong, f"{len(wrong)} of {len(answers)} answers: {wrong[:5]}"


def is_right(one: dict, messages: list[dict], case: Case, by_apache: bool) -> bool:
    if "answer" not in one:
        return False
    if "at_ms" in one:
        at = {m["queue_offset"]: m["stored_at_ms"] for m in messages if m["queue_id"] == one["queue_id"]}
        if by_apache and not case.is_5:  # 4.9 gives any of those that were stored in the same millisecond
            return at[one["answer"]] == one["at_ms"]
        return one["answer"] == min(offset for offset, stored in at.items() if stored >= one["at_ms"])
    if "msg_id" in one:  # 4.9 gives all messages of a batch one unique key
        return one["answer"][0] in [place(m) for m in messages if m["msg_id"] == one["msg_id"]]
    found, wanted = one["answer"], [place(m) for m in messages if one["key"] in (m.get("keys") or "").split()]
    if by_apache and not case.rocketpy_clean:
        # Its recovery after a kill indexes the last record of the last full index file a second time.
        found = [list(place) for place in {tuple(place) for place in found}]
    return sorted(found) == sorted(wanted)


def without_ends(message: dict) -> dict:
    """A message without what a broker adds to each answer."""
    properties = {
        name: text for name, text in message["properties"].items() if name not in ("MIN_OFFSET", "MAX_OFFSET")
    }
    return message | {"properties": properties}


def same(messages: list[dict]) -> list[str]:
    return sorted(json.dumps(without_ends(one), sort_keys=True) for one in messages)


@pytest.fixture(scope="module")
def driver(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreDriver]:
    driver = StoreDriver(java, tmp_path_factory.mktemp("driver"))
    yield driver
    driver.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Recorded stores for all tests but those that need Apache after RocketPy; live ones for all, in the soak run."""
    if "story" in metafunc.fixturenames:
        recorded = [pytest.param((case, False), id=f"{case.name}-recorded") for case in CASES]
        live = [pytest.param((case, True), id=case.name, marks=pytest.mark.soak) for case in CASES]
        needs_apache = {"reopened", "live"} & {*metafunc.fixturenames}
        metafunc.parametrize("story", live if needs_apache else recorded + live, indirect=True, scope="module")


@pytest.fixture(scope="module")
def story(
    request: pytest.FixtureRequest, java: Java, driver: StoreDriver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    case, live = request.param
    home = tmp_path_factory.mktemp("story")
    apache = (java if case.is_5 else set_up_apache_4_9()) if live else None
    yield Story(case, home, driver, apache)
    shutil.rmtree(home)


@pytest.fixture
def live(story: Story) -> Story:
    """A story that Apache begins."""
    return story


@pytest.fixture(scope="module")
def written(story: Story) -> Visit:
    """Apache writes the store, or has written it."""
    visit = Visit()
    if story.apache is None:
        write_broker_conf(story.home, story.case.settings)
        (story.home / "broker.conf").rename(story.home / "first.conf")
        vars(visit).update(recorded(story.case, story.home))
        shutil.copytree(story.store, story.home / "as-apache-left-it", copy_function=copy_sparse)
        return visit
    write_tables(story.store, story.case)
    with story.visit_apache({}, story.case.clean) as address:
        shutil.copy(story.home / "broker.conf", story.home / "first.conf")
        visit.sent = story.fill(address, "a", *story.kinds)
        begin_group(address)
        visit.consumed = story.consume(address, FILLED + 2)  # with the first delayed and the committed message
        visit.read = story.read(address)
        if not story.case.clean:
            wait_until(lambda: committed(story.store) >= FILLED + 2 and delivered(story.store) == 1)
        flood = story.begin_flood(address, "a", story.case.clean)
    visit.acknowledged = [one["keys"] for one in flood]
    shutil.copytree(story.store, story.home / "as-apache-left-it", copy_function=copy_sparse)
    if stored_answers.RECORDS:
        answers = {name: getattr(visit, name) for name in ("sent", "consumed", "read", "acknowledged")}
        version = {"version": story.case.version}
        stored_answers.record(story.case.name, story.home / "as-apache-left-it", version | answers)
    return visit


def recorded(case: Case, home: Path) -> dict[str, list]:
    """Unpacks the store that Apache left when it was recorded, and returns what it said of it."""
    answers = stored_answers.unpack(case.name, home)
    assert answers.pop("version") == case.version
    return answers


@pytest.fixture(scope="module")
def continued(story: Story, written: Visit) -> Visit:
    """RocketPy continues the store, with Apache's configuration file."""
    visit = Visit()
    repeated = FILLED + 2 - committed(story.store)  # Apache's client may end before its last offset is taken
    with story.visit_rocketpy(story.store, story.case.rocketpy_clean) as address:
        visit.found, visit.flood = story.read(address), story.read_flood(address)
        with rocketpy.Admin(name_servers=[address]) as admin:
            visit.names = {*admin.topics(), *(group.name for group in admin.groups())}
        visit.sent = story.fill(address, "r", *(["long"] if story.case.is_5 else []))
        visit.consumed = consume(address, FILLED + repeated)
        visit.read = story.read(address)
        visit.answers = story.ask(address, visit.read)
        wait_until(lambda: committed(story.store) >= 2 * FILLED + 2)
        flood = story.begin_flood(address, "r", story.case.rocketpy_clean)
    visit.acknowledged = [one["keys"] for one in flood]
    shutil.copytree(story.store, story.home / "as-rocketpy-left-it", copy_function=copy_sparse)
    return visit


@pytest.fixture(scope="module")
def reopened(story: Story, written: Visit, continued: Visit) -> Visit:
    """Apache opens it again. Its levels are short now, so that all delayed messages are due."""
    settings: dict[str, object] = {"messageDelayLevel": SHORT_LEVELS}
    if story.case.record_check:
        settings["forceVerifyPropCRC"] = "true"  # its recovery takes a record without a sound check for broken
    visit = Visit()
    with story.visit_apache(settings, clean=False) as address:
        visit.found, visit.flood = story.read(address), story.read_flood(address)
        visit.sent = story.fill(address, "z", *(["long"] if story.case.is_5 else []))
        visit.consumed = story.consume(address, FILLED + len(story.waits - set(written.consumed)))
        visit.read = story.read(address)
        visit.answers = story.ask(address, visit.read)
    return visit


def begin_group(address: str) -> None:
    """Commits the start of a queue: Apache's broker may lose offsets of a group whose first ones come together."""
    with rocketpy.Consumer(
        GROUP, TOPIC, name_servers=[address], tags="none", start=rocketpy.Start.EARLIEST
    ) as consumer:
        wait_until(lambda: bool(consumer.positions()))
        consumer.commit_offsets({next(iter(consumer.positions())): 0})


def consume(address: str, count: int) -> list[str]:
    """Continues as the group from its offsets; returns the keys."""
    keys: list[str] = []
    with rocketpy.Consumer(GROUP, TOPIC, name_servers=[address], start=rocketpy.Start.EARLIEST) as consumer:
        while len(keys) < count:
            batch = consumer.poll(max_messages=500, timeout=30)
            assert batch, f"{len(keys)} of {count} messages within 30 s"
            keys += [" ".join(message.keys) for message in batch]
        keys += [" ".join(message.keys) for message in consumer.poll(max_messages=500, timeout=0.2)]
        consumer.commit()
    return keys


def keys_of(lines: list[dict], *leave_out: str) -> list[str]:
    return sorted(one.get("keys") or "" for one in lines if one["kind"] not in ("long", *leave_out))


WRITTEN_BY_ALL = {
    "config/delayOffset.json",
    "consumequeue/SCHEDULE_TOPIC_XXXX/0/00000000000000000000",
    "consumequeue/RMQ_SYS_TRANS_HALF_TOPIC/0/00000000000000000000",
}
WRITTEN_SINCE_5 = {
    "config/timermetrics",
    "config/transactionMetrics",
    "config/consumerOrderInfo.json",
    "rocksdbstore/CURRENT",
}
NOT_YET = ("timer", "ROLLBACK_MESSAGE", "UNKNOW")


WRITTEN_FOR_LATER = {"consumequeue/SCHEDULE_TOPIC_XXXX/17/00000000000000000000"}
TIMERS = {"consumequeue/rmq_sys_wheel_timer/0/00000000000000000000", "timerlog/00000000000000000000"}
OWN_OF_A_RUN = {"UNIQ_KEY", "REAL_QID"}
"""Properties whose values differ from run to run."""


def facts(visit: Visit) -> list[str]:
    """What is the same in every run of Apache's broker, of each message that it served."""
    kept = ("topic", "keys", "body", "tag", "sys_flag", "flag", "size_bytes", "properties")
    later = ("a-delay-18", "a-timer")
    return sorted(
        json.dumps({name: without_run(one)[name] for name in kept if name in one}, sort_keys=True)
        for one in visit.read
        if one.get("keys") not in later
    )


def without_run(message: dict) -> dict:
    properties = without_ends(message)["properties"]
    return message | {"properties": {name: properties[name] for name in properties if name not in OWN_OF_A_RUN}}


def test_the_recorded_answers_are_those_of_apache(live: Story, written: Visit, tmp_path: Path):
    """What Apache writes and serves today is what it wrote and served when the store was recorded."""
    known = Visit(**recorded(live.case, tmp_path))
    assert facts(known) == facts(written)
    later = ("timer",)
    assert keys_of(known.sent) == [key for key in keys_of(written.sent, *later) if key not in live.waits]
    assert set(known.consumed) == set(written.consumed) - live.waits
    before, after = (tables(folder) for folder in (tmp_path / "store", live.home / "as-apache-left-it"))
    topics = [set(one["topics.json"]["topicConfigTable"]) for one in (before, after)]
    assert topics[0] ^ topics[1] <= {"rmq_sys_wheel_timer"}
    groups = [one["subscriptionGroup.json"]["subscriptionGroupTable"] for one in (before, after)]
    assert groups[0] == groups[1]
    clean = live.case.clean
    assert (tmp_path / "store" / "abort").exists() == (live.home / "as-apache-left-it" / "abort").exists() != clean


def test_apache_wrote_every_kind_of_message(story: Story, written: Visit):
    """The store is what the other tests take it for."""
    assert sorted({*written.consumed, *story.waits}) == sorted(set(keys_of(written.sent, *NOT_YET)))
    assert len(list((story.store / "commitlog").iterdir())) >= 3
    assert (len(list((story.store / "index").iterdir())) >= 2) == (story.case.index_entries < 100)
    rolls = max(len(list(queue.iterdir())) for queue in (story.store / "consumequeue" / TOPIC).iterdir())
    assert (rolls >= 2) == story.case.is_5
    state = state_of_apache(story.home / "as-apache-left-it")
    assert state.keys() >= WRITTEN_BY_ALL
    assert (state.keys() >= WRITTEN_FOR_LATER) == bool(story.waits)
    assert (state.keys() >= TIMERS) == ("timer" in story.kinds)
    assert (state.keys() >= WRITTEN_SINCE_5) == story.case.is_5
    content = log(story.home / "as-apache-left-it")
    assert (VERSION_2 in content) == story.case.is_5
    assert (b"__CRC32#" in content) == story.case.record_check
    assert (story.home / "as-apache-left-it" / "abort").exists() != story.case.clean
    compressed = next(one for one in written.read if one.get("keys") == "a-compressed")
    assert compressed["size_bytes"] < 10_000
    assert all((":0:1]" in one["store_host"]) == story.case.ipv6 for one in written.read)


def test_a_reader_of_the_folder_finds_what_apache_wrote(story: Story, written: Visit):
    reader = rocketpy.StoreReader(story.home / "as-apache-left-it")
    columns = ["topic", "queue_id", "queue_offset", "msg_id", "keys", "body"]
    rows = [
        row
        for topic in story.case.read_topics
        for row in pyarrow.table(reader.scan(topic, columns=columns)).to_pylist()
    ]
    ours = [
        (row["topic"], row["queue_id"], row["queue_offset"], row["msg_id"], row["keys"] or "", sha(row["body"]))
        for row in rows
    ]
    apaches = [
        (one["topic"], one["queue_id"], one["queue_offset"], one["msg_id"], one.get("keys") or "", one["body"])
        for one in written.read
    ]
    assert sorted(ours) == sorted(apaches)


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_rocketpy_serves_every_message_as_apache_did(written: Visit, continued: Visit):
    assert same(continued.found) == same(written.read)


def check_flood(visit: Visit, acknowledged: list[str]) -> None:
    """All that was acknowledged is there, in order and without a hole; the one on its way may be."""
    by_queue: dict[int, list[int]] = {}
    for one in visit.flood:
        by_queue.setdefault(one["queue_id"], []).append(one["queue_offset"])
    assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())
    keys = [one["keys"] for one in visit.flood]
    assert len(set(keys)) == len(keys)
    assert set(acknowledged) <= set(keys)
    assert len(keys) <= len(acknowledged) + 2


def test_rocketpy_has_all_that_apache_acknowledged_when_it_was_killed(story: Story, written: Visit, continued: Visit):
    assert (len(written.acknowledged) >= 100) != story.case.clean
    check_flood(continued, written.acknowledged)


def test_apache_has_all_that_both_acknowledged_when_they_were_killed(
    story: Story, written: Visit, continued: Visit, reopened: Visit
):
    assert (len(continued.acknowledged) >= 100) != story.case.rocketpy_clean
    check_flood(reopened, written.acknowledged + continued.acknowledged)


def test_the_group_goes_on_at_rocketpy_where_apache_left_it(story: Story, continued: Visit):
    left = group_offsets(story.home / "as-apache-left-it")
    repeated = [
        one.get("keys") or ""
        for one in continued.found
        if one["topic"] == TOPIC and one["queue_offset"] >= left.get(str(one["queue_id"]), 0)
    ]
    assert len(repeated) <= 5
    assert sorted(continued.consumed) == sorted(keys_of(continued.sent) + repeated)


def test_rocketpy_tells_of_the_topics_and_groups_of_apache(story: Story, continued: Visit):
    assert continued.names >= {"typed", "SCHEDULE_TOPIC_XXXX", GROUP, LONG_GROUP, *story.case.topics}


def test_rocketpy_adds_to_the_queues(continued: Visit):
    assert set(same(continued.found)) < set(same(continued.read))
    places = [(one["topic"], *place(one)) for one in continued.read]
    assert len(set(places)) == len(places) == len(continued.found) + len(continued.sent)
    assert sorted(one["body"] for one in continued.sent) == sorted(
        one["body"] for one in continued.read if one["stored_at_ms"] > max(m["stored_at_ms"] for m in continued.found)
    )


def test_rocketpy_finds_by_key_and_time_what_both_wrote(story: Story, continued: Visit):
    check_answers(continued.answers, continued.read, story.case, by_apache=False)


def test_rocketpy_keeps_what_apache_wrote_byte_by_byte(story: Story, continued: Visit):
    before, after = story.home / "as-apache-left-it", story.home / "as-rocketpy-left-it"
    assert state_of_apache(after) == state_of_apache(before)
    end = max(one["physical_offset"] + one["size_bytes"] for one in continued.found + continued.flood)
    old, new = log(before), log(after)
    assert new.startswith(old if story.case.clean else old[:end])  # a kill may leave a torn record
    added = new[end:]
    assert (VERSION_2 in added) == story.case.is_5
    assert (b"__CRC32#" in added) == (not story.case.is_5 or story.case.record_check)


def test_rocketpy_keeps_apaches_tables(story: Story, continued: Visit):
    before, after = tables(story.home / "as-apache-left-it"), tables(story.home / "as-rocketpy-left-it")
    for name, part in (("topics.json", "topicConfigTable"), ("subscriptionGroup.json", "subscriptionGroupTable")):
        ours, apaches = after[name][part], before[name][part]
        assert {key: ours.get(key, {}) | apaches[key] for key in apaches} == {key: ours.get(key) for key in apaches}
    ours, apaches = after["consumerOffset.json"], before["consumerOffset.json"]
    own = f"{TOPIC}@{GROUP}"
    assert {key: ours["offsetTable"].get(key) for key in apaches["offsetTable"] if key != own} == {
        key: offsets for key, offsets in apaches["offsetTable"].items() if key != own
    }
    assert sum(ours["offsetTable"][own].values()) == 2 * FILLED + 2
    assert ours["pullOffsetTable"].keys() >= apaches.get("pullOffsetTable", {}).keys()
    forbidden = [one["subscriptionGroup.json"].get("forbiddenTable", {}) for one in (before, after)]
    assert forbidden[0] == forbidden[1] == ({LONG_GROUP: {"typed": 1}} if story.case.is_5 else {})


def test_queues_and_index_that_rocketpy_makes_anew_equal_apaches(story: Story, written: Visit):
    apaches, copy = story.home / "as-apache-left-it", story.home / "rebuilt"
    shutil.copytree(apaches, copy, copy_function=copy_sparse)
    shutil.rmtree(copy / "consumequeue")
    shutil.rmtree(copy / "index")
    with story.visit_rocketpy(copy, clean=True):
        pass
    assert queue_files(copy) == queue_files(apaches)
    ours = [entry for entry in index_entries(copy, story.case) if story.case.is_5 or entry[0] not in TAG_HASHES]
    apaches_own = index_entries(apaches, story.case)
    assert ours[: len(apaches_own)] == apaches_own
    assert len(ours) == len(apaches_own) or not story.case.clean  # what was on its way


def test_apache_serves_every_message_of_both(continued: Visit, reopened: Visit):
    known = set(same(continued.read))
    assert known <= set(same(reopened.found))
    assert known <= set(same(reopened.read))


def test_the_group_goes_on_at_apache_and_delayed_messages_are_delivered(story: Story, written: Visit, reopened: Visit):
    due = story.waits - set(written.consumed)
    assert set(reopened.consumed) == {*keys_of(reopened.sent)} | due | {""}
    assert len(reopened.consumed) == FILLED + len(due)


def test_apache_finds_by_key_and_time_what_both_wrote(story: Story, reopened: Visit):
    check_answers(reopened.answers, reopened.read, story.case, by_apache=True)


def test_apache_keeps_topics_and_groups(story: Story, reopened: Visit):
    before, after = tables(story.home / "as-apache-left-it"), tables(story.store)
    assert after["topics.json"]["topicConfigTable"]["typed"] == before["topics.json"]["topicConfigTable"]["typed"]
    groups = [one["subscriptionGroup.json"]["subscriptionGroupTable"] for one in (before, after)]
    assert groups[1][LONG_GROUP] | groups[0][LONG_GROUP] == groups[1][LONG_GROUP]
    assert GROUP in groups[1]

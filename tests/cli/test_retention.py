"""`rocketpy store retention`, and consumers and groups that go to a time, back and forward."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow
import pytest

from rocketpy import Admin, ConfigError, Consumer, Message, NotAStoreError, Producer, Start, StoreReader, store
from waiting import moment_between

SMALL = ("--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=2000")


@pytest.fixture
def live(start, tmp_path: Path):
    """A server on a store of small files."""
    return start("server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0", *SMALL)


def produce(server, first: int, count: int, size: int = 100) -> None:
    with Producer("ingest", name_servers=server.name_server, send_timeout=60) as producer:
        for number in range(first, first + count):
            producer.send(Message("orders", f"{number:06} {'x' * size}".encode()))


def test_a_dry_run_names_files_and_reasons_and_changes_nothing(command, live, tmp_path: Path):
    folder = tmp_path / "store"
    produce(live, 0, 300, size=1000)
    before = sorted(path.name for path in (folder / "commitlog").iterdir())
    limit = ("--set", "retentionMaxBytes=150000")
    plan = json.loads(command("store", "retention", str(folder), "--dry-run", "--json", *limit).stdout)
    assert [Path(one["path"]).name for one in plan["removals"]] == before[: len(plan["removals"])]
    assert {one["rule"] for one in plan["removals"]} == {"total size"}
    assert "the limit is 150000" in plan["removals"][0]["reason"]
    assert plan["kept"]["start"] == sum(one["size_bytes"] for one in plan["removals"])
    assert set(plan) == set(store.RetentionPlan.__slots__)
    text = command("store", "retention", str(folder), "--dry-run", *limit).stdout
    assert before[0] in text
    assert "total size" in text
    assert "no files to remove" in command("store", "retention", str(folder), "--dry-run").stdout
    not_now = (
        f"deleteWhen={(datetime.now().astimezone().hour + 12) % 24:02}"  # in that hour files are removed without --ask
    )
    settings = ("--set", "fileReservedTime=0", "--set", not_now)
    asked = command("store", "retention", str(folder), "--dry-run", "--ask", *settings).stdout
    assert "an administrator asked" in asked
    after = {path.name for path in (folder / "commitlog").iterdir()}
    assert after >= set(before), "nothing is gone; the running server may have made its next file"


def test_the_python_twin_reads_the_servers_own_configuration(live, tmp_path: Path):
    produce(live, 0, 200, size=1000)
    config = tmp_path / "broker.conf"
    hours = ";".join(f"{hour:02}" for hour in range(24))
    config.write_text(f"fileReservedTime=0\ndeleteWhen={hours}\n")
    plan = store.retention(tmp_path / "store", config=config)
    assert {one.rule for one in plan.removals} == {"expired"}
    assert all(one.written_at <= datetime.now(UTC) and one.age.total_seconds() >= 0 for one in plan.removals)
    assert len(plan.removals) < plan.log_files
    assert store.retention(tmp_path / "store", config=config, settings={"fileReservedTime": 1}).removals == ()
    with pytest.raises(ConfigError, match="fileReservedTime"):
        store.retention(tmp_path / "store", settings={"fileReservedTime": "soon"})
    with pytest.raises(NotAStoreError):
        store.retention(tmp_path / "nothing")


def test_a_dry_run_names_the_queues_whose_topics_keep_messages_for_hours(command, start, tmp_path: Path):
    folder = tmp_path / "store"
    server = start(
        "server", str(folder), "--port", "0", "--name-server-port", "0", *SMALL, "--set", "recordCheck=false"
    )
    name_server = server.name_server
    command("topic", "create", "orders", "--queues", "1", name_server=name_server)
    produce(server, 0, 10)
    assert server.stop() == 0
    for batch in store.records(folder, topics="orders", queue_offsets=(0, 7), columns=["physical_offset"]):
        for place in pyarrow.record_batch(batch)["physical_offset"].to_pylist():
            store_earlier(folder / "commitlog" / f"{0:020}", place, hours=3)
    assert store.retention(folder).aged_queues == ()
    topics = folder / "config" / "topics.json"
    table = json.loads(topics.read_text())
    table["topicConfigTable"]["orders"]["attributes"] = {"retention.hours": "2"}
    topics.write_text(json.dumps(table))
    dry_run = ("store", "retention", str(folder), "--dry-run")
    (queue,) = json.loads(command(*dry_run, "--json").stdout)["aged_queues"]
    reason = "older than 2 h, the retention.hours of the topic"
    assert queue == {"topic": "orders", "queue_id": 0, "min_offset": 0, "new_min_offset": 7, "reason": reason}
    assert store.retention(folder).aged_queues == (store.AgedQueue("orders", 0, 0, 7, reason),)
    text = command(*dry_run).stdout
    assert "no files to remove" in text
    assert "orders-0" in text
    assert reason in text
    server = start("server", str(folder), "--port", "0", "--name-server-port", "0", *SMALL)
    with Admin(name_servers=server.name_server) as admin:
        assert [admin.min_offset(queue) for queue in admin.queues("orders")] == [7], "what the server then does"
    assert sum(queue.min_offset for queue in StoreReader(folder).topics()[0].queues) == 0, "the files still have them"


def store_earlier(log: Path, place: int, *, hours: int) -> None:
    """Changes when a record was stored; it has no checksum."""
    with log.open("r+b") as file:
        file.seek(place + 56)
        stored_at_ms = int.from_bytes(file.read(8), "big") - hours * 3_600_000
        file.seek(place + 56)
        file.write(stored_at_ms.to_bytes(8, "big"))


def test_without_dry_run_and_with_a_bad_setting_the_command_says_what_to_write(command, tmp_path: Path):
    assert "--dry-run" in command("store", "retention", str(tmp_path), code=2).stderr.splitlines()[-1]
    assert "KEY=VALUE" in command("store", "retention", str(tmp_path), "--dry-run", "--set", "x", code=2).stderr


def test_groups_and_consumers_go_to_a_time_forward_and_back(command, live):
    name_server = live.name_server
    command("topic", "create", "orders", "--queues", "1", name_server=name_server)
    moments = []
    for first in (0, 10, 20):
        moments.append(datetime.fromtimestamp(moment_between(), UTC))
        produce(live, first, 10)
    command("group", "create", "audit", name_server=name_server)
    for moment, offset in [(moments[2], 20), (moments[0], 0), (moments[1], 10), (datetime.now(UTC), 30)]:
        to = ("--to", moment.isoformat())
        rows = command("group", "reset", "audit", "--topic", "orders", *to, "--json", name_server=name_server).stdout
        assert [row["offset"] for row in json.loads(rows)] == [offset]
        with Admin(name_servers=name_server) as admin:
            assert [one.committed_offset for one in admin.group_lag("audit")] == [offset]
    with Consumer("audit", "orders", name_servers=name_server, start=Start.EARLIEST) as consumer:
        while not consumer.assignment():
            consumer.poll(max_messages=1, timeout=0.1)
        (queue,) = consumer.assignment()
        for moment, offset in [(moments[1], 10), (moments[2], 20), (moments[0], 0)]:
            assert consumer.seek(queue, Start.at(moment)) == offset
            message = next(iter(consumer.poll(max_messages=1, timeout=60)))
            assert (message.queue_offset, message.body[:6]) == (offset, b"%06d" % offset)

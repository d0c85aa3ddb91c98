"""Reading a store folder without its server."""

import pickle
import shutil
from datetime import datetime

import pyarrow
import pytest

import rocketpy
from rocketpy import InvalidArgumentError, Message, StoreReader
from rocketpy.store import LostRange
from rocketpy.testing import SMALL_FILES, PatientServer, fresh_name
from waiting import moment_between, wait_until

DEFAULT_COLUMNS = [
    "topic",
    "queue_id",
    "queue_offset",
    "broker_name",
    "tag",
    "keys",
    "body",
    "properties",
    "born_at",
    "stored_at",
    "msg_id",
    "reconsume_times",
]


@pytest.fixture
def reader(rocketpy_server):
    return StoreReader(rocketpy_server.path)


@pytest.fixture
def filled(producer, reader, rocketpy_topic):
    """A topic of four queues with 900 messages: tags a, b, c in turn."""
    send(producer, reader, [Message(rocketpy_topic, b"%d" % n, tag="abc"[n % 3], keys=[f"k{n}"]) for n in range(900)])
    return rocketpy_topic


def send(producer, reader, messages):
    """Sends messages and waits until the queues of the store know them: an acknowledgement needs only the log."""
    ends: dict[int, int] = {}
    for receipt in producer.send_many(messages):
        ends[receipt.queue.queue_id] = max(ends.get(receipt.queue.queue_id, 0), receipt.queue_offset + 1)

    def stored_ends():
        queues = [queue for topic in reader.topics() if topic.name == messages[0].topic for queue in topic.queues]
        return {queue.queue_id: queue.max_offset for queue in queues}

    wait_until(lambda: ends.items() <= stored_ends().items())


def test_a_topic_is_read_beside_its_live_server(reader, filled):
    table = pyarrow.table(reader.scan(filled))
    assert table.num_rows == 900
    assert table.column_names == DEFAULT_COLUMNS
    assert sorted(int(body) for body in table["body"].to_pylist()) == list(range(900))
    for queue_id in range(4):
        offsets = table.filter(pyarrow.compute.equal(table["queue_id"], queue_id))["queue_offset"].to_pylist()
        assert offsets == list(range(len(offsets)))


def test_topics_are_listed_with_their_queues(reader, filled):
    (topic,) = [one for one in reader.topics() if one.name == filled]
    assert reader.topic(filled) == topic
    with pytest.raises(rocketpy.TopicNotFoundError):
        reader.topic("nowhere")
    assert [queue.queue_id for queue in topic.queues] == [0, 1, 2, 3]
    assert sum(queue.max_offset - queue.min_offset for queue in topic.queues) == 900


def test_columns_come_in_the_order_asked_for(reader, filled):
    scan = reader.scan(filled, columns=["body", "tag", "physical_offset"])
    assert scan.column_names == ["body", "tag", "physical_offset"]
    assert pyarrow.table(scan).column_names == ["body", "tag", "physical_offset"]


def test_no_column_at_all_still_counts_rows(reader, filled):
    assert sum(batch.num_rows for batch in reader.scan(filled, columns=[])) == 900


@pytest.mark.parametrize(("tags", "rows"), [("a", 300), ("a || b", 600), (["a", "b"], 600), ("*", 900), ("none", 0)])
def test_tags_choose_messages(reader, filled, tags, rows):
    table = pyarrow.table(reader.scan(filled, tags=tags, columns=["tag"]))
    assert table.num_rows == rows
    wanted = tags.split(" || ") if isinstance(tags, str) else tags
    assert tags == "*" or set(table["tag"].to_pylist()) <= set(wanted)


def test_times_bound_what_is_read(reader, producer, rocketpy_topic):
    send(producer, reader, [Message(rocketpy_topic, b"old") for _ in range(40)])
    moment = moment_between()
    send(producer, reader, [Message(rocketpy_topic, b"new") for _ in range(60)])
    for bounds, bodies in (
        ({"stored_from": moment}, [b"new"] * 60),
        ({"stored_from": datetime.fromtimestamp(moment).isoformat()}, [b"new"] * 60),  # local time
        ({"stored_before": "-1h"}, []),
        ({"stored_before": moment}, [b"old"] * 40),
        ({"stored_from": moment, "stored_before": moment}, []),
    ):
        table = pyarrow.table(reader.scan(rocketpy_topic, columns=["body"], **bounds))
        assert table["body"].to_pylist() == bodies


def test_ranges_cut_a_topic_into_parts_that_add_up(reader, producer, rocketpy_topic):
    send(producer, reader, [Message(rocketpy_topic, bytes(10_000)) for _ in range(1000)])
    parts = reader.ranges(rocketpy_topic, part_bytes=2 << 20)
    assert len(parts) >= 4
    assert all(part.topic == rocketpy_topic and part.estimated_bytes > 0 for part in parts)
    tables = [pyarrow.table(reader.scan(part, columns=["queue_id", "queue_offset"])) for part in parts]
    whole = pyarrow.concat_tables(tables)
    assert whole.num_rows == 1000
    assert len(whole.group_by(["queue_id", "queue_offset"]).aggregate([])) == 1000
    assert pyarrow.table(reader.scan(parts, columns=["queue_id"])).num_rows == 1000


def test_ranges_travel_and_mean_the_same_rows_later(reader, producer, filled):
    parts = pickle.loads(pickle.dumps(reader.ranges(filled)))
    send(producer, reader, [Message(filled, b"later") for _ in range(50)])
    assert pyarrow.table(reader.scan(parts)).num_rows == 900
    assert pyarrow.table(reader.scan(filled)).num_rows == 950


def test_starts_and_ends_bound_queues(reader, filled):
    parts = reader.ranges(filled, queues=[0, 1], starts={0: 10}, ends={0: 15, 1: 3})
    table = pyarrow.table(reader.scan(parts, columns=["queue_id", "queue_offset"]))
    rows = sorted(zip(table["queue_id"].to_pylist(), table["queue_offset"].to_pylist(), strict=True))
    assert rows == [(0, n) for n in range(10, 15)] + [(1, n) for n in range(3)]


def test_a_queue_without_messages_has_no_part(reader, filled):
    """A store knows no queue before its first message."""
    assert reader.ranges(filled, queues=[9]) == []


def test_batches_keep_their_limits(reader, filled):
    batches = list(reader.scan(filled, batch_rows=100))
    assert [batch.num_rows for batch in batches] == [100] * 9
    assert max(batch.num_rows for batch in reader.scan(filled, batch_bytes=1)) == 1


def test_a_batch_goes_to_any_arrow_library(reader, filled):
    batch = next(iter(reader.scan(filled)))
    table = pyarrow.record_batch(batch)
    assert table.num_rows == len(batch) == batch.num_rows
    assert table.schema.names == batch.column_names == DEFAULT_COLUMNS
    assert pyarrow.schema(batch) == table.schema
    assert pyarrow.schema(reader.scan(filled)) == table.schema
    assert pyarrow.record_batch(batch).equals(table)
    assert "rows of topic" in repr(batch)


def test_the_columns_have_the_types_that_spark_takes(reader, filled):
    schema = pyarrow.schema(reader.scan(filled))
    assert schema.field("body").type == pyarrow.binary()
    assert schema.field("stored_at").type == pyarrow.timestamp("us", tz="UTC")
    assert schema.field("properties").type == pyarrow.map_(pyarrow.string(), pyarrow.string())
    assert schema.field("queue_offset").type == pyarrow.int64()
    assert all(field.nullable for field in schema)


def test_a_scan_is_handed_over_once(reader, filled):
    scan = reader.scan(filled)
    pyarrow.table(scan)
    with pytest.raises(rocketpy.ClosedError, match="start a new scan"):
        pyarrow.table(scan)
    with pytest.raises(rocketpy.ClosedError, match="start a new scan"):
        next(scan)


def test_a_copy_reads_like_the_original(reader, rocketpy_server, filled, tmp_path):
    # The server writes its tables under another name first: what is about to be renamed is not of the store.
    shutil.copytree(rocketpy_server.path, tmp_path / "copy", ignore=shutil.ignore_patterns("*.tmp"))
    copy = pyarrow.table(StoreReader(tmp_path / "copy").scan(filled))
    assert copy.equals(pyarrow.table(reader.scan(filled)))


def test_reading_a_store_takes_no_lock_and_changes_nothing(tmp_path):
    with PatientServer(tmp_path / "store", settings=SMALL_FILES) as server, server.producer("p") as producer:
        producer.send(Message("topic", b"text"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    reader = StoreReader(tmp_path / "store")
    assert [topic.name for topic in reader.topics()] == ["topic"]
    scan = reader.scan("topic")
    assert next(scan).num_rows == 1
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")} == before
    with rocketpy.Server(tmp_path / "store", settings=SMALL_FILES):
        assert [batch.num_rows for batch in reader.scan("topic")] == [1]


def test_the_broker_name_is_what_the_reader_is_told(reader, filled):
    assert set(pyarrow.table(reader.scan(filled))["broker_name"].to_pylist()) == {None}
    named = pyarrow.table(reader.scan(filled, broker_name="broker-a"))
    assert set(named["broker_name"].to_pylist()) == {"broker-a"}


@pytest.fixture
def damaged(tmp_path):
    """A store with ten messages, the body of the fifth overwritten."""
    store = tmp_path / "damaged"
    with PatientServer(store, settings=SMALL_FILES) as server, server.producer("p") as producer:
        queue = producer.send(Message("topic", b"body-0")).queue
        for n in range(1, 10):
            producer.send(Message("topic", b"body-%d" % n), queue=queue)
    (log,) = (store / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(b"body-5"))
        file.write(b"wrong!")
    return StoreReader(store)


def test_damage_is_an_error_that_names_the_place_unless_checksums_are_not_to_be_compared(damaged):
    with pytest.raises(rocketpy.DamagedDataError, match=r"entry 5 of topic-\d+ .*checksum.*commitlog/0{20}"):
        list(damaged.scan("topic"))
    assert pyarrow.table(damaged.scan("topic", verify=False)).num_rows == 10


def test_damage_may_be_left_out_and_listed(damaged):
    scan = damaged.scan("topic", fail_on_data_loss=False)
    bodies = [body for batch in scan for body in pyarrow.record_batch(batch)["body"].to_pylist()]
    assert bodies == [b"body-%d" % n for n in range(10) if n != 5]
    (lost,) = scan.lost
    assert isinstance(lost, LostRange)
    assert (lost.topic, lost.start, lost.end) == ("topic", 5, 6)
    assert lost.reason


def test_a_folder_that_is_no_store_is_named(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(rocketpy.NotAStoreError, match=str(path)):
            StoreReader(path)


def test_a_log_that_lies_elsewhere_is_asked_for_and_read(tmp_path):
    log = tmp_path / "log"
    settings = {**SMALL_FILES, "storePathCommitLog": str(log)}
    with PatientServer(tmp_path / "store", settings=settings) as server, server.producer("ingest") as producer:
        producer.send_many([Message("topic", b"%d" % n) for n in range(10)])
    with pytest.raises(rocketpy.NotAStoreError, match=str(tmp_path / "store")) as asked:
        StoreReader(tmp_path / "store")
    for way in ("commit_log=", "--commit-log", "commitLogPath", "storePathCommitLog"):
        assert way in asked.value.hint
    reader = StoreReader(tmp_path / "store", commit_log=log)
    assert sum(batch.num_rows for batch in reader.scan("topic", verify=True)) == 10
    with pytest.raises(rocketpy.NotAStoreError, match="missing"):
        StoreReader(tmp_path / "store", commit_log=tmp_path / "missing")


def test_a_topic_without_messages_is_empty(tmp_path):
    with PatientServer(tmp_path / "store", settings=SMALL_FILES) as server, server.admin() as admin:
        admin.create_topic("empty")
        reader = StoreReader(tmp_path / "store")
        assert (reader.ranges("empty"), list(reader.scan("empty"))) == ([], [])
        admin.delete_topic("empty")
        with pytest.raises(rocketpy.TopicNotFoundError, match="empty"):
            reader.ranges("empty")


def test_a_topic_that_is_not_there_is_named(reader):
    with pytest.raises(rocketpy.TopicNotFoundError, match="missing") as missing:
        reader.scan("missing")
    assert "store stat" in missing.value.hint
    for name in ("../../etc", "a/b", ""):
        with pytest.raises(rocketpy.RocketPyError):
            reader.ranges(name)


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ({"columns": ["body", "boddy"]}, InvalidArgumentError, "boddy"),
        ({"columns": [1]}, TypeError, None),
        ({"batch_rows": 0}, InvalidArgumentError, "batch_rows"),
        ({"batch_bytes": -1}, InvalidArgumentError, "batch_bytes"),
        ({"tags": 1}, TypeError, None),
        ({"tags": "a|b"}, InvalidArgumentError, "tags must be separated by"),
        ({"stored_from": "yesterday"}, InvalidArgumentError, "point in time"),
    ],
)
def test_bad_arguments_of_a_scan_are_named(reader, filled, arguments, kind, says):
    with pytest.raises(kind, match=says):
        reader.scan(filled, **arguments)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"starts": {9: 10}}, rocketpy.OffsetError),
        ({"starts": {0: 10}, "ends": {0: 5}}, rocketpy.OffsetError),
        ({"starts": {0: 10**6}}, rocketpy.OffsetError),
        ({"starts": {0: -1}}, InvalidArgumentError),
        ({"part_bytes": 0}, InvalidArgumentError),
        ({"min_parts": -1}, InvalidArgumentError),
        ({"queues": "0"}, TypeError),
    ],
)
def test_bad_bounds_are_refused(reader, filled, arguments, kind):
    with pytest.raises(kind):
        reader.ranges(filled, **arguments)


def test_times_go_with_a_topic_only(reader, filled):
    with pytest.raises(TypeError, match="bounds"):
        reader.scan(reader.ranges(filled), stored_from=0)


def test_unknown_columns_are_answered_with_those_that_exist(reader, filled):
    with pytest.raises(InvalidArgumentError) as unknown:
        reader.scan(filled, columns=["offset"])
    assert "queue_offset" in unknown.value.hint


def test_names_of_the_fresh_topics_are_good_names():
    assert fresh_name("a[b]/c").startswith("a-b--c-")

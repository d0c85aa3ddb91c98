"""Bodies that do not decompress (`unreadable.py`) before every reader and command without Spark: none blocks others."""

import json
import re
from pathlib import Path

import pytest
from wire import GET_ROUTE, PULL_MESSAGE, ScriptedPeer, give_up, route

import rocketpy
import rocketpy.store
from commands import command
from rocketpy.base.arrow import pyarrow_batch
from rocketpy.errors import UNREADABLE_BODY
from rocketpy.testing import fresh_name
from unreadable import BODIES, KEY, MESSAGES, READABLE, UNREADABLE, send_unreadable, unreadable_server
from waiting import wait_until

GET_MAX_OFFSET, GET_MIN_OFFSET = 30, 31
TOPIC, GROUP, TARGET = "unreadable", "unreadable-group", "unreadable-target"
LETTERS = f"%DLQ%{GROUP}"
WHOLE = (0, len(MESSAGES))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with unreadable_server(tmp_path_factory.mktemp("unreadable") / "store", TOPIC, GROUP) as server:
        with server.admin() as admin:
            admin.create_topic(TARGET, queues=1)
        yield server


@pytest.fixture(scope="module")
def queue(server):
    with server.admin() as admin:
        return admin.queues(TOPIC)[0]


def readable(messages):
    """Body of each message as text, None if it cannot be read."""
    found = {}
    for message in messages:
        try:
            found[message.msg_id] = message.body.decode()
        except UNREADABLE_BODY:
            found[message.msg_id] = None
    return found


def bodies_of(batches):
    """Body of each row of batches as text, None for null."""
    rows = [row for batch in batches for row in pyarrow_batch(batch).to_pylist()]
    return {row["msg_id"]: None if row["body"] is None else bytes(row["body"]).decode() for row in rows}


def past_errors(server, queue, poll):
    """Polls, and seeks past each unreadable message as the hint of its error says."""
    found, errors = {}, 0
    with server.consumer(fresh_name(), TOPIC, start="earliest") as consumer:
        while len(found) < len(READABLE):
            try:
                found |= poll(consumer)
            except UNREADABLE_BODY as error:
                errors += 1
                consumer.seek(queue, int(re.search(r"seek to (\d+) to skip it", error.hint)[1]))
    assert errors == len(UNREADABLE)
    return found


def by_consumer(server, queue):
    return past_errors(server, queue, lambda consumer: readable(consumer.poll(timeout=60)))


def by_arrow(server, queue):
    return past_errors(server, queue, lambda consumer: bodies_of([consumer.fetch_arrow(timeout=60)]))


def by_handler(server, queue):
    """A handler gets every message: its body raises."""
    messages, consumer = [], server.push_consumer(fresh_name(), start="earliest")
    consumer.on(TOPIC)(messages.append)
    with consumer:
        wait_until(lambda: len(messages) == len(MESSAGES), "all messages were handled")
    return readable(messages)


def by_query(server, queue):
    with server.admin() as admin:
        return readable(admin.query_messages(TOPIC, KEY))


def by_letters(server, queue):
    with server.admin() as admin:
        return readable(letter.message for letter in admin.dead_letters(GROUP))


def by_range(server, queue):
    with rocketpy.RangeReader(queue, *WHOLE, name_servers=server.name_server) as reader:
        return readable(message for messages in reader.messages() for message in messages)


def by_range_arrow(server, queue):
    with rocketpy.RangeReader(queue, *WHOLE, null_unreadable_bodies=True, name_servers=server.name_server) as reader:
        return bodies_of(reader)


def by_store(server, queue):
    return bodies_of(rocketpy.StoreReader(server.path).scan(TOPIC, null_unreadable_bodies=True))


def by_lenient_store(server, queue):
    scan = rocketpy.StoreReader(server.path).scan(TOPIC, fail_on_data_loss=False)
    found = bodies_of(scan)
    assert sum(lost.end - lost.start for lost in scan.lost) == len(UNREADABLE)
    return found


def by_records(server, queue):
    chosen = rocketpy.store.records(server.path, topics=[TOPIC], fail_on_damage=False)
    found = bodies_of(chosen)
    assert chosen.left_out == len(UNREADABLE)
    return found


SKIPPING = (by_consumer, by_arrow, by_lenient_store, by_records)
"""Readers that pass over the messages, each of which they name or count."""


@pytest.mark.parametrize(
    "reader",
    [*SKIPPING, by_handler, by_query, by_letters, by_range, by_range_arrow, by_store],
    ids=lambda one: one.__name__,
)
def test_every_reader_reads_the_other_messages(server, queue, reader):
    expected = {msg_id: body for msg_id, body in BODIES.items() if reader not in SKIPPING or body is not None}
    assert reader(server, queue) == expected


@pytest.mark.parametrize("columns", [["queue_offset", "tag"], None], ids=["without_body", "with_body"])
def test_a_scan_decompresses_only_wanted_bodies(server, queue, columns):
    def rows(batches):
        return sum(batch.num_rows for batch in batches)

    scan = rocketpy.StoreReader(server.path).scan(TOPIC, columns=columns)
    with rocketpy.RangeReader(queue, *WHOLE, columns=columns, name_servers=server.name_server) as reader:
        for batches in (scan, reader):
            if columns is None:
                with pytest.raises(rocketpy.DamagedDataError, match="cannot decompress the body of message 1 of"):
                    rows(batches)
            else:
                assert rows(batches) == len(MESSAGES)


def test_a_resend_rejects_each_unreadable_dead_letter_and_sends_the_others(server):
    with server.admin() as admin:
        outcomes = list(admin.resend_dead_letters(admin.dead_letters(GROUP), to=TARGET))
    rejected = {one.letter.message.msg_id for one in outcomes if isinstance(one.rejected, UNREADABLE_BODY)}
    sent = {one.letter.message.msg_id for one in outcomes if one.receipt is not None}
    assert (rejected, sent) == (UNREADABLE, READABLE)


NAMES = ("-n", "NAMES")
TEXT = "error: 6 bodies do not decompress: left out\nhint: "
JSON = "6 bodies do not decompress: null, with the error in `body_error`"
COMMANDS = {
    "consume": (("consume", TOPIC, *NAMES), 11, "first\nlast\n", TEXT),
    "consume_json": (("consume", TOPIC, "--format", "json", *NAMES), 0, "rows", JSON),
    "consume_group_json": (("consume", TOPIC, "--format", "json", "-g", "unreadable-json", *NAMES), 0, "rows", JSON),
    "store_dump": (("store", "dump", "PATH", "--topic", TOPIC), 8, None, "--skip-damage leaves damaged"),
    "store_dump_skip": (("store", "dump", "PATH", "--topic", TOPIC, "--skip-damage"), 0, "first\nlast\n", "skipped: 6"),
    "store_dump_raw": (("store", "dump", "PATH", "--topic", TOPIC, "--format", "raw", "-o", "FILE"), 0, None, ""),
    "store_stat": (("store", "stat", "PATH"), 0, None, ""),
    "store_verify": (("store", "verify", "PATH"), 0, None, ""),
    "dlq_list": (("dlq", "list", *NAMES), 0, GROUP, ""),
    "dlq_show": (("dlq", "show", GROUP, *NAMES), 0, "does not decompress", ""),
    "dlq_show_json": (("dlq", "show", GROUP, "--json", *NAMES), 0, "rows", ""),
    "dlq_export": (("dlq", "export", GROUP, *NAMES), 0, "rows", ""),
    "dlq_preview": (("dlq", "resend", GROUP, "--to", TARGET, *NAMES), 0, "6 cannot be sent", ""),
    "dlq_resend": (
        ("dlq", "resend", GROUP, "--to", TARGET, "--again", "--yes", *NAMES),
        11,
        "2 dead letters sent",
        "error: 6 dead letters rejected and skipped",
    ),
    "query": (("message", "query", TOPIC, "--key", KEY, *NAMES), 0, "does not decompress", ""),
    "query_json": (("message", "query", TOPIC, "--key", KEY, "--json", *NAMES), 0, "rows", ""),
    "query_large": (
        ("message", "query", TOPIC, "--unique-key", "UNREADABLE-large", *NAMES),
        0,
        "exceed the limit",
        "",
    ),
    "topic": (("topic", "describe", TOPIC, *NAMES), 0, TOPIC, ""),
    "group": (("group", "lag", GROUP, *NAMES), 0, None, ""),
}


def rows_of(out):
    """Rows of JSON lines or of a JSON array."""
    return json.loads(out) if out.startswith("[") else [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_continues_past_the_messages_or_names_the_way(server, tmp_path, name):
    arguments, expected_code, expected_out, expected_err = COMMANDS[name]
    known = {"PATH": server.path, "NAMES": server.name_server, "FILE": tmp_path / "file"}
    code, out, err = command(*(known.get(one, one) for one in arguments))
    assert (code, expected_err in err) == (expected_code, True), (code, out, err)
    if expected_out == "rows":
        rows = rows_of(out)
        assert {row["msg_id"]: row["body"] for row in rows} == BODIES
        assert {row["msg_id"] for row in rows if "does not decompress" in row.get("body_error", "")} == UNREADABLE
    elif expected_out is not None and "\n" in expected_out:
        assert out == expected_out
    elif expected_out is not None:
        assert expected_out in out


def test_a_group_of_the_command_passes_the_messages_once(server):
    """The next member continues after them."""
    arguments = ("consume", TOPIC, "--group", "unreadable-once", "-n", server.name_server)
    code, out, err = command(*arguments)
    assert (code, out, TEXT in err) == (11, "first\nlast\n", True), err
    assert command(*arguments)[:2] == (0, "")
    with server.admin() as admin:
        assert [one.lag for one in admin.group_lag("unreadable-once", TOPIC)] == [0]


def test_a_group_of_the_command_passes_unreadable_messages_at_the_end_of_its_queue(server):
    arguments = ("consume", TOPIC, "--group", "unreadable-end", "--format", "json", "-n", server.name_server)
    with server.consumer("unreadable-end", TOPIC, start="earliest") as consumer:
        assert consumer.poll(1, timeout=60)
        consumer.commit()
    code, out, err = command(*arguments, "--count", "2")
    assert (code, [row["body"] for row in rows_of(out)]) == (0, [None, None]), err
    with server.admin() as admin:
        assert [one.committed_offset for one in admin.group_lag("unreadable-end", TOPIC)] == [3]


def test_a_trace_is_read_past_unreadable_messages(server):
    topic = "unreadable-traces"
    give_up(server.broker, fresh_name(), *send_unreadable(server, topic))
    code, _, err = command("message", "trace", KEY, "--trace-topic", topic, "-n", server.name_server)
    assert (code, f"no trace of message {KEY}" in err) == (3, True), err


def test_a_damaged_record_ends_the_command_with_a_hint_that_leads_out(tmp_path):
    """A command cannot seek, as the hint for a consumer says. RocketPy's brokers send no damaged record."""
    with rocketpy.Server(tmp_path) as server, server.producer("damaged") as producer:
        producer.send(rocketpy.Message("t", b"a body of a few bytes"))
    log = min(Path(tmp_path, "commitlog").iterdir()).read_bytes()
    record = log[: int.from_bytes(log[:4])].replace(b"a body", b"A body")
    fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1"}
    answers = {GET_ROUTE: route, PULL_MESSAGE: lambda _: (fields, record)}
    answers |= {GET_MAX_OFFSET: lambda _: ({"offset": "1"}, b""), GET_MIN_OFFSET: lambda _: ({"offset": "0"}, b"")}
    with ScriptedPeer(answers, lambda _: None) as peer:
        code, _, err = command("consume", "t", "-n", peer.address)
    assert (code, "is damaged" in err, "hint: stop the broker" in err, "seek" in err) == (8, True, True, False), err

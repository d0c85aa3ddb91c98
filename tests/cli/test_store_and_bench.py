import json
import os
import subprocess
from pathlib import Path

import pytest

from rocketpy import Admin
from waiting import wait_until


def test_stat_counts_what_a_live_store_holds(rocketpy, command, server, topic: str):
    rocketpy("produce", topic, stdin="one\ntwo\nthree\n")
    store = server.process.args[server.process.args.index("server") + 1]
    facts = json.loads(command("store", "stat", store, "--json").stdout)
    (row,) = (row for row in facts["topics"] if row["topic"] == topic)
    assert row["messages"] == 3
    assert 1 <= row["queues"] <= 3, "queues that hold something; the topic has 4"
    assert facts["commit_log"]["files"] >= 1
    assert facts["stopped_in_order"] is False
    shown = command("store", "stat", store).stdout
    assert topic in shown
    assert "queues with messages" in shown


def test_dump_prints_bodies_or_json_and_chooses_by_tag(rocketpy, command, server, topic: str):
    rocketpy("produce", topic, "--tag", "UA", "--key", "N1", stdin="united\n")
    rocketpy("produce", topic, "--tag", "AA", stdin="american\n")
    store = server.process.args[server.process.args.index("server") + 1]
    assert sorted(command("store", "dump", store, "--topic", topic).stdout.split()) == ["american", "united"]
    (line,) = command("store", "dump", store, "--topic", topic, "--tags", "UA", "--json").stdout.splitlines()
    row = json.loads(line)
    assert row["body"] == "united"
    assert row["keys"] == ["N1"]
    assert row["tag"] == "UA"
    refused = command("store", "dump", store, "--topic", topic, "--tags", "UA,AA", code=2)
    assert 'write "UA || AA"' in refused.stderr
    assert len(command("store", "dump", store, "--topic", topic, "--limit", "1").stdout.splitlines()) == 1
    assert command("store", "dump", store, "--topic", topic, "--to", "2001-01-01").stdout == ""


def test_a_topic_that_the_store_does_not_hold_is_named(command, server):
    store = server.process.args[server.process.args.index("server") + 1]
    assert "no-such-topic" in command("store", "dump", store, "--topic", "no-such-topic", code=3).stderr


def test_a_queue_that_cannot_be_or_holds_nothing_is_named(rocketpy, command, server, topic: str):
    rocketpy("produce", topic, "--order-key", "k", stdin="one\n")
    store = server.process.args[server.process.args.index("server") + 1]
    dump = ("store", "dump", store, "--topic", topic, "--queue")
    assert "-1" in command(*dump, "-1", code=2).stderr
    result = command(*dump, "99", code=3)
    assert f"queue 99 of {topic}" in result.stderr
    (holds,) = result.stderr.splitlines()[-1].removeprefix("hint: queues with messages: ").split(", ")
    assert command(*dump, holds).stdout == "one\n"


def test_a_folder_that_is_no_store_is_named(command, tmp_path: Path):
    (tmp_path / "file").touch()
    assert str(tmp_path) in command("store", "stat", str(tmp_path), code=3).stderr
    missing = str(tmp_path / "missing")
    result = command("store", "stat", missing, code=3)
    assert missing in result.stderr
    assert "topic list" not in result.stderr


def test_a_log_that_lies_elsewhere_is_named_by_an_option(command, start, tmp_path: Path):
    store, log = str(tmp_path / "store"), str(tmp_path / "log")
    server = start("server", store, "--port", "0", "--name-server-port", "0", "--set", f"storePathCommitLog={log}")
    command("produce", "orders", stdin="one\n", name_server=server.name_server)
    for arguments in (("store", "stat", store), ("store", "dump", store, "--topic", "orders")):
        error, hint = command(*arguments, code=3).stderr.splitlines()[-2:]
        assert store in error
        assert "--commit-log DIR" in hint
    facts = json.loads(command("store", "stat", store, "--commit-log", log, "--json").stdout)
    (row,) = facts["topics"]
    assert (row["topic"], row["queues"], row["messages"]) == ("orders", 1, 1)
    assert facts["commit_log"]["files"] >= 1
    assert command("store", "dump", store, "--topic", "orders", "--commit-log", log).stdout == "one\n"


def test_dump_ends_at_a_damaged_record_unless_told_not_to_look(command, start, tmp_path: Path):
    store = tmp_path / "store"
    server = start("server", str(store), "--port", "0", "--name-server-port", "0")
    command("produce", "orders", stdin="damaged\n", name_server=server.name_server)
    log = min((store / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(file.read(4096).index(b"damaged"))
        file.write(b"D")
    dump = ("store", "dump", str(store), "--topic", "orders")
    result = command(*dump, code=8)
    assert result.stdout == ""
    assert str(log) in result.stderr
    assert "--no-verify" in result.stderr.splitlines()[-1]
    assert command(*dump, "--no-verify").stdout == "Damaged\n"


def test_bench_measures_client_and_broker_apart(command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROCKETPY_MAPPED_FILE_SIZE_COMMIT_LOG", str(16 << 20))
    for verb in ("produce", "consume"):
        figures = json.loads(command("bench", verb, "--messages", "20000", "--json").stdout)
        assert figures["messages"] == 20000
        assert figures["messages_per_second"] > 0
        assert figures["broker_cpu_seconds_per_million"] is not None
    arrow = json.loads(command("bench", "consume", "--messages", "20000", "--arrow", "--json").stdout)
    assert arrow["how"] == "Arrow"


def test_a_signal_ends_bench_and_its_server(executable: list[str], tmp_path: Path):
    bench = [*executable, "bench", "produce", "--messages", "1000000000", "--json"]
    with subprocess.Popen(bench, env=os.environ | {"TMPDIR": str(tmp_path)}) as process:
        try:
            wait_until(lambda: [*tmp_path.glob("*/store.ready.json")], "the server accepts", process=process)
            (ready,) = tmp_path.glob("*/store.ready.json")
            server = json.loads(ready.read_text())["pid"]
            process.terminate()
            assert process.wait(60) == 143
            with pytest.raises(ProcessLookupError):
                os.kill(server, 0)
            assert not [*tmp_path.iterdir()]
        finally:
            process.kill()


def test_bench_sends_over_many_connections_and_tells_latencies(command, rocketpy, topic: str):
    options = ("--messages", "5000", "--connections", "8", "--window", "16", "--json")
    own = json.loads(command("bench", "send", *options, "--set", "flushDiskType=SYNC_FLUSH").stdout)
    assert own["messages"] == 5000
    assert 0 < own["latency_p50_us"] <= own["latency_p99_us"] <= own["latency_max_us"]
    named = json.loads(rocketpy("bench", "send", *options, "--topic", topic, "--size", "7").stdout)
    assert named["broker_cpu_seconds_per_million"] is None
    came = [json.loads(line) for line in rocketpy("consume", topic, "--format", "json").stdout.splitlines()]
    assert [one["body"] for one in came] == ["xxxxxxx"] * 5000
    assert len({one["msg_id"] for one in came}) == 5000, "each has a unique key of its own"


def test_bench_sends_in_batches_and_what_is_left_over_alone(rocketpy, topic: str):
    options = ("--messages", "5000", "--connections", "8", "--window", "2", "--batch", "64", "--topic", topic)
    figures = json.loads(rocketpy("bench", "send", *options, "--json").stdout)
    assert (figures["messages"], figures["requests"]) == (5000, 78 + 8)
    came = [json.loads(line) for line in rocketpy("consume", topic, "--format", "json").stdout.splitlines()]
    assert len({one["msg_id"] for one in came}) == len(came) == 5000


def test_bench_sends_at_a_rate_and_names_what_is_refused(rocketpy, server, topic: str):
    paced = json.loads(
        rocketpy("bench", "send", "--messages", "60", "--rate", "100", "--topic", topic, "--json").stdout
    )
    assert paced["seconds"] >= 0.59
    assert "--name-server" in rocketpy("bench", "send", "--set", "a=b", code=2).stderr
    assert "lower --batch" in rocketpy("bench", "send", "--size", "1000000", "--batch", "100", code=2).stderr
    refused = rocketpy("bench", "send", "--messages", "2", "--size", "4300000", "--topic", topic, code=5)
    assert "broker refused 2 of 2 messages" in refused.stderr
    with Admin(server.name_server) as admin:
        admin.create_topic(topic, writable=False)
    assert "is not writable" in rocketpy("bench", "send", "--messages", "2", "--topic", topic, code=5).stderr


def test_bench_measures_a_cluster_that_is_named(rocketpy, topic: str):
    figures = json.loads(rocketpy("bench", "produce", "--messages", "5000", "--topic", topic, "--json").stdout)
    assert figures["broker_cpu_seconds_per_million"] is None
    assert json.loads(rocketpy("bench", "consume", "--messages", "5000", "--topic", topic, "--json").stdout)["messages"]

"""`rocketpy store verify`, `dump`, `repair`, `snapshot`, `export`, `import` on stores that a real server wrote."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pyarrow
import pytest

from rocketpy import InvalidArgumentError, StoreReader, store
from waiting import wait_until

SMALL = ("--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=2000")


@pytest.fixture
def live(start, tmp_path: Path):
    """A server on a store of small files."""
    return start("server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0", *SMALL)


@pytest.fixture
def closed(live, command, tmp_path: Path) -> Path:
    """The folder of a store with 600 messages, whose server stopped in order."""
    fill(command, live)
    assert live.stop() == 0
    return tmp_path / "store"


def fill(command, server, messages: int = 600) -> None:
    lines = "".join(f"message {number} {'x' * 100}\n" for number in range(messages))
    command("produce", "orders", "--tag", "paid", "--key", "k", stdin=lines, name_server=server.name_server)


def places(folder: Path) -> list[int]:
    """Where the records of a log lie."""
    batches = store.records(folder, columns=["physical_offset"])
    return [at for batch in batches for at in pyarrow.record_batch(batch)["physical_offset"].to_pylist()]


def damage(folder: Path, text: bytes) -> tuple[Path, int]:
    """Changes one byte of the body that holds a text; says where it is."""
    for log in sorted((folder / "commitlog").iterdir()):
        at = log.read_bytes().find(text)
        if at >= 0:
            with log.open("r+b") as file:
                file.seek(at)
                file.write(b"M")
            return log, at
    raise AssertionError(text)


def test_a_sound_store_passes_with_0_closed_and_while_its_server_runs(command, live, tmp_path: Path):
    fill(command, live)
    report = json.loads(command("store", "verify", str(tmp_path / "store"), "--json").stdout)
    assert report["is_sound"]
    assert report["is_live"]
    assert report["records"] >= 600
    assert live.stop() == 0
    report = json.loads(command("store", "verify", str(tmp_path / "store"), "--json").stdout)
    assert report["is_closed"]
    assert report["problems"] == []
    assert set(report) == {*store.VerifyReport.__slots__, "is_sound"}
    assert "no problems found" in command("store", "verify", str(tmp_path / "store")).stdout


def test_damage_ends_with_1_and_is_named_with_file_place_found_and_expected(command, closed: Path):
    log, at = damage(closed, b"message 300 ")
    result = command("store", "verify", str(closed), "--json", code=1)
    report = json.loads(result.stdout)
    (record,) = (one for one in report["problems"] if one["kind"] == "damaged_record")
    assert record["path"] == str(log)
    assert record["file_offset"] < at < record["file_offset"] + record["size_bytes"]
    assert "crc" in record["found"].lower() or "checksum" in record["found"].lower()
    assert record["expected"]
    assert set(record) == set(store.Problem.__slots__)
    assert "rocketpy store repair" in result.stderr.splitlines()[-1]
    assert str(log) in command("store", "verify", str(closed), code=1).stdout


def test_a_repair_previews_then_keeps_what_it_takes_and_a_server_serves_the_rest(command, start, closed: Path):
    log, _ = damage(closed, b"message 300 ")
    before = log.read_bytes()
    assert "nothing was changed" in command("store", "repair", str(closed)).stdout
    assert log.read_bytes() == before
    done = json.loads(command("store", "repair", str(closed), "--apply", "--json").stdout)
    actions = [action["action"] for action in done["actions"]]
    assert actions[:2] == ["fill_with_record", "blank_entry"]
    filled = done["actions"][0]
    (kept,) = (Path(done["kept_in"]) / "commitlog" / log.name).iterdir()
    assert kept.read_bytes() == before[filled["file_offset"] :][: filled["size_bytes"]]
    assert json.loads((Path(done["kept_in"]) / "manifest.json").read_text())["done"]
    command("store", "verify", str(closed))
    assert "nothing to repair" in command("store", "repair", str(closed)).stdout
    server = start("server", str(closed), "--port", "0", "--name-server-port", "0", *SMALL)
    bodies = command("consume", "orders", "--group", "g", "--from", "earliest", "--count", "599",
                     name_server=server.name_server).stdout  # fmt: skip
    assert len(bodies.splitlines()) == 599
    assert "message 300 " not in bodies
    command("store", "repair", str(closed), "--apply", code=7)


def test_a_cut_previews_then_keeps_the_end_of_the_log_and_a_server_serves_the_rest(command, start, closed: Path):
    at, before = store.verify(closed).log_end, places(closed)
    assert f"the log ends at {at}" in command("store", "cut", str(closed), "--at", str(at)).stdout
    refused = command("store", "cut", str(closed), "--at", "1", code=2).stderr
    assert "no record begins at 1" in refused
    assert "store diff" in refused
    half = before[300]
    assert "nothing was changed" in command("store", "cut", str(closed), "--at", str(half)).stdout
    assert places(closed) == before
    done = json.loads(command("store", "cut", str(closed), "--at", str(half), "--apply", "--json").stdout)
    assert (Path(done["kept_in"]) / "commitlog").is_dir()
    server = start("server", str(closed), "--port", "0", "--name-server-port", "0", *SMALL)
    bodies = command("consume", "orders", "--group", "g", "--from", "earliest", "--count", "300",
                     name_server=server.name_server).stdout  # fmt: skip
    assert len(bodies.splitlines()) == 300
    assert places(closed) == before[:300]
    command("store", "cut", str(closed), "--at", str(half), "--apply", code=7)


def test_a_snapshot_of_a_running_server_opens_as_a_server_and_leaves_the_store_alone(
    command, start, live, tmp_path: Path
):
    fill(command, live)
    root, target = tmp_path / "store", tmp_path / "snapshot"
    made = json.loads(command("store", "snapshot", str(root), str(target), "--json").stdout)
    assert made["linked_files"] >= 1
    assert made["entries"] >= 600
    command("store", "verify", str(target))
    assert sum(queue.max_offset for queue in StoreReader(target).topics()[0].queues) == 600
    complete = [path for path in (root / "commitlog").iterdir() if path.stat().st_nlink > 1]
    assert len(complete) == made["linked_files"]
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in complete}
    copy = start("server", str(target), "--port", "0", "--name-server-port", "0", *SMALL)
    read = command("consume", "orders", "--group", "g", "--from", "earliest", "--count", "600",
                   name_server=copy.name_server)  # fmt: skip
    assert len(read.stdout.splitlines()) == 600
    fill(command, copy, 300)
    copy.process.kill()
    copy.process.wait()
    again = start("server", str(target), "--port", "0", "--name-server-port", "0", *SMALL)
    assert again.stop() == 0
    after = {path: (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in complete}
    assert after == before
    command("store", "snapshot", str(root), str(target), code=2)


def test_a_key_is_found_by_the_index_beside_a_server_and_in_deleted_topics_by_name_or_scan(
    command, live, tmp_path: Path
):
    fill(command, live, 3)
    root, address = str(tmp_path / "store"), live.name_server
    dump = ("store", "dump", root, "--key", "k")
    assert len(command(*dump).stdout.splitlines()) == 3, "what the index does not cover yet is read"
    command("topic", "delete", "orders", "--yes", name_server=address)
    by_index = command(*dump)
    assert by_index.stdout == ""
    assert "--topic NAME, or with --no-index" in by_index.stderr
    for found in (command(*dump, "--no-index"), command(*dump, "--topic", "orders")):
        assert len(found.stdout.splitlines()) == 3
        assert not found.stderr
    command(*dump, "--topic", "never", code=3)
    command("store", "dump", root, "--topic", "orders", code=3)


def test_records_are_dumped_by_place_key_and_offset_as_json_raw_and_parquet(command, closed: Path, tmp_path: Path):
    rows = [json.loads(line) for line in command("store", "dump", str(closed), "--json").stdout.splitlines()]
    assert len(rows) == 600
    row = rows[10]
    place = f"{row['physical_offset']}:{row['physical_offset'] + 1}"
    (same,) = command("store", "dump", str(closed), "--physical", place, "--json").stdout.splitlines()
    assert json.loads(same) == row
    assert len(command("store", "dump", str(closed), "--key", row["msg_id"]).stdout.splitlines()) == 1
    of_all = command("store", "dump", str(closed), "--key", "k", "--json").stdout
    assert len(of_all.splitlines()) == 600
    assert of_all == command("store", "dump", str(closed), "--key", "k", "--json", "--no-index").stdout
    offsets = f"{row['queue_offset']}:{row['queue_offset'] + 2}"
    queue = ("--topic", "orders", "--queue", str(row["queue_id"]), "--offsets", offsets)
    assert len(command("store", "dump", str(closed), *queue).stdout.splitlines()) == 2
    raw, parquet = tmp_path / "raw", tmp_path / "rows.parquet"
    command("store", "dump", str(closed), "--physical", place, "--format", "raw", "--output", str(raw))
    bytes_of_log = min((closed / "commitlog").iterdir()).read_bytes()
    assert raw.read_bytes() == bytes_of_log[row["physical_offset"] :][: raw.stat().st_size]
    assert row["body"].encode() in raw.read_bytes()
    command("store", "dump", str(closed), "--tags", "paid", "--format", "parquet", "--output", str(parquet))
    table = pytest.importorskip("pyarrow.parquet").read_table(parquet)
    assert table.num_rows == 600
    assert table["body"][10].as_py().decode() == row["body"]
    command("store", "dump", str(closed), "--format", "parquet", code=2)
    command("store", "dump", str(closed), "--offsets", "x", code=2)


def test_messages_go_out_into_a_new_store_and_in_as_json_lines(command, start, closed: Path, tmp_path: Path):
    target = tmp_path / "target"
    report = json.loads(command("store", "export", str(closed), str(target), "--topic", "orders", "--json").stdout)
    assert report["messages"] == 600
    assert report["new_topics"] == ["orders"]
    command("store", "export", str(closed), str(target), code=2)
    lines = command("store", "dump", str(closed), "--topic", "orders", "--json").stdout
    report = json.loads(command("store", "import", "-", str(target), "--json", stdin=lines).stdout)
    assert report["messages"] == 600
    report = json.loads(command("store", "import", str(closed), str(target), "--json").stdout)
    assert report["messages"] == 600
    command("store", "verify", str(target))
    old = [json.loads(line) for line in lines.splitlines()]
    new = [json.loads(line) for line in command("store", "dump", str(target), "--json").stdout.splitlines()]
    names = ("topic", "queue_id", "tag", "keys", "body", "properties", "born_at", "msg_id")

    def content(rows):
        return sorted(json.dumps({name: row[name] for name in names}, sort_keys=True) for row in rows)

    assert content(new) == sorted(content(old) * 3)
    server = start("server", str(target), "--port", "0", "--name-server-port", "0", *SMALL)
    read = command("consume", "orders", "--group", "g", "--from", "earliest", "--count", "1800",
                   name_server=server.name_server)  # fmt: skip
    assert len(read.stdout.splitlines()) == 1800
    command("store", "import", str(closed), str(target), code=7)
    inside = str(closed / "commitlog" / "copy")
    assert "outside the store" in command("store", "import", str(closed), f"{closed}/../{closed.name}", code=2).stderr
    assert "outside the store" in command("store", "export", str(closed), inside, code=2).stderr
    command("store", "import", "-", str(tmp_path / "bad"), stdin="no json\n", code=2)


def test_stat_names_holder_mark_ages_and_holes(command, live, tmp_path: Path):
    fill(command, live)
    root = tmp_path / "store"
    facts = json.loads(command("store", "stat", str(root), "--json").stdout)
    assert facts["locked_by"] == live.process.pid
    assert facts["mark"]["log_to"] >= 0
    (topic,) = (one for one in facts["topics"] if one["topic"] == "orders")
    assert topic["estimated_bytes"] > 60_000
    assert 0 <= topic["age_seconds"] < 600
    assert sum(queue["max_offset"] for queue in topic["queue_list"]) == 600
    assert f"process {live.process.pid}" in command("store", "stat", str(root)).stdout
    assert live.stop() == 0
    (root / "commitlog" / f"{65536:020}").unlink()
    facts = json.loads(command("store", "stat", str(root), "--json").stdout)
    assert facts["commit_log"]["holes"] == [[65536, 131072]]
    assert not facts["locked"]


def test_a_log_in_two_folders_is_counted_whole_and_goes_on_where_it_lies(command, start, tmp_path: Path):
    root, folders = tmp_path / "store", (tmp_path / "a", tmp_path / "b")
    log = ",".join(map(str, folders))
    settings = (*SMALL, "--set", f"storePathCommitLog={log}")
    server = start("server", str(root), "--port", "0", "--name-server-port", "0", *settings)
    fill(command, server)
    assert server.stop() == 0

    def stat():
        return json.loads(command("store", "stat", str(root), "--commit-log", log, "--json").stdout)

    found = stat()["commit_log"]
    paths = [path for folder in folders for path in folder.iterdir()]
    assert found["folders"] == [str(folder) for folder in folders]
    assert all(any(path.parent == folder for path in paths) for folder in folders)
    assert found["files"] == len(paths)
    assert found["bytes_on_disk"] == sum(path.stat().st_blocks * 512 for path in paths)
    lines = command("store", "dump", str(root), "--commit-log", log, "--json").stdout
    refused = command("store", "import", "-", str(root), stdin=lines, code=None)
    assert "--target-commit-log" in refused.stderr.splitlines()[-1], "its log lies elsewhere"
    new, logs = tmp_path / "new", f"{tmp_path / 'c'},{tmp_path / 'd'}"
    command("store", "import", "-", str(root), "--target-commit-log", log, stdin=lines)
    assert sum(topic["messages"] for topic in stat()["topics"]) == 1200
    both = ("--commit-log", log, "--target-commit-log")
    taken = command("store", "export", str(root), str(new), *both, str(folders[0]), code=2)
    assert f"the folder is not empty: {folders[0]}" in taken.stderr
    command("store", "export", str(root), str(new), *both, logs)
    assert store.stat(new, commit_log=logs).log.file_size_bytes == 65536, "that of the source"
    command("store", "import", str(root), str(new), *both, logs)
    assert sum(topic.messages for topic in store.stat(new, commit_log=logs).topics) == 2400
    command("store", "verify", str(new), "--commit-log", logs)
    assert not (new / "commitlog").exists()
    assert not (root / "commitlog").exists()


def test_logs_are_compared_record_by_record(closed: Path, command, start, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(closed, copy)
    assert store.diff(closed, copy).relation == "equal"
    assert "the logs are equal" in command("store", "diff", str(closed), str(copy)).stdout

    def more(folder: Path, *bodies: str) -> None:
        server = start("server", str(folder), "--port", "0", "--name-server-port", "0", *SMALL)
        command("produce", "orders", stdin="\n".join(bodies), name_server=server.name_server)
        assert server.stop() == 0

    more(copy, "mine", "mine too")
    found = store.diff(closed, copy)
    assert (found.relation, found.first.own_records, found.second.own_records) == ("first_is_beginning", 0, 2)
    assert found.common_end == found.first.end < found.second.end
    more(closed, "other")
    found = store.diff(copy, closed)
    assert (found.relation, found.first.own_records, found.second.own_records) == ("diverged", 2, 1)
    assert found.first.first_own is not None
    assert found.last_common is not None
    assert found.first.first_own.physical_offset == found.common_end > found.last_common.physical_offset
    diverged = command("store", "diff", str(copy), str(closed), code=1)
    assert f"the logs diverge at {found.common_end}" in diverged.stdout
    assert f"error: the logs diverge at {found.common_end}\nhint: keep the store" in diverged.stderr
    told = json.loads(command("store", "diff", str(copy), str(closed), "--json", code=1).stdout)
    assert told["second"]["first_own"]["topic"] == "orders"

    first = min((closed / "commitlog").iterdir())
    first.unlink()  # as retention does
    later = store.diff(copy, closed)
    assert (later.relation, later.common_start, later.common_end) == ("diverged", 65536, found.common_end)
    with first.with_name(f"{65536:020}").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 100)
    damaged = store.diff(copy, closed)
    assert damaged.second.damaged_at is not None
    assert "store verify" in command("store", "diff", str(copy), str(closed), code=None).stderr
    assert "not a store" in command("store", "diff", str(copy), str(tmp_path / "none"), code=None).stderr


def test_ctrl_c_ends_a_check(executable, closed: Path):
    # Hundreds of megabytes without a record: damage that the check has to look through.
    log = max((closed / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        for _ in range(512):
            file.write(b"\xda" * (1 << 20))
    with subprocess.Popen([*executable, "store", "verify", str(closed)], stderr=subprocess.PIPE) as process:
        try:
            wait_until_open(process, log)
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=90)
        finally:
            process.kill()
    assert process.returncode == 130, stderr
    assert b"Traceback" not in stderr


def wait_until_open(process: subprocess.Popen, path: Path) -> None:
    """Waits until a process has a file open."""
    handles = Path(f"/proc/{process.pid}/fd")

    def is_open() -> bool:
        for handle in handles.iterdir():
            # The process opens and closes others meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if handle.readlink().name == path.name:
                    return True
        return False

    wait_until(is_open, f"{path.name} is open", process=process, seconds=240)


def test_the_tools_are_functions_with_typed_results(closed: Path, tmp_path: Path):
    seen: list[tuple[int, int]] = []
    report = store.verify(closed, on_progress=lambda done, total: seen.append((done, total)))
    assert isinstance(report, store.VerifyReport)
    assert report.is_sound
    assert seen, "the first step is reported at once"
    assert store.repair(closed).actions == ()
    assert store.snapshot(closed, tmp_path / "snapshot").log_end == report.log_end
    assert store.stat(closed).mark.closed
    given = [{"topic": "made", "body": b"\xff", "properties": {"a": "b"}, "keys": ["x"], "tag": "T"}]
    assert store.import_messages(given, tmp_path / "new").messages == 1
    (batch,) = store.records(tmp_path / "new", key="x", columns=["topic", "body", "tag"])
    assert batch.num_rows == 1
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for field in ("queue_id", "properties", "born_host"):
        target = tmp_path / f"deep-{field}"
        with pytest.raises(InvalidArgumentError, match="row 2"):
            store.import_messages([*given, {"topic": "made", "body": "x", field: deep}], target)
        assert [topic.messages for topic in store.stat(target).topics] == [1]
    with pytest.raises(ZeroDivisionError):
        store.verify(closed, on_progress=lambda done, total: 1 // 0)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b'{"topic": "t", "body": "x", "queue_id": -1}', "queue_id"),
        (b'{"topic": "t", "body": "x", "flag": "many"}', "flag"),
        (b'{"topic": "t", "body": "x", "born_at": "soon"}', "soon"),
        (b'{"topic": "t", "body": "x", "properties": 7}', "row 2"),
        (b'{"topic": "t", "body": "\\ud800"}', "row 2"),
        (b'{"topic": "t", "body_base64": "!"}', "row 2"),
        (b'{"topic": "t"}', "row 2"),
        (b'{"topic": "\\ud800", "body": "x"}', "row 2"),
        (b'{"topic": "t", "body": "x", "born_host": "\\ud800"}', "row 2"),
        (b'{"topic": "t", "body": "x", "properties": ' + b"[" * 100_000 + b"}", "line 2"),
        (b"[1]", "line 2"),
        (b'{"topic": "t", "body": "\xff"}', "line 2"),
    ],
)
def test_a_bad_line_is_named_and_the_lines_before_it_are_imported(command, tmp_path: Path, line: bytes, named: str):
    lines, target = tmp_path / "lines.jsonl", tmp_path / "new"
    lines.write_bytes(b'{"topic": "t", "body": "good"}\n' + line + b"\n")
    result = command("store", "import", str(lines), str(target), code=2)
    assert named in result.stderr
    assert "Traceback" not in result.stderr
    assert "defect" not in result.stderr
    assert [topic.messages for topic in store.stat(target).topics] == [1]


def test_lines_of_system_topics_are_passed_over_and_impossible_queues_rejected(command, tmp_path: Path):
    lines, target = tmp_path / "lines.jsonl", tmp_path / "new"
    rows = [
        {"topic": "t", "body": "good"},
        {"topic": "SCHEDULE_TOPIC_XXXX", "body": "delivered"},
        {"topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC", "body": "0,"},
        {"topic": "t", "body": "nowhere", "queue_id": 2_000_000_000},
    ]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = command("store", "import", str(lines), str(target), "--json", code=11)
    report = json.loads(result.stdout)
    assert (report["messages"], report["passed_over"], report["rejected"]) == (1, 2, 1)
    assert report["rejections"] == ["row 4: queue_id exceeds the maximum 16383: 2000000000"]
    assert [topic.messages for topic in store.stat(target).topics] == [1]


def test_import_with_an_invalid_source_leaves_no_folder_behind(command, tmp_path: Path):
    target, log = tmp_path / "new", tmp_path / "srv.log"
    log.write_text("server started\n")
    (tmp_path / "empty").mkdir()
    for source, code in ((tmp_path / "nosuch", 3), (tmp_path / "empty", 3), (log, 2)):
        result = command("store", "import", str(source), str(target), code=code)
        assert not target.exists(), source
    assert "hint: name a store folder, or a file of JSON lines" in result.stderr
    with pytest.raises(InvalidArgumentError) as refused:
        store.import_messages([{"topic": "t"}], target)
    assert refused.value.hint == "no row is imported; correct it"
    assert not target.exists()


def test_transfer_names_the_folder_that_it_wrote_and_the_records_that_it_skipped(command, closed: Path, tmp_path: Path):
    target = tmp_path / "exported.jsonl"
    shown = command("store", "export", str(closed), str(target)).stdout
    assert re.search(rf"store folder +{re.escape(str(target))}", shown)
    assert re.search(r"passed over +\d+ records? that are not user messages", shown)
    assert re.search(r"left out +0 damaged records", shown)
    report = json.loads(command("store", "export", str(closed), str(tmp_path / "other"), "--json").stdout)
    assert report["left_out"] == 0

"""Alerts of a console process that is killed: notifications that were not delivered are delivered after its start."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from alert_sinks import HttpSink, listening
from rocketpy.console.alerts import Channel, Rule
from rocketpy.console.alerts.store import opened_store
from rocketpy.testing import fresh_name
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import rocketpy


def started(server: rocketpy.Server, data: Path, ready: Path) -> subprocess.Popen[str]:
    """Starts a console on a free port, and waits until it is ready."""
    ready.unlink(missing_ok=True)
    listen = ["--listen", "127.0.0.1:0", "--ready-file", str(ready), "--data", str(data)]
    command = [sys.executable, "-m", "rocketpy", "console", "--name-server", server.name_server, *listen]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: ready.exists() and json.loads(ready.read_text())["pid"] == process.pid, process=process)
    return process


def test_notification_survives_sigkill_of_the_console(rocketpy_server: rocketpy.Server, tmp_path: Path) -> None:
    import rocketpy

    group, topic, data = fresh_name("killed"), fresh_name("topic"), tmp_path / "data"
    with rocketpy_server.admin() as admin, rocketpy_server.producer(fresh_name("p")) as producer:
        admin.create_topic(topic, queues=1)
        admin.create_group(group)
        admin.commit_offset(group, admin.queues(topic)[0], 0)
        producer.send(rocketpy.Message(topic, b"x"))
    sink = HttpSink(*[b"HTTP/1.1 500 Oops\r\n\r\n"] * 1000)
    with listening(sink.serve) as port:
        store = opened_store(data)
        store.put(Channel("ops", "webhook", f"http://127.0.0.1:{port}/"))
        store.put(Rule("own", "Late", "lag", group, 1, 0, 0, "ops"))
        store.close()
        with started(rocketpy_server, data, tmp_path / "ready") as process:
            assert process.stderr is not None
            wait_until(lambda: sink.requests, "the first attempt", process=process)
            second = [sys.executable, "-m", "rocketpy", "console", "--listen", "127.0.0.1:0", "--data", str(data)]
            refused = subprocess.run(second, capture_output=True, text=True, check=False)
            assert "another console uses the store of the console" in refused.stderr
            assert "Traceback" not in refused.stderr
            process.send_signal(signal.SIGKILL)
            process.wait()
        first = json.loads(sink.requests[0][1])["alerts"][0]
        sink.answers.clear()
        sink.requests.clear()
        with started(rocketpy_server, data, tmp_path / "ready") as process:
            assert process.stderr is not None
            wait_until(lambda: sink.requests, "the notification after the restart", process=process)
            [again] = [one for one in json.loads(sink.requests[0][1])["alerts"] if one["id"] == first["id"]]
            assert again == first
            process.send_signal(signal.SIGINT)
            process.wait()
    store = opened_store(data)
    assert [one for one in store.notices() if one.id == first["id"]] == []
    store.close()


@pytest.mark.parametrize("content", [b"shopping list", b"SQLite format 3\x00" + bytes(2000)])
def test_damaged_store_ends_the_command_with_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "console.db").write_bytes(content)
    command = [sys.executable, "-m", "rocketpy", "console", "--listen", "127.0.0.1:0", "--data", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode != 0
    assert "\nerror: cannot open the store of the console: " in found.stderr
    assert "Traceback" not in found.stderr
    assert (tmp_path / "console.db").read_bytes() == content

"""Spark Connect: a server of its own, and a client in another process that has no Java."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import rocketpy
from ports import free_port
from rocketpy.spark import JavaNotFoundError, prepare_java
from rocketpy.spark.session import NO_CONTEXT, QUICK_JVM
from rocketpy.testing import fresh_name
from spark_jobs import wait_for_receipts
from waiting import wait_until

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
CLIENT = Path(__file__).with_name("connect_client.py")
CORES = 3
MESSAGES = 300
HERE = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "PYTHONWARNINGS": "default"}


@pytest.fixture(scope="module")
def connect(tmp_path_factory):
    """The address of a server; without its packages or a Java the test is skipped, which fails in CI."""
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("no grpcio: pip install 'pyspark[connect]'")
    try:
        prepare_java()
    except JavaNotFoundError as missing:
        pytest.skip(str(missing))
    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.shuffle.partitions": 1,
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.ui.enabled": "false",
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    submit = Path(sys.executable).with_name("spark-submit")
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [submit, "--class", SERVER, "--master", f"local[{CORES}]", *words],
            env={**os.environ, **HERE, "PYSPARK_PYTHON": sys.executable},
            stdout=out,
            stderr=out,
        )

    def accepts() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(accepts, f"the server accepts: {log}", process=server)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def done(connect, rocketpy_server, tmp_path_factory):
    """What the client says of each of its steps, and what it wrote."""
    topic, batch_target, stream_target, group = (fresh_name(name) for name in ("in", "batch", "stream", "group"))
    with rocketpy_server.admin() as admin, rocketpy_server.producer("connect") as producer:
        for name in (topic, batch_target, stream_target):
            admin.create_topic(name, queues=2)
        messages = [rocketpy.Message(topic, b'{"n": %d}' % number, tag=f"t{number % 3}") for number in range(MESSAGES)]
        wait_for_receipts(rocketpy_server, producer.send_many(messages))
    given = {
        "remote": connect,
        "name_server": rocketpy_server.name_server,
        "path": str(rocketpy_server.path),
        "topic": topic,
        "batch_target": batch_target,
        "stream_target": stream_target,
        "group": group,
        "checkpoint": str(tmp_path_factory.mktemp("checkpoint") / "state"),
    }
    environment = {**os.environ, **HERE, "JAVA_HOME": "/nonexistent"}
    client = subprocess.run(
        [sys.executable, CLIENT, json.dumps(given)], env=environment, capture_output=True, text=True, timeout=800
    )
    assert client.returncode == 0, client.stderr
    said = json.loads(client.stdout.splitlines()[-1])
    with rocketpy_server.admin() as admin:
        for name in (batch_target, stream_target):
            said[name] = sum(info.max_offset for info in admin.describe_topic(name).queues)
    return said | {"written": (said[batch_target], said[stream_target])}


def test_batches_and_what_runs_inside_the_workers_give_all_messages(done):
    assert done["batch"] == sum(range(MESSAGES))
    assert done["folder"] == MESSAGES
    assert done["map_batches"] == MESSAGES
    assert done["aggregate"] == {"t0": 100, "t1": 100, "t2": 100}
    assert done["tag_hashes"] == {"t0": 3644, "t1": 3645, "t2": 3646}


def test_the_sink_writes_batches_and_streams(done):
    assert done["written"] == (MESSAGES, MESSAGES)


def test_a_stream_tells_its_lag_and_its_offsets(done):
    assert done["lags"] == [True, 100, 0]
    assert done["committed"] == MESSAGES


def test_the_client_learns_how_many_tasks_run_at_once(done):
    assert done["cores"] == CORES


@pytest.mark.parametrize("what", ["ranges", "jobs"])
def test_what_needs_a_classic_session_is_refused_by_name(done, what):
    assert NO_CONTEXT in done[what]
    assert "spark-submit" in done[what]
    assert "map_batches" in done[what]

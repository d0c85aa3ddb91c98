"""The fixtures of `rocketpy.testing`, in runs of pytest of their own."""

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = """
from rocketpy.testing import fresh_name  # before pytest loads the plugin

pytest_plugins = ["rocketpy.testing"]
"""
SETTINGS = """
import pytest

@pytest.fixture(scope="session")
def rocketpy_settings():
    return {"maxMessageSize": 2048}
"""
TESTS = """
import asyncio, os, pathlib

import pytest


import rocketpy
from rocketpy.testing import drain_async, fresh_name

async def sends_and_receives(clients, topic):
    async with clients.producer("shop") as producer, clients.consumer(fresh_name("billing"), topic) as consumer:
        await producer.send(rocketpy.Message(topic, b"a book"))
        assert [message.body for message in await drain_async(consumer)] == [b"a book"]
        await consumer.commit()
    packed, packer = asyncio.Queue(), clients.push_consumer(fresh_name("packing"))
    packer.on(topic)(packed.put)
    async with packer:
        assert (await packed.get()).body == b"a book"
    async with clients.admin() as admin:
        assert len(await admin.queues(topic)) == 4

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_async_fixture_with_anyio(rocketpy_nothing_left, rocketpy_async, rocketpy_topic, anyio_backend):
    await sends_and_receives(rocketpy_async, rocketpy_topic)

def test_async_fixture_with_asyncio_run(rocketpy_async, rocketpy_topic):
    asyncio.run(sends_and_receives(rocketpy_async, rocketpy_topic))

def test_shared_server_creates_no_topic(rocketpy_server):
    with rocketpy_server.producer("shop") as producer, pytest.raises(rocketpy.TopicNotFoundError):
        producer.send(rocketpy.Message("ordesr", b"x"))

def test_other_servers_create_no_topic_unless_told(rocketpy_server_factory, tmp_path):
    other, willing = rocketpy_server_factory(), rocketpy_server_factory(
        tmp_path / "willing", settings={"autoCreateTopicEnable": True}
    )
    with other.producer("shop") as producer, pytest.raises(rocketpy.TopicNotFoundError):
        producer.send(rocketpy.Message("ordesr", b"x"))
    with willing.producer("shop") as producer:
        producer.send(rocketpy.Message("ordesr", b"x"))

def test_traces_need_no_topic_of_the_test(rocketpy_server, rocketpy_topic):
    with rocketpy_server.producer("shop", trace=True) as producer:
        producer.send(rocketpy.Message(rocketpy_topic, b"x"))
    assert producer.dropped_traces == 0

@pytest.fixture(autouse=True)
def address(rocketpy_server, request):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    pathlib.Path(f"{worker}-{request.node.name}.address").write_text(rocketpy_server.name_server)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", ".", "--basetemp", "base", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_fixtures_are_strict_serve_asyncio_and_belong_to_a_worker_of_xdist(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_use.py").write_text(TESTS)
    ended = run(tmp_path, "-n", "2")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "5 passed" in ended.stdout
    addresses = {(path.name.split("-")[0], path.read_text()) for path in tmp_path.glob("*.address")}
    assert {worker for worker, _ in addresses} == {"gw0", "gw1"}
    assert len({address for _, address in addresses}) == len(addresses) == 2


def test_helpers_in_a_conftest_raise_no_warning_and_settings_may_be_overridden(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST + SETTINGS)
    (tmp_path / "test_use.py").write_text(
        "def test_size(rocketpy_server):\n"
        "    with rocketpy_server.admin() as admin:\n"
        "        assert admin.broker_config(rocketpy_server.broker)['maxMessageSize'] == '2048'\n"
    )
    ended = run(tmp_path, "-p", "no:xdist")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "warning" not in ended.stdout


LEAVING = """
import rocketpy

def test_sends(rocketpy_nothing_left, rocketpy_server, rocketpy_topic):
    with rocketpy_server.producer("shop") as producer:
        producer.send_many(rocketpy.Message(rocketpy_topic, b"x") for _ in range(3))
"""


def test_test_that_leaves_messages_fails(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_use.py").write_text(LEAVING)
    ended = run(tmp_path, "-p", "no:xdist", "-rN")  # without a summary, which repeats the text in CI
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 passed, 1 error" in ended.stdout
    assert ended.stdout.count(": no group has committed 3 messages\n") == 1
    assert "During handling" not in ended.stdout
    assert "Traceback" not in ended.stdout

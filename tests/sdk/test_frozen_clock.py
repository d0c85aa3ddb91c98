"""Timeouts pass while a test library has frozen the clocks of Python, as freezegun and time-machine do."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rocketpy
from rocketpy.testing import fresh_name, wait_until_consumed

CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
END_SECONDS = 120
"""Bound of a test that hangs."""
SHORT = 0.2


@pytest.fixture
def frozen(monkeypatch):
    """Freezes the functions of `time`, and every name of the package that is one of them."""
    stopped = {id(clock): (lambda now: lambda: now)(clock()) for clock in (getattr(time, name) for name in CLOCKS)}
    named = [(name, module) for name, module in sys.modules.items() if name.partition(".")[0] == "rocketpy"]
    for _, module in [("time", time), *named]:
        for name, value in list(vars(module).items()):
            if id(value) in stopped:
                monkeypatch.setattr(module, name, stopped[id(value)])
    before = time.monotonic(), time.time()
    assert before == (time.monotonic(), time.time())


def outcome(call):
    """What a call returns or raises, in a thread of its own."""
    found = []

    def run():
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(END_SECONDS)
    assert found, "the call never ends"
    return found[0]


def test_a_poll_with_callbacks_ends(rocketpy_server, rocketpy_topic, frozen):
    callbacks = {"on_assigned": lambda consumer, queues: None, "on_revoked": lambda consumer, queues: None}
    with rocketpy_server.consumer(fresh_name("frozen"), rocketpy_topic, **callbacks) as consumer:
        assert list(outcome(lambda: consumer.poll(timeout=SHORT))) == []

    async def poll():
        servers = rocketpy_server.name_servers
        async with rocketpy.AsyncConsumer(
            fresh_name("frozen"), rocketpy_topic, name_servers=servers, **callbacks
        ) as consumer:
            return await consumer.poll(timeout=SHORT)

    assert list(outcome(lambda: asyncio.run(poll()))) == []


def test_a_wait_for_a_group_ends(rocketpy_server, rocketpy_topic, frozen):
    with rocketpy_server.producer(fresh_name()) as producer:
        producer.send(rocketpy.Message(rocketpy_topic, b"text"))
    group = fresh_name("idle")
    with rocketpy_server.admin() as admin:
        admin.create_group(group)
    error = outcome(lambda: wait_until_consumed(rocketpy_server, group, rocketpy_topic, timeout=SHORT))
    assert isinstance(error, rocketpy.RequestTimeoutError)


@pytest.mark.parametrize("clock", ["time.monotonic", "time.monotonic_ns", "time.time", "time.time_ns"])
def test_lint_rejects_clocks_that_can_be_frozen(clock, request):
    root = request.config.rootpath
    ruff = Path(sys.executable).with_name("ruff")
    name = str(root / "python" / "rocketpy" / "consuming" / "new.py")
    code = f'"""A module."""\n\nimport time\n\nBEGAN = {clock}()\n'
    checked = subprocess.run(
        [ruff, "check", "--stdin-filename", name, "-"], cwd=root, input=code, capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 1
    assert "TID251" in checked.stdout
    assert "rocketpy.base.clock" in checked.stdout

"""A server in a control group with a memory limit, where this machine lets the test make one."""

import os
import resource
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketpy
from waiting import wait_until

LIMIT_BYTES = 512 << 20
DEFAULT_BYTES = 512 << 20
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[Path | None]:
    """A control group with a memory limit; None where this machine lets the test make none."""
    parent, file = (V1, "memory.limit_in_bytes") if V1.is_dir() else (V2, "memory.max")
    group = parent / f"rocketpy-{os.getpid()}-{uuid.uuid4().hex}"
    try:
        group.mkdir()
        (group / file).write_text(str(LIMIT_BYTES))
    except OSError:
        if group.is_dir():
            group.rmdir()
        yield None
        return
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text(), "the processes of the group end")
    group.rmdir()


def entering(group: Path | None) -> list[str]:
    """Start of a command that runs in the group."""
    return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")] if group else []


def test_memory_for_peers_is_a_quarter_of_the_limit_of_the_control_group(group: Path | None, start, tmp_path: Path):
    server = start("server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0", prefix=entering(group))
    with rocketpy.Admin(name_servers=server.name_server) as admin:
        configured = int(admin.broker_config(server.ready["broker"])["maxPeerBytes"])
    if group:
        assert configured == LIMIT_BYTES // 4
        log = server.log.read_text()
        assert "memory for peers reduced" in log
        of_descriptors = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0] // 4
        assert ("number of open queue files reduced" in log) == (of_descriptors > LIMIT_BYTES // 8 // (16 << 10))
    else:
        assert configured <= DEFAULT_BYTES
    assert server.stop() == 0


def test_configured_memory_for_peers_stays(group: Path | None, start, tmp_path: Path):
    settings = ["--set", f"maxPeerBytes={DEFAULT_BYTES}"]
    server = start(
        "server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0", *settings, prefix=entering(group)
    )
    with rocketpy.Admin(name_servers=server.name_server) as admin:
        assert int(admin.broker_config(server.ready["broker"])["maxPeerBytes"]) == DEFAULT_BYTES
    assert server.stop() == 0

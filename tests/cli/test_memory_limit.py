"""A server in a control group with a memory limit, where this machine lets the test make one."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketpy
from waiting import wait_until

LIMIT_BYTES = 512 << 20
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a memory limit."""
    parent, file = (V1, "memory.limit_in_bytes") if V1.is_dir() else (V2, "memory.max")
    group = parent / f"rocketpy-{os.getpid()}-{uuid.uuid4().hex}"
    try:
        group.mkdir()
        (group / file).write_text(str(LIMIT_BYTES))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"this machine lets the test make no control group: {error}")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text(), "the processes of the group end")
    group.rmdir()


def test_memory_for_peers_is_a_quarter_of_the_limit_of_the_control_group(group: Path, start, tmp_path: Path):
    enter = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]
    server = start("server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0", prefix=enter)
    with rocketpy.Admin(name_servers=server.name_server) as admin:
        config = admin.broker_config(server.ready["broker"])
    assert int(config["maxPeerBytes"]) == LIMIT_BYTES // 4
    assert "memory for peers reduced" in server.log.read_text()
    assert server.stop() == 0

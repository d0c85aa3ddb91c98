"""A disk that fails under `rocketpy server`, as in `rust/server/tests/it/failed_disk.rs`.

It is an ext4 on an image that has more blocks than room, so that a flush meets an error of the device.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def run(*arguments: str | Path) -> None:
    subprocess.run(arguments, check=True, capture_output=True)


@pytest.fixture
def thin_disk(tmp_path: Path) -> Iterator[Path]:
    """A mounted file system of 256 MiB whose image has room for 16 MiB.

    Tests name it before `start`, whose servers must end first.
    """
    host, disk = tmp_path / "host", tmp_path / "disk"
    host.mkdir()
    disk.mkdir()
    mounted = []
    try:
        run("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", host)
        mounted.append(host)
        run("truncate", "-s", "256M", host / "ext4")
        # Without a journal: one that cannot be written ends processes that write into maps (SIGBUS).
        run("mkfs.ext4", "-q", "-O", "^has_journal", host / "ext4")
        run("mount", "-o", "loop", host / "ext4", disk)
        mounted.append(disk)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"root, loop devices and mkfs.ext4 are needed: {error}")
    else:
        yield disk
    finally:
        for folder in reversed(mounted):
            run("umount", "--lazy", folder)  # a mount namespace of another test may hold a copy


def test_a_server_whose_disk_failed_ends_with_exit_code_5_and_says_why(thin_disk: Path, start, command):
    server = start(
        "server", str(thin_disk / "store"), "--port", "0", "--name-server-port", "0",
        "--set", "flushDiskType=SYNC_FLUSH", "--set", "mappedFileSizeCommitLog=67108864",
    )  # fmt: skip
    command("produce", "orders", stdin="it works for a while\n", name_server=server.name_server)
    lines = "".join(f"{os.urandom(50 << 10).hex()}\n" for _ in range(400))  # which no compression makes fit
    command("produce", "orders", stdin=lines, name_server=server.name_server, code=None)
    assert server.process.wait(30) == 5, server.log.read_text()
    error, hint = server.log.read_text().splitlines()[-2:]
    assert error.startswith("error: "), error
    assert "a flush failed" in error
    assert hint.startswith("hint: check the disk"), hint

"""Options of `rocketpy console`: who reaches it, and where its audit log goes."""

from __future__ import annotations

import importlib
import json
import logging
from typing import TYPE_CHECKING

import pytest

from rocketpy.cli import main
from rocketpy.cli.console import check
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.console import Settings
from rocketpy.console.audit import Audit
from rocketpy.security import Credentials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER = Credentials("admin", "secret-of-admin")


def test_public_host_on_loopback_needs_a_login_and_tls():
    proxied = Settings("127.0.0.1:1", public_hosts=("ops.example",))
    assert not proxied.is_local
    assert proxied.hides_bodies
    with pytest.raises(CommandError, match=r"cannot serve --public-host ops\.example without a login") as error:
        check(proxied, plain_http=True)
    assert error.value.code == ExitCode.REFUSED
    with_login = Settings("127.0.0.1:1", public_hosts=("ops.example",), credentials=USER)
    with pytest.raises(CommandError, match=r"cannot serve --public-host ops\.example without TLS"):
        check(with_login, plain_http=False)
    check(with_login, plain_http=True)


def test_loopback_name_as_public_host_needs_no_login():
    settings = Settings("127.0.0.1:1", public_hosts=("localhost", "::1"))
    assert settings.is_local
    check(settings, plain_http=False)


@pytest.fixture
def audit_log() -> Iterator[logging.Logger]:
    """Logger of the audit log without handlers, restored afterwards."""
    found = logging.getLogger("rocketpy.console.audit")
    handlers, level, found.handlers = found.handlers, found.level, []
    yield found
    found.handlers = handlers
    found.setLevel(level)


@pytest.mark.parametrize("has_folder", [False, True])
def test_audit_log_without_a_folder_is_on_standard_error(
    audit_log: logging.Logger, monkeypatch: pytest.MonkeyPatch, capfd, tmp_path: Path, has_folder: bool
):
    async def serve(settings: Settings, _ready_file: Path | None) -> None:
        Audit(settings.data).write({"action": "delete topic"})

    monkeypatch.setattr(importlib.import_module("rocketpy.cli.console"), "serve", serve)
    line = ["console", "--name-server", "127.0.0.1:1", "--listen", "127.0.0.1:0"]
    assert main([*line, "--data", str(tmp_path)] if has_folder else line) == 0
    lines = [one for one in capfd.readouterr().err.splitlines() if one.startswith("{")]
    assert [json.loads(one)["action"] for one in lines] == ([] if has_folder else ["delete topic"])
    assert (tmp_path / "audit.jsonl").exists() == has_folder

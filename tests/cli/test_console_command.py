"""`rocketpy console` and `rocketpy server --console`, as a user starts them."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from closed_server import ADMIN, USERS_ON
from rocketpy.cli import main
from rocketpy.commandline.exits import ExitCode
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from closed_server import ClosedServer

LISTEN = ("--listen", "127.0.0.1:0")


def status_of(url: str) -> int:
    """HTTP status of a page; its redirects are followed."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "admin.credentials"
    path.touch(mode=0o600)
    path.write_text(f"accessKey={ADMIN.access_key}\nsecretKey={ADMIN.secret_key}\n")
    return path


def test_the_console_serves_until_a_signal_and_writes_its_address(start, server, tmp_path: Path):
    data = tmp_path / "data"
    console = start("console", "--name-server", server.ready["name_server"], *LISTEN, "--data", str(data))
    url = console.ready["console"]
    assert console.ready["pid"] == console.process.pid
    wait_until(
        lambda: status_of(f"{url}/health/ready") == 200, "the console has read the cluster", process=console.process
    )
    assert status_of(f"{url}/") == 200
    assert data.stat().st_mode & 0o777 == 0o700
    console.process.send_signal(signal.SIGTERM)
    assert console.process.wait(60) == 0


def test_a_server_and_its_console_share_a_process(start, tmp_path: Path):
    server = start(
        "server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0",
        "--console", "--console-listen", "127.0.0.1:0",
    )  # fmt: skip

    def url_now() -> str | None:
        return json.loads(server.ready_file.read_text()).get("console")

    wait_until(url_now, "the ready file has the console", process=server.process)
    url = url_now()
    assert status_of(f"{url}/DefaultCluster/topics") == 200
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says", "hint"),
    [
        (("--listen", "0.0.0.0:0"), ExitCode.REFUSED, "cannot listen on 0.0.0.0 without a login", "--credentials FILE"),
        (
            ("--public-host", "ops.example"),
            ExitCode.REFUSED,
            "cannot serve --public-host ops.example without a login",
            "--credentials FILE",
        ),
        (("--listen", "nonsense"), ExitCode.USAGE, "--listen must be HOST:PORT", "127.0.0.1:8080"),
        (("--listen", "127.0.0.1:70000"), ExitCode.USAGE, "--listen must be HOST:PORT", "127.0.0.1:8080"),
        (("--role", "root"), ExitCode.USAGE, "--role must be one of reader, operator, admin: root", "--help"),
        (("--cert", "x"), ExitCode.USAGE, "--cert and --key belong together", "give both"),
        (("--cert", "x", "--key", "y"), ExitCode.NOT_FOUND, "--cert: no such file: x", "check the path"),
    ],
)
def test_unsafe_and_wrong_options_are_refused(capfd, arguments: tuple[str, ...], code: ExitCode, says: str, hint: str):
    assert main(["console", "--name-server", "127.0.0.1:1", *arguments]) == code
    error = capfd.readouterr().err
    assert says in error
    assert hint in error


def test_other_addresses_need_tls_even_with_a_login(capfd, secret_file: Path):
    line = ["console", "--name-server", "127.0.0.1:1", "--listen", "0.0.0.0:0", "--credentials", str(secret_file)]
    assert main(line) == ExitCode.REFUSED
    error = capfd.readouterr().err
    assert "cannot listen on 0.0.0.0 without TLS" in error
    assert "--plain-http" in error
    assert ADMIN.secret_key not in error


def test_a_cluster_with_users_asks_for_credentials(capfd, closed_server: ClosedServer):
    assert main(["console", "--name-server", closed_server.name_server, *LISTEN]) == ExitCode.REFUSED
    error = capfd.readouterr().err
    assert "cluster has access control" in error
    assert "--credentials FILE" in error


def test_a_server_with_users_refuses_an_open_console(command, tmp_path: Path):
    line = ["server", str(tmp_path / "store"), "--port", "0", "--name-server-port", "0", "--console"]
    users = {
        "ROCKETPY_INIT_AUTHENTICATION_USER": USERS_ON["initAuthenticationUser"],
        "ROCKETPY_INNER_CLIENT_AUTHENTICATION_CREDENTIALS": USERS_ON["innerClientAuthenticationCredentials"],
    }
    ran = command(
        *line, "--console-listen", "127.0.0.1:0", "--set", "authenticationEnabled=true", code=ExitCode.REFUSED,
        env={**os.environ, **users},
    )  # fmt: skip
    assert "cluster has access control" in ran.stderr


def test_missing_packages_are_named_with_the_extra(capfd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "starlette" else found(name, *rest)
    )
    for line in (["console", *LISTEN], ["server", str(tmp_path / "store"), "--console"]):
        assert main(line) == ExitCode.NOT_FOUND
        error = capfd.readouterr().err
        assert "not installed: starlette" in error
        assert "pip install 'rocketpy-mq[console]'" in error
    assert not (tmp_path / "store").exists()


def test_a_port_in_use_is_named(capfd, server):
    address = server.ready["broker"]
    line = ["console", "--name-server", server.ready["name_server"], "--listen", address]
    assert main(line) == ExitCode.CONFLICT
    assert f"cannot listen on {address}: Address already in use" in capfd.readouterr().err

"""Credentials: where clients find them, what they sign, and what never shows a secret."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

import rocketpy
from rocketpy.base import credential_file
from rocketpy.testing import fresh_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "a secret of nobody"
CREDENTIALS = rocketpy.Credentials("user", SECRET, security_token="token of nobody")
MISSING = rocketpy.MessageQueue("t", "b", 0)
VARIABLES = ("CREDENTIALS", "ACCESS_KEY", "SECRET_KEY", "SECURITY_TOKEN")


@pytest.fixture(autouse=True)
def _no_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"ROCKETPY_{name}", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file with a text and a mode."""

    def write(text: str, mode: int = 0o600) -> Path:
        path = tmp_path / "credentials"
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


def test_secrets_are_not_shown():
    assert repr(CREDENTIALS) == "Credentials(access_key='user')"
    assert pickle.loads(pickle.dumps(CREDENTIALS)) == CREDENTIALS


@pytest.mark.parametrize(
    "text",
    [
        '{"accessKey": "user", "secretKey": "a secret of nobody", "securityToken": "token of nobody"}',
        "# of the client\naccessKey=user\n\nsecretKey = a secret of nobody\nsecurityToken=token of nobody\n",
        "---\naccessKey: user # name\nsecretKey: 'a secret of nobody'\nsecurityToken: \"token of nobody\"\n",
    ],
    ids=["json", "lines", "tools.yml"],
)
def test_files_of_three_formats_are_read(text: str, file: Callable[..., Path]):
    assert rocketpy.Credentials.from_file(file(text)) == CREDENTIALS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("accessKey=user\n", "secretKey is missing"),
        ("accessKey=user\nsecret=a secret of nobody\n", "unknown key secret"),
        ('{"accessKey": "user", "secretKey": "a secret of nobody"', "is not JSON"),
        ('{"accessKey": "user", "secretKey": 12345678}', "secretKey must be text"),
        ("user a secret of nobody\n", "line 1 is not key=value"),
        ("", "accessKey is missing"),
    ],
)
def test_broken_files_are_refused_without_their_text(text: str, says: str, file: Callable[..., Path]):
    with pytest.raises(rocketpy.InvalidArgumentError, match=says) as caught:
        rocketpy.Credentials.from_file(file(text))
    shown = f"{caught.value} {caught.value.hint}"
    assert "of nobody" not in shown
    assert "12345678" not in shown


def test_files_that_others_can_read_are_refused(file: Callable[..., Path]):
    for mode in (0o644, 0o640, 0o604, 0o602):
        path = file("accessKey=user\nsecretKey=x\n", mode)
        with pytest.raises(rocketpy.InvalidArgumentError, match="other users can read") as caught:
            rocketpy.Credentials.from_file(path)
        assert f"chmod 600 {path}" in str(caught.value.hint)
    with pytest.raises(rocketpy.InvalidArgumentError, match="cannot read credentials file"):
        rocketpy.Credentials.from_file("/no/such/file")


def test_the_environment_names_a_file_or_the_values(file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    assert credential_file.of_environment() is None
    monkeypatch.setenv("ROCKETPY_ACCESS_KEY", "user")
    with pytest.raises(rocketpy.InvalidArgumentError, match="ROCKETPY_ACCESS_KEY is set without ROCKETPY_SECRET_KEY"):
        rocketpy.Admin("127.0.0.1:1")
    monkeypatch.setenv("ROCKETPY_SECRET_KEY", SECRET)
    monkeypatch.setenv("ROCKETPY_SECURITY_TOKEN", "token of nobody")
    assert credential_file.of_environment() == CREDENTIALS
    monkeypatch.setenv("ROCKETPY_CREDENTIALS", str(file("accessKey=other\nsecretKey=x\n")))
    assert credential_file.of_environment() == rocketpy.Credentials("other", "x")


@pytest.mark.parametrize("value", ["text", True, 1])
def test_every_client_refuses_other_values_by_name(rocketpy_server: rocketpy.Server, value: Any):
    names: dict[str, Any] = {"name_servers": rocketpy_server.name_servers, "credentials": value}
    group = fresh_name("secure")
    for make in (
        lambda: rocketpy.Producer(group, **names),
        lambda: rocketpy.TransactionProducer(group, lambda _: rocketpy.Decision.UNKNOWN, **names),
        lambda: rocketpy.Consumer(group, "t", **names),
        lambda: rocketpy.Consumer.assign(group, [MISSING], **names),
        lambda: rocketpy.RangeReader(MISSING, 0, 1, **names),
        lambda: rocketpy.Admin(**names),
        lambda: rocketpy.PushConsumer(group, **names),
        lambda: rocketpy.AsyncProducer(group, **names),
        lambda: rocketpy.AsyncConsumer(group, "t", **names),
        lambda: rocketpy.AsyncPushConsumer(group, **names),
        lambda: rocketpy.AsyncAdmin(**names),
    ):
        with pytest.raises(TypeError, match="option credentials must be a Credentials, False or None"):
            make()


def test_empty_and_hostile_names_are_refused():
    for access_key, secret_key in (("", "x"), ("user", ""), ("a\x1b[2J", "x")):
        with pytest.raises(rocketpy.InvalidArgumentError):
            rocketpy.Credentials(access_key, secret_key)
    with pytest.raises(TypeError, match="secret_key must be text, not int"):
        rocketpy.Credentials("user", 12345678)  # type: ignore[arg-type]


def test_clients_of_one_instance_have_one_user(rocketpy_server: rocketpy.Server):
    options: dict[str, Any] = {"name_servers": rocketpy_server.name_servers, "instance_name": fresh_name("shared")}
    with rocketpy.Admin(credentials=CREDENTIALS, **options):
        rocketpy.Admin(credentials=CREDENTIALS, **options).close()
        with pytest.raises(rocketpy.InvalidArgumentError, match="credentials") as caught:
            rocketpy.Admin(credentials=rocketpy.Credentials("user", "another secret"), **options)
    assert "secret" not in str(caught.value)


def test_a_server_without_users_ignores_credentials(rocketpy_server: rocketpy.Server):
    topic = fresh_name("signed")
    with rocketpy_server.producer(fresh_name("signed"), credentials=CREDENTIALS) as producer:
        producer.send(rocketpy.Message(topic, b"text"))

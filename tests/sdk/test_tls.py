"""TLS of servers and clients over real sockets, with certificates of both sides; of metrics and of a slave."""

from __future__ import annotations

import json
import shutil
import ssl
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ports
import rocketpy
from rocketpy.testing import SMALL_FILES, fresh_name
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = Path(__file__).parents[1] / "tls"
CA, OTHER_CA = str(FILES / "ca.pem"), str(FILES / "other-ca.pem")
CERTIFIED = {"tlsServerCertPath": str(FILES / "server.pem"), "tlsServerKeyPath": str(FILES / "server.key")}
TRUSTING = rocketpy.Tls(ca_file=CA)


def certified(name: str, **more: Any) -> rocketpy.Tls:
    """Settings of a client with a certificate."""
    return rocketpy.Tls(ca_file=CA, cert_file=str(FILES / f"{name}.pem"), key_file=str(FILES / f"{name}.key"), **more)


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketpy.Server]:
    """A server that accepts TLS only, on all of its ports."""
    metrics = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
    settings = {**SMALL_FILES, **CERTIFIED, **metrics, "tlsServerMode": "enforcing"}
    folder = tmp_path_factory.mktemp("enforcing")
    with rocketpy.Server(folder / "store", settings=settings, ready_file=folder / "ready.json") as server:
        yield server


@pytest.fixture(scope="module")
def verifying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketpy.Server]:
    """A server that accepts plain clients, and others with a certificate of the authority, by Apache's properties."""
    folder = tmp_path_factory.mktemp("verifying")
    properties = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": FILES / "server.pem",
        "tls.server.keyPath": FILES / "server-encrypted.key",
        "tls.server.keyPassword": "secret",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": CA,
        "tls.client.keyPassword": "",
    }
    (folder / "tls.properties").write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    settings = {**SMALL_FILES, "tls.config.file": str(folder / "tls.properties")}
    with rocketpy.Server(folder / "store", settings=settings) as server:
        yield server


def round_trip(name_servers: list[str], tls: rocketpy.Tls | bool | None) -> None:
    """Sends a message and reads it."""
    topic, group = fresh_name("tls"), fresh_name("group")
    with rocketpy.Producer(group, name_servers=name_servers, tls=tls) as producer:
        receipt = producer.send(rocketpy.Message(topic, b"hello"))
    options: dict[str, Any] = {"name_servers": name_servers, "tls": tls}
    with rocketpy.Consumer(group, topic, start=rocketpy.Start.EARLIEST, **options) as consumer:
        messages: list[rocketpy.ReceivedMessage[bytes]] = []
        wait_until(lambda: messages.extend(consumer.poll(1)) or messages, "the message")
    assert [(message.body, message.msg_id) for message in messages] == [(b"hello", receipt.msg_id)]


def error_of(server: rocketpy.Server, tls: rocketpy.Tls | bool | None) -> str:
    """Text and hint of the error of a call."""
    with (
        rocketpy.Admin(name_servers=server.name_servers, tls=tls, api_timeout=20, connect_timeout=20) as admin,
        pytest.raises(rocketpy.RocketPyError) as caught,
    ):
        admin.topics()
    return f"{caught.value} {caught.value.hint}"


def test_every_client_works_by_tls(enforcing: rocketpy.Server):
    options: dict[str, Any] = {"name_servers": enforcing.name_servers, "tls": TRUSTING}
    round_trip(enforcing.name_servers, TRUSTING)

    topic, group = fresh_name("tls"), fresh_name("group")
    with rocketpy.Producer(group, **options) as producer:
        receipt = producer.send(rocketpy.Message(topic, b"hello"))
    queue = receipt.queue
    with rocketpy.RangeReader(queue, 0, receipt.queue_offset + 1, **options) as reader:
        assert len(list(reader)) >= 1
    with rocketpy.Consumer.assign(group, [queue], start=rocketpy.Start.EARLIEST, **options) as consumer:
        assert consumer.poll(1, timeout=10)
    received: list[bytes] = []
    push = rocketpy.PushConsumer(fresh_name("push"), start=rocketpy.Start.EARLIEST, **options)

    @push.on(topic)
    def handle(message: rocketpy.ReceivedMessage[bytes]) -> None:
        received.append(message.body)

    with push:
        wait_until(lambda: received, "the pushed message")
    decide = lambda _: rocketpy.Decision.UNKNOWN  # noqa: E731
    rocketpy.TransactionProducer(group, decide, **options).close()
    with rocketpy.Admin(**options) as admin:
        assert topic in admin.topics()


async def asynchronous(options: dict[str, Any]) -> None:
    async with rocketpy.AsyncAdmin(**options) as admin:
        await admin.topics()
    async with rocketpy.AsyncProducer(fresh_name("async"), **options) as producer:
        await producer.send(rocketpy.Message(fresh_name("tls"), b"hello"))


def test_asynchronous_clients_work_by_tls(enforcing: rocketpy.Server):
    import asyncio

    asyncio.run(asynchronous({"name_servers": enforcing.name_servers, "tls": TRUSTING}))


def test_wrong_certificates_and_names_are_errors_with_a_way_out(enforcing: rocketpy.Server):
    assert "UnknownIssuer" in error_of(enforcing, rocketpy.Tls(ca_file=OTHER_CA))
    wrong = error_of(enforcing, True)
    assert "UnknownIssuer" in wrong
    assert "ca_file" in wrong
    round_trip(enforcing.name_servers, rocketpy.Tls(verify=False))


def test_plain_clients_are_refused_where_tls_is_enforced(enforcing: rocketpy.Server):
    with rocketpy.Admin(name_servers=enforcing.name_servers, tls=False, api_timeout=2) as admin:
        with pytest.raises((rocketpy.ConnectionLostError, rocketpy.ConnectionFailedError)):
            admin.topics()


def test_a_tls_client_reports_a_server_without_tls(rocketpy_server: rocketpy.Server):
    assert "closed the connection during the handshake" in error_of(rocketpy_server, TRUSTING)


def test_client_certificates_are_verified(verifying: rocketpy.Server):
    round_trip(verifying.name_servers, certified("client"))
    round_trip(verifying.name_servers, None)  # permissive: plain clients too
    for refused in (TRUSTING, certified("foreign-client")):
        assert error_of(verifying, refused)


def test_files_that_cannot_be_used_are_named(tmp_path: Path):
    empty = tmp_path / "empty.pem"
    empty.touch()
    for tls, text in [
        (rocketpy.Tls(ca_file=str(empty)), "empty.pem has no certificate in PEM"),
        (rocketpy.Tls(ca_file=str(tmp_path / "missing.pem")), "missing.pem"),
        (rocketpy.Tls(ca_file=CA, cert_file=CA), "must be set together"),
        (
            rocketpy.Tls(ca_file=CA, cert_file=str(FILES / "server.pem"), key_file=str(FILES / "server-encrypted.key")),
            "no password",
        ),
    ]:
        with pytest.raises(rocketpy.InvalidArgumentError, match=text):
            rocketpy.Admin(name_servers="127.0.0.1:1", tls=tls)
    with pytest.raises(TypeError, match="option tls must be a Tls, True, False or None, not str"):
        rocketpy.Admin(name_servers="127.0.0.1:1", tls="yes")  # type: ignore[arg-type]
    assert "secret" not in repr(rocketpy.Tls(key_password="secret"))


def test_the_environment_is_the_default(enforcing: rocketpy.Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROCKETPY_TLS_CA", CA)
    round_trip(enforcing.name_servers, None)
    monkeypatch.setenv("ROCKETPY_TLS", "perhaps")
    with pytest.raises(rocketpy.InvalidArgumentError, match="ROCKETPY_TLS must be"):
        rocketpy.Admin(name_servers=enforcing.name_servers)


def test_metrics_are_served_by_tls(enforcing: rocketpy.Server):
    metrics = json.loads((Path(enforcing.path).parent / "ready.json").read_text())["metrics"]
    context = ssl.create_default_context(cafile=CA)
    with urllib.request.urlopen(f"https://{metrics}/metrics", context=context) as answer:
        text = answer.read().decode()
    line = next(
        line for line in text.splitlines() if line.startswith("rocketpy_broker_tls_certificate_expiry_timestamp")
    )
    assert float(line.rsplit(" ", 1)[1]) > 4_000_000_000  # in a hundred years
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://{metrics}/metrics")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_openssl_connects_by_tls_12_and_13(enforcing: rocketpy.Server, version: ssl.TLSVersion):
    import socket

    context = ssl.create_default_context(cafile=CA)
    context.minimum_version = context.maximum_version = version
    host, port = enforcing.name_server.rsplit(":", 1)
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        assert secure.version() == version.name.replace("_", ".")


def test_a_slave_copies_its_master_by_tls(tmp_path: Path):
    ha_port = ports.free_port()
    client = {"useTLS": True, "tlsClientTrustCertPath": CA}
    tls = {**SMALL_FILES, **CERTIFIED, **client, "tlsServerMode": "enforcing"}
    with rocketpy.Server(tmp_path / "master", settings={**tls, "haListenPort": ha_port}) as master:
        round_trip(master.name_servers, TRUSTING)
        with rocketpy.Producer(fresh_name("group"), name_servers=master.name_servers, tls=TRUSTING) as producer:
            for _ in range(100):
                producer.send(rocketpy.Message("copied", bytes(20_000)))
        slave_settings = {
            **tls,
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "namesrvAddr": ";".join(master.name_servers),
            "haUseTLS": True,
        }
        with (
            rocketpy.Broker(tmp_path / "slave", settings=slave_settings) as slave,
            rocketpy.Admin(name_servers=master.name_servers, tls=TRUSTING) as admin,
        ):
            assert slave
            wait_until(lambda: is_copied(admin, master.broker), "the slave has the log")


def is_copied(admin: rocketpy.Admin, master: str) -> bool:
    """Whether a slave has the whole log of its master."""
    slaves = admin.ha_status(master).slaves
    return bool(slaves) and all(slave.lag_bytes == 0 for slave in slaves)


def test_a_changed_certificate_is_used_without_a_restart(tmp_path: Path):
    for name in ("server.pem", "server.key"):
        shutil.copy(FILES / name, tmp_path)
    settings = {
        **SMALL_FILES,
        "tlsServerCertPath": str(tmp_path / "server.pem"),
        "tlsServerKeyPath": str(tmp_path / "server.key"),
    }
    with rocketpy.Server(tmp_path / "store", settings=settings) as server:
        round_trip(server.name_servers, TRUSTING)
        for name in ("pem", "key"):
            shutil.copy(FILES / f"client.{name}", tmp_path / f"server.{name}")

        def is_changed() -> bool:
            with rocketpy.Admin(name_servers=server.name_servers, tls=TRUSTING) as admin:
                try:
                    admin.topics()
                except rocketpy.ConnectionFailedError:
                    return True
            return False

        wait_until(is_changed, "the other certificate")

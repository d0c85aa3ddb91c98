"""Apache's clients in Java and Go at a server that enforces TLS. Plain clients are in the other files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from peers import Java, finish, rocketpy_server, set_up_go, start
from rocketpy import Consumer, Start, Tls
from sdk import fresh

FILES = Path(__file__).parents[1] / "tls"
TLS = ("-Dtls.enable=true",)
COUNT = 5


def verifying(authority: str) -> tuple[str, ...]:
    """Properties of a Java client that verifies its servers."""
    trust = f"-Dtls.client.trustCertPath={FILES / authority}"
    return (*TLS, "-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true", trust)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that enforces TLS."""
    keys = {"Mode": "enforcing", "CertPath": FILES / "server.pem", "KeyPath": FILES / "server.key"}
    settings = [f"--set=tls.server.{key[0].lower()}{key[1:]}={value}" for key, value in keys.items()]
    with rocketpy_server(tmp_path_factory.mktemp("enforcing"), *settings) as name_server:
        yield name_server


def read_by_python(address: str, topic: str) -> list[str]:
    options = {"name_servers": address, "tls": Tls(ca_file=str(FILES / "ca.pem"))}
    with Consumer(fresh("python-tls"), topic, start=Start.EARLIEST, **options) as consumer:
        bodies: list[str] = []
        for batch in consumer.batches(idle_timeout=60):
            bodies += [message.body.decode() for message in batch]
            if len(bodies) >= COUNT:
                return sorted(bodies)
    return bodies


@pytest.mark.parametrize("options", [TLS, verifying("ca.pem")], ids=["unverified", "verified"])
def test_java_sends_and_reads_by_tls(java: Java, address: str, home: Path, options: tuple[str, ...]):
    topic = fresh("java-tls")
    send = java.command("Driver", home, "send", address, topic, str(COUNT), "tls", "TagA", options=options)
    assert [one["status"] for one in finish(start(send))] == ["SEND_OK"] * COUNT
    push = java.command("Driver", home, "push", address, topic, str(COUNT), fresh("java-tls"), options=options)
    assert sorted(one["body"] for one in finish(start(push))) == [f"tls-{number}" for number in range(COUNT)]
    assert read_by_python(address, topic) == [f"tls-{number}" for number in range(COUNT)]


@pytest.mark.parametrize("options", [(), verifying("other-ca.pem")], ids=["plain", "other-authority"])
def test_java_does_not_send_without_tls_or_to_an_unknown_authority(
    java: Java, address: str, home: Path, options: tuple[str, ...]
):
    send = java.command("Driver", home, "send", address, fresh("refused"), "1", "tls", "TagA", options=options)
    process = start(send)
    process.communicate(timeout=600)
    assert process.returncode != 0


def test_go_sends_and_reads_by_tls(address: str, home: Path):
    go = set_up_go("encrypted")
    topic = fresh("go-tls")
    assert len(go.drive(home, "send", address, topic, str(COUNT), "tls", "TagA")) == COUNT
    by_go = go.drive(home, "push", address, topic, str(COUNT), fresh("go-tls"), "*")
    assert sorted(one["body"] for one in by_go) == [f"tls-{number}" for number in range(COUNT)]
    assert read_by_python(address, topic) == [f"tls-{number}" for number in range(COUNT)]

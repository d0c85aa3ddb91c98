"""`rocketpy server --secure`: the printed commands work, and nobody else comes in."""

import json
import shlex
from pathlib import Path

import pytest

import rocketpy
from rocketpy.testing import fresh_name
from waiting import wait_until


def test_the_printed_lines_connect_and_nobody_else_does(command, start, tmp_path: Path):
    store = tmp_path / "store"
    server = start("server", str(store), "--secure", "--port", "0", "--name-server-port", "0")
    wait_until(lambda: "client: " in server.log.read_text(), "the lines that say how to connect")
    lines = server.log.read_text().splitlines()
    administrator, client = (next(line for line in lines if line.startswith(who)) for who in ("admin", "client: "))
    words = shlex.split(administrator.removeprefix("administrator: rocketpy "))
    shown = json.loads(command(*words, "--json").stdout)
    assert shown
    with eval(client.removeprefix("client: "), {"rocketpy": rocketpy}) as producer:
        topic = fresh_name("orders")
        receipt = producer.send(rocketpy.Message(topic, b"paid"))
    folder = store / "secure"
    options = {
        "name_servers": server.name_server,
        "tls": rocketpy.Tls(ca_file=str(folder / "ca.pem")),
        "credentials": rocketpy.Credentials.from_file(folder / "client.json"),
    }
    with rocketpy.Consumer(fresh_name("billing"), topic, start=rocketpy.Start.EARLIEST, **options) as consumer:
        found: list[str] = []
        wait_until(lambda: found.extend(one.msg_id for one in consumer.poll(1)) or found, "the message")
    assert found == [receipt.msg_id]
    with rocketpy.Admin(**options) as admin, pytest.raises(rocketpy.AccessDeniedError):
        admin.delete_topic(topic)
    for less in ({"tls": None}, {"credentials": None}):
        with rocketpy.Admin(**options | less | {"api_timeout": 2}) as admin, pytest.raises(rocketpy.RocketPyError):
            admin.topics()
    rows = {row["check"]: row for row in json.loads(command(*words[:4], "doctor", *words[-2:], "--json").stdout)}
    assert rows["doors"]["found"] == "every connection needs TLS, and every request a user with a policy"
    secrets = [json.loads((folder / f"{name}.json").read_text())["secretKey"] for name in ("admin", "client", "peer")]
    assert server.stop() == 0
    log = server.log.read_text()
    assert not any(secret in log for secret in secrets)
    again = start("server", str(store), "--secure", "--port", "0", "--name-server-port", "0")
    with rocketpy.Admin(**options | {"name_servers": again.name_server}) as admin:
        assert topic in admin.queues(topic)[0].topic


def test_doctor_names_the_open_doors_of_a_server(command, server):
    rows = {row["check"]: row for row in json.loads(command("doctor", "-n", server.name_server, "--json").stdout)}
    assert rows["doors"]["status"] == "ok"
    assert "open on this machine only" in rows["doors"]["found"]
    for door in ("tlsServerMode", "authenticationEnabled", "authorizationEnabled"):
        assert door in rows["doors"]["found"]
    assert f"{server.name_server} " in rows["doors"]["found"]


def test_a_start_that_requires_it_is_refused_beyond_loopback(command, tmp_path: Path):
    arguments = ("server", str(tmp_path / "store"), "--host", "0.0.0.0", "--port", "0", "--name-server-port", "0")
    ran = command(*arguments, "--set", "requireSecure=true", code=2)
    assert "requireSecure=true" in ran.stderr
    assert "--secure" in ran.stderr

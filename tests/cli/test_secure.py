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


def test_plain_client_and_tls_client_at_the_wrong_port_are_told_which_is_missing(
    command, start, server, tmp_path: Path
):
    closed = start("server", str(tmp_path / "store"), "--secure", "--port", "0", "--name-server-port", "0")
    wait_until(lambda: "client: " in closed.log.read_text(), "the lines that say how to connect")
    plain = command("topic", "list", name_server=closed.name_server, code=4).stderr
    assert "speaks TLS" in plain
    assert "--tls-ca FILE" in plain
    secure = command(
        "--tls-ca", str(tmp_path / "store/secure/ca.pem"), "topic", "list", "-n", server.name_server, code=4
    ).stderr
    assert "offers no TLS" in secure
    assert "tlsServerCertPath" in secure


def test_new_password_of_the_administrator_is_in_its_file_or_said_to_be_elsewhere(command, start, tmp_path: Path):
    store = tmp_path / "store"
    admin_file, new_file = store / "secure" / "admin.json", tmp_path / "new.credentials"

    def started():
        server = start("server", str(store), "--secure", "--port", "0", "--name-server-port", "0")
        wait_until(lambda: "client: " in server.log.read_text(), "the lines that say how to connect")
        return server

    server = started()
    assert server.stop() == 0
    before = admin_file.read_text()
    offline = ("user", "add", "admin", "--super", "--offline", str(store), "--password-file", "-")
    command(*offline, "--dry-run", stdin="the second\n")
    assert admin_file.read_text() == before
    assert str(admin_file) in command(*offline, stdin="the second\n").stderr
    assert json.loads(admin_file.read_text()) == {"accessKey": "admin", "secretKey": "the second"}
    assert admin_file.stat().st_mode & 0o777 == 0o600

    server = started()
    assert "is out of date" not in server.log.read_text()
    options = ("--tls-ca", str(store / "secure" / "ca.pem"), "--credentials", str(admin_file))
    command(*options, "user", "update", "admin", "--generate", str(new_file), name_server=server.name_server)
    assert server.stop() == 0
    server = started()
    assert f"note: {admin_file} is out of date" in server.log.read_text()
    command(*options[:3], str(new_file), "topic", "list", name_server=server.name_server)


def test_first_secure_start_after_users_were_added_has_its_own_users(command, start, tmp_path: Path):
    store = tmp_path / "store"
    store.mkdir()
    added = ("user", "add", "me", "--super", "--offline", str(store), "--password-file", "-")
    command(*added, stdin="secret\n")
    server = start("server", str(store), "--secure", "--port", "0", "--name-server-port", "0")
    wait_until(lambda: "client: " in server.log.read_text(), "the lines that say how to connect")
    options = ("--tls-ca", str(store / "secure/ca.pem"), "--credentials", str(store / "secure/admin.json"))
    listed = command(*options, "user", "list", "--json", name_server=server.name_server).stdout
    assert {one["name"] for one in json.loads(listed)} == {"admin", "client", "me", "peer"}
    command(*options, "user", "delete", "client", "--yes", name_server=server.name_server)
    assert server.stop() == 0
    server = start("server", str(store), "--secure", "--port", "0", "--name-server-port", "0")
    wait_until(lambda: "note: " in server.log.read_text(), "the note about the deleted user")
    assert f"note: {store / 'secure/client.json'} is out of date" in server.log.read_text()
    assert '"client"' not in command(*options, "user", "list", "--json", name_server=server.name_server).stdout


def test_own_certificate_is_not_replaced_and_no_other_authority_is_printed(command, start, tmp_path: Path):
    made = tmp_path / "made"
    first = start("server", str(made), "--secure", "--port", "0", "--name-server-port", "0")
    wait_until(lambda: "client: " in first.log.read_text(), "the lines that say how to connect")
    assert first.stop() == 0
    pair = [f"tlsServerCertPath={made / 'secure/server.pem'}", f"tlsServerKeyPath={made / 'secure/server.key'}"]
    sets = [word for one in pair for word in ("--set", one)]
    store = tmp_path / "store"
    server = start("server", str(store), "--secure", "--port", "0", "--name-server-port", "0", *sets)
    wait_until(lambda: "certificate: " in server.log.read_text(), "the lines that say how to connect")
    lines = [one for one in server.log.read_text().splitlines() if one.startswith(("administrator: ", "client: "))]
    assert not (store / "secure" / "ca.pem").exists()
    assert "--tls --credentials" in lines[0]
    assert "tls=rocketpy.Tls()" in lines[1]
    assert not any("ca.pem" in line for line in lines)
    credentials = ("--credentials", str(store / "secure" / "admin.json"))
    command("--tls-ca", str(made / "secure/ca.pem"), *credentials, "topic", "list", name_server=server.name_server)


def test_load_of_bench_send_is_signed_and_encrypted(command, start, tmp_path: Path):
    server = start("server", str(tmp_path / "store"), "--secure", "--port", "0", "--name-server-port", "0")
    wait_until(lambda: "client: " in server.log.read_text(), "the lines that say how to connect")
    folder = tmp_path / "store" / "secure"
    options = ("--tls-ca", str(folder / "ca.pem"), "--credentials", str(folder / "admin.json"))
    load = ("--messages", "500", "--batch", "4", "--connections", "3", "--window", "8", "--json")
    figures = json.loads(command(*options, "bench", "send", *load, name_server=server.name_server).stdout)
    assert figures["messages"] == 500

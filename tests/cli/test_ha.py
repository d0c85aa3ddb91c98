"""`rocketpy ha`: a pair whose roles change while it runs."""

import json
from pathlib import Path

import pytest

from rocketpy import AccessDeniedError, Admin, BrokerInfo
from rocketpy.cli import ha
from rocketpy.commandline.exits import CommandError
from waiting import wait_until


def test_the_roles_of_a_pair_change_by_command(start, command, tmp_path: Path):
    names = start("namesrv", "--port", "0").name_server
    token = tmp_path / "token"
    token.write_text("secret\n")

    processes = {}

    def broker(name: str, *flags: str) -> str:
        flags = (*f"--name-server {names} --broker-name pair --port 0 --set haTokenFile={token}".split(), *flags)
        process = start("broker", str(tmp_path / name), *flags)
        processes[process.ready["broker"]] = process
        return process.ready["broker"]

    def rows() -> list[dict]:
        return json.loads(command("ha", "status", "--json", name_server=names).stdout)

    def follows(slave_id: int) -> bool:
        return any(row["broker_id"] == slave_id and row["lag_bytes"] == 0 for row in rows())

    first = broker("a", "--role", "SYNC_MASTER", "--set", "haListenPort=0")
    command("topic", "create", "orders", name_server=names)
    alone = command("produce", "others", stdin="one\n", name_server=names)
    assert "SLAVE_NOT_AVAILABLE" in alone.stderr
    second = broker("b", "--role", "slave", "--broker-id", "3", "--set", "slaveReadEnable=true")
    wait_until(lambda: follows(3), "the slave follows")
    command("produce", "orders", stdin="one\n", name_server=names)
    (row,) = rows()
    assert (row["master"], row["lag_records"], row["lag_seconds"], row["why"]) == (first, 0, 0, None)
    assert row["slave_end"] == row["master_end"] > 0
    assert row["epochs"] == 1

    refused = command("ha", "promote", second, name_server=names, code=None).stderr
    assert f"the master at {first} answers" in refused
    command("ha", "promote", "127.0.0.1:1", name_server=names, code=None)
    demoted = command("ha", "demote", "pair", "--token-file", str(token), name_server=names).stdout
    assert f"{first} is a slave now" in demoted
    assert "is the master now" in command("ha", "promote", second, "--sync", name_server=names).stdout
    wait_until(lambda: follows(1), "the former master follows")
    command("produce", "orders", stdin="two\n", name_server=names)
    (row,) = rows()
    assert (row["master"], row["epochs"]) == (second, 2)
    bodies = command("consume", "orders", "--from", "earliest", "--max", "2", name_server=names).stdout
    assert "one" in bodies
    assert "two" in bodies

    processes[second].process.kill()

    def only_a_slave_is_left() -> bool:
        error = command("produce", "orders", stdin="three\n", name_server=names, code=None).stderr
        return "`rocketpy ha status`" in error and "`rocketpy ha promote`" in error

    wait_until(only_a_slave_is_left, "the name server knows that the master is gone")


def test_a_role_change_from_another_machine_needs_the_token_file(command, tmp_path: Path):
    with pytest.raises(CommandError) as refused, ha.refused("10.0.0.2:10911", "way out"):
        raise AccessDeniedError("role change refused for 10.0.0.9")
    assert "--token-file" in refused.value.hint

    empty = tmp_path / "empty"
    empty.write_text("\n")
    for path, problem in [(tmp_path / "missing", "cannot read the token file"), (empty, "token file is empty")]:
        for verb in ("promote", "demote"):
            error = command("ha", verb, "127.0.0.1:1", "--token-file", str(path), code=2).stderr
            assert problem in error
            assert "haTokenFile" in error


@pytest.mark.parametrize("address", ["127.0.0.1:", ":10911"])
@pytest.mark.parametrize("verb", ["promote", "demote"])
def test_the_address_of_a_broker_whose_role_changes_has_host_and_port(command, verb: str, address: str):
    error = command("ha", verb, address, code=2).stderr
    assert error.startswith(f"error: expected name or HOST:PORT of a broker: {address}\nhint: `rocketpy ha status`")


def test_a_name_stands_for_the_master_or_the_only_slave(monkeypatch: pytest.MonkeyPatch):
    known = {
        "pair": {0: "a:1", 1: "b:1"},
        "three": {0: "a:2", 2: "b:2", 3: "c:2"},
        "alone": {0: "a:3"},
        "left": {1: "b:4"},
    }
    brokers = [BrokerInfo(name, "cluster", addresses) for name, addresses in known.items()]
    monkeypatch.setattr(Admin, "brokers", lambda _: brokers)
    with Admin("127.0.0.1:1") as admin:
        assert ha.address_of(admin, "d:5", is_slave=True) == "d:5"
        assert [ha.address_of(admin, name, is_slave=False) for name in ("pair", "three", "alone")] == [
            "a:1",
            "a:2",
            "a:3",
        ]
        assert [ha.address_of(admin, name, is_slave=True) for name in ("pair", "left")] == ["b:1", "b:4"]
        for name, is_slave, says in (
            ("three", True, "several slaves: b:2, c:2"), ("alone", True, "no slave of"),
            ("left", False, "no master of"),
            ("none", False, "no master of this name or address: none"),
        ):  # fmt: skip
            with pytest.raises(CommandError, match=says):
                ha.address_of(admin, name, is_slave=is_slave)


def test_the_address_of_a_name_server_is_no_brokers(start, command):
    names = start("namesrv", "--port", "0").name_server
    error = command("ha", "promote", names, name_server=names, code=5).stderr
    assert f"hint: {names} is not a RocketPy broker, perhaps a name server" in error


def test_ctrl_c_says_that_a_change_of_role_may_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for verb in (ha.promote, ha.demote):
        monkeypatch.setattr(Admin, verb.__name__, interrupted)
        with pytest.raises(KeyboardInterrupt):
            verb("127.0.0.1:1")
        assert "may continue; `rocketpy ha status`" in " ".join(capsys.readouterr().err.split())


def test_roles_that_there_are_not_are_named(command, tmp_path: Path):
    wrong = command("broker", str(tmp_path), "--role", "king", "--name-server", "127.0.0.1:1", code=2)
    assert "async-master, sync-master, slave" in wrong.stderr
    master = command(
        "broker", str(tmp_path), "--role", "sync-master", "--broker-id", "1", "--name-server", "127.0.0.1:1", code=None
    )
    assert "brokerRole=SLAVE" in master.stderr

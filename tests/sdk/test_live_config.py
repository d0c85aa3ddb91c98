"""Configuration of running servers: live values, their layers, and brokers by name."""

import asyncio
from pathlib import Path

import pytest

import rocketpy

KEY = "fileReservedTime"


def value_of(admin: rocketpy.Admin, server: str, key: str = KEY) -> rocketpy.ConfigValue:
    (found,) = [one for one in admin.config(server) if one.key == key]
    return found


def test_values_are_typed_and_survive_a_restart(tmp_path: Path):
    server = rocketpy.Server(tmp_path, settings={"deleteWhen": "05"})
    with server, server.admin() as admin:
        update = admin.set_config("broker-a", {KEY: 24, "autoCreateTopicEnable": False})
        assert [(one.key, one.value, one.default, one.origin, one.is_live) for one in update.values] == [
            ("autoCreateTopicEnable", False, True, "live", True),
            (KEY, 24, 72, "live", True),
        ]
        assert update.note is None
        with pytest.raises(rocketpy.RefusedError, match="deleteWhen is set by the flags or settings"):
            admin.set_config("broker-a", {KEY: 1, "deleteWhen": "06"})
        waits = admin.set_config("broker-a", {"max_topics": 40}, at_restart=True)
        assert "next start: maxTopics" in (waits.note or "")
        assert [(one.value, one.live_value, one.needs_restart) for one in waits.values] == [(100_000, "40", True)]
        assert value_of(admin, "broker-a", "brokerName").can_set is False
        assert value_of(admin, "broker-a", "namesrvAddr").value == (server.name_server,)
    with server, server.admin() as admin:
        assert (value_of(admin, "broker-a").value, value_of(admin, "broker-a", "maxTopics").value) == (24, 40)
        dry = admin.unset_config("broker-a", [KEY, "maxTopics"], dry_run=True)
        assert [one.is_live for one in dry.values] == [True, True]
        admin.unset_config("broker-a", [KEY, "maxTopics"])
        assert (value_of(admin, "broker-a").value, value_of(admin, "broker-a").origin) == (72, "default")


def test_master_and_slave_have_layers_of_their_own(tmp_path: Path):
    with rocketpy.Server(tmp_path / "master", settings={"haListenPort": 0}) as master:
        slave = rocketpy.Broker(
            tmp_path / "slave", name_servers=master.name_servers, settings={"brokerRole": "SLAVE", "brokerId": 1}
        )
        with slave, master.admin() as admin:
            admin.set_config(slave.broker, {KEY: 1})
            admin.set_config("broker-a", {KEY: 2})
            assert (value_of(admin, slave.broker).value, value_of(admin, master.broker).value) == (1, 2)
            admin.unset_config("broker-a", KEY)
            assert (value_of(admin, slave.broker).value, value_of(admin, master.broker).value) == (1, 72)


def test_a_broker_is_found_by_name_and_its_figures_are_typed(rocketpy_server):
    with rocketpy_server.admin() as admin:
        figures = admin.broker_figures("broker-a")
        assert isinstance(figures["bootTimestamp"], int)
        assert isinstance(figures["commitLogDiskRatio"], float)
        assert figures["ready"] is True
        assert admin.ping("broker-a").ready
        assert admin.ha_status("broker-a").is_master
        for call in (admin.broker_figures, admin.broker_config, admin.config, admin.ha_status, admin.ping):
            with pytest.raises(rocketpy.BrokerNotFoundError, match="no-such-broker"):
                call("no-such-broker")
            with pytest.raises(rocketpy.InvalidArgumentError, match="host:port"):
                call("a:b:c")
        with pytest.raises(rocketpy.BrokerNotFoundError):
            admin.promote("broker-a")  # it has no slave


def test_the_twin_for_asyncio_gives_the_same(rocketpy_server):
    async def changed() -> list[tuple[object, str]]:
        async with rocketpy.AsyncAdmin(rocketpy_server.name_server) as admin:
            update = await admin.set_config(rocketpy_server.name_server, {"orderMessageEnable": True})
            back = await admin.unset_config(rocketpy_server.name_server, "orderMessageEnable")
            return [(one.value, one.origin) for one in (*update.values, *back.values)]

    assert asyncio.run(changed()) == [(True, "live"), (False, "default")]


@pytest.mark.parametrize("keys", ["", ["a;b"], [KEY, ""]])
def test_a_text_that_is_no_key_is_refused(rocketpy_server, keys: str | list[str]):
    with rocketpy_server.admin() as admin, pytest.raises(rocketpy.InvalidArgumentError, match="not a key"):
        admin.unset_config(rocketpy_server.broker, keys)

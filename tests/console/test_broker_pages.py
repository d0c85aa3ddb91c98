"""Pages and API of brokers against a real server, and against a master with its slave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import rocketpy
import waiting
from console_visitor import WRITE, Visitor, console
from rocketpy.admin.live_config import ConfigValue
from rocketpy.console.audit import HIDDEN, without_secrets
from rocketpy.console.pages.broker_config import row_of
from rocketpy.testing import SMALL_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rocketpy.console.settings import Role

KEY = "fileReservedTime"
CONFIG = "/brokers/broker-a/config"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketpy.Server]:
    with rocketpy.Server(tmp_path_factory.mktemp("brokers") / "store", settings=SMALL_FILES) as found:
        yield found


@pytest.fixture
def operator(server: rocketpy.Server) -> Iterator[Visitor]:
    with console(server, "operator") as client:
        visitor = Visitor(client)
        waiting.wait_until(lambda: has_read(visitor), "the console has read the brokers")
        yield visitor


def has_read(visitor: Visitor) -> bool:
    return any(row["slaves"] is not None for row in visitor.json("/brokers"))


def value(server: rocketpy.Server, key: str = KEY) -> tuple[object, str]:
    with server.admin() as admin:
        [found] = [one for one in admin.config("broker-a") if one.key == key]
        return found.value, found.origin


def test_list_and_page_of_a_broker_show_its_figures(operator: Visitor) -> None:
    [row] = operator.json("/brokers")
    assert (row["name"], [one["role"] for one in row["members"]], row["slaves"]) == ("broker-a", ["master"], 0)
    assert "broker-a" in operator.page("/brokers?part=rows")
    found = operator.json("/brokers/broker-a")
    assert {"Started", "Commit log", "Timers waiting"} <= {label for label, _ in found["facts"]}
    assert found["figures"]["ready"] is True
    text = operator.page("/brokers/broker-a")
    assert "No slave is connected." in text
    assert "commitLogDiskRatio" in text
    assert operator.json("/brokers/broker-a/series?span=1h")["labels"] == ["in", "out"]
    operator.page("/brokers/missing", 404)
    operator.page("/brokers/broker-a?id=7", 404)


def test_configuration_shows_default_origin_and_live_mark(operator: Visitor, server: rocketpy.Server) -> None:
    with server.admin() as admin:
        admin.set_config("broker-a", {KEY: 24})
    rows = {row["key"]: row for row in operator.json(f"{CONFIG}?size=500&q=r")["keys"]["rows"]}
    admin_row = rows[KEY]
    assert (admin_row["value"], admin_row["default"], admin_row["origin"]) == ("24", "72", "live")
    assert (admin_row["is_live"], admin_row["is_editable"], admin_row["is_changed"]) == (True, True, True)
    assert not rows["brokerName"]["is_editable"]
    assert [row["key"] for row in operator.json(f"{CONFIG}?only=live")["keys"]["rows"]] == [KEY]
    assert "Remove the live value" in operator.page(f"{CONFIG}?edit={KEY}")
    preview = operator.post(CONFIG, key=KEY, remove="yes", step="preview")
    assert f"rocketpy config unset broker-a {KEY}" in preview
    assert f"{KEY} is 72 now, it was 24." in operator.post(CONFIG, key=KEY, remove="yes", was="24", step="apply")
    assert value(server) == (72, "default")


def test_live_key_changes_after_a_preview_and_is_read_back(operator: Visitor, server: rocketpy.Server) -> None:
    preview = operator.post(CONFIG, key=KEY, value="48", step="preview")
    assert f"rocketpy config set broker-a {KEY}=48" in preview
    assert value(server) == (72, "default")
    assert f"{KEY} is 48 now, it was 72." in operator.post(CONFIG, key=KEY, value="48", was="72", step="apply")
    assert value(server) == (48, "live")
    stale = operator.post(CONFIG, 400, key=KEY, value="12", was="72", step="apply")
    assert f"{KEY} was changed meanwhile: it is 48 now, not 72" in stale
    assert value(server) == (48, "live")
    with server.admin() as admin:
        admin.unset_config("broker-a", KEY)


@pytest.mark.parametrize(
    ("form", "status", "text"),
    [
        ({"key": "brokerName", "value": "x"}, 400, "key brokerName cannot change while the broker runs"),
        ({"key": "haTokenFile", "value": "/etc/passwd"}, 400, "cannot change while the broker runs"),
        ({"key": "missing", "value": "x"}, 404, "no such key: missing"),
        ({"key": KEY, "value": ""}, 400, f"give a value of {KEY}"),
        ({"key": KEY, "value": "many", "step": "preview"}, 502, "many"),
        ({"key": KEY, "value": "1\nmaxMessageSize=1", "step": "apply"}, 502, ""),
    ],
)
def test_change_that_the_broker_refuses_changes_nothing(
    operator: Visitor, server: rocketpy.Server, form: dict[str, str], status: int, text: str
) -> None:
    assert text in operator.post(CONFIG, status, **form)
    assert value(server) == (72, "default")


def test_secrets_of_the_configuration_are_masked(closed_server: rocketpy.Server) -> None:
    from closed_server import ADMIN

    with console(closed_server, "admin", credentials=ADMIN) as client:
        visitor = Visitor(client)
        login = {"name": ADMIN.access_key, "password": ADMIN.secret_key}
        client.post("/login", data=login, headers=WRITE)
        waiting.wait_until(lambda: has_read(visitor), "the console has read the brokers")
        path = f"{CONFIG}?q=Authentication"
        texts = visitor.page(path) + str(visitor.json(path)) + visitor.page("/brokers/broker-a")
        assert "initAuthenticationUser" in texts
        assert "secret of" not in texts


@pytest.mark.parametrize("key", ["tlsPwd", "storePassphrase", "haTokenFile", "adminPassword"])
def test_secrets_of_an_apache_broker_are_hidden_and_cannot_be_edited(key: str) -> None:
    secret = ConfigValue(key, "in-clear", "", "", None, None, can_set=True, needs_restart=False, is_used=True)
    row = row_of(secret, is_apache=True)
    assert (row.value, row.is_editable) == (HIDDEN, False)
    assert row_of(replace(secret, key="brokerRole"), is_apache=True).is_editable
    assert without_secrets({key: "in-clear"}) == {key: HIDDEN}


def test_quota_is_set_shown_and_removed(operator: Visitor, server: rocketpy.Server) -> None:
    path = "/brokers/broker-a/quotas"
    form = {"scope": "topic", "name": "quota-page*", "send_messages": "1,000", "send_bytes": ""}
    preview = operator.post(path, step="preview", **form)
    command = "rocketpy quota set topic 'quota-page*' --send-messages 1000 --broker broker-a"
    assert command.replace("'", "&#39;") in preview
    with server.admin() as admin:
        assert admin.quotas("broker-a") == []
        text = operator.post(path, step="apply", **form)
        assert "Quota of topic quota-page* is set: 1,000 messages sent per second." in text
        [use] = admin.quotas("broker-a")
        assert use.quota == rocketpy.Quota("topic", "quota-page*", send_messages=1000)
        assert operator.json(path)["quotas"]["rows"][0]["quota"]["send_messages"] == 1000
        assert "Remove quota of topic quota-page*" in operator.post(
            path, scope="topic", name="quota-page*", remove="yes", step="preview"
        )
        operator.post(path, scope="topic", name="quota-page*", remove="yes", step="apply")
        assert admin.quotas("broker-a") == []
    operator.post(path, 404, scope="topic", name="quota-page*", remove="yes", step="apply")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"scope": "disk", "name": "x", "send_bytes": "1"}, "choose topic, group, address or user"),
        ({"scope": "topic", "name": "x", "send_bytes": "-1"}, "bytes sent per second must be a whole number: -1"),
        ({"scope": "topic", "name": "x"}, "quota of topic x has no limit"),
        ({"scope": "topic", "name": "x", "connections": "1"}, "connections must be a limit of an address"),
    ],
)
def test_quota_with_a_wrong_value_is_refused(operator: Visitor, form: dict[str, str], text: str) -> None:
    assert text in operator.post("/brokers/broker-a/quotas", 400, **form)


def test_broker_is_drained_and_undrained(operator: Visitor, server: rocketpy.Server) -> None:
    path = "/brokers/broker-a"
    assert "rocketpy broker drain broker-a" in operator.post(f"{path}/drain", step="preview")
    operator.post(f"{path}/drain", step="apply", force="yes")
    assert operator.json(f"{path}/role")["is_drained"] is True
    assert "The broker is read only" in operator.page(f"{path}/role")
    with server.admin() as admin:
        assert admin.broker_config("broker-a")["brokerPermission"] == "4"
        assert "read and write (6)" in operator.post(f"{path}/undrain", step="preview")
        text = operator.post(f"{path}/undrain", step="apply")
        assert "Broker broker-a is read and write (6) again." in text
        assert admin.broker_config("broker-a")["brokerPermission"] == "6"


def test_script_without_the_step_gets_a_preview_and_changes_nothing(operator: Visitor, server: rocketpy.Server) -> None:
    url = "/api/v1/cluster/brokers/broker-a/drain"
    answer = operator.client.post(url, headers=WRITE).json()
    assert answer["rows"] == [
        {"name": "brokerPermission", "before": "read and write (6)", "after": "read only (4)", "error": None}
    ]
    with server.admin() as admin:
        assert admin.broker_config("broker-a")["brokerPermission"] == "6"


def test_reader_sees_brokers_and_changes_nothing(server: rocketpy.Server) -> None:
    reader: Role = "reader"
    with console(server, reader) as client:
        visitor = Visitor(client)
        waiting.wait_until(lambda: has_read(visitor), "the console has read the brokers")
        pages = [f"/brokers/broker-a{part}" for part in ("", "/config", "/quotas", "/role")]
        text = "".join(visitor.page(path) for path in pages) + visitor.page(f"{CONFIG}?edit={KEY}")
        assert "<button>Drain" not in text
        assert "Preview" not in text
        for part in ("config", "quotas", "promote", "drain", "undrain"):
            visitor.post(
                f"/brokers/broker-a/{part}", 403, step="apply", key=KEY, value="1", member="1", typed="broker-a"
            )
    assert value(server) == (72, "default")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[rocketpy.Server, rocketpy.Broker]]:
    settings = {**SMALL_FILES, "brokerRole": "SLAVE", "brokerId": 1}
    with rocketpy.Server(tmp_path / "master", settings={**SMALL_FILES, "haListenPort": 0}) as master:
        with rocketpy.Broker(tmp_path / "slave", name_servers=master.name_servers, settings=settings) as slave:
            yield master, slave


def test_promotion_lists_its_checks_and_wants_the_name(pair: tuple[rocketpy.Server, rocketpy.Broker]) -> None:
    master, slave = pair
    with console(master, "operator") as client:
        visitor = Visitor(client)

        def slaves() -> int | None:
            found = visitor.json("/brokers")
            return found[0]["slaves"] if found and len(found[0]["members"]) == 2 else None

        waiting.wait_until(slaves, "the console has read the slave")
        assert "slave 1" in visitor.page("/brokers/broker-a")
        assert visitor.json("/brokers/broker-a?id=1")["ha"]["is_master"] is False
        path = "/brokers/broker-a/promote"
        preview = visitor.client.post(
            f"/api/v1/cluster{path}",
            data={"member": "1", "step": "preview"},
            headers=WRITE,
        ).json()
        assert [(one["is_met"], one["text"]) for one in preview["checks"]] == [
            (True, f"slave 1 at {slave.broker} answers."),
            (True, "It is a slave."),
            (False, f"The master at {master.broker} answers."),
            (True, "No other member that answers has more of the log."),
        ]
        page = visitor.post(path, member="1", step="preview")
        assert "not met:" in page
        assert f"rocketpy ha promote {slave.broker}" in page
        assert "type the name to confirm: broker-a" in visitor.post(path, 400, member="1", step="apply", typed="x")
        assert "choose a slave" in visitor.post(path, 400, member="0", step="apply", typed="broker-a")
        refused = visitor.post(path, 502, member="1", step="apply", typed="broker-a")
        assert "answers" in refused
        with master.admin() as admin:
            assert admin.ha_status(slave.broker).is_master is False
            admin.demote(master.broker, force=True)
        text = visitor.post(path, member="1", step="apply", typed="broker-a", force="yes")
        assert f"{slave.broker} is the master of broker-a now." in text

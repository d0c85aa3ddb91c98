"""Control characters of peers and users: refused, or escaped where they would be stored, logged or printed."""

import logging
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

import rocketpy
from rocketpy import store
from rocketpy.cli.store_tools import record_text
from rocketpy.consuming import handlers

HOSTILE = "a\n2026-11-28 ERROR forged\x1b[2J\x00"
ESCAPED = r"a\n2026-11-28 ERROR forged\x1b[2J\x00"


@pytest.mark.parametrize("option", ["instance_name", "client_ip"])
def test_a_client_id_has_no_control_characters(option):
    with pytest.raises(rocketpy.InvalidArgumentError, match="control characters") as caught:
        rocketpy.Producer("group", name_servers="127.0.0.1:1", **{option: HOSTILE})
    assert option in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_message_id_is_one_line_of_the_log(caplog):
    work = SimpleNamespace(topic="orders", fail=lambda *_, **__: ("is retried", True))
    with caplog.at_level(logging.INFO, "rocketpy"):
        handlers.failed(work, [SimpleNamespace(msg_id=HOSTILE, body=b"")], ValueError("no such order"))
    [record] = caplog.records
    text = f"handler of topic orders failed for message {ESCAPED}, which is retried: ValueError: no such order"
    assert record.getMessage() == text


QUOTED = HOSTILE.removesuffix("\x00")  # no path has a NUL
ESCAPES = r"a\n2026-11-28 ERROR forged\u{1b}[2J"


@pytest.mark.parametrize("settings", [{QUOTED: "1"}, {"aclEnable": QUOTED}, {QUOTED: "1", "aclEnable": QUOTED}])
def test_an_error_of_a_configuration_escapes_what_it_quotes(settings, tmp_path):
    with pytest.raises(rocketpy.ConfigError) as caught, rocketpy.Server(tmp_path / "store", settings=settings):
        pass
    text = f"{caught.value}\n{caught.value.hint}"
    assert ESCAPES in text
    assert all(line.isprintable() and not line.startswith("2026") for line in text.splitlines())


def test_an_error_of_a_toml_file_keeps_its_lines(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text("listenPort = 1\nbrokerName = [\x1b\n")
    with pytest.raises(rocketpy.ConfigError) as caught, rocketpy.Server(tmp_path / "store", config=file):
        pass
    lines = str(caught.value).splitlines()
    assert len(lines) > 1
    assert all(map(str.isprintable, lines))


def test_an_error_of_a_store_escapes_its_path(tmp_path):
    for read in (rocketpy.StoreReader, store.verify, store.stat):
        with pytest.raises(rocketpy.NotAStoreError) as caught:
            read(tmp_path / QUOTED)
        assert ESCAPES in str(caught.value)


def test_a_record_of_a_foreign_store_is_one_line():
    record = SimpleNamespace(topic=HOSTILE, queue_id=0, queue_offset=1, physical_offset=2)
    record.stored_at = datetime(2026, 11, 28, tzinfo=UTC)
    assert record_text(record).startswith(f"{ESCAPED}-0 1 at 2, stored 2026-11-28")

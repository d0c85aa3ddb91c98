"""Credentials: their argument has a shape, and every client refuses it by name."""

from __future__ import annotations

from typing import Any

import pytest

import rocketpy
from rocketpy.testing import fresh_name

CREDENTIALS = rocketpy.Credentials("user", "secret", security_token="token")
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"credentials": CREDENTIALS}, "option credentials: clients have no access control yet"),
]
MISSING = rocketpy.MessageQueue("t", "b", 0)


def test_what_is_secret_is_not_shown():
    assert repr(CREDENTIALS) == "Credentials(access_key='user')"


@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_every_client_refuses_them_by_name(rocketpy_server: rocketpy.Server, options: dict[str, Any], text: str):
    names, group = {"name_servers": rocketpy_server.name_servers, **options}, fresh_name("secure")

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
        with pytest.raises(rocketpy.NotSupportedError, match=text):
            make()


def test_what_asks_for_nothing_is_taken(rocketpy_server: rocketpy.Server):
    rocketpy_server.producer(fresh_name("plain"), tls=False, credentials=None).close()

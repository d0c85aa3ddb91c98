"""Consoles and topics for the tests of the pages of messages."""

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from rocketpy import Admin, Message, Producer
from rocketpy.console import Settings, create_app
from rocketpy.console.pages import find, messages
from rocketpy.console.reading import Limits
from waiting import wait_until

CLUSTER = "/DefaultCluster"
PATIENT_SECONDS = 60.0
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@contextmanager
def opened(name_server: str, **settings: Any) -> Iterator[TestClient]:
    """A running console that knows the names of the cluster. A busy machine ends none of its searches."""
    app = create_app(Settings(name_server, **{"period": 1000.0, "request_timeout": 30.0, **settings}))
    with pytest.MonkeyPatch.context() as patch, TestClient(app, base_url="http://127.0.0.1:8080") as client:
        patch.setattr(messages, "Limits", partial(Limits, seconds=PATIENT_SECONDS))
        patch.setattr(find, "SECONDS", PATIENT_SECONDS)
        state = app.state.console
        wait_until(lambda: state.collector.snapshot.topics, "the collector has read the topics")
        yield client


def console_of(client: TestClient) -> Any:
    return cast("Any", client.app).state.console


def audited(client: TestClient, action: str) -> list[dict[str, Any]]:
    """Lines of the audit log about an action, the oldest first."""
    return [line for line in console_of(client).audit.recent if line["action"] == action]


def stored(admin: Admin, producer: Producer, topic: str, sent: list[Message], queues: int = 2) -> None:
    """Sends messages to a new topic, and waits until they can be read."""
    admin.create_topic(topic, queues=queues)
    for one in sent:
        producer.send(one)
    wait_until(
        lambda: sum(one.max_offset for one in admin.describe_topic(topic).queues) == len(sent),
        "all messages can be read",
    )


def text_of(page: str) -> str:
    """Visible text of a page, with blanks joined."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def bodies_of(page: str) -> list[str]:
    """Last cells of the rows of a list."""
    return [html.unescape(one) for one in re.findall(r'<td class="cut mono">(.*?)</td>', page, re.DOTALL)]


def places_of(page: str) -> list[str]:
    """Addresses of the messages of a list."""
    return re.findall(r'<th scope="row" class="nowrap"><a href="([^"]*)"', page)


def continued_at(page: str) -> str:
    """Address of the link that continues a search."""
    found = re.search(r'rel="next" href="([^"]*)"', page)
    assert found, "the page has a link to continue"
    return html.unescape(found[1])

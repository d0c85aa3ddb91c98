"""The console on a cluster of Apache RocketMQ 5.5.0: every page, changes of topics and groups, messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import rocketpy
from console_app import PATIENT, opened
from rocketpy.console import Settings
from rocketpy.console.routes import ROUTES
from rocketpy.testing import fresh_name
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console_app import Browser

pytestmark = pytest.mark.soak
NOT_AT_APACHE = ("/C/users", "/C/brokers/{broker}/quotas")
"""Pages of features that only brokers of RocketPy have."""


@pytest.fixture(scope="module")
def topic(apache_address: str) -> str:
    """A topic of Apache's broker with messages, a key, and a group that is behind."""
    name = fresh_name("console")
    with (
        rocketpy.Admin(apache_address) as admin,
        rocketpy.Producer(fresh_name("sender"), name_servers=apache_address) as producer,
    ):
        admin.create_topic(name, queues=2)
        admin.create_group(f"{name}-readers")
        for number in range(20):
            producer.send(rocketpy.Message(name, b'{"order": %d}' % number, tag="paid", keys=[f"o-{number}"]))
    group = f"{name}-readers"
    with rocketpy.Consumer(group, name, name_servers=apache_address, start="earliest") as consumer:
        wait_until(lambda: consumer.poll(timeout=1), "a message has arrived")
        consumer.commit()
    return name


@pytest.fixture(scope="module")
def browser(apache_address: str, topic: str) -> Iterator[Browser]:
    with opened(Settings(apache_address, role="admin", **PATIENT)) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(browser: Browser) -> str:
    """Path of the cluster's pages."""
    return f"/{browser.collector.snapshot.cluster}"


@pytest.fixture(scope="module")
def broker(apache_address: str) -> str:
    with rocketpy.Admin(apache_address) as admin:
        return admin.brokers()[0].broker_name


def test_pages_of_apaches_cluster_have_no_error(browser: Browser, cluster: str, topic: str, broker: str):
    names = {"topic": topic, "group": f"{topic}-readers", "broker": broker, "queue": "0", "offset": "0"}
    shown = set()
    for route in ROUTES:
        if "GET" not in route.methods or not route.path.startswith("/C/") or route.path.endswith("/stream"):
            continue
        if route.path.startswith(NOT_AT_APACHE) or "{" in route.path.format_map(Kept(names)):
            continue  # a job, a rule or a letter that does not exist
        path = route.path.replace("/C/", f"{cluster}/", 1).format_map(names)
        answer = browser.get(path)
        assert answer.status_code in {200, 404}, (path, answer.status_code, answer.text[-2000:])
        if answer.status_code == 200:
            shown.add(route.path)
    assert {
        "/C/",
        "/C/topics/{topic}",
        "/C/topics/{topic}/messages",
        "/C/groups/{group}",
        "/C/brokers/{broker}",
    } <= shown
    assert {"/C/groups/{group}/reset", "/C/brokers/{broker}/config", "/C/waiting", "/C/dead-letters"} <= shown


class Kept(dict[str, str]):
    """Leaves unknown fields of a path as they are."""

    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"


def test_messages_of_apache_are_read_and_filtered(browser: Browser, cluster: str, topic: str):
    answer = browser.get(f"/api/v1{cluster}/topics/{topic}/messages", params={"where": "order >= 15"})
    assert answer.status_code == 200, answer.text
    assert answer.text.count('"paid"') == 5, json.dumps(answer.json())[:3000]


def test_topic_of_apache_is_created_and_deleted(browser: Browser, cluster: str, apache_address: str):
    name = fresh_name("made")
    made = browser.write(f"{cluster}/topics/~new", name=name, queues="3", step="apply")
    assert made.status_code == 303, made.text[:2000]
    with rocketpy.Admin(apache_address) as admin:
        assert len(admin.queues(name)) == 3
        deleted = browser.write(f"{cluster}/topics/{name}/delete", name=name)
        assert deleted.status_code == 303, deleted.text[:2000]
        assert name not in admin.topics()


def test_reset_of_a_group_of_apache_is_previewed(browser: Browser, cluster: str, topic: str):
    group = f"{topic}-readers"
    page = browser.get(f"{cluster}/groups/{group}/reset", params={"topic": topic, "to": "earliest"})
    assert page.status_code == 200, page.text[:2000]
    assert f"rocketpy group reset {group}" in page.text

"""The console with 5,000 topics and 2,000 groups: order and pages of the lists, without a request to the cluster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import rocketpy
from console_app import CLUSTER, CountingAdmin, opened
from rocketpy.console import Settings
from rocketpy.testing import SMALL_FILES, PatientServer
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from console_app import Browser

pytestmark = pytest.mark.soak
TOPICS, GROUPS = 5_000, 2_000
SENT = 300
"""Number of topics with a message; topic `t-N` of these has N modulo 7, plus one."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder: Path = tmp_path_factory.mktemp("large")
    with PatientServer(folder / "store", settings=SMALL_FILES) as server:
        with server.admin() as admin, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: admin.create_topic(f"t-{number:04}", queues=1), range(TOPICS)))
            list(pool.map(lambda number: admin.create_group(f"g-{number:04}"), range(GROUPS)))
        with server.producer("large") as producer:
            producer.send_many([rocketpy.Message(f"t-{n:04}", b"x") for n in range(SENT) for _ in range(n % 7 + 1)])
        with opened(Settings(server.name_server, period=1000.0, request_timeout=60.0)) as found:
            yield found


def names(answer: Any) -> list[str]:
    return [one["name"] for one in answer.json()["topics"]]


def test_lists_show_all_rows_in_order_without_a_request(browser: Browser):
    def listed(path: str, **query: str) -> Any:
        answer = browser.get(f"/api/v1{CLUSTER}/{path}", params=query)
        assert answer.status_code == 200, answer.text[:1000]
        return answer

    wait_until(lambda: listed("topics", size="50").json()["total"] >= TOPICS, "all topics are known")
    wait_until(lambda: listed("groups", size="50").json()["total"] == GROUPS, "all groups are known")
    before = CountingAdmin.calls
    for path in ("topics", "groups"):
        for query in ({}, {"page": "3"}, {"q": "42"}, {"size": "500"}, {"order": "-lag"}):
            assert browser.get(f"{CLUSTER}/{path}", params=query).status_code == 200
    assert CountingAdmin.calls == before, "list pages read the snapshot"
    assert len(names(listed("topics", q="t-00", size="500"))) == 100
    assert names(listed("topics", q="t-", order="name", page="2", size="50"))[0] == "t-0050"


def test_topics_are_sorted_by_their_messages(browser: Browser):
    browser.refresh()
    answer = browser.get(f"/api/v1{CLUSTER}/topics", params={"q": "t-", "order": "-messages", "size": "50"})
    counts = [one["messages"] for one in answer.json()["topics"]]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 7

"""The console in this process, as tests open it, and its client."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from starlette.testclient import TestClient

from rocketpy.aio.admin import AsyncAdmin
from rocketpy.console import Settings, create_app
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from httpx2 import Response

    from rocketpy.console.app import Console
    from rocketpy.console.collector import Collector
    from rocketpy.security import Credentials

QUIET = 1000.0
"""Period of a collector that reads once, so that tests say when it reads again."""
PATIENT: dict[str, Any] = {"period": QUIET, "request_timeout": 60.0}
"""Settings of tests whose server answers, however slow the machine is."""
CLUSTER = "/DefaultCluster"
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


class CountingAdmin(AsyncAdmin):
    """Client that counts its requests to the cluster."""

    __slots__ = ()
    calls = 0

    async def _ask(self, call: Any, *arguments: Any, **options: Any) -> Any:
        CountingAdmin.calls += 1
        return await super()._ask(call, *arguments, **options)


class Browser(TestClient):
    """Client that sends what a browser sends, and reaches into the console."""

    @property
    def console(self) -> Console:
        return cast("Any", self.app).state.console

    @property
    def collector(self) -> Collector:
        return self.console.collector

    def refresh(self) -> None:
        """Has the collector read everything once."""
        assert self.portal is not None
        self.portal.call(self.collector.refresh)

    def write(self, path: str, **fields: str) -> Response:
        """Sends a form as a page of the console does."""
        return self.post(path, data=fields, headers=SAME_ORIGIN, follow_redirects=False)


@contextmanager
def opened(settings: Settings, *, names: bool = True) -> Iterator[Browser]:
    """A running console.

    Args:
        settings: Its settings.
        names: Whether to wait until the collector has read the names.
    """

    def make(credentials: Credentials | None) -> AsyncAdmin:
        return CountingAdmin(
            settings.name_servers,
            api_timeout=settings.request_timeout,
            connect_timeout=1.0,
            credentials=credentials or settings.credentials or False,
        )

    with Browser(create_app(settings, make), base_url="http://127.0.0.1:8080") as browser:
        if names:
            wait_until(lambda: browser.collector.snapshot.groups_at, "the collector has read the groups")
            wait_until(lambda: browser.collector.snapshot.topics, "the collector has read the topics")
            browser.refresh()
        yield browser

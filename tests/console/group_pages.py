"""Console in the test process, with the headers of a browser, for the pages of groups and of dead letters."""

from __future__ import annotations

import html
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.testclient import TestClient

from rocketpy.console import Settings, create_app
from rocketpy.console.names import to_path
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SAME = {"Sec-Fetch-Site": "same-origin"}
TAGS = re.compile(r"<[^>]*>")


class Visitor:
    """One visitor of a console."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.console = client.app.state.console  # type: ignore[attr-defined]

    def url(self, *parts: str) -> str:
        """Address below the cluster, or below its API for a first part `api`."""
        is_api, names = parts[:1] == ("api",), parts[1:] if parts[:1] == ("api",) else parts
        ready = [name if name.startswith("~") else to_path(name) for name in names]
        path = "/".join([to_path(self.console.cluster, is_cluster=True), *ready])
        return f"/api/v1/{path}" if is_api else f"/{path}"

    def get(self, *parts: str, status: int = 200, **query: str) -> Any:
        """Response of a page, whose status is checked."""
        found = self.client.get(self.url(*parts), params=query)
        assert found.status_code == status, (found.status_code, text_of(found.text)[-2000:])
        return found

    def post(self, *parts: str, form: Any = (), status: int = 303) -> Any:
        """Response of a write of one of the console's own pages, whose status is checked."""
        pairs = list(form.items()) if isinstance(form, dict) else list(form)
        headers = {**SAME, "Content-Type": "application/x-www-form-urlencoded"}
        found = self.client.post(self.url(*parts), content=urlencode(pairs), headers=headers)
        assert found.status_code == status, (found.status_code, text_of(found.text)[-2000:])
        return found

    def text(self, *parts: str, status: int = 200, **query: str) -> str:
        """Visible text of a page."""
        return text_of(self.get(*parts, status=status, **query).text)

    def shows(self, what: str, *parts: str, **query: str) -> str:
        """Waits until the snapshot has a text; returns the visible text of the page."""
        wait_until(lambda: what in self.text(*parts, **query), f"{what} on {parts}")
        return self.text(*parts, **query)

    def audit(self, action: str) -> list[tuple[str, str, str]]:
        """Lines of the audit for an action: object, result, text."""
        lines = [one for one in self.console.audit.recent if one["action"] == action]
        return [(one["object"], one["result"], one.get("text", "")) for one in lines]


def text_of(page: str) -> str:
    """Visible text of HTML, with single spaces."""
    page = re.sub(r"(?s)<head>.*?</head>", "", page)
    return " ".join(html.unescape(TAGS.sub(" ", page)).split())


def hidden(page: str) -> dict[str, str]:
    """Hidden fields of the forms of a page."""
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', page)
    return {html.unescape(name): html.unescape(value) for name, value in found}


@contextmanager
def visiting(name_server: str, role: str = "operator", **settings: Any) -> Iterator[Visitor]:
    """Runs a console for a visitor of a role."""
    app = create_app(Settings(name_server, role=role, **{"period": 0.2, "request_timeout": 60, **settings}))  # type: ignore[arg-type]
    with TestClient(app, base_url="http://127.0.0.1:8080", follow_redirects=False) as client:
        visitor = Visitor(client)
        wait_until(lambda: visitor.console.collector.snapshot.groups_at is not None, "first snapshot")
        yield visitor

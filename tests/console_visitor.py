"""Visitor of a console that runs in the process of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.testclient import TestClient

from rocketpy.console.app import create_app
from rocketpy.console.settings import Role, Settings

if TYPE_CHECKING:
    from pathlib import Path

    import rocketpy

BASE = "http://127.0.0.1:8080"
WRITE = {"Sec-Fetch-Site": "same-origin"}


class Visitor:
    """Client of a console with a role."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    @property
    def watch(self) -> Any:
        return self.client.app.state.console.alerts  # type: ignore[attr-defined]

    def page(self, path: str, status: int = 200) -> str:
        found = self.client.get(f"/cluster{path}")
        assert found.status_code == status, found.text
        return found.text

    def json(self, path: str) -> Any:
        found = self.client.get(f"/api/v1/cluster{path}")
        assert found.status_code == 200, found.text
        return found.json()

    def post(self, path: str, status: int = 200, **form: str) -> str:
        found = self.client.post(f"/cluster{path}", data=form, headers=WRITE)
        assert found.status_code == status, found.text
        return found.text


def console(server: rocketpy.Server, role: Role = "admin", data: Path | None = None, **more: Any) -> TestClient:
    """Client of a console of a server; `with` runs it."""
    settings = Settings(server.name_server, role=role, data=data, period=0.1, request_timeout=15.0, **more)
    return TestClient(create_app(settings), base_url=BASE)

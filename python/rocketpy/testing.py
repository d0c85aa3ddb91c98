"""Fixtures for pytest: a real server in the test process, on free ports, in well under a second.

Use them with `pytest_plugins = ["rocketpy.testing"]` in the topmost conftest.py. Helpers without pytest are in
`rocketpy.testkit`, and exported here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketpy.testkit import (
    PATIENCE_SECONDS,
    SMALL_FILES,
    PatientServer,
    drain,
    drain_async,
    fresh_name,
    serve_clock,
    wait_until_consumed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


__all__ = [
    "PATIENCE_SECONDS",
    "SMALL_FILES",
    "PatientServer",
    "drain",
    "drain_async",
    "fresh_name",
    "rocketpy_server",
    "rocketpy_server_factory",
    "rocketpy_topic",
    "serve_clock",
    "wait_until_consumed",
]


@pytest.fixture(scope="session")
def rocketpy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientServer]:
    """Server shared by all tests of a session. Give each test its own topics and groups: `fresh_name`."""
    with PatientServer(tmp_path_factory.mktemp("rocketpy") / "store", settings=SMALL_FILES) as server:
        yield server


@pytest.fixture
def rocketpy_server_factory(tmp_path: object) -> Iterator[Callable[..., PatientServer]]:
    """Starts servers for one test: `factory()`, or `factory(path, settings=...)` as `rocketpy.Server` takes them."""
    servers: list[PatientServer] = []

    def start(path: object = None, **arguments: object) -> PatientServer:
        settings = {**SMALL_FILES, **(arguments.pop("settings", None) or {})}  # type: ignore[dict-item]
        server = PatientServer(path or tmp_path / "store", settings=settings, **arguments)  # type: ignore[operator, arg-type]
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def rocketpy_topic(rocketpy_server: PatientServer, request: pytest.FixtureRequest) -> str:
    """Topic with four queues on the shared server, for one test."""
    topic = fresh_name(request.node.name)
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=4)
    return topic

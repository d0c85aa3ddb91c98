"""Fixtures for pytest: a real server in the test process, on free ports, in well under a second.

Use them with `pytest_plugins = ["rocketpy.testing"]` in the topmost conftest.py. Helpers without pytest are in
`rocketpy.testkit`, and exported here too.

<!-- PYTEST_DONT_REWRITE: no assertion here needs it, and a conftest.py may import helpers before pytest does. -->
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketpy.servers.leftovers import PATIENCE_SECONDS
from rocketpy.testkit import (
    QUEUES,
    SMALL_FILES,
    TEST_SETTINGS,
    AsyncClients,
    PatientServer,
    drain,
    drain_async,
    fresh_name,
    nothing_left,
    serve_clock,
    wait_until_consumed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rocketpy.servers.server import Setting


__all__ = [
    "PATIENCE_SECONDS",
    "SMALL_FILES",
    "TEST_SETTINGS",
    "AsyncClients",
    "PatientServer",
    "drain",
    "drain_async",
    "fresh_name",
    "nothing_left",
    "rocketpy_async",
    "rocketpy_nothing_left",
    "rocketpy_server",
    "rocketpy_server_factory",
    "rocketpy_settings",
    "rocketpy_topic",
    "serve_clock",
    "wait_until_consumed",
]


@pytest.fixture(scope="session")
def rocketpy_settings() -> Mapping[str, Setting]:
    """Configuration keys of the servers of all fixtures; none. Override it in the topmost conftest.py."""
    return {}


@pytest.fixture(scope="session")
def rocketpy_server(
    tmp_path_factory: pytest.TempPathFactory, rocketpy_settings: Mapping[str, Setting]
) -> Iterator[PatientServer]:
    """Server shared by all tests of a session. Give each test its own topics and groups: `fresh_name`."""
    settings = {**TEST_SETTINGS, **rocketpy_settings}
    with PatientServer(tmp_path_factory.mktemp("rocketpy") / "store", settings=settings) as server:
        yield server


@pytest.fixture
def rocketpy_server_factory(
    tmp_path: object, rocketpy_settings: Mapping[str, Setting]
) -> Iterator[Callable[..., PatientServer]]:
    """Starts servers for one test: `factory()`, or `factory(path, settings=...)` as `rocketpy.Server` takes them."""
    servers: list[PatientServer] = []

    def start(path: object = None, **arguments: object) -> PatientServer:
        settings = {**TEST_SETTINGS, **rocketpy_settings, **(arguments.pop("settings", None) or {})}  # type: ignore[dict-item]
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
        admin.create_topic(topic, queues=QUEUES)
    return topic


@pytest.fixture
def rocketpy_async(rocketpy_server: PatientServer) -> AsyncClients:
    """Clients of the shared server for asyncio: `async with rocketpy_async.producer("shop") as producer:`.

    The fixture itself is synchronous, so it works with pytest-asyncio, with anyio, and in `asyncio.run`.
    """
    return AsyncClients(rocketpy_server)


@pytest.fixture
def rocketpy_nothing_left(rocketpy_server: PatientServer) -> Iterator[None]:
    """Fails a test that leaves messages on the shared server unconsumed, waiting for a retry, or as dead letters.

    `rocketpy.testkit.nothing_left` lists the rules. The check follows the teardown of fixtures that are requested
    after this one.
    """
    try:
        with nothing_left(rocketpy_server):
            yield
    except AssertionError as left:
        raise pytest.fail.Exception(str(left), pytrace=False) from None

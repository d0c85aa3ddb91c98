"""Fixtures for pytest: a real server in the test process, on free ports, in well under a second.

Use them with `pytest_plugins = ["rocketpy.testing"]` in the topmost conftest.py.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import pytest

import rocketpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Unpack

    from rocketpy.config import ClientOptions, ConsumerOptions, ProducerOptions, PushOptions

__all__ = ["fresh_name", "rocketpy_server", "rocketpy_server_factory", "rocketpy_topic"]

SMALL_FILES = {"mappedFileSizeCommitLog": 16 << 20, "mappedFileSizeConsumeQueue": 20 * 10_000}
"""Small log files for tests: a store of 1 GiB files is slow to create and to remove."""
PATIENCE_SECONDS = 60.0
"""Longest time of a call."""


class PatientServer(rocketpy.Server):
    """A server whose clients wait for a stalled disk, as a busy machine may have."""

    __slots__ = ()

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> rocketpy.Producer:
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        options.setdefault("send_timeout", PATIENCE_SECONDS)
        return super().producer(group, **options)

    def consumer(self, group: str, topic: str | Iterable[str], **options: Unpack[ConsumerOptions]) -> rocketpy.Consumer:
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        return super().consumer(group, topic, **options)

    def push_consumer(self, group: str, **options: Unpack[PushOptions]) -> rocketpy.PushConsumer:
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        return super().push_consumer(group, **options)

    def admin(self, **options: Unpack[ClientOptions]) -> rocketpy.Admin:
        options.setdefault("api_timeout", PATIENCE_SECONDS)
        return super().admin(**options)


def fresh_name(prefix: str = "test") -> str:
    """A topic or group name that nothing else uses.

    Args:
        prefix: Its beginning. Characters that a name cannot have become `-`.

    Examples:
        >>> fresh_name("orders[1]")
        'orders-1--...'
    """
    return f"{re.sub('[^a-zA-Z0-9_-]', '-', prefix)[:80]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def rocketpy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketpy.Server]:
    """A server that all tests of a session share. Give each test topics and groups of its own: `fresh_name`."""
    with PatientServer(tmp_path_factory.mktemp("rocketpy") / "store", settings=SMALL_FILES) as server:
        yield server


@pytest.fixture
def rocketpy_server_factory(tmp_path: object) -> Iterator[Callable[..., rocketpy.Server]]:
    """Starts servers for one test: `factory()`, or `factory(path, settings=...)` as `rocketpy.Server` takes them."""
    servers: list[rocketpy.Server] = []

    def start(path: object = None, **arguments: object) -> rocketpy.Server:
        settings = {**SMALL_FILES, **(arguments.pop("settings", None) or {})}  # type: ignore[dict-item]
        server = PatientServer(path or tmp_path / "store", settings=settings, **arguments)  # type: ignore[operator, arg-type]
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def rocketpy_topic(rocketpy_server: rocketpy.Server, request: pytest.FixtureRequest) -> str:
    """A topic of four queues on the shared server, for one test alone."""
    topic = fresh_name(request.node.name)
    with rocketpy_server.admin() as admin:
        admin.create_topic(topic, queues=4)
    return topic

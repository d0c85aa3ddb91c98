"""Fixtures of the console: one application for each role, on the shared server."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import rocketpy
from console_app import PATIENT, opened
from rocketpy.console import Settings
from rocketpy.console.settings import ROLES
from rocketpy.testing import SMALL_FILES, PatientServer, fresh_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from console_app import Browser
    from rocketpy.console.settings import Role


@pytest.fixture(scope="session")
def rocketpy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientServer]:
    """A server of these tests alone: the collector reads every topic of it."""
    with PatientServer(tmp_path_factory.mktemp("console") / "store", settings=SMALL_FILES) as server:
        yield server


@pytest.fixture(scope="session")
def consoles(rocketpy_server: PatientServer) -> Iterator[Callable[[Role], Browser]]:
    """One console for each role, on the shared server."""
    with ExitStack() as stack:
        made: dict[str, Browser] = {}

        def console(role: Role) -> Browser:
            if role not in made:
                settings = Settings(rocketpy_server.name_server, role=role, **PATIENT)
                made[role] = stack.enter_context(opened(settings))
            return made[role]

        yield console


@pytest.fixture
def browser(consoles: Callable[[Role], Browser]) -> Browser:
    """Console of an operator, with the newest names."""
    found = consoles("operator")
    found.cookies.clear()
    return found


@pytest.fixture(params=list(ROLES))
def role(request: pytest.FixtureRequest) -> Role:
    return request.param


@pytest.fixture
def topic(rocketpy_server: PatientServer) -> str:
    """A topic with two queues and three messages."""
    return new_topic(rocketpy_server)


@pytest.fixture(scope="session")
def shared_topic(rocketpy_server: PatientServer) -> str:
    """As `topic`, for tests that change nothing."""
    return new_topic(rocketpy_server)


def new_topic(server: PatientServer) -> str:
    name = fresh_name("console")
    with server.admin() as admin, server.producer("console") as producer:
        admin.create_topic(name, queues=2)
        for _ in range(3):  # one after the other: both queues get messages
            producer.send(rocketpy.Message(name, b"text"))
    return name

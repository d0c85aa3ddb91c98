"""RocketPy as a server of its own, and the Apache peers, for the interoperability tests."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apache_processes import shared_apache
from peers import (
    LEVEL_TABLE,
    Cpp,
    Drivers,
    Go,
    Java,
    rocketpy_server,
    set_up_client_4_9,
    set_up_cpp,
    set_up_go,
    set_up_java,
)

collect_ignore = ["cpp_driver.py", "cpp-env", "shared_apache.py"]  # the first two belong to another environment


@pytest.fixture(scope="session")
def java() -> Java:
    return set_up_java()


@pytest.fixture(scope="session", params=["5.5.0", "4.9.8"])
def each_java(request: pytest.FixtureRequest) -> Java:
    """The client of either version."""
    return set_up_client_4_9() if request.param == "4.9.8" else set_up_java()


@pytest.fixture(scope="session")
def cpp() -> Cpp:
    return set_up_cpp()


@pytest.fixture(scope="session")
def go() -> Go:
    return set_up_go()


@pytest.fixture(scope="session")
def rocketpy_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that asks soon how open transactions end, and retries soon, so that no test waits for it."""
    settings = [f"--set={key}=1000" for key in ("transactionTimeOut", "transactionCheckInterval")]
    settings.append(f"--set=messageDelayLevel={LEVEL_TABLE}")
    with rocketpy_server(tmp_path_factory.mktemp("rocketpy"), *settings) as address:
        yield address


@pytest.fixture(scope="session")
def start_apache(
    java: Java, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], str]:
    """Starts Apache's name server and broker 5.5.0, which all workers of a run share; returns their address."""
    is_worker = hasattr(request.config, "workerinput")
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if is_worker else base
    return lambda: shared_apache(folder / "apache", os.getppid() if is_worker else os.getpid())


@pytest.fixture(scope="session")
def apache_address(start_apache: Callable[[], str]) -> str:
    """Of Apache's name server and broker 5.5.0, which all workers of a run share."""
    return start_apache()


@pytest.fixture(scope="session", autouse=True)
def java_ends() -> Iterator[None]:
    """Ends the JVMs of the scenarios."""
    yield
    Drivers.close_all()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where a client may write its logs and offsets."""
    return tmp_path

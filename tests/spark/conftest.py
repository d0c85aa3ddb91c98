"""A Spark session for all tests, on a real JVM, and messages to read."""

from __future__ import annotations

import os
import selectors
from typing import TYPE_CHECKING

import pytest

import rocketpy
from rocketpy.spark import JavaNotFoundError, local_session, prepare_java
from rocketpy.spark.session import QUICK_JVM
from rocketpy.testing import fresh_name
from spark_driver import Program
from waiting import wait_for_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUEUES = 3


class Polled:
    """For the module `select` in Py4J's server of callbacks, whose `select` takes no file descriptor above 1,023."""

    @staticmethod
    def select(readers, _writers, _failed, timeout=None):
        with selectors.DefaultSelector() as selector:
            for reader in readers:
                selector.register(reader, selectors.EVENT_READ)
            return [key.fileobj for key, _ in selector.select(timeout)], [], []


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The session; without a Java the test is skipped, which fails in CI."""
    try:
        prepare_java()
    except JavaNotFoundError as missing:
        pytest.skip(str(missing))
    from py4j import java_gateway

    java_gateway.select = Polled  # type: ignore[attr-defined]
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYTHONWARNINGS"] = "default"  # workers are not pytest: their own warnings are not errors
    session = local_session(
        "rocketpy tests",
        folder,
        memory="1g",
        config={"spark.driver.extraJavaOptions": QUICK_JVM, "spark.sql.shuffle.partitions": "1"},
    )
    session.sparkContext.setLogLevel("OFF")  # refused reads are part of the tests
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def no_driver_left() -> Iterator[None]:
    """Ends the drivers that a test started as processes of their own."""
    yield
    Program.end_all()


@pytest.fixture
def topic(rocketpy_server: rocketpy.Server) -> str:
    """A new topic of three queues."""
    name = fresh_name("spark")
    with rocketpy_server.admin() as admin:
        admin.create_topic(name, queues=QUEUES)
    return name


@pytest.fixture
def send(rocketpy_server: rocketpy.Server) -> Iterator[Callable[..., list[rocketpy.Receipt]]]:
    """Sends bodies to a topic: message number n has tag "even" or "odd" and goes to queue n modulo 3."""
    with rocketpy_server.producer("spark-tests") as producer, rocketpy_server.admin() as admin:

        def send_bodies(topic: str, bodies: list[bytes]) -> list[rocketpy.Receipt]:
            messages = [
                rocketpy.Message(topic, body, tag=("even", "odd")[number % 2], keys=[f"k{number}", "all"])
                for number, body in enumerate(bodies)
            ]
            receipts: list[rocketpy.Receipt | None] = [None] * len(messages)
            for first, queue in enumerate(admin.queues(topic)):
                receipts[first::QUEUES] = sent = producer.send_many(messages[first::QUEUES], queue=queue)
                if sent:
                    wait_for_files(rocketpy_server.path, queue, sent[-1].queue_offset + 1)
            return receipts

        yield send_bodies


@pytest.fixture(params=["path", "name_server"])
def door(request: pytest.FixtureRequest, rocketpy_server: rocketpy.Server) -> dict[str, str]:
    """The options of one of the two ways to the same messages."""
    if request.param == "path":
        return {"path": str(rocketpy_server.path)}
    return {"name_server": rocketpy_server.name_server}

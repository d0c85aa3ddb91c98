"""Configuration of the servers of all tests: that of the product, where the fixtures of `rocketpy.testing` differ."""

from collections.abc import Mapping

import pytest


@pytest.fixture(scope="session")
def rocketpy_settings() -> Mapping[str, bool]:
    """Topics are created by the first send, that of traces too, as at a server with default settings."""
    return {"autoCreateTopicEnable": True, "traceTopicEnable": False}

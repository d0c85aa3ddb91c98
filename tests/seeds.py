"""Seed of all random kills and faults: one variable, `ROCKETPY_TEST_SEED`, printed at the start of each run.

`make test` sets the variable for the Rust tests and for pytest; pytest alone draws a seed. The same seed repeats the
same choices in each test, whatever else runs.
"""

import os
import random

import pytest

VARIABLE = "ROCKETPY_TEST_SEED"


def pytest_configure() -> None:
    """Draws the seed in the first process; workers inherit its environment."""
    os.environ[VARIABLE] = os.environ.get(VARIABLE) or str(random.SystemRandom().randrange(1 << 32))


def pytest_report_header() -> str:
    return f"{VARIABLE}={os.environ[VARIABLE]} repeats the random choices of this run"


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random choices of one test, from the seed of the run and the name of the test."""
    print(f"{VARIABLE}={os.environ[VARIABLE]}")  # also in the report of a test that fails
    return random.Random(f"{os.environ[VARIABLE]} {request.node.name}")

"""In CI a test that would be skipped fails: a machine that lacks something must not look like one that passes.

Everything that may skip just calls `pytest.skip` with its reason, or carries a mark; this plugin is the one place that
knows of CI. It counts for doctests too, wherever they are.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test, or a fixture of it, that misses something."""
    report = yield
    return checked(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that misses something."""
    report = yield
    return checked(report)


def checked(report: Any) -> Any:
    """Turns a skip into a failure that says the reason, in CI. An expected failure (xfail) is not changed."""
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report

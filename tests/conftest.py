"""What all tests share: a real embedded server, and the rule that nothing is skipped in CI."""

import os
import signal
from collections.abc import Generator
from typing import Any

import pytest

pytest_plugins = ["rocketpy.testing"]


def pytest_configure() -> None:
    """Lets tests interrupt what they start: a shell's background job ignores Ctrl-C, and so would its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that misses something is skipped with its reason on a developer's machine, and fails in CI."""
    report = yield
    return no_skip(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that misses something."""
    report = yield
    return no_skip(report)


def no_skip(report: Any) -> Any:
    """Turns a skip into a failure that says the reason, in CI."""
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report

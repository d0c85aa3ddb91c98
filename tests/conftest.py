"""What all tests share: an embedded server, the seed of random choices (`seeds`), no skips in CI (`no_skip`)."""

import os
import shlex
import signal

import pytest

from rocketpy.spark.session import QUICK_JVM

pytest_plugins = ["rocketpy.testing", "closed_server", "server_settings", "no_skip", "seeds", "longest_first"]

SPARK_OPTIONS = ["--driver-memory", "1g", "--conf", f"spark.driver.extraJavaOptions={QUICK_JVM}"]
"""Options of every Spark session of the tests, in this process and in others: several run at once on one machine."""


def pytest_configure() -> None:
    """Lets tests interrupt what they start: a shell's background job ignores Ctrl-C, and so would its children.

    Servers, in this process and in others, wait out a disk that stalls, unless a test's settings say otherwise.
    """
    for name in {"FORCE_COLOR", "COLUMNS", "NAMESRV_ADDR"} & os.environ.keys():
        del os.environ[name]  # what commands print and whom they ask is up to the tests
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*SPARK_OPTIONS, "pyspark-shell"])
    os.environ |= {"ROCKETPY_OS_PAGE_CACHE_BUSY_TIME_OUT_MILLS": "60000", "ROCKETPY_SYNC_FLUSH_TIMEOUT": "60000"}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Has logs written as pytest writes them.

    After an error of a query PySpark has loggers that do not propagate. pytest gives them its handlers, and they make
    each handler write JSON, for all loggers and all tests to come.
    """
    logs = item.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (logs.caplog_handler, logs.report_handler):
        handler.setFormatter(logs.formatter)

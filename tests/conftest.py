"""What all tests share: a real embedded server, and the rule that nothing is skipped in CI (`no_skip`)."""

import os
import signal

pytest_plugins = ["rocketpy.testing", "no_skip"]


def pytest_configure() -> None:
    """Lets tests interrupt what they start: a shell's background job ignores Ctrl-C, and so would its children.

    Servers, in this process and in others, wait out a disk that stalls, unless a test's settings say otherwise.
    """
    for name in {"FORCE_COLOR", "COLUMNS", "NAMESRV_ADDR"} & os.environ.keys():
        del os.environ[name]  # what commands print and whom they ask is up to the tests
    os.environ |= {"ROCKETPY_OS_PAGE_CACHE_BUSY_TIME_OUT_MILLS": "60000", "ROCKETPY_SYNC_FLUSH_TIMEOUT": "60000"}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

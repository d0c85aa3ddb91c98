"""What all tests share: a real embedded server, and the rule that nothing is skipped in CI (`no_skip`)."""

import signal

pytest_plugins = ["rocketpy.testing", "no_skip"]


def pytest_configure() -> None:
    """Lets tests interrupt what they start: a shell's background job ignores Ctrl-C, and so would its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

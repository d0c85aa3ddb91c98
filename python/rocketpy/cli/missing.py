"""Brokers that do not answer: how commands name them, and calls that wait for them once."""

import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rocketpy import BrokerStatus
from rocketpy.admin.answers import MissingBroker
from rocketpy.base.instant import now_ms
from rocketpy.base.text import printable
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode


def text_of(broker: MissingBroker | BrokerStatus) -> str:
    """Returns name, address and error of a broker, with the age of its last answer."""
    age = ""
    if broker.answered_at is not None:
        seconds = max(0, now_ms() / 1000 - broker.answered_at.timestamp())
        age = f"; last answer {seconds:,.0f} s ago"
    return printable(f"{broker.broker_name} ({broker.address}): {broker.error}{age}")


def notice(missing: Iterable[MissingBroker], what: str) -> None:
    """Prints a line for each broker that did not answer on standard error."""
    for broker in missing:
        print(f"{what} unknown at {text_of(broker)}", file=sys.stderr)


def check_missing(missing: Sequence[MissingBroker], what: str) -> None:
    """Ends a command whose answer is not complete, after it printed the answers of the other brokers.

    Raises:
        CommandError: A broker did not answer.
    """
    if not missing:
        return
    notice(missing, what)
    brokers = output.counted(len(missing), "broker")
    hint = "the answers of the other brokers are printed; `rocketpy cluster list` shows all brokers"
    raise CommandError(f"{what} incomplete: {brokers} did not answer", ExitCode.UNAVAILABLE, hint)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Runs calls at the same time, so that a broker that does not answer is waited for once; returns their results.

    Examples:
        >>> together(lambda: 1, lambda: 2)
        [1, 2]
    """
    pool = ThreadPoolExecutor(len(calls), "rocketpy-calls")
    try:
        return [future.result() for future in [pool.submit(call) for call in calls]]
    finally:  # after Ctrl-C the close of the client ends the requests
        pool.shutdown(wait=not isinstance(sys.exception(), KeyboardInterrupt), cancel_futures=True)

"""The clients of a Python worker of Spark: one connection to each broker, shared by all that the process reads."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, TypeVar

from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketpy.admin import Admin
    from rocketpy.config import ClientOptions
    from rocketpy.spark.options import ReadOptions

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two tries; each pause is twice as long as the one before."""

logger = logging.getLogger("rocketpy.spark")
_admins: dict[tuple[object, ...], Admin] = {}


def client_options(options: ReadOptions) -> ClientOptions:
    """The options of every client of this process: with one instance name they share their connections.

    Args:
        options: With name servers.
    """
    same_settings = options.client.get("connect_timeout", "")
    return {"instance_name": f"spark-{os.getpid()}-{same_settings}", **options.client}  # type: ignore[typeddict-item]


def shared_admin(options: ReadOptions) -> Admin:
    """The administration client of this process for a cluster. It stays open, and with it the shared connections.

    Args:
        options: With name servers.
    """
    from rocketpy.admin import Admin

    key = (os.getpid(), options.name_servers, *sorted(options.client.items()))
    if key not in _admins:
        _admins[key] = Admin(name_servers=options.name_servers, **client_options(options))
    return _admins[key]


class Patience:
    """Tries again while no broker answers, until nothing came for the time that the options allow.

    Args:
        options: Say how long.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._seconds = options.retry_timeout
        self._failing_since: float | None = None
        self._pause = FIRST_PAUSE

    def progressed(self) -> None:
        """Something came: the time starts anew at the next failure."""
        self._failing_since = None
        self._pause = FIRST_PAUSE

    def wait(self, error: RocketPyError) -> None:
        """Waits before the next try.

        Args:
            error: Why the last one failed.

        Raises:
            RocketPyError: The same error, when another try cannot help, or came to nothing for too long.
        """
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
            if error.retryable and self._seconds > 0:
                logger.warning("trying again for %g s: %s", self._seconds, error)
        if not error.retryable or now - self._failing_since >= self._seconds:
            raise error
        time.sleep(min(self._pause, self._seconds))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def ask(options: ReadOptions, call: Callable[[Admin], T]) -> T:
    """Asks the cluster, again while no broker answers.

    Args:
        options: With name servers.
        call: What to ask.

    Raises:
        RocketPyError: Of the call.
    """
    patience = Patience(options)
    while True:
        try:
            return call(shared_admin(options))
        except RocketPyError as error:
            patience.wait(error)

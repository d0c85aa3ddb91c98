"""The future of a submitted message."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Any

from rocketpy._rocketpy import SendOutcome
from rocketpy.base.misuse import ForeignNames

__all__ = ["SendFuture"]


class SendFuture(SendOutcome, Future[Any], ForeignNames):
    """A `concurrent.futures.Future` whose lock and receipt are created at the first access."""

    __init__ = object.__init__

    def __setattr__(self, name: str, value: object) -> None:
        self._track()  # the value may refer to the future
        super().__setattr__(name, value)

    def _callback_failed(self, error: Exception) -> None:
        logging.getLogger("concurrent.futures").error("exception calling callback for %r", self, exc_info=error)

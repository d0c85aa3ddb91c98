"""Console in a thread of its own, beside a server of the same process."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Self

from rocketpy.console.serve import address_of, bind, serve
from rocketpy.errors import ServerError

if TYPE_CHECKING:
    from rocketpy.console.settings import Settings

__all__ = ["EmbeddedConsole"]

logger = logging.getLogger("rocketpy.console")
START_SECONDS = 30.0
STOP_SECONDS = 10.0


class EmbeddedConsole:
    """Serves the console from a thread until the end of a `with` statement. Its failure never ends the server.

    Args:
        settings: Settings of the console.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bound = bind(settings.host, settings.port)
        self.url = address_of(settings, self._bound)
        """URL of the console."""
        self._ready = threading.Event()
        self._failure: Exception | None = None
        """Reason why the thread ended."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="rocketpy-console", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise ServerError(f"cannot start console: not ready within {START_SECONDS:g} s")
        if self._failure is not None:
            raise ServerError(f"cannot start console: {self._failure}") from self._failure
        return self

    def __exit__(self, *_error: object) -> None:
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self._failure = error
            logger.exception("console ended; the server continues")
        finally:
            self._bound.close()
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await serve(self._settings, self._bound, self._ready.set, self._stop)

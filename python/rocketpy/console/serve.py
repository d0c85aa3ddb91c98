"""Serves the application on a socket until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from rocketpy.console.app import create_app
from rocketpy.errors import PortInUseError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rocketpy.console.settings import Settings

__all__ = ["address_of", "bind", "serve"]

BACKLOG = 128
MAX_REQUESTS = 256
"""Maximum number of connections that are served at once; further ones get 503."""
MAX_HEAD = 16 << 10
"""Maximum size of the head of a request in bytes."""
STOP_SECONDS = 3
"""Time for which open requests, such as live tails, may continue after a stop."""


def bind(host: str, port: int) -> socket.socket:
    """Listening socket.

    Raises:
        PortInUseError: The address is in use, or is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host.strip("[]"), port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise PortInUseError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    found.setblocking(False)
    return found


def address_of(settings: Settings, bound: socket.socket) -> str:
    """URL of the console."""
    host = f"[{settings.host.strip('[]')}]" if ":" in settings.host else settings.host
    return f"http{'s' if settings.cert_file else ''}://{host}:{bound.getsockname()[1]}"


class Server(uvicorn.Server):
    """Server of uvicorn that leaves signals to its caller, and reports when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leaves signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts, then reports."""
        await super().startup(sockets)
        if self.started:
            self._ready()


async def serve(settings: Settings, bound: socket.socket, ready: Callable[[], None], stop: asyncio.Event) -> None:
    """Serves until `stop` is set.

    Args:
        settings: Settings of the console.
        bound: The listening socket.
        ready: Called when the console accepts requests.
        stop: Ends the console.

    Raises:
        RuntimeError: The application cannot start; the log has the reason.
    """
    config = uvicorn.Config(
        create_app(settings),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        http="h11",
        ws="none",
        limit_concurrency=MAX_REQUESTS,
        h11_max_incomplete_event_size=MAX_HEAD,
        timeout_graceful_shutdown=STOP_SECONDS,
        ssl_certfile=settings.cert_file,
        ssl_keyfile=settings.key_file,
    )
    server = Server(config, ready)

    async def wait() -> None:
        await stop.wait()
        server.should_exit = True

    waiting = asyncio.create_task(wait())
    try:
        await server.serve(sockets=[bound])
    finally:
        waiting.cancel()
    if not server.started:
        raise RuntimeError("console cannot start")

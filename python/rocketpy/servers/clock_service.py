"""HTTP service that advances the clock of a test server."""

from __future__ import annotations

import secrets
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Generator

    from rocketpy.testkit import PatientServer

MAX_TEXT_BYTES = 64
"""Maximum length of a number of seconds as text."""


class ClockHandler(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_POST(self) -> None:  # the name that http.server calls
        """Advances the clock by the seconds in the body."""
        service = cast("ClockServer", self.server)
        if self.path != service.path:  # a web page of this machine could post too, but does not know it
            self.send_error(404)
            return
        try:
            length = int(self.headers.get("Content-Length", 0))
            text = self.rfile.read(max(0, min(length, MAX_TEXT_BYTES)))  # of a negative number it would read all
            service.kit.advance(float(text))
        except ValueError as error:
            self.send_error(400, f"the body must be a number of seconds, from 0: {error}")
            return
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # the name that http.server gives
        """Writes nothing: standard error belongs to the tests."""


class ClockServer(ThreadingHTTPServer):
    """Listens on loopback, on a free port."""

    daemon_threads = True

    def __init__(self, kit: PatientServer) -> None:
        super().__init__(("127.0.0.1", 0), ClockHandler)
        self.kit, self.path = kit, f"/{secrets.token_hex(8)}"


@contextmanager
def serve_clock(server: PatientServer) -> Generator[str]:
    """Serves a URL by which other programs of this machine advance the clock of a server, as `server.advance` does.

    Args:
        server: A running server of this process.

    Yields:
        A URL. A POST with a number of seconds as its body advances the clock, and returns 204. The random path protects
        it from other programs.

    Examples:
        >>> import urllib.request
        >>> from rocketpy.testkit import temporary_server
        >>> with temporary_server() as server, serve_clock(server) as url:
        ...     urllib.request.urlopen(url, b"3600").status
        204
    """
    with ClockServer(server) as service:
        thread = threading.Thread(target=service.serve_forever, name="rocketpy-clock")
        thread.start()
        try:
            yield f"http://127.0.0.1:{service.server_port}{service.path}"
        finally:
            service.shutdown()
            thread.join()

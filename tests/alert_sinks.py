"""Receivers of notifications that fail in a chosen way, on loopback."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CERTIFICATES = Path(__file__).parent / "tls"


def trusting(name: str = "ca") -> ssl.SSLContext:
    """TLS settings of a client that trusts an authority of the tests."""
    return ssl.create_default_context(cafile=CERTIFICATES / f"{name}.pem")


def server_context() -> ssl.SSLContext:
    """TLS settings of a server for `localhost` and the loopback addresses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    return context


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serves each connection in a thread, and gives the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def one(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            serve(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class HttpSink:
    """HTTP receiver: keeps requests, and answers what `answers` has next, then 200. None answers nothing."""

    def __init__(self, *answers: bytes | None, tls: bool = False) -> None:
        self.requests: list[tuple[bytes, bytes]] = []
        """Head and body of each request."""
        self.answers = list(answers)
        self._context = server_context() if tls else None

    def serve(self, connection: socket.socket) -> None:
        stream = self._context.wrap_socket(connection, server_side=True) if self._context else connection
        with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += received(stream)
            head, _, body = data.partition(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")
            )
            while len(body) < length:
                body += received(stream)
            self.requests.append((head, body))
            answer = self.answers.pop(0) if self.answers else b"HTTP/1.1 200 OK\r\n\r\n"
            if answer is None:
                stream.recv(1)  # until the client gives up
            else:
                stream.sendall(answer)


class SmtpSink:
    """SMTP receiver with STARTTLS or TLS, and a login; keeps the mails."""

    def __init__(
        self, *, implicit: bool = False, starttls: bool = True, password: str | None = None, data: str = "250 stored"
    ) -> None:
        self.mails: list[bytes] = []
        self.lines: list[bytes] = []
        """Commands in order, without the mails."""
        self.implicit, self.starttls, self.password, self.data = implicit, starttls, password, data
        self.refused_recipients: set[bytes] = set()

    def serve(self, connection: socket.socket) -> None:
        if self.implicit:
            with server_context().wrap_socket(connection, server_side=True) as stream:
                self.talk(stream)
        else:
            self.talk(connection)

    def talk(self, stream: socket.socket, *, greets: bool = True) -> None:
        is_tls = isinstance(stream, ssl.SSLSocket)
        if greets:
            say(stream, "220 sink")
        lines = stream.makefile("rb")
        while line := lines.readline():
            self.lines.append(line.strip())
            verb = line[:4].upper()
            if verb == b"EHLO":
                offers = ["250-sink"] + (["250-STARTTLS"] if self.starttls and not is_tls else [])
                say(stream, *offers, "250-AUTH PLAIN" if self.password else "250-8BITMIME", "250 SIZE")
            elif verb == b"STAR" and self.starttls:
                say(stream, "220 go")
                with server_context().wrap_socket(stream, server_side=True) as encrypted:
                    self.talk(encrypted, greets=False)
                return
            elif verb == b"AUTH":
                given = base64.b64decode(line.split()[2]).split(b"\0")[2].decode()
                say(stream, "235 in" if given == self.password else f"535 wrong password {given}")
            elif verb == b"RCPT" and any(one in line for one in self.refused_recipients):
                say(stream, "550 unknown")
            elif verb == b"DATA":
                say(stream, "354 go")
                mail = b""
                while (line := lines.readline()) and line != b".\r\n":
                    mail += line
                if self.data.startswith("250"):
                    self.mails.append(mail)
                say(stream, self.data)
            elif verb == b"QUIT":
                say(stream, "221 bye")
                return
            else:
                say(stream, "250 fine")


def say(stream: socket.socket, *lines: str) -> None:
    """Sends lines."""
    stream.sendall("".join(f"{line}\r\n" for line in lines).encode())


def received(stream: socket.socket) -> bytes:
    """Next bytes of a stream.

    Raises:
        ConnectionError: The stream has ended.
    """
    data = stream.recv(65536)
    if not data:
        raise ConnectionError
    return data

"""A network between two programs of this machine that breaks when it is told to."""

import contextlib
import enum
import socket
import struct
import threading
from types import TracebackType
from typing import Self

READ_BYTES = 1 << 16
LOOK_SECONDS = 0.02
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 s: a close sends a reset."""


class Fault(enum.Enum):
    """What the network does."""

    NONE = enum.auto()
    DELAY = enum.auto()
    """Everything comes 50 ms late."""
    TO_SERVER = enum.auto()
    """Nothing reaches the server, and the connection stands."""
    TO_CLIENT = enum.auto()
    """Nothing reaches the client, and the connection stands."""
    PARTITION = enum.auto()
    """Nothing gets through in either direction, and the connection stands."""
    SLOW = enum.auto()
    """Some KB a second."""
    RESET = enum.auto()
    """Connections are reset, and new ones too."""
    HALF_OPEN = enum.auto()
    """The server's end is reset; the client hears nothing of it."""


class FaultyNetwork:
    """Accepts connections and carries their bytes to a server of this machine.

    Attributes:
        port: Where it accepts, on loopback.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._fault = Fault.NONE
        self._stopped = threading.Event()
        self._sockets: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]

    def break_by(self, fault: Fault) -> None:
        """Sets what it does from now on, also to connections that are there."""
        self._fault = fault
        if fault in (Fault.RESET, Fault.HALF_OPEN):
            with self._lock:
                for client, server in self._sockets:
                    reset(server)
                    if fault is Fault.RESET:
                        reset(client)
                if fault is Fault.RESET:
                    self._sockets.clear()

    @property
    def connections(self) -> int:
        """Connections that were accepted since the last reset."""
        with self._lock:
            return len(self._sockets)

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                reset(client)
                continue
            with self._lock:
                self._sockets.append((client, server))
            for source, target, blocks in ((client, server, Fault.TO_SERVER), (server, client, Fault.TO_CLIENT)):
                source.settimeout(LOOK_SECONDS)
                thread = threading.Thread(target=self._carry, args=(source, target, {blocks, Fault.PARTITION}))
                self._threads.append(thread)
                thread.start()

    def _carry(self, source: socket.socket, target: socket.socket, blocks: set[Fault]) -> None:
        try:
            while not self._stopped.is_set():
                if self._fault in blocks:
                    self._stopped.wait(LOOK_SECONDS)
                    continue
                slow = self._fault is Fault.SLOW
                try:
                    data = source.recv(200 if slow else READ_BYTES)
                except TimeoutError:
                    continue
                if not data:
                    break
                if slow or self._fault is Fault.DELAY:
                    self._stopped.wait(0.05)
                while self._fault in blocks and not self._stopped.is_set():
                    self._stopped.wait(LOOK_SECONDS)
                target.sendall(data)
        except OSError:
            if self._fault is Fault.HALF_OPEN:
                return  # the other end hears nothing
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for pair in self._sockets:
                for each in pair:
                    reset(each)
        for thread in list(self._threads):
            thread.join()


def reset(connection: socket.socket) -> None:
    """Closes a connection by a reset, and wakes who reads from it."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()

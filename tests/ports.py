"""Ports that a test has to know before something listens there, or comes back to."""

import errno
import random
import socket


def free_port(*also: int) -> int:
    """A port that nothing uses now; nor are the ports above it in use that `also` counts.

    It is below the range that the system uses for outgoing connections and for port 0, so no other connection gets it
    before its use, or while a server that will start there again is down.
    """
    while True:
        port = random.randrange(12_000, 32_000)
        if all(is_free(host, port + above) for host in ("127.0.0.1", "::1") for above in (0, *also)):
            return port


def is_free(host: str, port: int) -> bool:
    """Whether a port can be bound; on an address that the machine does not have, no other process can either."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, port))
    except OSError as error:
        return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True

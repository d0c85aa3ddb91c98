"""Ports that a test has to know before something listens there, or comes back to."""

import errno
import random
import socket


def free_port(*also: int) -> int:
    """A port that nothing uses now, and `also` those so many above it.

    It lies below the range that the system takes for outgoing connections and for port 0: no other connection of the
    machine gets it between this call and its use, or while a server is down that starts again there.
    """
    while True:
        port = random.randrange(12_000, 32_000)
        if all(is_free(host, port + above) for host in ("127.0.0.1", "::1") for above in (0, *also)):
            return port


def is_free(host: str, port: int) -> bool:
    """Whether a port can be bound; on a host that the machine does not have, nobody else can either."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, port))
    except OSError as error:
        return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True

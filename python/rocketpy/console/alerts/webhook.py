"""Webhook: sends notifications as JSON to an HTTPS address that an administrator gave.

The address is resolved once, and the connection goes to the address that was checked. Link-local and metadata addresses
are refused, redirects are not followed, and a call takes at most 5 s. Names and figures are sent, never bodies.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rocketpy.base.clock import monotonic
from rocketpy.base.instant import datetime_of
from rocketpy.base.text import printable
from rocketpy.console.alerts.rules import CONDITIONS
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketpy.console.alerts.records import Notice

TIMEOUT_SECONDS = 5.0
"""Maximum time of one call, with the resolution of the name."""
MAX_URL = 2048
MAX_HEAD = 16 << 10
"""Maximum length of the head of an answer, in bytes."""
VISIBLE = re.compile(r"[\x21-\x7e]+")
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
REFUSED_ADDRESSES = [
    ipaddress.ip_network(one)
    for one in (
        "0.0.0.0/8",
        "100.100.100.200/32",  # metadata of Alibaba Cloud
        "168.63.129.16/32",  # metadata of Azure
        "169.254.0.0/16",
        "192.0.0.192/32",  # metadata of Oracle Cloud
        "224.0.0.0/3",
        "::/128",
        "fd00:ec2::/32",  # metadata of AWS
        "fd20:ce::254/128",  # metadata of Google Cloud
        "fe80::/10",
        "ff00::/8",
    )
]
NAT64 = ipaddress.ip_network("64:ff9b::/96")


class DeliveryError(Exception):
    """A delivery that failed; a later one may succeed."""


@dataclass(frozen=True, slots=True)
class Address:
    """Parts of the URL of a webhook."""

    is_tls: bool
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        """Host with the port, if it is not the default one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


def parsed(url: str) -> Address:
    """Parts of a URL.

    Raises:
        InvalidArgumentError: The URL is not one of a webhook: `https`, or `http` to this machine.
    """
    if len(url) > MAX_URL or not VISIBLE.fullmatch(url):
        raise InvalidArgumentError(f"URL must be 1 to {MAX_URL} visible ASCII characters: write others as %XX")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidArgumentError("URL of the webhook is not a URL", hint="write https://HOST/PATH") from None
    if parts.scheme not in {"https", "http"} or not host:
        raise InvalidArgumentError("URL of the webhook must begin with https://HOST")
    if "@" in parts.netloc:
        raise InvalidArgumentError("URL of the webhook must not have a user", hint="use a token in its path")
    if parts.fragment:
        raise InvalidArgumentError("URL of the webhook must not have a fragment")
    if parts.scheme == "http" and not is_this_machine(host):
        raise InvalidArgumentError("URL of the webhook must be https: http is for 127.0.0.1, [::1] and localhost")
    literal = literal_address(host)
    if literal is not None:
        check_address(literal)
    is_tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(is_tls, host, (443 if is_tls else 80) if port is None else port, path)


def is_this_machine(host: str) -> bool:
    """Whether a host is a loopback address or `localhost`."""
    literal = literal_address(host)
    return host == "localhost" if literal is None else literal.is_loopback


def literal_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Address that a host is written as; None for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def check_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """Refuses addresses that a webhook must not reach.

    Raises:
        InvalidArgumentError: The address is link-local, multicast, unspecified, or one of cloud metadata.
    """
    inner: ipaddress.IPv4Address | ipaddress.IPv6Address = address
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        inner = embedded or address
    if any(one in network for one in (address, inner) for network in REFUSED_ADDRESSES):
        raise InvalidArgumentError(f"webhook must not connect to address: {address}")


def shown_url(url: str) -> str:
    """URL for pages, logs and the audit: its path is a secret for many receivers.

    Examples:
        >>> shown_url("https://hooks.example.com/services/T0/B0/secret")
        'https://hooks.example.com/•••'
    """
    try:
        address = parsed(url)
    except InvalidArgumentError:
        return "•••"
    return f"http{'s' if address.is_tls else ''}://{address.host_header}/" + ("" if address.path == "/" else "•••")


def payload(notices: Sequence[Notice], cluster: str) -> dict[str, Any]:
    """JSON of a call. `text` is what chat programs show."""
    return {
        "version": 1,
        "source": "rocketpy console",
        "cluster": printable(cluster),
        "text": "\n".join(one.text for one in notices),
        "alerts": [as_json(one) for one in notices],
    }


def as_json(notice: Notice) -> dict[str, Any]:
    """JSON of one notification."""
    condition = CONDITIONS.get(notice.condition)
    return {
        "id": notice.id,
        "kind": notice.kind,
        "time": iso(notice.at_ms),
        "rule": notice.rule_name,
        "condition": notice.condition,
        condition.noun if condition else "subject": notice.subject,
        "value": notice.value,
        "threshold": notice.threshold,
        "unit": condition.unit if condition else "",
        "since": iso(notice.since_ms),
        "text": notice.text,
    }


def iso(at_ms: int) -> str | None:
    """Time in ISO 8601, UTC."""
    at = datetime_of(at_ms)
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Webhook:
    """Sink of one URL.

    Args:
        url: URL of the receiver.
        context: TLS settings; default: the authorities of the system.
        timeout: Maximum time of one call in seconds.

    Raises:
        InvalidArgumentError: The URL is refused.
    """

    def __init__(self, url: str, *, context: ssl.SSLContext | None = None, timeout: float = TIMEOUT_SECONDS) -> None:
        self._address = parsed(url)
        self._context, self._timeout = context, timeout

    def send(self, notices: Sequence[Notice], cluster: str) -> None:
        """Sends notifications in one call.

        Raises:
            DeliveryError: The receiver did not accept them.
        """
        deadline = monotonic() + self._timeout
        body = json.dumps(payload(notices, cluster)).encode()
        head = (
            f"POST {self._address.path} HTTP/1.1\r\nHost: {self._address.host_header}\r\n"
            f"User-Agent: rocketpy-console\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Accept: */*\r\nConnection: close\r\n\r\n"
        )
        try:
            with self._connected(deadline) as stream:
                send_all(stream, head.encode() + body, deadline)
                status = status_of(stream, deadline)
        except InvalidArgumentError as error:
            raise DeliveryError(str(error)) from None
        except ssl.SSLCertVerificationError as error:
            raise DeliveryError(f"certificate of the webhook is not valid: {error.verify_message}") from None
        except TimeoutError:
            raise DeliveryError(f"webhook did not answer in {self._timeout:g} s") from None
        except OSError as error:
            raise DeliveryError(f"cannot reach the webhook: {error.strerror or error}") from None
        if 300 <= status < 400:
            raise DeliveryError(f"webhook answered {status}: redirects are not followed")
        if not 200 <= status < 300:
            raise DeliveryError(f"webhook answered {status}")

    def _connected(self, deadline: float) -> socket.socket:
        found = resolved(self._address.host, self._address.port, deadline)
        for one in found:
            check_address(one)
            if not self._address.is_tls and not one.is_loopback:
                raise InvalidArgumentError(f"webhook must not use http to address: {one}")
        failure: OSError = OSError("name has no address")
        for one in found:
            try:
                stream = socket.create_connection((str(one), self._address.port), timeout=rest(deadline))
            except TimeoutError:
                raise
            except OSError as error:
                failure = error
                continue
            try:
                if not self._address.is_tls:
                    return stream
                context = self._context or ssl.create_default_context()
                return context.wrap_socket(stream, server_hostname=self._address.host)
            except BaseException:
                stream.close()
                raise
        raise failure


def resolved(host: str, port: int, deadline: float) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Addresses of a host. The resolver has no timeout of its own, so that it runs in a thread.

    Raises:
        OSError: The name has no address.
        TimeoutError: The resolver did not answer in time.
    """
    literal = literal_address(host)
    if literal is not None:
        return [literal]
    found: list[Any] = []

    def look_up() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)

    thread = threading.Thread(target=look_up, name="rocketpy-console-resolver", daemon=True)
    thread.start()
    thread.join(rest(deadline))
    if thread.is_alive():
        raise TimeoutError
    if isinstance(found[0], Exception):
        raise OSError(f"cannot resolve {host}")
    return list(dict.fromkeys(ipaddress.ip_address(one[4][0].partition("%")[0]) for one in found))


def rest(deadline: float) -> float:
    """Seconds until a deadline.

    Raises:
        TimeoutError: The deadline is over.
    """
    seconds = deadline - monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def send_all(stream: socket.socket, data: bytes, deadline: float) -> None:
    """Sends all bytes before a deadline."""
    view = memoryview(data)
    while view:
        stream.settimeout(rest(deadline))
        view = view[stream.send(view) :]


def status_of(stream: socket.socket, deadline: float) -> int:
    """Status of an HTTP answer; its body is not read.

    Raises:
        OSError: The answer is not HTTP.
    """
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MAX_HEAD:
        stream.settimeout(rest(deadline))
        data = stream.recv(4096)
        if not data:
            break
        head += data
    found = STATUS.match(head)
    if found is None:
        raise OSError("the answer is not HTTP" if head else "the connection was closed without an answer")
    return int(found[1])

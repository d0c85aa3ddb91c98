"""Settings of the console: everything that the command line gives."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from rocketpy.console.masking import MaskRule
    from rocketpy.security import Credentials, Tls

__all__ = ["PERMISSIONS", "ROLES", "Permission", "Role", "Settings", "is_loopback"]

Role: TypeAlias = Literal["reader", "operator", "admin"]
"""Role of a visitor."""
Permission: TypeAlias = Literal["none", "read", "messages", "send", "manage", "alerts", "admin"]
"""Permission that a route needs; `none` is open to everybody, such as the login page."""

ROLES: dict[Role, frozenset[Permission]] = {
    "reader": frozenset({"none", "read"}),
    "operator": frozenset({"none", "read", "messages", "send", "manage", "alerts"}),
    "admin": frozenset({"none", "read", "messages", "send", "manage", "alerts", "admin"}),
}
"""Permissions by role, from the weakest role to the strongest."""
PERMISSIONS: dict[Permission, str] = {
    "none": "open this page",
    "read": "read names and figures",
    "messages": "read messages",
    "send": "send messages",
    "manage": "change topics, groups and brokers",
    "alerts": "change alerts",
    "admin": "read users and the audit log",
}
"""Verb phrase of each permission, for texts."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listen address.

    Examples:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one console."""

    name_servers: str
    """`host:port` of each name server of the cluster."""
    host: str = "127.0.0.1"
    """Listen address."""
    port: int = 0
    """Listen port; 0 for a free one."""
    role: Role = "operator"
    """Role of every visitor without access control; maximum role with it."""
    credentials: Credentials | None = field(default=None, repr=False)
    """Identity of the collector. With it, visitors log in as users of the cluster."""
    tls: Tls | bool | None = None
    """TLS towards the cluster, as for the clients."""
    cert_file: Path | None = None
    """Certificate of the console; None for plain HTTP."""
    key_file: Path | None = None
    """Private key of that certificate."""
    public_hosts: tuple[str, ...] = ()
    """Further host names that browsers may write in the address."""
    data: Path | None = None
    """Folder of rules, history and audit; None keeps them in memory."""
    period: float = 5.0
    """Seconds between two reads of the brokers."""
    request_timeout: float = 1.5
    """Timeout of each request to the cluster, in seconds."""
    history_bytes: int = 32 << 20
    """Maximum memory of the history in bytes."""
    alerts: bool = True
    """Whether this console evaluates rules and notifies."""
    masks: tuple[MaskRule, ...] = ()
    """Rules that hide bodies, fields of JSON bodies and properties."""

    @property
    def has_login(self) -> bool:
        """Whether visitors log in as users of the cluster."""
        return self.credentials is not None

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the console. A public host name means a proxy that others reach."""
        return is_loopback(self.host) and all(is_loopback(name) for name in self.public_hosts)

    @property
    def hides_bodies(self) -> bool:
        """Whether bodies are hidden until a visitor asks for one: the default beyond loopback."""
        return not self.is_local

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host names of requests that the console answers."""
        own = () if self.host in {"0.0.0.0", "::", ""} else (self.host if ":" not in self.host else f"[{self.host}]",)
        return tuple(dict.fromkeys(("localhost", "127.0.0.1", "[::1]", *own, *self.public_hosts)))

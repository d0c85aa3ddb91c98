"""Quotas of a broker: limits of messages, bytes and connections, and their use."""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from rocketpy.base.names import check_type
from rocketpy.errors import InvalidArgumentError

__all__ = ["Quota", "QuotaUse"]

Scope = Literal["topic", "group", "address", "user"]
MAX_LIMIT = 10**12
"""Maximum limit."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of a topic, a group, a client address or a user at one broker; None does not limit.

    A limit holds for each name by itself. A broker saves up to one second of an unused limit for a burst. If several
    quotas have a name, only the narrowest counts: `orders`, then `ord*`, then `*`.

    Raises:
        InvalidArgumentError: The scope is unknown, no limit is given, a limit is not from 1 to 10^12, or `connections`
            limits anything but an address.

    Examples:
        >>> Quota("topic", "orders", send_messages=1000).limits
        {'send_messages': 1000}
        >>> Quota("topic", "orders")
        Traceback (most recent call last):
        ...
        rocketpy.errors.InvalidArgumentError: quota of topic orders has no limit; give one, such as send_messages=1000
    """

    scope: Scope
    name: str
    """A topic, a group, an IP address or a user. `ord*` names all with this beginning, `10.0.0.0/8` all
    addresses of a network, and `*` all names."""
    send_messages: int | None = None
    """Maximum number of messages that producers send, per second. The group of a send is its producer group."""
    send_bytes: int | None = None
    """Maximum number of bytes of bodies and properties that producers send, per second."""
    pull_messages: int | None = None
    """Maximum number of messages that consumers receive, per second."""
    pull_bytes: int | None = None
    """Maximum number of bytes that consumers receive, per second."""
    connections: int | None = None
    """Maximum number of open connections of an address. An IPv6 network of 64 bits counts as one address."""

    def __post_init__(self) -> None:
        check_type("name", self.name, str, "text")
        if self.scope not in get_args(Scope):
            raise InvalidArgumentError(f"scope must be topic, group, address or user: {self.scope}")
        if not self.limits:
            raise InvalidArgumentError(
                f"quota of {self.scope} {self.name} has no limit; give one, such as send_messages=1000"
            )
        for name, limit in self.limits.items():
            check_type(name, limit, int, "a whole number")
            if not 1 <= limit <= MAX_LIMIT:
                raise InvalidArgumentError(f"{name} must be 1 to {MAX_LIMIT}: {limit}")
        if self.connections is not None and self.scope != "address":
            raise InvalidArgumentError(f"connections must be a limit of an address, not of a {self.scope}")

    @property
    def limits(self) -> dict[str, int]:
        """The limits that are given, by name."""
        names = [field.name for field in fields(self) if field.name not in {"scope", "name"}]
        return {name: limit for name in names if (limit := getattr(self, name)) is not None}

    def _arguments(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """A quota and its use, of all its names together, since the start of the broker or the change of the quota's name.

    Rates are of the last whole second, and only of what the quota limits.
    """

    quota: Quota
    sent_messages_per_second: int
    sent_bytes_per_second: int
    pulled_messages_per_second: int
    pulled_bytes_per_second: int
    open_connections: int
    waiting: int
    """Number of requests that wait for the quota now."""
    throttled: int
    """Number of requests that exceeded the quota: they waited, or were rejected."""
    rejected: int
    """Number of requests that were rejected after their wait, and of connections that were closed at once."""

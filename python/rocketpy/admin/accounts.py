"""Users and policies: who may do what at brokers and name servers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy.base.names import check_type
from rocketpy.base.text import CONTROL, printable
from rocketpy.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["AccountServer", "Policy", "User"]

ACTIONS = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
"""Actions of policies."""
ACTION_HINT = f"the actions are {', '.join(ACTIONS)}"
RESOURCE = re.compile(r"\*|(Cluster|Topic|Group|Namespace):(.+)", re.IGNORECASE)
KINDS = ("Cluster", "Topic", "Group", "Namespace")
RESOURCE_HINT = "write Topic:orders, Topic:ord*, Topic:*, Group:billing, Cluster:*, or * for everything"
CUSTOM, DEFAULT = "Custom", "Default"
"""Types of policies."""


@dataclass(frozen=True, slots=True)
class AccountServer:
    """Broker or name server that a call about users and policies reaches."""

    name: str
    """Name of the broker, or `host:port` of the name server."""
    address: str
    """`host:port` of the master, or of the name server."""
    is_name_server: bool
    keeps_users: bool
    """Whether the server has users and policies. A name server without them answers everybody, as Apache's do."""


@dataclass(frozen=True, slots=True)
class User:
    """A user of a cluster. Servers never show its secret here."""

    name: str
    is_super: bool
    """Whether the user may do everything, without policies."""
    is_enabled: bool
    """Whether its requests are accepted."""
    is_rotating: bool
    """Whether it has two secrets: the former one is valid until the end of the rotation."""
    servers: tuple[str, ...]
    """Servers that have the user so: names of brokers, `host:port` of name servers."""
    differs_at: tuple[str, ...] = ()
    """Servers that lack the user, or have it otherwise."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a user may do, or may not do, with a resource.

    Super users need no policy; others are denied what no policy allows. Of several policies that match, the most
    specific resource counts: a type before `*`, a name before a prefix, a longer prefix before a shorter one; then a
    denial before a permission. Default policies count only if no other one matches.
    """

    user: str
    resource: str
    """`Topic:orders`, `Topic:ord*`, `Group:billing`, `Cluster:*`, or `*` for everything."""
    actions: tuple[str, ...]
    """Some of All, Pub, Sub, Create, Update, Delete, Get and List."""
    is_allowed: bool
    """Whether the actions are allowed; else they are denied."""
    sources: tuple[str, ...]
    """Addresses and networks of clients, such as `10.0.0.0/8`; empty: any address."""
    is_default: bool
    """Whether the policy counts only if no other one matches."""
    servers: tuple[str, ...]
    """Servers that have the policy so: names of brokers, `host:port` of name servers."""
    differs_at: tuple[str, ...] = ()
    """Servers that lack the policy, or have it otherwise."""


def user_name(given: str) -> str:
    """Checks the name of a user.

    Raises:
        InvalidArgumentError: It is empty or has control characters.
    """
    check_type("name", given, str, "text")
    if not given.strip():
        raise InvalidArgumentError("name of a user must not be empty")
    if CONTROL.search(given):
        raise InvalidArgumentError(f"name of a user must not contain control characters: {printable(given)}")
    return given


def secret(name: str, given: str) -> str:
    """Checks a new secret.

    Raises:
        InvalidArgumentError: It is blank, or has a line break.
    """
    check_type(name, given, str, "text")
    if not given.strip():
        raise InvalidArgumentError(f"{name} must not be blank")
    if CONTROL.search(given):
        raise InvalidArgumentError(f"{name} must not contain control characters, such as a line break at its end")
    return given


def resource_of(given: str) -> str:
    """Checks a resource and returns it as servers write it.

    Raises:
        InvalidArgumentError: It is not a resource.

    Examples:
        >>> resource_of("topic:orders"), resource_of("*")
        ('Topic:orders', '*')
    """
    check_type("resource", given, str, "text")
    found = RESOURCE.fullmatch(given)
    if found is None:
        raise InvalidArgumentError(f"not a resource: {given}", hint=RESOURCE_HINT)
    return given if found[1] is None else f"{found[1].capitalize()}:{found[2]}"


def actions_of(given: str | Iterable[str]) -> list[str]:
    """Checks actions and returns them as servers write them.

    Raises:
        InvalidArgumentError: There is none, or one is unknown.

    Examples:
        >>> actions_of("pub,sub"), actions_of(["Get"])
        (['Pub', 'Sub'], ['Get'])
    """
    words = [part.strip() for part in given.split(",")] if isinstance(given, str) else list(given)
    for word in words:
        check_type("an action", word, str, "text")
        if word.capitalize() not in ACTIONS:
            raise InvalidArgumentError(f"not an action: {word}", hint=ACTION_HINT)
    if not words:
        raise InvalidArgumentError("no action is given", hint=ACTION_HINT)
    return list(dict.fromkeys(word.capitalize() for word in words))


def decision_text(actions: Iterable[str], is_allowed: bool, sources: Iterable[str]) -> str:
    """A policy as one text.

    Examples:
        >>> decision_text(["Pub", "Sub"], True, ["10.0.0.0/8"])
        'allow Pub,Sub from 10.0.0.0/8'
    """
    places = ",".join(sources)
    return f"{'allow' if is_allowed else 'deny'} {','.join(actions)}" + (f" from {places}" if places else "")

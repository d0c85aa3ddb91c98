"""Users and policies as servers have them: read from each, compared, and described before and after a change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketpy.admin.accounts import AccountServer, Policy, User, decision_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketpy.errors import RocketPyError

Entry = tuple[tuple[str, ...], bool, tuple[str, ...]]
"""Actions, whether they are allowed, and addresses."""
Texts = tuple[str | None, str | None]
"""Description before and after a change; None for what does not exist."""
PolicyKey = tuple[str, bool, str]
"""User, whether the policy is a default, and resource."""


@dataclass(frozen=True, slots=True)
class Found:
    """Users and policies of one server, or the error of the read."""

    server: AccountServer
    users: dict[str, tuple[bool, bool, bool]] = field(default_factory=dict)
    """By name: whether super, enabled, rotating."""
    policies: dict[PolicyKey, Entry] = field(default_factory=dict)
    error: RocketPyError | None = None


def user_at(name: str, found: Iterable[Found]) -> User:
    """A user as the first server that has it says, compared with the others."""
    servers = list(found)
    first = next(one.users[name] for one in servers if name in one.users)
    same = tuple(one.server.name for one in servers if one.users.get(name) == first)
    others = tuple(one.server.name for one in servers if one.users.get(name) != first)
    return User(name, *first, same, others)


def policy_at(key: PolicyKey, found: Iterable[Found]) -> Policy:
    """A policy as the first server that has it says, compared with the others."""
    servers = list(found)
    first = next(one.policies[key] for one in servers if key in one.policies)
    same = tuple(one.server.name for one in servers if one.policies.get(key) == first)
    others = tuple(one.server.name for one in servers if one.policies.get(key) != first)
    (user, is_default, resource), (actions, is_allowed, sources) = key, first
    return Policy(user, resource, actions, is_allowed, sources, is_default, same, others)


def kind_text(is_super: bool, is_enabled: bool) -> str:
    """Kind and state of a user as one text."""
    return f"{'super' if is_super else 'normal'}, {'enabled' if is_enabled else 'disabled'}"


def kind_at(found: Found, name: str) -> str | None:
    """Kind and state of a user at a server; None where it is missing."""
    user = found.users.get(name)
    return None if user is None else kind_text(user[0], user[1])


def secrets_at(found: Found, name: str) -> str | None:
    """Number of secrets of a user at a server; None where it is missing."""
    user = found.users.get(name)
    return None if user is None else "two secrets" if user[2] else "one secret"


def entry_text(entry: Entry | None) -> str | None:
    """A policy as one text; None without one."""
    if entry is None:
        return None
    actions, is_allowed, sources = entry
    return decision_text(actions, is_allowed, sources)

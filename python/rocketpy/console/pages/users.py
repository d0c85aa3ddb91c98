"""Users and policies of the cluster: the list, and one user with its policies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy.admin.accounts import ACTIONS
from rocketpy.console.names import shown
from rocketpy.console.tables import Rows, page_of, sorted_rows
from rocketpy.console.view import PageNotFoundError
from rocketpy.errors import AccessDeniedError, NotSupportedError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response

    from rocketpy.admin.accounts import Policy, User
    from rocketpy.console.view import View


@dataclass(frozen=True, slots=True)
class UserRow:
    """One user of the list."""

    user: User
    policies: int
    """Number of its policies."""


@dataclass(frozen=True, slots=True)
class UserList:
    """Users of the cluster."""

    users: Rows[UserRow]
    why_none: str | None
    """Reason why users are off; None if they are on."""


@dataclass(frozen=True, slots=True)
class UserPage:
    """One user with its policies."""

    user: User
    policies: Rows[Policy]


COLUMNS: dict[str, Callable[[UserRow], object]] = {
    "name": lambda row: row.user.name,
    "policies": lambda row: row.policies,
    "type": lambda row: not row.user.is_super,
    "state": lambda row: row.user.is_enabled,
}
"""Value of a row by the name of a column."""


async def accounts_of(view: View) -> tuple[list[User], list[Policy], str | None]:
    """Users and policies, or the reason why the cluster has none.

    Raises:
        RocketPyError: The cluster does not answer, or denies the visitor the read.
    """
    try:
        users, policies = await asyncio.gather(view.admin.users(), view.admin.policies())
    except AccessDeniedError:
        raise
    except (NotSupportedError, RefusedError) as error:
        return [], [], str(error)
    return users, policies, None


async def index(view: View) -> Response:
    """The list of users."""
    users, policies, why = await accounts_of(view)
    query = view.query.get("q", "").strip()
    owners = [one.user for one in policies]
    rows = [UserRow(one, owners.count(one.name)) for one in users if query.lower() in one.name.lower()]
    order = view.query.get("order", "name")
    page = page_of(sorted_rows(rows, order, COLUMNS, lambda row: row.user.name), view.query)
    return view.answer("users.html", UserList(page, why), order=order, query=query, total=len(users))


async def user_of(view: View) -> tuple[User, list[Policy]]:
    """User of the path with its policies.

    Raises:
        PageNotFoundError: No server has it.
    """
    name = view.path["user"]
    try:
        user, policies = await asyncio.gather(view.admin.user(name), view.admin.policies(name))
    except AccessDeniedError:
        raise
    except (NotSupportedError, RefusedError) as error:
        raise PageNotFoundError(f"no such user: {shown(name)} ({error})") from None
    if user is None:
        raise PageNotFoundError(f"no such user: {shown(name)}")
    return user, policies


async def show(view: View) -> Response:
    """One user."""
    user, policies = await user_of(view)
    return view.answer("user.html", UserPage(user, page_of(policies, view.query)), actions=ACTIONS)

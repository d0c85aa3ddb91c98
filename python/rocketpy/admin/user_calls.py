"""Calls of `Admin` and `AsyncAdmin` about users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.admin.account_changes import AccountChanges
from rocketpy.admin.account_state import kind_at, kind_text, secrets_at, user_at
from rocketpy.admin.accounts import secret, user_name
from rocketpy.base.signature import shown_as
from rocketpy.errors import InvalidArgumentError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketpy.admin.account_state import Found, Texts
    from rocketpy.admin.accounts import AccountServer, User
    from rocketpy.admin.changes import SettingChange

__all__ = ["UserCalls"]

USER_EXISTS = 16
"""NO_PERMISSION, by which servers also refuse a user that exists."""
PASSWORD = "password"


@shown_as("AsyncAdmin")
class UserCalls(AccountChanges):
    """Calls about users, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

    async def users(self) -> list[User]:
        """Users of the cluster by name, each compared at all masters and name servers.

        Raises:
            AccessDeniedError: The caller may not read them: it needs `Get` on `Cluster`.
            NotSupportedError: A broker has no users, as Apache's before 5.3.

        Examples:
            >>> server = getfixture("closed_server")  # with authenticationEnabled=true
            >>> with server.admin() as admin:
            ...     _ = admin.create_user("users-doc", "secret of users-doc")
            ...     [found] = [one for one in admin.users() if one.name == "users-doc"]
            ...     _ = admin.delete_user("users-doc")
            ...     found.is_super, found.is_enabled, found.differs_at
            (False, True, ())
        """
        found = await self._read_accounts()
        names = sorted({name for one in found for name in one.users})
        return [user_at(name, found) for name in names]

    async def user(self, name: str) -> User | None:
        """A user by its name; None if no server has it.

        Args:
            name: The user.

        Raises:
            AccessDeniedError: The caller may not read users.
        """
        found = await self._read_accounts()
        return user_at(name, found) if any(name in one.users for one in found) else None

    async def create_user(
        self, name: str, password: str, *, is_super: bool = False, is_enabled: bool = True, dry_run: bool = False
    ) -> list[SettingChange]:
        """Creates a user at all masters and name servers. A server that has the user is left as it is.

        A call that failed at one server may be repeated, with the same password.

        Args:
            name: Name of the user, which clients give as `Credentials.access_key`.
            password: Its secret, which signs requests.
            is_super: Whether the user may do everything. Only a super user can create one.
            is_enabled: Whether its requests are accepted.
            dry_run: Whether to return the changes without making them.

        Returns:
            One change for each server that lacked the user. A server that failed has its error.

        Raises:
            RefusedError: Every server has a user of this name.
            AccessDeniedError: The caller may not read users: it needs `Get` and `Update` on `Cluster`.
            InvalidArgumentError: The name or the password is not usable.
        """
        user_name(name)
        secret(PASSWORD, password)
        after = kind_text(is_super, is_enabled)
        found = await self._accounts()
        known = [one for one in found if one.server.keeps_users]
        if known and all(name in one.users for one in known):
            hint = f"`rocketpy user update {name}` changes it"
            raise RefusedError(f"user exists: {name}", code=USER_EXISTS, hint=hint)

        async def create(server: AccountServer) -> None:
            arguments = password, None, None, is_super, is_enabled
            await self._ask(self._native_admin().put_user, server.address, name, True, *arguments)

        def texts(one: Found) -> Texts:
            return kind_at(one, name), after

        lacking = [one for one in found if name not in one.users]
        return await self._change_each(lacking, f"user {name}", texts, create, dry_run)

    async def update_user(
        self,
        name: str,
        *,
        password: str | None = None,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
        dry_run: bool = False,
    ) -> list[SettingChange]:
        """Changes a user at all masters and name servers. The call may be repeated.

        Args:
            name: The user.
            password: New secret. The former one ends at once: use `rotate_user` while clients run.
            is_super: Whether the user may do everything.
            is_enabled: Whether its requests are accepted.
            dry_run: Whether to return the changes without making them.

        Returns:
            One change for each server that differs; always with a password. A server that failed has its error.

        Raises:
            RefusedError: No server has such a user (code 3001).
            InvalidArgumentError: Nothing to change is given, or the password is blank.
        """
        if password is None and is_super is None and is_enabled is None:
            raise InvalidArgumentError("nothing to change", hint="give password, is_super or is_enabled")
        if password is not None:
            secret(PASSWORD, password)

        def texts(one: Found) -> Texts:
            was_super, was_enabled, _ = one.users.get(name, (False, True, False))
            after = kind_text(
                was_super if is_super is None else is_super, was_enabled if is_enabled is None else is_enabled
            )
            before = kind_text(was_super, was_enabled)
            return before, after if password is None else f"{after}, new password"

        return await self._update_user(name, texts, (password, None, None, is_super, is_enabled), dry_run)

    async def rotate_user(self, name: str, new_password: str, *, dry_run: bool = False) -> list[SettingChange]:
        """Gives a user a second secret: both are valid until `finish_rotation`. The call may be repeated.

        Args:
            name: The user.
            new_password: Second secret. A server where another rotation is open refuses it: see `finish_rotation`.
            dry_run: Whether to return the changes without making them.

        Raises:
            RefusedError: No server has such a user (code 3001).
            InvalidArgumentError: The password is blank.

        Examples:
            >>> server = getfixture("closed_server")  # with authenticationEnabled=true
            >>> with server.admin() as admin:
            ...     _ = admin.create_user("rotate-doc", "first secret")
            ...     _ = admin.rotate_user("rotate-doc", "second secret")  # now change the clients
            ...     admin.user("rotate-doc").is_rotating
            ...     _ = admin.finish_rotation("rotate-doc")
            ...     _ = admin.delete_user("rotate-doc")
            True
        """
        secret("new_password", new_password)

        def texts(one: Found) -> Texts:
            return secrets_at(one, name), "two secrets, the new one included"

        return await self._update_user(name, texts, (None, new_password, None, None, None), dry_run)

    async def finish_rotation(self, name: str, *, dry_run: bool = False) -> list[SettingChange]:
        """Ends the first secret of a user that has two. The call may be repeated.

        Args:
            name: The user. Its clients must use the new secret: requests with the former one fail from now on.
            dry_run: Whether to return the changes without making them.

        Returns:
            One change for each server where the user had two secrets. A server that failed has its error.

        Raises:
            RefusedError: No server has such a user (code 3001).
        """

        def texts(one: Found) -> Texts:
            return secrets_at(one, name), "one secret"

        return await self._update_user(name, texts, (None, None, False, None, None), dry_run)

    async def delete_user(self, name: str, *, dry_run: bool = False) -> list[SettingChange]:
        """Deletes a user with its policies at all masters and name servers. The call may be repeated.

        Args:
            name: The user.
            dry_run: Whether to return the changes without making them.

        Returns:
            One change for each server that had the user. A server that failed has its error.

        Raises:
            RefusedError: No server has such a user (code 3001).
        """

        def texts(one: Found) -> Texts:
            return kind_at(one, name), None

        async def delete(server: AccountServer) -> None:
            await self._ask(self._native_admin().delete_user, server.address, name)

        return await self._change_each(await self._having(name), f"user {name}", texts, delete, dry_run)

    async def _update_user(
        self,
        name: str,
        texts: Callable[[Found], Texts],
        arguments: tuple[str | None, str | None, bool | None, bool | None, bool | None],
        dry_run: bool,
    ) -> list[SettingChange]:
        async def update(server: AccountServer) -> None:
            await self._ask(self._native_admin().put_user, server.address, name, False, *arguments)

        return await self._change_each(await self._having(name), f"user {name}", texts, update, dry_run)

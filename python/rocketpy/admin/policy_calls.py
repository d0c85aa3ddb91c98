"""Calls of `Admin` and `AsyncAdmin` about policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.admin.account_state import entry_text, policy_at
from rocketpy.admin.accounts import CUSTOM, DEFAULT, actions_of, decision_text, resource_of
from rocketpy.admin.user_calls import UserCalls
from rocketpy.base.signature import shown_as

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketpy.admin.account_state import Found, PolicyKey, Texts
    from rocketpy.admin.accounts import AccountServer, Policy
    from rocketpy.admin.changes import SettingChange

__all__ = ["PolicyCalls"]


@shown_as("AsyncAdmin")
class PolicyCalls(UserCalls):
    """Calls about policies, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

    async def policies(self, user: str | None = None) -> list[Policy]:
        """Policies by user and resource, each compared at all masters and name servers.

        Args:
            user: Only those of this user; default: of all.

        Raises:
            AccessDeniedError: The caller may not read them: it needs `Get` on `Cluster`.

        Examples:
            >>> server = getfixture("closed_server")  # with authenticationEnabled=true
            >>> with server.admin() as admin:
            ...     _ = admin.create_user("policy-doc", "secret of policy-doc")
            ...     _ = admin.grant("policy-doc", "Topic:orders*", ["Pub", "Sub"], sources=["10.0.0.0/8"])
            ...     [one] = admin.policies("policy-doc")
            ...     _ = admin.delete_user("policy-doc")
            ...     one.resource, one.actions, one.is_allowed, one.sources
            ('Topic:orders*', ('Pub', 'Sub'), True, ('10.0.0.0/8',))
        """
        found = await self._read_accounts()
        keys = {key for one in found for key in one.policies if user in (None, key[0])}
        return [policy_at(key, found) for key in sorted(keys, key=lambda key: (key[0], key[1], key[2]))]

    async def grant(
        self,
        user: str,
        resource: str,
        actions: str | Iterable[str],
        *,
        is_allowed: bool = True,
        sources: Iterable[str] = (),
        is_default: bool = False,
        dry_run: bool = False,
    ) -> list[SettingChange]:
        """Sets what a user may do with a resource, at all masters and name servers. The call may be repeated.

        It replaces the policy of the user for the same resource.

        Args:
            user: The user.
            resource: `Topic:orders`, `Topic:ord*`, `Topic:*`, `Group:billing`, `Cluster:*`, or `*` for everything.
            actions: Some of All, Pub, Sub, Create, Update, Delete, Get and List.
            is_allowed: Whether the actions are allowed; else they are denied.
            sources: Addresses and networks of clients, such as `10.0.0.0/8`; default: any address.
            is_default: Whether the policy counts only if no other one matches.
            dry_run: Whether to return the changes without making them.

        Returns:
            One change for each server that differs. A server that failed has its error.

        Raises:
            RefusedError: No server has such a user (code 3001).
            InvalidArgumentError: The resource or an action is not usable.
        """
        resource, names = resource_of(resource), actions_of(actions)
        places = [sources] if isinstance(sources, str) else list(sources)
        after = decision_text(names, is_allowed, places)
        kind = DEFAULT if is_default else CUSTOM

        async def put(server: AccountServer) -> None:
            arguments = user, kind, resource, names, places, is_allowed
            await self._ask(self._native_admin().put_policy, server.address, *arguments)

        def texts(one: Found) -> Texts:
            return entry_text(one.policies.get((user, is_default, resource))), after

        subject = f"{user} on {resource}"
        return await self._change_each(await self._having(user), subject, texts, put, dry_run)

    async def revoke(
        self, user: str, resource: str | None = None, *, is_default: bool = False, dry_run: bool = False
    ) -> list[SettingChange]:
        """Removes the policy of a user for a resource, at all masters and name servers. The call may be repeated.

        Args:
            user: The user.
            resource: Resource of the policy, as `policies` shows it; None for all policies of the user.
            is_default: Whether the default policy of the resource is meant.
            dry_run: Whether to return the changes without making them.

        Returns:
            One change for each policy and server. A server that failed has its error.

        Raises:
            RefusedError: No server has such a user (code 3001).
        """
        wanted = None if resource is None else (user, is_default, resource_of(resource))
        changes: list[SettingChange] = []
        found = await self._having(user)
        keys = {key for one in found for key in one.policies if key[0] == user and wanted in (None, key)}
        for key in sorted(keys):
            kind = DEFAULT if key[1] else CUSTOM

            async def delete(server: AccountServer, kind: str = kind, resource: str = key[2]) -> None:
                await self._ask(self._native_admin().delete_policy, server.address, user, kind, resource)

            def texts(one: Found, key: PolicyKey = key) -> Texts:
                return entry_text(one.policies.get(key)), None

            having = [one for one in found if one.error is not None or key in one.policies]
            changes += await self._change_each(having, f"{user} on {key[2]}", texts, delete, dry_run)
        return changes

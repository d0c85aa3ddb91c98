"""Reads and changes at every server with users, shared by the calls about users and about policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.admin.account_state import Found
from rocketpy.admin.accounts import DEFAULT, AccountServer
from rocketpy.admin.changes import SettingChange
from rocketpy.admin.cluster import MASTER_ID
from rocketpy.admin.plan_calls import PlanCalls
from rocketpy.base.signature import shown_as
from rocketpy.errors import (
    AccessDeniedError,
    BrokerNotFoundError,
    NotSupportedError,
    RefusedError,
    RocketPyError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rocketpy.admin.account_state import Texts

__all__ = ["AccountChanges"]

UNKNOWN_USER = 3001
"""USER_NOT_EXIST."""
USERS_OFF = "users are off"
"""Part of the error of a server without authenticationEnabled."""
NO_MASTER = "no master of broker {name} is registered, its slaves keep the former users and policies"
NO_MASTER_HINT = "start the master or promote a slave (`rocketpy ha promote`), then repeat the change"
USERS_HINT = "`rocketpy user list` shows the users"


@shown_as("AsyncAdmin")
class AccountChanges(PlanCalls):
    """Reads compare all masters and name servers. Changes are made at each of them; slaves copy their master's.

    Slaves of an ASYNC_MASTER copy them within seconds, and use the former users and policies until then.
    """

    __slots__ = ()
    _name_servers: list[str]

    async def account_servers(self) -> list[AccountServer]:
        """Servers whose users and policies the other calls read and change: all masters, then all name servers.

        A server that does not answer counts as one with users.
        """
        return [one.server for one in await self._accounts() if not isinstance(one.error, BrokerNotFoundError)]

    async def _accounts(self) -> list[Found]:
        """Users and policies of every master that any name server knows, then of every name server.

        A name server that does not name its brokers has its error: a master that only it knows is left out. So has a
        broker name of which only slaves are registered: they do not take changes, and keep what they have.

        Raises:
            RocketPyError: No name server answers.
        """
        answers = dict(zip(self._name_servers, await self._each(self._masters_at, self._name_servers), strict=True))
        failed = {address: one for address, one in answers.items() if isinstance(one, RocketPyError)}
        if len(failed) == len(answers):
            raise next(iter(failed.values()))
        known = sorted({place for one in answers.values() if not isinstance(one, RocketPyError) for place in one})
        places = [AccountServer(name, address, False, True) for name, address in known if address]
        mastered = {one.name for one in places}
        lost = [AccountServer(name, "", False, True) for name, address in known if not (address or name in mastered)]
        places += [AccountServer(address, address, True, True) for address in answers if address not in failed]
        silent = [Found(AccountServer(one, one, True, True), error=error) for one, error in failed.items()]
        for one in lost:
            text = NO_MASTER.format(name=one.name)
            silent.append(Found(one, error=BrokerNotFoundError(text, retryable=True, hint=NO_MASTER_HINT)))
        return [*await self._each(self._found_at, places), *silent]

    async def _masters_at(self, name_server: str) -> list[tuple[str, str]] | RocketPyError:
        """Names of the brokers that a name server knows with the addresses of their masters, or its error.

        A name without a master has no address.
        """
        try:
            known = await self._ask(self._native_admin().brokers_at, name_server)
        except RocketPyError as error:
            return error
        return [(one.broker_name, one.addresses.get(MASTER_ID, "")) for one in known]

    async def _found_at(self, server: AccountServer) -> Found:
        native = self._native_admin()
        try:
            users = await self._ask(native.users, server.address)
            policies = await self._ask(native.policies, server.address)
        except RocketPyError as error:
            if server.is_name_server and (isinstance(error, NotSupportedError) or USERS_OFF in str(error)):
                return Found(AccountServer(server.name, server.address, True, False))
            return Found(server, error=error)
        return Found(
            server,
            {name: (is_super, is_enabled, is_rotating) for name, is_super, is_enabled, is_rotating in users},
            {
                (user, kind.lower() == DEFAULT.lower(), resource): (tuple(actions), is_allowed, tuple(sources))
                for user, kind, resource, (actions, sources, is_allowed) in policies
            },
        )

    async def _read_accounts(self) -> list[Found]:
        """All servers with users; an error of one is raised, because an answer without it looks complete.

        Broker names without a master are left out: reads compare masters.
        """
        known = await self._accounts()
        found = [one for one in known if one.server.keeps_users and not isinstance(one.error, BrokerNotFoundError)]
        failed = next((one.error for one in found if one.error is not None), None)
        if failed is not None:
            raise failed
        return found

    async def _having(self, name: str) -> list[Found]:
        """Servers that have a user, or did not answer.

        Raises:
            RefusedError: All answered, and none has it.
        """
        found = [one for one in await self._accounts() if one.server.keeps_users]
        having = [one for one in found if name in one.users or one.error is not None]
        if all(one.error is not None for one in having):
            failed = next((one.error for one in having if one.error is not None), None)
            raise failed or RefusedError(f"no such user: {name}", code=UNKNOWN_USER, hint=USERS_HINT)
        return having

    async def _change_each(
        self,
        places: Iterable[Found],
        setting: str,
        texts: Callable[[Found], Texts],
        change: Callable[[AccountServer], Awaitable[None]],
        dry_run: bool,
    ) -> list[SettingChange]:
        """Makes one change at each server that differs, one after the other.

        Raises:
            RocketPyError: Every server failed: the first error that may have been applied, else the first one.
        """
        changes: list[SettingChange] = []
        failed: list[RocketPyError] = []
        for one in places:
            if not one.server.keeps_users:
                continue
            error = one.error
            before, after = (None, None) if error is not None else texts(one)
            if error is None and before == after:
                continue
            if error is None and not dry_run:
                try:
                    await change(one.server)
                except RocketPyError as caught:
                    confirmed = len(changes) > len(failed)
                    error = None if await self._is_done(one.server, caught, texts, confirmed) else caught
            if error is not None:
                failed.append(error)
            changes.append(
                SettingChange(one.server.name, setting, before, after, None if error is None else str(error))
            )
        if failed and len(failed) == len(changes):
            raise next((error for error in failed if error.may_have_been_applied), failed[0])
        return changes

    async def _is_done(
        self, server: AccountServer, error: RocketPyError, texts: Callable[[Found], Texts], confirmed: bool
    ) -> bool:
        """Whether a refused change is there already. A name server and a broker of one process share their users.

        A change of the caller's own user may end its access. A server that answered before, and denies even the read
        once another server has `confirmed` the change, shares the users of that server.
        """
        if not isinstance(error, RefusedError):
            return False
        now = await self._found_at(server)
        if now.error is not None:
            return confirmed and isinstance(now.error, AccessDeniedError)
        before, after = texts(now)
        return before == after

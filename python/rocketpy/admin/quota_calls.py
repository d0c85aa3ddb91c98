"""Quota calls of `Admin` and `AsyncAdmin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.admin.config_calls import ConfigCalls
from rocketpy.base.names import check_type

if TYPE_CHECKING:
    from rocketpy.admin.quotas import Quota, QuotaUse, Scope

__all__ = ["QuotaCalls"]


class QuotaCalls(ConfigCalls):
    """Calls about the quotas of a broker. Quotas are of one broker, and of its slaves, which copy them."""

    __slots__ = ()

    async def quotas(self, address: str) -> list[QuotaUse]:
        """Quotas of one broker with their use, by scope and name.

        Args:
            address: Name or `host:port` of the broker; see `brokers`.

        Raises:
            NotSupportedError: The broker does not support the request, as Apache's.

        Examples:
            >>> from rocketpy import Quota
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     address = admin.brokers()[0].addresses[0]
            ...     admin.set_quota(address, Quota("topic", "quota-doc", send_messages=1000))
            ...     use = admin.quotas(address)[0]
            ...     admin.remove_quota(address, "topic", "quota-doc")
            ...     use.quota.send_messages, use.throttled
            (1000, 0)
        """
        return await self._ask(self._native_admin().quotas, address)

    async def set_quota(self, address: str, quota: Quota) -> None:
        """Sets a quota at one broker, or replaces that of its scope and name. It counts at once, and after restarts.

        Args:
            address: Name or `host:port` of a master; see `brokers`. Its slaves copy the quota.
            quota: The limits. Limits that are None are removed from an earlier quota of the name.

        Raises:
            RefusedError: The name is invalid or belongs to the system, the broker is a slave, or it has 1000 quotas. A
                retry is safe.
        """
        # Not at the top: the native module loads the class, if it is needed at all.
        from rocketpy.admin.quotas import Quota

        check_type("quota", quota, Quota, "a Quota")
        await self._ask(self._native_admin().set_quota, address, *quota._arguments())

    async def remove_quota(self, address: str, scope: Scope, name: str) -> None:
        """Removes a quota from one broker. Requests that wait for it continue at once.

        Args:
            address: Name or `host:port` of a master; see `brokers`.
            scope: `topic`, `group`, `address` or `user`.
            name: Name of the quota, as `quotas` shows it.

        Raises:
            RefusedError: The broker has no such quota, or is a slave.
        """
        await self._ask(self._native_admin().remove_quota, address, scope, name)

"""Calls of `Admin` and `AsyncAdmin` that show settings, and changes before they are made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rocketpy.admin.answers import Answers, MissingBroker
from rocketpy.admin.changes import GROUP_KEYS
from rocketpy.admin.cluster import GroupBroker
from rocketpy.admin.quota_calls import QuotaCalls
from rocketpy.base.signature import shown_as
from rocketpy.config import Start
from rocketpy.errors import RequestTimeoutError

if TYPE_CHECKING:
    from datetime import datetime

    from rocketpy.admin.changes import OffsetChange

__all__ = ["PlanCalls"]

DEFAULTS = {
    "enabled": True,
    "broadcast": True,
    "retries": 16,
    "retry_queues": 1,
    "notify_members": True,
    "ordered": False,
    "timeout_minutes": 15,
}
"""Settings that a broker leaves out, as Apache's older ones do."""


@shown_as("AsyncAdmin")
class PlanCalls(QuotaCalls):
    """Calls that change nothing, written once for threads and event loops: see `AdminCalls`."""

    __slots__ = ()

    async def group_settings(self, group: str, *, partial: bool = False) -> Answers[GroupBroker]:
        """Settings of a consumer group at each broker that has it, sorted by broker name.

        Args:
            group: Name of the group.
            partial: As for `groups`.

        Raises:
            GroupNotFoundError: The group does not exist.
            RequestTimeoutError: A broker does not answer; see `partial`.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_group("settings-doc")
            ...     [(one.enabled, one.retries) for one in admin.group_settings("settings-doc")]
            [(True, 16)]
        """
        found: list[GroupBroker] = []
        missing: list[MissingBroker] = []
        for broker_name, address, text, unknown in await self._ask(self._native_admin().group_configs, group):
            if unknown is not None:
                missing.append(MissingBroker(broker_name, address, unknown, None))
            elif text is not None:
                config = json.loads(text)
                values = {name: config.get(key, DEFAULTS[name]) for name, key in GROUP_KEYS.items()}
                found.append(GroupBroker(broker_name, address, **values))
        if not found:
            await self.describe_group(group)  # raises the error for an unknown group, or of a broker
        if missing and not partial:
            text = f"settings of group {group} at {missing[0].broker_name} are unknown: {missing[0].error}"
            raise RequestTimeoutError(text, retryable=True)
        return Answers(found, missing)

    async def plan_reset(
        self, group: str, topic: str, to: Start | str | datetime, *, force: bool = False
    ) -> list[OffsetChange]:
        """Offsets that `reset_offsets` would store, by queue, with those stored now. Nothing is changed.

        Args:
            group: Name of the group.
            topic: The topic.
            to: As for `reset_offsets`.
            force: Whether to plan while the group has live members.

        Raises:
            GroupConflictError: The group has live members; see `force`.
            GroupNotFoundError: The group does not exist: see `create_group`.
            TopicNotFoundError: No name server knows the topic.

        Examples:
            >>> server = getfixture("rocketpy_server")
            >>> with server.admin() as admin:
            ...     admin.create_topic("plan-doc", queues=1)
            ...     admin.create_group("plan-doc")
            ...     [(one.before, one.after) for one in admin.plan_reset("plan-doc", "plan-doc", "latest")]
            ...     admin.committed_offset("plan-doc", admin.queues("plan-doc")[0])
            [(None, 0)]
        """
        start = Start.of(to)
        queues = await self._ask(self._native_admin().queues, topic)
        return [await self.set_offset(group, one, start, force=force, dry_run=True) for one in queues]

"""Readings of a cluster for the rules: values by condition and subject, made from a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketpy.console.alerts.rules import CONDITIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketpy.console.snapshot import BrokerRow, Snapshot

AWAY_SECONDS = 300
"""Time after which a broker that does not answer counts as removed, in seconds."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Values that the rules compare, read at one time.

    The value of `dead_letters` is the number of all dead letters of a group, that of `broker_gone` is 1 for a broker
    that does not answer, else 0.
    """

    at_ms: int
    values: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict[str, "Mapping[str, float | None]"])
    """Values by condition and subject. None is unknown now: an alert then stays as it is."""
    complete: frozenset[str] = frozenset()
    """Conditions whose subjects are all listed: a missing subject no longer exists."""
    minimums: frozenset[str] = frozenset()
    """Conditions whose values may be larger: a value below a threshold is unknown then."""

    def of(self, condition: str) -> Mapping[str, float | None]:
        """Values of a condition by subject."""
        return self.values.get(condition, {})


def readings_of(snapshot: Snapshot) -> Readings:
    """Readings of a snapshot."""
    failed = {gap.part for gap in snapshot.gaps}
    has_groups = snapshot.groups_at is not None and "groups" not in failed
    values: dict[str, dict[str, float | None]] = {key: {} for key in CONDITIONS}
    for group in snapshot.groups.values() if snapshot.groups_at is not None else ():
        is_known = has_groups and group.error is None and group.lag is not None
        lag, members = (group.lag, group.members) if is_known else (None, None)
        values["lag"][group.name] = lag
        values["behind"][group.name] = 0.0 if lag == 0 else None if lag is None else group.behind
        values["no_members"][group.name] = None if members is None else 0 if members else lag
        values["dead_letters"][group.name] = group.dead_letters if is_known else None
    for row in snapshot.brokers:
        name = broker_subject(row)
        slaves = None if row.ha is None or row.is_down else row.ha.slaves
        values["broker_gone"][name] = float(row.is_down)
        values["disk"][name] = None if row.is_down or row.status.disk_used is None else row.status.disk_used * 100
        if row.is_master:
            values["replication_bytes"][name] = (
                None if slaves is None else max((one.lag_bytes for one in slaves), default=0)
            )
            values["replication_seconds"][name] = (
                None if slaves is None else max((one.lag_seconds or 0.0 for one in slaves), default=0.0)
            )
    groups = {key for key, one in CONDITIONS.items() if one.noun == "group"}
    is_partial = any(is_away(row, snapshot.made_at) for row in snapshot.masters)
    if is_partial:  # the dead letters of that broker would look new when it answers again
        values["dead_letters"] = dict.fromkeys(values["dead_letters"], None)
    complete = set[str]() if is_partial or not has_groups else set(groups)
    if snapshot.brokers_at is not None and "brokers" not in failed:
        complete |= {key for key, one in CONDITIONS.items() if one.noun == "broker"}
    return Readings(
        round(snapshot.made_at * 1000), values, frozenset(complete), frozenset(groups if is_partial else ())
    )


def is_away(row: BrokerRow, now: float) -> bool:
    """Whether a broker stopped answering lately. Name servers forget one that is stopped within minutes."""
    return row.failed_at is not None and now - row.failed_at < AWAY_SECONDS


def broker_subject(row: BrokerRow) -> str:
    """Name of a broker in rules: that of its master, and with its id for a slave."""
    return row.name if row.is_master else f"{row.name}:{row.status.broker_id}"

"""What needs attention, in words: brokers, replication, disks, groups and dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy.console.names import count_text, percent_text, shown, span_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from rocketpy.console.snapshot import GroupRow, Snapshot
    from rocketpy.console.view import View

__all__ = ["Problem", "problems"]

MAX_PROBLEMS = 10
DISK_WARN, DISK_BAD = 0.75, 0.9
BEHIND_SECONDS = 60.0
"""Delay of a queue from which its group needs attention."""
IDLE_LAG = 1000
"""Lag without members from which a group needs attention, however young."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that needs attention."""

    tone: Literal["bad", "warn"]
    text: str
    link: tuple[str, ...]
    """Parts of the path of the page with details; empty for none."""
    weight: float = 0.0
    """Order within its tone."""


def problems(view: View) -> list[Problem]:
    """Problems of the newest snapshot, the worst first, at most 10."""
    return found_in(view.snapshot)[:MAX_PROBLEMS]


def found_in(state: Snapshot) -> list[Problem]:
    """All problems of a snapshot, the worst first."""
    found = [*of_gaps(state), *of_brokers(state), *of_disks(state), *of_groups(state), *of_dead_letters(state)]
    return sorted(found, key=lambda one: (one.tone != "bad", -one.weight, one.text))


def of_gaps(state: Snapshot) -> Iterator[Problem]:
    """Parts of the cluster that cannot be read."""
    for gap in state.gaps:
        what = "No name server answers" if gap.part == "brokers" else f"The {gap.part} cannot be read"
        yield Problem("bad", f"{what}: {shown(gap.error, 200)}.", (), 4)


def of_brokers(state: Snapshot) -> Iterator[Problem]:
    """Brokers that do not answer, fail their own checks, or have lost their slaves."""
    pairs = {row.name for row in state.brokers if not row.is_master}
    for row in state.brokers:
        name = shown(row.name)
        if row.is_down:
            role = "" if row.is_master else f" (slave {row.status.broker_id})"
            yield Problem("bad", f"Broker {name}{role} does not answer: {row.error}.", ("brokers", row.name), 3)
            continue
        for text in row.status.problems:
            yield Problem("warn", f"Broker {name}: {shown(text)}.", ("brokers", row.name), 2)
        if row.is_master and row.ha is not None and pairs and not row.ha.slaves:
            yield Problem("bad", f"Broker {name} has no slave.", ("brokers", row.name), 2)
        for slave in row.ha.slaves if row.is_master and row.ha is not None else ():
            if not slave.is_near:
                behind = "" if slave.lag_seconds is None else f", {span_text(slave.lag_seconds)}"
                text = f"Slave {slave.address} of {name} is {count_text(slave.lag_bytes)} bytes behind{behind}."
                yield Problem("warn", text, ("brokers", row.name), 1)


def of_disks(state: Snapshot) -> Iterator[Problem]:
    """Disks that fill up."""
    for row in state.brokers:
        used = row.status.disk_used
        if used is not None and used >= DISK_WARN and not row.is_down:
            tone: Literal["bad", "warn"] = "bad" if used >= DISK_BAD else "warn"
            yield Problem(tone, f"Disk of {shown(row.name)} is {percent_text(used)} full.", ("brokers", row.name), used)


def of_groups(state: Snapshot) -> Iterator[Problem]:
    """Groups that are behind, or have lag and no members."""
    for row in state.groups.values():
        if row.error is not None:
            yield Problem("warn", f"Group {shown(row.name)} is unknown: {shown(row.error, 200)}.", ("groups", row.name))
        elif not row.lag:
            continue
        elif row.members == 0 and (row.lag >= IDLE_LAG or (row.behind or 0) >= BEHIND_SECONDS):
            text = f"Group {shown(row.name)} has no members and {count_text(row.lag)} messages of lag."
            yield Problem("warn", text, ("groups", row.name), row.lag)
        elif row.members and (row.behind or 0) >= BEHIND_SECONDS:
            yield Problem("warn", f"Group {shown(row.name)} is {where(row)}.", ("groups", row.name), row.behind or 0)


def where(row: GroupRow) -> str:
    """How far a group is behind, and on which topic most."""
    late = {name: one for name, one in row.by_topic.items() if one.behind is not None}
    if not late:
        return f"{span_text(row.behind)} behind"
    topic, worst = max(late.items(), key=lambda item: item[1].behind or 0)
    more = f" and {len(late) - 1} more topics" if len(late) > 1 else ""
    queues = f"{worst.queues_behind} of {worst.queues} queues"
    return f"{span_text(worst.behind)} behind on {queues} of {shown(topic)}{more}"


def of_dead_letters(state: Snapshot) -> Iterator[Problem]:
    """Dead letters, as one line."""
    late = [row for row in state.groups.values() if row.dead_letters]
    if len(late) == 1:
        row = late[0]
        noun = "dead letter" if row.dead_letters == 1 else "dead letters"
        yield Problem(
            "warn", f"Group {shown(row.name)} has {count_text(row.dead_letters)} {noun}.", ("dead-letters", row.name)
        )
    elif late:
        total = sum(row.dead_letters or 0 for row in late)
        yield Problem("warn", f"{len(late)} groups have {count_text(total)} dead letters.", ("dead-letters",))

"""Brokers: the list, and one broker with its figures, members and slaves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketpy.base.instant import datetime_of
from rocketpy.commandline.secrets import masked
from rocketpy.console.audit import HIDDEN, is_secret
from rocketpy.console.names import byte_text, count_text, shown
from rocketpy.console.series import series_answer
from rocketpy.console.tables import sorted_rows
from rocketpy.console.view import PageNotFoundError
from rocketpy.errors import RocketPyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from starlette.responses import Response

    from rocketpy.admin.replication import HaStatus
    from rocketpy.console.snapshot import BrokerRow
    from rocketpy.console.view import View

MAX_FIGURES = 500
"""Maximum number of figures of one broker on its page."""


@dataclass(frozen=True, slots=True)
class Member:
    """One broker process of a name."""

    id: int
    role: str
    """`master` or `slave 1`."""
    address: str
    version: str
    in_per_second: float | None
    out_per_second: float | None
    disk: float | None
    is_down: bool
    error: str | None
    read_at: float | None
    """Time of the figures, in seconds since 1970."""
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerItem:
    """One broker name of the list."""

    name: str
    members: tuple[Member, ...]
    in_per_second: float | None
    out_per_second: float | None
    disk: float | None
    slaves: int | None
    """Number of connected slaves; None if unknown."""
    lag_bytes: int | None
    """Lag of the slowest slave."""
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class BrokerPage:
    """One broker name, with what its chosen member says now."""

    name: str
    members: tuple[Member, ...]
    chosen: Member
    facts: tuple[tuple[str, str], ...]
    """Figures with their labels."""
    figures: Mapping[str, str | float | bool]
    """All figures by Apache's names, without secrets."""
    ha: HaStatus | None
    error: str | None
    """Reason why the chosen member did not answer."""


COLUMNS: dict[str, Callable[[BrokerItem], object]] = {
    "name": lambda row: row.name,
    "in": lambda row: row.in_per_second,
    "out": lambda row: row.out_per_second,
    "disk": lambda row: row.disk,
    "lag": lambda row: row.lag_bytes,
}
"""Value of a row by the name of a column."""


def member_of(row: BrokerRow) -> Member:
    """Member of a row of the snapshot."""
    status = row.status
    own = f"rocketpy {status.rocketpy_version}" if status.rocketpy_version else ""
    return Member(
        status.broker_id,
        "master" if row.is_master else f"slave {status.broker_id}",
        status.address,
        own or (f"Apache {status.version}" if status.version else ""),
        status.in_per_second,
        status.out_per_second,
        status.disk_used,
        row.is_down,
        row.error if row.is_down else None,
        row.read_at,
        () if row.is_down else status.problems,
    )


def item_of(name: str, rows: list[BrokerRow]) -> BrokerItem:
    """Line of a broker name."""
    up = [row for row in rows if not row.is_down]
    disks = [row.status.disk_used for row in up if row.status.disk_used is not None]
    outs = [row.status.out_per_second for row in up if row.status.out_per_second is not None]
    ha = next((row.ha for row in rows if row.is_master), None)
    slaves = None if ha is None else ha.slaves
    seconds = [one.lag_seconds for one in slaves or () if one.lag_seconds is not None]
    return BrokerItem(
        name,
        tuple(member_of(row) for row in rows),
        next((row.status.in_per_second for row in up if row.is_master), None),
        sum(outs) if outs else None,
        max(disks, default=None),
        None if slaves is None else len(slaves),
        max((one.lag_bytes for one in slaves), default=None) if slaves else None,
        max(seconds, default=None),
    )


def rows_by_name(view: View) -> dict[str, list[BrokerRow]]:
    """Rows of the snapshot by broker name."""
    found: dict[str, list[BrokerRow]] = {}
    for row in view.snapshot.brokers:
        found.setdefault(row.name, []).append(row)
    return found


def members_of(view: View) -> list[Member]:
    """Members of the broker of the path.

    Raises:
        PageNotFoundError: No such broker is known.
    """
    name = view.path["broker"]
    rows = rows_by_name(view).get(name)
    if not rows:
        raise PageNotFoundError(f"no such broker: {shown(name)}")
    return [member_of(row) for row in rows]


def chosen_member(view: View) -> Member:
    """Member that the query chooses; default: the master. Its address is the one the name servers report.

    Raises:
        PageNotFoundError: No such broker or member is known.
    """
    members = members_of(view)
    wanted = view.query.get("id")
    if wanted is None:
        return members[0]
    found = next((one for one in members if str(one.id) == wanted), None)
    if found is None:
        raise PageNotFoundError(f"no such member of broker {shown(view.path['broker'])}: {shown(wanted, 20)}")
    return found


def tabs_of(view: View, current: str) -> list[tuple[str, str, bool]]:
    """Tabs of the pages of one broker."""
    name = view.path["broker"]
    parts = [("Figures", ""), ("Configuration", "config"), ("Quotas", "quotas"), ("Role", "role")]
    return [
        (title, view.url("brokers", name, *([part] if part else []), id=view.query.get("id")), part == current)
        for title, part in parts
    ]


async def index(view: View) -> Response:
    """The list of brokers."""
    items = [item_of(name, rows) for name, rows in rows_by_name(view).items()]
    order = view.query.get("order", "name")
    rows = tuple(sorted_rows(items, order, COLUMNS, lambda row: row.name))
    return view.answer("brokers.html", rows, order=order, read_at=view.snapshot.brokers_at)


async def show(view: View) -> Response:
    """One broker."""
    members, chosen = members_of(view), chosen_member(view)
    figures: dict[str, str | float] = {}
    ha: HaStatus | None = None
    error: str | None = None
    try:
        figures, ha = await asyncio.gather(view.admin.broker_figures(chosen.address), ha_of(view, chosen.address))
    except RocketPyError as caught:
        error = str(caught)
    shown_figures = without_secrets(dict(sorted(figures.items())[:MAX_FIGURES]))
    data = BrokerPage(view.path["broker"], tuple(members), chosen, tuple(facts_of(figures)), shown_figures, ha, error)
    return view.answer("broker.html", data, tabs=tabs_of(view, ""))


async def ha_of(view: View, address: str) -> HaStatus | None:
    """Replication of a member; None if the broker does not report it."""
    try:
        return await view.admin.ha_status(address)
    except RocketPyError:
        return None


async def series(view: View) -> Response:
    """Figures of the charts of one member."""
    member, name = chosen_member(view), view.path["broker"]
    key = ("broker", name, str(member.id))
    return series_answer(view, f"{shown(name)}: in and out", {"in": (*key, "in"), "out": (*key, "out")})


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by name, those of secrets hidden."""
    return {name: HIDDEN if is_secret(name) and one else masked(one) for name, one in values.items()}


def facts_of(figures: Mapping[str, str | float]) -> list[tuple[str, str]]:
    """Figures that people look for, with labels and units; those that are not reported are left out."""
    found: list[tuple[str, str]] = []

    def number(key: str) -> float | None:
        value = figures.get(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def add(label: str, value: float | None, text: Callable[[Any], str]) -> None:
        if value is not None and value >= 0:
            found.append((label, text(value)))

    booted = datetime_of(int(number("bootTimestamp") or 0) or None)
    if booted is not None:
        found.append(("Started", started_text(booted)))
    begin, end = number("commitLogMinOffset"), number("commitLogMaxOffset")
    add("Commit log", None if begin is None or end is None else end - begin, byte_text)
    add("Stored today", number("msgPutTotalTodayNow"), count_text)
    add("Delivered today", number("msgGetTotalTodayNow"), count_text)
    add("Dispatch behind", number("dispatchBehindBytes"), byte_text)
    add("Not flushed", number("remainHowManyDataToFlush"), byte_text)
    add("Delayed messages waiting", number("delayedWaiting"), count_text)
    add("Timers waiting", number("timersWaiting"), count_text)
    add("Open transactions", number("halfMessagesWaiting"), count_text)
    add("Requests waiting to send", number("sendThreadPoolQueueSize"), count_text)
    add("Memory for peers", number("peerMemoryBytes"), byte_text)
    return found


def started_text(booted: datetime) -> str:
    """Start time with the zone."""
    return booted.isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")

"""Frame of every page: side bar with counts, bars about parts that do not answer, keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rocketpy.console.names import count_text, shown
from rocketpy.console.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketpy.console.settings import Permission
    from rocketpy.console.snapshot import Snapshot
    from rocketpy.console.view import View

__all__ = ["Bar", "NavItem", "bars", "nav"]


@dataclass(frozen=True, slots=True)
class NavItem:
    """One line of the side bar."""

    title: str
    url: str
    key: str
    """Second key after `g`; empty for none."""
    count: str
    is_current: bool
    needs_attention: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A line above the page about a part that cannot be read."""

    text: str
    since: float | None
    """Time since when, in seconds since 1970."""
    read_at: float | None
    """Time of the figures that pages still show; None without figures."""


ITEMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("Overview", (), "o"),
    ("Topics", ("topics",), "t"),
    ("Groups", ("groups",), "r"),
    ("Dead letters", ("dead-letters",), "d"),
    ("Waiting", ("waiting",), "w"),
    ("Brokers", ("brokers",), "b"),
    ("Alerts", ("alerts",), "a"),
    ("Users", ("users",), "u"),
    ("Audit", ("audit",), ""),
)
"""Title, path below the cluster and key of each line."""


def needs_of(parts: tuple[str, ...]) -> Permission | None:
    """Permission of a page by the table of routes; None if it has no route."""
    path = "/C/" + "/".join(parts)
    return next((route.permission for route in ROUTES if route.path == path), None)


def nav(view: View) -> list[NavItem]:
    """Lines of the side bar that the visitor may open."""
    state = view.snapshot
    found: list[NavItem] = []
    for title, parts, key in ITEMS:
        needed = needs_of(parts)
        if needed is None or not view.may(needed):
            continue
        prefix = "/C/" + "/".join(parts)
        path = view.route.path
        is_current = path in {"/C/", "/C/series"} if not parts else path == prefix or path.startswith(f"{prefix}/")
        count = count_of(title, view, state)
        attention = title == "Brokers" and bool(state.down)
        attention = attention or (title == "Alerts" and bool(count))
        found.append(NavItem(title, view.url(*parts), key, count, is_current, attention))
    return found


def count_of(title: str, view: View, state: Snapshot) -> str:
    """Count beside a line; empty if it is unknown or zero."""
    number: int | None = None
    if title == "Topics" and state.topics_at is not None:
        number = state.application_topics
    elif title == "Groups" and state.groups_at is not None:
        number = len(state.groups)
    elif title == "Dead letters":
        number = state.dead_letters or None
    elif title == "Brokers" and state.brokers:
        up, every = len(state.brokers) - len(state.down), len(state.brokers)
        return str(every) if up == every else f"{up} / {every}"
    elif title == "Alerts":
        active = cast("Callable[[], int] | None", view.console.extras.get("active_alerts"))
        number = (active() if active is not None else 0) or None
    return "" if number is None else count_text(number)


def bars(view: View) -> list[Bar]:
    """Lines about parts of the cluster that do not answer."""
    state = view.snapshot
    found: list[Bar] = []
    for gap in state.gaps:
        read_at = {"brokers": state.brokers_at, "topics": state.topics_at, "groups": state.groups_at}.get(gap.part)
        if gap.part == "brokers":
            text = f"Name server {view.console.settings.name_servers} does not answer: {gap.error}"
        elif any(one.part == "brokers" for one in state.gaps):
            continue  # for the same reason
        else:
            text = f"{gap.part.capitalize()} cannot be read: {gap.error}"
        found.append(Bar(shown(text, 300), gap.since, read_at))
    for row in state.down:
        name = f"{row.name}" if row.is_master else f"{row.name} (slave {row.status.broker_id})"
        found.append(Bar(shown(f"{name} does not answer: {row.error}", 300), row.failed_at, row.read_at))
    return found

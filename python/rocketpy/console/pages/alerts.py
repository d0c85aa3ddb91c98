"""Alerts: what fires, what is silenced, and the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketpy.base.instant import datetime_of
from rocketpy.base.text import is_unicode
from rocketpy.console.alerts.records import alert_text, shown, spelled
from rocketpy.console.names import span_text
from rocketpy.console.tables import Rows, page_of
from rocketpy.console.view import PageNotFoundError

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.responses import Response

    from rocketpy.console.alerts import Alert, AlertWatch, Entry, Rule
    from rocketpy.console.view import View


@dataclass(frozen=True, slots=True)
class AlertRow:
    """One alert that is pending or firing."""

    rule_id: str
    rule: str
    noun: str
    """Kind of the subject: group or broker."""
    subject: str
    state: str
    """`pending`, `firing` or `silenced`."""
    text: str
    value: float
    since: datetime | None
    """Since when the condition holds."""
    fired_at: datetime | None
    notified_at: datetime | None
    is_clearing: bool
    """Whether the condition no longer holds, for less than the time of the rule."""
    can_silence: bool
    """Whether a URL can name the subject: it has no lone surrogate."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One line of the history."""

    at: datetime | None
    kind: str
    """`firing`, `resolved` or `removed`."""
    rule: str
    subject: str
    text: str
    is_silenced: bool


@dataclass(frozen=True, slots=True)
class AlertPage:
    """The page of alerts."""

    alerts: tuple[AlertRow, ...]
    history: Rows[HistoryRow]
    is_kept: bool
    """Whether rules and history survive a restart."""
    warnings: tuple[str, ...]
    """Reasons why alerts or notifications may be missing."""


def watch_of(view: View) -> AlertWatch:
    """Alerts of the console."""
    return view.console.alerts


def alert_row(watch: AlertWatch, alert: Alert, rule: Rule) -> AlertRow:
    """Row of an alert."""
    is_silenced = watch.is_silenced(alert)
    return AlertRow(
        rule_id=rule.id,
        rule=rule.name,
        noun=rule.noun,
        subject=alert.subject,
        state="silenced" if is_silenced else alert.phase,
        text=alert_text(rule, alert.subject, alert.value),
        value=alert.value,
        since=datetime_of(alert.since_ms),
        fired_at=datetime_of(alert.fired_ms),
        notified_at=datetime_of(alert.notified_ms),
        is_clearing=alert.cleared_ms is not None,
        can_silence=is_unicode(alert.subject),
    )


def alert_rows(watch: AlertWatch) -> list[AlertRow]:
    """All alerts: firing, then silenced, then pending; the oldest first."""
    rules = {rule.id: rule for rule in watch.store.rules}
    found = [alert_row(watch, alert, rules[alert.rule_id]) for alert in watch.alerts if alert.rule_id in rules]
    order = {"firing": 0, "silenced": 1, "pending": 2}
    return sorted(found, key=lambda row: order[row.state])


def history_row(entry: Entry) -> HistoryRow:
    """Row of a line of the history."""
    return HistoryRow(
        datetime_of(entry.at_ms), entry.kind, entry.rule_name, entry.subject, entry.text, entry.is_silenced
    )


def warnings_of(watch: AlertWatch) -> list[str]:
    """Reasons why alerts or notifications may be missing, as sentences."""
    found: list[str] = []
    store = watch.store
    if not watch.is_on:
        found.append("Alerts are off in this console: rules are not evaluated, and nothing is sent.")
    if watch.failure is not None:
        found.append(f"Rules cannot be evaluated: {shown(watch.failure)}.")
    if store.error is not None:
        found.append(f"History is not stored: {shown(store.error)}.")
    for channel in store.channels:
        state = watch.delivery.state(channel.name)
        if state.error is not None:
            waiting = spelled(len(store.notices(channel.name)), "messages").replace("message", "notification")
            tried = f"{state.failures} {'attempt' if state.failures == 1 else 'attempts'}"
            text = f"Channel {shown(channel.name)} fails after {tried}: {shown(state.error)}. {waiting} wait"
            found.append(text + ("." if waiting[:2] != "1 " else "s."))
    if store.dropped:
        found.append(f"{store.dropped:,} notifications were dropped, because too many waited.")
    if watch.not_tracked:
        found.append(f"{watch.not_tracked:,} more subjects match rules. At most 1,000 alerts are tracked.")
    return [text.replace("1 notification wait.", "1 notification waits.") for text in found]


async def index(view: View) -> Response:
    """Active and silenced alerts, and the history."""
    watch = watch_of(view)
    query = view.query.get("q", "").strip().lower()
    entries = [
        history_row(entry)
        for entry in watch.store.entries
        if not query or query in f"{entry.subject} {entry.rule_name} {entry.text}".lower()
    ]
    data = AlertPage(
        tuple(alert_rows(watch)),
        page_of(entries, view.query),
        watch.store.path is not None,
        tuple(warnings_of(watch)),
    )
    enabled = sum(rule.is_enabled for rule in watch.store.rules)
    return view.answer("alerts.html", data, enabled=enabled, channels=len(watch.store.channels), span=span_text)


async def forget(view: View) -> Response:
    """Forgets a broker that was removed on purpose."""
    watch, name = watch_of(view), view.path["broker"]
    if not any(one.subject == name and rule_is_gone(watch, one) for one in watch.alerts):
        raise PageNotFoundError(f"no alert about a missing broker {name}")
    async with view.act("forget broker", name) as done:
        await watch.forget_broker(name)
        done.result(f"Broker {name} is forgotten: its alert is resolved with the next reading.")
    return view.back(view.url("alerts"), done.text)


def rule_is_gone(watch: AlertWatch, alert: Alert) -> bool:
    """Whether an alert is about a missing broker."""
    rule = watch.rule(alert.rule_id)
    return rule is not None and rule.condition == "broker_gone"

"""Table of the JSON API: what each route answers, and the fields that it reads."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["API", "Entry"]

PAGES = "rocketpy.console.pages"
FORM = ("step",)
"""Field of every change in two steps: `preview` (the default) answers with the effect, `apply` makes the change."""
PAGED = ("page", "size")


@dataclass(frozen=True, slots=True)
class Entry:
    """Types and fields of one handler."""

    answer: str = ""
    """`module:type` of the answer to GET; after `tuple` many of it, after `rows` one page of it; empty for any JSON."""
    query: tuple[str, ...] = ()
    """Parameters of the query."""
    form: tuple[str, ...] = ()
    """Fields of the form of POST."""
    result: str = ""
    """`module:type` of the answer to POST; empty for a sentence in `result`."""


RULE = (*FORM, "name", "condition", "subject", "threshold", "for", "repeat", "channel", "enabled")
CHANNEL = ("name", "kind", "target")
QUOTA = ("scope", "name", "send_messages", "send_bytes", "pull_messages", "pull_bytes", "connections", "remove")

API: dict[str, Entry] = {
    "alerts.index": Entry(f"{PAGES}.alerts:AlertPage", ("q", *PAGED)),
    "alerts.forget": Entry(),
    "alert_rules.index": Entry(f"tuple {PAGES}.alert_rules:RuleRow"),
    "alert_rules.create": Entry(form=RULE),
    "alert_rules.change": Entry(form=RULE),
    "alert_rules.delete": Entry(form=FORM),
    "alert_silences.index": Entry(f"rows {PAGES}.alert_silences:SilenceRow", PAGED),
    "alert_silences.create": Entry(form=("rule", "subject", "for", "reason")),
    "alert_silences.end": Entry(),
    "alert_channels.index": Entry(f"tuple {PAGES}.alert_channels:ChannelRow"),
    "alert_channels.create": Entry(form=CHANNEL),
    "alert_channels.change": Entry(form=("target",)),
    "alert_channels.delete": Entry(form=FORM),
    "brokers.index": Entry(f"tuple {PAGES}.brokers:BrokerItem", ("order",)),
    "brokers.show": Entry(f"{PAGES}.brokers:BrokerPage", ("id",)),
    "brokers.series": Entry(query=("id", "span")),
    "broker_config.config": Entry(
        f"{PAGES}.broker_config:ConfigPage", ("id", "q", "only", *PAGED), (*FORM, "key", "value", "was", "remove")
    ),
    "broker_quotas.quotas": Entry(f"{PAGES}.broker_quotas:QuotaPage", ("id", *PAGED), (*FORM, *QUOTA)),
    "broker_role.role": Entry(f"{PAGES}.broker_role:RolePage"),
    "broker_role.promote": Entry(form=(*FORM, "member", "sync", "force", "typed", "token")),
    "broker_role.drain": Entry(form=(*FORM, "force")),
    "broker_role.undrain": Entry(form=FORM),
    "users.index": Entry(f"{PAGES}.users:UserList", ("q", "order", *PAGED)),
    "users.show": Entry(f"{PAGES}.users:UserPage", PAGED),
    "user_changes.create": Entry(form=(*FORM, "name", "super"), result=f"{PAGES}.user_changes:NewPassword"),
    "user_changes.rotate": Entry(form=FORM, result=f"{PAGES}.user_changes:NewPassword"),
    "user_changes.finish": Entry(form=FORM),
    "user_changes.state": Entry(form=(*FORM, "to")),
    "user_changes.delete": Entry(form=(*FORM, "typed")),
    "user_changes.grant": Entry(form=(*FORM, "resource", "action", "decision", "sources", "default")),
    "user_changes.revoke": Entry(form=(*FORM, "resource", "default")),
    "audit.index": Entry(f"{PAGES}.audit:AuditPage", ("q", "user", "action", "result", *PAGED)),
    "topics.index": Entry(query=("q", "type", "order", *PAGED)),
    "topics.series": Entry(query=("span",)),
    "overview.series": Entry(query=("of", "span")),
    "find.find": Entry(query=("q",)),
}
"""Entries by the handlers of `rocketpy.console.routes`. A handler without one answers with any JSON."""
